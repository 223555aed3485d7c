"""An ordinary Flower app: ten clients train a small network."""
