"""Ridge heads: one round of sums determines the solution, in fixed point to the last bit.

Rows and targets become whole numbers, in units of 2^-s and rounded towards 0, so that nothing gets longer. Sums of
their products are exact whatever the order: products are made in float64, in blocks whose sums stay below 2^53, and
added as 64-bit integers. So the model is the same for every order of replies, and without a client it is the one that
would have come out had that client never been there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from rescind.core._checks import positive
from rescind.core.arrays import Floats, fill_symmetric, take_half
from rescind.core.regularity import SquaredL2
from rescind.core.sums import doubt_rows

Integers: TypeAlias = NDArray[np.int64]

_EXACT = 2.0**53
_LARGEST = 2.0**63
# A block of fewer rows would make the sums slow: the scale is the finest that leaves as many.
_LEAST_BLOCK = 256
# Pays for the roundings of a limit's own computation.
_MARGIN = 1 + 2.0**-40
# How far rounding may carry an honest answer over a bound, relative to the bound: the sums are exact, so this pays
# for norms and for the check's own roots.
_SLACK = 2.0**-30
# The same for eigenvalues, of which a factorisation of some thousand columns rounds by up to 1e-9 itself, ...
_EIGEN_SLACK = 2.0**-26
# ... and for what is divided by them: up to 10^4 columns round by less.
_DIVIDED_SLACK = 2.0**-10
# The norm of the inverse is at most so many times 1/l2: statement 16.9.
_INVERSE = 2.2


@dataclass(frozen=True, slots=True, eq=False)
class RidgeSums:
    """Sums over rows in fixed point, in units of 4^-s.

    Attributes:
        rows: how many rows, at least 1.
        bits: the scale (s).
        features: the sum of x'x'^T, which is symmetric: what is not below its diagonal, row by row.
        targets: the sum of y x'^T, (outputs, features + 1).

    Raises:
        ValueError: ``rows`` is not a whole number of at least 1, or an array is not int64 or has another shape.

    Theory section 16.
    """

    rows: int
    bits: int
    features: Integers
    targets: Integers

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise ValueError(f"rows is {self.rows!r}; it has to be a whole number of at least 1")
        for name, array, dimensions in (("features", self.features, 1), ("targets", self.targets, 2)):
            if array.dtype != np.int64 or array.ndim != dimensions:
                raise ValueError(f"{name} has to be an int64 array of {dimensions} dimensions")
        width = self.targets.shape[1]
        if len(self.features) != width * (width + 1) // 2:
            raise ValueError(f"features {self.features.shape} and targets {self.targets.shape} do not fit each other")

    @property
    def matrix(self) -> Floats:
        """The whole sum of x'x'^T, in floating point."""
        return fill_symmetric(self.features.astype(np.float64), self.targets.shape[1])


def fixed_point_bits(loss: SquaredL2) -> int:
    """Return the finest scale (s) at which no sum can overflow: N_max (2^s max(R', Y))^2 < 2^63.

    N_max is the limit of a client's rows times that of clients: public numbers, whoever takes part.

    Args:
        loss: the head's loss, with its limits.

    Returns:
        s; at most such that blocks of 256 rows are exact in float64.

    Raises:
        ValueError: there is none of at least 8 bits.

    Theory section 16.
    """
    most_rows, square = loss.most_rows * loss.most_clients, _longest(loss) ** 2 * _MARGIN
    bits = math.floor(math.log2(min(_LARGEST / most_rows, _EXACT / _LEAST_BLOCK) / square) / 2 - 1e-9)
    if bits < 8:
        raise ValueError(
            f"{most_rows} rows of norm {_longest(loss):g} leave {bits} bits: limit the rows or their norm"
        )
    return bits


def check_ridge_loss(loss: SquaredL2) -> None:
    """Refuse a loss for which no scale fits, or with so small an L2 term that a client could make it unsolvable.

    Within what rounding may do to an honest answer, a sum of features can have directions below 0: the L2 term has to
    be twice that.

    Args:
        loss: the head's loss.

    Raises:
        ValueError: the row norm is too large, or the L2 term too small.

    Theory section 16.
    """
    fixed_point_bits(loss)
    least = 2 * _EIGEN_SLACK * (loss.row_norm**2 + 1)
    smallest = loss.possible_l2[0]
    if not smallest >= least:
        raise ValueError(
            f"an L2 term is {smallest!r}; for rows of norm {loss.row_norm:g} a ridge head needs at least "
            f"{least:.2g}: below that one client could leave it without a solution"
        )


def ridge_sums(rows: Floats, targets: Floats, loss: SquaredL2, bits: int) -> RidgeSums:
    """Return the exact sums over rows and targets that were clipped before.

    Args:
        rows: (n, features), of norm at most R.
        targets: (n, outputs), of norm at most Y.
        loss: the head's loss.
        bits: the scale (s).

    Returns:
        the sums.

    Raises:
        ValueError: there are no rows, or not as many targets, one of them is too long, or the scale is too fine.

    Theory section 16.
    """
    if rows.ndim != 2 or targets.ndim != 2 or len(rows) != len(targets) or not len(rows):
        raise ValueError(
            f"rows are {rows.shape} and targets {targets.shape}; each row needs its target, and one at least"
        )
    square = (2.0**bits * _longest(loss)) ** 2 * _MARGIN
    block = math.floor(_EXACT / square)
    if block < 1 or len(rows) * square >= _LARGEST:
        raise ValueError(f"{bits} bits are too many for {len(rows)} rows of norm {_longest(loss):g}")
    for name, array, most in (("row", rows, loss.row_norm), ("target", targets, loss.target_norm)):
        # Written such that NaN is refused too.
        if not (np.linalg.norm(array, axis=1) <= most * _MARGIN).all():
            raise ValueError(f"a {name} is longer than {most!r} or not finite; clip them first")
    width = rows.shape[1] + 1
    features, products = np.zeros((width, width), np.int64), np.zeros((targets.shape[1], width), np.int64)
    for start in range(0, len(rows), block):
        chosen = slice(start, start + block)
        extended = quantise(np.column_stack([rows[chosen], np.ones(len(rows[chosen]))]), bits)
        features += (extended.T @ extended).astype(np.int64)
        products += (quantise(targets[chosen], bits).T @ extended).astype(np.int64)
    return RidgeSums(len(rows), bits, take_half(features), products)


def quantise(values: Floats, bits: int) -> Floats:
    """Return values in units of 2^-s, rounded towards 0: whole numbers, as float64.

    Theory section 16.
    """
    return np.trunc(values * 2.0**bits)


def add_up_ridge(parts: Iterable[RidgeSums]) -> RidgeSums | None:
    """Return the sums over the rows of several clients; the order makes no difference.

    Args:
        parts: the clients' sums, at one scale; they are taken one by one, and none is held.

    Returns:
        their sum; None if there is nothing to add up.

    Raises:
        ValueError: their scales or shapes differ, or they are too large for 64 bits.

    Theory section 16.
    """
    total: RidgeSums | None = None
    largest = [0, 0]
    for part in parts:
        # In Python's numbers, which do not wrap around.
        largest = [size + _largest(array) for size, array in zip(largest, (part.features, part.targets), strict=True)]
        if max(largest) >= _LARGEST:
            raise ValueError("the sums do not fit into 64 bits: take fewer bits")
        if total is None:
            total = replace(part, features=part.features.copy(), targets=part.targets.copy())
            continue
        if (part.bits, part.targets.shape) != (total.bits, total.targets.shape):
            raise ValueError("sums of different scales or shapes cannot be added")
        np.add(total.features, part.features, out=total.features)
        np.add(total.targets, part.targets, out=total.targets)
        total = replace(total, rows=total.rows + part.rows)
    return total


def _largest(array: Integers) -> int:
    return max(int(array.max()), -int(array.min()))


def ridge_solution(sums: RidgeSums, l2: float) -> Floats:
    """Return the head with the least squared error on the rows of A, and L2 term.

    On one machine it is a function of the sums, bit by bit, however many threads others use: it is solved in one.

    Args:
        sums: the sums over all rows.
        l2: the L2 term (lambda), above 0.

    Returns:
        theta*_A, the flat vector of [W | b].

    Raises:
        ValueError: ``l2`` is not a finite number above 0, or no rows have such sums.

    Theory section 16.
    """
    positive("l2", l2)
    unit = 4.0**-sums.bits
    matrix = sums.matrix * unit / sums.rows
    matrix[np.diag_indices_from(matrix)] += l2
    with _one_thread():
        try:
            factor = scipy.linalg.cho_factor(matrix)
        except np.linalg.LinAlgError as error:
            raise ValueError("no rows have such sums: the features' matrix has a negative direction") from error
        solved = scipy.linalg.cho_solve(factor, sums.targets.astype(np.float64).T * unit / sums.rows)
    return np.ascontiguousarray(solved.T).reshape(-1)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread: more would add up in another order."""
    # Clients import this module, for every message, and never solve.
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, "blas"):
        yield


def choose_l2(folds: Sequence[RidgeSums], loss: SquaredL2) -> float:
    """Return the L2 term with the least squared error on clients that are left out in turn.

    Args:
        folds: the sums of some clients each; nobody is in two of them, and together they are A.
        loss: the head's loss, with the L2 terms to choose from.

    Returns:
        lambda; the declared one if there is nothing to choose from, or nobody to leave out, or if all rows with some
        output are in one fold, which the others can tell nothing about.

    Theory section 16.
    """
    total = add_up_ridge(folds)
    seen = sum(((part.targets != 0).any(axis=1).astype(np.int64) for part in folds), np.int64(0))
    if total is None or not loss.l2_choices or len(folds) < 2 or np.any(seen == 1):
        return loss.l2
    errors = dict.fromkeys(sorted(loss.l2_choices), 0.0)
    with _one_thread():
        for fold in folds:
            rest = replace(
                total,
                rows=total.rows - fold.rows,
                features=total.features - fold.features,
                targets=total.targets - fold.targets,
            )
            matrix, targets = fold.matrix, 2 * fold.targets.astype(np.float64)
            for l2 in errors:
                head = ridge_solution(rest, l2).reshape(targets.shape)
                # But for the targets' own squares, which are the same for every L2 term.
                errors[l2] += float(np.sum(head * (head @ matrix - targets)))
    return min(errors, key=errors.__getitem__)


def ridge_error(sums: RidgeSums, l2: float, theta: Floats) -> float:
    """Return how far a head is at most from the one that solves the system exactly.

    Args:
        sums: the sums over all rows, which were believed.
        l2: the L2 term (lambda), not below the least that ``check_ridge_loss`` allows.
        theta: the head, flat.

    Returns:
        a bound on the distance, with what rounding adds to the residual here.

    Theory section 16.
    """
    unit, width = 4.0**-sums.bits / sums.rows, sums.targets.shape[1]
    matrix = sums.matrix * unit
    matrix[np.diag_indices_from(matrix)] += l2
    head, targets = theta.reshape(-1, width), sums.targets.astype(np.float64) * unit
    norm = np.linalg.norm
    rounded = (width + 8) * 2.0**-53 * (norm(head) * norm(matrix) + norm(targets))
    return float(_INVERSE * (norm(head @ matrix - targets) + rounded) / l2)


def check_ridge_sums(sums: RidgeSums, loss: SquaredL2, outputs: int, features: int) -> str | None:
    """Return why no rows and targets of a client can have these sums, or None if some might.

    It is what one answer shows by itself. A lie within these bounds passes.

    Args:
        sums: the answer.
        loss: the head's loss, with the norms of rows (R) and targets (Y), and the most rows of a client.
        outputs: the numbers in a target.
        features: the number of features (D).

    Returns:
        the reason, for a log: it names no number of the client's but the count of its rows. None if nothing is wrong.

    Theory section 16.
    """
    width, bits = features + 1, fixed_point_bits(loss)
    if (doubt := doubt_rows(sums.rows, loss.most_rows)) is not None:
        return doubt
    if sums.bits != bits:
        return f"it is not at the scale of {bits} bits that was asked for"
    if sums.targets.shape != (outputs, width):
        return f"its sums have not the shape {(outputs, width)} that was asked for"
    if int(sums.features[-1]) != sums.rows * 4**bits:
        return "the sums of features count other rows than the answer"
    return _doubt_sizes(sums, loss)


def _doubt_sizes(sums: RidgeSums, loss: SquaredL2) -> str | None:
    """Hold the numbers against the Cauchy-Schwarz inequality, for every two columns and then for all at once."""
    # In floating point, where no absolute value, product or sum overflows.
    features, targets = sums.matrix, sums.targets.astype(np.float64)
    squares = np.diagonal(features).copy()
    row = 4.0**sums.bits * sums.rows
    if (squares < 0).any() or not squares.sum() <= row * (loss.row_norm**2 + 1) * (1 + _SLACK):
        return "the sums of features are not those of so many rows"
    roots = np.sqrt(squares)
    if not (np.abs(features) <= np.outer(roots, roots) * (1 + _SLACK)).all():
        return "a sum of features is larger than its columns allow"
    if not (np.abs(targets) <= math.sqrt(row) * loss.target_norm * roots * (1 + _SLACK)).all():
        return "a sum of targets is larger than any of so many rows"
    features[np.diag_indices_from(features)] += _EIGEN_SLACK * squares.sum()
    try:
        factor = scipy.linalg.cholesky(features, lower=True, overwrite_a=True)
    except np.linalg.LinAlgError:
        return "the sums of features have a negative direction"
    # What the features explain of the targets' squares is no more than all of them.
    explained = scipy.linalg.solve_triangular(factor, targets.T, lower=True)
    if not np.square(explained).sum() <= row * loss.target_norm**2 * (1 + _DIVIDED_SLACK):
        return "no targets have such sums with these features"
    return None


def _longest(loss: SquaredL2) -> float:
    """Return max(R', Y)."""
    return max(math.sqrt(loss.row_norm**2 + 1), loss.target_norm)
