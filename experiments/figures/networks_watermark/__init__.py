"""Marked images, by networks."""

from experiments.figures.watermark import draw, summary, table

__all__ = ["draw", "summary", "table"]
