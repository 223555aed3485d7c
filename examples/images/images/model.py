"""One torch module: a frozen feature extractor that is public, and the head that is trained."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

# Anybody can make the extractor from this seed: it knows nobody's data. One trained on public images would do too.
SEED = 20_260_229
# These, and how rows are made of them, were chosen once, by hand, by how well a head reads MNIST: public constants.
FILTERS = 24
CELLS = 4
TRAINED = ("head.weight", "head.bias")


class Model(nn.Module):
    """Random convolutions and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Conv2d(1, FILTERS, kernel_size=5, padding=2, bias=False).requires_grad_(False)
        weight = torch.randn(self.filters.weight.shape, generator=torch.Generator().manual_seed(SEED))
        # A filter that sums to 0 sees edges and no brightness.
        weight -= weight.mean(dim=(2, 3), keepdim=True)
        self.filters.weight.copy_(weight / weight.flatten(1).norm(dim=1)[:, None, None, None])
        self.head = nn.Linear(FILTERS * CELLS**2, 10, dtype=torch.float64)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Return the digits' logits."""
        logits: Tensor = self.head(self.extracted(images).double())
        return logits

    def extracted(self, images: Tensor) -> Tensor:
        """Return one row of norm 1 for each image (n, 1, 28, 28); none depends on another image."""
        responses = self.filters(functional.avg_pool2d(upright(images), 2)).abs()
        # Only the filters that fit best at a place are heard there.
        strong = functional.relu(responses - 0.7 * responses.amax(dim=1, keepdim=True))
        rows = functional.adaptive_avg_pool2d(strong, CELLS).flatten(1)
        return functional.normalize(rows - rows.mean(dim=1, keepdim=True))


def upright(images: Tensor) -> Tensor:
    """Centre each image and shear it, until its ink leans neither way."""
    side = torch.linspace(-1, 1, images.shape[-1])
    down, across = torch.meshgrid(side, side, indexing="ij")
    ink = images / images.sum(dim=(2, 3), keepdim=True).clamp(min=1e-6)

    def mean(values: Tensor) -> Tensor:
        return (ink * values).sum(dim=(2, 3), keepdim=True)

    middle, centre = mean(down), mean(across)
    below, beside = down - middle, across - centre
    slant = mean(below * beside) / mean(below**2).clamp(min=1e-6)
    one, zero = torch.ones_like(slant), torch.zeros_like(slant)
    # Every new pixel asks where it came from.
    origins = torch.stack([one, slant, centre, zero, one, middle], dim=1).reshape(-1, 2, 3)
    grid = functional.affine_grid(origins, list(images.shape), align_corners=True)
    return functional.grid_sample(images, grid, align_corners=True)


@torch.no_grad()
def features(model: Model, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the rows that the head reads, some hundred images at a time."""
    rows = [
        model.extracted(torch.from_numpy(part[:, np.newaxis] / np.float32(255)))
        for part in np.array_split(images, max(len(images) // 200, 1))
    ]
    return torch.cat(rows).numpy()
