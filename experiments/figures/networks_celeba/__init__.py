"""Three requests in turn, by networks that see faces."""

from experiments.figures.sequential import draw, summary, table

__all__ = ["draw", "summary", "table"]
