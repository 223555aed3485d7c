"""The membership attack: it finds what a model has learned by heart, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.runs.membership import Compared, together, told_apart
from rescind import LocalTraining, SoftmaxL2
from rescind.core.edges import ModelId
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead

COLUMNS, CLASSES = 600, 3


def shard(seed: int, count: int = 30) -> Shard:
    source = np.random.default_rng(seed)
    return Shard(source.normal(size=(count, COLUMNS)), source.integers(CLASSES, size=count))


@pytest.fixture(scope="module")
def engine() -> Simulation:
    training = LocalTraining(steps=400, learning_rate=0.02, loss=SoftmaxL2(l2=0.0, row_norm=10.0))
    shards = {"left": shard(0), "other": shard(1), "third": shard(2)}
    return Simulation(Federation(shards, shard(3), CLASSES), SoftmaxHead(COLUMNS, CLASSES), training, secret=b"s")


def by_class(own: Shard) -> Compared:
    return Compared(own, own.labels)


def released(engine: Simulation, *names: str) -> dict[str, object]:
    """Train by heart: the labels are random, so that nothing else can be learned."""
    replies = engine.train(engine.start(), ModelId(0, 1), list(names))
    return {name: np.mean(np.asarray(tensor), axis=0) for name, tensor in replies.tensors.items()}


def test_who_is_known_by_heart_is_found_and_others_are_not(engine: Simulation) -> None:
    never, reference = shard(4, 600), released(engine, "third")
    left = shard(0)
    assert told_apart(engine, released(engine, "left", "other"), reference, by_class(left), by_class(never)) > 0.9
    assert told_apart(engine, released(engine, "other"), reference, by_class(left), by_class(never)) == pytest.approx(
        0.5, abs=0.12
    )


def test_only_examples_of_the_same_class_are_compared(engine: Simulation) -> None:
    left, never = shard(0), shard(4, 600)
    model, reference = released(engine, "left"), released(engine, "third")
    some = Shard(never.features[never.labels == 0], never.labels[never.labels == 0])
    own = Shard(left.features[left.labels == 0], left.labels[left.labels == 0])
    assert told_apart(engine, model, reference, by_class(left), by_class(some)) == told_apart(
        engine, model, reference, by_class(own), by_class(some)
    )


def test_shards_are_put_one_after_the_other() -> None:
    both = together([shard(0), shard(1)])
    np.testing.assert_array_equal(both.features, np.concatenate([shard(0).features, shard(1).features]))
    assert len(both.labels) == 60
