"""Three requests in turn: what each method costs, and what it leaves of those who left."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import Row
from experiments.tables import COLOURS, grouped, legend_below, markdown, middle, percent, spread

DATASETS = {
    "mnist": "MNIST",
    "fashion_mnist": "FashionMNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "celeba": "CelebA",
}
SCRATCH, SIFU, PAPER, PUBLISHED = "Scratch", "SIFU", "SIFU, paper's rule", "SIFU as published"
NOISED_START = "Scratch, noised start"
# How the methods are called here, in the order in which they are shown.
METHODS = {
    SCRATCH: "Scratch",
    NOISED_START: "Scratch, noised start",
    "solve": "Solve",
    "solve to 0.01": "Solve, tolerance 0.01",
    SIFU: "SIFU, planner",
    PAPER: "SIFU, paper's rule, sound",
    PUBLISHED: "SIFU as published",
    "Last": "Last",
    "Fine-tuning": "Fine-tuning",
    "FedEraser": "FedEraser",
    "FedAccum": "FedAccum",
    "FedAccum, every round": "FedAccum, every round",
    "DP": "DP",
}


def served(rows: Sequence[Row]) -> list[Row]:
    """Leave out requests that a method refused."""
    return [row for row in rows if "refusal" not in row]


def differences(
    rows: Sequence[Row], method: str, other: str, key: str, *by: str
) -> dict[tuple[Any, ...], list[float]]:
    """Give, for the same seed, how much more a method has of something than another one; grouped by some keys."""
    known = {(row["method"], row["seed"], *(row[name] for name in by)): row[key] for row in served(rows)}
    found: dict[tuple[Any, ...], list[float]] = {}
    for (name, seed, *values), value in known.items():
        if name == method and (other, seed, *values) in known:
            found.setdefault(tuple(values), []).append(value - known[(other, seed, *values)])
    return found


def largest(found: dict[tuple[Any, ...], list[float]]) -> float | None:
    """Return the largest difference of all, whatever its sign."""
    return max((abs(each) for values in found.values() for each in values), default=None)


def medians(found: dict[tuple[Any, ...], list[float]]) -> list[float]:
    """Return the median of each group."""
    return [float(median(values)) for values in found.values()]


def ratio(rows: Sequence[Row], method: str, *by: str) -> float | None:
    """Return the median over all requests of a method's rounds against Scratch's."""
    known = {(row["method"], row["seed"], *(row[name] for name in by)): row["rounds"] for row in served(rows)}
    found = [
        rounds / known[(SCRATCH, *rest)]
        for (name, *rest), rounds in known.items()
        if name == method and (SCRATCH, *rest) in known
    ]
    return float(median(found)) if found else None


def in_all(rows: Sequence[Row]) -> dict[str, float]:
    """Give, for each data set and method, the rounds of all requests together against Scratch's: the median."""
    totals = {
        key: sum(row["rounds"] for row in runs) for key, runs in grouped(rows, "dataset", "method", "seed").items()
    }
    ratios: dict[str, list[float]] = {}
    for (dataset, method, seed), total in totals.items():
        if (dataset, SCRATCH, seed) in totals:
            ratios.setdefault(f"{dataset}, {method}", []).append(total / totals[dataset, SCRATCH, seed])
    return {name: round(median(values), 3) for name, values in ratios.items()}


def earlier(rows: Sequence[Row]) -> dict[str, float]:
    """Give, for each data set and method, what is known of earlier leavers after the last request: the median."""
    last = max(row["request"] for row in rows)
    ended = [row for row in rows if row["request"] == last > 1]
    return {", ".join(key): middle(runs, "earlier") for key, runs in grouped(ended, "dataset", "method").items()}


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers that the figure is judged by."""
    done, by = served(rows), ("dataset", "request")
    sifu = [row for row in done if row["method"] in (SIFU, PAPER)]
    return {
        "seeds": len({row["seed"] for row in done}),
        "planner_worse_by": max(medians(differences(done, SIFU, PAPER, "rounds", *by)), default=None),
        "planner_rounds_of_scratch": ratio(done, SIFU, *by),
        "published_rounds_of_scratch": ratio(done, PUBLISHED, *by),
        "sifu_against_scratch": largest(differences(done, SIFU, SCRATCH, "forget", *by)),
        "published_against_scratch": largest(differences(done, PUBLISHED, SCRATCH, "forget", *by)),
        "fine_tuning_against_scratch": min(
            medians(differences(done, "Fine-tuning", SCRATCH, "forget", *by)), default=None
        ),
        "sound_not_proven": sum(row["mode"] == "heuristic" for row in sifu),
        "rounds_in_all_of_scratch": in_all(done),
        "known_of_who_left_earlier": earlier(done),
        "not_reached": sum(not row["reached"] for row in done if row["method"] != "DP"),
        "refused": len(rows) - len(done),
    } | attack_summary(done)


def attack_summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the largest median of an attack on any data set and request, method by method, if there was one."""
    attacked = grouped([row for row in rows if "attack" in row], "method", "dataset", "request")
    found: dict[str, float] = {}
    for (method, *_), runs in attacked.items():
        found[method] = max(found.get(method, 0.0), middle(runs, "attack"))
    return {"attack": found} if found else {}


def modes(rows: Sequence[Row]) -> str:
    """Return what is claimed, the most frequent first."""
    found = [row["mode"] for row in rows]
    return ", ".join(sorted(set(found), key=lambda mode: (-found.count(mode), mode)))


