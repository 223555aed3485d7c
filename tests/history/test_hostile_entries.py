"""What somebody wrote into an entry, and chained and stamped, is told in a sentence, or does no harm."""

from __future__ import annotations

import copy
import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescind import History, Revocable, Rounds
from rescind.certificates.issue import build_statement
from rescind.errors import BrokenHistoryError, HistoryError
from rescind.history.events import EVENTS, read_event
from rescind.ledger.commitments import next_entry, stamp
from rescind.ledger.contract import STAMPS
from rescind.ledger.records import Entry
from rescind.methods import Last
from rescind.preview import preview
from rescind.views.overview import read_gauges
from rescind.views.requests import open_requests
from tests.builders import BUDGET, entries_of, everybody, outside_secret

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    7,
    1 << 62,
    10**30,
    1e308,
    "",
    "x",
    [],
    [[]],
    {},
    {"class": "Mode", "name": "EXACT"},
)
# JSON has no names for them, and Python reads and writes them all the same.
NO_JSON = (math.nan, math.inf)


class Made(NamedTuple):
    """A history, the secret that its entries are stamped with, the entries, and the mode of its certificate."""

    folder: Path
    secret: bytes
    entries: list[Entry]
    mode: str


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("hostile") / "history"
    engine = everybody(6)
    with History(folder) as history:
        federation = Revocable(history, engine)
        federation.train(Rounds(2))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Last(), Rounds(1), approval=True)
        history.requests.approve(1, "A. Officer")
        federation.forget(Last(), Rounds(1), approval=True)
        history.requests.withdraw(history.requests.ask(["clinic-2"], BUDGET))
        history.requests.ask(["clinic-3"], BUDGET)
        mode = build_statement(history, 1).predicate.mode
        return Made(folder, outside_secret(history, STAMPS), entries_of(history), mode)


def find_places(document: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the way to everything in a document, however deep."""
    if before:
        yield before
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from find_places(value, (*before, key))


def change(entry: Entry, place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    body = inner = copy.deepcopy(dict(entry.body))
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return body


def find_changes(entry: Entry) -> Iterator[dict[str, Any]]:
    """Return an entry's body with each wrong value in each place."""
    return (change(entry, place, value) for place in find_places(entry.body) for value in (*WRONG, *NO_JSON))


def is_read(entry: Entry, body: dict[str, Any]) -> bool:
    changed = Entry(entry.sequence, entry.kind, entry.time, body, entry.root, entry.head)
    with suppress(BrokenHistoryError):
        return bool(read_event(changed) if entry.kind in EVENTS else changed.model_id)
    return False


def test_an_entry_is_read_or_refused(made: Made) -> None:
    tried = [is_read(entry, body) for entry in made.entries for body in find_changes(entry)]
    assert len(tried) > 3000
    assert tried.count(True) < len(tried) / 8


def write(made: Made, changed: int, body: dict[str, Any]) -> None:
    """Write the journal with one entry's body changed, chained and stamped as somebody can who has the secret."""
    previous = None
    with closing(sqlite3.connect(made.folder / "ledger.sqlite")) as database, database:
        for entry in made.entries:
            content = body if entry.sequence == changed else dict(entry.body)
            text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            with suppress(ValueError):
                previous = next_entry(previous, entry.kind, entry.time, content, entry.root)
            assert previous is not None
            written = (text, previous.head, stamp(made.secret, previous.head), entry.sequence)
            database.execute("UPDATE journal SET body = ?, head = ?, stamp = ? WHERE sequence = ?", written)
        database.execute("DELETE FROM bounds")


@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_a_hostile_entry_is_told_and_raises_no_claim(data: st.DataObject, made: Made) -> None:
    entry = data.draw(st.sampled_from(made.entries))
    body = data.draw(st.sampled_from([body for body in find_changes(entry) if is_read(entry, body)] or [{}]))
    write(made, entry.sequence, body)
    now = datetime.now(UTC)
    with History(made.folder, create=False) as history:
        problems = history.integrity.verify()
        # The chain is right, so what is wrong may be seen by nobody.
        assert all("\n" not in problem for problem in problems)
        with suppress(HistoryError, ValueError):
            open_requests(history, now)
        with suppress(HistoryError, ValueError):
            read_gauges(history, now)
        with suppress(HistoryError, ValueError):
            preview(history, ["clinic-0"], BUDGET)
        with suppress(HistoryError, ValueError):
            assert build_statement(history, 1).predicate.mode in (made.mode, "heuristic")


def test_a_restart_that_hides_somebody_is_exact_of_nobody(made: Made) -> None:
    plan = next(entry for entry in made.entries if entry.kind == "plan")
    write(made, plan.sequence, change(plan, ("candidate", "mode", "name"), "EXACT"))
    with History(made.folder, create=False) as history:
        try:
            claimed = build_statement(history, 1).predicate.mode
        except HistoryError:
            claimed = "none"
    assert claimed in ("none", "heuristic")


def test_without_noise_a_restart_hides_nobody(made: Made) -> None:
    branch = next(entry for entry in made.entries if entry.kind == "branch" and entry.body["hidden"])
    write(made, branch.sequence, change(branch, ("sigma",), 0))
    with History(made.folder, create=False) as history, pytest.raises(BrokenHistoryError, match="hides nobody"):
        build_statement(history, 1)
