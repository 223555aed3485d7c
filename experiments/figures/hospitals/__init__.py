"""Four hospitals: rounds and accuracies when one of them leaves, or two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import Row
from experiments.tables import COLOURS, grouped, markdown, middle, percent, spread

NAMES = {
    "cleveland": "Cleveland",
    "hungary": "Hungary",
    "switzerland": "Switzerland",
    "long_beach_va": "Long Beach VA",
}


PRIVATE = ", equal weights"


def named(leaving: Sequence[str]) -> str:
    """Return who leaves in words."""
    return " and ".join(NAMES[name] for name in leaving)


def by_case(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows of each group of leavers, and of each value of other keys."""
    told = [{**row, "leaver": named(row["leaving"]) + PRIVATE * row.get("equal_weights", False)} for row in rows]
    return grouped(told, "leaver", *keys)


def budget(epsilon: float, delta: float) -> str:
    """Return a budget in words."""
    return f"({epsilon:g}, {delta:g})"


def retrains(runs: Sequence[Row]) -> bool:
    """Return whether the plan is to train again from the start; noise does not enter into it."""
    return bool(runs[0]["node"] == 0)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how often forgetting was cheaper than retraining, and how often the plan was to retrain."""
    cells = list(by_case(rows, "epsilon", "delta").values())
    found: dict[str, Any] = {
        "cells": len(cells),
        "seeds": max(map(len, cells)),
        "retrained": sum(map(retrains, cells)),
        "not_proven": sum(row["mode"] == "heuristic" for row in rows),
        "psi": [round(min(row["psi"] for row in rows), 3), round(max(row["psi"] for row in rows), 3)],
    }
    for goal in ("accuracy", "loss"):
        for way in ("planner", "last"):
            ratios = [middle(runs, f"{way}_by_{goal}") / max(middle(runs, f"scratch_by_{goal}"), 1) for runs in cells]
            found[f"{way}_fewer_by_{goal}"] = sum(ratio < 1 for ratio in ratios)
            found[f"{way}_more_by_{goal}"] = sum(ratio > 1 for ratio in ratios)
            found[f"{way}_worst_by_{goal}"] = round(max(ratios), 2)
    return found


def table(rows: Sequence[Row]) -> str:
    """Return the plan and the rounds for each leaver and budget, then the accuracies."""
    lines, accuracies = [], []
    for (leaver, epsilon, delta), runs in by_case(rows, "epsilon", "delta").items():
        first = runs[0]
        plan = "retrain" if retrains(runs) else f"model {first['node']}, noise {first['sigma']:.3g}"
        line = [f"{leaver} ({first['patients']})", f"{first['psi']:.3g}", budget(epsilon, delta), plan]
        line += [first["mode"], f"{first['last_sigma']:.3g}"]
        for goal in ("accuracy", "loss"):
            planner, scratch, last = (spread(runs, f"{way}_by_{goal}") for way in ("planner", "scratch", "last"))
            line += [f"**{planner}**", scratch, last]
        lines.append(line)
        if not retrains(runs):
            moments = ("before", "planner", "again")
            shown = (f"{whose}_{when}" for whose in ("remaining", "leaver") for when in moments)
            accuracies.append([leaver, budget(epsilon, delta), *(percent(middle(runs, key)) for key in shown)])
    header = ["who leaves (patients)", "Psi", "(eps, delta)", "plan", "mode", "noise of Last"]
    header += [f"{way}, {goal}" for goal in ("accuracy", "loss") for way in ("planner", "Scratch", "Last")]
    second = ["who leaves", "(eps, delta)"]
    second += [f"{whose}, {when}" for whose in ("remaining", "leaver") for when in ("before", "after", "retrained")]
    return f"{markdown(header, lines)}\n\n{markdown(second, accuracies)}"


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the rounds for each leaver and budget, with the spread over the noise, and Scratch as a line."""
    rows = [row for row in rows if "equal_weights" not in row]
    figure = Figure(figsize=(10.5, 5.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    _bars(upper, rows, "accuracy")
    _bars(lower, rows, "loss")
    leavers = [leaver for (leaver,) in by_case(rows)]
    lower.set_xticks(range(len(leavers)), [leaver.replace(" and ", "\nand ") for leaver in leavers])
    upper.set_title("hatched: the plan is to train again; whiskers: over the draws of the noise", fontsize=9)
    figure.legend(*upper.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    return figure


def _bars(axes: Axes, rows: Sequence[Row], goal: str) -> None:
    leavers = [leaver for (leaver,) in by_case(rows)]
    budgets = list(grouped(rows, "epsilon", "delta"))
    found = by_case(rows, "epsilon", "delta")
    width, key = 0.8 / len(budgets), f"planner_by_{goal}"
    for at, (epsilon, delta) in enumerate(budgets):
        runs = [found[(leaver, epsilon, delta)] for leaver in leavers]
        heights = np.array([middle(each, key) for each in runs])
        ends = np.array([[min(row[key] for row in each), max(row[key] for row in each)] for each in runs])
        places = np.arange(len(leavers)) + (at - (len(budgets) - 1) / 2) * width
        label = f"eps {epsilon:g}, delta {delta:g}"
        bars = axes.bar(places, heights, 0.9 * width, color=COLOURS[at], label=label, zorder=2)
        axes.errorbar(places, heights, abs(ends.T - heights), fmt="none", ecolor="black", capsize=2, zorder=3)
        for bar, each in zip(bars, runs, strict=True):
            if retrains(each):
                bar.set_hatch("//")
                bar.set_edgecolor("white")
    for at, leaver in enumerate(leavers):
        scratch = found[(leaver, *budgets[0])][0][f"scratch_by_{goal}"]
        label = "" if at else "training again from the start"
        axes.hlines(scratch, at - 0.45, at + 0.45, colors="black", linestyles="dashed", label=label, zorder=4)
    axes.set_ylabel(f"rounds until the {goal} is back")
    axes.grid(axis="y", alpha=0.3, zorder=0)
