"""The noise that one leaver takes, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import Row
from experiments.tables import COLOURS, grouped, markdown, middle

SHOWN = (1, 3, 10)
# The rule and the training's L2 term, what it is called, and how its line is drawn; some are in the table only.
RULES: dict[tuple[str, float], tuple[str, str, str]] = {
    ("classic, B = 1", 0.0): ("classic formula, B = 1", COLOURS[7], "--"),
    ("B = 1", 0.0): ("exact, B = 1", COLOURS[0], "-"),
    ("B = 1, ten", 0.0): ("exact, B = 1, ten together", COLOURS[0], ":"),
    ("B = 1", 0.001): ("exact, as if B = 1, L2 0.001", "", ""),
    ("proven", 0.001): ("exact, proven factor, L2 0.001", COLOURS[2], "-"),
    ("proven, ten", 0.001): ("exact, proven factor, L2 0.001, ten together", "", ""),
    ("B = 1", 0.01): ("exact, as if B = 1, L2 0.01", "", ""),
    ("proven", 0.01): ("exact, proven factor, L2 0.01", COLOURS[1], "-"),
    ("proven, ten", 0.01): ("exact, proven factor, L2 0.01, ten together", COLOURS[1], ":"),
    ("strict", 0.001): ("strict, L2 0.001", COLOURS[3], "-."),
    ("strict", 0.01): ("strict, L2 0.01", COLOURS[5], "-."),
    ("strict, ten", 0.01): ("strict, L2 0.01, ten together", "", ""),
}


def cell(runs: Sequence[Row]) -> str:
    """Return sigma and, in brackets, what the public list has above it; in words where it is not enough."""
    listed = [row["public"] for row in runs]
    public = "none" if None in listed else f"{sorted(listed)[len(listed) // 2]:.3g}"
    short = "" if all(row["holds"] for row in runs) else " *"
    return f"{middle(runs, 'sigma'):.3g} ({public}){short}"


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how many times as much noise each rule takes as exact calibration with B = 1 and no L2 term."""
    delta = min(row["delta"] for row in rows)
    found: dict[str, Any] = {}
    for (clients,), runs in grouped(rows, "clients").items():
        last = max(row["round"] for row in runs)
        by_rule = grouped(
            [row for row in runs if row["round"] == last and row["delta"] == delta], "rule", "l2", "epsilon"
        )
        base = {
            epsilon: middle(each, "sigma")
            for (rule, l2, epsilon), each in by_rule.items()
            if (rule, l2) == ("B = 1", 0)
        }
        for (rule, l2, epsilon), each in by_rule.items():
            if epsilon == SHOWN[0]:
                found[f"{clients}: {rule}, L2 {l2:g}"] = round(middle(each, "sigma") / base[epsilon], 3)
    return found


def table(rows: Sequence[Row]) -> str:
    """Return sigma at three epsilons, for the last model and for half of the training."""
    delta = min(row["delta"] for row in rows)
    found = grouped([row for row in rows if row["delta"] == delta], "clients", "rule", "l2", "round", "epsilon")
    rounds = sorted({row["round"] for row in rows}, reverse=True)
    lines = [
        [
            f"{clients:,}",
            title,
            *(cell(found[(clients, rule, l2, at, epsilon)]) for at in rounds for epsilon in SHOWN),
        ]
        for clients in sorted({row["clients"] for row in rows})
        for (rule, l2), (title, _, _) in RULES.items()
        if (clients, rule, l2, rounds[0], SHOWN[0]) in found
    ]
    header = ["clients", "rule", *(f"model {at}, eps {epsilon:g}" for at in rounds for epsilon in SHOWN)]
    return markdown(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw sigma over epsilon at the last model, one line for each rule, one picture for each size and delta."""
    last = max(row["round"] for row in rows)
    chosen = [row for row in rows if row["round"] == last]
    sizes, deltas = sorted({row["clients"] for row in rows}), sorted({row["delta"] for row in rows})
    figure = Figure(figsize=(4.2 * len(sizes) + 3.2, 3.3 * len(deltas)), layout="constrained")
    axes = np.atleast_2d(figure.subplots(len(deltas), len(sizes), sharex=True, sharey=True, squeeze=False))
    for down, delta in enumerate(deltas):
        for across, clients in enumerate(sizes):
            each = axes[down, across]
            here = [row for row in chosen if (row["clients"], row["delta"]) == (clients, delta)]
            for (rule, l2), (title, colour, style) in RULES.items():
                if not style:
                    continue
                line = grouped([row for row in here if (row["rule"], row["l2"]) == (rule, l2)], "epsilon")
                epsilons = sorted(epsilon for (epsilon,) in line)
                sigmas = [middle(line[(epsilon,)], "sigma") for epsilon in epsilons]
                each.plot(epsilons, sigmas, style, color=colour, label=title if not (down or across) else None)
            each.set_xscale("log")
            each.set_yscale("log")
            each.set_title(f"{clients:,} clients, delta {delta:g}", fontsize=9)
            each.grid(alpha=0.3)
            if down == len(deltas) - 1:
                each.set_xlabel("epsilon")
        axes[down, 0].set_ylabel("sigma")
    figure.legend(loc="outside right upper", fontsize=8)
    return figure
