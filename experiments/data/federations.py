"""Federations as configurations name them: a data set, public features, pixels or images, a split, the clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from experiments.data import celeba, features, partitions, sets
from experiments.data.first_models import Begun
from experiments.data.transferred import transferred
from experiments.harness import Configuration
from rescind import LocalTraining, SoftmaxL2
from rescind.core.regularity import NetworkLoss
from rescind.simulation import Federation, Network, Shard, SoftmaxHead
from rescind.simulation.models import Model

EXTRACTORS: Mapping[str, Callable[..., Any]] = {
    "projection": features.random_projection,
    "convolutions": features.random_convolutions,
    "straightened convolutions": features.straightened_convolutions,
}


def features_of(images: sets.Pixels, dataset: str, kind: str, columns: int) -> Any:
    """Return what a model sees of images (N, H, W, C).

    ``pixels``: rows of numbers in [0, 1]; ``images``: (N, C, H, W) in [-2, 2], for networks; ``transferred``: what a
    network says that was trained on another set; ``pretrained``: what a published one says; else so many features.
    """
    if kind == "pixels":
        return images.reshape(len(images), -1) / 255
    if kind == "images":
        return features.for_networks(images)
    if kind == "transferred":
        return transferred(images, dataset)
    if kind == "pretrained":
        # Few runs need the packages.
        from experiments.data.pretrained import pretrained

        return pretrained(images)
    return EXTRACTORS[kind](images, columns)


@cache
def examples_of(dataset: sets.Name, kind: str, columns: int) -> tuple[Shard, Shard, int]:
    """Return training and test examples and the number of classes."""
    images = sets.load(dataset, None)
    train, test = (features_of(own, dataset, kind, columns) for own in (images.train, images.test))
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


@cache
def people_of(clients: int, each: int) -> Federation:
    """Return CelebA, for networks: a client is one person, and has at least ``each`` images."""
    faces = celeba.load(each, people=clients)
    shards = {
        f"client-{person.identity:05}": Shard(features.for_networks(person.images), person.labels)
        for person in faces.clients
    }
    return Federation(shards, Shard(features.for_networks(faces.test), faces.test_labels), 2)


def federation_of(configuration: Configuration) -> Federation:
    """Return a federation."""
    if configuration["dataset"] == "celeba":
        return people_of(configuration["clients"], configuration["examples"] // configuration["clients"])
    train, test, classes = examples_of(
        configuration["dataset"], configuration["features"], configuration.get("columns", 0)
    )
    clients = configuration["clients"]
    each = configuration["examples"] // clients
    parts = parts_of(train.labels, configuration["split"], clients, each, configuration["seed"])
    shards = {
        f"client-{at:04}": Shard(train.features[part], train.labels[part])
        for at, part in enumerate(map(np.sort, parts))
    }
    return Federation(shards, test, classes)


def head_of(federation: Federation) -> SoftmaxHead:
    """Return softmax regression on a federation's rows."""
    (columns,) = federation.inputs
    return SoftmaxHead(columns, federation.classes)


def trained_by(configuration: Configuration, federation: Federation) -> tuple[LocalTraining, Model]:
    """Return how clients train, and what: a network where the examples are images, else a softmax head."""
    steps, rate = configuration["steps"], configuration["learning_rate"]
    if configuration["features"] == "images":
        channels, size, _ = federation.inputs
        of = channels, size, federation.classes, configuration["hidden"], configuration["width"]
        first = configuration.get("first_model")
        network = Network(*of) if first is None else Begun(*of, first_model=first)
        return LocalTraining(steps=steps, learning_rate=rate, loss=NetworkLoss(), precision="float32"), network
    loss = SoftmaxL2(l2=configuration["l2"], row_norm=configuration["row_norm"])
    return LocalTraining(steps=steps, learning_rate=rate, loss=loss), head_of(federation)
