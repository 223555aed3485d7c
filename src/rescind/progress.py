"""How far long work is: told to whoever listens, and shown as a bar where somebody looks at a terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")
# Is told what is being done, how much of it is done, and how much there is.
Listener: TypeAlias = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def notify_listener(listener: Listener) -> Iterator[None]:
    """Let a listener hear of all long work in this context."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def tell_listener(task: str, done: int, total: int) -> None:
    """Tell whoever listens what is being done, how much of it is done, and how much there is."""
    if (listener := _listener.get()) is not None:
        listener(task, done, total)


def report_progress(items: Iterable[Item], task: str, total: int) -> Iterator[Item]:
    """Return the items, and tell of each that is done."""
    listener = _listener.get()
    if listener is None:
        yield from items
        return
    for done, item in enumerate(items, start=1):
        yield item
        listener(task, done, total)


@contextmanager
def open_bar(*, transient: bool = True) -> Iterator[Progress]:
    """Open bars on standard error, one for each task that is added, or with ipywidgets in a notebook's cell.

    Elsewhere nothing is shown, and the bar is ``disable``d.
    """
    # Not before it is needed: a help text should not have to wait for it.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    # A notebook shows what its commands print, but moves no cursor: every state of a bar would stay.
    in_terminal = console.is_terminal and "JPY_PARENT_PID" not in os.environ
    shown = in_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
    # What is done comes last, as it may grow, and is not read as markup: a client may be called "[/]".
    done = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), done)
    with Progress(*columns, console=console, transient=transient, disable=not shown) as bar:
        yield bar


@contextmanager
def show_progress(label: str) -> Iterator[None]:
    """Show that something takes its time, and how far each part of it is."""
    with open_bar() as bar:
        tasks = {label: bar.add_task(label, total=None)}

        def listen(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = bar.add_task(task)
            bar.update(tasks[task], completed=done, total=total)

        with notify_listener(listen):
            yield
