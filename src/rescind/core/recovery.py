"""How many rounds a noised model will need to be as good again: one prediction, used to compare candidates.

It is a guess and only ranks candidates; no guarantee rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rescind.core._checks import not_negative
from rescind.core.arrays import Floats
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.training import LocalTraining

# The part of what the whole way gained that training may leave and be as good, and the points drawn of its approach.
_AS_GOOD, _PARTS = 1e-3, 16


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryCurve:
    """How training approached its last model: ``excess[j]`` is what was left to gain at node ``nodes[j]``.

    ``nodes`` are nodes of the path, the first theta_0^0, the last the last model (excess 0); ``travelled`` holds
    their distances from theta_0^0. Noise adds ``noise_cost`` sigma^2 to the excess. ``trained`` counts the rounds up
    to each node where that is another number than the node's: an erased stretch is one edge of many rounds.

    Theory section 12.
    """

    nodes: Floats
    excess: Floats
    travelled: Floats
    noise_cost: float
    trained: Floats | None = None

    def __post_init__(self) -> None:
        sizes = {len(values) for values in (self.nodes, self.excess, self.travelled)}
        if sizes != {len(self.nodes)} or len(self.nodes) < 2:
            raise ValueError("a recovery curve needs two nodes or more, each with its excess and the way travelled")
        trained = self._trained
        if trained.shape != self.nodes.shape or not ((np.diff(trained) >= 0).all() and trained[-1] > trained[0]):
            raise ValueError("a recovery curve needs the rounds trained up to each node, more at its end than before")
        if not ((np.diff(self.nodes) > 0).all() and (self.excess >= 0).all() and (self.travelled >= 0).all()):
            raise ValueError("a recovery curve needs increasing nodes, and excesses and distances of at least 0")
        not_negative("noise_cost", self.noise_cost)

    @classmethod
    def measured(
        cls,
        nodes: Floats,
        trained: Floats,
        moves: Floats,
        travelled: Floats,
        parameters: int,
        training: LocalTraining,
        solved: Floats | None = None,
    ) -> RecoveryCurve:
        """Return the curve of recorded models: ``moves`` are the distances between each and the next.

        A round that moves the model by w gains about ||w||^2 / (eta_s K eta) of loss, since w is about that many
        gradients; k rounds that move it by as much gain a k-th of that. To an L2 head's loss noise adds about
        sigma^2 (beta - lambda)/4, however many parameters there are; for other losses the mean curvature of the way
        from theta_0^0 to the last model stands in for every direction's.

        ``solved`` counts the solver's rounds among those up to each node. They tell nothing of how long training
        takes: in their place stand rounds of training that would lead as far.

        Theory section 12.
        """
        if solved is not None and np.diff(solved).any() and isinstance(training.loss, SoftmaxL2 | LogisticL2):
            return _solved_curve(nodes, trained, moves, travelled, training, training.loss, solved)
        rounds = np.diff(trained)
        pace = training.server_learning_rate * training.steps * training.learning_rate
        gains = np.where(rounds > 0, moves**2 / (np.maximum(rounds, 1) * pace), 0.0)
        excess = np.append(np.cumsum(gains[::-1])[::-1], 0.0)
        if isinstance(training.loss, SoftmaxL2 | LogisticL2):
            cost = _head_noise_cost(training.loss)
        else:
            cost = parameters * float(excess[0]) / float(travelled[-1]) ** 2 if travelled[-1] else 0.0
        return cls(nodes, excess, travelled, cost, trained)

    @classmethod
    def public(cls, contraction: float, radius: float, rounds: int, parameters: int) -> RecoveryCurve:
        """Return the curve that a public ``contraction`` (rho) and ``radius`` allow, in squared distances.

        This is all that a strict plan may look at. What is gained is the square of the way travelled.

        Theory section 12.
        """
        nodes = np.arange(rounds + 1, dtype=np.float64)
        excess = (radius * contraction**nodes) ** 2
        return cls(nodes, excess, np.sqrt(excess[0] - excess), float(parameters))

    @property
    def rounds(self) -> float:
        """The rounds that training took, and so what retraining from theta_0^0 is expected to take."""
        return float(self._trained[-1] - self._trained[0])

    def excess_at(self, node: float) -> float:
        """Return what was left to gain at a node, interpolated between the recorded ones."""
        return float(np.interp(node, self.nodes, self.excess))

    def travelled_at(self, node: float) -> float:
        """Return a node's distance from theta_0^0, interpolated between the recorded ones."""
        return float(np.interp(node, self.nodes, self.travelled))

    def rounds_from(self, excess: float) -> float:
        """Return the rounds still needed with so much to gain: those that training needed from there on.

        Beyond the excess of theta_0^0 the first part's decay is extrapolated.
        """
        # Training may step back for a while; only the last time it had as much to gain counts.
        envelope = np.maximum.accumulate(self.excess[::-1])
        remaining = (self._trained[-1] - self._trained)[::-1]
        if excess <= envelope[-1]:
            return float(np.interp(excess, envelope, remaining))
        if envelope[-1] == 0.0:
            return self.rounds
        middle = (self._trained[0] + self._trained[-1]) / 2
        half = max(float(np.interp(middle, self._trained, self.excess)), math.ulp(1.0) * envelope[-1])
        rate = max(math.log(envelope[-1] / half), 1e-3) / (self.rounds / 2)
        return self.rounds + math.log(excess / float(envelope[-1])) / rate

    @property
    def _trained(self) -> Floats:
        return self.nodes if self.trained is None else self.trained


