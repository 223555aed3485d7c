"""What a method, a plan or a trainer of one's own says is not believed: claims follow from the facts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from rescind import History
from rescind.core.calibration import Budget
from rescind.core.facts import Mode, PublicHead, Source
from rescind.core.noise import public_sigma
from rescind.core.planning import Candidate, strict_candidates
from rescind.core.strict import strict_sensitivity
from rescind.core.summary import Node, Request, Summary
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.outcomes import outcome_of
from rescind.ledger.records import ErasureLevel
from rescind.methods import Last
from rescind.methods.method import Certifying, Heuristic
from rescind.simulation import Simulation
from rescind.simulation.trainers import Loop
from rescind.testing.small import TRAINING
from tests.builders import everybody

BUDGET = Budget(10.0, 0.01)
PUBLIC = {"public_schedule": True, "public": PublicHead(initial_norm=0.0, parameters=21, batch=15)}
SLOW = replace(TRAINING, learning_rate=0.5)


def engine(**options: object) -> Simulation:
    return everybody(6, **{"training": SLOW} | options)


@dataclass(frozen=True)
class StrictLast(Certifying):
    """The newest model, with the noise that the strict bound asks for: it looks at nobody's data."""

    name: ClassVar[str] = "strict last"
    public_plan: ClassVar[bool] = True

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        node, (request,) = summary.kept[-1], requests
        needed = strict_sensitivity(summary.edges, request.group, summary.facts.head_bound())[node.index] / request.mu
        return Candidate(node, public_sigma(needed * (1 + 1e-9)), Mode.STRICT, (), 0.0, 0.0)


@dataclass(frozen=True)
class StrictNewest(Certifying):
    name: ClassVar[str] = "strict newest"
    public_plan: ClassVar[bool] = True

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        return strict_candidates(summary, *requests)[-1]


@dataclass(frozen=True)
class Peek(Heuristic):
    """Chooses a node by looking at whatever it likes."""

    name: ClassVar[str] = "peek"
    why: ClassVar[str] = "a guess"

    def node(self, summary: Summary) -> Node:
        return summary.kept[-1]


def test_a_public_method_is_not_strict_after_a_plan_that_looked_at_data() -> None:
    """The earlier noise level followed everybody's updates: it alone may tell who leaves now."""
    with History.in_memory() as history:
        federation = Revocable(history, engine(**PUBLIC), scored=False)
        federation.train(Rounds(5))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Last(), Rounds(0), level=ErasureLevel.OUTPUT)
        history.requests.ask(["clinic-2"], BUDGET)
        with pytest.raises(ValueError, match="an earlier request was served by a plan that looked at data"):
            federation.forget(StrictLast(), Rounds(0), level=ErasureLevel.OUTPUT)


@pytest.mark.parametrize(
    "options", [{"public": PUBLIC["public"]}, {**PUBLIC, "trainer": lambda *given: Loop(*given)}]
)
def test_a_public_method_is_not_strict_where_the_facts_are_not(options: dict[str, object]) -> None:
    if "trainer" in options:
        options = {**options, "training": replace(SLOW, precision="float32")}
    with History.in_memory() as history:
        federation = Revocable(history, engine(**options), scored=False)
        federation.train(Rounds(3))
        number = history.requests.ask(["clinic-2"], BUDGET)
        with pytest.raises(ValueError, match="no strict plan"):
            federation.plan(StrictLast(), number)


def test_a_strict_claim_does_not_survive_a_restart_that_looked_at_data() -> None:
    with History.in_memory() as history:
        federation = Revocable(history, engine(**PUBLIC), scored=False)
        federation.train(Rounds(5))
        first = history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(StrictNewest(), Rounds(4), level=ErasureLevel.OUTPUT)
        assert outcome_of(history.timeline, first).mode is Mode.STRICT
        history.requests.ask(["clinic-2"], BUDGET)
        federation.forget(Peek(), Rounds(0), level=ErasureLevel.OUTPUT)
        assert outcome_of(history.timeline, first).mode is Mode.INSTANCE


@pytest.mark.parametrize(
    "forged",
    [{"sigma": 2.0**-12}, {"mode": Mode.STRICT}, {"sigma": 0.0, "mode": Mode.EXACT}, {"releases_mu": 0.0}],
)
def test_a_recorded_plan_is_worth_what_follows_from_the_history(forged: dict[str, object]) -> None:
    with History.in_memory() as history:
        federation = Revocable(history, engine(), scored=False)
        federation.train(Rounds(5))
        plan = federation.plan(Last(), history.requests.ask(["clinic-3"], Budget(1.0, 1e-5)))
        changed = replace(plan, candidate=replace(plan.candidate, **forged), seen=0)  # type: ignore[arg-type]
        history.requests.record_plan(changed)
        # It is planned anew.
        (outcome,) = federation.forget(Last(), Rounds(1))
        assert outcome.restart is not None
        assert replace(outcome.restart.planned, seen=plan.seen) == plan


def test_a_trainer_of_ones_own_is_declared_not_executed() -> None:
    assert engine().facts.sources.training is Source.EXECUTED
    assert engine(trainer=Loop).facts.sources.training is Source.EXECUTED

    def wild(model: object, examples: object, training: object) -> Loop:
        return Loop(model, examples, replace(training, learning_rate=10.0))  # type: ignore[arg-type, type-var]

    assert engine(trainer=wild).facts.sources.training is Source.DECLARED
