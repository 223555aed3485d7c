"""A Flower app whose clients misbehave when they are told to, by a word in a file of their node-config."""
