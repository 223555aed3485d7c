"""The map: how many times fewer rounds than retraining, cell by cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure

from experiments import harness
from experiments.harness import Row
from experiments.tables import grouped, markdown, middle
from rescind.core.calibration import largest_mu
from rescind.core.solver import Solving

SPLITS = {
    "iid": "alike (iid)",
    "dirichlet 1": "Dirichlet(1)",
    "dirichlet 0.1": "Dirichlet(0.1)",
    "one class": "one class each",
}
# What a federation is named by; its budgets come besides.
KEYS = ("leaving", "split", "clients")
CLASSES = 10
COUNTS = {1: "one", 10: "ten"}
SHADES = (0, 1.05, 1.5, 2, 4, 8, 1000)


def cells(rows: Sequence[Row]) -> dict[tuple[int | str, str, int, float], dict[str, float]]:
    """Return for each cell the medians over the seeds, and how many times fewer rounds the planner's are.

    ``advised`` is what is shorter by prediction, as ``rescind request preview`` shows it: the planner's way, or
    ``Solve()``.
    """
    found, solved = {}, solves()
    for key, runs in grouped([{"leaving": 1, **row} for row in rows], *KEYS, "epsilon").items():
        cell = {name: middle(runs, name) for name in ("scratch", "planner", "hindsight", "paper", "sigma", "node")}
        # A round is the least that anybody can count, and going nowhere is not infinitely fast.
        cell["saved"] = median(run["scratch"] / max(run["planner"], 1) for run in runs)
        cell["against_scratch"] = median(run["planner"] / run["scratch"] for run in runs)
        cell["near"] = float(cell["planner"] <= 1.2 * cell["hindsight"] + 1)
        cell["retrained"] = float(cell["node"] == 0)
        solve = solved.get(key[:-1], math.inf)
        parameters = CLASSES * (runs[0]["columns"] + 1)
        solves_sooner = Solving().expected_rounds(parameters) < middle(runs, "predicted")
        cell["advised"] = solve if solves_sooner and solve < math.inf else cell["planner"]
        cell["advised_late"] = cell["advised"] - min(cell["hindsight"], solve)
        found[key] = cell
    return found


def solves() -> dict[tuple[Any, ...], float]:
    """Return the rounds that solving takes in the same federations, as the figure ``solved`` has them."""
    heads = [row for row in harness.rows("solved") if "split" in row and "precision" not in row]
    runs = grouped(heads, *KEYS)
    return {key: middle(own, "solve") for key, own in runs.items()}


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of thumb: it takes at most half of the rounds where mu(eps, delta) clients^``power`` >= ``least``.

    ``right`` is the share of the cells in which it is right.
    """

    power: float
    least: float
    right: float


