"""A Flower app for tests: two hospitals train the body of a network, and its head is solved with all."""
