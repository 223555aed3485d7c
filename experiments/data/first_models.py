"""Other first models of a network than the simulator's: which one it is decides how fast it learns."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from rescind.simulation import Network


@dataclass(frozen=True, slots=True)
class Begun(Network):
    """A network whose first model is drawn as ``first_model`` says.

    Attributes:
        first_model: ``torch SEED``, uniform in +-1/sqrt(fan-in) as torch's layers are, or ``he SEED``, normal with
            variance 2/fan-in and biases of 0 (He, Zhang, Ren, Sun: Delving Deep into Rectifiers, ICCV 2015).

    Raises:
        ValueError: it is none of these.
    """

    first_model: str = "torch 0"

    def __post_init__(self) -> None:
        # ``super`` does not find a dataclass with slots.
        Network.__post_init__(self)
        kind, _, seed = self.first_model.partition(" ")
        if kind not in ("torch", "he") or not seed.isdigit():
            raise ValueError(f"there is no first model {self.first_model!r}: take torch SEED or he SEED")

    def start(self) -> dict[str, torch.Tensor]:
        """Return the first model."""
        kind, _, seed = self.first_model.partition(" ")
        generator = torch.Generator().manual_seed(int(seed))
        shapes, start = Network.start(self), dict[str, torch.Tensor]()
        for name, tensor in shapes.items():
            layer, _, part = name.rpartition(".")
            fan_in = shapes[f"{layer}.weight"][0].numel()
            if kind == "torch":
                uniform = torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
                start[name] = (2 * uniform - 1) / math.sqrt(fan_in)
            else:
                normal = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
                start[name] = normal * math.sqrt(2 / fan_in) if part == "weight" else torch.zeros_like(tensor)
        return start
