"""Newton's method for a strongly convex loss, judged by the length of the gradient.

The Newton direction shortens the gradient at first, however far away the solution is, so short enough steps always
get on. A step need only be better than the worst of the last few: far from the solution the gradient may grow for a
step on the shortest way (Grippo, Lampariello and Lucidi 1986).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from rescind.core.arrays import Floats

# How many gradients a new one is compared with, and the part of a step's length by which it has to be shorter.
_WINDOW = 3
_DECREASE = 1e-4
# A refused step is shortened to between these parts of it; below the last number a plain gradient step is made.
_SHORTER = (0.1, 0.5)
_SHORTEST = 2.0**-6


@dataclass(frozen=True, slots=True, eq=False)
class NewtonSearch:
    """Where Newton's method stands: the last accepted model, and the step from it that is being tried.

    Attributes:
        norms: the lengths of the last accepted gradients.
        base: the last accepted model.
        gradient: its gradient.
        direction: where the step leads.
        length: the part of ``direction`` that is tried.
        certain: the step shortens the gradient in any case.

    Theory section 16.
    """

    norms: tuple[float, ...]
    base: Floats
    gradient: Floats
    direction: Floats
    length: float = 1.0
    certain: bool = False

    @property
    def target(self) -> Floats:
        """Where the step ends."""
        return self.base + self.length * self.direction


def newton_step(
    search: NewtonSearch | None, theta: Floats, gradient: Floats, hessian: Floats, steepest: float
) -> NewtonSearch:
    """Return the next step: on from the model that was tried, or a shorter one from the model before.

    Args:
        search: the step that led here; None at the start.
        theta: the model that was tried.
        gradient: its gradient.
        hessian: its Hessian, all eigenvalues above 0.
        steepest: beta, at least the largest eigenvalue anywhere.

    Returns:
        the next step; its ``target`` is to be tried.

    Theory section 16.
    """
    norm = float(np.linalg.norm(gradient))
    if search is None or search.certain or norm <= (1 - _DECREASE * search.length) * max(search.norms):
        norms = ((*search.norms, norm) if search else (norm,))[-_WINDOW:]
        try:
            factor = scipy.linalg.cho_factor(hessian)
        except np.linalg.LinAlgError:
            return NewtonSearch(norms, theta, gradient, -gradient / steepest, certain=True)
        return NewtonSearch(norms, theta, gradient, -scipy.linalg.cho_solve(factor, gradient))
    length = _shorten(
        search, float(gradient @ search.direction), float(search.direction @ hessian @ search.direction)
    )
    if length < _SHORTEST:
        return NewtonSearch(search.norms, search.base, search.gradient, -search.gradient / steepest, certain=True)
    return NewtonSearch(search.norms, search.base, search.gradient, search.direction, length)


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
