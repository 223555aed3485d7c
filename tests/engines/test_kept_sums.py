"""Sums that are kept: whoever leaves is forgotten from those of the others, and nobody is asked."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import rescind.flower
from rescind import History, LocalTraining, Revocable, Solve, SquaredL2
from rescind.certificates.envelope import sign
from rescind.certificates.errors import HistoryMismatchError
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.cli import app as commands
from rescind.core.arrays import fill_symmetric
from rescind.core.facts import Mode, PrivacyScope
from rescind.core.ridge import fixed_point_bits, ridge_error, ridge_solution
from rescind.core.solver import Solving
from rescind.engines import solving
from rescind.engines.heads import clip_rows, sum_ridge
from rescind.engines.stops import Rounds
from rescind.errors import AskedClientError, BrokenHistoryError, HistoryError
from rescind.flower.server import nodes
from rescind.history.recorder import Recorder
from rescind.history.sums import KeptSums
from rescind.ledger.records import ErasureLevel
from rescind.serving import StopServing
from rescind.simulation import Federation, Simulation, SoftmaxHead
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, federation
from rescind.unattended import forget_unattended
from tests.builders import KEY, SIGNER, objects_of
from tests.kept import BUDGET, CLINICS, EVERYBODY, LOSS, TRAINING, Clinics, in_model, model_of, newest, without


@pytest.fixture
def history(tmp_path: Path) -> Any:
    with History(tmp_path / "history") as opened:
        yield opened


def test_nobody_is_asked_and_nobody_has_to_be_there(history: History) -> None:
    clinics = Clinics()
    assert clinics.start(history, *EVERYBODY) == sorted(EVERYBODY)
    gone: list[str] = []
    for number, leaving in enumerate((["clinic-2"], ["clinic-0", "clinic-5"]), 1):
        history.requests.ask(leaving, BUDGET)
        gone += leaving
        # One who stays is there, the others are not.
        assert clinics.start(history, "clinic-1") == []
        outcome = history.outcomes()[number - 1]
        assert (outcome.mode, outcome.rounds) == (Mode.EXACT, 1)
        assert newest(history) == model_of(*without(*gone))
        assert in_model(history) == set(without(*gone))
    assert history.integrity.verify() == []
    assert len(objects_of(history)) == len(history.objects.digests()) == 3


def test_two_requests_at_once_are_two_restarts(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    for name in ("clinic-4", "clinic-3"):
        history.requests.ask([name], BUDGET)
    assert clinics.start(history, "clinic-0") == []
    assert newest(history) == model_of(*without("clinic-3", "clinic-4"))


def test_who_joins_is_asked_alone_and_the_model_is_as_if_it_had_always_been_there(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, *without("clinic-5"))
    assert clinics.start(history, *EVERYBODY) == ["clinic-5"]
    assert str(history.newest) == "model 0.2"
    assert newest(history) == model_of(*EVERYBODY)
    # What is kept outlives whoever was in the model then: nobody is shown that model.
    assert clinics.shown == {0.0}
    # Again nobody is missing, so nothing happens.
    assert (clinics.start(history, *EVERYBODY), str(history.newest)) == ([], "model 0.2")
    # After a forgetting, too.
    history.requests.ask(["clinic-5"], BUDGET)
    clinics.start(history, "clinic-1")
    assert newest(history) == model_of(*without("clinic-5"))
    history.participants.readmit("clinic-5", "a new contract")
    assert clinics.start(history, "clinic-5") == ["clinic-5"]
    assert newest(history) == model_of(*EVERYBODY)


def test_a_client_with_other_rows_sends_its_sums_again(history: History) -> None:
    clinics = Clinics()
    clinics.rows = {"clinic-1": 11}
    clinics.start(history, *EVERYBODY)
    clinics.rows = {}
    before = history.objects.digests()
    assert clinics.start(history, *EVERYBODY) == []
    history.sums.ask_again(history.participants.find(["clinic-1"]))
    assert newest(history) == model_of(*EVERYBODY, rows={"clinic-1": 11})
    # As long as it is not there the old ones stay in use.
    assert clinics.start(history, *without("clinic-1")) == []
    assert clinics.start(history, *EVERYBODY) == ["clinic-1"]
    assert newest(history) == model_of(*EVERYBODY)
    after = history.objects.digests()
    assert (len(after), len(before - after)) == (6, 1)
    assert clinics.start(history, *EVERYBODY) == []
    with pytest.raises(ValueError, match="no sums that are kept"):
        history.sums.ask_again([77])
    assert history.integrity.verify() == []


def test_rows_of_a_client_go_and_it_alone_is_asked(history: History, tmp_path: Path) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    old = set(history.objects.digests())
    history.requests.ask(["clinic-3"], BUDGET, scope=PrivacyScope.RECORDS)
    clinics.removed = {"clinic-3": [0]}
    assert clinics.start(history, "clinic-3", "clinic-1") == ["clinic-3"]
    assert (history.outcomes()[0].mode, str(history.newest)) == (Mode.EXACT, "model 1.2")
    assert in_model(history) == set(EVERYBODY)
    left, fewer = CLINICS["clinic-3"], Clinics()
    assert newest(history) != model_of(*EVERYBODY)
    # What was sent with the row is gone.
    assert len(old - history.objects.digests()) == 1
    with History.in_memory() as never:
        CLINICS["clinic-3"] = type(left)(left.features[1:], left.labels[1:])
        try:
            fewer.start(never, *EVERYBODY)
        finally:
            CLINICS["clinic-3"] = left
        assert newest(history) == newest(never)


def test_without_kept_sums_nobody_s_lie_at_the_server(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY, keep_sums=False)
    assert not objects_of(history)
    assert not history.objects.digests()
    history.requests.ask(["clinic-3"], BUDGET)
    with pytest.raises(AskedClientError, match="no sums of clients are kept"):
        forget_unattended(history)
    assert clinics.start(history, *without("clinic-3"), keep_sums=False) == sorted(without("clinic-3"))


def test_a_crash_between_sums_and_round_loses_neither(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    clinics = Clinics()

    def die(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "record", die)
        with pytest.raises(MemoryError):
            clinics.start(history, *without("clinic-0"))
    assert str(history.newest) == "model 0.0"
    # Whoever comes later is asked; the others are known.
    assert clinics.start(history, "clinic-0") == ["clinic-0"]
    assert newest(history) == model_of(*EVERYBODY)
    with monkeypatch.context() as patch:
        patch.setattr(KeptSums, "read", die)
        history.requests.ask(["clinic-4"], BUDGET)
        with pytest.raises(MemoryError):
            clinics.start(history, "clinic-1")
    assert clinics.start(history, "clinic-1") == []
    assert newest(history) == model_of(*without("clinic-4"))
    assert history.integrity.verify() == []


def test_a_crash_before_the_sums_are_recorded_leaves_no_file(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinics = Clinics()

    def die(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "keep_sums", die)
        with pytest.raises(MemoryError):
            clinics.start(history, *EVERYBODY)
    assert len(history.objects.digests()) == 6
    clinics.start(history, *without("clinic-0"))
    assert len(history.objects.digests()) == 5


def test_the_same_sums_of_two_clients_are_one_file_that_outlives_one_of_them(history: History) -> None:
    clinics, own = Clinics(), CLINICS["clinic-1"]
    CLINICS["clinic-1"] = CLINICS["clinic-0"]
    try:
        clinics.start(history, *EVERYBODY)
    finally:
        CLINICS["clinic-1"] = own
    assert len(history.objects.digests()) == 5
    history.requests.ask(["clinic-0"], BUDGET)
    clinics.start(history, "clinic-2")
    assert len(history.objects.digests()) == 5
    history.requests.ask(["clinic-1"], BUDGET)
    clinics.start(history, "clinic-2")
    assert len(history.objects.digests()) == 4
    assert newest(history) == model_of(*without("clinic-0", "clinic-1"))


def test_sums_that_cannot_be_read_are_said_to_be_whose(history: History, tmp_path: Path) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    (client,) = history.participants.find(["clinic-2"])
    kept = objects_of(history)[client]
    file = tmp_path / "history" / "objects" / f"{kept}.safetensors"
    content = file.read_bytes()
    history.requests.ask(["clinic-0"], BUDGET)
    for damaged in (content[:-8] + bytes(8), None):
        file.unlink()
        if damaged is not None:
            file.write_bytes(damaged)
            file.chmod(0o600)
        with pytest.raises(HistoryError, match="sums of 'clinic-2' cannot be read"):
            clinics.start(history, "clinic-1")
        (problem,) = history.integrity.verify()
        assert problem.startswith(f"the object of client {client}")
        file.write_bytes(content)
        file.chmod(0o600)
    file.unlink()
    history.sums.ask_again(history.participants.find(["clinic-2"]))
    forget_unattended(history)
    assert newest(history) == model_of(*without("clinic-0", "clinic-2"))
    assert clinics.start(history, "clinic-2") == ["clinic-2"]
    assert newest(history) == model_of(*without("clinic-0"))


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        (
            "UPDATE client_object SET digest = (SELECT digest FROM client_object WHERE client = 5) WHERE client = 2",
            "the sums of client 2 are not those that it sent",
        ),
        ("DELETE FROM client_object WHERE client = 2", "the sums of client 2 are gone, and no erasure says so"),
    ],
)
def test_sums_that_somebody_changed_are_not_used(
    history: History, tmp_path: Path, statement: str, problem: str
) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    with closing(sqlite3.connect(tmp_path / "history" / "ledger.sqlite")) as database, database:
        database.execute(statement)
    assert problem in history.integrity.verify()
    for name in ("clinic-0", None):
        if name:
            history.requests.ask([name], BUDGET)
        with pytest.raises(BrokenHistoryError, match=problem):
            clinics.start(history, *without("clinic-1"))


def test_the_command_forgets_with_nobody_there(history: History, tmp_path: Path) -> None:
    clinics, file = Clinics(), tmp_path / "model.safetensors"
    clinics.start(history, *EVERYBODY, save_to=file)
    place = str(tmp_path / "history")
    history.close()
    done = CliRunner().invoke(commands, ["request", "add", place, "clinic-4"])
    assert f"Or forget now, with no client there: rescind request forget {place}" in done.stdout.splitlines()
    done = CliRunner().invoke(commands, ["request", "add", place, "clinic-3", "--records"])
    assert "rescind request forget" not in done.stdout
    done = CliRunner().invoke(commands, ["request", "forget", place, "--save-to", str(file), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    # Whose rows are to go was left out when the other one left; its sums are gone, and it sends new ones.
    assert [(row["request"], row["mode"]) for row in told["served"]] == [(1, "exact"), (2, "exact")]
    assert (told["waiting"], told["missing"]) == ([], ["clinic-3"])
    assert file.exists()
    with History(place) as again:
        assert newest(again) == model_of(*without("clinic-3", "clinic-4"))
        clinics.removed, clinics.request = {"clinic-3": [0]}, 2
        assert clinics.start(again, "clinic-3", save_to=file) == ["clinic-3"]
        assert in_model(again) == set(without("clinic-4"))
        assert again.integrity.verify() == []
    done = CliRunner().invoke(commands, ["request", "forget", place])
    assert "No request is open." in done.stdout
    done = CliRunner().invoke(commands, ["renew", place, "clinic-1"])
    assert "will be asked in the federation's next run" in done.stdout
    with History(place) as again:
        assert clinics.start(again, *without("clinic-4")) == ["clinic-1"]


def test_what_the_command_prints_can_be_pasted(history: History, tmp_path: Path) -> None:
    file, place = tmp_path / "model.safetensors", str(tmp_path / "history")
    Clinics().start(history, *EVERYBODY)
    history.close()
    for client in ("clinic-4", "clinic-3"):
        CliRunner().invoke(commands, ["request", "add", place, client])
    done = CliRunner().invoke(commands, ["request", "forget", place, "--save-to", str(file)])
    with History(place) as again:
        assert f"Model {again.newest.name} is in {file}." in done.stdout.splitlines()
    for number in (1, 2):
        command = f"rescind certify {place} {number} --key operator.key -o certificate-{number}.json"
        assert f"Certify with: {command}" in done.stdout.splitlines()


def test_rows_alone_wait_for_their_client(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    history.requests.ask(["clinic-3"], BUDGET, scope=PrivacyScope.RECORDS)
    served, waiting = forget_unattended(history)
    assert not served
    assert "has to send its sums anew" in waiting[1]
    assert in_model(history) == set(EVERYBODY)


def test_the_command_needs_somebody_whose_sums_are_kept(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, "clinic-0")
    history.requests.ask(["clinic-0"], BUDGET)
    served, waiting = forget_unattended(history)
    assert (served, list(waiting)) == ([], [1])
    assert "nobody else's sums are there" in waiting[1]


def test_the_command_waits_for_approval(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    history.requests.ask(["clinic-0"], BUDGET)
    served, waiting = forget_unattended(history, approval=True)
    assert (served, waiting) == ([], {1: "somebody has to agree to its plan"})
    history.requests.approve(1, "A. Officer")
    assert len(forget_unattended(history, approval=True)[0]) == 1


def test_the_command_says_that_it_takes_the_model_away(tmp_path: Path) -> None:
    place, file, clinics = tmp_path / "history", tmp_path / "model.safetensors", Clinics()
    with History(place) as history:
        clinics.start(history, *EVERYBODY, save_to=file)
        history.requests.ask(["clinic-0"], BUDGET)
    command = ["request", "forget", str(place), "--save-to", str(file)]
    waits = CliRunner().invoke(commands, [*command, "--approval"])
    assert "model.safetensors is taken away, as it may know who waits" in waits.output
    assert not file.exists()
    assert "taken away" not in CliRunner().invoke(commands, command).output
    assert file.exists()


def test_what_was_cut_off_in_a_run_the_command_finishes(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    history.requests.ask(["clinic-0"], BUDGET)

    def die(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "record", die)
        with pytest.raises(MemoryError):
            clinics.start(history, "clinic-1")
    served, waiting = forget_unattended(history)
    assert (len(served), waiting) == (1, {})
    assert newest(history) == model_of(*without("clinic-0"))


def test_a_run_that_does_not_end_asks_who_comes_and_nobody_twice(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clinics, turns = Clinics(), iter(range(6))
    # One has too few rows to tell sums over them, however often it is asked.
    clinics.rows = {"clinic-0": 3}

    def rule(*_: object) -> bool:
        turn = next(turns)
        if turn == 2:
            history.requests.ask(["clinic-1"], BUDGET)
        if turn == 5:
            raise rescind.flower.StopServing
        return True

    # One was asked in vain: neither that somebody left nor that somebody came is a reason to ask it again.
    assert clinics.start(history, *EVERYBODY, serve=rule) == sorted(EVERYBODY)
    assert in_model(history) == set(without("clinic-0", "clinic-1"))


def test_in_the_simulator(tmp_path: Path) -> None:
    small = federation(6)

    def engine(*gone: str) -> Simulation:
        left = {name: shard for name, shard in small.shards.items() if name not in gone}
        here = Federation(left, small.test, CLASSES)
        return Simulation(here, SoftmaxHead(FEATURES, CLASSES), TRAINING, secret=b"for tests")

    with History(tmp_path / "simulated") as history:
        Revocable(history, engine()).solve()
        history.requests.ask(["clinic-2"], BUDGET)
        # Only one of the others is left.
        alone = engine(*without("clinic-1"))
        Revocable(history, alone).forget(Solve(Solving()), Rounds(1), level=ErasureLevel.PURGE)
        with History.in_memory() as never:
            Revocable(never, engine("clinic-2")).solve()
            assert newest(history) == newest(never)


def test_what_sums_show_of_few_rows_is_said_at_the_client(history: History, caplog: pytest.LogCaptureFixture) -> None:
    """The line of a class with a single row is that row; and so is the difference of sums with and without it."""
    caplog.set_level(logging.WARNING)
    shard = CLINICS["clinic-0"]
    labels = np.zeros(len(shard.labels), dtype=np.int64)
    labels[3] = 1
    targets, bits = np.eye(2)[labels], fixed_point_bits(LOSS)
    sums, rest = sum_ridge(shard.features, targets, LOSS), np.arange(len(labels)) != 3
    fewer = sum_ridge(shard.features[rest], targets[rest], LOSS)
    row = np.append(clip_rows(shard.features[[3]].astype(np.float64), 1.0)[0], 1.0)
    np.testing.assert_allclose(sums.targets[1] / 4.0**bits, row, atol=1e-5)
    np.testing.assert_allclose((sums.matrix - fewer.matrix) / 4.0**bits, np.outer(row, row), atol=1e-5)
    Clinics().start(history, *EVERYBODY)
    assert "have fewer than 10 rows here" in caplog.text


# Recomputing


def certificate(history: History, number: int) -> bytes:
    return sign(build_statement(history, number), [SIGNER])


def told(history: History, content: bytes) -> tuple[str, str]:
    found = verify(content, [KEY], history=history)
    (holds,) = [line for line in found.holds if "kept sums" in line] or [""]
    (unchecked,) = [line for line in found.unchecked if "follows from the participants' sums" in line] or [""]
    return holds, unchecked


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_certificate_is_checked_by_solving_again(history: History, precision: str) -> None:
    clinics = Clinics()
    training = LocalTraining.solved(LOSS, precision)
    clinics.start(history, *EVERYBODY, training=training)
    history.requests.ask(["clinic-0"], BUDGET)
    clinics.start(history, "clinic-1", training=training)
    content = certificate(history, 1)
    holds, unchecked = told(history, content)
    assert "the kept sums of the 5 participants that its round names: solved once more here, bit by bit" in holds
    assert not unchecked
    predicate = verify(content, [KEY]).statement.predicate
    assert predicate.facts.keeps_sums
    assert any("keeps each one's sums" in line for line in predicate.not_claimed)
    # Somebody leaves: of the model before nobody can tell any more.
    history.requests.ask(["clinic-1"], BUDGET)
    forget_unattended(history)
    holds, unchecked = told(history, content)
    assert not holds
    assert "not kept" in unchecked or "were erased, or sent anew, since" in unchecked


def test_a_head_that_does_not_follow_from_the_sums_is_found(history: History) -> None:
    """Whoever holds the history and its secret records another head than the solver made."""
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    history.requests.ask(["clinic-0"], BUDGET)
    honest = solving.ridge_solution
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "ridge_solution", lambda sums, l2: honest(sums, l2) * (1 + 1e-9))
        forget_unattended(history)
    with pytest.raises(HistoryMismatchError, match="from the solution for the kept sums"):
        verify(certificate(history, 1), [KEY], history=history)


def test_sums_that_were_sent_anew_since_leave_nothing_to_compare(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, *EVERYBODY)
    history.requests.ask(["clinic-0"], BUDGET)
    clinics.start(history, "clinic-1")
    content = certificate(history, 1)
    clinics.rows = {"clinic-2": 11}
    history.sums.ask_again(history.participants.find(["clinic-2"]))
    clinics.start(history, "clinic-2")
    assert "the sums of 1 were erased, or sent anew, since" in told(history, content)[1]
    assert "5 participants" in told(history, certificate(history, 1))[0]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), l2=st.sampled_from([1e-6, 1e-3, 1.0]), apart=st.sampled_from([0.0, 1e-12, 1e-3]))
def test_the_error_is_at_least_the_distance_from_the_exact_solution(seed: int, l2: float, apart: float) -> None:
    """Against the system solved in fractions."""
    rng = np.random.default_rng(seed)
    loss = SquaredL2(l2, 1.0)
    sums = sum_ridge(rng.normal(size=(20, 2)), np.eye(2)[rng.integers(0, 2, 20)], loss)
    unit = Fraction(1, 4**sums.bits * sums.rows)
    matrix = [[Fraction(int(number)) * unit for number in row] for row in fill_symmetric(sums.features, 3)]
    for at in range(3):
        matrix[at][at] += Fraction(l2)
    theta = ridge_solution(sums, l2) + apart * rng.normal(size=6)
    squares = Fraction(0)
    for output in range(2):
        exact = solve_exactly(matrix, [Fraction(int(number)) * unit for number in sums.targets[output]])
        squares += sum((Fraction(float(theta[3 * output + at])) - exact[at]) ** 2 for at in range(3))
    assert float(squares) ** 0.5 <= ridge_error(sums, l2, theta)


def solve_exactly(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """Solve a system by elimination; its matrix is positive definite."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for at, pivot in enumerate(rows):
        pivot[:] = [number / pivot[at] for number in pivot]
        for other in rows:
            if other is not pivot:
                other[:] = [one - other[at] * two for one, two in zip(other, pivot, strict=True)]
    return [row[-1] for row in rows]


