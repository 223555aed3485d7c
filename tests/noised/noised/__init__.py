"""Hospitals train a whole network by code of their own, and every round is noised."""
