"""A round is written while the next one is trained: everything else waits for it, and nothing is lost unseen."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from rescind import History
from rescind.checkpoints.store import CheckpointStore
from rescind.core.edges import ModelId
from rescind.core.facts import DpFedAvg
from rescind.core.rounds import RoundResult
from rescind.engines.engine import Engine
from rescind.engines.server import Average, NoisedAverage
from rescind.engines.stops import Accuracy, Rounds
from rescind.errors import HistoryError
from rescind.forgetting import Revocable
from rescind.history.recorder import Recorder
from rescind.ledger.contract import Ledger
from rescind.ledger.sql import SqlLedger
from rescind.methods import Exact, Last, Solve
from rescind.testing.small import simulation
from tests.builders import (
    BUDGET,
    FACTS,
    START,
    delay_writing,
    entries_of,
    everybody,
    federation,
    name,
    rounds_of,
    train,
)

CLIENTS = federation(1)
# What the writer does one after the other.
STAGES = {
    "checkpoint": (CheckpointStore, "put"),
    "transaction": (SqlLedger, "commit_round"),
    "inside the transaction": (SqlLedger, "_add_round"),
    "letting go": (CheckpointStore, "delete"),
}


class Gate:
    """Holds up the writer's commit until it is opened."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.open, self.reached, commit = threading.Event(), threading.Event(), Ledger.commit_round

        def commit_later(*given: Any, **options: Any) -> Any:
            self.reached.set()
            assert self.open.wait(30)
            return commit(*given, **options)

        patch.setattr(Ledger, "commit_round", commit_later)


@contextmanager
def round_under_way(history: History, gate: Gate) -> Iterator[Recorder]:
    """Record three rounds, the third of which waits at the gate."""
    with history.recording(FACTS, START) as recorder:
        gate.open.set()
        train(recorder, CLIENTS, 2, range(6))
        gate.open.clear()
        gate.reached.clear()
        train(recorder, CLIENTS, 1, range(6), behind=True)
        assert gate.reached.wait(30)
        try:
            yield recorder
        finally:
            gate.open.set()


def refuse_to_end(recorder: Recorder) -> None:
    """Ask for the end of a branch that serves no request."""
    with pytest.raises(ValueError, match="serves no request"):
        recorder.record_retrained()


def train_behind(recorder: Recorder) -> None:
    """Record a round behind, and wait."""
    train(recorder, CLIENTS, 1, range(6), behind=True)
    recorder.finish_writing()


