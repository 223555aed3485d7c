"""Features of a network that was trained on another, public data set: frozen, and the same for everybody.

The network never saw an image of the federation, so its features tell a client's head nothing about other clients.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from experiments.data import sets
from experiments.data.features import Pixels, Rows, for_networks, normalised
from rescind.simulation import Network

# Whose images have the same shape.
SOURCES: dict[str, sets.Name] = {"fashion_mnist": "mnist", "cifar10": "cifar100", "cifar100": "cifar10"}
_EPOCHS = 8
_BATCH = 50
_RATE = 0.05
_SEED = 20_260_301


def transferred(images: Pixels, dataset: str) -> Rows:
    """Return what the last convolution of a network says of images of a data set, scaled to norm 1."""
    layers = _trained(SOURCES[dataset])
    with torch.no_grad():
        found = [
            layers(torch.from_numpy(for_networks(part)))
            for part in np.array_split(images, max(len(images) // 500, 1))
        ]
    return normalised(torch.cat(found).numpy().astype(np.float64))


@cache
def _trained(source: sets.Name) -> nn.Module:
    """Train a network on all images of a set, and give it without its fully connected layers."""
    images = sets.load(source, None)
    network = Network(images.train.shape[3], images.train.shape[1], images.classes, hidden=128, width=16)
    module = network.module()
    module.load_state_dict({name: tensor.float() for name, tensor in network.start().items()})
    features, labels = torch.from_numpy(for_networks(images.train)), torch.from_numpy(np.array(images.train_labels))
    order = torch.Generator().manual_seed(_SEED)
    steps = torch.optim.SGD(module.parameters(), lr=_RATE)
    for _ in range(_EPOCHS):
        for rows in torch.split(torch.randperm(len(labels), generator=order), _BATCH):
            steps.zero_grad()
            functional.cross_entropy(module(features[rows]), labels[rows]).backward()  # type: ignore[no-untyped-call]
            steps.step()
    layers = [layer for name, layer in module.named_children() if name not in ("hidden", "relu_4", "output")]
    return nn.Sequential(*layers)
