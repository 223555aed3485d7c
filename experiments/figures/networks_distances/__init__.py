"""The true distance of networks against bounds with B = 1, by learning rate and sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.figures.distances import judged, pairs
from experiments.figures.sequential import DATASETS
from experiments.harness import Row
from experiments.tables import COLOURS, grouped, legend_below, markdown

# The product's bound is joint, with B = 1 as nothing is proven of networks; the published one has the largest client.
BOUNDS = ("sound", "published")

# Where the axes end: the words stand above every point.
TOP = 10


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return comparisons, violations and the worst ratio, for one client and for ten, and at the smallest step."""
    found: dict[str, Any] = {
        "trainings": len({(row["dataset"], row["drawn"], row["learning_rate"], row["seed"]) for row in rows})
    }
    smallest = min(row["learning_rate"] for row in rows)
    for leaving in ("one", "ten"):
        own = [row for row in rows if row["leaving"] == leaving]
        for kind in BOUNDS:
            of = judged(own, kind)
            found |= {f"{kind}_{leaving}_{name}": of[name] for name in ("comparisons", "violations", "worst")}
            at_smallest = judged([row for row in own if row["learning_rate"] == smallest], kind)
            found[f"{kind}_{leaving}_violations_at_{smallest:g}"] = at_smallest["violations"]
    return found


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set, sample and learning rate."""
    shown = []
    for (dataset, drawn, rate), own in sorted(grouped(rows, "dataset", "drawn", "learning_rate").items()):
        cells = []
        for leaving in ("one", "ten"):
            some = [row for row in own if row["leaving"] == leaving]
            for kind in BOUNDS if leaving == "ten" else ("sound",):
                found = judged(some, kind) if pairs(some, kind) else None
                cells.append(
                    f"{found['violations']} of {found['comparisons']}; {found['worst']:.2f}"
                    if found
                    else "never drawn"
                )
        shown.append([DATASETS[dataset], f"{drawn} of 100", f"{rate:g}", *cells])
    header = ["data", "a round has", "eta", "one client", "ten, joint", "ten, published"]
    return markdown(header, shown)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw alpha/Psi over the rounds, for one client and for ten; above 1 the bound is broken."""
    panels = sorted(grouped(rows, "dataset", "drawn").items())
    figure = Figure(figsize=(3.1 * len(panels), 5.4), layout="constrained")
    axes = figure.subplots(2, len(panels), sharex=True, sharey=True, squeeze=False)
    rates, marks = (sorted({row[key] for row in rows}) for key in ("learning_rate", "round"))
    titles = {"one": "one client", "ten": "ten, joint"}
    for line, (leaving, title) in zip(axes, titles.items(), strict=True):
        for each, ((dataset, drawn), own) in zip(line, panels, strict=True):
            for at, rate in enumerate(rates):
                some = [row for row in own if (row["learning_rate"], row["leaving"]) == (rate, leaving)]
                known = [row for row in some if row["sound"] > 0]
                each.plot(
                    [row["round"] * 1.08 ** (at - (len(rates) - 1) / 2) for row in known],
                    [row["alpha"] / row["sound"] for row in known],
                    "o",
                    markersize=4,
                    alpha=0.7,
                    color=COLOURS[at],
                    label=f"eta {rate:g}",
                )
            each.axhline(1, color="black", linewidth=0.8)
            each.axhspan(1, TOP, color=COLOURS[1], alpha=0.12, linewidth=0)
            each.text(0.03, 0.96, "above 1: bound broken", fontsize=8, va="top", transform=each.transAxes)
            each.set_xscale("log")
            each.set_yscale("log")
            each.set_xticks(marks, [str(mark) for mark in marks])
            each.set_xticks([], minor=True)
            each.set_title(f"{DATASETS[dataset]}, {drawn} drawn: {title}", fontsize=9)
            each.grid(alpha=0.25)
        line[0].set_ylabel("true distance / bound")
    axes[0][0].set_ylim(top=TOP)
    for each in axes[-1]:
        each.set_xlabel("round")
    legend_below(figure, axes[0][0])
    return figure
