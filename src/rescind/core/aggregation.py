"""The mean of a round and how far each participant is from it, in one pass over the tensors.

With p_i the weights of the round's participants, d_i = theta_i - theta the update of participant i and
omega = sum p_i d_i, one pass gives the new parameters theta + eta_s omega, the distances ||d_i - omega|| and,
if wanted, the matrix ``G_ij = <d_i - omega, d_j - omega>``. All of it is computed in float64, whatever the tensors'
type, and the new parameters are cast once. The distances become privacy bounds, so what rounding may have taken away
is added to them: no result is below the exact value for the numbers that were sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rescind.core._checks import at_most_one
from rescind.core.arrays import Floats, Tensor

# Above this a mean's rounding would no longer be covered by its term (Theory section 5).
MOST_PARTICIPANTS = 2**20

# A block of all participants is to stay in the second-level cache from its first use to its last.
_BLOCK_BYTES = 1024 * 1024
_PIECE = 128
# Rows that lie a multiple of 4096 bytes apart would evict each other from the first-level cache.
_PADDING = 40

_UNIT = 2.0**-53
_TINY = float(np.finfo(np.float64).tiny)
# Pays for the roundings, fewer than 16, with which `result` itself reaches a number.
_OUTWARD = 1 + 16 * _UNIT
# Sums below the first cannot overflow when added up; only values beyond the second can exceed it.
_LARGEST_SUM = 1e290
_LARGEST_VALUE = 1e135
# A smaller share of the weights is a mistake in their unit, or an attempt to hide in it.
_SMALLEST_SHARE = 2.0**-100


@dataclass(frozen=True, slots=True, eq=False)
class RoundMeasurement:
    """How far the participants of a round are from its mean, over all tensors.

    Attributes:
        distances: at least ||d_i - omega||, in the order of the participants.
        update_norm: at least ||omega||.
        gram: the matrix ``G_ij = <d_i - omega, d_j - omega>``, raised by what rounding may have hidden, such
            that for every group W ``p @ gram @ p``, evaluated in float64 with p_i inside W and 0 outside,
            is at least ||sum over W of p_i (d_i - omega)||^2. None if it was not asked for.
        mean_norm: at least ||theta + omega||, the norm of the mean of the theta_i.

    Theory section 14.
    """

    distances: Floats
    update_norm: float
    gram: Floats | None
    mean_norm: float = 0.0

    @property
    def largest_norm(self) -> float:
        """At least ||theta||, every ||theta_i||, and so the norm of any mean of them."""
        return self.mean_norm + max(self.update_norm, float(self.distances.max(initial=0.0)))


class Aggregator:
    """One round's mean and its participants' distances, added tensor by tensor.

    Args:
        weights: positive, in any unit, such as the participants' example counts; p_i is i's share of them.
        gram: whether to measure the matrix G too.
        server_learning_rate: eta_s in (0, 1], the step from theta towards the mean of the theta_i.

    Theory section 14.
    """

    def __init__(
        self, weights: Sequence[float] | Floats, *, gram: bool = False, server_learning_rate: float = 1.0
    ) -> None:
        at_most_one("server_learning_rate", server_learning_rate)
        self._weights = _shares(weights)
        self._learning_rate = float(server_learning_rate)
        participants = self._weights.size
        # The squares of the participants' rows, of omega's and of the mean's.
        self._squares = np.zeros(participants + 2)
        self._products = np.zeros((participants, participants)) if gram else None
        self._length = max(_BLOCK_BYTES // (8 * (participants + 2)) // _PIECE, 1) * _PIECE
        self._rows = np.empty((participants + 2, self._length + _PADDING))
        self._additions = 0
        self._entries = 0

    def add(self, previous: Tensor, updated: Sequence[Tensor]) -> Tensor:
        """Return the new tensor, from theta's ``previous`` one and the participants' ``updated`` ones.

        A ValueError names the participant whose tensor cannot be used, and leaves the results as they were.

        Theory section 14.
        """
        self._check(previous, updated)
        flat, *others = [tensor.reshape(-1) for tensor in (previous, *updated)]
        new = np.empty(flat.size, flat.dtype)
        squares = np.zeros_like(self._squares)
        products = None if self._products is None else np.zeros_like(self._products)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, flat.size, self._length):
                part = slice(start, start + self._length)
                rows = self._fill(flat[part], [tensor[part] for tensor in others], new[part])
                if products is None:
                    squares += np.vecdot(rows, rows)
                    continue
                own = _products(rows)
                products += own
                squares += np.concatenate((np.diagonal(own), np.vecdot(rows[-2:], rows[-2:])))
        # Written so that NaN counts as too large.
        if not squares.max() < _LARGEST_SUM:
            raise ValueError(_culprit(others))
        self._squares += squares
        if self._products is not None and products is not None:
            self._products += products
        # What a square passes on its way into its sum: the additions of its block, of the blocks, of the tensors.
        blocks = -(-flat.size // self._length)
        self._additions = max(self._additions, min(self._length, flat.size) + blocks) + 1
        self._entries += flat.size
        return new.reshape(previous.shape)

    def result(self) -> RoundMeasurement:
        """Return the measurements over all tensors added so far, rounded up.

        Theory section 14.
        """
        participants = self._weights.size
        spread = (self._additions + 1) * _UNIT
        underflow = 2 * (self._entries + 1) * _TINY
        norms = np.sqrt((self._squares + underflow) / (1 - spread)) * _OUTWARD
        own, update, mean = norms[:-2], float(norms[-2]), float(norms[-1])
        roundings = (participants + 4) * _UNIT
        drift = roundings / (1 - roundings) * (float(self._weights @ own) + mean)
        drift *= 1 + (participants + 16) * _UNIT
        errors = (2 * _UNIT * own + drift) * _OUTWARD
        # Alone, a participant is the mean, whatever its tensors hold.
        company = float(participants > 1)
        gram = None
        if self._products is not None:
            gram = self._raise(self._products, own, errors, spread, underflow) * company
        return RoundMeasurement(
            distances=(own + errors) * _OUTWARD * company,
            update_norm=(update * (1 + 2 * _UNIT) + drift) * _OUTWARD,
            gram=gram,
            mean_norm=(mean + drift) * _OUTWARD,
        )

    def _raise(self, gram: Floats, own: Floats, errors: Floats, spread: float, underflow: float) -> Floats:
        """Raise the measured matrix until every group's quadratic form is an upper bound."""
        # (a + b)^2 <= (1 + t) a^2 + (1 + 1/t) b^2 for every t > 0; this one suits the average participant.
        ratio = float(self._weights @ errors) / float(self._weights @ own)
        evaluation = (4 * self._weights.size + 64) * _UNIT
        relative = spread / (1 - spread) + ratio + evaluation
        lift = relative * np.outer(own, own) + (1 + 1 / ratio) * np.outer(errors, errors) + underflow
        return (gram + gram.T) / 2 + lift * (1 + evaluation)

    def _fill(self, previous: Tensor, updated: Sequence[Tensor], new: Tensor) -> Floats:
        """Write a block's new parameters; return the rows theta_i - mean, then omega's and the mean's."""
        rows = self._rows[:, : previous.size]
        results, update, mean = rows[:-2], rows[-2], rows[-1]
        for row, tensor in zip(results, updated, strict=True):
            # A copy casts faster than a subtraction does, and theta drops out of theta_i - mean.
            row[:] = tensor
        np.matmul(self._weights, results, out=mean)
        np.subtract(mean, previous, out=update)
        if self._learning_rate == 1.0:
            new[:] = mean
        else:
            new[:] = previous + self._learning_rate * update
        np.subtract(results, mean, out=results)
        return rows

    def _check(self, previous: Tensor, updated: Sequence[Tensor]) -> None:
        if previous.dtype not in (np.float32, np.float64):
            raise ValueError(f"previous tensor: dtype {previous.dtype}, must be float32 or float64")
        if len(updated) != self._weights.size:
            raise ValueError(f"{len(updated)} tensors for {self._weights.size} participants")
        for index, tensor in enumerate(updated):
            if tensor.dtype != previous.dtype:
                raise ValueError(f"participant {index}: dtype {tensor.dtype}, must be {previous.dtype}")
            if tensor.shape != previous.shape:
                raise ValueError(f"participant {index}: shape {tensor.shape}, must be {previous.shape}")