def test_the_caller_goes_on_while_a_round_is_written(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with round_under_way(history, gate) as recorder:
        assert (recorder.model_id, history.newest) == (ModelId(0, 3), ModelId(0, 2))
        # What clients are handed to witness is in the chain.
        assert recorder.head in [entry.head for entry in entries_of(history)]
        gate.open.set()
        recorder.finish_writing()
        assert recorder.model_id == history.newest == ModelId(0, 3)
    assert history.integrity.verify() == []


@pytest.mark.parametrize(
    "ask",
    [
        lambda recorder: recorder.model(),
        lambda recorder: recorder.took_part([name(0)]),
        lambda recorder: recorder.sensitivities([name(0)]),
        lambda recorder: recorder.body_rounds_left,
        lambda recorder: recorder.body_rounds_here,
        lambda recorder: recorder.record_end_by_data(),
        lambda recorder: recorder.doubt("for a test"),
        lambda recorder: recorder.record_other_mean(),
        refuse_to_end,
        lambda recorder: recorder.name_anchors([name(0)], {}),
        lambda recorder: train(recorder, CLIENTS, 1, range(6), behind=True),
        lambda recorder: recorder.restart(ModelId(0, 0), START),
    ],
)
def test_whatever_is_asked_of_the_recorder_waits(
    history: History, monkeypatch: pytest.MonkeyPatch, ask: Callable[[Recorder], object]
) -> None:
    gate = Gate(monkeypatch)
    with round_under_way(history, gate) as recorder:
        threading.Timer(0.05, gate.open.set).start()
        ask(recorder)
        assert history.newest_of(0).round >= 3


def test_leaving_the_run_waits_too(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with round_under_way(history, gate):
        threading.Timer(0.05, gate.open.set).start()
    assert history.newest == ModelId(0, 3)


@pytest.mark.parametrize("stage", STAGES)
def test_an_error_of_the_writer_ends_the_run_and_the_round_is_trained_again(
    history: History, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    owner, method = STAGES[stage]

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with history.recording(FACTS, START, capacity=1) as recorder:
        train(recorder, CLIENTS, 3, range(6))
        with monkeypatch.context() as patched:
            patched.setattr(owner, method, fail)
            with pytest.raises(OSError, match="No space left on device"):
                train_behind(recorder)
    # Letting go comes after the transaction.
    recorded = 4 if stage == "letting go" else 3
    assert history.newest == ModelId(0, recorded)
    with history.recording(FACTS, START, capacity=1) as recorder:
        train(recorder, CLIENTS, 6 - recorded, range(6), behind=True)
    assert history.integrity.verify() == []
    with History.in_memory() as undisturbed:
        with undisturbed.recording(FACTS, START, capacity=1) as recorder:
            train(recorder, CLIENTS, 6, range(6))
        assert history.model(history.newest)["theta"].tolist() == undisturbed.model(ModelId(0, 6))["theta"].tolist()


@pytest.mark.parametrize("stage", STAGES)
def test_a_connection_that_is_lost_while_a_round_is_written_ends_the_run(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    (owner, method), run = STAGES[stage], f"test_{uuid.uuid4().hex}"
    original, ended = getattr(owner, method), list[int]()

    def opened() -> History:
        return History(postgresql, checkpoints=str(tmp_path / "models"), run=run, secret=tmp_path / "secret")

    with opened() as history:

        def lose(*given: Any, **options: Any) -> Any:
            with psycopg.connect(postgresql, autocommit=True) as other:
                other.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))
            ended.append(pid)
            return original(*given, **options)

        with history.recording(FACTS, START, capacity=1) as recorder:
            with opened() as other:
                pid = int(re.search(r"PostgreSQL process (\d+)", str(other.writer()))[1])
            train(recorder, CLIENTS, 3, range(6))
            with monkeypatch.context() as patched:
                patched.setattr(owner, method, lose)
                # Letting go needs no database: it is the next round but one that finds out.
                with pytest.raises((HistoryError, OperationalError), match=r"connection|terminat"):
                    train(recorder, CLIENTS, 3, range(6), behind=True)
        assert ended
    with opened() as history:
        recorded = history.newest.round
        assert recorded == (4 if stage == "letting go" else 3)
        with history.recording(FACTS, START, capacity=1) as recorder:
            train(recorder, CLIENTS, 6 - recorded, range(6), behind=True)
        assert history.integrity.verify() == []


def test_after_an_error_half_way_the_recorder_is_not_gone_on_with(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    with history.recording(FACTS, START) as recorder:
        with monkeypatch.context() as patched:
            patched.setattr(SqlLedger, "commit_round", lambda *_, **__: 1 / 0)
            train(recorder, CLIENTS, 1, range(6), behind=True)
            with pytest.raises(ZeroDivisionError):
                recorder.model()
        with pytest.raises(HistoryError, match="open the history again"):
            train(recorder, CLIENTS, 1, range(6), behind=True)


def test_whoever_fails_beside_the_writer_is_told_of_both(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SqlLedger, "commit_round", lambda *_, **__: 1 / 0)

    def wait_for_nobody() -> None:
        with history.recording(FACTS, START) as recorder:
            train(recorder, CLIENTS, 1, range(6), behind=True)
            raise TimeoutError("no client is here")

    with pytest.raises(TimeoutError, match="no client") as failed:
        wait_for_nobody()
    assert failed.value.__notes__ == ["model 0.0 is the last model that is recorded: division by zero"]


def test_a_server_that_tries_again_makes_no_round_of_a_lost_model(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stubborn(Average):
        """Asks once more after an error."""

        def round(self, engine: Engine, *given: Any) -> RoundResult:
            try:
                return Average.round(self, engine, *given)
            except OSError:
                return Average.round(self, engine, *given)

    put, put_so_far = CheckpointStore.put, list[str]()

    def fail_once(store: CheckpointStore, model: Any) -> str:
        put_so_far.append("theta_0^0 is the first, the second round's model the third")
        if len(put_so_far) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return put(store, model)

    monkeypatch.setattr(CheckpointStore, "put", fail_once)
    with pytest.raises(HistoryError, match="open the history again"):
        Revocable(history, simulation(6, secret_noise=True), Stubborn()).train(Rounds(4))
    assert history.newest == ModelId(0, 1)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let an interruption be one: a process that a shell starts in the background passes them over."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_however_often_somebody_interrupts_a_round_is_written_before_the_run_is_let_go(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)

    def interrupt() -> None:
        for _ in range(4):
            threading.Event().wait(0.1)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.1)
        gate.open.set()

    impatient = threading.Thread(target=interrupt)

    def wait_for_it() -> None:
        with round_under_way(history, gate) as recorder:
            impatient.start()
            recorder.finish_writing()

    with pytest.raises(KeyboardInterrupt):
        wait_for_it()
    impatient.join()
    # Else whoever comes next would remove the model that this round is about to refer to.
    assert history.writer() is None
    assert history.newest == ModelId(0, 3)
    assert history.integrity.verify() == []


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_tells_what_went_wrong_beside_it(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_over = threading.Event()

    def fail_late(*_: Any, **__: Any) -> None:
        assert handed_over.wait(30)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(0.2)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SqlLedger, "commit_round", fail_late)

    def record_and_wait() -> None:
        with history.recording(FACTS, START) as recorder:
            train(recorder, CLIENTS, 1, range(6), behind=True)
            handed_over.set()
            recorder.finish_writing()

    with pytest.raises(KeyboardInterrupt) as interrupted:
        record_and_wait()
    # It may come while the recorder waits, or just before: then the run waits as it is let go.
    assert "No space left on device" in "".join(traceback.format_exception(interrupted.value))


def test_a_history_is_closed_after_the_round_that_is_being_written(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    with round_under_way(history, gate):
        threading.Timer(0.1, gate.open.set).start()
        history.close()
    with History(history.location) as again:
        assert again.newest == ModelId(0, 3)
        assert again.integrity.verify() == []


def test_what_was_handed_over_may_be_used_again(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    record, used_again, handed = Recorder.record, threading.Event(), list[float]()

    def record_and_reuse(recorder: Recorder, round_: RoundResult, **options: Any) -> None:
        handed.extend(round_.replies.weights)
        record(recorder, round_, **options)
        round_.replies.weights[:] = 1e6
        used_again.set()

    monkeypatch.setattr(Recorder, "record", record_and_reuse)
    delay_writing(monkeypatch, lambda: used_again.wait(30))
    with history.recording(FACTS, START) as recorder:
        train(recorder, CLIENTS, 1, range(6), behind=True)
    (round_,) = rounds_of(history, 0, 1, 1)
    assert round_.participants["weight"].tolist() == handed


def test_who_takes_part_is_known_before_the_round_is_written(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = threading.Event()
    delay_writing(monkeypatch, lambda: looked.wait(30))
    with history.recording(FACTS, START) as recorder:
        train(recorder, CLIENTS, 1, range(6), behind=True)
        # Whoever asks is recorded, and whoever is missing is waited for, however slow the writer is.
        assert history.participants.all().keys() == {name(client) for client in range(6)}
        assert history.newest.round == 0
        looked.set()


def test_the_first_round_since_a_run_was_opened_says_so(history: History) -> None:
    for _ in range(2):
        with history.recording(FACTS, START) as recorder:
            train(recorder, CLIENTS, 2, range(6), behind=True)
    entries = entries_of(history, "round")
    assert [entry.body.get("resumed", False) for entry in entries] == [True, False, True, False]


def test_written_behind_a_run_ends_alike(tmp_path: Path) -> None:
    numbers = []
    for behind in (True, False):
        with History(tmp_path / f"history-{behind}") as history:
            engine = simulation(8, secret_noise=False)
            revocable = Revocable(history, engine, capacity=3, seed=b"alike", write_behind=behind)
            revocable.train(Rounds(5))
            history.requests.ask(["clinic-1"], BUDGET)
            revocable.forget(Last(), Rounds(3))
            history.requests.ask(["clinic-2"], BUDGET)
            revocable.forget(Exact(), Rounds(4))
            entries = [(entry.kind, entry.body.get("round")) for entry in entries_of(history)]
            branches = (rounds_of(history, number) for number in history.timeline.branches)
            rounds = [(round_.model_id, round_.model) for branch in branches for round_ in branch]
            numbers.append((entries, rounds, history.kept(), [str(out.mode) for out in history.outcomes()]))
            assert history.integrity.verify() == []
    assert numbers[0] == numbers[1]


@dataclass(frozen=True)
class Noting(Average):
    """Rounds that note which model was recorded when their messages left."""

    history: History
    recorded: list[int] = field(default_factory=list)

    def round(self, engine: Engine, *given: Any) -> RoundResult:
        self.recorded.append(self.history.newest.round)
        return Average.round(self, engine, *given)


def recorded_before_each_round(history: History, patch: pytest.MonkeyPatch, **options: Any) -> list[int]:
    """Train three rounds with a writer that is slow, and return which model was recorded when each began."""
    commit = Ledger.commit_round

    def commit_slowly(*given: Any, **named: Any) -> Any:
        threading.Event().wait(0.2)
        return commit(*given, **named)

    patch.setattr(Ledger, "commit_round", commit_slowly)
    engine = simulation(6, secret_noise=True)
    noting, until = Noting(history), options.pop("until", Rounds(3))
    Revocable(history, engine, noting, **options).train(until)
    return noting.recorded


def test_a_round_begins_before_the_last_one_is_recorded(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    assert recorded_before_each_round(history, monkeypatch) == [0, 0, 1]
    assert history.newest == ModelId(0, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"write_behind": False},
        {"watch": lambda *_: None},
        {"until": Accuracy(1.0, most=3)},
    ],
)
def test_where_a_model_is_looked_at_it_is_recorded_first(
    history: History, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    assert recorded_before_each_round(history, monkeypatch, **options) == [0, 1, 2]


def test_noised_rounds_and_solvers_are_recorded_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = list[bool]()
    record = Recorder.record

    def note(*given: Any, **options: Any) -> None:
        behind.append(options.get("behind", False))
        record(*given, **options)

    monkeypatch.setattr(Recorder, "record", note)
    noised = NoisedAverage(1.0, 4.0, 2.0)
    engine = simulation(6, public=noised.facts, public_schedule=True, secret_noise=True, equal_weights=True)
    with History(tmp_path / "noised") as history:
        Revocable(history, engine, noised).train(Rounds(2))
        assert isinstance(history.facts.public, DpFedAvg)
    with History(tmp_path / "solved") as history:
        solvable = Revocable(history, simulation(6, secret_noise=True))
        solvable.solve()
        history.requests.ask(["clinic-1"], BUDGET)
        solvable.forget(Solve(), Rounds(3))
    assert len(behind) > 4
    assert not any(behind)


def test_whoever_asks_in_its_first_round_ends_the_training_after_it(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late:
        """An engine whose last client takes part from the second round on."""

        def __init__(self, engine: Engine) -> None:
            self.engine = engine

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self.engine, attribute)

        def draw(self, model_id: ModelId, present: list[str]) -> list[str]:
            return [client for client in present if client != "clinic-5" or model_id.round > 1]

    commit = Ledger.commit_round

    def ask_first(ledger: Ledger, round_: Any, *given: Any, **options: Any) -> Any:
        if round_.model_id == ModelId(0, 2):
            history.requests.ask(["clinic-5"], BUDGET)
            asked.set()
            threading.Event().wait(0.2)
        return commit(ledger, round_, *given, **options)

    asked = threading.Event()
    monkeypatch.setattr(Ledger, "commit_round", ask_first)
    engine = Late(everybody(6))
    revocable = Revocable(history, engine)  # type: ignore[arg-type]
    # Otherwise the next round may have begun before anybody asked.
    slow = replace(revocable, after_round=lambda model_id: asked.wait(30) if model_id.round == 2 else None)
    assert slow.train(Rounds(5)) == ModelId(0, 2)


def test_in_memory_nothing_is_written_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with History.in_memory() as history:
        assert recorded_before_each_round(history, monkeypatch) == [0, 1, 2]
