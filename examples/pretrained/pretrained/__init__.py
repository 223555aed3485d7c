"""Clients solve a head on a published network; one of them, or one of its images, is forgotten at once."""
