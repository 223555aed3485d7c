"""Public data sets, split into clients and turned into features."""
