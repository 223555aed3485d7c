"""What is derived from all rounds is kept, sealed, and never believed without its seal."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from rescind.checkpoints import tensors
from rescind.core.edges import ModelId
from rescind.errors import BrokenHistoryError, HistoryError
from rescind.history import bounds as module
from rescind.history import recorder as recorders
from rescind.history.history import History
from rescind.ledger.contract import Ledger
from rescind.ledger.records import ErasureLevel
from rescind.ledger.sql import SqlLedger
from tests.builders import (
    FACTS,
    bounds_of,
    check_kept_bounds,
    federation,
    flat_bounds,
    has_bounds,
    kept_bounds,
    put_back_bounds,
    run_sql,
    seal_bounds,
    sealed_bounds,
    train,
)

CLIENTS = federation(seed=4, clients=5, rate=0.6)
START = {"theta": CLIENTS.start}
Arrays = dict[str, np.ndarray]


def record(history: History, rounds: int) -> None:
    with history.recording(FACTS, START, capacity=4) as recorder:
        train(recorder, CLIENTS, rounds, range(5))


def cut_off(history: History, rounds: int) -> None:
    """Record rounds and end as if something had failed."""
    with suppress(KeyError), history.recording(FACTS, START, capacity=4) as recorder:
        train(recorder, CLIENTS, rounds, range(5))
        raise KeyError


def rounds_read(history: History) -> int:
    """Return how many rounds are read in full to go on recording."""
    read, original = [], SqlLedger.rounds

    def counted(*arguments: object) -> Iterator[object]:
        for round_ in original(*arguments):  # type: ignore[arg-type]
            read.append(round_)
            yield round_

    with patch.object(SqlLedger, "rounds", counted):
        bounds_of(history)
    return len(read)


def test_whoever_goes_on_reads_only_the_rounds_since_then(history: History) -> None:
    record(history, 20)
    assert rounds_read(history) == 0
    cut_off(history, 3)
    assert rounds_read(history) == 3
    check_kept_bounds(history)
    record(history, 1)
    assert rounds_read(history) == 0


def test_a_long_run_keeps_them_on_its_way(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "_ROUNDS_REPLAYED", 5)
    with history.recording(FACTS, START, capacity=4) as recorder:
        train(recorder, CLIENTS, 13, range(5))
        assert rounds_read(history) == 3
    # Whoever has read many rounds keeps what follows from them at once.
    run_sql(history.location, "DELETE FROM bounds")
    assert rounds_read(history) == 13
    cut_off(history, 0)
    assert rounds_read(history) == 0


def test_a_public_schedule_keeps_them_too(tmp_path: Path) -> None:
    facts = replace(FACTS, public_schedule=True)
    with History(tmp_path / "history") as history:
        for rounds in (9, 4):
            with history.recording(facts, START, capacity=4) as recorder:
                train(recorder, CLIENTS, rounds, range(5))
            assert rounds_read(history) == 0
            check_kept_bounds(history)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE bounds SET content = zeroblob(length(content))",
        "UPDATE bounds SET content = 'bounds 1' || char(10)",
        "UPDATE bounds SET content = zeroblob(300000000)",
        "UPDATE bounds SET seal = zeroblob(32)",
        "UPDATE bounds SET seal = 'text'",
        "UPDATE bounds SET seal = zeroblob(0)",
        "UPDATE bounds SET sequence = sequence - 1",
        "UPDATE bounds SET sequence = sequence + 1000",
        "UPDATE bounds SET sequence = -1",
    ],
)
def test_what_somebody_changed_is_told_and_not_used(history: History, change: str) -> None:
    record(history, 6)
    expected = flat_bounds(bounds_of(history))
    assert history.integrity.verify() == []
    run_sql(history.location, change)
    assert flat_bounds(bounds_of(history)) == expected
    assert rounds_read(history) == 6
    assert [problem for problem in history.integrity.verify() if "derived" in problem] != []
    record(history, 1)
    assert rounds_read(history) == 0
    assert history.integrity.verify() == []


def test_a_second_row_is_told(history: History) -> None:
    record(history, 3)
    run_sql(history.location, "INSERT INTO bounds SELECT sequence + 1, seal, content FROM bounds")
    assert "table bounds has 2 rows, not one: all others may hold erased values" in history.integrity.verify()
    record(history, 1)
    assert history.integrity.verify() == []


def test_those_of_fewer_rounds_are_as_good_and_those_of_another_history_are_none(history: History) -> None:
    """An older row has a genuine seal: whoever puts it back changes only how many rounds are read."""
    record(history, 4)
    old = sealed_bounds(history)
    record(history, 3)
    put_back_bounds(history, old)
    assert rounds_read(history) == 3
    check_kept_bounds(history)
    assert history.integrity.verify() == []
    with History(Path(history.location).with_name("other")) as other:
        record(other, 7)
        put_back_bounds(other, old)
        assert rounds_read(other) == 7


def test_a_seal_that_changed_rounds_got_is_told(history: History) -> None:
    """Whoever changes rounds, waits until they were read, and changes them back, leaves a genuine seal behind."""
    record(history, 6)
    run_sql(
        history.location,
        "CREATE TABLE aside AS SELECT sequence, rounding FROM round",
        "UPDATE round SET rounding = rounding + 1",
        "DELETE FROM bounds",
    )
    record(history, 0)
    run_sql(
        history.location,
        "UPDATE round SET rounding = (SELECT rounding FROM aside WHERE aside.sequence = round.sequence)",
        "DROP TABLE aside",
    )
    (problem,) = history.integrity.verify()
    assert "does not follow from them" in problem
    run_sql(history.location, "DELETE FROM bounds")
    record(history, 0)
    assert history.integrity.verify() == []


def test_a_round_whose_bounds_cannot_be_kept_is_not_recorded_twice(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder used to go on after the error, so that whoever tried again had the round twice."""
    monkeypatch.setattr(recorders, "_ROUNDS_REPLAYED", 3)
    with history.recording(FACTS, START, capacity=4) as recorder:
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "keep_bounds", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                train(recorder, CLIENTS, 3, range(5))
        with pytest.raises(HistoryError, match="open the history again"):
            train(recorder, CLIENTS, 1, range(5))
    assert history.newest == ModelId(0, 3)
    record(history, 1)
    assert history.integrity.verify() == []


