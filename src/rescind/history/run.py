"""What a run is: the facts that claims rest on, and what the operator wants to be able to do later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from rescind.core.calibration import Budget, sensitivity_threshold
from rescind.core.facts import Facts
from rescind.core.noise import GRID, Tensor
from rescind.history.errors import DifferentRun


@dataclass(frozen=True, slots=True)
class Goal:
    """The guarantee that the operator wants to be able to give, and the noise that may be spent on it.

    Checkpoints are placed for it; a request may still come with another one.
    """

    budget: Budget
    sigma: float

    @property
    def threshold(self) -> float:
        """The largest sensitivity that it hides (Psi*)."""
        return sensitivity_threshold(self.sigma, self.budget)


@dataclass(frozen=True, slots=True)
class Run:
    """What stays the same from the first round to the last.

    ``tensors`` describes the model, name by name; ``capacity`` is the number of checkpoints to keep beside theta_0^0
    and the newest model; in every ``update_interval``-th round, from the first on, the participants' updates are
    stored, for methods that start from stored ones; 0 stores none.
    """

    facts: Facts
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]
    capacity: int = 32
    goal: Goal | None = None
    update_interval: int = 0
    grid: float = GRID

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity!r}; at least one checkpoint has to be kept")
        if self.update_interval < 0:
            raise ValueError(
                f"update_interval is {self.update_interval!r}; 0 stores no updates, 1 those of every round"
            )

    @property
    def parameters(self) -> int:
        """The number of parameters (d)."""
        return sum(int(np.prod(shape)) for _, _, shape in self.tensors)

    def stores_updates(self, round_: int) -> bool:
        """Tell whether a branch's round is one whose updates are stored."""
        return bool(self.update_interval) and (round_ - 1) % self.update_interval == 0

    def check_same(self, other: Run) -> None:
        """Refuse another run, naming what differs."""
        different = list(_differences(self, other))
        if different:
            raise DifferentRun(
                f"this history was recorded with {' and '.join(different)}: go on with the recorded ones, or start a "
                "new history"
            )


def _differences(recorded: Any, given: Any, inside: str = "") -> Iterator[str]:
    """Say what differs, down to the fields of what was put together."""
    for each in fields(recorded):
        one, other = getattr(recorded, each.name), getattr(given, each.name)
        if one != other and is_dataclass(one) and type(one) is type(other):
            yield from _differences(one, other, f"{inside}{each.name}.")
        elif one != other:
            yield f"{inside}{each.name} {one!r}, not {other!r}"


def described(model: Mapping[str, Tensor]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """Describe a model's tensors: name, type, shape."""
    return tuple((name, str(model[name].dtype), model[name].shape) for name in sorted(model))
