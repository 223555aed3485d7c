"""Newton's method for a strongly convex loss.

A step is accepted if it lowers the loss, or shortens the gradient where losses no longer differ visibly. One that is
refused is made shorter, at the least so short that the loss falls in any case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from rescind.core.arrays import Floats

# The part of what a step's slope promises by which the loss has to fall, or of its length by which the gradient has
# to be shorter.
_DECREASE = 1e-4
# Differences of losses below this part of them may be rounding: then the gradient alone judges.
_VISIBLE = 1e-10
# A refused step is shortened to between these parts of it.
_SHORTER = (0.1, 0.5)


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
    low, high = (part * search.length for part in _SHORTER)
    first = float(search.gradient @ search.direction)
    # The slope first (1 - x) at the start, as the step is Newton's, and slope + curvature (x - length) at the end.
    rise, bend = slope - first, -first * search.length
    end = curvature * search.length
    roots = np.roots([bend + end - 2 * rise, 3 * rise - 2 * bend - end, bend, first])
    inside = [float(root.real) for root in roots if abs(root.imag) < 1e-9 and 0 < root.real < 1]
    return float(np.clip(search.length * min(inside), low, high)) if inside else high
