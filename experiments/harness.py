"""Runs what a figure's configuration asks for, once each, and keeps the results as rows of JSON.

A figure is a folder: ``config.toml`` says what to run and, if it has no module of its own, as which it is drawn;
``rows.jsonl`` holds what came out, one line for each run with its configuration, the configuration's hash, versions,
date and seconds; picture and README's table are made from the rows alone. A run that is in the file is not run
again, so a sweep that was killed goes on; one that is older than the code (``experiments.outdated``) is.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from experiments.outdated import describe, find_changes

FIGURES = Path(__file__).parent / "figures"
VERSIONS = ("rescind", "numpy", "scipy", "torch")

Configuration: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """One run: the ``experiment`` that makes it, a module of ``experiments.runs``, and its whole configuration."""

    experiment: str
    configuration: Configuration

    @property
    def hash(self) -> str:
        """Names the run: the same configuration is the same run."""
        text = json.dumps([self.experiment, self.configuration], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def names() -> list[str]:
    """Return the figures that there are."""
    return sorted(path.parent.name for path in FIGURES.glob("*/config.toml"))


def tasks(figure: str, *, quick: bool = False, seeds: int | None = None) -> list[Task]:
    """Return all runs of a figure: for each part the seeds, and for each seed every combination of its grid.

    What is ``fixed`` for all parts a part may fix otherwise.
    One seed after the other, so that a sweep which is cut off has some of everything.
    """
    config = _config(figure)
    parts, shared = config["quick"] if quick else config["part"], config.get("fixed", {})
    found = [
        (seed, Task(config["experiment"], {**shared, **part.get("fixed", {}), **point, "seed": seed}))
        for part in parts
        for seed in range(part["seeds"] if seeds is None else seeds)
        for point in _points(part.get("grid", {}))
    ]
    return [task for _, task in sorted(found, key=lambda each: each[0])]


def drawing(figure: str) -> ModuleType:
    """Return the module that draws a figure: its own, or that of the figure which it is ``drawn_as``."""
    return import_module(f"experiments.figures.{_config(figure).get('drawn_as', figure)}")


def _config(figure: str) -> dict[str, Any]:
    path = FIGURES / figure / "config.toml"
    if not path.is_file():
        raise ValueError(f"there is no figure {figure!r}; there are {', '.join(names())}")
    return tomllib.loads(path.read_text("utf-8"))


def _points(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def stored(figure: str, rows: Path | None = None) -> dict[str, Row]:
    """Return what was run already, by hash; a last line that was cut off is left out."""
    path = rows or FIGURES / figure / "rows.jsonl"
    if not path.exists():
        return {}
    found = {}
    for line in path.read_text("utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[row["hash"]] = row
    return found


def run(figure: str, todo: Sequence[Task], data: str | None, rows: Path) -> int:
    """Run what is missing, in two processes, and give how many runs that were."""
    done = {key: row for key, row in stored(figure, rows).items() if not find_changes(row)}
    missing = [task for task in todo if task.hash not in done]
    # Each process has one thread: that is the best use of two cores.
    os.environ["OMP_NUM_THREADS"] = "1"
    if data is not None:
        os.environ["RESCIND_DATA"] = data
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    if rows.exists():
        # Without a line that was cut off, and without those that later ones replace.
        rows.write_text("".join(json.dumps(row) + "\n" for row in stored(figure, rows).values()), "utf-8")
    context = get_context("forkserver")
    # What both processes need is loaded once.
    context.set_forkserver_preload(sorted({f"experiments.runs.{task.experiment}" for task in missing}))
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as bar,
        # A ``Pool`` that is ended with an error can wait for ever.
        ProcessPoolExecutor(2, context) as workers,
        rows.open("a", encoding="utf-8") as file,
    ):
        made = [workers.submit(_made, task) for task in missing]
        try:
            for each in bar.track(as_completed(made), total=len(made), description=figure):
                file.write(json.dumps(each.result()) + "\n")
                file.flush()
                os.fsync(file.fileno())
        finally:
            workers.shutdown(cancel_futures=True)
    return len(missing)


def _made(task: Task) -> Row:
    import torch

    torch.set_num_threads(1)
    start = perf_counter()
    results = import_module(f"experiments.runs.{task.experiment}").run(task.configuration)
    return {
        "hash": task.hash,
        "experiment": task.experiment,
        "configuration": dict(task.configuration),
        "results": results,
        "seconds": round(perf_counter() - start, 2),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "versions": {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}},
    }


def repeat(todo: Sequence[Task], rows: Mapping[str, Row]) -> tuple[Task, list[str]]:
    """Run the shortest of the stored runs once more, and give it with what came out otherwise than it is stored."""
    task = min((task for task in todo if task.hash in rows), key=lambda task: rows[task.hash]["seconds"])
    before, after = rows[task.hash]["results"], json.loads(json.dumps(_made(task)["results"]))
    if len(before) != len(after):
        return task, [f"{len(after)} results instead of {len(before)}"]
    return task, [
        f"result {at}: {key} is {new.get(key)}, stored {old.get(key)}"
        for at, (old, new) in enumerate(zip(before, after, strict=True), 1)
        for key in sorted({*old, *new})
        # How long it took is another machine's word.
        if not key.endswith("seconds") and old.get(key) != new.get(key)
    ]


def rows(figure: str) -> list[Row]:
    """Return every stored result of a figure's runs."""
    return flat(stored(figure), tasks(figure))


def table(figure: str, found: Mapping[str, Row], todo: Sequence[Task]) -> str:
    """Return the table that a figure's README shows, and which of its runs are older than the code."""
    older = describe([found[task.hash] for task in todo if task.hash in found])
    shown: str = drawing(figure).table(flat(found, todo)).strip()
    return f"{shown}\n\n{older}" if older else shown


def flat(found: Mapping[str, Row], todo: Sequence[Task]) -> list[Row]:
    """Return every result of these runs as one row with its configuration, in the order of the runs."""
    return [
        {**found[task.hash]["configuration"], **result}
        for task in todo
        if task.hash in found
        for result in found[task.hash]["results"]
    ]
