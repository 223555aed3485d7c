"""What a client tells about its rows when a head is solved for: sums, from which the server takes its steps.

A head is the matrix [W | b] with a row for each class, here always as one flat vector, and a row of data is
x' = (x, 1). Everything is a sum over rows, without the L2 term: the server adds that itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from rescind.core._checks import not_negative
from rescind.core.arrays import Floats, Tensor
from rescind.core.regularity import LogisticL2, SoftmaxL2

# Rows that a client sums at a time: it bounds the memory, and how many roundings a sum has.
BLOCK = 4096

# How far rounding may carry an honest answer over a bound, relative to the bound. Blocks of 4,096 rows keep it below
# 1e-10 up to 10^9 rows; what a lie can gain within it is nothing.
SLACK = 2.0**-30
# The same for eigenvalues: a factorisation of some thousand columns rounds by up to 1e-9 itself.
_EIGEN_SLACK = 2.0**-26


class Wanted(Enum):
    """What a client is asked for beside the number of its rows, the loss and the gradient.

    ``FEATURES`` is the sum of x'x'^T, ``FULL`` the Hessian of the summed loss.

    Theory section 16.
    """

    GRADIENT = "gradient"
    FEATURES = "features"
    FULL = "full"


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums over rows, at one model and without the L2 term.

    Attributes:
        rows: how many rows (n), at least 1.
        loss: the sum of their losses.
        gradient: the sum of their gradients, flat, one number for each parameter (P).
        curvature: the Hessian of the summed loss (P, P), or the sum of x'x'^T (features + 1, features + 1), or None
            where neither was wanted.

    Raises:
        ValueError: ``rows`` is not a whole number of at least 1, or an array is not float64 or has another shape.

    Theory section 16.
    """

    rows: int
    loss: float
    gradient: Floats
    curvature: Floats | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rows, bool) or not isinstance(self.rows, int) or self.rows < 1:
            raise ValueError(f"rows is {self.rows!r}; it has to be a whole number of at least 1")
        if not isinstance(self.loss, float):
            raise ValueError(f"loss is a {type(self.loss).__name__}; it has to be a float")
        _check_array("gradient", self.gradient, dimensions=1)
        if self.curvature is not None:
            _check_array("curvature", self.curvature, dimensions=2)
            height, width = self.curvature.shape
            if height != width or width > len(self.gradient):
                raise ValueError(
                    f"curvature has shape {self.curvature.shape}; it has to be square, and no wider than the "
                    f"{len(self.gradient)} parameters"
                )


def add_up(parts: Sequence[Sums]) -> Sums:
    """Return the sums over the rows of several clients, added in the order given.

    Args:
        parts: the clients' sums, all at one model and with the same curvature or none.

    Returns:
        their sum, in float64.

    Raises:
        ValueError: there is none, or their shapes differ.

    Theory section 16.
    """
    if not parts:
        raise ValueError("there is nothing to add up: no client has answered")
    shapes = {(part.gradient.shape, None if part.curvature is None else part.curvature.shape) for part in parts}
    if len(shapes) > 1:
        raise ValueError(
            f"sums of different shapes cannot be added: gradient and curvature {sorted(map(str, shapes))}"
        )
    first, *others = parts
    loss, gradient = first.loss, first.gradient.copy()
    curvature = None if first.curvature is None else first.curvature.copy()
    for part in others:
        loss += part.loss
        gradient += part.gradient
        if curvature is not None and part.curvature is not None:
            curvature += part.curvature
    return Sums(sum(part.rows for part in parts), loss, gradient, curvature)


def head_names(names: Iterable[str]) -> tuple[str, str]:
    """Return the names of a head's two tensors: the one that ends in weight, and the one that ends in bias.

    Args:
        names: the names of the trained tensors.

    Returns:
        the weight's name and the bias's.

    Raises:
        ValueError: these are not two names with these endings.

    Theory section 16.
    """
    listed = sorted(names)
    weights, biases = ([name for name in listed if name.endswith(ending)] for ending in ("weight", "bias"))
    if len(listed) != 2 or len(weights) != 1 or len(biases) != 1:
        raise ValueError(f"a head has one tensor that ends in 'weight' and one that ends in 'bias', not {listed}")
    return weights[0], biases[0]


