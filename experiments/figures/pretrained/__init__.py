"""A head on a published network: what it gives, and what training and forgetting cost, way by way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from experiments.figures import sequential
from experiments.harness import Row
from experiments.tables import COLOURS, legend_below, markdown, percent

WAYS = {
    "ridge": "ridge head, kept sums",
    "crowd": "the same, with room for a million clients",
    "softmax": "softmax head, solved",
    "fedavg": "softmax head, FedAvg",
    "network": "small network from nothing, FedAvg",
    "tuned": "the published network, tuned by FedAvg",
}
SPLITS = {
    "one class": "one class each",
    "dirichlet 0.1": "Dirichlet(0.1)",
    "iid": "alike",
    "as they are": "as they are",
}
DATASETS = {**sequential.DATASETS, "heart_disease": "heart disease"}


# As many as a network can be tuned on here.
FEW = 1_000


def sorted_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows by data set, then by way and by how alike the clients are."""

    def place(row: Row) -> tuple[int, ...]:
        orders = (DATASETS, "dataset"), (WAYS, "method"), (SPLITS, "split")
        dataset, *others = (list(order).index(row[key]) for order, key in orders)
        return dataset, -row["examples"], *others

    return sorted(rows, key=place)


def _title(row: Row) -> str:
    """Return what a row's data are called; fewer than elsewhere are counted."""
    return DATASETS[row["dataset"]] + (f", {row['examples']:,} images" if row["examples"] == FEW else "")


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return accuracies, and whether a ridge head had the bits of the one without the leaver."""
    titles = {f"{_title(row)}, {row['method']}, {row['split']}": row["test"] for row in sorted_rows(rows)}
    return titles | {"same": all(row["same"] for row in rows if "same" in row), "rows": len(rows)}


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set, way and split."""
    lines = [
        [
            _title(row),
            WAYS[row["method"]],
            SPLITS[row["split"]],
            percent(row["test"]),
            _rounds(row),
            f"{row['seconds']:.0f} s",
            row["forget_rounds"],
            f"{row['forget_seconds']:.1f} s",
            _size(row["bytes"]),
            _size(row["forget_bytes"]),
        ]
        for row in sorted_rows(rows)
    ]
    header = ["data", "way", "clients", "test", "rounds", "seconds", "rounds to forget", "seconds to forget"]
    return markdown([*header, "a client sends", "to forget"], lines)


def _size(count: int) -> str:
    """Return a number of bytes in words."""
    if not count:
        return "nothing"
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def _rounds(row: Row) -> str:
    """Say in how many rounds a model was trained, and whether it came as far as it was to."""
    return f"{row['rounds']}, not reached" if row.get("reached", 0) is None else str(row["rounds"])


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the held-out accuracies, way by way and split by split."""
    shown = [row for row in sorted_rows(rows) if row["dataset"] != "heart_disease" and row["method"] != "crowd"]
    datasets = list(dict.fromkeys(map(_title, shown)))
    ways = [way for way in WAYS if any(row["method"] == way for row in shown)]
    figure = Figure(figsize=(3.6 * len(datasets), 0.9 + 0.6 * len(ways)), layout="constrained")
    panels = figure.subplots(1, len(datasets), squeeze=False)[0]
    for axes, dataset in zip(panels, datasets, strict=True):
        for at, (split, title) in enumerate(list(SPLITS.items())[:3]):
            own = [row for row in shown if (_title(row), row["split"]) == (dataset, split)]
            places = [ways.index(row["method"]) + 0.24 * (at - 1) for row in own]
            axes.barh(places, [100 * row["test"] for row in own], 0.22, color=COLOURS[at], label=title)
        axes.set_yticks(range(len(ways)), [WAYS[way] for way in ways] if axes is panels[0] else [""] * len(ways))
        axes.set_ylim(len(ways) - 0.5, -0.5)
        axes.set_title(dataset, fontsize=10)
        axes.set_xlabel("test accuracy, %")
        axes.grid(axis="x", alpha=0.3)
    legend_below(figure, panels[0])
    return figure
