"""What it costs to forget exactly who joined late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.harness import Row
from experiments.tables import grouped, markdown, middle, percent, spread


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the share of the rounds that has to be trained again, by when who leaves had joined."""
    exact = [row for row in rows if row["method"] == "exact"]
    return {
        "seeds": len({row["seed"] for row in rows}),
        "again": {
            f"{leaving} joined at {joined:g}": round(middle(runs, "again") / runs[0]["rounds"], 3)
            for (leaving, joined), runs in grouped(exact, "leaving", "joined").items()
        },
        "not_exact": sum(row["mode"] != "exact" for row in rows),
    }


def table(rows: Sequence[Row]) -> str:
    """Return a line for each method, number of leavers and time of joining."""
    lines = [
        [
            method,
            leaving,
            percent(joined),
            spread(runs, "back_to"),
            spread(runs, "again"),
            percent(middle(runs, "retain")),
            percent(middle(runs, "test")),
            ", ".join(sorted({row["mode"] for row in runs})),
        ]
        for (method, leaving, joined), runs in grouped(rows, "method", "leaving", "joined").items()
    ]
    header = ["method", "who leave", "joined after", "back to", "rounds again", "on the remaining", "test", "claim"]
    return markdown(header, lines)
