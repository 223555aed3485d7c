"""What the ledger commits to and keeps secret: who has all of it that is left learns no erased number and no name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.recorded import FACTS, federation, name, train
from rescind.core.calibration import Budget
from rescind.history.commitments import name_leaf, round_root
from rescind.history.errors import BrokenHistory
from rescind.history.history import History
from rescind.history.records import Level, Place, Round, Span
from tests.history.test_erasure import START, restarted


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history")


def test_no_root_of_an_erased_round_opens_with_what_is_left(history: History) -> None:
    """Rounds that the leaver missed used to open with the others' keys, and theirs gave its own numbers away."""
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 2, range(6))
        train(recorder, clients, 2, range(1, 6))
        train(recorder, clients, 1, range(6))
    known = list(history.ledger.rounds(Span(0, 1, 5)))
    restarted(history, [name(0)], Place(0, 4))
    history.erase(history.plan_erasure())
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 2, range(1, 6))
    roots = {entry.place: entry.root for entry in history.ledger.entries("round")}
    there = [*history.ledger.rounds(Span(1, 1, 9)), *history.ledger.stretches().values()]
    salts = {b"", bytes(32), *(each.salt for each in there)}
    missed = 0
    for round_ in known:
        keys = history.ledger.keys(round_.clients)
        missed += len(keys) == len(round_.clients)
        with_keys = _with_keys(round_, keys)
        assert all(round_root(replace(with_keys, salt=salt), keys) != roots[round_.place] for salt in salts)
    assert missed == 2
    # What the server computed is a leaf of its own, which needs no key.
    assert not {each.salt for each in known} & salts


def _moved(client: int, to: int) -> str:
    return f"UPDATE identity SET pseudonym = {to} WHERE pseudonym = {client}"  # noqa: S608


REGISTERED = "the names of clients 1 to 6 are not those that were registered"
# What somebody at the database does to the table of identities, and what is said of it.
EDITS = {
    "two names swapped": ([_moved(1, -1), _moved(2, 1), _moved(-1, 2)], REGISTERED),
    "a name changed": (["UPDATE identity SET name = 'nobody' WHERE pseudonym = 2"], REGISTERED),
    "a nonce changed": (["UPDATE identity SET nonce = zeroblob(32) WHERE pseudonym = 5"], REGISTERED),
    "a name deleted": (["DELETE FROM identity WHERE pseudonym = 2"], REGISTERED),
    "a label moved": (
        ["UPDATE identity SET label = CASE pseudonym WHEN 3 THEN 'north' END"],
        "what people call client 1 is not what was recorded",
    ),
    "the commitment changed": (
        ["UPDATE journal SET root = zeroblob(32) WHERE kind = 'registration'"],
        "entry 3 does not follow",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_names_are_those_that_were_registered(history: History, tmp_path: Path, edit: str) -> None:
    """Two swapped rows made the run forget another client, under the certificate of the one who had asked."""
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 2, range(6))
    history.label({name(0): "north"})
    assert history.verify() == []
    number = history.ask([name(4)], Budget(5.0, 1e-3))
    history.withdraw(number)
    statements, told = EDITS[edit]
    _edit(tmp_path / "history", statements)
    assert any(told in problem for problem in history.verify())
    before = history.head
    with pytest.raises(BrokenHistory, match=f"{told}.*restore it from a backup"):
        history.ask(["north" if "label" in edit else name(0)], Budget(5.0, 1e-3))
    assert history.head == before


def test_a_client_that_nobody_registered_cannot_be_forgotten(history: History, tmp_path: Path) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 1, range(6))
    _edit(tmp_path / "history", ["INSERT INTO identity VALUES (99, 'new', NULL, zeroblob(32))"])
    assert "client 99 was never registered" in history.verify()
    with pytest.raises(BrokenHistory, match="client 99 was never registered"):
        history.ask(["new"], Budget(5.0, 1e-3))


def test_a_name_that_goes_without_an_erasure_is_missed(history: History, tmp_path: Path) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 1, range(6))
    leaf = history.ledger.name_leaves(2, 2)[2].hex()
    kept = f"UPDATE client SET name_leaf = x'{leaf}' WHERE pseudonym = 2"  # noqa: S608
    _edit(tmp_path / "history", [kept, "DELETE FROM identity WHERE pseudonym = 2"])
    assert history.verify() == ["the name of client 2 is gone, and no erasure says so"]


def test_names_that_were_swapped_after_the_request_are_not_erased(history: History, tmp_path: Path) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 4, range(6))
    restarted(history, [name(0)], Place(0, 3))
    plan = history.plan_erasure()
    _edit(tmp_path / "history", EDITS["two names swapped"][0])
    with pytest.raises(BrokenHistory, match=REGISTERED):
        history.erase(plan)
    assert len(history.ledger.identities()) == 6


def test_an_erased_name_is_hidden_and_the_others_still_verify(history: History) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 4, range(6))
    (leaver,) = history.clients([name(0)])
    before = history.ledger.name_leaves(leaver, leaver)
    restarted(history, [name(0)], Place(0, 3))
    history.erase(history.plan_erasure(Level.OUTPUT))
    assert history.verify() == []
    assert history.ledger.name_leaves(leaver, leaver) == before
    # The key is still there, and does not open it: what hid the name lay beside it.
    (key,) = history.ledger.keys(np.array([leaver])).values()
    assert before[leaver] not in (name_leaf(each, leaver, name(0)) for each in (key, b"", bytes(32)))
    assert history.ask([name(1)], Budget(5.0, 1e-3))


def _edit(folder: Path, statements: list[str]) -> None:
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
        for each in statements:
            database.execute(each)
        database.commit()


def _with_keys(round_: Round, keys: dict[int, bytes]) -> Round:
    there = np.isin(round_.clients, list(keys))
    return round_ if there.all() else replace(round_, participants=round_.participants[there], gram=None)
