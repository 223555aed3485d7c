"""A bar for training: rounds, accuracy, time left, and who did not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rescind.engines.stops import format_accuracy
from rescind.progress import open_bar
from rescind.texts import list_some, make_plain

_MOST_NAMED = 3


@contextmanager
def show_rounds(label: str, most: int) -> Iterator[Callable[[int, float, Sequence[str]], None]]:
    """Open a bar, and yield what is called with the rounds so far, the last accuracy, -1 for none, and the silent."""
    with open_bar() as bar:
        task = bar.add_task(label, total=most)

        def show(rounds: int, accuracy: float, silent: Sequence[str]) -> None:
            measured = "" if accuracy < 0 else f", accuracy {format_accuracy(accuracy)}"
            missing = f"; no answer: {list_some([*map(make_plain, silent)], _MOST_NAMED)}" if silent else ""
            bar.update(task, completed=rounds, description=label + measured + missing)

        yield show
