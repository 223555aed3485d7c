"""The fixed sigma of the paper's rule, swept, by a network."""

from experiments.figures.sigma import draw, summary, table

__all__ = ["draw", "summary", "table"]
