"""A limited number of rounds, by networks."""

from experiments.figures.limited import draw, summary, table

__all__ = ["draw", "summary", "table"]
