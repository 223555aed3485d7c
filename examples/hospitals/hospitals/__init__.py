"""Four hospitals train one model of heart disease; one of them leaves and is forgotten."""
