"""What a client executes for an L2 head, in numpy: row clipping, plain SGD with the L2 term on all parameters, sums.

This is all that a certificate above ``exact`` needs of a client. The simulator computes the same on torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Floats, Tensor
from rescind.core.regularity import LogisticL2, Loss, SoftmaxL2, SquaredL2
from rescind.core.ridge import RidgeSums, fixed_point_bits, ridge_sums
from rescind.core.sums import BLOCK, Sums, Wanted, flatten, head_shape
from rescind.core.training import LocalTraining

# Sums over fewer rows than these would tell too much of each: nobody who has fewer answers a solver.
LEAST_ROWS = 10

# Rows are clipped this much below the norm asked for, so that rounding cannot carry them above it again.
_MARGIN = 2.0**-20


def clip_rows(rows: Tensor, row_norm: float) -> Tensor:
    """Scale the rows that are longer than ``row_norm`` (R) down to it.

    Theory section 2.
    """
    # A norm beyond float64's range is infinite, and its row becomes 0.
    with np.errstate(over="ignore"):
        norms = np.linalg.norm(rows.astype(np.float64), axis=1, keepdims=True)
    # Also those so close below that the norm's own rounding might hide that they are longer.
    long = norms > row_norm * (1 - _MARGIN / 2)
    scales = np.divide(row_norm * (1 - _MARGIN), norms, out=np.ones_like(norms), where=long)
    return np.asarray(rows * scales.astype(rows.dtype))


def train_head_on(
    model: Mapping[str, Tensor],
    rows: Tensor,
    labels: NDArray[np.int64],
    training: LocalTraining,
    batches: NDArray[np.int64] | None = None,
) -> dict[str, Tensor]:
    """Make K steps of SGD from a model, {"bias": (c,), "weight": (c, f)}, and return the model after them.

    The steps are made in float64 whatever the model's type, and the result is cast once: what rounding adds to the
    distance of two worlds is then little more than that cast. c is the number of classes, or 1 for logistic
    regression. ``batches`` (K, b) chooses the rows of every step, which are all of them otherwise.

    Theory sections 2 and 5.
    """
    loss = _head_loss(training.loss)
    start = {name: tensor.astype(np.float64) for name, tensor in model.items()}
    bias, weight = start["bias"], start["weight"]
    clipped = clip_rows(rows.astype(np.float64), loss.row_norm)
    targets = _targets(labels, loss, len(bias))
    # FedProx's term pulls towards the model that came; without it, this is 0.
    pull = training.learning_rate * training.proximal
    decay = 1 - training.learning_rate * loss.l2 - pull
    for step in range(training.steps):
        chosen = slice(None) if batches is None else batches[step]
        inputs = clipped[chosen]
        residuals = _probabilities(inputs @ weight.T + bias) - targets[chosen]
        rate = training.learning_rate / len(inputs)
        weight = decay * weight + pull * start["weight"] - rate * residuals.T @ inputs
        bias = decay * bias + pull * start["bias"] - rate * residuals.sum(axis=0)
    return {"bias": bias.astype(model["bias"].dtype), "weight": weight.astype(model["weight"].dtype)}


def sum_head(
    model: Mapping[str, Tensor], rows: Tensor, labels: NDArray[np.int64], loss: Loss, wanted: Wanted = Wanted.GRADIENT
) -> Sums:
    """Return the sums over a client's rows that a head is solved from, at a model and without the L2 term.

    All of it is computed in float64 whatever the model's type, in blocks of ``BLOCK`` rows.

    Args:
        model: the weight (classes, features) and the bias (classes,), under names that end so.
        rows: the client's rows (n, features), which are clipped here.
        labels: their classes, below the number of classes; 0 or 1 for logistic regression.
        loss: the head's loss.
        wanted: which curvature to add.

    Returns:
        the sums.

    Raises:
        ValueError: this is no head or not its loss, there are no rows, or the labels do not fit.

    Theory section 16.
    """
    loss = _head_loss(loss)
    theta = flatten(model)
    classes, width = head_shape(model)[0], rows.shape[1] + 1
    if classes * width != len(theta):
        raise ValueError(f"rows of {rows.shape[1]} features do not fit a head of {len(theta)} parameters")
    if isinstance(loss, LogisticL2) != (classes == 1):
        raise ValueError(
            f"{type(loss).__name__} does not fit {classes} logits: logistic regression has 1, softmax more"
        )
    if len(labels) != len(rows) or ((labels < 0) | (labels >= max(classes, 2))).any():
        raise ValueError(f"labels have to be {len(rows)} numbers from 0 to {max(classes, 2) - 1}, one for each row")
    matrix = theta.reshape(classes, width)
    total, gradient = 0.0, np.zeros((classes, width))
    size = {Wanted.GRADIENT: 0, Wanted.FEATURES: width, Wanted.FULL: len(theta)}[wanted]
    curvature = np.zeros((size, size))
    for start in range(0, len(rows), BLOCK):
        chosen = slice(start, start + BLOCK)
        clipped = clip_rows(rows[chosen].astype(np.float64), loss.row_norm)
        extended = np.column_stack([clipped, np.ones(len(clipped))])
        logits = extended @ matrix.T
        probabilities = _probabilities(logits)
        total += float(_losses(logits, labels[chosen]).sum())
        gradient += (probabilities - _targets(labels[chosen], loss, classes)).T @ extended
        if wanted is Wanted.FEATURES:
            curvature += extended.T @ extended
        elif wanted is Wanted.FULL:
            _add_hessian(curvature, probabilities, extended)
    # What is below the diagonal is what is above it, to the last bit; row by row, as copies would be large.
    for at in range(size):
        curvature[at + 1 :, at] = curvature[at, at + 1 :]
    return Sums(len(rows), total, gradient.reshape(-1), curvature if size else None)


def sum_ridge(rows: Tensor, targets: Tensor, loss: SquaredL2) -> RidgeSums:
    """Return the sums over a client's rows from which a ridge head is solved in one round.

    Args:
        rows: the client's rows (n, features), which are clipped here.
        targets: what the head should say of them (n, outputs), also clipped; of classes, ``np.eye(classes)[labels]``.
        loss: the head's loss, whose limits decide the fixed point's scale.

    Returns:
        the sums, exact and without rounding but that of each number to the fixed point.

    Raises:
        ValueError: there are no rows, or more than the limit, or not as many targets.

    Theory section 16.
    """
    clipped = np.asarray(clip_rows(rows.astype(np.float64), loss.row_norm), dtype=np.float64)
    wanted = np.asarray(clip_rows(targets.astype(np.float64), loss.target_norm), dtype=np.float64)
    return ridge_sums(clipped, wanted, loss, fixed_point_bits(loss))


def _add_hessian(hessian: Floats, probabilities: Tensor, extended: Floats) -> None:
    """Add sum of (diag(p) - pp') (x) x'x'^T to a matrix, above its diagonal."""
    classes, width = probabilities.shape[1], extended.shape[1]
    for one in range(classes):
        for other in range(one, classes):
            weights = probabilities[:, [one]] * (float(one == other) - probabilities[:, [other]])
            block = np.s_[one * width : (one + 1) * width, other * width : (other + 1) * width]
            hessian[block] += extended.T @ (weights * extended)


def _head_loss(loss: Loss) -> SoftmaxL2 | LogisticL2:
    if not isinstance(loss, SoftmaxL2 | LogisticL2):
        raise ValueError(f"the loss is {type(loss).__name__}; a head is trained by SoftmaxL2 or LogisticL2")
    return loss


def _targets(labels: NDArray[np.int64], loss: SoftmaxL2 | LogisticL2, classes: int) -> NDArray[np.int64]:
    """Return what the probabilities would be if they were right."""
    return labels[:, np.newaxis] if isinstance(loss, LogisticL2) else np.eye(classes, dtype=np.int64)[labels]


def _losses(logits: Floats, labels: NDArray[np.int64]) -> Floats:
    """Return each row's cross entropy, without overflow and never below 0."""
    if logits.shape[1] == 1:
        return np.asarray(np.logaddexp(0.0, np.where(labels == 1, -logits[:, 0], logits[:, 0])))
    largest = logits.max(axis=1)
    own = logits[np.arange(len(logits)), labels]
    # The largest power is 1, so the logarithm is not negative, and neither is the other difference.
    return np.asarray(np.log(np.exp(logits - largest[:, np.newaxis]).sum(axis=1)) + (largest - own))


def _probabilities(logits: Tensor) -> Tensor:
    """Return the classes' probabilities, or for one logit that of class 1, without overflow."""
    if logits.shape[1] == 1:
        return np.asarray(np.exp(-np.logaddexp(0.0, -logits)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
