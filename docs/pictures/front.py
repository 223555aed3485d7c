"""Draws what forgetting costs, case by case: ``PYTHONPATH=. python docs/pictures/front.py``, in a checkout's root.

It is made from the experiments' rows, and so is the table on the README's first screen, which it writes, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from style import BLUE, INK, ORANGE, style

from experiments import harness, tables
from experiments.figures import staged
from experiments.harness import rows
from experiments.tables import middle

FOLDER = Path(__file__).parent
README = FOLDER.parents[1] / "README.md"


@dataclass(frozen=True)
class Case:
    """Who leaves, from what; the rounds to forget, and to train again; what may be claimed; which figure says so."""

    who: str
    rounds: float
    again: float
    claim: str
    figure: str


def cases() -> list[Case]:
    """Return the cases, from the dearest to train again downwards: medians over the runs of a figure."""
    one_class = {"leaving": 1, "split": "one class", "clients": 100}
    ten = {"leaving": 10, "split": "iid", "clients": 1000}
    similar = {"leaving": 1, "epsilon": 1, "split": "iid", "clients": 1000}
    hospitals = [
        row for row in rows("solved") if "row_norm" in row and "patients" not in row and len(row["leaving"]) == 1
    ]
    heads = [row for row in rows("solved") if "split" in row and "precision" not in row]
    trained = [row for row in staged.measured(rows("staged")) if row["dataset"] == "cifar10"]
    anchored = [row for row in trained if staged.way(row) == "20 anchors, softmax head"]
    late = [row for row in rows("late") if row["method"] == "exact" and row["leaving"] == 1]
    published = [row for row in rows("pretrained") if (row["dataset"], row["clients"]) == ("cifar10", 100)]
    return [
        Case(
            "a head on a published network: one of 100 clients, by kept sums",
            middle(among(published, method="ridge"), "forget_rounds"),
            middle(among(published, method="fedavg"), "forget_rounds"),
            "exact",
            "pretrained",
        ),
        Case(
            "a network trained in two stages: one of those who train its last layer only",
            middle(anchored, "one_rounds"),
            middle(anchored, "train_rounds"),
            "exact",
            "staged",
        ),
        *(
            Case(words, middle(own, "again"), own[0]["rounds"], "exact", "late")
            for words, own in {
                "a network: one who was there from the start": among(late, joined=0.0),
                "a network: one who joined after three quarters": among(late, joined=0.75),
            }.items()
        ),
        *(
            Case(words, middle(own, "solve"), middle(own, "scratch"), "exact", "solved")
            for words, own in {
                "a linear head: one of 100 clients of one class each": among(heads, **one_class),
                "a linear head: ten of 1,000 similar clients": among(heads, **ten),
            }.items()
        ),
        Case(
            "a linear head: one of 1,000 similar clients, by noise at (1, 1e-5)",
            middle(among(rows("map"), **similar), "planner"),
            middle(among(rows("map"), **similar), "scratch"),
            "instance",
            "map",
        ),
        Case(
            "a linear model: one of four hospitals, until the loss is back",
            middle(hospitals, "solve"),
            middle(hospitals, "scratch_by_loss"),
            "exact",
            "solved",
        ),
    ]


def among(found: Iterable[harness.Row], **values: Any) -> list[harness.Row]:
    """Return the rows that have these values; one leaves where nothing else is said."""
    return [row for row in found if all({"leaving": 1, **row}[name] == value for name, value in values.items())]


def table(found: Sequence[Case]) -> str:
    """Return the table for the README."""
    lines = [
        [
            f"[{case.who}](experiments/figures/{case.figure}/README.md)",
            *(f"**{case.rounds:.0f}**", f"{case.again:.0f}", f"`{case.claim}`"),
        ]
        for case in found
    ]
    return tables.markdown(["who leaves", "rounds to forget", "to train again", "claim"], lines)


def draw(found: Sequence[Case]) -> Figure:
    """Draw both numbers of rounds on one line for each case."""
    figure = Figure(figsize=(9.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for at, case in enumerate(found):
        axes.plot([case.rounds, case.again], [at, at], color=INK, linewidth=1, zorder=1)
    places = range(len(found))
    again, forget = [case.again for case in found], [case.rounds for case in found]
    axes.scatter(again, places, color=ORANGE, s=60, label="rounds to train again", zorder=2)
    axes.scatter(forget, places, color=BLUE, s=60, label="rounds to forget", zorder=3)
    for at, case in enumerate(found):
        axes.annotate(f"{case.again:.0f}", (case.again, at), (9, -4), textcoords="offset points", color=INK)
        words = f"{case.rounds:.0f}" + ("" if case.rounds < 0.9 * case.again else ", nothing gained")
        axes.annotate(words, (case.rounds, at), (-9, -4), textcoords="offset points", ha="right", color=INK)
    # Logarithmic from 1 on; none at all is to the left of it.
    axes.set_xscale("symlog", linthresh=1, linscale=0.4)
    axes.set_xlim(-0.6, 1300)
    axes.set_xticks([0, 1, 10, 100, 1000], ["0", "1", "10", "100", "1,000"])
    axes.set_yticks(places, [case.who for case in found])
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.legend(frameon=False, labelcolor=INK, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)
    return figure


def main() -> None:
    """Write picture and table."""
    found = cases()
    with mpl.rc_context(style("front")):
        draw(found).savefig(FOLDER / "front.svg", transparent=True, metadata={"Date": None, "Creator": None})
    tables.insert(README, table(found))


if __name__ == "__main__":
    main()
