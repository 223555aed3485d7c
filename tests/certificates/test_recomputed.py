"""A server that writes false entries into an unbroken journal: with the history at hand its claims are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rescind import History
from rescind import forgetting as forgetting_module
from rescind.certificates import verification
from rescind.certificates.envelope import sign
from rescind.certificates.errors import HistoryMismatchError
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import VerifiedCertificate, verify
from rescind.checkpoints.tensors import digest
from rescind.core.calibration import Budget
from rescind.core.facts import Facts, Mode
from rescind.core.planning import Candidate
from rescind.core.sensitivity import first_joined, group_sensitivity
from rescind.core.summary import Request, Summary
from rescind.engines.stops import Rounds
from rescind.errors import BrokenHistoryError
from rescind.forgetting import Revocable
from rescind.history.erasure import Eraser
from rescind.history.events import BranchRetrained, ErasureFinished, RequestSettled
from rescind.history.participants import Participants
from rescind.history.recorder import Recorder
from rescind.history.timeline import Timeline
from rescind.ledger.records import ErasureLevel, ErasurePlan
from rescind.methods import Exact, Last, Method, Scratch
from rescind.simulation import Simulation
from rescind.views.models import find_known
from tests.builders import KEY, SIGNER, everybody, skip_checks


def engine(clients: int = 10) -> Simulation:
    return everybody(clients)


@pytest.fixture
def federation() -> Iterator[Revocable]:
    with History.in_memory() as history:
        made = Revocable(history, engine())
        made.train(Rounds(6))
        history.requests.ask(["clinic-1"], Budget(5.0, 1e-5))
        yield made


def forgotten(federation: Revocable, method: Method, level: ErasureLevel = ErasureLevel.OUTPUT) -> None:
    federation.forget(method, Rounds(2), level=level)


def audited(federation: Revocable, number: int = 1) -> VerifiedCertificate:
    history = federation.history
    return verify(sign(build_statement(history, number), [SIGNER]), [KEY], history=history)


@pytest.fixture
def obedient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the recorder write down whatever it is told."""
    skip_checks(monkeypatch)


def planned(monkeypatch: pytest.MonkeyPatch, **lies: Any) -> None:
    """Let plans say something else than was computed."""
    honest = forgetting_module.assess

    def assess(summary: Summary, *requests: Request, **chosen: Any) -> Candidate:
        if lies.get("mode") is Mode.EXACT:
            chosen |= {"node": summary.kept[0], "sigma": 0.0}
            return replace(honest(summary, *requests, **chosen), node=summary.kept[-1], **lies)
        return replace(honest(summary, *requests, **chosen), **lies)

    monkeypatch.setattr(forgetting_module, "assess", assess)


@pytest.mark.parametrize("method", [Scratch(), Last()])
@pytest.mark.parametrize("level", list(ErasureLevel))
def test_an_honest_server_is_believed(federation: Revocable, method: Method, level: ErasureLevel) -> None:
    forgotten(federation, method, level)
    audited(federation)


@pytest.mark.parametrize("level", list(ErasureLevel))
def test_who_came_after_the_noise_and_leaves_takes_nothing_from_who_left_before(
    federation: Revocable, level: ErasureLevel
) -> None:
    history = federation.history
    forgotten(federation, Last(), level)
    larger = Revocable(history, engine(12))
    larger.train(Rounds(history.newest.round + 3))
    number = history.requests.ask(["clinic-11"], Budget(5.0, 1e-5))
    forgotten(larger, Last(), level)
    assert [audited(larger, asked).statement.predicate.mode for asked in (1, number)] == ["instance", "instance"]
    assert find_known(history, history.newest) == ()
    # The path still names the first leaver, as infinitely far from its first round on.
    (gone,) = history.timeline.requests[0].request.group
    path = history.lineage()
    assert first_joined(path.edges, [gone]) == 0
    if level is ErasureLevel.PURGE:
        assert group_sensitivity(path.edges, [gone])[-1] == np.inf


def test_a_request_is_not_settled_while_the_model_knows_its_clients(federation: Revocable) -> None:
    history = federation.history
    (filed,) = history.timeline.requests
    history.journal.record(RequestSettled(filed.number))
    history.erase(history.plan_erasure(ErasureLevel.OUTPUT))
    with pytest.raises(HistoryMismatchError, match="never to have seen them"):
        audited(federation)


