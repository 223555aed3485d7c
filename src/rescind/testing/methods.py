"""The contract of a method as tests, from a plan to a run that was cut off and goes on.

Derive from ``MethodConformance`` in a test module of yours and give it two fixtures: ``method``, and
``make_revocable``, a function that makes a federation of at least six clients around a history, always the same one,
with reproducible noise. For readable failures, call ``pytest.register_assert_rewrite("rescind.testing.methods")``
before you import it.
"""

# Tests are asserts, and their names are what they say.
# ruff: noqa: D102, S101

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import TypeAlias

import numpy as np

from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.engines.stops import Rounds
from rescind.engines.training import Watch
from rescind.forgetting import Revocable
from rescind.history.history import History
from rescind.history.outcomes import Outcome
from rescind.methods.method import Certifying, Heuristic, Method

MakeRevocable: TypeAlias = Callable[[History], Revocable]

BUDGET = Budget(8.0, 0.01)
TRAINED, RETRAINED = Rounds(8), Rounds(5)


class CutOffError(Exception):
    """Stands for the death of the process."""


def die_after(last: ModelId) -> Watch:
    """Return what cuts a training off once a round is recorded."""

    def watch(model_id: ModelId, model: Mapping[str, Tensor]) -> None:  # noqa: ARG001, whoever watches is shown it
        if model_id == last:
            raise CutOffError

    return watch


def pick_names(revocable: Revocable, *positions: int) -> list[str]:
    """Return the names of clients by their positions."""
    return [revocable.engine.clients[at] for at in positions]


def forget_in_sequence(revocable: Revocable, method: Method) -> list[Outcome]:
    """Train, forget two clients, then one more."""
    revocable.train(TRAINED)
    revocable.history.requests.ask(pick_names(revocable, 0, 1), BUDGET)
    served = revocable.forget(method, RETRAINED)
    revocable.history.requests.ask(pick_names(revocable, 2), BUDGET)
    return served + revocable.forget(method, RETRAINED)


class MethodConformance:
    """What every method has to do."""

    def test_it_either_certifies_or_says_why_not(self, method: Method) -> None:
        assert isinstance(method, Certifying) != isinstance(method, Heuristic)
        has_fields: bool = is_dataclass(method)
        assert has_fields, "make it a dataclass: its fields tell one plan from another"
        assert type(method).__dataclass_params__.frozen, "make it frozen: a plan is known by its method's fields"  # type: ignore[attr-defined]
        assert method.name
        if isinstance(method, Heuristic):
            assert method.why

    def test_a_plan_is_a_kept_model_and_always_the_same(self, method: Method, make_revocable: MakeRevocable) -> None:
        with History.in_memory() as history:
            revocable = make_revocable(history)
            revocable.train(TRAINED)
            number = history.requests.ask(pick_names(revocable, 0), BUDGET)
            summary, request = (
                history.summary(history.participants.find(pick_names(revocable, 0))),
                history.timeline.requests[0],
            )
            first, second = (method.plan(summary, request.request) for _ in range(2))
            assert first == second
            plan = revocable.plan(method, number)
            assert (plan.candidate.node, plan.candidate.sigma) == (first.node, first.sigma)
            assert plan.parent in history.kept()
            assert plan.method == str(method)

    def test_nothing_is_claimed_that_is_not_proven(self, method: Method, make_revocable: MakeRevocable) -> None:
        with History.in_memory() as history:
            revocable = make_revocable(history)
            (first, second) = forget_in_sequence(revocable, method)
            for outcome in (first, second):
                assert outcome.restart is not None
                candidate = outcome.restart.planned.candidate
                if isinstance(method, Heuristic):
                    assert (candidate.mode, candidate.sigma, outcome.mode) == (
                        Mode.HEURISTIC,
                        0.0,
                        Mode.HEURISTIC,
                    )
                    assert method.why in candidate.obstacles
                # Noise that can be drawn again hides nobody.
                elif outcome.noise:
                    assert candidate.mode is Mode.HEURISTIC

    def test_the_forgotten_never_train_again(self, method: Method, make_revocable: MakeRevocable) -> None:
        with History.in_memory() as history:
            revocable = make_revocable(history)
            gone = history.ledger.register(pick_names(revocable, 0, 1, 2), history.journal.now())
            forget_in_sequence(revocable, method)
            assert not [model_id for model_id in history.ledger.rounds_of(gone[:2]) if model_id.branch >= 1]
            assert not [model_id for model_id in history.ledger.rounds_of(gone[2:]) if model_id.branch >= 2]
            assert history.integrity.verify() == []

    def test_several_requests_can_be_served_together(self, method: Method, make_revocable: MakeRevocable) -> None:
        with History.in_memory() as history:
            revocable = make_revocable(history)
            revocable.train(TRAINED)
            numbers = [history.requests.ask(pick_names(revocable, at), BUDGET) for at in (1, 3)]
            outcomes = revocable.forget(method, RETRAINED, together=True)
            assert [outcome.asked.number for outcome in outcomes] == numbers
            assert len({outcome.restart for outcome in outcomes}) == 1
            assert history.integrity.verify() == []

    def test_a_run_that_was_cut_off_ends_with_the_same_model(
        self, method: Method, make_revocable: MakeRevocable
    ) -> None:
        with History.in_memory() as history:
            whole = forget_in_sequence(make_revocable(history), method)
            expected = history.model(history.newest)
        with History.in_memory() as history:
            revocable = make_revocable(history)
            mortal = replace(revocable, watch=die_after(ModelId(1, 2)))
            try:
                forget_in_sequence(mortal, method)
            except CutOffError:
                revocable.forget(method, RETRAINED)
                revocable.history.requests.ask(pick_names(revocable, 2), BUDGET)
                revocable.forget(method, RETRAINED)
            else:
                raise AssertionError("it was not cut off: a branch of two rounds or more has to be retrained")
            cut = history.outcomes()
            model = history.model(history.newest)
        assert all(np.array_equal(model[name], expected[name]) for name in expected)
        assert [outcome.restart and outcome.restart.model for outcome in cut] == [
            outcome.restart and outcome.restart.model for outcome in whole
        ]
        assert [outcome.restart and outcome.restart.planned.candidate for outcome in cut] == [
            outcome.restart and outcome.restart.planned.candidate for outcome in whole
        ]
