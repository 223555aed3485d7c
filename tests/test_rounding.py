"""What rounding does to whole trainings: no more than the bound pays for, and little enough to be of use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rescind import History, LocalTraining, Sampling, SoftmaxL2
from rescind.audit import Comparison, RecordingEngine, compare_worlds
from rescind.core.calibration import Budget
from rescind.core.facts import Facts, Mode, PublicHead, Source, Sources
from rescind.core.planning import Candidate
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.methods import Sifu
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.testing.small import TRAINING, federation

PRECISIONS = ("float64", "float32")


def crowd(clients: int, training: LocalTraining, **options: object) -> Simulation:
    """Clients that all have the same example: what parts the worlds is the rounding of their mean."""
    shard = Shard(np.array([[1.0]]), np.zeros(1, dtype=np.int64))
    shards = {f"c{number}": shard for number in range(clients)}
    return Simulation(Federation(shards, shard, 2), SoftmaxHead(1, 2), training, secret=b"x", **options)  # type: ignore[arg-type]


def judged(engine: Simulation, rounds: int, leaver: str) -> tuple[list[Comparison], Candidate]:
    tape = RecordingEngine(engine)
    with History.in_memory() as history:
        revocable = Revocable(history, tape, capacity=8)
        revocable.train(Rounds(rounds))
        found = compare_worlds(history, tape, [leaver])
        return found, revocable.plan(Sifu(), history.requests.ask([leaver], Budget(1.0, 1e-5))).candidate


@pytest.mark.parametrize(
    ("training", "options"),
    [
        (LocalTraining(1, 1.9, SoftmaxL2(0.01, 1.0)), {}),
        (LocalTraining(1, 0.39, SoftmaxL2(2.0, 1.0)), {"public_schedule": True, "public": PublicHead(0.0, 4, 1)}),
    ],
)
def test_thousands_of_alike_clients_in_float32_stay_below_their_bound(
    training: LocalTraining, options: dict[str, object]
) -> None:
    """A mean that is summed in float32 parts the worlds by many times what the noise of a plan hides."""
    found, _ = judged(crowd(5000, replace(training, precision="float32"), **options), 1, "c2500")
    assert not any(each.violated for each in found)
    # Little more than two casts in each world: above the smallest noise of the grid nothing is lost.
    assert found[-1].bound < 1e-6


def test_float32_costs_the_bound_next_to_nothing_and_plans_the_same() -> None:
    bounds, plans = [], []
    for precision in PRECISIONS:
        training = replace(TRAINING, precision=precision)
        engine = Simulation(federation(40, 3), SoftmaxHead(6, 3), training, secret=b"x", sampling=Sampling.EVERYBODY)
        found, plan = judged(engine, 12, "clinic-3")
        assert not any(each.violated for each in found)
        bounds.append(found[-1].bound)
        plans.append((plan.node, plan.sigma, plan.mode))
    double, single = bounds
    assert double < single < 1.001 * double
    assert plans[0] == plans[1]


def test_code_of_the_clients_own_proves_nothing_in_float32() -> None:
    """It rounds in every operation, by an amount that nobody here knows."""
    for precision, source, proven in (
        ("float32", Source.DECLARED, False),
        ("float32", Source.EXECUTED, True),
        ("float64", Source.DECLARED, True),
    ):
        head = PublicHead(0.0, 21, 15)
        facts = Facts(
            replace(TRAINING, learning_rate=0.5, precision=precision),
            Sampling.EVERYBODY,
            independent_randomness=True,
            redrawn_rounds=False,
            secret_noise=True,
            public_schedule=True,
            public=head,
            sources=Sources(training=source),
        )
        assert (facts.obstacles == ()) is proven
        assert (facts.strict_obstacles == ()) is proven


def test_steps_without_a_rounding_term_leave_exact_forgetting() -> None:
    """With eta far above 2/beta nothing is bounded: training goes on, and no noise is offered."""
    training = LocalTraining(5, 20.0, SoftmaxL2(0.001, 1.0))
    engine = Simulation(federation(6, 1), SoftmaxHead(6, 3), training, secret=b"x")
    _, plan = judged(engine, 3, "clinic-3")
    assert plan.mode is Mode.EXACT
