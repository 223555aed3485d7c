"""All methods side by side: what each needs, and what may be claimed of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.harness import Row
from experiments.tables import markdown

HEADER = (
    "method",
    "in the paper",
    "certifies",
    "what may be claimed",
    "proven for",
    "what has to hold",
    "what is stored",
)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how many methods there are, and how many certify."""
    return {"methods": len(rows), "certify": sum(row["certifies"] for row in rows)}


def table(rows: Sequence[Row]) -> str:
    """Return the methods in words."""
    lines = [
        [
            f"`{row['class']}`",
            row["paper"],
            "yes" if row["certifies"] else f"no: {row['why']}",
            ", ".join(f"`{mode}`" for mode in row["modes"]),
            row["proven_for"],
            row["assumes"],
            row["stores"],
        ]
        for row in rows
    ]
    return markdown(HEADER, lines)
