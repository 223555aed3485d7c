"""Forgetting by solving: rounds and bytes beside those of training again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.figures.hospitals import named
from experiments.figures.map import COUNTS, SPLITS
from experiments.harness import Row
from experiments.tables import markdown, middle

COLUMNS = (
    *("Solve, rounds", "FedAvg again, rounds", "by the loss"),
    *("Solve, MB a client", "FedAvg again, MB a client"),
    *("Solve, test accuracy", "FedAvg again, test accuracy"),
)


def cells(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the runs of each case, in words: from few clients to many, hospitals, then float32."""
    words: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: ("precision" in row, row.get("clients", math.inf))):
        if "split" in row:
            case = f"{COUNTS.get(row['leaving'], row['leaving'])} of {row['clients']:,}, {SPLITS[row['split']]}"
            if "precision" in row:
                case += f", {row['precision']}"
        else:
            case = named(row["leaving"])
            if "patients" in row:
                case = f"one patient of {case}"
        words.setdefault(case, []).append(row)
    return words


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what the figure is judged by."""
    cases = cells(rows)
    saved = [middle(runs, "scratch") / middle(runs, "solve") for runs in cases.values()]
    by_loss = [middle(runs, "scratch_by_loss") / middle(runs, "solve") for runs in cases.values()]
    return {
        "cases": len(cases),
        "seeds": max(map(len, cases.values())),
        "not_exact": sum(row["mode"] != "exact" for row in rows),
        "most_rounds": max(row["solve"] for row in rows),
        "saves_4": float(np.mean([ratio >= 4 for ratio in saved])),
        "saves_4_by_loss": float(np.mean([ratio >= 4 for ratio in by_loss])),
        "worst_loss": max(-row["gap"] for row in rows),
        "worst_test": min(row["solve_test"] - row["scratch_test"] for row in rows),
        "largest_mb": max(row["solve_bytes"] for row in rows) / 1e6,
    }


def table(rows: Sequence[Row]) -> str:
    """Return rounds, bytes and accuracies of both ways; medians over the seeds."""
    lines = []
    for case, runs in cells(rows).items():
        scratch_bytes = middle(runs, "scratch") * middle(runs, "round_bytes")
        lines.append(
            [
                *(case, f"**{middle(runs, 'solve'):.0f}**", f"{middle(runs, 'scratch'):.0f}"),
                f"{middle(runs, 'scratch_by_loss'):.0f}",
                *(f"{middle(runs, 'solve_bytes') / 1e6:.3g}", f"{scratch_bytes / 1e6:.3g}"),
                *(f"{100 * middle(runs, f'{way}_test'):.1f} %" for way in ("solve", "scratch")),
            ]
        )
    return markdown(["who leaves", *COLUMNS], lines)
