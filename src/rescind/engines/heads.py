"""What a client executes for an L2 head, in numpy: row clipping, plain SGD, the L2 term on all parameters.

This is all that a certificate above ``exact`` needs of a client. The simulator computes the same on torch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Tensor
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.training import LocalTraining

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
    loss = training.loss
    if not isinstance(loss, SoftmaxL2 | LogisticL2):
        raise ValueError(f"the loss is {type(loss).__name__}; a head is trained by SoftmaxL2 or LogisticL2")
    start = {name: tensor.astype(np.float64) for name, tensor in model.items()}
    bias, weight = start["bias"], start["weight"]
    clipped = clip_rows(rows.astype(np.float64), loss.row_norm)
    targets = labels[:, np.newaxis] if isinstance(loss, LogisticL2) else np.eye(len(bias), dtype=np.int64)[labels]
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


def _probabilities(logits: Tensor) -> Tensor:
    """Return the classes' probabilities, or for one logit that of class 1, without overflow."""
    if logits.shape[1] == 1:
        return np.asarray(np.exp(-np.logaddexp(0.0, -logits)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