def test_a_round_that_is_gone_is_missed_at_once(history: History) -> None:
    record(history, 6)
    run_sql(history.location, "DELETE FROM round WHERE round = 3")
    with pytest.raises(BrokenHistoryError, match="gone"):
        record(history, 1)


def test_an_erasure_takes_them_along(history: History) -> None:
    record(history, 6)
    old = sealed_bounds(history)
    plan = history.plan_erasure(ErasureLevel.OUTPUT)
    history.erase(plan)
    assert not has_bounds(history)
    put_back_bounds(history, old)
    assert rounds_read(history) == 6
    (problem,) = history.integrity.verify()
    assert "still there: what was derived from all rounds" in problem


def test_a_recorder_whose_run_was_let_go_brings_nothing_back(history: History) -> None:
    """It used to keep what it knew, also of those who had been erased since."""
    with suppress(KeyError), history.recording(FACTS, START, capacity=4) as recorder:
        train(recorder, CLIENTS, 3, range(5))
        raise KeyError
    history.erase(history.plan_erasure())
    recorder.keep_bounds()
    assert not has_bounds(history)
    with pytest.raises(HistoryError, match="let go"):
        train(recorder, CLIENTS, 1, range(5))


def other_arrays(change: Callable[[Arrays], object]) -> Callable[[bytes], bytes]:
    def changed(content: bytes) -> bytes:
        arrays = dict(tensors.read(io.BytesIO(content)))
        change(arrays)
        return b"".join(tensors.chunks(arrays))

    return changed


def put(name: str, array: object) -> Callable[[bytes], bytes]:
    return other_arrays(lambda arrays: arrays.update({name: np.array(array, dtype=arrays[name].dtype)}))


def edit(name: str, act: Callable[[np.ndarray], np.ndarray]) -> Callable[[bytes], bytes]:
    return other_arrays(lambda arrays: arrays.update({name: act(arrays[name])}))


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"",
        lambda content: content[:-1],
        lambda content: b"\xff" * 8 + content[8:],
        other_arrays(lambda arrays: arrays.pop("legs")),
        other_arrays(lambda arrays: arrays.update(more=np.zeros(1))),
        edit("tracker.clients", lambda array: array.astype(np.int64)),
        edit("tracker.psi", lambda array: array.astype(np.float32)),
        edit("tracker.psi", lambda array: array * np.nan),
        edit("tracker.psi", lambda array: -array),
        edit("tracker.psi", lambda array: array[1:]),
        edit("tracker.clients", lambda array: array[::-1].copy()),
        edit("tracker.nodes", lambda array: array + 1000),
        edit("tracker.floors", lambda array: array[1:]),
        edit("tracker.floors", lambda array: array[:, None]),
        edit("retention.nodes", lambda array: array[1:]),
        edit("retention.nodes", lambda array: array * 3),
        edit("retention.clients", lambda array: array[::-1].copy()),
        edit("retention.psi", lambda array: array.T.copy()),
        edit("retention.firsts", lambda array: array - 7),
        put("legs", [[0, 0, 5]]),
        put("legs", [[0, 0, 10**12]]),
        put("legs", [[1, 0, 6]]),
        put("legs", [[0, 0, 6], [0, 6, 0]]),
        put("legs", np.zeros((0, 3))),
        put("legs", [0, 0, 6]),
        put("counts", [0, -1, 0]),
        put("counts", [0, 3, 4]),
        put("counts", [99, 6, 0]),
        put("counts", [0]),
    ],
)
def test_even_under_the_right_seal_only_what_can_be_is_used(
    history: History, change: Callable[[bytes], bytes]
) -> None:
    record(history, 6)
    expected = flat_bounds(bounds_of(history))
    content = kept_bounds(history).removeprefix(module._VERSION)
    changed = change(content)
    assert changed != content
    seal_bounds(history, module._VERSION + changed)
    assert rounds_read(history) == 6
    assert flat_bounds(bounds_of(history)) == expected


@pytest.mark.parametrize(("by", "problems"), [(1 + 2.0**-40, 0), (0.5, 1)])
def test_what_another_machine_rounded_otherwise_is_no_problem(history: History, by: float, problems: int) -> None:
    record(history, 6)
    changed = edit("tracker.psi", lambda array: array * by)(kept_bounds(history).removeprefix(module._VERSION))
    seal_bounds(history, module._VERSION + changed)
    assert len(history.integrity.verify()) == problems


def test_those_of_another_version_are_not_used(history: History) -> None:
    record(history, 3)
    seal_bounds(history, kept_bounds(history).replace(b"bounds 2\n", b"bounds 3\n"))
    assert rounds_read(history) == 3
    assert history.integrity.verify() == []


def test_more_than_fits_is_not_kept(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_BOUNDS", 100)
    record(history, 3)
    assert not has_bounds(history)
    record(history, 2)
    assert rounds_read(history) == 5
