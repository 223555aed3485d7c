"""The paper's own noise formula, for reproducing its figures. It never stands behind a certificate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rescind.core.calibration import Budget, reached_delta


@dataclass(frozen=True, slots=True)
class ClassicBudget:
    """The paper's calibration: sigma = sqrt(2 ln(1.25/delta)) Psi / epsilon.

    Its proof needs epsilon < 1. Beyond that it is sometimes still enough, sometimes not; ``reached_delta``
    says what it really gives, and ``holds`` whether that keeps the promise.

    Paper: Theorem 2 and Eq. (11). Theory section 9.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta)

    @property
    def mu(self) -> float:
        """The shift, in units of sigma, that the formula lets through."""
        return self.epsilon / math.sqrt(2 * math.log(1.25 / self.delta))

    @property
    def reached_delta(self) -> float:
        """The delta that the formula's noise really reaches at this epsilon."""
        return reached_delta(self.epsilon, self.mu)

    @property
    def holds(self) -> bool:
        """True if the formula's noise is enough for the (epsilon, delta) it was asked for."""
        return self.reached_delta <= self.delta

    @property
    def certifiable(self) -> bool:
        """Never: where the formula holds the exact one needs less noise, and elsewhere it is wrong."""
        return False
