"""Three requests in turn, by networks."""

from experiments.figures.sequential import draw, summary, table

__all__ = ["draw", "summary", "table"]
