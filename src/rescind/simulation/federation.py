"""The data of a simulated federation: every client's own examples, and held-out ones that belong to nobody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rescind.engines.heads import clip_rows


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """Examples and their classes.

    Attributes:
        features: (n, f), or (n, C, H, W) for images; float32 or float64.
        labels: (n,), int64.
    """

    features: NDArray[np.floating[Any]]
    labels: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """Who has which examples.

    Attributes:
        shards: every client's own examples, by name.
        test: held-out examples that belong to no client.
        classes: how many classes there are, at least 2.

    Raises:
        ValueError: something cannot be trained on; the message names whose it is.
    """

    shards: Mapping[str, Shard]
    test: Shard
    classes: int

    def __post_init__(self) -> None:
        if not isinstance(self.classes, int) or self.classes < 2:
            raise ValueError(f"classes is {self.classes!r}; there have to be at least 2")
        if not self.shards:
            raise ValueError("there is no client: give at least one shard")
        _check("test data", self.test, self.classes)
        for name, shard in self.shards.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"a client is named {name!r}; a name is a string that is not empty")
            _check(f"client {name!r}", shard, self.classes)
            if shard.features.shape[1:] != self.inputs:
                shape = shard.features.shape[1:]
                raise ValueError(
                    f"client {name!r}: examples of shape {shape}, but the test data's have {self.inputs}"
                )
        # A copy, so that what was checked is what stays.
        object.__setattr__(self, "shards", dict(self.shards))

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.test.features.shape[1:]


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """All clients' examples, one after the other as tensors.

    Attributes:
        features: the examples.
        labels: their classes.
        spans: where each client's examples are.
    """

    features: torch.Tensor
    labels: torch.Tensor
    spans: Mapping[str, slice]

    def count(self, name: str) -> int:
        """Return the number of a client's examples, n_i.

        Args:
            name: the client's name.

        Returns:
            the number.
        """
        return int(self.spans[name].stop - self.spans[name].start)


def examples(shards: Mapping[str, Shard], dtype: torch.dtype, row_norm: float | None) -> Examples:
    """Put shards one after the other.

    Args:
        shards: the examples by name.
        dtype: the type of the features.
        row_norm: what the norms of rows are clipped to; None leaves them as they are.

    Returns:
        the examples as tensors.

    Raises:
        ValueError: a feature is too large for ``dtype``.
    """
    ends = np.cumsum([len(shard.labels) for shard in shards.values()]).tolist()
    spans = {name: slice(start, end) for name, start, end in zip(shards, [0, *ends], ends, strict=False)}
    first = next(iter(shards.values()))
    features = torch.empty((ends[-1], *first.features.shape[1:]), dtype=dtype)
    labels = torch.empty(ends[-1], dtype=torch.int64)
    for name, shard in shards.items():
        rows = features[spans[name]]
        # Copied twice for a moment, as torch warns of arrays that are read-only.
        rows.copy_(torch.from_numpy(np.array(shard.features)))
        if not rows.isfinite().all():
            raise ValueError(f"client {name!r}: a feature is too large for {dtype}: scale the features")
        if row_norm is not None:
            rows.copy_(torch.from_numpy(clip_rows(rows.numpy(), row_norm)))
        labels[spans[name]] = torch.from_numpy(np.array(shard.labels))
    return Examples(features, labels, spans)


def _check(whose: str, shard: Shard, classes: int) -> None:
    features, labels = shard.features, shard.labels
    if not isinstance(features, np.ndarray) or features.dtype not in (np.float32, np.float64):
        kind = getattr(features, "dtype", type(features).__name__)
        raise ValueError(f"{whose}: features are {kind}; they have to be an array of float32 or float64")
    if features.ndim not in (2, 4):
        raise ValueError(f"{whose}: features have shape {features.shape}; it has to be (n, f) or (n, C, H, W)")
    if not isinstance(labels, np.ndarray) or labels.dtype != np.int64:
        kind = getattr(labels, "dtype", type(labels).__name__)
        raise ValueError(f"{whose}: labels are {kind}; they have to be an array of int64")
    if labels.shape != features.shape[:1]:
        raise ValueError(f"{whose}: labels have shape {labels.shape} for {len(features)} examples")
    if features.size == 0:
        raise ValueError(f"{whose}: there are no examples; leave the client out")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"{whose}: labels go from {labels.min()} to {labels.max()}, outside 0 to {classes - 1}")
    if not np.isfinite(features).all():
        raise ValueError(f"{whose}: a feature is not finite")
