"""Federations as configurations name them: a data set, public features or pixels, a split, the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from experiments.data import features, partitions, sets
from experiments.harness import Configuration
from rescind.engines.simulation import Federation, Shard

EXTRACTORS: Mapping[str, Callable[..., Any]] = {
    "projection": features.random_projection,
    "convolutions": features.random_convolutions,
    "straightened convolutions": features.straightened_convolutions,
}


@cache
def rows_of(dataset: sets.Name, kind: str, columns: int) -> tuple[Shard, Shard, int]:
    """Give training and test examples as rows: pixels in [0, 1], or so many public features."""
    images = sets.load(dataset, None)
    if kind == "pixels":
        train, test = (pixels.reshape(len(pixels), -1) / 255 for pixels in (images.train, images.test))
    else:
        train, test = EXTRACTORS[kind](images.train, columns), EXTRACTORS[kind](images.test, columns)
    return Shard(train, images.train_labels), Shard(test, images.test_labels), images.classes


def parts_of(labels: Any, split: str, clients: int, each: int, seed: int) -> list[Any]:
    """Split examples among clients: ``iid``, ``one class``, or ``dirichlet CONCENTRATION``."""
    if split == "iid":
        return partitions.iid(labels, clients, each, seed)
    if split == "one class":
        return partitions.one_class(labels, clients, each, seed)
    word, _, concentration = split.partition(" ")
    if word != "dirichlet":
        raise ValueError(f"there is no split {split!r}: take iid, one class, or dirichlet CONCENTRATION")
    return partitions.dirichlet(labels, clients, float(concentration), each, seed)


def federation_of(configuration: Configuration) -> tuple[Federation, int, int]:
    """Give a federation, the width of its rows and its classes."""
    train, test, classes = rows_of(
        configuration["dataset"], configuration["features"], configuration.get("columns", 0)
    )
    clients = configuration["clients"]
    each = configuration["examples"] // clients
    parts = parts_of(train.labels, configuration["split"], clients, each, configuration["seed"])
    shards = {
        f"client-{at:04}": Shard(train.features[part], train.labels[part])
        for at, part in enumerate(map(np.sort, parts))
    }
    return Federation(shards, test, classes), train.features.shape[1], classes
