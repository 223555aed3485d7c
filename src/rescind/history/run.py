"""What a run is: the facts that claims rest on, and what the operator wants to be able to do later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget, sensitivity_threshold
from rescind.core.facts import Facts, Sampling, Source
from rescind.core.noise import GRID
from rescind.core.regularity import LogisticL2, Loss, SoftmaxL2, SquaredL2
from rescind.errors import RunMismatchError
from rescind.texts import list_some

ModelDescription: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]

_MOST_NAMED = 3
_SAMPLING = {
    Sampling.EVERYBODY: "everybody in every round",
    Sampling.POISSON: "each client in a round with a chance of {:g}",
    Sampling.FIXED_SIZE: "{:g} clients in a round",
    Sampling.FRACTION: "a share of {:g} of the clients in a round",
}


@dataclass(frozen=True, slots=True)
class Goal:
    """The guarantee that the operator wants to be able to give, and the noise that may be spent on it.

    Checkpoints are placed for it; a request may still come with another one.

    Attributes:
        budget: the guarantee.
        sigma: the noise.
    """

    budget: Budget
    sigma: float

    @property
    def threshold(self) -> float:
        """The largest sensitivity that it hides (Psi*)."""
        return sensitivity_threshold(self.sigma, self.budget.mu)


@dataclass(frozen=True, slots=True)
class Run:
    """What stays the same from the first round to the last.

    ``tensors`` describes the model, name by name; ``capacity`` is the number of checkpoints to keep beside theta_0^0
    and the newest model.
    """

    facts: Facts
    tensors: ModelDescription
    capacity: int = 32
    goal: Goal | None = None
    grid: float = GRID

    def __post_init__(self) -> None:
        if self.capacity < 1:
            raise ValueError(f"capacity is {self.capacity!r}; at least one checkpoint has to be kept")
        check_head(self.facts.training.loss, self.tensors)
        if stages := self.facts.stages:
            if len(self.head) < 2 or len(self.head) == len(self.tensors):
                names = ", ".join(repr(name) for name, _, _ in self.tensors[:_MOST_NAMED])
                raise ValueError(f"a network in two stages has the head {stages.head} beside a body, not {names}")
            check_head(stages.loss, self.head)
            if isinstance(stages.loss, SquaredL2) and (1,) in [shape for _, _, shape in self.head]:
                raise ValueError("in two stages a ridge head has an output for each class, so 2 or more")
            if self.goal or self.facts.public_schedule:
                raise ValueError(
                    "a network in two stages is forgotten exactly, from the model that its body ends with: leave out "
                    "goal and public_schedule, which would decide otherwise what is kept"
                )

    @property
    def parameters(self) -> int:
        """The number of parameters (d)."""
        return count_parameters(self.tensors)

    @property
    def head(self) -> ModelDescription:
        """The tensors that a solver would find: all, or the head of a network in two stages."""
        stages = self.facts.stages
        return tuple(tensor for tensor in self.tensors if stages is None or tensor[0] in stages.head)

    def check_same(self, other: Run) -> None:
        """Refuse another run, naming what differs."""
        # The weaker word for it stands, and so a server that is plainer than it was may go on.
        if self.facts.sources.server is Source.DECLARED:
            sources = replace(other.facts.sources, server=Source.DECLARED)
            other = replace(other, facts=replace(other.facts, sources=sources))
        different = list(_differences(self, other))
        if different:
            raise RunMismatchError(
                f"this history was recorded with {' and '.join(different)}: go on with the recorded ones, or start a "
                "new history"
            )


def _differences(recorded: Any, proposed: Any, inside: str = "") -> Iterator[str]:
    """Say what differs, down to the fields of what was put together."""
    if isinstance(recorded, Facts):
        drawn, other = (_SAMPLING[facts.sampling].format(facts.sample) for facts in (recorded, proposed))
        if drawn != other:
            yield f"{drawn}, not {other}"
    for field in fields(recorded):
        one, other = getattr(recorded, field.name), getattr(proposed, field.name)
        if field.name in ("sampling", "sample"):
            continue
        if field.name == "tensors" and one != other:
            yield f"other tensors ({compare_tensors(one, other)})"
        elif one != other and is_dataclass(one) and type(one) is type(other):
            yield from _differences(one, other, f"{inside}{field.name}.")
        elif one != other:
            yield f"{inside}{field.name} {one!r}, not {other!r}"


def compare_tensors(recorded: ModelDescription, proposed: ModelDescription) -> str:
    """Say in words which tensors of a model are not those that were recorded."""
    before, now = ({name: (kind, shape) for name, kind, shape in tensors} for tensors in (recorded, proposed))
    different = [
        f"{name!r} is new"
        if name not in before
        else f"{name!r} is missing"
        if name not in now
        else "{!r} is {} {}, and was {} {}".format(name, *now[name], *before[name])
        for name in sorted(before | now)
        if before.get(name) != now.get(name)
    ]
    return list_some(different, _MOST_NAMED)


def check_head(loss: Loss, tensors: Sequence[tuple[str, str, tuple[int, ...]]]) -> None:
    """Refuse an L2 head's loss for trained tensors that are not a linear head's: its curvature is not theirs."""
    if not isinstance(loss, SoftmaxL2 | LogisticL2 | SquaredL2):
        return
    logistic = isinstance(loss, LogisticL2)
    shapes = sorted((shape for _, _, shape in tensors), key=len)
    if list(map(len, shapes)) == [1, 2]:
        (outputs,), weight = shapes
        if weight[0] == outputs and (outputs == 1 or not logistic):
            return
    name, rows = type(loss).__name__, "1" if logistic else "outputs" if isinstance(loss, SquaredL2) else "classes"
    trained = [f"{tensor!r} {shape}" for tensor, _, shape in tensors[:_MOST_NAMED]]
    if len(tensors) > _MOST_NAMED:
        trained.append(f"{len(tensors) - _MOST_NAMED} more")
    raise ValueError(
        f"{name} is the loss of a linear head: one weight of shape ({rows}, features) and its bias of shape "
        f"({rows},). What is trained here is {', '.join(trained)}. If only a head is trained, name its two tensors "
        "as the trained ones. If a whole network is, say loss=rescind.NetworkLoss(): no noise is proven to hide "
        "anybody in one, and everybody can be forgotten exactly, by training again from before their first round"
    )


def count_parameters(tensors: ModelDescription) -> int:
    """Return how many numbers the described tensors have."""
    return sum(int(np.prod(shape)) for _, _, shape in tensors)


def describe_model(model: Mapping[str, Tensor]) -> ModelDescription:
    """Describe a model's tensors: name, type, shape."""
    return tuple((name, str(model[name].dtype), model[name].shape) for name in sorted(model))
