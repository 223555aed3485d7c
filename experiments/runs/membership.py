"""A membership attack on single examples: who left is told apart from examples that nobody had.

An example is hard or easy whether or not it was trained on. So its confidence under the released model is compared
with that under a reference, which was trained by other draws and never had anybody who leaves. 0.5 is what an attack
reaches that knows nothing, 1 is certainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import mannwhitneyu

from rescind.audit.attacks import measure_confidence
from rescind.core.arrays import Floats, Tensor
from rescind.simulation import Shard, Simulation

Model = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Examples as the model is asked about them, and of which kind each is: only the same kind is compared."""

    shard: Shard
    kinds: NDArray[np.int64]


def together(shards: Sequence[Shard]) -> Shard:
    """Put shards one after the other."""
    return Shard(
        np.concatenate([shard.features for shard in shards]), np.concatenate([shard.labels for shard in shards])
    )


def gained(engine: Simulation, model: Model, reference: Model, shard: Shard) -> Floats:
    """Return how much more confident of each example's class a model is than the reference."""

    def of(each: Model) -> Floats:
        probabilities = softmax(engine.logits(each, shard).astype(np.float64), axis=1)
        return measure_confidence(probabilities[np.arange(len(shard.labels)), shard.labels])

    return of(model) - of(reference)


def told_apart(engine: Simulation, model: Model, reference: Model, left: Compared, never: Compared) -> float:
    """Return how often an example of who left looks more like one than an example of its kind that nobody had."""
    own, other = (gained(engine, model, reference, each.shard) for each in (left, never))
    return told_apart_by(own, left.kinds, other, never.kinds)


def told_apart_by(inside: Floats, kinds: NDArray[np.int64], outside: Floats, others: NDArray[np.int64]) -> float:
    """Return how often a score of one sort is above one of the other, each held against those of its own kind."""
    shares, weights = [], []
    for kind in np.unique(kinds):
        own, other = inside[kinds == kind], outside[others == kind]
        if len(other):
            shares.append(mannwhitneyu(own, other).statistic / (len(own) * len(other)))
            weights.append(len(own))
    return float(np.average(shares, weights=weights))
