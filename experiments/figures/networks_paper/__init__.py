"""Networks at the paper's learning rates: what the first model is decides what the noise saves."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from experiments.figures.sequential import DATASETS, METHODS, NOISED_START, PUBLISHED, SCRATCH, refusals, served
from experiments.harness import Row
from experiments.tables import COLOURS, grouped, legend_below, markdown, percent

SHOWN = (SCRATCH, NOISED_START, PUBLISHED)


def ratios(rows: Sequence[Row], dataset: str, kind: str, method: str) -> list[float]:
    """Return a method's rounds against Scratch's, for each first model of a kind where both arrived."""
    runs = {(row["first_model"], row["method"]): row for row in served(rows) if row["dataset"] == dataset}
    return [
        row["rounds"] / scratch["rounds"]
        for (first, name), row in runs.items()
        if name == method and first.startswith(kind) and row["reached"]
        if (scratch := runs.get((first, SCRATCH))) is not None and scratch["reached"]
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the medians over the first models of a kind, of the rounds against Scratch's."""
    found = {
        f"{dataset}, {kind}, {method}": ratios(rows, dataset, kind, method)
        for dataset in dict.fromkeys(row["dataset"] for row in rows)
        for kind in ("torch", "he")
        for method in SHOWN[1:]
    }
    return {name: round(median(each), 2) for name, each in found.items() if each}


def table(rows: Sequence[Row]) -> str:
    """Return a line for each run."""
    lines = [
        [
            DATASETS[row["dataset"]],
            row["first_model"],
            METHODS[row["method"]],
            row["trained"],
            row["from"],
            f"{row['sigma']:.3g}",
            row["rounds"],
            percent(row["forget"]),
            percent(row["retain"]),
            row["mode"],
            "yes" if row["reached"] else "no",
        ]
        for row in served(rows)
    ]
    header = [
        *("data", "first model", "method", "training took", "back to", "sigma", "rounds"),
        *("on those who left", "on the remaining", "claim", "reached"),
    ]
    return markdown(header, lines) + refusals(rows, lambda row: f"first model {row['first_model']}")


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the rounds of every method, by first model."""
    datasets = list(grouped(rows, "dataset"))
    figure = Figure(figsize=(4.2 * len(datasets), 3), layout="constrained")
    for axes, (dataset,) in zip(figure.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True):
        own = [row for row in served(rows) if row["dataset"] == dataset]
        firsts = sorted({row["first_model"] for row in own}, reverse=True)
        for at, method in enumerate(SHOWN):
            rounds = {row["first_model"]: row["rounds"] for row in own if row["method"] == method}
            places = [place + 0.27 * (at - 1) for place, first in enumerate(firsts) if first in rounds]
            heights = [rounds[first] for first in firsts if first in rounds]
            axes.bar(places, heights, width=0.25, color=COLOURS[at], label=METHODS[method])
        axes.set_xticks(range(len(firsts)), firsts)
        axes.set_title(DATASETS[dataset], fontsize=10)
        axes.set_ylabel("rounds to the threshold")
    legend_below(figure, figure.axes[0])
    return figure
