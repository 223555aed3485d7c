"""Three requests of clients whose images are marked, and whether the released model still knows the mark."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from experiments.figures import sequential
from experiments.figures.sequential import (
    ACCURACIES,
    CLAIM,
    METHODS,
    REACHED,
    ROUNDS,
    SCRATCH,
    TRAINING,
    Columns,
    attacks,
    by_request,
    panels,
    served,
)
from experiments.harness import Row
from experiments.tables import grouped, middle, percent
from rescind.audit.attacks import measure_recall

# A mark counts as known if chance alone would make the difference from Scratch less often than this.
CHANCE = 0.001


def share(row: Row) -> float:
    """Return the recall: the share of marked images that get the mark's class."""
    return float(row["hits"] / row["trials"])


def known(rows: Sequence[Row]) -> dict[tuple[str, str], list[bool]]:
    """Tell for each data set and method, request by request, whether the mark is known better than by Scratch."""
    done = served(rows)
    clean = {(row["dataset"], row["seed"], row["request"]): row for row in done if row["method"] == SCRATCH}
    found: dict[tuple[str, str], list[bool]] = {}
    for row in done:
        other = clean.get((row["dataset"], row["seed"], row["request"]))
        if other is not None and row is not other:
            compared = measure_recall(row["hits"], row["trials"], other["hits"], other["trials"])
            found.setdefault((row["dataset"], row["method"]), []).append(compared.p_value < CHANCE)
    return found


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers that the figure is judged by."""
    done, found = served(rows), known(rows)
    shares = [{**row, "recall": share(row)} for row in done]
    middles = {method: middle(runs, "recall") for (method,), runs in grouped(shares, "method").items()}
    counted = {
        method: [each for (_, name), all_ in found.items() if name == method for each in all_] for method in METHODS
    }
    return {
        **sequential.summary(rows),
        "recall_before": float(median(row["before"] / row["trials"] for row in done)),
        "recall": {method: round(value, 4) for method, value in middles.items()},
        "known_better_than_scratch": {
            method: round(sum(values) / len(values), 3) for method, values in counted.items() if values
        },
    }


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set and method."""
    found = known(rows)

    def better(runs: Sequence[Row]) -> str:
        own = found.get((runs[0]["dataset"], runs[0]["method"]), [])
        return f"{sum(own)} of {len(own)}" if own else ""

    recalled: Columns = {"recall of the mark": lambda runs: percent(median(map(share, runs)))}
    each = {**ROUNDS, **ACCURACIES, **recalled, **attacks(rows), **CLAIM}
    return by_request(rows, each, {"known better than by Scratch": better, **TRAINING, **REACHED})


def draw(rows: Sequence[Row]) -> Figure:
    """Draw rounds, accuracy on those who left, and recall of the mark, method by method."""
    return panels(
        rows,
        "request",
        {
            "rounds to the threshold": lambda row: float(row["rounds"]),
            "accuracy on those who left, %": lambda row: 100 * float(row["forget"]),
            "recall of the mark, %": lambda row: 100 * share(row),
        },
    )
