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


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Give comparisons, violations and the worst ratio, for one client and for ten, and at the smallest step."""
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
    """Give a line for each data set, sample and learning rate."""
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
    """Draw alpha/Psi over the rounds, one panel for each sample and data set; above 1 the bound is broken."""
    panels = grouped(rows, "dataset", "drawn")
    figure = Figure(figsize=(3.1 * len(panels), 3.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    rates = sorted({row["learning_rate"] for row in rows})
    for each, ((dataset, drawn), own) in zip(axes, sorted(panels.items()), strict=True):
        for at, rate in enumerate(rates):
            some = [
                row for row in own if row["learning_rate"] == rate and row["leaving"] == "one" and row["sound"] > 0
            ]
            each.plot(
                [row["round"] * 1.06 ** (at - (len(rates) - 1) / 2) for row in some],
                [row["alpha"] / row["sound"] for row in some],
                "o",
                markersize=4,
                alpha=0.7,
                color=COLOURS[at],
                label=f"eta {rate:g}",
            )
        each.axhline(1, color="black", linewidth=0.8)
        each.set_xscale("log")
        each.set_yscale("log")
        each.set_title(f"{DATASETS[dataset]}, {drawn} drawn", fontsize=10)
        each.set_xlabel("round")
        each.grid(alpha=0.25)
    axes[0].set_ylabel("alpha / Psi of one client")
    legend_below(figure, axes[0])
    return figure
