"""Gaussian noise, exactly: delta, its inverses, and what an attacker can do against it.

Two models at distance alpha, each with noise N(0, sigma^2) on every parameter, are told apart exactly as
well as N(0, 1) and N(mu, 1) with mu = alpha / sigma. Everything below is a function of mu alone. Results are
rounded towards more privacy: delta, epsilon, sigma and attack power up, mu and thresholds down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

# Its parts load when they are used: every message starts a process at a Flower client, which needs none of them.
import scipy

from rescind.core._checks import not_negative, positive, within

_UNIT_ROUNDOFF = 2.0**-53
_SQRT_2 = math.sqrt(2.0)

# The range on which the tests hold the inverses against independent implementations.
EPSILON_RANGE = (1e-3, 800.0)
DELTA_RANGE = (1e-12, 0.5)


@dataclass(frozen=True, slots=True)
class Budget:
    """The guarantee that is asked for: the paper's (epsilon, delta).

    Attributes:
        epsilon: within ``EPSILON_RANGE``.
        delta: within ``DELTA_RANGE``.

    Raises:
        ValueError: one of them is out of its range.

    Paper: Definition 1. Theory section 9.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        reason = "no finite noise gives 0, which retraining gives, and a larger one promises nothing"
        within("epsilon", self.epsilon, EPSILON_RANGE, reason)
        within("delta", self.delta, DELTA_RANGE, "a tenth of 1/clients is a usual choice")

    @property
    def mu(self) -> float:
        """The largest shift, in units of sigma, that the budget allows (mu*)."""
        return largest_mu(self.epsilon, self.delta)

    @property
    def certifiable(self) -> bool:
        """Exact calibration may stand behind a certificate."""
        return True


def log_delta(epsilon: float, mu: float) -> float:
    """Return an upper bound, tight to about 1e-12, of the logarithm of delta(epsilon, mu).

    delta = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu), which is
    e^(-t^2/2) (erfcx(t/sqrt 2) - erfcx(s/sqrt 2)) / 2 with t, s = epsilon/mu -+ mu/2, free of overflow.

    Args:
        epsilon: at least 0.
        mu: the shift in units of sigma, at least 0.

    Returns:
        the logarithm; minus infinity where delta is 0.

    Raises:
        ValueError: an argument is negative or not finite.

    Theory section 9.
    """
    not_negative("epsilon", epsilon)
    not_negative("mu", mu)
    if mu == 0.0:
        return -math.inf
    near = epsilon / mu - mu / 2
    far = epsilon / mu + mu / 2
    if math.isinf(near * near):
        return -math.inf if near > 0 else 0.0
    # What rounding in t and in the special functions can take away is given back.
    slack = 64 * _UNIT_ROUNDOFF
    if near > 0:
        first = float(scipy.special.erfcx(near / _SQRT_2))
        difference = first - float(scipy.special.erfcx(far / _SQRT_2)) + slack * first
        return -near * near / 2 + math.log(difference / 2) + slack * (1 + far * far)
    value = (
        float(scipy.special.ndtr(-near)) - math.exp(-near * near / 2) * float(scipy.special.erfcx(far / _SQRT_2)) / 2
    )
    return min(0.0, math.log(value + slack * (1 + far * far)))


def reached_delta(epsilon: float, mu: float) -> float:
    """Return the delta that a shift of mu sigmas reaches at an epsilon, rounded up.

    Args:
        epsilon: at least 0.
        mu: the shift in units of sigma, at least 0.

    Returns:
        delta, at most 1.

    Raises:
        ValueError: an argument is negative or not finite.

    Theory section 9.
    """
    return min(1.0, math.nextafter(math.exp(log_delta(epsilon, mu)), 1.0))


