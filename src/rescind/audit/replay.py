"""Coupled replay: train again without a client, on the same secrets, and hold the distance against its bound.

It needs an engine that can be asked again, such as a simulator, or a federation with canary clients that agree to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rescind.core.calibration import reached_epsilon
from rescind.core.edges import sorted_group
from rescind.core.facts import DpFedAvg, Facts, Scope
from rescind.core.noise import Tensor
from rescind.core.sensitivity import group_sensitivity
from rescind.engines.engine import Engine, Replies
from rescind.engines.server import averaged, norm
from rescind.history.history import History
from rescind.history.path import branches, lineage
from rescind.history.records import ROOT, Branch, Place


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """An engine that keeps who took part in each round, and from which model: what a replay needs.

    An erasure takes names and models from the history, not from here: a tape is for audits, and goes with them.
    """

    engine: Engine
    rounds: dict[Place, tuple[Mapping[str, Tensor], tuple[str, ...]]] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        """What claims rest on."""
        return self.engine.facts

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of everybody who could take part."""
        return self.engine.clients

    def start(self) -> dict[str, Tensor]:
        """Give theta_0^0."""
        return self.engine.start()

    def drawn(self, place: Place, present: Sequence[str]) -> list[str]:
        """Choose who takes part."""
        return self.engine.drawn(place, present)

    def train(self, model: Mapping[str, Tensor], place: Place, names: Sequence[str]) -> Replies:
        """Train a round, and keep what it was made of."""
        replies = self.engine.train(model, place, names)
        self.rounds[place] = (model, replies.names)
        return replies

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float | None:
        """Give the mean of the named clients' accuracies."""
        return self.engine.accuracy(model, names)

    def test_accuracy(self, model: Mapping[str, Tensor]) -> float | None:
        """Give the accuracy on held-out data."""
        return self.engine.test_accuracy(model)

    def model(self, place: Place) -> Mapping[str, Tensor]:
        """Give the model at a place: the one that the round after it began with, or else made once more."""
        after = Place(place.branch, place.round + 1)
        if after in self.rounds:
            return self.rounds[after][0]
        if place not in self.rounds:
            raise ValueError(
                f"{place} is not on this tape: give the tape, not its engine, to whoever trains, for a round at least"
            )
        return self.next_model(*self.rounds[place], place)

    def next_model(self, model: Mapping[str, Tensor], names: Sequence[str], place: Place) -> dict[str, Tensor]:
        """Make the model at a place again, from a model and by the named clients only."""
        if isinstance(self.facts.public, DpFedAvg):
            raise ValueError("rounds of DP-FedAvg have noise of their own, which nobody can draw again")
        rate = self.engine.facts.training.server_learning_rate
        return averaged(model, self.engine.train(model, place, names), rate).model


@dataclass(frozen=True, slots=True)
class Compared:
    """How far a model is from the one without the group (alpha), and how far it may be (Psi)."""

    place: Place
    distance: float
    bound: float

    @property
    def violated(self) -> bool:
        """Whether the bound does not hold."""
        return not self.distance <= self.bound

    def epsilon(self, sigma: float, delta: float) -> float:
        """Give the epsilon that noise of ``sigma`` really has here, beside the certified one."""
        return reached_epsilon(self.distance / sigma, delta)


def world_without(
    tape: Tape, known: Mapping[int, Branch], leaving: Collection[str], place: Place
) -> Iterator[tuple[Place, Mapping[str, Tensor]]]:
    """Give every model on the way to a place as it would be had the leaving never taken part.

    Participation of the others, batches and noise are those of the real world. ``known`` are the history's branches.

    Theory: 15.
    """
    model: Mapping[str, Tensor] = tape.start()
    yield ROOT, model
    for leg in lineage(known, place):
        branch, first = known[leg.branch], Place(leg.branch, 0)
        if branch.unbounded:
            raise ValueError(f"branch {branch.number} began in a way that cannot be repeated in another world")
        if branch.parent is not None:
            if branch.sigma:
                model = _same_noise(model, tape.model(branch.parent), tape.model(first))
            yield first, model
        for number in range(1, leg.round + 1):
            here = Place(leg.branch, number)
            _, names = tape.rounds[here]
            model = tape.next_model(model, [name for name in names if name not in leaving], here)
            yield here, model


def compared(history: History, tape: Tape, leaving: Collection[str], scope: Scope = Scope.GROUP) -> list[Compared]:
    """Hold the bound against the distance at every model up to the newest; before a request is carried out.

    With ``Scope.INDIVIDUAL`` each client is replayed alone, and the one nearest to its bound is given at each model.

    Theory: 15.
    """
    if scope is Scope.INDIVIDUAL and len(leaving) > 1:
        alone = [compared(history, tape, [name]) for name in leaving]
        return [max(each, key=_nearness) for each in zip(*alone, strict=True)]
    group = history.clients(list(leaving))
    # People may have called them by their labels.
    names = set(history.ledger.names(sorted_group(group)).values())
    path = history.path(group=group)
    bounds = group_sensitivity(path.edges, group)
    return [
        Compared(place, distance(tape.model(place), other), float(bounds[path.index[place]]))
        for place, other in world_without(tape, branches(history.ledger), names, history.newest)
        if place in path.index
    ]


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Give the Euclidean distance of two models."""
    return norm({name: np.subtract(one[name], other[name], dtype=np.float64) for name in one})


def _same_noise(
    model: Mapping[str, Tensor], parent: Mapping[str, Tensor], noised: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Give what a model of the other world becomes by the noise that made ``noised`` of ``parent``."""
    return {
        name: (tensor + np.subtract(model[name], parent[name], dtype=np.float64)).astype(tensor.dtype)
        for name, tensor in noised.items()
    }


def _nearness(each: Compared) -> float:
    """Tell how near a distance is to its bound; what is above it comes first."""
    if each.violated:
        return np.inf
    return each.distance / each.bound if each.bound else 0.0
