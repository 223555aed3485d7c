"""Models and clients' objects by their digests: in a folder, in memory or in a bucket."""
