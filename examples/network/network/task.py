"""The network, its data, and how it is trained and tested."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions and two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 5)
        self.second = nn.Conv2d(8, 16, 5)
        self.hidden = nn.Linear(16 * 4 * 4, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the digits' logits."""
        seen = functional.max_pool2d(functional.relu(self.first(images)), 2)
        seen = functional.max_pool2d(functional.relu(self.second(seen)), 2)
        logits: Tensor = self.out(functional.relu(self.hidden(seen.flatten(1))))
        return logits


def load_data(data: str, partition: int, partitions: int) -> tuple[DataLoader[tuple[Tensor, ...]], ...]:
    """Return a client's own images in batches: four fifths to train on, the rest to test on."""
    images, labels = read_images(Path(data).expanduser(), partition, partitions)
    rows = TensorDataset(torch.from_numpy(images[:, None] / np.float32(255)), torch.from_numpy(labels).long())
    train, held_out = torch.utils.data.random_split(rows, [0.8, 0.2], torch.Generator().manual_seed(partition))
    return DataLoader(train, batch_size=32, shuffle=True), DataLoader(held_out, batch_size=32)


def read_images(path: Path, partition: int, partitions: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return a client's part of a file; in a simulation without one, of what Flower's data sets download."""
    if partitions == 1 or path.is_file():
        with np.load(path, allow_pickle=False) as file:
            return file["x_train"][partition::partitions][:600], file["y_train"][partition::partitions][:600]
    from flwr_datasets import FederatedDataset

    own = FederatedDataset(dataset="ylecun/mnist", partitioners={"train": partitions}).load_partition(partition)
    columns = own.select(range(min(600, len(own)))).with_format("numpy")
    return columns["image"][:], columns["label"][:]


def train(net: Net, batches: DataLoader[tuple[Tensor, ...]], epochs: int, learning_rate: float) -> float:
    """Train a network, and return its mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    total = 0.0
    for _ in range(epochs):
        for images, labels in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(batches))


@torch.no_grad()
def test(net: Net, batches: DataLoader[tuple[Tensor, ...]]) -> float:
    """Return a network's accuracy."""
    right = sum(int((net(images).argmax(dim=1) == labels).sum()) for images, labels in batches)
    return right / sum(len(labels) for _, labels in batches)
