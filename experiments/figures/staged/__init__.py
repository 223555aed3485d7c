"""A body from some, a head from all: accuracy, and what forgetting costs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.figure import Figure

from experiments.figures.sequential import DATASETS
from experiments.harness import Row
from experiments.tables import COLOURS, grouped, markdown, middle, percent

SPLITS = {"iid": "alike", "dirichlet 0.1": "Dirichlet(0.1)", "one class": "one class"}
ONE = "one network"
# The ways that are named beside their points.
BEST = ("20 anchors, softmax head", "20 anchors, ridge head")
LEAVING = {"one": "one client", "ten": "ten together", "scattered": "ten at ten times", "anchor": "an anchor"}


def way(row: Row) -> str:
    """Name how a model was trained."""
    if "groups" in row:
        return ONE if row["groups"] == 1 else f"{row['groups']} groups"
    return (
        f"{row['anchors']} anchors, {row['head']} head" if row["anchors"] else f"untrained body, {row['head']} head"
    )


def measured(rows: Sequence[Row]) -> list[Row]:
    """Return the rows by which ways are compared, with their names.

    What was only tuned by is left out, and so is a seed that is not through: medians are over the same seeds.
    """
    named = [row | {"way": way(row)} for row in rows if not row["held_out"]]
    seeds = grouped(named, "seed").values()
    most = max(map(len, seeds))
    return sorted((row for runs in seeds if len(runs) == most for row in runs), key=_rank)


def _rank(row: Row) -> tuple[int, int, str]:
    if "groups" in row:
        return (0 if row["groups"] == 1 else 2, row["groups"], "")
    return (1, -row["anchors"], {"softmax": "a", "ridge": "b"}[row["head"]])


def behind(rows: Sequence[Row]) -> dict[str, float]:
    """Return each way's accuracy minus that of one network: medians over the seeds, then over the settings."""
    own = {key: middle(runs, "test") for key, runs in grouped(measured(rows), "way", "dataset", "split").items()}
    gaps: dict[str, list[float]] = {}
    for (name, dataset, split), accuracy in own.items():
        if (ONE, dataset, split) in own:
            gaps.setdefault(name, []).append(accuracy - own[ONE, dataset, split])
    return {name: median(values) for name, values in gaps.items()}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how far each way is behind one network, and the rounds in which it forgets; whether that is exact."""
    done = measured(rows)
    staged = [row for row in done if "anchors" in row]
    return {
        "seeds": len({row["seed"] for row in done}),
        "against_one_network": {name: round(gap, 4) for name, gap in behind(rows).items()},
        "rounds_to_forget": {
            name: max(row["one_rounds"] for row in runs) for (name,), runs in grouped(done, "way").items()
        },
        "softmax_rounds": max(row["one_rounds"] for row in staged if row["head"] == "softmax"),
        "ridge_rounds": max(row["one_rounds"] for row in staged if row["head"] == "ridge"),
        "apart": max(row["apart"] for row in staged),
    }


def table(rows: Sequence[Row]) -> str:
    """Return three tables: accuracies, costs, and by what was tuned."""
    return "\n\n".join([_accuracies(rows), _costs(rows), _tuning(rows)])


def _accuracies(rows: Sequence[Row]) -> str:
    done = measured(rows)
    runs = grouped(done, "way", "dataset", "split")
    settings = [
        (dataset, split) for dataset in DATASETS for split in SPLITS if (done[0]["way"], dataset, split) in runs
    ]
    gaps = behind(rows)
    lines = []
    for (name,), own in grouped(done, "way").items():
        cells = [runs.get((name, *setting)) for setting in settings]
        lines.append(
            [
                name,
                *(percent(middle(cell, "test")) if cell else "" for cell in cells),
                f"{100 * gaps[name]:+.1f}" if name in gaps else "",
                f"{middle(own, 'membership'):.2f}",
            ]
        )
    titles = [f"{DATASETS[dataset]}, {SPLITS[split]}" for dataset, split in settings]
    return markdown(["test accuracy", *titles, "against one network, points", "membership"], lines)


def _costs(rows: Sequence[Row]) -> str:
    lines = []
    for (dataset, name), runs in sorted(
        grouped(measured(rows), "dataset", "way").items(), key=lambda item: list(DATASETS).index(item[0][0])
    ):
        cells = [_cost(runs, when) for when in ("train", *LEAVING)]
        lines.append([DATASETS[dataset], name, *cells])
    return markdown(["rounds; answers; MB sent; seconds", "way", "to train", *LEAVING.values()], lines)


def _cost(runs: Sequence[Row], when: str) -> str:
    if f"{when}_rounds" not in runs[0]:
        return ""
    parts = (f"{middle(runs, f'{when}_{key}'):,.0f}" for key in ("rounds", "answers"))
    sent = _number(middle(runs, f"{when}_bytes") / 1e6)
    return "; ".join([*parts, sent, _number(middle(runs, f"{when}_seconds"))])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _tuning(rows: Sequence[Row]) -> str:
    tried = sorted((row | {"way": way(row)} for row in rows if row["held_out"]), key=_rank)
    lines = []
    for (dataset, name), runs in grouped(tried, "dataset", "way").items():
        # Of a head's L2 terms the best one for each learning rate and number of steps.
        best = [
            max(own, key=lambda row: float(row["test"])) for own in grouped(runs, "learning_rate", "steps").values()
        ]
        best.sort(key=lambda row: (row["steps"], row["learning_rate"]))
        shown = [
            f"{percent(row['test'])} ({row['learning_rate']:g}, K = {row['steps']}"
            + (f", L2 {row['l2']:g})" if "l2" in row else ")")
            for row in best
        ]
        lines.append([DATASETS[dataset], name, "; ".join(shown)])
    lines.sort(key=lambda line: list(DATASETS.values()).index(line[0]))
    return markdown(["data", "way", "validation accuracy (learning rate, steps, best L2)"], lines)


def draw(rows: Sequence[Row]) -> Figure:
    """Draw the accuracy over the seconds that clients compute to forget one of them."""
    done = measured(rows)
    runs = grouped(done, "dataset", "split")
    datasets = [dataset for dataset in DATASETS if any(key[0] == dataset for key in runs)]
    splits = [split for split in SPLITS if any(key[1] == split for key in runs)]
    names = [name for (name,) in grouped(done, "way")]
    figure = Figure(figsize=(3.3 * len(splits), 2.7 * len(datasets) + 0.6), layout="constrained")
    axes = figure.subplots(len(datasets), len(splits), squeeze=False)
    for line, dataset in zip(axes, datasets, strict=True):
        for panel, split in zip(line, splits, strict=True):
            for (name,), own in grouped(runs.get((dataset, split), []), "way").items():
                panel.plot(
                    [middle(own, "one_seconds")],
                    [100 * middle(own, "test")],
                    "s" if "anchors" in own[0] else "o",
                    color=COLOURS[names.index(name)],
                    label=name,
                )
                if name in BEST:
                    at = (middle(own, "one_seconds"), 100 * middle(own, "test"))
                    panel.annotate(name, at, (7, -3), textcoords="offset points", fontsize=7)
            panel.set_xscale("log")
            panel.set_title(f"{DATASETS[dataset]}, {SPLITS[split]}", fontsize=10)
            panel.grid(alpha=0.3)
        line[0].set_ylabel("test accuracy, %")
    for panel in axes[-1]:
        panel.set_xlabel("clients' seconds to forget one")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
    return figure
