"""How many rounds a noised model will need to be as good again: one prediction, used to compare candidates.

It is a guess and only ranks candidates; no guarantee rests on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rescind.core._checks import not_negative
from rescind.core.edges import Floats

# Below this the noise outweighs the signal in the noised node, and shrinking it pays.
SHRINK_BELOW = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryCurve:
    """How training approached its last model: ``distances[j]`` is ||theta - theta_last|| at node ``nodes[j]``.

    ``nodes`` are nodes of the path, the first theta_0^0, the last the last model (distance 0). The distances are the
    recorded ones or, from ``public``, what follows from constants alone. ``trained`` counts the rounds up to each
    node where that is another number than the node's: an erased stretch is one edge of many rounds.

    Theory: 12.
    """

    nodes: Floats
    distances: Floats
    trained: Floats | None = None

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.distances) or len(self.nodes) < 2:
            raise ValueError("a recovery curve needs two nodes or more, each with its distance")
        trained = self._trained
        if trained.shape != self.nodes.shape or not ((np.diff(trained) >= 0).all() and trained[-1] > trained[0]):
            raise ValueError("a recovery curve needs the rounds trained up to each node, more at its end than before")
        if not ((np.diff(self.nodes) > 0).all() and (self.distances >= 0).all()):
            raise ValueError("a recovery curve needs increasing nodes and distances of at least 0")

    @classmethod
    def public(cls, contraction: float, radius: float, rounds: int) -> RecoveryCurve:
        """Give the curve that a public ``contraction`` (rho) and ``radius`` allow: radius * rho^n.

        This is all that a strict plan may look at.

        Theory: 12.
        """
        nodes = np.arange(rounds + 1, dtype=np.float64)
        return cls(nodes, radius * contraction**nodes)

    @property
    def rounds(self) -> float:
        """The rounds that training took, and so what retraining from theta_0^0 is expected to take."""
        return float(self._trained[-1] - self._trained[0])

    def distance(self, node: float) -> float:
        """Give the distance at a node, interpolated between the recorded ones."""
        return float(np.interp(node, self.nodes, self.distances))

    def rounds_from(self, distance: float) -> float:
        """Give the rounds still needed at a distance: those that training needed once it had come that near.

        Beyond the distance of theta_0^0 the first part's contraction is extrapolated.
        """
        # Training may step back for a while; only the last time it was as far away counts.
        envelope = np.maximum.accumulate(self.distances[::-1])
        remaining = (self._trained[-1] - self._trained)[::-1]
        if distance <= envelope[-1]:
            return float(np.interp(distance, envelope, remaining))
        if envelope[-1] == 0.0:
            return self.rounds
        middle = (self._trained[0] + self._trained[-1]) / 2
        half = max(float(np.interp(middle, self._trained, self.distances)), math.ulp(1.0) * envelope[-1])
        rate = max(math.log(envelope[-1] / half), 1e-3) / (self.rounds / 2)
        return self.rounds + math.log(distance / float(envelope[-1])) / rate

    @property
    def _trained(self) -> Floats:
        return self.nodes if self.trained is None else self.trained


def shrinkage(noised_distance: float, sigma: float, parameters: int) -> float:
    """Give the factor by which to pull the noised node towards theta_0^0; 1 leaves it as it is.

    max(0, 1 - sigma^2 d / ||noised - theta_0^0||^2), applied where it is below one half. It uses sigma, d
    (``parameters``) and the noised node alone, so it is post-processing and costs no privacy.

    Theory: 12.
    """
    not_negative("noised_distance", noised_distance)
    not_negative("sigma", sigma)
    if sigma == 0.0:
        return 1.0
    noise, square = sigma**2 * parameters, noised_distance**2
    factor = 1 - noise / square if square > noise else 0.0
    return factor if factor < SHRINK_BELOW else 1.0


def predicted_rounds(
    curve: RecoveryCurve, node: float, sigma: float, parameters: int, *, shrinks: bool = True
) -> float:
    """Predict the rounds from a node with noise ``sigma`` on its ``parameters`` (d) to a model as good as the last.

    The noise is orthogonal to what is left to learn, so the distances add as squares; after shrinking by s the
    node lies (1-s) of the way back to theta_0^0 and s of the noise is left. The curve turns distance into rounds.
    A strict plan does not shrink.

    Theory: 12.
    """
    start, here = curve.distance(curve.nodes[0]), curve.distance(node)
    noise = sigma * math.sqrt(parameters)
    travelled = max(start - here, 0.0)
    kept = shrinkage(math.hypot(travelled, noise), sigma, parameters) if shrinks else 1.0
    return curve.rounds_from(math.hypot((1 - kept) * start + kept * here, kept * noise))
