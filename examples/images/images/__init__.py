"""A hundred clients train a network on images, in two stages; one of them is forgotten exactly."""
