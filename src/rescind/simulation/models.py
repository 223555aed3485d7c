"""What is trained: a softmax or logistic head on given features, or a small convolutional network on images."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn

# Public: everybody has to be able to make the same start.
_SEED = 20_250_301


class Model(Protocol):
    """What an engine has to know of a model."""

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one example."""

    @property
    def classes(self) -> int:
        """How many classes it tells apart."""

    def start(self) -> dict[str, torch.Tensor]:
        """Return theta_0^0.

        Returns:
            the tensors by name in float64, the same every time.
        """

    def module(self) -> nn.Module:
        """Return a module with parameters of the same names.

        Returns:
            the module, whose values are still to be set.
        """


@dataclass(frozen=True, slots=True)
class SoftmaxHead:
    """Softmax regression, W x + b, from zero.

    Attributes:
        features: the number of features (f).
        classes: how many classes it tells apart.
    """

    features: int
    classes: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one example."""
        return (self.features,)

    def start(self) -> dict[str, torch.Tensor]:
        """Return zeros."""
        return {
            "bias": torch.zeros(self.classes, dtype=torch.float64),
            "weight": torch.zeros((self.classes, self.features), dtype=torch.float64),
        }

    def module(self) -> nn.Module:
        """Return the linear layer."""
        with torch.device("meta"):
            layer = nn.Linear(self.features, self.classes)
        return layer.to_empty(device="cpu")


@dataclass(frozen=True, slots=True)
class LogisticHead:
    """Logistic regression of two classes with one logit, w x + b, from zero.

    Attributes:
        features: the number of features (f).
    """

    features: int

    @property
    def classes(self) -> int:
        """Two."""
        return 2

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one example."""
        return (self.features,)

    def start(self) -> dict[str, torch.Tensor]:
        """Return zeros."""
        return {
            "bias": torch.zeros(1, dtype=torch.float64),
            "weight": torch.zeros((1, self.features), dtype=torch.float64),
        }

    def module(self) -> nn.Module:
        """Return the linear layer, with a second logit that is always 0."""
        with torch.device("meta"):
            layer = _OneLogit(self.features, 1)
        return layer.to_empty(device="cpu")


class _OneLogit(nn.Linear):
    """The cross entropy of (0, z) is the logistic loss of z."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        logit = super().forward(inputs)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)


@dataclass(frozen=True, slots=True)
class Network:
    """Three 3x3 convolutions, with max-pooling after two, and two fully connected layers.

    Attributes:
        channels: the channels of the images.
        size: the height and the width of the images, at least 18.
        classes: how many classes it tells apart.
        hidden: how many numbers the first fully connected layer gives.
        width: the filters of the first convolution; the others have twice as many.

    Raises:
        ValueError: a number is below 1, or the images are too small.
    """

    channels: int
    size: int
    classes: int
    hidden: int = 64
    width: int = 32

    def __post_init__(self) -> None:
        for name in ("channels", "hidden", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)!r}: it has to be 1 or more")
        if self._last_size < 1:
            raise ValueError(f"size is {self.size!r}; images have to have at least 18 x 18 pixels")

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one example."""
        return (self.channels, self.size, self.size)

    def start(self) -> dict[str, torch.Tensor]:
        """Return numbers uniform in +-1/sqrt(fan-in), which is torch's usual start, from a public seed."""
        generator = torch.Generator().manual_seed(_SEED)
        start = {}
        for layer, module in self._layers().named_children():
            if isinstance(module, nn.Conv2d | nn.Linear):
                bound = 1 / math.sqrt(module.weight[0].numel())
                for name, parameter in module.named_parameters():
                    uniform = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                    start[f"{layer}.{name}"] = (2 * uniform - 1) * bound
        return start

    def module(self) -> nn.Module:
        """Return the layers."""
        return self._layers().to_empty(device="cpu")

    @property
    def seen_size(self) -> int:
        """The height and the width of the part of an image that counts: pooling drops odd rows and columns."""
        return 4 * self._last_size + 14

    @property
    def _last_size(self) -> int:
        """The height and the width of what the last convolution gives."""
        return ((self.size - 2) // 2 - 2) // 2 - 2

    def _layers(self) -> nn.Sequential:
        # Without storage: making real layers would draw from torch's global stream.
        twice = 2 * self.width
        with torch.device("meta"):
            return nn.Sequential(
                OrderedDict[str, nn.Module](
                    convolution_1=nn.Conv2d(self.channels, self.width, 3),
                    relu_1=nn.ReLU(),
                    pool_1=nn.MaxPool2d(2),
                    convolution_2=nn.Conv2d(self.width, twice, 3),
                    relu_2=nn.ReLU(),
                    pool_2=nn.MaxPool2d(2),
                    convolution_3=nn.Conv2d(twice, twice, 3),
                    relu_3=nn.ReLU(),
                    flatten=nn.Flatten(),
                    hidden=nn.Linear(twice * self._last_size**2, self.hidden),
                    relu_4=nn.ReLU(),
                    output=nn.Linear(self.hidden, self.classes),
                )
            )
