"""Whether one client's answers to a solver can all come from the same rows.

A lie within the bounds of a single answer can still be told apart from the truth by the next one: along a step the
gradient changes by the curvature that was told before, up to what a head's third derivative allows. Whoever breaks
this could have a solve run to its limit; whoever keeps it cannot keep Newton steps from arriving.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import scipy

from rescind.core.arrays import Floats
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.sums import SLACK, Sums, Wanted, logit_spread, longest_row

# How many answers a new one is held against: each is as large as the model.
_KEPT = 4
# The least that is added to a Hessian's diagonal, relative to its largest possible: a factorisation of some thousand
# columns rounds by up to a tenth of it.
_LEAST_DIAGONAL = 2.0**-25
# Logits that a step moves by more than this are not compared: the bounds would be beyond all numbers.
_FURTHEST = 200.0
_OTHERS = "no rows have both this answer and the one before"


@dataclass(frozen=True, slots=True, eq=False)
class Earlier:
    """What one client answered before, within one solve.

    Attributes:
        answers: the last models asked about, flat, with the answers at them but for the curvature; newest last.
        hessian: the newest answer's Hessian, if there was one: the upper triangle, row by row. It tells most of the
            client's rows, and is kept until the next model is known.
        change: that Hessian times the step to the next model.

    Theory section 16.
    """

    answers: tuple[tuple[Floats, Sums], ...] = ()
    hessian: Floats | None = None
    change: Floats | None = None

    def and_then(self, theta: Floats, sums: Sums, wanted: Wanted) -> Earlier:
        """Return this with one more answer, which has been checked.

        Args:
            theta: the model asked about, flat.
            sums: the answer.
            wanted: what was asked for.

        Returns:
            what is kept of all answers.

        Theory section 16.
        """
        # The sum of x'x'^T is the same at every model: there is nothing to be foreseen from it.
        full = sums.curvature if wanted is Wanted.FULL else None
        triangle = None if full is None else np.concatenate([row[at:] for at, row in enumerate(full)])
        kept = (*self.answers, (theta, replace(sums, curvature=None)))[-_KEPT:]
        return Earlier(kept, triangle)

    def before(self, theta: Floats) -> Earlier:
        """Return what has to be known to judge an answer at the next model: no Hessian any more.

        Args:
            theta: the next model, flat.

        Returns:
            the same answers, with the change of the gradient that is to be expected.

        Theory section 16.
        """
        if self.hessian is None:
            return replace(self, change=None)
        step = theta - self.answers[-1][0]
        # Row by row the upper triangle is what BLAS calls the lower one, column by column.
        change = scipy.linalg.blas.dspmv(len(step), 1.0, self.hessian, step, lower=1)
        return Earlier(self.answers, None, np.asarray(change, dtype=np.float64))

    def doubt(self, theta: Floats, sums: Sums, loss: SoftmaxL2 | LogisticL2) -> str | None:
        """Return why no rows can have given this answer after the ones before, or None if some might.

        Only the client's own answers are looked at, and no answers of the same rows are ever doubted.

        Args:
            theta: the model asked about, flat; if a Hessian was told before, the one that ``before`` was given.
            sums: the answer. It has passed ``check_sums``.
            loss: the head's loss, with the row norm (R).

        Returns:
            the reason, for a log. None if nothing is wrong.

        Theory section 16.
        """
        if not self.answers:
            return None
        newest, told = self.answers[-1]
        if told.rows != sums.rows:
            return "it tells of another number of rows than before"
        pair = _Pair(newest, told, theta, sums, loss)
        if any(_is_steep(earlier, (theta, sums), loss) for earlier in self.answers):
            return _OTHERS
        if any(_is_turned(earlier, pair) for earlier in self.answers[:-1]):
            return _OTHERS
        return _OTHERS if self.change is not None and _is_bent(self.change, pair) else None


@dataclass(frozen=True, slots=True, eq=False)
class _Pair:
    """A client's last answer and its newest one."""

    before: Floats
    told: Sums
    theta: Floats
    sums: Sums
    loss: SoftmaxL2 | LogisticL2

    @property
    def step(self) -> Floats:
        return self.theta - self.before

    @property
    def change(self) -> Floats:
        return self.sums.gradient - self.told.gradient

    def noise(self, *others: Floats) -> float:
        """Return how far rounding may carry the gradient at any of these models."""
        norm = max(float(np.linalg.norm(theta)) for theta in (self.before, self.theta, *others))
        longest = longest_row(self.loss)
        return SLACK * self.sums.rows * longest * (1 + longest * norm)


def _is_steep(earlier: tuple[Floats, Sums], later: tuple[Floats, Sums], loss: SoftmaxL2 | LogisticL2) -> bool:
    """Return whether two answers are no convex function's with a gradient that is n beta Lipschitz."""
    beta = longest_row(loss) ** 2 / (4 if isinstance(loss, LogisticL2) else 2)
    apart = float(np.square(later[1].gradient - earlier[1].gradient).sum()) / (2 * later[1].rows * beta)
    for (theta, sums), (moved, after) in ((earlier, later), (later, earlier)):
        step = moved - theta
        # A loss is as exact as its logits are, however small it is.
        logits = 1 + longest_row(loss) * float(np.linalg.norm(theta) + np.linalg.norm(moved))
        slack = SLACK * (sums.loss + after.loss + 4 * sums.rows * logits + apart)
        if not after.loss - sums.loss - float(sums.gradient @ step) - apart >= -slack:
            return True
    return False


def _is_turned(earlier: tuple[Floats, Sums], pair: _Pair) -> bool:
    """Return whether the changes of the gradient along two steps are not those of one nearly constant Hessian."""
    first, chord = earlier[0], pair.before - earlier[0]
    bend = pair.told.gradient - earlier[1].gradient
    step, change = pair.step, pair.change
    lengths = [float(np.linalg.norm(vector)) for vector in (chord, step, pair.theta - first)]
    spread = logit_spread(pair.loss) * max(lengths)
    if not spread <= _FURTHEST:
        return False
    noise = 2 * pair.noise(first)
    energies = (float(chord @ bend) + noise * lengths[0], float(step @ change) + noise * lengths[1])
    most = 2 * math.sinh(spread / 2) * math.sqrt(max(energies[0], 0.0)) * math.sqrt(max(energies[1], 0.0))
    twist = abs(float(chord @ change) - float(step @ bend))
    return not twist <= most * (1 + SLACK) + noise * (lengths[0] + lengths[1])


def _is_bent(foreseen: Floats, pair: _Pair) -> bool:
    """Return whether the gradient is not where the Hessian before said, in the norm of the Hessian now."""
    hessian, rows, step = pair.sums.curvature, pair.sums.rows, pair.step
    length, longest = float(np.linalg.norm(step)), longest_row(pair.loss)
    spread = logit_spread(pair.loss) * length
    if hessian is None or not spread <= _FURTHEST:
        return False
    noise = pair.noise() * (2 + longest * length)
    energy = math.sqrt(max(float(step @ foreseen) + noise * length, 0.0))
    diagonal = rows * max(pair.loss.l2, _LEAST_DIAGONAL * longest**2)
    try:
        factor = np.linalg.cholesky(hessian + diagonal * np.eye(len(hessian)))
    except np.linalg.LinAlgError:
        return True
    residual = scipy.linalg.solve_triangular(factor, pair.change - foreseen, lower=True)
    most = spread / 2 * math.exp(spread / 2) * energy + noise / math.sqrt(diagonal)
    # A tenth for the factorisation, where the diagonal is at its least.
    return not float(np.linalg.norm(residual)) <= 1.1 * most
