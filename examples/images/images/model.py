"""One torch module: a body that the anchors train, and a head that is solved with everybody."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

HEAD = ("head.weight", "head.bias")
WIDTH = 64


class Model(nn.Module):
    """A small convolutional network with two heads on the same rows."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 5)
        self.second = nn.Conv2d(8, 16, 5)
        self.last = nn.Linear(16 * 4 * 4, WIDTH)
        # The anchors need some head to train the rest with. It is a part of the body, and serves nobody else.
        self.aux = nn.Linear(WIDTH, 10)
        # The one that is solved: it begins at zero, and knows nobody.
        self.head = nn.Linear(WIDTH, 10)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return the digits' logits."""
        logits: Tensor = self.head(self.rows(images))
        return logits

    def rows(self, images: Tensor) -> Tensor:
        """Return what the heads read: a row of norm 1 for each image (n, 1, 28, 28), which depends on no other."""
        seen = functional.max_pool2d(functional.relu(self.first(images)), 2)
        seen = functional.max_pool2d(functional.relu(self.second(seen)), 2)
        return functional.normalize(self.last(seen.flatten(1)))


def train_body(model: Model, images: NDArray[np.uint8], labels: NDArray[np.int64], passes: int, rate: float) -> None:
    """Train all but the solved head, by whatever code you like."""
    optimizer = torch.optim.SGD([p for n, p in model.named_parameters() if n not in HEAD], lr=rate, momentum=0.9)
    pixels, truth = scale(images), torch.from_numpy(labels)
    for _ in range(passes):
        for batch in torch.randperm(len(truth)).split(20):
            optimizer.zero_grad()
            # Rows are short: times ten they let the network be sure of a digit.
            functional.cross_entropy(model.aux(10 * model.rows(pixels[batch])), truth[batch]).backward()
            optimizer.step()


@torch.no_grad()
def features(model: Model, images: NDArray[np.uint8]) -> Tensor:
    """Return the rows that the heads read."""
    return torch.cat([model.rows(part) for part in scale(images).split(500)])


def scale(images: NDArray[np.uint8]) -> Tensor:
    """Return images (n, 28, 28) as the network takes them."""
    return torch.from_numpy(images[:, np.newaxis] / np.float32(255))
