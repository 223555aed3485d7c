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
    ) -> RecoveryCurve:
        """Return the curve of recorded models: ``moves`` are the distances between each and the next.

        A round that moves the model by w gains about ||w||^2 / (eta_s K eta) of loss, since w is about that many
        gradients; k rounds that move it by as much gain a k-th of that. To an L2 head's loss noise adds about
        sigma^2 (beta - lambda)/2, however many parameters there are; for other losses the mean curvature of the way
        from theta_0^0 to the last model stands in for every direction's.

        Theory section 12.
        """
        rounds = np.diff(trained)
        pace = training.server_learning_rate * training.steps * training.learning_rate
        gains = np.where(rounds > 0, moves**2 / (np.maximum(rounds, 1) * pace), 0.0)
        excess = np.append(np.cumsum(gains[::-1])[::-1], 0.0)
        loss = training.loss
        if isinstance(loss, SoftmaxL2 | LogisticL2):
            # Half of it: the steep directions, where noise costs most, are free of it after a round or two.
            cost = (loss.curvature.high - loss.curvature.low) / 4
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


def predicted_rounds(curve: RecoveryCurve, node: float, sigma: float, parameters: int) -> float:
    """Predict the rounds from a node with noise ``sigma`` on its ``parameters`` (d) to a model as good as the last.

    Noise adds its cost to what was left to gain, and the curve turns that into rounds. Where the noise's norm, sigma
    sqrt(d), exceeds the node's distance from theta_0^0 it drowns what was learnt: at least the rounds of retraining.

    Theory section 12.
    """
    rounds = curve.rounds_from(curve.excess_at(node) + curve.noise_cost * sigma**2)
    drowned = sigma * math.sqrt(parameters) > curve.travelled_at(node)
    return max(rounds, curve.rounds) if drowned else rounds
