"""What the product claims where a server lies, or where only the leaver's data are others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch

from rescind import History, LocalTraining, Sampling, SoftmaxL2
from rescind.audit.replay import distance
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget
from rescind.core.facts import Mode
from rescind.core.noise import public_sigma
from rescind.core.sensitivity import group_sensitivity
from rescind.engines.engine import Engine
from rescind.engines.server import Average, RoundResult
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.run import Goal
from rescind.ledger.records import ModelId
from rescind.methods import Exact, Last, Sifu
from rescind.methods.method import Method
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation, simulation

_ROUNDS = 8


@dataclass(eq=False)
class Busy:
    """A server that says it averages and does more: it keeps a momentum, and stretches every update."""

    momentum: float
    stretch: float
    facts: ClassVar[None] = None
    _velocity: dict[str, Tensor] = field(default_factory=dict)

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        made = Average().round(engine, model, model_id, present)
        self._velocity = {
            name: self.momentum * self._velocity.get(name, np.zeros(())) + self.stretch * (made.model[name] - tensor)
            for name, tensor in model.items()
        }
        return replace(made, model={name: tensor + self._velocity[name] for name, tensor in model.items()})


@dataclass(frozen=True)
class Judged:
    """Whether a guarantee with noise was claimed, and whether the bound that it rests on is broken."""

    claimed: bool
    broken: bool


def judge_server(seed: int) -> Judged:
    """Train under a busy server with everybody and without one client, and see what is claimed of forgetting it."""
    torch.set_num_threads(1)
    rng = np.random.default_rng((seed, 11))
    training = LocalTraining(steps=3, learning_rate=0.3, loss=SoftmaxL2(l2=0.02, row_norm=1.0))
    momentum, stretch = (0.9, 1.0) if seed % 2 else (0.0, float(rng.uniform(1.5, 3)))

    engine = simulation(10, seed, training=training, sampling=Sampling.EVERYBODY, rate=None, secret_noise=True)

    def trained(leave: str | None) -> tuple[History, Revocable, Mapping[str, Tensor]]:
        models: dict[ModelId, Mapping[str, Tensor]] = {}
        who = tuple(name for name in engine.clients if name != leave)
        # A mask over the engine, as the client is absent from the beginning.
        present = type("Present", (), {"clients": who, "__getattr__": lambda _, name: getattr(engine, name)})()
        history = History.in_memory()
        revocable = Revocable(history, present, Busy(momentum, stretch), watch=models.__setitem__)
        revocable.train(Rounds(_ROUNDS))
        return history, revocable, models[ModelId(0, _ROUNDS)]

    leaver = "clinic-3"
    history, revocable, model = trained(None)
    with history:
        group = history.clients([leaver])
        bound = group_sensitivity(history.lineage(group=group).edges, group)[-1]
        plan = revocable.plan(Last(), history.ask([leaver], Budget(1.0, 1e-5)))
    other, _, without = trained(leaver)
    other.close()
    return Judged(plan.candidate.mode is not Mode.HEURISTIC, bool(distance(model, without) > bound))


@dataclass(frozen=True)
class Changed:
    """How many times both of two federations were forgotten as exact, and how often what was released differs."""

    pairs: int
    different: int


def judge_changed_data(seed: int) -> Changed:
    """Let a client leave federations that differ in its data only."""
    torch.set_num_threads(1)
    rng = np.random.default_rng((seed, 12))
    capacity, sigma = int(rng.integers(2, 9)), float(rng.choice([0.05, 0.25, 1.0]))
    rate, pairs, different = float(rng.uniform(0.05, 0.15)), 0, 0
    for method in (Exact(), Sifu()):
        one, other = (_released(seed, changed, method, rate, capacity, sigma) for changed in (False, True))
        if one is not None and other is not None:
            pairs += 1
            different += one != other
    return Changed(pairs, different)


def _released(
    seed: int, changed: bool, method: Method, rate: float, capacity: int, sigma: float
) -> tuple[str, str] | None:
    """Return the model that an exact restart began with and the one that was released; None if it was not exact."""
    shards, rounds = dict(federation(10, seed).shards), 60

    def engine() -> Simulation:
        return Simulation(
            Federation(shards, shards["clinic-0"], CLASSES),
            SoftmaxHead(FEATURES, CLASSES),
            TRAINING,
            sampling=Sampling.POISSON,
            rate=rate,
            secret=b"changed %d" % seed,
        )

    first: dict[str, int] = {}
    for number in range(1, rounds + 1):
        for name in engine().draw(ModelId(0, number), tuple(shards)):
            first.setdefault(name, number)
    # Who joins late, so that there is something to go back to.
    leaver = max((name for name in first if first[name] < rounds - 5), key=lambda name: first[name])
    if changed:
        own = shards[leaver]
        shards[leaver] = Shard(0.001 * own.features, (own.labels + 1) % CLASSES)
    with History.in_memory() as history:
        goal = Goal(Budget(1.0, 1e-5), public_sigma(sigma))
        revocable = Revocable(history, engine(), capacity=capacity, goal=goal)
        revocable.train(Rounds(rounds))
        history.ask([leaver], Budget(1.0, 1e-5))
        (outcome,) = revocable.forget(method, Rounds(5))
        assert outcome.branch is not None
        return (outcome.branch.model, outcome.model) if outcome.modes[0] is Mode.EXACT else None
