"""A membership attack on single examples: who left is told apart from examples that nobody had.

An example is hard or easy whether or not it was trained on. So its confidence under the released model is compared
with that under a reference, which was trained by other draws and never had anybody who leaves. 0.5 is what an attack
reaches that knows nothing, 1 is certainty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import softmax
from scipy.stats import mannwhitneyu

from rescind.audit.membership import confidence
from rescind.core.edges import Floats
from rescind.core.noise import Tensor
from rescind.engines.simulation import Shard, Simulation

Model = Mapping[str, Tensor]


def together(shards: Sequence[Shard]) -> Shard:
    """Put shards one after the other."""
    return Shard(
        np.concatenate([shard.features for shard in shards]), np.concatenate([shard.labels for shard in shards])
    )


def gained(engine: Simulation, model: Model, reference: Model, shard: Shard) -> Floats:
    """Give how much more confident of each example's class a model is than the reference."""

    def of(each: Model) -> Floats:
        probabilities = softmax(engine.logits(each, shard).astype(np.float64), axis=1)
        return confidence(probabilities[np.arange(len(shard.labels)), shard.labels])

    return of(model) - of(reference)


def told_apart(engine: Simulation, model: Model, reference: Model, left: Shard, never: Shard) -> float:
    """Give how often an example of who left looks more like one than an example of its class that nobody had."""
    shares, weights = [], []
    own, other = (gained(engine, model, reference, shard) for shard in (left, never))
    for class_ in np.unique(left.labels):
        inside, outside = own[left.labels == class_], other[never.labels == class_]
        if len(outside):
            shares.append(mannwhitneyu(inside, outside).statistic / (len(inside) * len(outside)))
            weights.append(len(inside))
    return float(np.average(shares, weights=weights))