def _head_noise_cost(loss: SoftmaxL2 | LogisticL2) -> float:
    # Half of it: the steep directions, where noise costs most, are free of it after a round or two.
    return (loss.curvature.high - loss.curvature.low) / 4


def _solved_curve(
    nodes: Floats,
    trained: Floats,
    moves: Floats,
    travelled: Floats,
    training: LocalTraining,
    loss: SoftmaxL2 | LogisticL2,
    solved: Floats,
) -> RecoveryCurve:
    """Return the curve of a head whose path has solves on it.

    A head's loss begins at about 1 (log C) and is 0 at best: over a way of length w that is a curvature of about
    1/w^2, by which training approaches a solution. A solve is taken for the rounds in which that makes a thousandth
    of what the whole way gained of what was left.
    """
    pace = training.server_learning_rate * training.steps * training.learning_rate
    way = max(float(travelled[-1]), math.ulp(1.0))
    curvature = min(max(1 / way**2, loss.curvature.low), loss.curvature.high)
    rate, end = 2 * curvature * pace, curvature * way**2 / 2 * _AS_GOOD
    places, gains, rounds = [np.array([nodes[0]])], list[Floats](), list[Floats]()
    for at, (move, made, by_solver) in enumerate(zip(moves, np.diff(trained), np.diff(solved), strict=True)):
        if by_solver:
            gain = curvature * move**2 / 2
            length = max(math.log(max(gain / end, 1.0)) / rate, 1.0)
            parts = np.linspace(0.0, 1.0, _PARTS + 1)
            left = np.exp(-rate * length * parts)
            gains.append(gain * -np.diff(left) / (1 - left[-1]))
            rounds.append(np.full(_PARTS, (length + made - by_solver) / _PARTS))
        else:
            parts = np.array([0.0, 1.0])
            gains.append(np.array([move**2 / (max(made, 1) * pace) if made else 0.0]))
            rounds.append(np.array([made]))
        places.append(nodes[at] + (nodes[at + 1] - nodes[at]) * parts[1:])
    places_, gains_, rounds_ = (np.concatenate(lists) for lists in (places, gains, rounds))
    excess = np.append(np.cumsum(gains_[::-1])[::-1], 0.0)
    covered = np.interp(places_, nodes, travelled)
    return RecoveryCurve(places_, excess, covered, _head_noise_cost(loss), np.append(0.0, np.cumsum(rounds_)))


def predicted_rounds(curve: RecoveryCurve, node: float, sigma: float, parameters: int) -> float:
    """Predict the rounds from a node with noise ``sigma`` on its ``parameters`` (d) to a model as good as the last.

    Noise adds its cost to what was left to gain, and the curve turns that into rounds. Where the noise's norm, sigma
    sqrt(d), exceeds the node's distance from theta_0^0 it drowns what was learnt: at least the rounds of retraining.

    Theory section 12.
    """
    rounds = curve.rounds_from(curve.excess_at(node) + curve.noise_cost * sigma**2)
    drowned = sigma * math.sqrt(parameters) > curve.travelled_at(node)
    return max(rounds, curve.rounds) if drowned else rounds
