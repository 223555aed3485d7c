"""All methods side by side: what each needs, and what may be claimed of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.harness import Row
from experiments.tables import markdown

# What is asked, the key of the answer, and whether yes is what one would like to hear.
QUESTIONS = (
    ("can\ncertify", "certifies", True),
    ("for every\ndata set", "strict", True),
    ("proven for\nnetworks", "proven_for_networks", True),
    ("can save\nrounds", "can_save_rounds", True),
    ("noise\non the model", "noise", False),
    ("earlier\nmodels kept", "earlier_models", False),
    ("updates\nstored", "updates", False),
    ("training of\nits own kind", "special_training", False),
)
GOOD, BAD = "#cfe3c0", "#f0d3bf"


def answered(row: Row) -> Row:
    """Add what follows from the rest: nothing is proven of a method that cannot certify."""
    return row | {
        "proven_for_networks": row["certifies"] and row["networks"],
        # What is exact holds whatever the data are.
        "strict": "strict" in row["modes"] or row["modes"] == ["exact"],
    }


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how many methods there are, how many certify, and how many do so for every data set."""
    return {
        "methods": len(rows),
        "certify": sum(row["certifies"] for row in rows),
        "for_every_data_set": sum(answered(row)["strict"] for row in rows),
        "proven_for_networks": sum(answered(row)["proven_for_networks"] for row in rows),
    }


def table(rows: Sequence[Row]) -> str:
    """Return the methods in words."""
    lines = [
        [
            f"{row['method']} (`{row['class']}`)",
            row["paper"],
            "yes" if row["certifies"] else f"no: {row['why']}",
            ", ".join(f"`{mode}`" for mode in row["modes"]),
            row["assumes"],
            row["stores"],
        ]
        for row in rows
    ]
    header = [
        "method",
        "in the paper",
        "certifies",
        "what may be claimed",
        "what has to hold for it",
        "what is stored",
    ]
    return markdown(header, lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw a matrix of methods and answers; green is what one would like to hear."""
    figure = Figure(figsize=(9.5, 0.36 * len(rows) + 1.1), layout="constrained")
    axes = figure.subplots()
    for down, row in enumerate(map(answered, rows)):
        for across, (_, key, liked) in enumerate(QUESTIONS):
            yes = bool(row[key])
            colour = GOOD if yes is liked else BAD
            axes.add_patch(Rectangle((across, down), 1, 1, facecolor=colour, edgecolor="white", linewidth=2))
            axes.text(across + 0.5, down + 0.5, "yes" if yes else "no", ha="center", va="center", fontsize=8)
    axes.set_xlim(0, len(QUESTIONS))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([at + 0.5 for at in range(len(QUESTIONS))], [words for words, _, _ in QUESTIONS], fontsize=8)
    axes.xaxis.tick_top()
    axes.set_yticks([at + 0.5 for at in range(len(rows))], [row["method"] for row in rows], fontsize=9)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    return figure
