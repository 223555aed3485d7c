"""The two searches for the least loss of a head: Newton's method, and L-BFGS where its Hessian is too large to send.

Newton's method is for a strongly convex loss. A step is accepted if it lowers the loss, or shortens the gradient
where losses no longer differ visibly. One that is refused is made shorter, at the least so short that the loss falls
in any case.

L-BFGS has the features' curvature as its first guess of the Hessian. For every model the Hessian is at most
h (I - 11'/C) (x) X'X/N + lambda I, h = 1/2 (1/4 for one logit): Boehning's bound. Steps with that matrix are safe:
they lower the loss and shorten the gradient in the matrix's norm. They are also short, so L-BFGS takes the same
matrix with a smaller h, which it fits to the last step. Where that leads too far, the safe step is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from rescind.core.arrays import Floats

# Newton's method: the part of what a step's slope promises by which the loss has to fall, or of its length by which
# the gradient has to be shorter.
_DECREASE = 1e-4
# Differences of losses below this part of them may be rounding: then the gradient alone judges.
_VISIBLE = 1e-10
# A refused step of Newton's is shortened to between these parts of it.
_SHORTENED = (0.1, 0.5)
# How many steps L-BFGS remembers.
_MEMORY = 32
# The part of the last gradient's length that a new one of L-BFGS may have at most.
_SHORTER = 0.999
# The smallest h that is tried.
_LEAST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class NewtonSearch:
    """Where Newton's method stands: the last accepted model, and the step from it that is being tried.

    Attributes:
        base: the last accepted model.
        value: the lowest loss of an accepted model.
        gradient: the gradient of ``base``.
        direction: where the step leads.
        length: the part of ``direction`` that is tried.
        certain: the step lowers the loss in any case.

    Theory section 16.
    """

    base: Floats
    value: float
    gradient: Floats
    direction: Floats
    length: float = 1.0
    certain: bool = False

    @property
    def target(self) -> Floats:
        """Where the step ends."""
        return self.base + self.length * self.direction

    def accepts(self, value: float, gradient: Floats) -> bool:
        """Return whether the step that was tried is good enough, by the loss and the gradient where it ended.

        Theory section 16.
        """
        visible, promised = _VISIBLE * max(1.0, self.value), -self.length * float(self.gradient @ self.direction)
        if self.certain or value < self.value - max(visible, _DECREASE * promised):
            return True
        shorter = np.linalg.norm(gradient) <= (1 - _DECREASE * self.length) * np.linalg.norm(self.gradient)
        return bool(shorter and value <= self.value + visible)


def newton_step(
    search: NewtonSearch | None,
    theta: Floats,
    value: float,
    gradient: Floats,
    hessian: Floats,
    *,
    steepest: float,
    spread: float,
) -> NewtonSearch:
    """Return the next step: on from the model that was tried, or a shorter one from the model before.

    Args:
        search: the step that led here; None at the start.
        theta: the model that was tried.
        value: its loss.
        gradient: its gradient.
        hessian: its Hessian, all eigenvalues above 0.
        steepest: beta, at least the largest eigenvalue anywhere.
        spread: along a step of length 1 the Hessian grows at most by the factor e to this power.

    Returns:
        the next step; its ``target`` is to be tried.

    Theory section 16.
    """
    if search is None or search.accepts(value, gradient):
        lowest = value if search is None else min(value, search.value)
        try:
            factor = scipy.linalg.cho_factor(hessian)
        except np.linalg.LinAlgError:
            return NewtonSearch(theta, lowest, gradient, -gradient / steepest, certain=True)
        return NewtonSearch(theta, lowest, gradient, -scipy.linalg.cho_solve(factor, gradient))
    rise = spread * float(np.linalg.norm(search.direction))
    least = math.log1p(rise) / rise
    length = _shorten(
        search, float(gradient @ search.direction), float(search.direction @ hessian @ search.direction)
    )
    return replace(search, length=max(length, least), certain=length <= least)


def _shorten(search: NewtonSearch, slope: float, curvature: float) -> float:
    """Return where the loss is least along a step that was too long, by a cubic that fits its slopes at both ends."""
    low, high = (part * search.length for part in _SHORTENED)
    first = float(search.gradient @ search.direction)
    # The slope first (1 - x) at the start, as the step is Newton's, and slope + curvature (x - length) at the end.
    rise, bend = slope - first, -first * search.length
    end = curvature * search.length
    roots = np.roots([bend + end - 2 * rise, 3 * rise - 2 * bend - end, bend, first])
    inside = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and 0 < root.real < 1]
    return float(np.clip(search.length * min(inside), low, high)) if inside else high


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """The matrices h (I - 11'/C) (x) M + lambda I, for the eigenvectors and eigenvalues of one M and every h.

    Attributes:
        classes: C; 1 for logistic regression, where I - 11'/C is 1.
        l2: lambda.
        values: the eigenvalues of M, one for each column of [W | b].
        vectors: its eigenvectors; None if M is diagonal.
        largest: the h with which it bounds every Hessian.

    Theory section 16.
    """

    classes: int
    l2: float
    values: Floats
    vectors: Floats | None
    largest: float

    @classmethod
    def of_features(cls, features: Floats, classes: int, l2: float) -> Bound:
        """Return the bound for the mean of x'x'^T over all rows.

        Theory section 16.
        """
        values, vectors = np.linalg.eigh(features)
        return cls(classes, l2, np.maximum(values, 0.0), vectors, _largest(classes))

    @classmethod
    def of_rows(cls, longest: float, width: int, classes: int, l2: float) -> Bound:
        """Return the bound for all rows that are no longer than ``longest`` (R').

        Theory section 16.
        """
        return cls(classes, l2, np.full(width, longest**2), None, _largest(classes))

    def solve(self, vector: Floats, height: float) -> Floats:
        """Return the inverse of the matrix with h = ``height``, times a vector.

        Theory section 16.
        """
        spread, mean = self._split(vector)
        spread = self._turn(self._turn(spread) / (height * self.values + self.l2), back=True)
        return np.asarray(spread + mean / self.l2).reshape(-1)

    def norm(self, gradient: Floats) -> float:
        """Return the gradient's length in the norm in which safe steps shorten it.

        Theory section 16.
        """
        return float(np.sqrt(gradient @ self.solve(gradient, self.largest)))

    def fit(self, step: Floats, change: Floats) -> float:
        """Return the h whose matrix takes a change of the gradient for as long a step as it came from.

        Theory section 16.
        """
        spread, mean = self._split(change)
        weights = (self._turn(spread) ** 2).sum(axis=0)
        wanted = float(step @ change) - float(mean @ mean) * self.classes / self.l2
        low, high = np.log(_LEAST), np.log(self.largest)
        for _ in range(30):
            middle = (low + high) / 2
            if float((weights / (np.exp(middle) * self.values + self.l2)).sum()) > wanted:
                low = middle
            else:
                high = middle
        return float(np.exp(high))

    def _split(self, vector: Floats) -> tuple[Floats, Floats]:
        """Part a vector into what differs between the classes, and what they share, where curvature is lambda."""
        matrix = vector.reshape(self.classes, -1)
        mean = matrix.mean(axis=0) if self.classes > 1 else np.zeros(matrix.shape[1])
        return matrix - mean, mean

    def _turn(self, matrix: Floats, *, back: bool = False) -> Floats:
        if self.vectors is None:
            return matrix
        return matrix @ (self.vectors.T if back else self.vectors)


@dataclass(frozen=True, slots=True, eq=False)
class QuasiNewtonSearch:
    """Where L-BFGS stands: the last accepted model, what was learned of the Hessian, and the step that is tried.

    Attributes:
        bound: Boehning's bound.
        base: the last accepted model.
        value: the lowest loss of an accepted model.
        gradient: the gradient of ``base``.
        norm: its length, in the bound's norm.
        target: the model that is tried.
        pairs: steps and how the gradient changed by them, oldest first.
        refused: how many steps from ``base`` were refused.

    Theory section 16.
    """

    bound: Bound
    base: Floats
    value: float
    gradient: Floats
    norm: float
    target: Floats
    pairs: tuple[tuple[Floats, Floats], ...] = ()
    refused: int = 0


def quasi_newton_begin(bound: Bound, theta: Floats, value: float, gradient: Floats) -> QuasiNewtonSearch:
    """Return the first step, from a model whose loss and gradient are known.

    Theory section 16.
    """
    begun = QuasiNewtonSearch(bound, theta, value, gradient, bound.norm(gradient), theta)
    return replace(begun, target=_target(begun))


def quasi_newton_step(search: QuasiNewtonSearch, theta: Floats, value: float, gradient: Floats) -> QuasiNewtonSearch:
    """Return the next step: on from the model that was tried, or another one from the model before.

    A model is accepted if its loss is visibly lower than all before, or if its gradient is shorter than the last one
    and the loss not visibly higher.

    Args:
        search: the step that led here.
        theta: the model that was tried.
        value: its loss.
        gradient: its gradient.

    Returns:
        the next step.

    Theory section 16.
    """
    step, change = theta - search.base, gradient - search.gradient
    pairs = search.pairs
    # Curvature is at least lambda; where rounding shows less, there is nothing to be learned.
    if float(step @ change) >= search.bound.l2 / 2 * float(step @ step) > 0:
        pairs = (*pairs, (step, change))[-_MEMORY:]
    norm, visible = search.bound.norm(gradient), _VISIBLE * max(1.0, search.value)
    lower = value < search.value - visible
    if search.refused > 1 or lower or (norm <= _SHORTER * search.norm and value <= search.value + visible):
        taken = QuasiNewtonSearch(search.bound, theta, min(value, search.value), gradient, norm, theta, pairs)
        return replace(taken, target=_target(taken))
    refused = replace(search, pairs=pairs, refused=search.refused + 1)
    if refused.refused == 1:
        # What was learned from the step that was too long makes the next one shorter.
        return replace(refused, target=_target(refused))
    return replace(refused, target=search.base - search.bound.solve(search.gradient, search.bound.largest))


def _target(search: QuasiNewtonSearch) -> Floats:
    """Return where L-BFGS leads to: its two loops over the pairs."""
    rest, parts = search.gradient.copy(), []
    for step, change in reversed(search.pairs):
        part = float(step @ rest) / float(step @ change)
        parts.append(part)
        rest -= part * change
    direction = search.bound.solve(rest, _height(search))
    for (step, change), part in zip(search.pairs, reversed(parts), strict=True):
        direction += (part - float(change @ direction) / float(step @ change)) * step
    return search.base - direction


def _height(search: QuasiNewtonSearch) -> float:
    """Return h: that of the last step, or at the start that of the model 0, where all classes are equally likely."""
    if search.pairs:
        return search.bound.fit(*search.pairs[-1])
    classes = search.bound.classes
    return 1 / classes if classes > 1 else search.bound.largest


def _largest(classes: int) -> float:
    return 0.5 if classes > 1 else 0.25