@pytest.mark.parametrize("records", [False, True])
def test_with_nobody_there_others_are_forgotten_while_a_request_waits_for_its_rows(
    history: History, records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_IDLE", 0.01)
    clinics, turns = Clinics(), 0
    clinics.start(history, *EVERYBODY)
    grid = InProcessGrid(clinics.app, {name: {"client-id": name} for name in EVERYBODY})

    def rule(*_: object) -> bool:
        nonlocal turns
        turns += 1
        if turns == 2:
            grid.gone = set(EVERYBODY)
            if records:
                history.requests.ask(["clinic-2"], BUDGET, scope=PrivacyScope.RECORDS)
            history.requests.ask(["clinic-1"], BUDGET)
        if turns > 4:
            raise StopServing
        return True

    clinics.run_on(history, grid, serve=rule)
    assert [outcome.mode for outcome in history.outcomes() if not outcome.asked.settled] == [Mode.EXACT]


def test_where_the_others_sums_cannot_be_read_a_client_is_forgotten_all_the_same(history: History) -> None:
    clinics = Clinics()
    clinics.start(history, "clinic-0", "clinic-1")
    objects, (client,) = objects_of(history), history.participants.find(["clinic-1"])
    history.objects.delete(objects[client])
    history.sums.ask_again([client])
    history.requests.ask(["clinic-0"], BUDGET)
    assert clinics.start(history, "clinic-2") == ["clinic-2"]
    assert in_model(history) == {"clinic-2"}
    assert [outcome.mode for outcome in history.outcomes()] == [Mode.EXACT]
