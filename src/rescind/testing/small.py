"""A small simulated federation: L2 softmax heads of clients that each have their own taste."""

from __future__ import annotations

from typing import Any

import numpy as np

from rescind import LocalTraining, Sampling, SoftmaxL2
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead

FEATURES, CLASSES = 6, 3
TRAINING = LocalTraining(steps=3, learning_rate=1.0, loss=SoftmaxL2(l2=0.02, row_norm=1.0))


def federation(clients: int = 10, seed: int = 0) -> Federation:
    """Return every client 12 examples or a few more, whose labels follow one rule and a taste of its own."""
    rng = np.random.default_rng(seed)
    rule = rng.normal(size=(FEATURES, CLASSES))

    def shard(examples: int, taste: float) -> Shard:
        rows = rng.normal(size=(examples, FEATURES))
        own = rule + taste * rng.normal(size=rule.shape)
        return Shard(rows, (rows @ own).argmax(axis=1))

    shards = {f"clinic-{number}": shard(12 + number % 4, 0.5) for number in range(clients)}
    return Federation(shards, shard(100, 0.0), CLASSES)


def simulation(clients: int = 10, seed: int = 0, training: LocalTraining = TRAINING, **options: Any) -> Simulation:
    """Return an engine for it; sampled by Poisson's rule unless told otherwise."""
    chosen: dict[str, Any] = {"sampling": Sampling.POISSON, "rate": 0.7, "secret_noise": False} | options
    return Simulation(
        federation(clients, seed),
        SoftmaxHead(FEATURES, CLASSES),
        training,
        secret=f"a federation for tests {seed}".encode(),
        **chosen,
    )