def head_shape(model: Mapping[str, Tensor]) -> tuple[int, int]:
    """Return the numbers of a head's classes and of its features.

    Args:
        model: a head.

    Returns:
        the shape of its weight.

    Raises:
        ValueError: this is not a head.

    Theory section 16.
    """
    classes, features = model[head_names(model)[0]].shape
    return classes, features


def flatten(model: Mapping[str, Tensor]) -> Floats:
    """Return a head as the flat vector of [W | b], in float64.

    Args:
        model: the weight (classes, features) and the bias (classes,), under names that end so.

    Returns:
        theta, of length classes (features + 1).

    Raises:
        ValueError: this is not a head.

    Theory section 16.
    """
    weight, bias = (np.asarray(model[name], dtype=np.float64) for name in head_names(model))
    if weight.ndim != 2 or bias.shape != weight.shape[:1]:
        raise ValueError(
            f"the bias has shape {bias.shape}, for a weight of {weight.shape}; a head has both for a class"
        )
    return np.column_stack([weight, bias]).reshape(-1)


def unflatten(vector: Floats, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the head that a flat vector stands for, with the names, shapes and types of another.

    The cast to those types rounds: the model asked about is ``flatten`` of what this returns.

    Args:
        vector: theta, of length classes (features + 1).
        like: a head.

    Returns:
        the head.

    Raises:
        ValueError: ``like`` is not a head, or not of this length.

    Theory section 16.
    """
    weight, bias = head_names(like)
    classes, features = like[weight].shape
    if vector.shape != (classes * (features + 1),):
        raise ValueError(
            f"a vector of shape {vector.shape} is not a head of {classes} classes and {features} features"
        )
    matrix = vector.reshape(classes, features + 1)
    return {
        weight: np.ascontiguousarray(matrix[:, :-1], dtype=like[weight].dtype),
        bias: np.ascontiguousarray(matrix[:, -1], dtype=like[bias].dtype),
    }


def check_sums(
    sums: Sums,
    loss: SoftmaxL2 | LogisticL2,
    classes: int,
    features: int,
    theta_norm: float,
    wanted: Wanted,
    most_rows: int = 2**40,
) -> str | None:
    """Return why no rows can have these sums, or None if some might.

    It is what one answer shows by itself. A lie within these bounds passes: a certificate takes whoever answered as
    honest. The sum of several clients' answers can be checked in the same way.

    Args:
        sums: the answer.
        loss: the head's loss, with the row norm (R).
        classes: the number of logits (C): 1 for logistic regression.
        features: the number of features (D).
        theta_norm: ||theta|| of the model asked about.
        wanted: what was asked for.
        most_rows: the most rows that are believed.

    Returns:
        the reason, for a log: it names no number of the client's but the count of its rows. None if nothing is wrong.

    Raises:
        ValueError: ``theta_norm`` is not a finite number of at least 0.

    Theory section 16.
    """
    not_negative("theta_norm", theta_norm)
    width = features + 1
    shape = {Wanted.GRADIENT: None, Wanted.FEATURES: (width, width), Wanted.FULL: (classes * width, classes * width)}
    if (doubt := doubt_rows(sums.rows, most_rows)) is not None:
        return doubt
    if sums.gradient.shape != (classes * width,):
        return f"the gradient has {len(sums.gradient)} numbers, not {classes * width}"
    if (None if sums.curvature is None else sums.curvature.shape) != shape[wanted]:
        return f"the curvature has not the shape {shape[wanted]} that was asked for"
    doubt = _doubt_loss(sums, loss, classes, theta_norm) or _doubt_gradient(sums, loss, classes)
    if doubt is not None or sums.curvature is None:
        return doubt
    if wanted is Wanted.FEATURES:
        return _doubt_features(sums.curvature, sums.rows, loss)
    return _doubt_hessian(sums.curvature, sums.rows, loss, classes)


def doubt_rows(rows: int, most_rows: int) -> str | None:
    """Return why so many rows are not believed; None if they are. Theory section 16."""
    if rows <= most_rows:
        return None
    return f"it tells of {rows if rows < 2**63 else 'absurdly many'} rows; {most_rows} are believed"


def longest_row(loss: SoftmaxL2 | LogisticL2) -> float:
    """Return R', the longest row with its 1 for the bias. Theory section 16."""
    return math.sqrt(loss.row_norm**2 + 1)


def logit_spread(loss: SoftmaxL2 | LogisticL2) -> float:
    """Return by how much two logits of a row part at most along a step of length 1, or one logit moves.

    Theory section 16.
    """
    return longest_row(loss) * (1.0 if isinstance(loss, LogisticL2) else math.sqrt(2.0))


def _doubt_loss(sums: Sums, loss: SoftmaxL2 | LogisticL2, classes: int, theta_norm: float) -> str | None:
    most = sums.rows * (math.log(max(classes, 2)) + theta_norm * logit_spread(loss)) * (1 + SLACK)
    return None if 0 <= sums.loss <= most else "no rows have such a loss"


def _doubt_gradient(sums: Sums, loss: SoftmaxL2 | LogisticL2, classes: int) -> str | None:
    most = sums.rows * loss.gradient_bound * (1 + SLACK)
    # Entry by entry first: after that no square overflows. (NaN is not at most anything.)
    if not (np.abs(sums.gradient) <= most).all() or not np.linalg.norm(sums.gradient) <= most:
        return "the gradient is longer than any of so many rows"
    if isinstance(loss, SoftmaxL2):
        over_classes = sums.gradient.reshape(classes, -1).sum(axis=0)
        if not np.abs(over_classes).max() <= classes * most * SLACK:
            return "the gradient does not sum to 0 over the classes"
    return None


def _doubt_features(features: Floats, rows: int, loss: SoftmaxL2 | LogisticL2) -> str | None:
    trace = rows * longest_row(loss) ** 2
    if (doubt := _doubt_matrix(features, trace, trace)) is not None:
        return doubt
    return None if features[-1, -1] == rows else "the curvature counts other rows than the answer"


def _doubt_hessian(hessian: Floats, rows: int, loss: SoftmaxL2 | LogisticL2, classes: int) -> str | None:
    length = rows * longest_row(loss) ** 2
    if isinstance(loss, LogisticL2):
        return _doubt_matrix(hessian, length / 4, length / 4)
    if (doubt := _doubt_matrix(hessian, length * (1 - 1 / classes), length / 2)) is not None:
        return doubt
    over_classes = hessian.reshape(len(hessian), classes, -1).sum(axis=1)
    if not np.abs(over_classes).max() <= classes * length * SLACK:
        return "the curvature does not sum to 0 over the classes"
    return None


def _doubt_matrix(matrix: Floats, trace: float, largest: float) -> str | None:
    """Hold a matrix against being symmetric, its trace, and eigenvalues between 0 and ``largest``."""
    # As above: entry by entry first. No entry of a positive semidefinite matrix is larger than its trace.
    if not (np.abs(matrix) <= trace * (1 + SLACK)).all() or not np.trace(matrix) <= trace * (1 + SLACK):
        return "the curvature is larger than that of any so many rows"
    if not np.array_equal(matrix, matrix.T):
        return "the curvature is not symmetric"
    slack = trace * _EIGEN_SLACK
    identity = np.eye(len(matrix))
    if not _is_positive(matrix + slack * identity):
        return "the curvature has a negative direction"
    # No eigenvalue is above the trace, so that mostly this need not be looked at.
    if np.trace(matrix) > largest and not _is_positive((largest + slack) * identity - matrix):
        return "the curvature is larger than that of any so many rows"
    return None


def _is_positive(matrix: Floats) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _check_array(name: str, array: Floats, dimensions: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != dimensions or not array.size:
        raise ValueError(f"{name} has to be a float64 array of {dimensions} dimensions, not empty")
