"""How the server finds the solution of a head with an L2 term, from sums over the clients' rows.

The loss F_A = (sum over the rows of A)/N_A + lambda/2 ||theta||^2 is strongly convex: it has one solution, which is a
function of the rows of A alone. In a round the server asks at a model, ``advance`` takes the sum of the answers and
says where to ask next. Nothing here remembers anything but the answers it was given.

    state = begin(Solver(loss, classes, features, choose(classes, features, most_bytes)))
    while True:
        sums = ...  # of everybody in A, at theta, with state.wanted
        state, step = advance(state, theta, sums)
        if step.solved: break
        theta = step.theta  # cast to the model's type, where that is not float64
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from rescind.core._checks import not_negative, positive
from rescind.core.arrays import Floats
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.searches import (
    Bound,
    NewtonSearch,
    QuasiNewtonSearch,
    newton_step,
    quasi_newton_begin,
    quasi_newton_step,
)
from rescind.core.sums import BLOCK, Sums, Wanted, logit_spread

# A start is left for the model 0 if its loss is higher by more than this part.
_HIGHER = 1e-9


_UNIT_ROUNDOFF = 2.0**-53
# So many roundings of one number keep what is of second order below the factor 1.01.
_MOST_ROUNDINGS = 2.0**43


def gradient_rounding(
    loss: SoftmaxL2 | LogisticL2, most_rows: int, clients: int, classes: int, features: int, theta_norm: float
) -> float:
    """Return r: how far the computed gradient of F_A can be from the true one, if clients use ``sum_head``.

    With u = 2^-53 and blocks of b rows,

        r = 1.01 u {(b + n/b + m + 8) L + R' [(D + 3 + sqrt C)/2 ||theta|| R' + C + 36] + 4 lambda ||theta||}.

    Args:
        loss: the head's loss.
        most_rows: the rows of the largest client (n).
        clients: how many answered (m).
        classes: the number of logits (C).
        features: the number of features (D).
        theta_norm: ||theta|| of the model asked about.

    Returns:
        the bound on the norm of the difference.

    Raises:
        ValueError: a number is out of its range, or so large that nothing is proven.

    Theory section 16.
    """
    for name, value in (("most_rows", most_rows), ("clients", clients), ("classes", classes), ("features", features)):
        if not value >= 1:
            raise ValueError(f"{name} is {value!r}; it has to be at least 1")
    not_negative("theta_norm", theta_norm)
    sums = BLOCK + most_rows / BLOCK + clients + 8
    if sums + features + classes > _MOST_ROUNDINGS:
        raise ValueError(
            f"{most_rows} rows, {clients} clients, {classes} classes and {features} features: nothing is proven of "
            "the rounding of so many numbers"
        )
    longest = math.sqrt(loss.row_norm**2 + 1)
    logits = (features + 3 + math.sqrt(classes)) / 2 * theta_norm * longest
    return (
        1.01
        * _UNIT_ROUNDOFF
        * (sums * loss.gradient_bound + longest * (logits + classes + 36) + 4 * loss.l2 * theta_norm)
    )


@dataclass(frozen=True, slots=True)
class Solving:
    """The settings of a solve, fixed before anybody asks to be forgotten.

    Attributes:
        tolerance: the norm of the gradient at which a model counts as the solution (tau).
        most_bytes: the most that a client's answer may take; it decides which curvature is asked for.
        most_rounds: the rounds after which a solve ends in any case; those of a forgetting that was cut off count
            too.

    Raises:
        ValueError: a number is not above 0, or not a whole one where it has to be.

    Theory section 16.
    """

    tolerance: float = 1e-5
    most_bytes: int = 16_000_000
    most_rounds: int = 100

    def __post_init__(self) -> None:
        for name in ("tolerance", "most_bytes", "most_rounds"):
            positive(name, getattr(self, name))
        for name in ("most_bytes", "most_rounds"):
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it has to be a whole number")

    def expected_rounds(self, parameters: int) -> float:
        """Return about how many rounds a head of so many parameters takes: a guess that only ranks ways to forget.

        Args:
            parameters: P.

        Returns:
            the rounds.

        Theory section 16.
        """
        full = 8 * parameters * (parameters + 3) // 2
        return 9.0 if full <= self.most_bytes else 35.0


@dataclass(frozen=True, slots=True)
class Solver:
    """What is solved, and how.

    Attributes:
        loss: the head's loss, with an L2 term above 0.
        classes: the number of logits (C): 1 for logistic regression, at least 2 for softmax.
        features: the number of features (D).
        wanted: ``FULL`` for Newton steps, ``FEATURES`` for L-BFGS with the features' curvature (asked for once), or
            ``GRADIENT`` for L-BFGS without it.
        tolerance: the gradient's norm up to which a model counts as the solution. If the rounding of the sums has to
            be within a public limit as well, it is that limit less ``gradient_rounding``.

    Raises:
        ValueError: a number is out of its range, or the classes do not fit the loss.

    Theory section 16.
    """

    loss: SoftmaxL2 | LogisticL2
    classes: int
    features: int
    wanted: Wanted
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        if not self.loss.l2 > 0:
            raise ValueError("l2 is 0; only with an L2 term above 0 is there one solution")
        positive("tolerance", self.tolerance)
        least, most = (1, 1) if isinstance(self.loss, LogisticL2) else (2, math.inf)
        if not least <= self.classes <= most or self.features < 1:
            raise ValueError(
                f"{self.classes} classes and {self.features} features do not fit {type(self.loss).__name__}: "
                "logistic regression has 1 logit, softmax at least 2, and there is at least one feature"
            )


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Where a solve stands; it holds sums over everybody's rows and has to be erased like them.

    Attributes:
        solver: what is solved.
        rows: how many rows the last answers came from; None at the start.
        bound: the bound on the Hessian, once the features' curvature is known.
        search: the step that is being tried; None at the start.

    Theory section 16.
    """

    solver: Solver
    rows: int | None = None
    bound: Bound | None = None
    search: NewtonSearch | QuasiNewtonSearch | None = None

    @property
    def wanted(self) -> Wanted:
        """What to ask for next."""
        if self.solver.wanted is Wanted.FEATURES and self.bound is not None:
            return Wanted.GRADIENT
        return self.solver.wanted


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What a round's answers lead to.

    Attributes:
        theta: the model to ask about next, or the solution.
        gradient_norm: ||grad F_A|| at the model that was asked about, but for the rounding of the sums
            (``gradient_rounding``).
        solved: that norm is at most the tolerance, and ``theta`` the model that was asked about.

    Theory section 16.
    """

    theta: Floats
    gradient_norm: float
    solved: bool


def begin(solver: Solver) -> State:
    """Return the state before anybody was asked; where to ask first is free.

    Theory section 16.
    """
    return State(solver)


def advance(state: State, theta: Floats, sums: Sums, *, fresh: bool = False) -> tuple[State, Step]:
    """Take a round's answers and say where to ask next.

    A start whose loss is above that of the model 0, which is log C for any rows, is left for that model at once.

    Args:
        state: where the solve stood; ``state.wanted`` was asked for.
        theta: the model that was asked about, flat and as it was cast.
        sums: the sum of the answers. They have been checked: see ``check_sums``.
        fresh: somebody else answered than in the round before. Then nothing learned before is used again. Without
            it, another number of rows says the same.

    Returns:
        the new state, and the step.

    Raises:
        ValueError: the sums are not finite, or not what was asked for.

    Theory section 16.
    """
    solver = state.solver
    if fresh or (state.rows is not None and state.rows != sums.rows):
        state = begin(solver)
    gradient = sums.gradient / sums.rows + solver.loss.l2 * theta
    norm, value = _measure(solver, theta, sums, gradient)
    if norm <= solver.tolerance:
        return replace(state, rows=sums.rows), Step(theta, norm, solved=True)
    state = replace(state, rows=sums.rows, bound=_bound(state, sums))
    if state.search is None and value > math.log(max(solver.classes, 2)) * (1 + _HIGHER):
        return state, Step(np.zeros_like(theta), norm, solved=False)
    if solver.wanted is Wanted.FULL:
        if sums.curvature is None:
            raise ValueError("the answers have no Hessian, which was asked for")
        hessian = sums.curvature / sums.rows
        hessian[np.diag_indices_from(hessian)] += solver.loss.l2
        before = state.search if isinstance(state.search, NewtonSearch) else None
        steepest, spread = solver.loss.curvature.high, logit_spread(solver.loss)
        newton = newton_step(before, theta, value, gradient, hessian, steepest=steepest, spread=spread)
        return replace(state, search=newton), Step(newton.target, norm, solved=False)
    if state.bound is None:
        # Others answer now, who were not asked for their features: a step that is safe without them.
        return state, Step(theta - gradient / solver.loss.curvature.high, norm, solved=False)
    if isinstance(state.search, QuasiNewtonSearch):
        search = quasi_newton_step(state.search, theta, value, gradient)
    else:
        search = quasi_newton_begin(state.bound, theta, value, gradient)
    return replace(state, search=search), Step(search.target, norm, solved=False)


def choose(classes: int, features: int, most_bytes: int) -> Wanted:
    """Return the best curvature that fits into a message.

    Beside the gradient an upper triangle is sent, in float64: P(P+1)/2 numbers of the Hessian, (D+1)(D+2)/2 of the
    features.

    Args:
        classes: the number of logits (C).
        features: the number of features (D).
        most_bytes: how large a client's answer may be.

    Returns:
        what to ask for.

    Theory section 16.
    """
    for wanted in (Wanted.FULL, Wanted.FEATURES):
        if bytes_sent(classes, features, wanted, 1) <= most_bytes:
            return wanted
    return Wanted.GRADIENT


def bytes_sent(classes: int, features: int, wanted: Wanted, rounds: int) -> int:
    """Return what one client sends in so many rounds: a gradient in each, the Hessian too, or the features' once.

    Args:
        classes: the number of logits (C).
        features: the number of features (D).
        wanted: what is asked for.
        rounds: the number of rounds.

    Returns:
        the bytes of all answers together.

    Theory section 16.
    """
    size, times = {
        Wanted.FULL: (classes * (features + 1), rounds),
        Wanted.FEATURES: (features + 1, min(rounds, 1)),
        Wanted.GRADIENT: (0, 0),
    }[wanted]
    return 8 * (classes * (features + 1) * rounds + times * size * (size + 1) // 2)


def solution_rounding(solver: Solver, most_rows: int, clients: int) -> float:
    """Return how far the solutions of two worlds can be apart where their clients' gradients agree.

    Each ends at a gradient whose computed norm is at most tau, so 2 (tau + 2 r)/lambda: r for that norm, and r for
    the gradients whose distances stand for W. In either world ||theta|| is at most (L + tau + r)/lambda.

    Args:
        solver: what was solved.
        most_rows: the rows of the largest client.
        clients: how many answered.

    Returns:
        the distance.

    Raises:
        ValueError: there are so many of them that nothing is proven of their rounding.

    Theory section 16.
    """
    loss, tolerance = solver.loss, solver.tolerance
    longest = 1.01 * (loss.gradient_bound + tolerance) / loss.l2
    rounding = gradient_rounding(loss, most_rows, clients, solver.classes, solver.features, longest)
    # The last term: means of gradients are divided by lambda before they are compared.
    return 2 * (tolerance + 2 * rounding + 2.0**-50 * loss.gradient_bound) / loss.l2 * (1 + 1e-12)


def _measure(solver: Solver, theta: Floats, sums: Sums, gradient: Floats) -> tuple[float, float]:
    """Return the norm of F_A's gradient, and F_A."""
    if not (np.isfinite(theta).all() and np.isfinite(gradient).all() and math.isfinite(sums.loss)):
        raise ValueError("the model or the sums hold numbers that are not finite")
    value = sums.loss / sums.rows + solver.loss.l2 / 2 * float(theta @ theta)
    # Rounded up: so many squares and a root round by less.
    return float(np.linalg.norm(gradient)) * (1 + (len(gradient) + 8) * 2.0**-53), value


def _bound(state: State, sums: Sums) -> Bound | None:
    solver, loss = state.solver, state.solver.loss
    if solver.wanted is Wanted.FULL or state.bound is not None:
        return state.bound
    if solver.wanted is Wanted.GRADIENT:
        longest = math.sqrt(loss.row_norm**2 + 1)
        return Bound.of_rows(longest, solver.features + 1, solver.classes, loss.l2)
    if sums.curvature is None:
        return None
    return Bound.of_features(sums.curvature / sums.rows, solver.classes, loss.l2)
