"""Coupled replay: train again without a client, on the same secrets, and hold the distance against its bound.

It needs an engine that can be asked again, such as a simulator, or a federation with canary clients that agree to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rescind.core.arrays import Tensor
from rescind.core.calibration import reached_epsilon
from rescind.core.facts import DpFedAvg, Facts, PrivacyScope
from rescind.core.sensitivity import group_sensitivity
from rescind.engines.engine import Engine, Replies
from rescind.engines.server import average, norm
from rescind.history.history import History
from rescind.history.lineage import branch_exits
from rescind.ledger.records import ROOT, Branch, ModelId


@dataclass(frozen=True, slots=True, eq=False)
class RecordingEngine:
    """An engine that keeps who took part in each round, and from which model: what a replay needs.

    An erasure takes names and models from the history, not from here: a tape is for audits, and goes with them.
    """

    engine: Engine
    rounds: dict[ModelId, tuple[Mapping[str, Tensor], tuple[str, ...]]] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        """What claims rest on."""
        return self.engine.facts

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of everybody who could take part."""
        return self.engine.clients

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0."""
        return self.engine.start()

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:
        """Choose who takes part."""
        return self.engine.draw(model_id, present)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        """Train a round, and keep what it was made of."""
        replies = self.engine.train(model, model_id, names)
        self.rounds[model_id] = (model, replies.names)
        return replies

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float | None:
        """Return the mean of the named clients' accuracies."""
        return self.engine.accuracy(model, names)

    def test_accuracy(self, model: Mapping[str, Tensor]) -> float | None:
        """Return the accuracy on held-out data."""
        return self.engine.test_accuracy(model)

    def model(self, model_id: ModelId) -> Mapping[str, Tensor]:
        """Return a model: the one that the round after it began with, or else made once more."""
        after = ModelId(model_id.branch, model_id.round + 1)
        if after in self.rounds:
            return self.rounds[after][0]
        if model_id not in self.rounds:
            raise ValueError(
                f"{model_id} was not recorded: give this recording engine to whoever trains, for a round at least"
            )
        return self.next_model(*self.rounds[model_id], model_id)

    def next_model(self, model: Mapping[str, Tensor], names: Sequence[str], model_id: ModelId) -> dict[str, Tensor]:
        """Make a model again, from a model and by the named clients only."""
        if isinstance(self.facts.public, DpFedAvg):
            raise ValueError("rounds of DP-FedAvg have noise of their own, which nobody can draw again")
        rate = self.engine.facts.training.server_learning_rate
        return average(model, self.engine.train(model, model_id, names), rate).model


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far a model is from the one without the group (alpha), and how far it may be (Psi)."""

    model_id: ModelId
    distance: float
    bound: float

    @property
    def violated(self) -> bool:
        """True if the bound does not hold."""
        return not self.distance <= self.bound

    def epsilon(self, sigma: float, delta: float) -> float:
        """Return the epsilon that noise of ``sigma`` really has here, beside the certified one."""
        return reached_epsilon(self.distance / sigma, delta)


def train_without(
    tape: RecordingEngine, known: Mapping[int, Branch], leaving: Collection[str], model_id: ModelId
) -> Iterator[tuple[ModelId, Mapping[str, Tensor]]]:
    """Return every model on the way to another as it would be had the leaving never taken part.

    Participation of the others, batches and noise are those of the real world. ``known`` are the history's branches.

    Theory section 15.
    """
    model: Mapping[str, Tensor] = tape.start()
    yield ROOT, model
    for leg in branch_exits(known, model_id):
        branch, first = known[leg.branch], ModelId(leg.branch, 0)
        if branch.unbounded:
            raise ValueError(f"branch {branch.number} began in a way that cannot be repeated in another world")
        if branch.parent is not None:
            if branch.sigma:
                model = _same_noise(model, tape.model(branch.parent), tape.model(first))
            yield first, model
        for number in range(1, leg.round + 1):
            here = ModelId(leg.branch, number)
            _, names = tape.rounds[here]
            model = tape.next_model(model, [name for name in names if name not in leaving], here)
            yield here, model


def compare_worlds(
    history: History, tape: RecordingEngine, leaving: Collection[str], scope: PrivacyScope = PrivacyScope.GROUP
) -> list[Comparison]:
    """Hold the bound against the distance at every model up to the newest; before a request is carried out.

    With ``PrivacyScope.INDIVIDUAL`` each client is replayed alone; of each model the one nearest to its bound counts.

    Theory section 15.
    """
    if scope is PrivacyScope.INDIVIDUAL and len(leaving) > 1:
        alone = [compare_worlds(history, tape, [name]) for name in leaving]
        return [max(comparisons, key=_nearness) for comparisons in zip(*alone, strict=True)]
    group = history.clients(list(leaving))
    # People may have called them by their labels.
    names = set(history.names(group))
    path = history.lineage(group=group)
    bounds = group_sensitivity(path.edges, group)
    return [
        Comparison(model_id, distance(tape.model(model_id), other), float(bounds[path.index[model_id]]))
        for model_id, other in train_without(tape, history.timeline.branches, names, history.newest)
        if model_id in path.index
    ]


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Return the Euclidean distance of two models."""
    return norm({name: np.subtract(one[name], other[name], dtype=np.float64) for name in one})


def _same_noise(
    model: Mapping[str, Tensor], parent: Mapping[str, Tensor], noised: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return what a model of the other world becomes by the noise that made ``noised`` of ``parent``."""
    return {
        name: (tensor + np.subtract(model[name], parent[name], dtype=np.float64)).astype(tensor.dtype)
        for name, tensor in noised.items()
    }


def _nearness(comparison: Comparison) -> float:
    """Return how near a distance is to its bound: their ratio, infinite above the bound."""
    if comparison.violated:
        return np.inf
    return comparison.distance / comparison.bound if comparison.bound else 0.0
