"""A progress bar for training: rounds, accuracy, time left; nothing where nobody looks at a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def bar(label: str, most: int) -> Iterator[Callable[[int, float], None]]:
    """Show a bar on standard error; call what it gives with the rounds so far and the last accuracy, -1 for none."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[accuracy]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as shown:
        task = shown.add_task(label, total=most, accuracy="")

        def show(rounds: int, accuracy: float) -> None:
            shown.update(task, completed=rounds, accuracy="" if accuracy < 0 else f"accuracy {accuracy:.1%}")

        yield show
