"""What the product claims where a server lies, or where only the leaver's data are others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import ClassVar

import numpy as np
import torch

from rescind import History, LocalTraining, Sampling, SoftmaxL2
from rescind.audit.replay import distance
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, PrivacyScope
from rescind.core.noise import public_sigma
from rescind.core.rounds import RoundResult
from rescind.core.sensitivity import group_sensitivity
from rescind.engines.engine import Engine
from rescind.engines.server import Average
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.run import Goal
from rescind.methods import Exact, Last, Sifu, Solve
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
        group = history.participants.find([leaver])
        bound = group_sensitivity(history.lineage(group=group).edges, group)[-1]
        plan = revocable.plan(Last(), history.requests.ask([leaver], Budget(1.0, 1e-5)))
    other, _, without = trained(leaver)
    other.close()
    return Judged(plan.candidate.mode is not Mode.HEURISTIC, bool(distance(model, without) > bound))


@dataclass(frozen=True)
class Changed:
    """How many times both of two federations were forgotten as exact, and how often what was released differs.

    ``record_pairs`` are those of them in which single rows went; ``kept_seen`` says whether it shows if they stay.
    """

    pairs: int
    different: int
    record_pairs: int
    kept_seen: bool


@dataclass(frozen=True)
class Setting:
    """A federation whose clients join late, and who or whose rows are to go."""

    seed: int
    rate: float
    capacity: int
    sigma: float
    method: Method = field(default_factory=Exact)
    scope: PrivacyScope = PrivacyScope.GROUP


def judge_changed_data(seed: int) -> Changed:
    """Let a client, or some of its rows, leave federations that differ in these data only."""
    torch.set_num_threads(1)
    rng = np.random.default_rng((seed, 12))
    capacity, sigma = int(rng.integers(2, 9)), float(rng.choice([0.05, 0.25, 1.0]))
    setting = Setting(seed, float(rng.uniform(0.05, 0.15)), capacity, sigma)
    pairs = {scope: [0, 0] for scope in (PrivacyScope.GROUP, PrivacyScope.RECORDS)}
    # Where rows go, Sifu has no other choice than Exact.
    for scope, method in (*product(pairs, (Exact(), Solve())), (PrivacyScope.GROUP, Sifu())):
        chosen = replace(setting, method=method, scope=scope)
        one, other = (_released(chosen, changed=changed) for changed in (False, True))
        if one is not None and other is not None:
            pairs[scope][0] += 1
            pairs[scope][1] += one != other
    kept = (
        _released(replace(setting, scope=PrivacyScope.RECORDS), changed=changed, kept=True)
        for changed in (False, True)
    )
    counts, differences = zip(*pairs.values(), strict=True)
    return Changed(sum(counts), sum(differences), pairs[PrivacyScope.RECORDS][0], len(set(kept)) > 1)


def _released(setting: Setting, *, changed: bool, kept: bool = False) -> tuple[str, str] | None:
    """Return the model that an exact restart began with and the one that was released; None if it was not exact.

    ``kept``: rows that were to go are left in, as by a client that lies.
    """
    shards, rounds = dict(federation(10, setting.seed).shards), 60

    def engine() -> Simulation:
        return Simulation(
            Federation(dict(shards), shards["clinic-0"], CLASSES),
            SoftmaxHead(FEATURES, CLASSES),
            TRAINING,
            sampling=Sampling.POISSON,
            rate=setting.rate,
            secret=b"changed %d" % setting.seed,
        )

    first, drawing = dict[str, int](), engine()
    for number in range(1, rounds + 1):
        for name in drawing.draw(ModelId(0, number), tuple(shards)):
            first.setdefault(name, number)
    # Who joins late, so that there is something to go back to.
    leaver = max((name for name in first if first[name] < rounds - 5), key=lambda name: first[name])
    own, records = shards[leaver], setting.scope is PrivacyScope.RECORDS
    going = len(own.labels) if not records else 2
    if changed:
        features, labels = own.features.copy(), own.labels.copy()
        features[:going] *= 0.001
        labels[:going] = (labels[:going] + 1) % CLASSES
        shards[leaver] = Shard(features, labels)
    with History.in_memory() as history:
        goal = Goal(Budget(1.0, 1e-5), public_sigma(setting.sigma))

        def federate() -> Revocable:
            return Revocable(history, engine(), capacity=setting.capacity, goal=goal, scored=False)

        federate().train(Rounds(rounds))
        history.requests.ask([leaver], Budget(1.0, 1e-5), scope=setting.scope)
        if records and not kept:
            shards[leaver] = Shard(own.features[going:], own.labels[going:])
        # Long enough for the client to be drawn again.
        (outcome,) = federate().forget(setting.method, Rounds(25 if records else 5))
        assert outcome.restart is not None
        return (outcome.restart.branch.model, outcome.model) if outcome.mode is Mode.EXACT else None