def in_order(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Return the rows of each data set and method, in the order in which these are shown."""
    found = grouped(served(rows), "dataset", "method")
    return [
        (dataset, method, found[(dataset, method)])
        for dataset in DATASETS
        for method in METHODS
        if (dataset, method) in found
    ]


def reached(rows: Sequence[Row]) -> str:
    """Count the runs that came to the threshold."""
    return f"{sum(row['reached'] for row in rows)} of {len(rows)}"


Columns: TypeAlias = Mapping[str, Callable[[Sequence[Row]], str]]
# What is said of the runs of one request, and of all runs.
ROUNDS: Columns = {"rounds": lambda runs: spread(runs, "rounds")}
NOISE: Columns = {"sigma": lambda runs: "" if runs[0]["method"] == "DP" else f"{middle(runs, 'sigma'):.3g}"}
ACCURACIES: Columns = {
    "on those who left": lambda runs: percent(middle(runs, "forget")),
    "on the remaining": lambda runs: percent(middle(runs, "retain")),
}
CLAIM: Columns = {"claim": modes}
# Beside the rounds that forgetting takes.
TRAINING: Columns = {"training took": lambda runs: spread(runs, "trained")}
REACHED: Columns = {"reached": reached}


def refusals(rows: Sequence[Row], which: Callable[[Row], str]) -> str:
    """Return a paragraph below a table for each run that a method refused."""
    return "".join(
        f"\n\nRefused: {DATASETS[row['dataset']]}, {METHODS[row['method']]}, {which(row)}: {row['refusal']}"
        for row in rows
        if "refusal" in row
    )


def by_request(rows: Sequence[Row], each: Columns, together: Columns) -> str:
    """Return a line for each data set and method; requests are separated by strokes, unless they are all alike."""
    lines = []
    for dataset, method, runs in in_order(rows):
        asked = {row["request"] for row in rows if row["dataset"] == dataset}
        requests = [[row for row in runs if row["request"] == number] for number in sorted(asked)]
        cells = [[say(own) if own else "refused" for own in requests] for say in each.values()]
        lines.append(
            [
                DATASETS[dataset],
                METHODS[method],
                *(cell[0] if len(set(cell)) == 1 else " / ".join(cell) for cell in cells),
                *(say(runs) for say in together.values()),
            ]
        )
    return markdown(["data", "method", *each, *together], lines) + refusals(
        rows, lambda row: f"request {row['request']}"
    )


def attacks(rows: Sequence[Row]) -> Columns:
    """Return the column of the attack on membership, if there was one, and of that on the model before."""
    if not any("attack" in row for row in rows):
        return {}
    return {"attack (before)": lambda runs: f"{middle(runs, 'attack'):.2f} ({middle(runs, 'attack_before'):.2f})"}


def table(rows: Sequence[Row]) -> str:
    """Return a line for each data set and method."""
    return by_request(rows, {**ROUNDS, **NOISE, **ACCURACIES, **attacks(rows), **CLAIM}, {**TRAINING, **REACHED})


def points(axes: Axes, rows: Sequence[Row], names: Sequence[str], series: str, value: Callable[[Row], float]) -> None:
    """Put the methods on the axis downwards: for each member of a series the median, from the least to the most."""
    members = list(grouped(sorted(rows, key=lambda row: row[series]), series))
    for at, (member,) in enumerate(members):
        shift = 0.2 * (at - (len(members) - 1) / 2)
        found = {name: [value(r) for r in rows if r["method"] == name and r[series] == member] for name in names}
        shown = {name: values for name, values in found.items() if values}
        middles = np.array([median(values) for values in shown.values()])
        ends = np.array([[min(values), max(values)] for values in shown.values()]).T
        axes.errorbar(
            middles,
            [names.index(name) + shift for name in shown],
            xerr=np.abs(ends - middles),
            fmt="o",
            markersize=4,
            capsize=2,
            linewidth=1,
            color=COLOURS[at],
            label=f"{series} {member}",
        )
    axes.set_yticks(range(len(names)), [METHODS[name] for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)


def panels(rows: Sequence[Row], series: str, columns: dict[str, Callable[[Row], float]]) -> Figure:
    """Draw a row of panels for each data set, one panel for each quantity."""
    done = served(rows)
    datasets = [dataset for dataset in DATASETS if any(row["dataset"] == dataset for row in done)]
    names = [name for name in METHODS if any(row["method"] == name for row in done)]
    figure = Figure(figsize=(3.4 * len(columns) + 2, 0.35 * len(names) * len(datasets) + 1.2), layout="constrained")
    axes = figure.subplots(len(datasets), len(columns), sharey=True, squeeze=False)
    for line, dataset in zip(axes, datasets, strict=True):
        for each, (title, value) in zip(line, columns.items(), strict=True):
            points(each, [row for row in done if row["dataset"] == dataset], names, series, value)
            each.set_title(f"{DATASETS[dataset]}: {title}", fontsize=10)
            # Many are at 0, and should not be cut in half.
            right = each.get_xlim()[1]
            each.set_xlim(-0.03 * right, right)
    legend_below(figure, axes[0][0])
    return figure


def draw(rows: Sequence[Row]) -> Figure:
    """Draw rounds and accuracy on those who left, method by method."""
    return panels(
        rows,
        "request",
        {
            "rounds to the threshold": lambda row: float(row["rounds"]),
            "accuracy on those who left, %": lambda row: 100 * float(row["forget"]),
        },
    )
