"""The flow, step by step: what is recorded, what is refused, what goes on after it was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.simulated import simulation
from rescind import History
from rescind.core.calibration import Budget
from rescind.core.edges import Noise, Shrinkage, Unbounded
from rescind.core.facts import Mode, Scope
from rescind.core.noise import pulled
from rescind.core.recovery import shrinkage
from rescind.core.sensitivity import group_sensitivity
from rescind.engines.server import noise
from rescind.engines.stops import Accuracy, NotBefore, Rounds
from rescind.forgetting import Revocable, outcomes
from rescind.history.errors import ForgottenClient, StalePlan
from rescind.history.path import branches
from rescind.history.records import ROOT, Level, Place
from rescind.history.requests import asked_for, plans, withdraw
from rescind.methods import FedAccum, FedEraser, FineTuning, Last, Scratch, Sifu
from rescind.testing.methods import CutOff, Mortal, names_of

BUDGET = Budget(8.0, 0.01)
SEED = b"noise"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        yield opened


@pytest.fixture
def revocable(history: History) -> Revocable:
    trained = Revocable(history, simulation(secret_noise=True), update_interval=1)
    trained.train(Rounds(6))
    return trained


def test_a_request_goes_from_plan_to_erasure(revocable: Revocable) -> None:
    history = revocable.history
    number = history.ask(names_of(revocable, 0), BUDGET)
    (outcome,) = revocable.forget(Last(), Rounds(4))
    (asked,) = outcome.asked
    assert (asked.number, asked.branch, outcome.rounds, outcome.place) == (number, 1, 4, Place(1, 4))
    assert outcome.modes == (Mode.INSTANCE,)
    assert outcome.planned is not None
    assert outcome.branch is not None
    assert outcome.branch.sigma == outcome.planned.candidate.sigma > 0
    assert outcome.model == history.ledger.kept()[Place(1, 4)]
    assert outcome.erasure.requests == (number,)
    assert outcome.scores is not None
    assert all(0 <= score <= 1 for score in (outcome.scores.retain, outcome.scores.forget, outcome.scores.test))
    kinds = [entry.kind for entry in history.ledger.entries() if entry.kind != "round"]
    assert kinds == ["run", "branch", "request", "plan", "branch", "retrained", "erasure", "remains", "erased"]
    # What the journal says is the outcome, whoever asks later; only the scores are kept nowhere.
    assert outcomes(history) == [replace(outcome, scores=None)]
    assert revocable.forget(Last(), Rounds(4)) == []


def test_requests_are_served_in_their_order(revocable: Revocable) -> None:
    first, second = (revocable.history.ask(names_of(revocable, at), BUDGET) for at in (3, 1))
    served = revocable.forget(Last(), Rounds(2))
    assert [each.asked[0].number for each in served] == [first, second]
    assert [each.place for each in served] == [Place(1, 2), Place(2, 2)]


def test_whoever_waits_to_be_forgotten_does_not_train(revocable: Revocable) -> None:
    history = revocable.history
    waiting = history.clients(names_of(revocable, 3))
    history.ask(names_of(revocable, 1), BUDGET)
    number = history.ask(names_of(revocable, 3), BUDGET)
    revocable.forget(Scratch(), Rounds(3))
    assert all(place.branch == 0 for place in history.ledger.joined(np.array(sorted(waiting))))
    # One who withdraws may.
    other = history.ask(names_of(revocable, 4), BUDGET)
    assert names_of(revocable, 4)[0] not in history.remaining(revocable.engine.clients)
    withdraw(history.ledger, other, history._clock())
    assert names_of(revocable, 4)[0] in history.remaining(revocable.engine.clients)
    # The second was settled: the model that the first left did not know it.
    (settled,) = [each for each in outcomes(history) if each.asked[0].number == number]
    assert (settled.branch, settled.planned, settled.modes, settled.rounds) == (None, None, (Mode.EXACT,), 0)


def test_served_together_each_request_keeps_its_own_promise(revocable: Revocable) -> None:
    history = revocable.history
    one, two = (frozenset(history.clients(names_of(revocable, at))) for at in (0, 1))
    numbers = (
        history.ask(names_of(revocable, 0), Budget(2.0, 0.01)),
        history.ask(names_of(revocable, 1), BUDGET, scope=Scope.SEQUENCE),
    )
    edges, end = history.path().edges, len(history.path().edges)
    plan = revocable.plan(Last(), *numbers)
    asked = {each.number: each.request for each in asked_for(history.ledger)}
    needed = max(
        group_sensitivity(edges, one)[end] / asked[numbers[0]].mu,
        group_sensitivity(edges, two)[end] / asked[numbers[1]].mu,
        group_sensitivity(edges, one | two)[end] / asked[numbers[1]].mu,
    )
    assert needed <= plan.candidate.sigma < needed * 1.4143
    (outcome,) = revocable.forget(Last(), Rounds(2), together=True)
    assert outcome.planned == plan
    assert outcome.branch is not None
    assert outcome.branch.requests == outcome.branch.hidden == numbers


def test_an_approved_plan_is_carried_out_unless_it_is_stale(revocable: Revocable) -> None:
    history = revocable.history
    first, second = (history.ask(names_of(revocable, at), BUDGET) for at in (0, 1))
    plan = revocable.plan(Last(), second)
    revocable.train(Rounds(7))
    with pytest.raises(StalePlan, match=f"changed since request {second} was planned: plan again"):
        revocable.forget(Last(), Rounds(2), approved=plan)
    plan = revocable.plan(Last(), second)
    served = revocable.forget(Last(), Rounds(2), approved=plan)
    # The approved one goes first.
    assert [each.asked[0].number for each in served] == [second, first]
    assert served[0].planned == plan


def test_what_cannot_be_planned_or_trained_is_refused(revocable: Revocable) -> None:
    history = revocable.history
    with pytest.raises(ValueError, match="no open request 99: open are"):
        revocable.plan(Sifu(), 99)
    history.ask(names_of(revocable, 0), BUDGET)
    mortal = replace(revocable, server=Mortal(revocable.server, Place(1, 2)))
    with pytest.raises(CutOff):
        mortal.forget(Last(), Rounds(4))
    with pytest.raises(ValueError, match="being served: finish it with forget"):
        revocable.train(Rounds(9))
    with pytest.raises(ValueError, match="being served by Last: go on with that method"):
        revocable.forget(Scratch(), Rounds(4))
    (outcome,) = revocable.forget(Last(), Rounds(4))
    assert outcome.rounds == 4
    assert revocable.train(Rounds(6)) == Place(1, 6)
    with history.recording(revocable.engine.facts, revocable.engine.start(), update_interval=1) as recorder:
        made = revocable.server.round(revocable.engine, recorder.model(), Place(1, 7), names_of(revocable, 0, 1, 2))
        assert "clinic-0" in made.replies.names
        with pytest.raises(ForgottenClient):
            recorder.record(
                made.replies.names,
                made.replies.weights,
                made.replies.steps,
                made.measured,
                0.0,
                made.model,
                dict.fromkeys(made.replies.names, made.model),
            )


def test_reproducible_noise_and_facts_have_to_agree(history: History) -> None:
    for secret, seed in ((True, SEED), (False, None)):
        with pytest.raises(ValueError, match="with a seed the noise is reproducible"):
            Revocable(history, simulation(secret_noise=secret), seed=seed)


def test_output_level_keeps_the_prefix_and_purge_can_follow(revocable: Revocable) -> None:
    history = revocable.history
    history.ask(names_of(revocable, 0), BUDGET)
    (outcome,) = revocable.forget(Last(), Rounds(2), level=Level.OUTPUT)
    assert outcome.erasure.level is Level.OUTPUT
    assert Place(0, 6) in history.ledger.kept()
    revocable.forget(Last(), Rounds(2), level=Level.PURGE)
    assert Place(0, 6) not in history.ledger.kept()
    assert len(outcomes(history)) == 1


def test_noise_that_outweighs_the_model_is_pulled_towards_the_start(history: History) -> None:
    revocable = Revocable(history, simulation(), seed=SEED)
    revocable.train(Rounds(6))
    parent = history.model(Place(0, 6))
    history.ask(names_of(revocable, 0), Budget(0.3, 1e-3))
    (outcome,) = revocable.forget(Last(), Rounds(0), level=Level.OUTPUT)
    branch = outcome.branch
    assert branch is not None
    assert branch.shrinkage < 0.5
    assert [type(edge) for edge in history.path().edges[-2:]] == [Noise, Shrinkage]
    # Drawn again, noise of a seed is the same.
    noised = noise(parent, branch.sigma, SEED, "restart", 1)
    distance = float(np.sqrt(sum(np.square(tensor).sum() for tensor in noised.values())))
    factor = max(shrinkage(distance, branch.sigma, 21), 2.0**-10)
    assert branch.shrinkage == factor
    start = revocable.engine.start()
    for name, tensor in pulled(noised, start, factor).items():
        assert np.array_equal(history.model(Place(1, 0))[name], tensor)


@pytest.mark.parametrize("method", [FedEraser(), FedAccum()])
def test_behind_an_unbounded_beginning_nothing_is_known_of_anybody(
    revocable: Revocable, method: FedEraser | FedAccum
) -> None:
    history = revocable.history
    history.ask(names_of(revocable, 0), BUDGET)
    (first,) = revocable.forget(Last(), Rounds(3))
    assert first.modes == (Mode.INSTANCE,)
    history.ask(names_of(revocable, 1), BUDGET)
    revocable.forget(method, Rounds(9))
    edges = history.path().edges
    assert any(isinstance(edge, Unbounded) for edge in edges)
    others = history.clients(names_of(revocable, 2, 3))
    assert np.isinf(group_sensitivity(edges, others)[-1])
    # What was promised before is no longer kept by anything that is proven.
    assert [each.modes for each in outcomes(history)] == [(Mode.HEURISTIC,), (Mode.HEURISTIC,)]
    assert any("nothing that was done to it bounds that" in each for each in outcomes(history)[1].erasure.stays)
    # Only retraining is left, and it is exact again.
    history.ask(names_of(revocable, 2), BUDGET)
    (third,) = revocable.forget(Sifu(), Rounds(3))
    assert third.branch is not None
    assert (third.branch.parent, third.modes) == (ROOT, (Mode.EXACT,))
    assert history.verify() == []


def test_after_fine_tuning_the_others_can_still_be_forgotten_soundly(revocable: Revocable) -> None:
    history = revocable.history
    history.ask(names_of(revocable, 0), BUDGET)
    (first,) = revocable.forget(FineTuning(), Rounds(3), level=Level.OUTPUT)
    assert first.modes == (Mode.HEURISTIC,)
    history.ask(names_of(revocable, 1), BUDGET)
    (second,) = revocable.forget(Last(), Rounds(3))
    assert second.modes == (Mode.INSTANCE,)
    assert [each.modes for each in outcomes(history)] == [(Mode.HEURISTIC,), (Mode.INSTANCE,)]
    assert history.verify() == []


def test_no_release_has_two_noised_models(revocable: Revocable) -> None:
    """Noise is secret, so a second draw would differ: cut off right before and right after the commit."""
    history = revocable.history
    number = history.ask(names_of(revocable, 0), BUDGET)
    start_branch = history.ledger.start_branch

    def dying(*arguments: object) -> None:
        start_branch(*arguments)  # type: ignore[arg-type]
        raise CutOff

    history.ledger.start_branch = dying  # type: ignore[assignment, method-assign]
    with pytest.raises(CutOff):
        revocable.forget(Last(), Rounds(2))
    history.ledger.start_branch = start_branch  # type: ignore[method-assign]
    drawn = history.model(Place(1, 0))
    plan = plans(history.ledger)[number]
    (outcome,) = revocable.forget(Last(), Rounds(2), level=Level.OUTPUT)
    assert [branch.requests for branch in branches(history.ledger).values()] == [(), (number,)]
    assert outcome.planned == plan
    assert all(np.array_equal(tensor, drawn[name]) for name, tensor in history.model(Place(1, 0)).items())


def test_rules_end_a_branch() -> None:
    def never() -> float:
        raise AssertionError("looked at too early")

    assert [Rounds(3).reached(rounds, never) for rounds in (2, 3, 4)] == [False, True, True]
    assert (Rounds.share(0.25, of=10), Rounds.share(1.0, of=10)) == (Rounds(3), Rounds(10))
    rule = Accuracy(0.9, least=4, most=8, every=2)
    assert not any(rule.reached(rounds, never) for rounds in (0, 3, 5, 7))
    assert rule.reached(8, never)
    assert not rule.reached(4, lambda: 0.89)
    assert rule.reached(4, lambda: 0.9)
    later = NotBefore(Accuracy(0.5, most=8), 6)
    assert [later.reached(rounds, lambda: 0.6) for rounds in (0, 5, 6)] == [False, False, True]
    assert (later.most, later.reached(8, never)) == (8, True)
    for wrong in (
        lambda: Rounds(-1),
        lambda: Accuracy(1.5),
        lambda: Accuracy(0.5, least=9, most=8),
        lambda: Accuracy(0.5, every=0),
    ):
        with pytest.raises(ValueError, match=r"rounds|threshold"):
            wrong()
