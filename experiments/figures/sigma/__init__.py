"""The fixed sigma of the paper's rule, swept; the planner chooses its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.figures.sequential import (
    DATASETS,
    METHODS,
    NOISED_START,
    PAPER,
    PUBLISHED,
    SCRATCH,
    SIFU,
    differences,
    largest,
    medians,
    modes,
    ratio,
    reached,
    refusals,
    served,
)
from experiments.harness import Row
from experiments.tables import COLOURS, grouped, legend_below, markdown, middle, percent, spread

SWEPT = (PAPER, PUBLISHED, NOISED_START)
LINES = (SCRATCH, SIFU)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the best rounds that any sigma gets, and what its model still knows."""
    done = served(rows)
    found: dict[str, Any] = {"seeds": len({row["seed"] for row in done}), "refused": len(rows) - len(done)}
    for key, method in (("sound", PAPER), ("published", PUBLISHED)):
        cells = []
        for (dataset, sigma), runs in grouped(
            [row for row in done if row["method"] == method], "dataset", "fixed_sigma"
        ).items():
            alike = [row for row in done if row["method"] == SCRATCH and row["dataset"] == dataset]
            cells.append((middle(runs, "rounds") / middle(alike, "rounds"), sigma, dataset, middle(runs, "forget")))
        best = min(cells, default=None)
        if best is not None:
            found[f"{key}_best_rounds_of_scratch"] = round(best[0], 3)
            found[f"{key}_best"] = {"sigma": best[1], "dataset": best[2], "forget": best[3]}
    found["planner_worse_by"] = max(worse_by(done), default=None)
    found["planner_rounds_of_scratch"] = ratio(done, SIFU, "dataset")
    found["planner_against_scratch"] = largest(differences(done, SIFU, SCRATCH, "forget", "dataset"))
    return found


def worse_by(rows: Sequence[Row]) -> list[float]:
    """Return how many rounds more the planner took than the paper's rule made valid: medians, one for each sigma."""
    planner = [row for row in rows if row["method"] == SIFU]
    paper = grouped([row for row in rows if row["method"] == PAPER], "fixed_sigma")
    found = [differences([*planner, *runs], SIFU, PAPER, "rounds", "dataset") for runs in paper.values()]
    return [each for by_dataset in found for each in medians(by_dataset)]


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set, way and sigma."""
    done, lines = served(rows), list[list[object]]()
    for dataset in DATASETS:
        for method in (*LINES, *SWEPT):
            own = [row for row in done if (row["dataset"], row["method"]) == (dataset, method)]
            by_sigma = grouped(sorted(own, key=lambda row: float(row["fixed_sigma"])), "fixed_sigma")
            for (sigma,), runs in by_sigma.items():
                lines.append(
                    [
                        DATASETS[dataset],
                        METHODS[method],
                        f"{sigma:.4g}" if method in SWEPT else "",
                        middle_round(runs),
                        spread(runs, "rounds"),
                        spread(runs, "forget", percent),
                        percent(middle(runs, "retain")),
                        modes(runs),
                        reached(runs),
                    ]
                )
    header = [
        "data",
        "method",
        "sigma",
        "back to",
        "rounds",
        "on those who left",
        "on the remaining",
        "claim",
        "reached",
    ]
    return markdown(header, lines) + refusals(rows, lambda row: f"sigma {row['fixed_sigma']:.4g}")


def middle_round(rows: Sequence[Row]) -> str:
    """Return the rounds that the runs went back to."""
    return spread([{"round": int(row["from"].partition(".")[2])} for row in rows], "round")


def draw(rows: Sequence[Row]) -> Figure:
    """Draw rounds and accuracy on those who left over sigma; what has none is a line across."""
    done = served(rows)
    datasets = [dataset for dataset in DATASETS if any(row["dataset"] == dataset for row in done)]
    figure = Figure(figsize=(8.8, 2.9 * len(datasets)), layout="constrained")
    axes = figure.subplots(len(datasets), 2, squeeze=False, sharex=True)
    titles = {"rounds": ("rounds to the threshold", 1), "forget": ("accuracy on those who left, %", 100)}
    for line, dataset in zip(axes, datasets, strict=True):
        for each, (key, (title, scale)) in zip(line, titles.items(), strict=True):
            for at, method in enumerate((*LINES, *SWEPT)):
                own = [row for row in done if (row["dataset"], row["method"]) == (dataset, method)]
                if not own:
                    continue
                style: dict[str, Any] = {"color": COLOURS[at], "label": METHODS[method]}
                if method in LINES:
                    # Scratch on top and dashed: the planner may lie on the very same line.
                    style |= {"linestyle": "--", "zorder": 3} if method == SCRATCH else {"linestyle": "-"}
                    each.axhline(scale * middle(own, key), **style)
                    continue
                found = grouped(sorted(own, key=lambda row: float(row["fixed_sigma"])), "fixed_sigma")
                sigmas = [sigma for (sigma,) in found]
                each.plot(sigmas, [scale * middle(runs, key) for runs in found.values()], "o-", markersize=4, **style)
                least, most = (
                    [scale * end(row[key] for row in runs) for runs in found.values()] for end in (min, max)
                )
                each.fill_between(sigmas, least, most, color=COLOURS[at], alpha=0.15, linewidth=0)
            each.set_xscale("log")
            top = each.get_ylim()[1]
            each.set_ylim(-0.03 * top, top)
            each.set_title(f"{DATASETS[dataset]}: {title}", fontsize=10)
            each.grid(alpha=0.3)
    for each in axes[-1]:
        each.set_xlabel("sigma of the paper's rule")
    legend_below(figure, axes[0][0])
    return figure