@lru_cache(maxsize=256)
def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with delta(epsilon, mu) <= delta, rounded down (mu*).

    Args:
        epsilon: within ``EPSILON_RANGE``.
        delta: within ``DELTA_RANGE``.

    Returns:
        the shift in units of sigma.

    Raises:
        ValueError: an argument is out of its range.

    Theory section 9.
    """
    budget = Budget(epsilon, delta)
    target = math.log(budget.delta)
    # Where t = sqrt(2 ln 1/delta), delta(epsilon, mu) <= Phi(-t) <= delta: a mu that is surely small enough.
    reach = math.sqrt(-2 * target)
    low = 2 * epsilon / (reach + math.sqrt(reach * reach + 2 * epsilon))
    high = _doubled(low, lambda mu: log_delta(epsilon, mu) > target)
    root = scipy.optimize.brentq(lambda mu: log_delta(epsilon, mu) - target, low, high, xtol=1e-300, rtol=1e-14)
    return _nudged(root, -1, lambda mu: log_delta(epsilon, mu) <= target)


def reached_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon with delta(epsilon, mu) <= delta, rounded up.

    Args:
        mu: the shift in units of sigma, at least 0.
        delta: within ``DELTA_RANGE``.

    Returns:
        epsilon; 0 where delta covers the shift alone.

    Raises:
        ValueError: an argument is out of its range.

    Theory section 9.
    """
    not_negative("mu", mu)
    within("delta", delta, DELTA_RANGE, "ask for a value in that range")
    target = math.log(delta)
    if log_delta(0.0, mu) <= target:
        return 0.0
    high = mu * math.sqrt(-2 * target) + mu * mu / 2
    root = scipy.optimize.brentq(
        lambda epsilon: log_delta(epsilon, mu) - target, 0.0, 2 * high, xtol=1e-300, rtol=1e-14
    )
    return _nudged(root, +1, lambda epsilon: log_delta(epsilon, mu) <= target)


def smallest_sigma(sensitivity: float, mu: float) -> float:
    """Return the smallest noise that hides a distance within a budget, rounded up.

    Args:
        sensitivity: the distance of the two models (Psi), at least 0.
        mu: the largest shift, in units of sigma, that the budget allows (mu*), above 0.

    Returns:
        the standard deviation of the noise (sigma).

    Raises:
        ValueError: an argument is out of its range.

    Paper: Theorem 2, with the exact formula instead of the classic one. Theory section 9.
    """
    not_negative("sensitivity", sensitivity)
    positive("mu", mu)
    return math.nextafter(sensitivity / mu, math.inf) if sensitivity else 0.0


def sensitivity_threshold(sigma: float, mu: float) -> float:
    """Return the largest sensitivity that noise hides within a budget, rounded down (Psi*).

    Args:
        sigma: the standard deviation of the noise, at least 0.
        mu: the largest shift, in units of sigma, that the budget allows (mu*), above 0.

    Returns:
        the sensitivity.

    Raises:
        ValueError: an argument is out of its range.

    Paper: Eq. (11), with the exact formula instead of the classic one. Theory section 9.
    """
    not_negative("sigma", sigma)
    positive("mu", mu)
    return math.nextafter(sigma * mu, 0.0)


def attack_power(mu: float, false_positive_rate: float) -> float:
    """Return the true positive rate that the best attack reaches at a false positive rate, rounded up.

    Phi(Phi^-1(FPR) + mu): no test of any kind on the released model does better.

    Args:
        mu: the shift in units of sigma, at least 0.
        false_positive_rate: between 0 and 1.

    Returns:
        the true positive rate, at most 1.

    Raises:
        ValueError: an argument is out of its range.

    Theory section 9.
    """
    not_negative("mu", mu)
    if not 0.0 < false_positive_rate < 1.0:
        raise ValueError(f"false_positive_rate is {false_positive_rate!r}; it has to lie between 0 and 1")
    return min(1.0, float(scipy.special.ndtr(scipy.special.ndtri(false_positive_rate) + mu)) * (1 + 1e-12))


def composed_mu(shifts: list[float] | tuple[float, ...]) -> float:
    """Return the mu of several releases seen together: the root of the sum of squares, rounded up.

    Args:
        shifts: the mu of each release, at least 0.

    Returns:
        their mu together; 0 without any release.

    Raises:
        ValueError: a shift is negative or not finite.

    Theory section 11.
    """
    for shift in shifts:
        not_negative("mu", shift)
    return math.hypot(*shifts) * (1 + 8 * len(shifts) * _UNIT_ROUNDOFF) if shifts else 0.0


def _doubled(start: float, reached: Callable[[float], bool]) -> float:
    value = start
    while not reached(value):
        value *= 2
    return value


def _nudged(root: float, direction: int, holds: Callable[[float], bool]) -> float:
    """Move a root by growing steps of rounding size until the inequality it stands for really holds."""
    step = 2.0**-50
    while not holds(root):
        root *= 1 + direction * step
        step *= 2
    return root


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