def rules(rows: Sequence[Row]) -> dict[str, Rule]:
    """Fit a rule to each kind of heterogeneity: of all powers and thresholds those that are right most often."""
    found = {}
    delta = rows[0]["delta"]
    for split in dict.fromkeys(row["split"] for row in rows):
        own = [(*key[2:], cell["saved"] >= 2) for key, cell in cells(rows).items() if key[:2] == (1, split)]
        best = Rule(0.0, 0.0, 0.0)
        for power in np.arange(0.3, 1.21, 0.1):
            scores = [largest_mu(float(epsilon), delta) * clients**power for clients, epsilon, _ in own]
            for least in [*scores, np.inf]:
                right = sum((score >= least) == saves for score, (*_, saves) in zip(scores, own, strict=True)) / len(
                    own
                )
                if right > best.right:
                    best = Rule(round(float(power), 1), float(least), right)
        found[split] = best
    return found


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the shares that the map is judged by: of one who leaves, and with ``all_`` of groups too."""
    every = cells(rows)
    found = {key: cell for key, cell in every.items() if key[0] == 1}
    narrow = [cell for key, cell in found.items() if key[-1] <= 5]
    all_narrow = [cell for key, cell in every.items() if key[-1] <= 5]
    return {
        "cells": len(found),
        "all_cells": len(every),
        "seeds": max(row["seed"] for row in rows) + 1,
        "near_hindsight": sum(cell["near"] for cell in found.values()) / len(found),
        "worst_against_scratch": max(cell["against_scratch"] for cell in found.values()),
        "saves_4_at_most_5": share(cell["saved"] >= 4 for cell in narrow),
        "all_advised_at_most_10": share(cell["advised"] <= 10 for cell in every.values()),
        "all_advised_within_2": share(cell["advised_late"] <= 2 for cell in every.values()),
        "advised_saves_4_at_most_5": share(cell["scratch"] >= 4 * max(cell["advised"], 1) for cell in narrow),
        "all_advised_saves_4_at_most_5": share(cell["scratch"] >= 4 * max(cell["advised"], 1) for cell in all_narrow),
        "paper_never_better_by": max(cell["planner"] - cell["paper"] for cell in found.values()),
        "not_proven": sum(row["mode"] == "heuristic" for row in rows),
        "rules": {
            split: [rule.power, round(rule.least, 3), round(rule.right, 3)] for split, rule in rules(rows).items()
        },
    }


def share(answers: Iterable[bool]) -> float:
    """Return how many of these are so."""
    return float(np.mean(list(answers)))


def table(rows: Sequence[Row]) -> str:
    """Return rounds: planner (hindsight; the paper's rule made valid), against Scratch and Solve."""
    found, solved = cells(rows), solves()
    epsilons = sorted({key[-1] for key in found})
    lines = []
    for (leaving, split, clients), runs in grouped([{"leaving": 1, **row} for row in rows], *KEYS).items():
        who = f"{COUNTS.get(leaving, leaving)} of {clients:,}"
        solve = solved.get((leaving, split, clients))
        line: list[object] = [SPLITS[split], who, f"{middle(runs, 'scratch'):.0f}"]
        line.append("" if solve is None else f"**{solve:.0f}**")
        for epsilon in epsilons:
            cell = found.get((leaving, split, clients, epsilon))
            if cell is None:
                line.append("")
                continue
            mark = " =" if cell["retrained"] else ""
            line.append(f"**{cell['planner']:.0f}** ({cell['hindsight']:.0f}; {cell['paper']:.0f}){mark}")
        lines.append(line)
    lines.sort(key=lambda line: list(SPLITS.values()).index(str(line[0])))
    header = ["clients are", "who leaves", "Scratch", "Solve", *(f"eps {epsilon:g}" for epsilon in epsilons)]
    return markdown(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw a heat map for each kind of heterogeneity."""
    found = {key[1:]: cell for key, cell in cells(rows).items() if key[0] == 1}
    splits = [split for split in SPLITS if any(key[0] == split for key in found)]
    clients = sorted({key[1] for key in found})
    epsilons = sorted({key[2] for key in found})
    figure = Figure(figsize=(3.1 * len(splits) + 1.2, 3.6), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(splits), sharey=True))
    norm = BoundaryNorm(SHADES, 256)
    for each, split in zip(axes, splits, strict=True):
        values = np.array([[found[(split, count, epsilon)]["saved"] for epsilon in epsilons] for count in clients])
        shown = each.imshow(values, norm=norm, cmap="YlGnBu", origin="lower", aspect="auto")
        for (down, across), value in np.ndenumerate(values):
            words = f"{value:.0f}x" if value >= 10 else f"{value:.1f}x"
            each.text(
                across, down, words, ha="center", va="center", color="white" if value >= 4 else "black", fontsize=8
            )
        each.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
        each.set_yticks(range(len(clients)), [f"{count:,}" for count in clients])
        each.set_title(SPLITS[split], fontsize=10)
        each.set_xlabel("epsilon (delta 1e-5)")
    axes[0].set_ylabel("clients")
    label = "times fewer rounds than retraining"
    figure.colorbar(shown, ax=axes.tolist(), label=label, ticks=SHADES[:-1], format="%g")
    return figure
