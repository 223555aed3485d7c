"""SIFU as it was released: rounds after three requests against Scratch's, by how a distance is weighed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from matplotlib.figure import Figure

from experiments.harness import Row
from experiments.runs.released import SCRATCH, SIFU
from experiments.tables import COLOURS, grouped, legend_below, markdown, percent

METHODS = (SCRATCH, *SIFU)


def totals(rows: Sequence[Row]) -> dict[tuple[str, int], int]:
    """Return the rounds after all requests, by method and seed."""
    cells = grouped(rows, "method", "seed")
    return {(method, seed): sum(row["rounds"] for row in runs) for (method, seed), runs in cells.items()}


def ratios(rows: Sequence[Row], method: str) -> list[float]:
    """Return each seed's rounds against Scratch's."""
    found = totals(rows)
    seeds = [seed for name, seed in found if name == method]
    return [found[method, seed] / found[SCRATCH, seed] for seed in seeds]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the rounds against Scratch's: over all seeds together, and the least and the most of a seed."""
    found, told = totals(rows), dict[str, Any]()
    scratch = sum(total for (name, _), total in found.items() if name == SCRATCH)
    for method in SIFU:
        own, together = ratios(rows, method), sum(total for (name, _), total in found.items() if name == method)
        told[method] = [round(each, 2) for each in (together / scratch, min(own), max(own))]
    return told


def table(rows: Sequence[Row]) -> str:
    """Return for each method the rounds of every request, the models gone back to, and what is left of who left."""
    told, lines = summary(rows), []
    for method in METHODS:
        runs = [row for row in rows if row["method"] == method]
        by_request = grouped(runs, "request")
        share = "1" if method == SCRATCH else "{:.2f} ({:.2f} to {:.2f})".format(*told[method])
        known = sorted(row["forget"] for row in runs)
        lines.append(
            [
                method,
                " / ".join(f"{mean(row['rounds'] for row in own):.0f}" for own in by_request.values()),
                share,
                " / ".join(str(own[0]["from"]) for own in by_request.values()),
                f"{percent(known[0])} to {percent(known[-1])}" if known[-1] else percent(0),
            ]
        )
    header = [
        "method",
        "rounds after each request, mean",
        "of Scratch's (least and most of a seed)",
        "back to, first seed",
        "images known of who left",
    ]
    return markdown(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw every seed's rounds after all requests, by method."""
    figure = Figure(figsize=(8.6, 3.2), layout="constrained")
    axes, found = figure.subplots(), totals(rows)
    seeds = sorted({seed for _, seed in found})
    for at, method in enumerate(METHODS):
        heights = [found.get((method, seed), 0) for seed in seeds]
        places = [place + 0.21 * (at - 1.5) for place in range(len(seeds))]
        axes.bar(places, heights, width=0.2, color=COLOURS[at], label=method)
    axes.set_xticks(range(len(seeds)), [f"seed {seed}" for seed in seeds])
    axes.set_ylabel("rounds after three requests")
    legend_below(figure, axes)
    return figure
