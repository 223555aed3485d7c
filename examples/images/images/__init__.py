"""A hundred clients train the head of a public feature extractor on images; one of them is forgotten."""
