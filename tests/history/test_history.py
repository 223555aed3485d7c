"""The history as its users meet it, on every place it can live in."""

from __future__ import annotations

import secrets
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rescind.core.aggregation import RoundMeasurement
from rescind.core.calibration import Budget
from rescind.core.edges import ROOT, AbsentRound, ModelId, NoiseEdge, RoundEdge, RoundKind
from rescind.core.facts import Mode, PrivacyScope
from rescind.core.rounds import Replies, RoundResult
from rescind.core.sensitivity import client_sensitivities, group_sensitivity
from rescind.core.summary import Request
from rescind.errors import (
    HistoryError,
    IncompleteHistoryError,
    LockedError,
    NoHistoryError,
    RunMismatchError,
    UnknownClientError,
    UnsafePermissionsError,
)
from rescind.history.erasure import Eraser
from rescind.history.history import History
from rescind.history.outcomes import find_obligations
from rescind.history.run import Goal
from rescind.history.timeline import Timeline
from rescind.ledger.contract import Ledger
from rescind.ledger.memory import MemoryLedger
from rescind.ledger.records import Entry
from rescind.ledger.sql import SqlLedger
from tests.builders import FACTS, START, entries_of, federation, name, restarted, run_sql, train

BUDGET = Budget(5.0, 1e-3)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
Opened = Callable[[], History]


