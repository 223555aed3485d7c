"""What it costs to forget exactly who joined late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.harness import Row
from experiments.tables import COLOURS, grouped, markdown, middle, percent, spread


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


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the rounds that are trained again over the time of joining."""
    figure = Figure(figsize=(5.4, 3.4), layout="constrained")
    axes = figure.subplots()
    exact = [row for row in rows if row["method"] == "exact"]
    for at, ((leaving,), own) in enumerate(grouped(exact, "leaving").items()):
        found = grouped(sorted(own, key=lambda row: float(row["joined"])), "joined")
        label = "one client leaves" if leaving == 1 else f"{leaving} clients leave"
        joined = [100 * share for (share,) in found]
        axes.plot(joined, [middle(runs, "again") for runs in found.values()], "o-", color=COLOURS[at], label=label)
    axes.axhline(rows[0]["rounds"], color="black", linestyle="--", linewidth=1, label="Scratch")
    axes.set_xlabel("joined after, % of the rounds")
    axes.set_ylabel("rounds trained again")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=9)
    return figure
