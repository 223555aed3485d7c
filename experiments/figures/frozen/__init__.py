"""Accuracy against guarantee: a network, a network with noise, a head on frozen features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.sequential import DATASETS
from experiments.harness import Row
from experiments.tables import COLOURS, grouped, legend_below, markdown, middle, percent, spread

NETWORK, NOISED = "network", "network with DP-FedAvg"
HEADS = {
    "convolutions": {400: "head on random convolutions", 1600: "head on 1,600 random convolutions"},
    "transferred": {400: "head on another set's network"},
}
SOLVED = ", solved"
WAYS = [NETWORK, NOISED, *(name + how for kind in HEADS.values() for name in kind.values() for how in ("", SOLVED))]


def way(row: Row) -> str:
    """Name how a model was trained."""
    if row["features"] == "images":
        return NOISED if "clip" in row else NETWORK
    kind = HEADS[row["features"]]
    # The quick size has other numbers of features.
    return kind.get(row["columns"], kind[400]) + (SOLVED if row.get("method") == "solve" else "")


def by_way(rows: Sequence[Row]) -> dict[tuple[str, str, Any], list[Row]]:
    """Return the rows of each data set, way and budget; what forgets by training again has no budget."""
    named = [{"epsilon": None, **row, "way": way(row)} for row in rows]
    found = grouped(
        sorted(named, key=lambda row: (list(DATASETS).index(row["dataset"]), WAYS.index(row["way"]))),
        "dataset",
        "way",
        "epsilon",
    )
    return {(dataset, name, epsilon): runs for (dataset, name, epsilon), runs in found.items()}


def accuracy(runs: Sequence[Row]) -> float:
    """Return the held-out accuracy of what is released after somebody was forgotten."""
    return middle(runs, "planner_test" if "planner_test" in runs[0] else "retrained_test")


def breakdown(runs: Sequence[Row]) -> str:
    """Say after how many rounds the first of these trainings broke down, if one did."""
    broken = [row["rounds_done"] for row in runs if row.get("rounds_done", row["rounds"]) < row["rounds"]]
    return f"; broke down after {min(broken)} of {runs[0]['rounds']} rounds" if broken else ""


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return accuracies and rounds, way by way."""
    found: dict[str, Any] = {}
    for (dataset, name, epsilon), runs in by_way(rows).items():
        title = f"{DATASETS[dataset]}, {name}" + (f", eps {epsilon:g}" if epsilon is not None else "")
        found[title] = {"test": round(accuracy(runs), 4)} | {
            key: middle(runs, key) for key in ("scratch", "planner") if key in runs[0]
        }
    return found


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set, way and budget."""
    lines = []
    for (dataset, name, epsilon), runs in by_way(rows).items():
        lines.append(
            [
                DATASETS[dataset],
                name,
                "" if epsilon is None else f"{epsilon:g}",
                percent(middle(runs, "retrained_test")) if "retrained_test" in runs[0] else "",
                percent(accuracy(runs)) + breakdown(runs),
                spread(runs, "scratch") if "scratch" in runs[0] else "",
                spread(runs, "planner") if "planner" in runs[0] else spread(runs, "scratch"),
                ", ".join(sorted({row["mode"] for row in runs})),
            ]
        )
    header = [
        "data",
        "way",
        "eps",
        "test, all rounds again",
        "test, released",
        "Scratch",
        "rounds to forget",
        "claim",
    ]
    return markdown(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the held-out accuracy of what is released, way by way."""
    found = by_way(rows)
    datasets = [dataset for dataset in DATASETS if any(key[0] == dataset for key in found)]
    figure = Figure(figsize=(3.3 * len(datasets), 3.6), layout="constrained")
    axes = figure.subplots(1, len(datasets), squeeze=False)[0]
    epsilons = sorted({key[2] for key in found if key[2] is not None})
    names = [name for name in WAYS if any(key[1] == name for key in found)]
    for each, dataset in zip(axes, datasets, strict=True):
        for at, epsilon in enumerate([None, *epsilons]):
            own = {name: found[dataset, name, epsilon] for name in names if (dataset, name, epsilon) in found}
            places = np.array([names.index(name) for name in own]) + 0.22 * (at - 1)
            label = "exact" if epsilon is None else f"certified, eps {epsilon:g}"
            each.barh(places, [100 * accuracy(runs) for runs in own.values()], 0.2, color=COLOURS[at], label=label)
        each.set_yticks(range(len(names)), names if each is axes[0] else [""] * len(names))
        each.set_ylim(len(names) - 0.5, -0.5)
        each.set_title(DATASETS[dataset], fontsize=10)
        each.set_xlabel("test accuracy, %")
        each.grid(axis="x", alpha=0.3)
    legend_below(figure, axes[0])
    return figure
