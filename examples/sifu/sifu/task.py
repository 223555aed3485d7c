"""The data, one class a client, and softmax regression on it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

CLASSES, PIXELS = 10, 28 * 28
HOMES = {"mnist": "ylecun/mnist", "fashion_mnist": "zalando-datasets/fashion_mnist"}


def start() -> dict[str, Tensor]:
    """Return the first model, zeros, in double precision."""
    return {name: torch.zeros_like(tensor) for name, tensor in module().state_dict().items()}


def module() -> nn.Linear:
    """Return softmax regression."""
    return nn.Linear(PIXELS, CLASSES, dtype=torch.float64)


def class_of(client: int, clients: int) -> int:
    """Return the class that all examples of a client have: of 100 clients the first ten have class 0."""
    return client * CLASSES // clients


def load(config: Mapping[str, Any], client: int, clients: int) -> tuple[Tensor, Tensor]:
    """Return a client's own examples, pixels in [0, 1] in rows of limited length; no example is anybody else's."""
    images, labels = _read(str(config["data"]), str(config["dataset"]))
    label, each = class_of(client, clients), int(config["examples"])
    order = np.random.default_rng([int(config["seed"]), label]).permutation(np.flatnonzero(labels == label))
    place = sum(class_of(other, clients) == label for other in range(client))
    own = order[place * each : (place + 1) * each]
    rows = torch.from_numpy(images[own].reshape(-1, PIXELS) / 255)
    too_long = (rows.norm(dim=1, keepdim=True) / float(config["row-norm"])).clamp(min=1)
    return rows / too_long, torch.from_numpy(labels[own])


def train(model: nn.Linear, rows: Tensor, labels: Tensor, config: Mapping[str, Any]) -> None:
    """Train with full batches; the L2 term is on weights and bias."""
    rate, l2 = float(config["learning-rate"]), float(config["l2"])
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, weight_decay=l2)
    for _ in range(int(config["steps"])):
        optimizer.zero_grad()
        torch.autograd.backward(functional.cross_entropy(model(rows), labels))
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Linear, examples: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return the mean accuracy over clients, each on its own examples."""
    return float(np.mean([float((model(rows).argmax(dim=1) == labels).double().mean()) for rows, labels in examples]))


@functools.cache
def _read(folder: str, dataset: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    path = Path(folder).expanduser() / f"{dataset}.npz"
    if path.is_file():
        with np.load(path, allow_pickle=False) as file:
            return file["x_train"], file["y_train"].astype(np.int64)
    from flwr_datasets import FederatedDataset

    columns = FederatedDataset(dataset=HOMES[dataset], partitioners={}).load_split("train").with_format("numpy")
    return columns["image"][:], columns["label"][:]
