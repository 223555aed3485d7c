"""Each class forgotten in turn, to see whether it matters which."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.figures.sequential import (
    DATASETS,
    METHODS,
    PUBLISHED,
    SCRATCH,
    SIFU,
    differences,
    in_order,
    largest,
    medians,
    modes,
    ratio,
    served,
)
from experiments.harness import Row
from experiments.tables import COLOURS, grouped, legend_below, markdown, middle, percent, spread


def classed(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that were served with the class that left."""
    return [{**row, "class": row["groups"][0]} for row in served(rows)]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers that the figure is judged by."""
    done, by = classed(rows), ("dataset", "class")
    return {
        "seeds": len({row["seed"] for row in done}),
        "classes": len({row["class"] for row in done}),
        "planner_rounds_of_scratch": ratio(done, SIFU, *by),
        "published_rounds_of_scratch": ratio(done, PUBLISHED, *by),
        "sifu_against_scratch": largest(differences(done, SIFU, SCRATCH, "forget", *by)),
        "published_against_scratch": largest(differences(done, PUBLISHED, SCRATCH, "forget", *by)),
        "fine_tuning_against_scratch": {
            name: end(found)
            for name, end in (("least", min), ("median", median), ("most", max))
            if (found := medians(differences(done, "Fine-tuning", SCRATCH, "forget", *by)))
        },
        "not_reached": sum(not row["reached"] for row in done),
        "refused": len(rows) - len(done),
    }


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set and class: rounds and accuracy on those who left, method by method."""
    done = classed(rows)
    names = [name for name in METHODS if any(row["method"] == name for row in done)]
    lines = []
    for dataset in DATASETS:
        own = grouped(sorted(done, key=lambda row: int(row["class"])), "dataset", "class", "method")
        for class_ in sorted({key[1] for key in own if key[0] == dataset}):
            cells = [own.get((dataset, class_, name), []) for name in names]
            lines.append(
                [
                    DATASETS[dataset],
                    class_,
                    *(
                        f"{spread(runs, 'rounds')}; {percent(middle(runs, 'forget'))}" if runs else ""
                        for runs in cells
                    ),
                ]
            )
    found = "; ".join(
        f"{DATASETS[dataset]}, {METHODS[method]}: {modes(runs)}" for dataset, method, runs in in_order(done)
    )
    return markdown(["data", "class", *(METHODS[name] for name in names)], lines) + f"\n\nClaims: {found}."


def draw(rows: Sequence[Row]) -> Figure:
    """Draw rounds and accuracy on those who left, class by class."""
    done = classed(rows)
    datasets = [dataset for dataset in DATASETS if any(row["dataset"] == dataset for row in done)]
    names = [name for name in METHODS if any(row["method"] == name for row in done)]
    figure = Figure(figsize=(9.6, 2.7 * len(datasets)), layout="constrained")
    axes = figure.subplots(len(datasets), 2, squeeze=False)
    titles = {"rounds": ("rounds to the threshold", 1), "forget": ("accuracy on those who left, %", 100)}
    for line, dataset in zip(axes, datasets, strict=True):
        for each, (key, (title, scale)) in zip(line, titles.items(), strict=True):
            for at, name in enumerate(names):
                own = [row for row in done if (row["dataset"], row["method"]) == (dataset, name)]
                found = grouped(sorted(own, key=lambda row: int(row["class"])), "class")
                if not found:
                    continue
                middles = scale * np.array([middle(runs, key) for runs in found.values()])
                ends = [[end(row[key] for row in runs) for runs in found.values()] for end in (min, max)]
                each.errorbar(
                    [class_ + 0.8 * ((at + 0.5) / len(names) - 0.5) for (class_,) in found],
                    middles,
                    yerr=np.abs(scale * np.array(ends) - middles),
                    fmt="o",
                    markersize=4,
                    capsize=2,
                    linewidth=1,
                    color=COLOURS[at],
                    label=METHODS[name],
                )
            each.set_xticks(sorted({row["class"] for row in done}))
            top = each.get_ylim()[1]
            each.set_ylim(-0.03 * top, top)
            each.set_title(f"{DATASETS[dataset]}: {title}", fontsize=10)
            each.grid(axis="y", alpha=0.3)
    for each in axes[-1]:
        each.set_xlabel("class that left")
    legend_below(figure, axes[0][0])
    return figure