@pytest.mark.parametrize("level", list(ErasureLevel))
@pytest.mark.parametrize("sigma", [0.0, 2.0**-14])
@pytest.mark.usefixtures("obedient")
def test_going_on_from_a_model_that_knows_them_is_not_exact(
    federation: Revocable, level: ErasureLevel, sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, mode=Mode.EXACT, sigma=sigma)
    # With noise on it the restart says whom it hides, and nobody goes on from such a history.
    if sigma:
        with pytest.raises(BrokenHistoryError, match="hides somebody, and its plan says exact"):
            forgotten(federation, Exact(), level)
        return
    forgotten(federation, Exact(), level)
    with pytest.raises(HistoryMismatchError, match="never to have seen them"):
        audited(federation)


@pytest.mark.parametrize("method", [Scratch(), Last()])
def test_whoever_is_forgotten_does_not_come_back(
    federation: Revocable, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Participants, "remaining", lambda _, names: list(names))
    monkeypatch.setattr(Timeline, "forgotten", property(lambda _: frozenset()))
    forgotten(federation, method)
    with pytest.raises(HistoryMismatchError, match="after they had been forgotten"):
        audited(federation)


def test_noise_that_was_never_added_is_missed(federation: Revocable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        forgetting_module, "draw_noise", lambda model, *_, **__: {name: each.copy() for name, each in model.items()}
    )
    forgotten(federation, Last())
    with pytest.raises(HistoryMismatchError, match="without its noise"):
        audited(federation)


@pytest.mark.usefixtures("obedient")
def test_another_model_is_not_its_parents(federation: Revocable, monkeypatch: pytest.MonkeyPatch) -> None:
    restart = Recorder.restart

    def moved(recorder: Recorder, parent: Any, model: Any, **options: Any) -> Any:
        return restart(recorder, parent, {name: each + 1 for name, each in model.items()}, **options)

    monkeypatch.setattr(Recorder, "restart", moved)
    forgotten(federation, Scratch())
    with pytest.raises(HistoryMismatchError, match="another model than its parent's"):
        audited(federation)


def test_the_model_that_a_restart_led_to_is_the_recorded_one(
    federation: Revocable, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = digest(federation.history.model(federation.history.newest))

    def record_retrained(recorder: Recorder) -> None:
        event = BranchRetrained(recorder.model_id.branch, recorder.model_id.round, old)
        federation.history.journal.record(event)

    monkeypatch.setattr(Recorder, "record_retrained", record_retrained)
    forgotten(federation, Scratch())
    with pytest.raises(HistoryMismatchError, match="names another model"):
        audited(federation)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [({"redrawn_rounds": True}, "drawn again"), ({"independent_randomness": False}, "randomness depends")],
)
def test_facts_that_forbid_it_are_read(facts: dict[str, bool], reason: str) -> None:
    with History.in_memory() as history, pytest.MonkeyPatch.context() as patch:
        recorded = replace(engine().facts, **facts)
        patch.setattr(Simulation, "facts", recorded)
        patch.setattr(Facts, "obstacles", ())
        made = Revocable(history, engine())
        made.train(Rounds(6))
        history.requests.ask(["clinic-1"], Budget(5.0, 1e-5))
        forgotten(made, Last())
        patch.undo()
        with pytest.raises(HistoryMismatchError, match=reason):
            audited(made)


@pytest.mark.parametrize("level", list(ErasureLevel))
@pytest.mark.usefixtures("obedient")
def test_an_instance_is_not_called_strict(
    federation: Revocable, level: ErasureLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(monkeypatch, mode=Mode.STRICT)
    forgotten(federation, Last(), level)
    with pytest.raises(HistoryMismatchError, match="nothing strict"):
        audited(federation)


def test_an_annex_that_cannot_be_made_is_no_crash(federation: Revocable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("no public constants")

    forgotten(federation, Last())
    monkeypatch.setattr(verification, "annex_of", refuse)
    with pytest.raises(HistoryMismatchError, match="no public constants"):
        audited(federation)


@pytest.mark.parametrize("level", list(ErasureLevel))
def test_an_erasure_that_was_not_carried_out_is_found(
    federation: Revocable, level: ErasureLevel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def erase(_: Eraser, plan: ErasurePlan) -> tuple[str, ...]:
        begun = federation.history.journal.record(plan)
        federation.history.journal.record(ErasureFinished(begun.sequence, 0, "", (), ""))
        return ()

    monkeypatch.setattr(Eraser, "erase", erase)
    forgotten(federation, Scratch(), level)
    with pytest.raises(HistoryMismatchError, match="still there: rounds, kept models, names"):
        audited(federation)
