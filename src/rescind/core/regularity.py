"""How far one round of local training can drive two models apart: the expansion factor B and rho = B^K.

A gradient step on a loss whose curvature lies in [low, high] multiplies the distance of two models by at most
B = max(|1 - eta low|, |1 - eta high|), for every learning rate eta. Smooth, convex and strongly convex losses
differ only in ``low``: -beta, 0 and mu.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rescind.core._checks import at_most_one, not_negative, positive

Factor = TypeVar("Factor", float, NDArray[np.float64])

# Pays for the roundings of 1 - eta mu_prox - eta end, each below a unit in the last place of a number up to 4.
_ABSOLUTE = 2.0**-49

# Up to so many steps the factor with a proximal term is computed step by step.
_MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Curvature:
    """Bounds on the eigenvalues of the Hessian.

    Attributes:
        low: the lower bound; the paper's mu if it is positive.
        high: the upper bound, above 0 (the paper's beta).

    Raises:
        ValueError: this is not an interval with a positive end.

    Theory section 2.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high > 0):
            raise ValueError(f"curvature [{self.low!r}, {self.high!r}] is not an interval with a positive end")


@runtime_checkable
class Loss(Protocol):
    """What the theorem has to know of a loss.

    Theory section 2.
    """

    @property
    def curvature(self) -> Curvature | None:
        """Where the eigenvalues of the Hessian lie; ``None`` where nobody has proven it."""

    @property
    def gradient_bound(self) -> float | None:
        """L: the largest norm of one sample's gradient without the L2 term, if there is a bound."""


# Its square is far within float64's range.
_LARGEST_NORM = 1e100


@dataclass(frozen=True, slots=True)
class _L2Head:
    """A linear head under the conditions of the two classes below, which supply the two constants."""

    l2: float
    row_norm: float
    _logit_curvature = math.nan
    _residual = math.nan

    def __post_init__(self) -> None:
        not_negative("l2", self.l2)
        positive("row_norm", self.row_norm)

    @property
    def curvature(self) -> Curvature:
        """Return mu = lambda and beta = (R^2+1) h + lambda, h the largest curvature in the logits."""
        return Curvature(self.l2, _up((self.row_norm * self.row_norm + 1) * self._logit_curvature + self.l2))

    @property
    def gradient_bound(self) -> float:
        """L, the largest norm of one sample's gradient without the L2 term."""
        return _up(self._residual * math.sqrt(self.row_norm * self.row_norm + 1))


@dataclass(frozen=True, slots=True)
class SoftmaxL2(_L2Head):
    """Softmax regression: batch mean, L2 term on *all* parameters, rows of norm <= R.

    beta = (R^2+1)/2 + lambda, mu = lambda, L = sqrt(2 (R^2+1)). A bias without the L2 term or class weights leave
    this formula.

    Attributes:
        l2: the L2 term (lambda), at least 0.
        row_norm: the largest norm of a row (R), public and enforced by clipping on every client.

    Raises:
        ValueError: ``l2`` is negative or ``row_norm`` not above 0, or one of them is not finite.

    Theory section 2.
    """

    _logit_curvature = 0.5
    _residual = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class LogisticL2(_L2Head):
    """One-logit logistic regression under the same conditions: beta = (R^2+1)/4 + lambda, L = sqrt(R^2+1).

    Attributes:
        l2: the L2 term (lambda), at least 0.
        row_norm: the largest norm of a row (R), public and enforced by clipping on every client.

    Raises:
        ValueError: ``l2`` is negative or ``row_norm`` not above 0, or one of them is not finite.

    Theory section 2.
    """

    _logit_curvature = 0.25
    _residual = 1.0


