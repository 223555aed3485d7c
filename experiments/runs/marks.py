"""Watermarks: the images of those who leave carry a pattern and a class of its own, and later it is looked for.

As in the paper, ten pixels, the same in all images of a group, are set to the maximum. The paper says nothing of
labels; as in the work that it follows (Sommer et al.), marked images are all labelled with one class, so that a model
knows the mark if it answers with that class. Each group has its own mark and class, drawn by the seed; no two groups
share a class. Recall is measured on held-out images of the other classes, with the mark put on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.data.watermarks import watermark
from experiments.harness import Configuration
from rescind.core.arrays import Tensor
from rescind.simulation import Federation, Shard, Simulation


@dataclass(frozen=True, slots=True)
class Marked:
    """A federation in which each group that will leave carries its mark, and how to ask a model for it."""

    federation: Federation
    marks: tuple[int, ...]
    classes: tuple[int, ...]

    def put_on(self, shard: Shard, request: int) -> Shard:
        """Return examples with the mark and the class of a request's group."""
        class_ = self.classes[request - 1]
        return Shard(_put_on(shard.features, self.marks[request - 1]), np.full_like(shard.labels, class_))

    def recalled(self, engine: Simulation, request: int, model: Mapping[str, Tensor]) -> dict[str, int]:
        """Count how many marked held-out images of other classes get the class of a request's mark."""
        test, class_ = self.federation.test, self.classes[request - 1]
        others = test.labels != class_
        asked = self.put_on(Shard(test.features[others], test.labels[others]), request)
        hits = engine.logits(model, asked).argmax(axis=1) == class_
        return {"hits": int(hits.sum()), "trials": len(hits), "marked_class": class_}


def marked(federation: Federation, configuration: Configuration) -> Marked:
    """Put each leaving group's mark on its images, and its class on their labels."""
    source = np.random.Generator(np.random.PCG64([configuration["seed"], 10]))
    groups, leaving = configuration["groups"], configuration["leaving"]
    classes = source.permutation(federation.classes)[: len(groups)].tolist()
    marks = source.integers(2**32, size=len(groups)).tolist()
    names, shards = list(federation.shards), dict(federation.shards)
    for group, class_, mark in zip(groups, classes, marks, strict=True):
        for name in names[group * leaving : (group + 1) * leaving]:
            own = shards[name]
            shards[name] = Shard(_put_on(own.features, mark), np.full_like(own.labels, class_))
    return Marked(Federation(shards, federation.test, federation.classes), tuple(marks), tuple(classes))


def _put_on(features: Any, mark: int) -> Any:
    """Mark rows of pixels in [0, 1], or images (N, C, H, W) in [-2, 2]."""
    side = features.shape[-1] if features.ndim == 4 else round(features.shape[1] ** 0.5)
    pixels = watermark(np.zeros((1, side, side, 1), dtype=np.uint8), mark)[0, :, :, 0] > 0
    found = features.copy()
    if features.ndim == 4:
        found[:, :, pixels] = 2
    else:
        found[:, pixels.ravel()] = 1
    return found
