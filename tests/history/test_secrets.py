"""What the ledger commits to and keeps secret: who has all of it that is left learns no erased number and no name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.recorded import FACTS, federation, name, train
from rescind.history.commitments import round_root
from rescind.history.history import History
from rescind.history.records import Place, Round, Span
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


def _with_keys(round_: Round, keys: dict[int, bytes]) -> Round:
    there = np.isin(round_.clients, list(keys))
    return round_ if there.all() else replace(round_, participants=round_.participants[there], gram=None)
