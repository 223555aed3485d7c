"""Long work tells how far it is, to whoever listens: a command line has a bar for it, a library stays silent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias, TypeVar

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


def report_progress(items: Iterable[Item], task: str, total: int) -> Iterator[Item]:
    """Return the items, and tell of each that is done."""
    listener = _listener.get()
    if listener is None:
        yield from items
        return
    for done, item in enumerate(items, start=1):
        yield item
        listener(task, done, total)
