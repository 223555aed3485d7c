"""A Flower app for tests: a ridge head on the features of a body that everybody has."""