def _products(rows: Floats) -> Floats:
    """Return all products of the rows but the last two, summed over short pieces first.

    BLAS is slow for so few and so long rows. One row more on the right, as numpy would hand a matrix times its own
    transpose to BLAS' syrk, which takes twice as long as gemm here.
    """
    whole = rows.shape[1] // _PIECE * _PIECE
    pieces = rows[:-1, :whole].reshape(len(rows) - 1, -1, _PIECE)
    products = np.matmul(pieces[:-1].transpose(1, 0, 2), pieces.transpose(1, 2, 0)).sum(axis=0)
    rest = rows[:-1, whole:]
    return np.asarray((products + rest[:-1] @ rest.T)[:, :-1])


def _shares(weights: Sequence[float] | Floats) -> Floats:
    """Divide the weights by their sum."""
    values = np.array(weights, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"weights must be a list of at least one number, got shape {values.shape}")
    if values.size > MOST_PARTICIPANTS:
        raise ValueError(f"{values.size} participants in one round; at most {MOST_PARTICIPANTS} are covered")
    for index, value in enumerate(values):
        if not 0 < value < math.inf:
            raise ValueError(f"participant {index}: weight {value}, must be positive and finite")
    # A power of two first, so that the sum cannot overflow.
    values = np.ldexp(values, -int(np.frexp(values.max())[1]))
    shares: Floats = values / math.fsum(values)
    if shares.min() < _SMALLEST_SHARE:
        raise ValueError(f"participant {shares.argmin()}: weight too small beside the others'")
    return shares


def _culprit(updated: Sequence[Tensor]) -> str:
    """Say whose tensor is unfit, once something is known to be wrong."""
    for index, tensor in enumerate(updated):
        if not float(np.abs(tensor).max()) <= _LARGEST_VALUE:
            return f"participant {index}: a value that is not finite or is beyond {_LARGEST_VALUE:g}"
    return f"previous tensor: a value that is not finite or is beyond {_LARGEST_VALUE:g}"
