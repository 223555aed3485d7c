"""The experiments: data, clients and features they share."""
