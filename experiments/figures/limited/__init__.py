"""A quarter, a third, a half of the training's rounds: how far from Scratch each method is then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.figures.sequential import (
    DATASETS,
    METHODS,
    PUBLISHED,
    SCRATCH,
    SIFU,
    in_order,
    modes,
    panels,
    served,
)
from experiments.harness import Row
from experiments.tables import grouped, markdown, middle, percent

KINDS = ("forget", "retain", "test")


def gaps(rows: Sequence[Row]) -> list[Row]:
    """Return the limited runs with their absolute distance from Scratch at its threshold with that seed."""
    done = served(rows)
    ends = {(row["dataset"], row["seed"]): row for row in done if row["method"] == SCRATCH and "share" not in row}
    return [
        {**row, **{f"{kind}_gap": abs(row[kind] - end[kind]) for kind in KINDS}}
        for row in done
        if "share" in row and (end := ends.get((row["dataset"], row["seed"])))
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the median gaps of each method over data sets and shares."""
    found = gaps(rows)
    middles = {
        kind: {method: round(middle(runs, f"{kind}_gap"), 4) for (method,), runs in grouped(found, "method").items()}
        for kind in ("forget", "retain")
    }
    worse = [
        middles["retain"][name] - middles["retain"][SCRATCH]
        for name in (SIFU, PUBLISHED)
        if name in middles["retain"]
    ]
    return {
        "seeds": len({row["seed"] for row in found}),
        "forget_gap": middles["forget"],
        "retain_gap": middles["retain"],
        "sifu_retain_worse_than_limited_scratch": max(worse, default=None),
        "refused": len(rows) - len(served(rows)),
    }


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set and method; the shares are separated by strokes."""
    lines = []
    for dataset, method, runs in in_order(gaps(rows)):
        shares = list(grouped(sorted(runs, key=lambda row: float(row["share"])), "share").values())
        lines.append(
            [
                DATASETS[dataset],
                METHODS[method],
                " / ".join(f"{middle(each, 'rounds'):.0f}" for each in shares),
                *(" / ".join(percent(middle(each, kind)) for each in shares) for kind in KINDS),
                *(
                    " / ".join(f"{100 * middle(each, kind):.1f}" for each in shares)
                    for kind in ("forget_gap", "retain_gap")
                ),
                modes(runs),
            ]
        )
    # What the gaps are measured from.
    ends = [row for row in served(rows) if "share" not in row]
    for dataset, method, runs in in_order(ends):
        accuracies = [percent(middle(runs, kind)) for kind in KINDS]
        title = METHODS[method] + (", to the threshold" if method == SCRATCH else "")
        lines.append([DATASETS[dataset], title, f"{middle(runs, 'rounds'):.0f}", *accuracies, "", "", modes(runs)])
    header = [
        "data",
        "method",
        "rounds",
        "on those who left",
        "on the remaining",
        "test",
        "gap in points, those who left",
        "gap in points, the remaining",
        "claim",
    ]
    return markdown(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the gaps on those who left and on the remaining, method by method."""
    return panels(
        gaps(rows),
        "share",
        {
            "gap on those who left, points": lambda row: 100 * float(row["forget_gap"]),
            "gap on the remaining, points": lambda row: 100 * float(row["retain_gap"]),
        },
    )
