"""How many models to keep: the room they take against the rounds that are lost without the others."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.harness import Row
from experiments.tables import COLOURS, grouped, markdown, middle

KINDS = {"rule": "the rule", "rule with goal": "the rule with a goal", "evenly": "evenly spaced"}
# A million parameters in float32.
MEGABYTES_EACH = 4


def extra(runs: Sequence[Row]) -> tuple[float, float]:
    """Return the extra rounds against keeping every model: predicted, and measured, means over the seeds."""
    return mean(row["extra_predicted"] for row in runs), mean(row["measured"] - row["measured_all"] for row in runs)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the extra rounds for every size, budget and rule with room for 16 models, or the nearest number."""
    capacities = sorted({row["capacity"] for row in rows if row["kind"] != "all"})
    usual = min(capacities, key=lambda each: abs(each - 16))
    found: dict[str, Any] = {"capacity": usual, "seeds": len(grouped(rows, "seed"))}
    for (clients, epsilon, kind, capacity), runs in grouped(rows, "clients", "epsilon", "kind", "capacity").items():
        if capacity == usual:
            predicted, measured = extra(runs)
            found[f"{clients}, eps {epsilon:g}, {kind}"] = [round(predicted, 2), round(measured, 2)]
    worst = max((row for row in rows if row["kind"] != "all"), key=lambda row: row["worst_predicted"])
    return found | {"worst_predicted": worst["worst_predicted"], "worst_at": f"{worst['kind']}, {worst['capacity']}"}


def table(rows: Sequence[Row]) -> str:
    """Return for each size and budget the room and the extra rounds, predicted and measured, of the three rules."""
    lines = []
    cells = grouped(rows, "clients", "epsilon", "kind", "capacity")
    for (clients, epsilon), here in grouped(rows, "clients", "epsilon").items():
        for capacity in sorted({row["capacity"] for row in here if row["kind"] != "all"}):
            by_kind = {kind: cells[(clients, epsilon, kind, capacity)] for kind in KINDS}
            lines.append(
                [
                    f"{clients:,}",
                    f"{epsilon:g}",
                    capacity,
                    f"{MEGABYTES_EACH * max(row['kept'] for row in by_kind['rule'])} MB",
                    *(f"{extra(runs)[0]:+.1f}" for runs in by_kind.values()),
                    *(f"{extra(runs)[1]:+.1f}" for runs in by_kind.values()),
                ]
            )
        everything = [row for row in here if row["kind"] == "all"]
        lines.append(
            [
                f"{clients:,}",
                f"{epsilon:g}",
                "all",
                f"{MEGABYTES_EACH * everything[0]['kept']:,} MB",
                f"{middle(everything, 'predicted_all'):.1f} rounds",
                "",
                "",
                f"{middle(everything, 'measured_all'):.0f} rounds; Scratch {middle(everything, 'scratch'):.0f}",
                "",
                "",
            ]
        )
    header = ["clients", "eps", "room for", "models of 10^6 parameters"]
    header += [f"{how}: {title}" for how in ("predicted extra", "measured extra") for title in KINDS.values()]
    return markdown(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the extra rounds over the room, predicted and measured, for each size and budget."""
    settings = sorted(grouped(rows, "clients", "epsilon"))
    figure = Figure(figsize=(3.2 * len(settings) + 0.6, 5.4), layout="constrained")
    axes = np.array(figure.subplots(2, len(settings), sharex=True, squeeze=False))
    cells = grouped(rows, "clients", "epsilon", "kind", "capacity")
    for across, (clients, epsilon) in enumerate(settings):
        capacities = sorted({row["capacity"] for row in rows if row["kind"] != "all"})
        for kind, colour in zip(KINDS, COLOURS, strict=False):
            values = [extra(cells[(clients, epsilon, kind, capacity)]) for capacity in capacities]
            for down in (0, 1):
                label = KINDS[kind] if not (across or down) else None
                shown = [value[down] for value in values]
                axes[down, across].plot(capacities, shown, "o-", color=colour, markersize=4, label=label)
        axes[0, across].set_title(f"{clients:,} clients, eps {epsilon:g}", fontsize=9)
        for down in (0, 1):
            axes[down, across].axhline(0, color="black", linewidth=0.6)
            axes[down, across].set_xscale("log", base=2)
            axes[down, across].set_xticks(capacities, [str(each) for each in capacities])
            axes[down, across].grid(alpha=0.3)
        axes[1, across].set_xlabel("models kept beside the first and the last")
    axes[0, 0].set_ylabel("extra rounds, predicted")
    axes[1, 0].set_ylabel("extra rounds, measured")
    axes[0, 0].legend(fontsize=8)
    return figure
