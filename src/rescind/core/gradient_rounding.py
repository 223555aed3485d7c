"""What floating point may hide of the gradient from which a solution is recognised."""

from __future__ import annotations

import math

from rescind.core._checks import not_negative
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.sums import BLOCK

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
