import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, event

from rescind import History

pytest.register_assert_rewrite("tests.builders", "tests.hospitals")

# The gate ends what runs beside it with SIGTERM: then fixtures end the servers that they started, as with Ctrl-C.
signal.signal(signal.SIGTERM, signal.default_int_handler)

# What counts is whether a property holds, not how long an example takes on a busy machine.
settings.register_profile("patient", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# For `.ci/full`: twenty times the examples, where a test does not name their number.
settings.register_profile("thorough", settings.get_profile("patient"), max_examples=1000)
settings.load_profile("patient")


@pytest.fixture
def history() -> Iterator[History]:
    with History.in_memory() as history:
        yield history


@pytest.fixture
def stored_history(tmp_path: Path) -> Iterator[History]:
    """A history in the folder ``history`` of the test's own place."""
    with History(tmp_path / "history") as history:
        yield history


@pytest.fixture
def count_statements() -> Callable[[Callable[[], object]], int]:
    """Return a function that counts what some work asks of databases."""

    def count(work: Callable[[], object]) -> int:
        asked = 0

        def note(*_: Any) -> None:
            nonlocal asked
            asked += 1

        event.listen(Engine, "before_cursor_execute", note)
        try:
            work()
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        return asked

    return count
