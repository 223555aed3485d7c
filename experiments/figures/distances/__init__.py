"""The true distance against what three bounds allow."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import Row
from experiments.tables import COLOURS, markdown

KINDS = {
    "sound": "sound (proven factor, joint)",
    "published": "published (B = 1, largest client, right weights)",
    "authors": "the released code's weights, 1/(M-1)",
}


def pairs(rows: Sequence[Row], kind: str) -> list[tuple[float, float]]:
    """Return alpha and Psi wherever somebody who leaves has taken part."""
    return [(row["alpha"], row[kind]) for row in rows if row["alpha"] > 0 or row["sound"] > 0]


def judged(rows: Sequence[Row], kind: str) -> dict[str, Any]:
    """Return the comparisons, those above the bound, and alpha/Psi in the middle and at its worst."""
    found = pairs(rows, kind)
    ratios = [alpha / psi if psi else np.inf for alpha, psi in found]
    return {
        "comparisons": len(found),
        "violations": sum(alpha > psi for alpha, psi in found),
        "median": median(ratios),
        "worst": max(ratios),
    }


def lines(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Return the rows of the table: which bound, of whom, and what was measured."""
    return [
        (kind, leaving, chosen)
        for kind in KINDS
        for leaving in ("one", "ten")
        if (chosen := [row for row in rows if row["leaving"] == leaving])
    ]


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return comparisons, violations and ratios of each kind of bound."""
    found: dict[str, Any] = {}
    for kind in KINDS:
        found |= {f"{kind}_{name}": value for name, value in judged(rows, kind).items()}
    sampled = [row for row in rows if row["drawn"]]
    found |= {f"{kind}_violations_sampled": judged(sampled, kind)["violations"] for kind in KINDS}
    found["comparisons_sampled"] = judged(sampled, "sound")["comparisons"]
    for kind, leaving, chosen in lines(rows):
        found[f"{kind}_{leaving}_violations"] = judged(chosen, kind)["violations"]
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the kinds of bound, and how the true distance compares."""
    shown = []
    for kind, leaving, chosen in lines(rows):
        for title, some in (
            ("everybody", [row for row in chosen if not row["drawn"]]),
            ("10 drawn", [row for row in chosen if row["drawn"]]),
        ):
            if some:
                found = judged(some, kind)
                shown.append(
                    [
                        KINDS[kind],
                        "one client" if leaving == "one" else "ten together",
                        title,
                        f"{found['comparisons']:,}",
                        f"**{found['violations']:,}**",
                        f"{found['median']:.2f}",
                        f"{found['worst']:.3g}",
                    ]
                )
    header = ["bound", "who leaves", "a round has", "comparisons", "violations", "median alpha/Psi", "worst"]
    return markdown(header, shown)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw alpha against each Psi; what lies above the diagonal is further away than the bound allows."""
    figure = Figure(figsize=(10, 3.9), layout="constrained")
    axes = figure.subplots(1, len(KINDS), sharex=True, sharey=True)
    allowed = [psi for kind in KINDS for _, psi in pairs(rows, kind) if psi > 0]
    # What is far below every bound is drawn at the edge: contraction may bring the two worlds together.
    ends = (0.5 * min(allowed), 1.4 * max(*allowed, *(row["alpha"] for row in rows)))
    for each, (kind, title) in zip(axes, KINDS.items(), strict=True):
        for leaving, colour, marker in (("one", COLOURS[0], "o"), ("ten", COLOURS[1], "^")):
            found = np.array(pairs([row for row in rows if row["leaving"] == leaving], kind)).reshape(-1, 2)
            label = "one client" if leaving == "one" else "ten together"
            each.scatter(
                found[:, 1],
                np.maximum(found[:, 0], ends[0]),
                s=9,
                marker=marker,
                color=colour,
                alpha=0.5,
                linewidths=0,
                label=label,
                # Thousands of points would make a file of megabytes.
                rasterized=True,
            )
        each.plot(ends, ends, color="black", linewidth=0.8)
        each.set_xscale("log")
        each.set_yscale("log")
        each.set_xlim(*ends)
        each.set_ylim(*ends)
        each.set_title(f"{title}\n{judged(rows, kind)['violations']:,} above the diagonal", fontsize=9)
        each.set_xlabel("bound (Psi)")
        each.grid(alpha=0.25)
    axes[0].set_ylabel("true distance (alpha)")
    axes[0].legend(fontsize=8, loc="upper left")
    return figure