@pytest.fixture(params=["memory", "folder", "postgresql"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Return a function that opens the same history again."""
    in_memory = History.in_memory()
    run = f"history_{secrets.token_hex(8)}"
    with ExitStack() as opened:

        def reopen() -> History:
            if request.param == "memory":
                return in_memory
            if request.param == "folder":
                return opened.enter_context(History(tmp_path / "history"))
            address = request.getfixturevalue("postgresql")
            return opened.enter_context(
                History(address, checkpoints=str(tmp_path / "models"), run=run, secret=tmp_path / "secret")
            )

        yield reopen


def test_rounds_are_found_again_and_training_goes_on(reopened: Opened) -> None:
    clients = federation(1, rate=0.6)
    with reopened().recording(FACTS, START) as recorder:
        train(recorder, clients, 4, range(6))
        last, head = recorder.model(), recorder.head
    again = reopened()
    assert again.newest == ModelId(0, 4)
    assert again.head == head
    assert again.integrity.verify([head]) == []
    with again.recording(FACTS, START) as recorder:
        assert recorder.model_id == ModelId(0, 4)
        np.testing.assert_array_equal(recorder.model()["theta"], last["theta"])
        train(recorder, clients, 2, range(6))
    assert again.newest == ModelId(0, 6)
    assert again.integrity.verify([head]) == []


def test_the_path_is_what_was_trained(reopened: Opened) -> None:
    """Whole rounds give the recorded numbers; rounds that the group did not join give the same bound in short."""
    clients, history = federation(2, rate=0.4), reopened()
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 8, range(6))
    known = history.participants.all()
    theta = clients.start
    whole = history.lineage()
    assert whole.model_ids == tuple(ModelId(0, at) for at in range(9))
    for key, edge in enumerate(whole.edges, start=1):
        drawn = clients.sampling.draw(clients.seed, key, range(6), 6)
        theta, expected = clients.train_round(theta, key, drawn)
        assert isinstance(edge, RoundEdge)
        order = np.argsort([known[name(client)] for client in drawn])
        np.testing.assert_array_equal(edge.distances, expected.distances[order])
        np.testing.assert_array_equal(edge.weights, expected.weights[order])
        assert (edge.update_norm, edge.rounding, edge.factor) == (
            expected.update_norm,
            expected.rounding,
            expected.factor,
        )
        if len(drawn):
            assert expected.gram is not None
            np.testing.assert_array_equal(edge.gram, expected.gram[np.ix_(order, order)])
    for group in ([1], [2, 5]):
        short = history.lineage(group=group)
        assert any(isinstance(edge, AbsentRound) for edge in short.edges)
        assert group_sensitivity(short.edges, group) == pytest.approx(
            group_sensitivity(whole.edges, group), rel=1e-15
        )


def test_recording_gives_each_participants_bound(reopened: Opened) -> None:
    clients, history = federation(3), reopened()
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 3, range(6))
        theta, edge = clients.train_round(recorder.model()["theta"], 4, [5, 0, 3])
        names = tuple(name(client) for client in (5, 0, 3))
        weights = np.array([float(clients.objectives[client].examples) for client in (5, 0, 3)])
        measured = RoundMeasurement(edge.distances, edge.update_norm, edge.gram)
        replies = Replies(names, weights, (3,) * 3, {}, batch=0)
        recorder.record(RoundResult(replies, {"theta": theta}, measured, edge.rounding))
        psi = recorder.sensitivities(names)
    numbers = [history.participants.all()[each] for each in names]
    expected = client_sensitivities(history.lineage().edges, numbers, [4])[0]
    np.testing.assert_allclose(psi, expected, rtol=1e-12)


def test_a_plan_can_be_made_carried_out_and_followed_by_another(reopened: Opened) -> None:
    clients, history = federation(1), reopened()
    with history.recording(FACTS, START, goal=None) as recorder:
        train(recorder, clients, 6, range(6))
    first, second = ({history.participants.all()[name(client)]} for client in (0, 4))
    model_id = ModelId(0, 3)
    branch = restarted(history, [name(0)], model_id)
    with history.recording(FACTS, START) as recorder:
        assert recorder.model_id == ModelId(branch, 0)
        train(recorder, clients, 4, range(1, 6))
    path = history.lineage()
    assert [type(edge) for edge in path.edges] == [RoundEdge] * 3 + [NoiseEdge] + [RoundEdge] * 4
    assert path.trained == (0, 1, 2, 3, 3, 4, 5, 6, 7)
    assert path.behind_noise == {1: 4}
    view = history.summary(second)
    (owed,) = view.owed
    assert (view.protected_from(owed), owed.mode, owed.request.group) == (4, Mode.INSTANCE, first)
    # Back to before the noise: the first client has to be hidden again.
    branch = restarted(history, [name(4)], ModelId(0, 2))
    one, two = find_obligations(history.timeline)
    assert one.branch == two.branch == branch
    assert one.spent == (one.request.mu,) * 2
    view = history.summary({*second, 3})
    assert list(map(view.protected_from, view.owed)) == [3, 3]
    # Back to the start: nobody needs noise any more.
    third = restarted(history, [name(5)], ROOT)
    assert [(each.mode, each.branch) for each in find_obligations(history.timeline)] == [(Mode.EXACT, None)] * 3
    assert history.newest == ModelId(third, 0)
    assert history.integrity.verify() == []


def test_withdrawn_and_open_requests(reopened: Opened) -> None:
    history = reopened()
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 1, range(6))
    request = Request(history.participants.find([name(1)]), BUDGET, PrivacyScope.SEQUENCE)
    first = history.requests.file(request, NOON + timedelta(days=30))
    with pytest.raises(ValueError, match="request 1 is about some of these clients already"):
        history.requests.file(request, NOON + timedelta(days=30))
    history.requests.withdraw(first)
    second = history.requests.file(request, NOON + timedelta(days=30))
    one, two = reopened().timeline.requests
    assert (one.number, one.open, one.withdrawn) == (first, False, True)
    assert (two.number, two.open, two.request, two.deadline) == (second, True, request, "2026-12-01T12:00:00+00:00")
    for number in (first, 99):
        with pytest.raises(ValueError, match=f"no open request {number}"):
            history.requests.withdraw(number)


def test_a_request_can_arrive_while_training_runs(reopened: Opened) -> None:
    history, beside = reopened(), reopened()
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 2, range(6))
        request = Request(beside.participants.find([name(1)]), BUDGET)
        beside.requests.file(request, NOON)
        train(recorder, clients, 2, range(6))
    assert [entry.kind for entry in entries_of(beside)][-3:] == ["request", "round", "round"]
    assert beside.integrity.verify() == []


def test_a_second_writer_is_refused(reopened: Opened) -> None:
    first, second = reopened().recording(FACTS, START), reopened().recording(FACTS, START)
    with first, pytest.raises(LockedError, match="is being written by"), second:
        pass


def test_another_training_does_not_go_on_here(reopened: Opened) -> None:
    with reopened().recording(FACTS, START):
        pass
    other = reopened().recording(FACTS, START, capacity=3, goal=Goal(BUDGET, 0.5))
    with pytest.raises(RunMismatchError, match="recorded with capacity 32, not 3 and goal None"), other:
        pass
    different = r"other tensors \('theta' is float64 \(13,\), and was float64 \(12,\)\)"
    with pytest.raises(RunMismatchError, match=different), reopened().recording(FACTS, {"theta": np.zeros(13)}):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a", "a"]}, "'a' is named twice"),
        ({"names": ["a", ""]}, "not a valid name for a client"),
        ({"weights": np.array([1.0, np.nan])}, "finite"),
        ({"weights": np.array([1.0, 0.0])}, "above 0"),
        ({"distances": np.array([1.0, -1.0])}, "at least 0"),
        ({"steps": (1, 2, 3)}, "2 participants need as many steps, not 3"),
        ({"steps": (0, 0)}, "participants make local steps"),
        ({"kind": RoundKind.STEP}, "those who answer a solver make none"),
        ({"model": {"theta": np.full(12, np.inf)}}, "not finite"),
        ({"model": {"theta": np.zeros(11)}}, "the run was started with"),
        ({"model": {"theta": np.zeros(12, dtype=np.float32)}}, "the run was started with"),
        ({"model": {"other": np.zeros(12)}}, "the run was started with"),
        ({"rounding": -1.0}, "rounding"),
        ({"kind": RoundKind.SOLVED, "steps": (0, 0), "rounding": 1e100}, "bounded by less than 1e[+]100"),
        ({"kind": RoundKind.STEP, "steps": (0, 0), "rounding": 1.0}, "a solver's step by nothing"),
    ],
)
def test_a_round_that_makes_no_sense_is_not_recorded(change: dict[str, object], message: str) -> None:
    history = History.in_memory()
    given: dict[str, Any] = {
        "names": ("a", "b"),
        "weights": np.ones(2),
        "steps": (1, 1),
        "rounding": 0.0,
        "model": START,
        "distances": np.ones(2),
        "kind": RoundKind.TRAINED,
    } | change
    replies = Replies(given["names"], given["weights"], given["steps"], {}, batch=0)
    measured = RoundMeasurement(given["distances"], 1.0, None)
    with history.recording(FACTS, START) as recorder, pytest.raises(ValueError, match=message):
        recorder.record(RoundResult(replies, given["model"], measured, given["rounding"], given["kind"]))
    assert history.newest == ROOT
    assert history.integrity.verify() == []
    with history.recording(FACTS, START) as recorder:
        assert recorder.model_id == ROOT
    assert history.models.digests() == set(history.kept().values())


def test_a_folder_is_private_and_only_ever_a_history(tmp_path: Path) -> None:
    History(tmp_path / "new" / "history").close()
    for path in [tmp_path / "new" / "history", *(tmp_path / "new" / "history").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(NoHistoryError, match="no history in"):
        History(tmp_path / "typo", create=False)
    assert not (tmp_path / "typo").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").touch()
    with pytest.raises(NoHistoryError, match="other files"):
        History(tmp_path / "other")
    with pytest.raises(NoHistoryError, match="is a file"):
        History(tmp_path / "other" / "thesis.tex")
    (tmp_path / "half" / "checkpoints").mkdir(parents=True)
    with pytest.raises(IncompleteHistoryError, match="restore the whole folder"):
        History(tmp_path / "half")
    (tmp_path / "new" / "history").chmod(0o755)
    with pytest.raises(UnsafePermissionsError, match="chmod 700"):
        History(tmp_path / "new" / "history")
    with pytest.raises(HistoryError, match="neither a folder nor a PostgreSQL address"):
        History("mysql://db/federation")
    with pytest.raises(HistoryError, match="needs a place for its models"):
        History("postgresql://db/federation")


def test_a_history_on_windows_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(HistoryError, match="needs Linux or another POSIX system: on Windows work inside WSL"):
        History(tmp_path / "history")
    assert not any(tmp_path.iterdir())


def test_names_that_never_took_part_are_told(reopened: Opened) -> None:
    history = reopened()
    with pytest.raises(NoHistoryError, match="nothing has been recorded here yet"):
        _ = history.run
    with pytest.raises(UnknownClientError, match="'hospital-9'"):
        history.participants.find(["hospital-9"])


def test_what_was_known_at_a_head_is_found_by_looking_for_the_head_once(
    reopened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reopened().recording(FACTS, START) as recorder:
        train(recorder, federation(1), 2, range(6))
        head = recorder.head
        train(recorder, federation(1), 3, range(6))
    history = reopened()
    with pytest.raises(ValueError, match="is not in the chain"):
        history.newest_at(bytes(32))
    whole = 0
    for kind in (MemoryLedger, SqlLedger):

        def entries(ledger: Ledger, *kinds: str, after: int = 0, read: Any = kind.entries) -> Iterator[Entry]:
            nonlocal whole
            whole += not kinds and not after
            return read(ledger, *kinds, after=after)

        monkeypatch.setattr(kind, "entries", entries)
    assert history.newest_at(head) == ModelId(0, 2)
    assert history.timeline_at(head).branches.keys() == {0}
    assert history.newest_at(head) == ModelId(0, 2)
    assert whole == 1


def test_tampering_is_seen(tmp_path: Path) -> None:
    """Each number of a round, the journal, the kept models, and a chain cut short where somebody witnessed it."""
    clients = federation(1)
    with History(tmp_path / "history") as history:
        with history.recording(FACTS, START) as recorder:
            train(recorder, clients, 3, range(6))
        head = history.head
        kept = history.kept()
    changes = {
        "update round set update_norm = 0 where round = 2": "numbers of model 0.2",
        "update round set rounding = rounding + 1 where round = 2": "numbers of model 0.2",
        "update round set factor = 0.5 where round = 3": "numbers of model 0.3",
        "update round set gram = null where round = 1": "numbers of model 0.1",
        "update round set participants = substr(participants, 29) where round = 1": "model 0.1 cannot be read",
        "delete from round where round = 3": "has lost its numbers",
        "update client set key = zeroblob(32) where pseudonym = 2": "numbers of model 0.1",
        "delete from client where pseudonym = 2": "key is gone",
        "update journal set time = '2020' where sequence = 3": "entry 3 does not follow",
        'update journal set body = \'{"branch":0,"round":9}\' where sequence = 4': "entry 4 does not follow",
        "delete from journal where sequence = 4": "entry 5 does not follow",
        "delete from journal where sequence = 6": "witnessed head",
        "update identity set name = 'nobody' where pseudonym = 2": "names of clients 1 to 6",
        "update kept set model = zeroblob(32) where round = 2": "kept as another model",
    }
    for statement, expected in changes.items():
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "history", copy)
        run_sql(copy, statement)
        with History(copy) as tampered:
            assert any(expected in problem for problem in tampered.integrity.verify([head])), statement
        shutil.rmtree(copy)
    next((tmp_path / "history" / "checkpoints").glob(f"{kept[ModelId(0, 3)]}*")).unlink()
    with History(tmp_path / "history") as history:
        assert history.integrity.verify([head]) == ["the checkpoint of model 0.3 is missing"]


def test_a_restart_serves_an_open_request_that_was_planned(reopened: Opened) -> None:
    history, clients = reopened(), federation(1)
    with pytest.raises(NoHistoryError):
        history.summary([1])
    with history.recording(FACTS, START) as recorder:
        with pytest.raises(ValueError, match="nothing to plan"):
            history.summary([])
        train(recorder, clients, 2, range(6))
        number = history.requests.file(Request(history.participants.find([name(1)]), BUDGET), NOON)
        for request, parent, message in (
            ((number,), ROOT, "no plan"),
            ((99,), ROOT, "no open request 99"),
            ((), ModelId(0, 9), "not kept"),
        ):
            with pytest.raises(ValueError, match=message):
                recorder.restart(parent, START, requests=request)
    assert history.newest == ModelId(0, 2)


def test_what_is_different_is_named_down_to_the_field(reopened: Opened) -> None:
    with reopened().recording(FACTS, START):
        pass
    faster = replace(FACTS, training=replace(FACTS.training, learning_rate=0.25))
    with (
        pytest.raises(RunMismatchError, match=r"facts\.training\.learning_rate 0\.5, not 0\.25"),
        reopened().recording(faster, START),
    ):
        pass


def test_a_history_is_verified_while_a_fast_writer_works(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history, history.recording(FACTS, START, capacity=3) as recorder:
        train(recorder, federation(1), 4, range(6))
        stop, looks = threading.Event(), list[list[str]]()

        def look() -> None:
            while not stop.is_set():
                with History(tmp_path / "history", create=False) as other:
                    looks.append(other.integrity.verify())

        thread = threading.Thread(target=look)
        thread.start()
        while len(looks) < 5:
            train(recorder, federation(1), 1, range(6))
        stop.set()
        thread.join()
    assert looks == [[]] * len(looks)


def test_two_threads_that_read_a_timeline_at_once_read_no_event_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second request that is none would be served once more."""
    with History(tmp_path / "history") as history:
        with history.recording(FACTS, START) as recorder:
            train(recorder, federation(1), 1, range(6))
        assert history.timeline.requests == ()
        history.requests.file(Request(history.participants.find([name(1)]), BUDGET), NOON)
        read, other = SqlLedger.entries, list[Timeline]()

        def entries(ledger: SqlLedger, *kinds: str, after: int = 0) -> list[Entry]:
            found = list(read(ledger, *kinds, after=after))
            monkeypatch.setattr(SqlLedger, "entries", read)
            # The other thread reads after this one has, and before this one has used what it read.
            other.append(history.timeline)
            return found

        monkeypatch.setattr(SqlLedger, "entries", entries)
        assert len(history.timeline.requests) == len(other[0].requests) == len(history.timeline.requests) == 1


def test_a_run_that_stopped_before_its_first_model_is_no_broken_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(_: Eraser) -> None:
        raise OSError("no room")

    with History(tmp_path / "history") as history:
        monkeypatch.setattr(Eraser, "sweep", stop)
        with pytest.raises(OSError, match="no room"), history.recording(FACTS, {"weight": np.zeros(2)}):
            pass
        assert history.integrity.entry_times()
        assert history.integrity.verify() == []
