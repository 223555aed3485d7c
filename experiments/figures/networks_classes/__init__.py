"""Each class forgotten in turn, by a network."""

from experiments.figures.classes import draw, summary, table

__all__ = ["draw", "summary", "table"]
