"""What every measurement shares: its options, its progress bar, and the JSON object at the end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import TypeVar

from rescind.progress import open_bar

Item = TypeVar("Item")


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows ``--quick``, the option that every measurement has."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--quick", action="store_true", help="a run of about 20 s instead of the full size")
    return options


def progress(items: Iterable[Item], label: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items and draw a bar with the time left on standard error; quiet off a terminal."""
    with open_bar(transient=False) as bar:
        yield from bar.track(items, total=total, description=label)


def best_seconds(runs: int, label: str, *contenders: Callable[[], object]) -> list[float]:
    """Time the contenders alternately and give each one's best time, so that noise hits all alike."""
    best = [float("inf")] * len(contenders)
    for _ in progress(range(runs), label):
        for index, contender in enumerate(contenders):
            start = perf_counter()
            contender()
            best[index] = min(best[index], perf_counter() - start)
    return best


def finish(result: dict[str, object]) -> None:
    """Print the result as the last line of standard output."""
    sys.stdout.write(json.dumps(result) + "\n")
