"""A progress bar for training: rounds, accuracy, time left; nothing where nobody looks at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rescind.engines.stops import format_accuracy
from rescind.texts import make_plain

_MOST_NAMED = 3


@contextmanager
def bar(label: str, most: int) -> Iterator[Callable[[int, float, Sequence[str]], None]]:
    """Show a bar on standard error.

    Call what it gives with the rounds so far, the last accuracy, -1 for none, and who did not answer last.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda *_: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[silent]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(label, total=most, accuracy="", silent="")

        def show(rounds: int, accuracy: float, silent: Sequence[str]) -> None:
            named = ", ".join(map(make_plain, silent[:_MOST_NAMED])) + (" ..." if len(silent) > _MOST_NAMED else "")
            progress.update(
                task,
                completed=rounds,
                accuracy="" if accuracy < 0 else f"accuracy {format_accuracy(accuracy)}",
                silent=f"no answer: {named}" if silent else "",
            )

        yield show