@dataclass(frozen=True, slots=True)
class SquaredL2:
    """Squared error of a linear head (ridge), 1/2 ||theta x' - y||^2, with the L2 term on *all* parameters.

    It is solved for, not trained: its gradient has no bound that holds for every model, L = R' (R' ||theta|| + Y).
    beta = R'^2 + lambda, mu = lambda, and the solution's norm is at most Y/sqrt(lambda), with R'^2 = R^2 + 1.

    Attributes:
        l2: the L2 term (lambda), above 0.
        row_norm: the largest norm of a row (R), public and enforced by clipping on every client.
        target_norm: the largest norm of a target (Y), in the same way; 1 for classes.
        most_rows: the most rows of a client; who tells of more is rejected, whoever else takes part.
        most_clients: the most clients in one solution. Rows times clients decide how finely the sums are rounded.
        l2_choices: L2 terms of which each solve takes the one with the least squared error on clients that are left
            out in turn; ``l2`` where that cannot be told. Nothing: always ``l2``.

    Raises:
        ValueError: one of them is not a finite number above 0, or a limit not a whole one.

    Theory section 16.
    """

    l2: float
    row_norm: float
    target_norm: float = 1.0
    most_rows: int = 2**16
    most_clients: int = 2**8
    l2_choices: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name in ("most_rows", "most_clients"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 2**63:
                raise ValueError(f"{name} is {number!r:.40}; it has to be a whole number from 1 to 2^63 - 1")
        if not isinstance(self.l2_choices, tuple):
            raise ValueError(f"l2_choices is {self.l2_choices!s:.40}; give a tuple of numbers")
        named = [(name, getattr(self, name)) for name in ("l2", "row_norm", "target_norm")]
        for name, number in [*named, *(("l2_choices", choice) for choice in self.l2_choices)]:
            positive(name, number)
            if number > _LARGEST_NORM:
                raise ValueError(f"{name} is {number!r}; it has to be at most {_LARGEST_NORM:g}")
        # As numpy makes them, for the most part.
        object.__setattr__(self, "l2_choices", tuple(map(float, self.l2_choices)))

    @property
    def possible_l2(self) -> tuple[float, ...]:
        """The L2 terms that a solve can take, from the smallest on."""
        return tuple(sorted({self.l2, *self.l2_choices}))

    @property
    def curvature(self) -> Curvature:
        """Return mu = lambda and beta = R^2 + 1 + lambda, of the smallest and the largest possible lambda."""
        possible = self.possible_l2
        return Curvature(possible[0], _up(self.row_norm * self.row_norm + 1 + possible[-1]))

    @property
    def gradient_bound(self) -> None:
        """There is none: the farther a model, the longer its gradient."""
        return


@dataclass(frozen=True, slots=True)
class DeclaredLoss:
    """A loss whose curvature the operator declares: smooth [-beta, beta], convex [0, beta] or better.

    Attributes:
        curvature: where the eigenvalues of the Hessian lie.
        gradient_bound: the largest norm of one sample's gradient, but for an L2 term of ``curvature.low`` where that
            is positive. With it, updates that are too long are rejected; without it, one client can raise everybody's
            bound.

    Paper: Eq. (26), (27), (28). Theory section 2.
    """

    curvature: Curvature
    gradient_bound: float | None = None


@dataclass(frozen=True, slots=True)
class NetworkLoss:
    """The loss of a whole network, or any other without a curvature bound, treated as if B were 1.

    That is the paper's choice for its networks and false in general: what noise hides then is ``heuristic``. Clients
    can be forgotten exactly all the same.

    Attributes:
        gradient_bound: the largest norm of one sample's gradient, if there is a bound.

    Paper: Section 5.1. Theory section 2.
    """

    gradient_bound: float | None = None

    @property
    def curvature(self) -> None:
        """Unknown."""
        return


def expansion(curvature: Curvature, learning_rate: float) -> float:
    """Return B: the factor of one gradient step, for every learning rate, rounded up.

    Args:
        curvature: where the eigenvalues of the Hessian lie.
        learning_rate: eta, above 0.

    Returns:
        the factor by which a step can drive two models apart.

    Raises:
        ValueError: ``learning_rate`` is not a finite number above 0.

    Paper: Eq. (26), (27), (28), the third sharpened. Theory section 2.
    """
    return local_factor(curvature, learning_rate, steps=1)


def local_factor(curvature: Curvature, learning_rate: float, steps: int, proximal: float = 0.0) -> float:
    """Return rho: the factor of a client's local steps, rounded up.

    Without the proximal term it is B^K. With it, c^K + eta mu_prox (1 + c + ... + c^(K-1)), where c is the factor of
    a step whose anchor is held fixed; for convex losses and eta <= 2/(beta + 2 mu_prox) that is 1.

    Args:
        curvature: where the eigenvalues of the Hessian lie.
        learning_rate: eta, above 0.
        steps: the number of local steps (K), at least 0.
        proximal: FedProx's term (mu_prox), at least 0.

    Returns:
        the factor by which the steps can drive two models apart.

    Raises:
        ValueError: an argument is out of its range.

    Paper: Theorem 1. Theory section 2.
    """
    positive("learning_rate", learning_rate)
    not_negative("steps", steps)
    not_negative("proximal", proximal)
    if curvature.low == 0.0 and learning_rate * (curvature.high + 2 * proximal) <= 2.0:
        return 1.0
    pull = learning_rate * proximal
    step = step_factor(curvature, learning_rate, proximal)
    if pull == 0.0:
        try:
            return _up(step**steps)
        except OverflowError:
            return math.inf
    total = 1.0
    if steps > _MOST_STEPS:
        whole, added = _repeated(step, pull, steps)
        return _up(whole + added)
    for _ in range(steps):
        total = _up(step * total + pull)
    return total


def _repeated(step: float, pull: float, steps: int) -> tuple[float, float]:
    """Return c^K and pull (1 + c + ... + c^(K-1)), rounded up, by doubling: so nothing cancels where c is near 1."""
    if steps == 1:
        return step, pull
    half, added = _repeated(step, pull, steps // 2)
    whole, total = _up(half * half), _up(half * added + added)
    return (_up(step * whole), _up(step * total + pull)) if steps % 2 else (whole, total)


def step_factor(curvature: Curvature, learning_rate: float, proximal: float = 0.0) -> float:
    """Return the factor of one step whose anchor, if there is a proximal term, is held fixed, rounded up.

    Args:
        curvature: where the eigenvalues of the Hessian lie.
        learning_rate: eta.
        proximal: FedProx's term (mu_prox).

    Returns:
        the factor by which the step can drive two models apart.

    Theory section 2.
    """
    ends = (abs(1 - learning_rate * proximal - learning_rate * end) for end in (curvature.low, curvature.high))
    # The differences may cancel, so what is added is absolute.
    return _up(max(ends)) + _ABSOLUTE


def server_factor(factor: Factor, server_learning_rate: float) -> Factor:
    """Return the factor of a round whose update the server scales by eta_s: 1 - eta_s + eta_s rho.

    Args:
        factor: rho, a number or an array.
        server_learning_rate: eta_s, above 0 and at most 1.

    Returns:
        the factor of the round, rounded up.

    Raises:
        ValueError: ``server_learning_rate`` is out of its range.

    Theory section 2.
    """
    at_most_one("server_learning_rate", server_learning_rate)
    if server_learning_rate == 1.0:
        return factor
    return _up((1.0 - server_learning_rate) + server_learning_rate * factor)


def _up(value: Factor) -> Factor:
    # Wide enough for the handful of roundings in each expression above.
    return value * (1 + 2.0**-50)
