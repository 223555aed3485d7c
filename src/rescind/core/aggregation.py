"""The mean of a round and how far each participant is from it, in one pass over the tensors.

With p_i the weights of the round's participants, d_i = theta_i - theta the update of participant i and
omega = sum p_i d_i, one pass gives the new parameters theta + eta_s omega, the distances ||d_i - omega|| and,
if wanted, the matrix ``G_ij = <d_i - omega, d_j - omega>``. They become privacy bounds, so what rounding may
have taken away is added to them: no result is below the exact value for the numbers that were sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescind.core._checks import at_most_one

Tensor = NDArray[np.floating[Any]]
Numbers = NDArray[np.float64]

# Sums in the tensors' own precision end after this many terms and continue in float64.
_DEPTH = 128
# A block of all participants is to stay in the second-level cache from its first use to its last.
_BLOCK_BYTES = 1024 * 1024
# Rows that lie a multiple of 4096 bytes apart would evict each other from the first-level cache.
_PADDING_BYTES = 320

_UNIT = 2.0**-53
# Pays for the roundings, fewer than 16, with which `result` itself reaches a number.
_OUTWARD = 1 + 16 * _UNIT
# Sums below the first cannot overflow when added up; only values beyond the second can exceed it.
_LARGEST_SUM = 1e290
_LARGEST_VALUE = 1e135
# A smaller share of the weights could underflow in float32.
_SMALLEST_SHARE = 2.0**-100


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """How far the participants of a round are from its mean, over all tensors.

    Attributes:
        distances: at least ||d_i - omega||, in the order of the participants.
        update_norm: at least ||omega||.
        gram: the matrix ``G_ij = <d_i - omega, d_j - omega>``, raised by what rounding may have hidden, such
            that for every group W ``p @ gram @ p``, evaluated in float64 with p_i inside W and 0 outside,
            is at least ||sum over W of p_i (d_i - omega)||^2. None if it was not asked for.

    Theory: 14.
    """

    distances: Numbers
    update_norm: float
    gram: Numbers | None


class Aggregator:
    """One round's mean and its participants' distances, added tensor by tensor.

    Args:
        weights: positive, in any unit, such as the participants' example counts; p_i is i's share of them.
        gram: whether to measure the matrix G too.
        server_learning_rate: eta_s in (0, 1], the step from theta towards the mean of the theta_i.

    Theory: 14.
    """

    def __init__(
        self, weights: Sequence[float] | Numbers, *, gram: bool = False, server_learning_rate: float = 1.0
    ) -> None:
        at_most_one("server_learning_rate", server_learning_rate)
        self._weights = _shares(weights)
        self._learning_rate = float(server_learning_rate)
        # One row per participant and one for omega; the matrix has a column more, see `_buffer`.
        rows = self._weights.size + 1
        self._sums = np.zeros((rows, rows + 1) if gram else rows)
        self._buffers: dict[np.dtype[Any], Tensor] = {}
        self._tensors = 0
        self._additions = 0
        self._unit = _UNIT
        self._underflow = float(np.finfo(np.float64).tiny)

    def add(self, previous: Tensor, updated: Sequence[Tensor]) -> Tensor:
        """Give the new tensor, from theta's ``previous`` one and the participants' ``updated`` ones.

        A ValueError names the participant whose tensor cannot be used, and leaves the results as they were.

        Theory: 14.
        """
        self._check(previous, updated)
        flat, *others = [tensor.reshape(-1) for tensor in (previous, *updated)]
        new = np.empty(flat.size, flat.dtype)
        # Squares may overflow float32 where the values do not; float64 has room for them.
        for dtype in (flat.dtype, np.dtype(np.float64)):
            with np.errstate(over="ignore", invalid="ignore"):
                sums = self._measure(flat, others, new, dtype)
            # Written so that NaN counts as too large.
            if np.abs(sums).max() < _LARGEST_SUM:
                self._sums += sums
                self._count(flat.size, dtype)
                return new.reshape(previous.shape)
        raise ValueError(_culprit(others))

    def result(self) -> Contributions:
        """Give the measurements over all tensors added so far, rounded up.

        Theory: 14.
        """
        participants = self._weights.size
        gram = self._sums[:, :-1] if self._sums.ndim == 2 else None
        squares = self._sums if gram is None else np.diagonal(gram)
        norms = np.sqrt((squares + self._underflow) / (1 - self._spread())) * _OUTWARD
        own, update = norms[:-1], float(norms[-1])
        roundings = (participants + 6) * self._unit
        drift = roundings / (1 - roundings) * (float(self._weights @ own) + update)
        drift *= 1 + (participants + 16) * _UNIT
        errors = (3 * self._unit * own + drift) * _OUTWARD
        # Alone, a participant is the mean, whatever its tensors hold.
        company = float(participants > 1)
        return Contributions(
            distances=(own + errors) * _OUTWARD * company,
            update_norm=(update + drift) * _OUTWARD,
            gram=None if gram is None else self._raise(gram[:-1, :-1], own, errors) * company,
        )

    def _raise(self, gram: Numbers, own: Numbers, errors: Numbers) -> Numbers:
        """Raise the measured matrix until every group's quadratic form is an upper bound."""
        # (a + b)^2 <= (1 + t) a^2 + (1 + 1/t) b^2 for every t > 0; this one suits the average participant.
        ratio = float(self._weights @ errors) / float(self._weights @ own)
        spread = self._spread()
        evaluation = (4 * self._weights.size + 64) * _UNIT
        relative = spread / (1 - spread) + ratio + evaluation
        lift = relative * np.outer(own, own) + (1 + 1 / ratio) * np.outer(errors, errors) + self._underflow
        return (gram + gram.T) / 2 + lift * (1 + evaluation)

    def _spread(self) -> float:
        """Bound the relative error of a sum of squares."""
        return _DEPTH * self._unit + (self._additions + self._tensors) * _UNIT

    def _measure(self, previous: Tensor, updated: Sequence[Tensor], new: Tensor, dtype: np.dtype[Any]) -> Numbers:
        """Fill ``new`` and give one tensor's sums of squares, or of all products, measured in ``dtype``."""
        rows = self._buffer(dtype)
        length = self._block_length(dtype)
        weights = self._weights.astype(dtype)
        sums = np.zeros_like(self._sums)
        for start in range(0, new.size, length):
            part = slice(start, start + length)
            base = previous[part]
            filled = -(-base.size // _DEPTH) * _DEPTH
            rows[:, base.size : filled] = 0
            updates, mean = rows[:-2, : base.size], rows[-2, : base.size]
            for row, tensor in zip(updates, updated, strict=True):
                # The very first step, so that errors scale with the updates and not with the parameters.
                np.subtract(tensor[part], base, out=row, dtype=dtype)
            np.matmul(weights, updates, out=mean)
            np.add(base, self._learning_rate * mean, out=new[part], casting="same_kind")
            np.subtract(updates, mean, out=updates)
            sums += self._products(rows[:, :filled])
        return sums

    def _products(self, rows: Tensor) -> Numbers:
        """Sum the rows' squares, or all products of rows, over short pieces and then in float64."""
        pieces = rows.reshape(rows.shape[0], -1, _DEPTH)
        measured = pieces[:-1]
        if self._sums.ndim == 1:
            sums: Numbers = np.vecdot(measured, measured).sum(axis=1, dtype=np.float64)
        else:
            products = np.matmul(measured.transpose(1, 0, 2), pieces.transpose(1, 2, 0))
            sums = products.sum(axis=0, dtype=np.float64)
        return sums

    def _buffer(self, dtype: np.dtype[Any]) -> Tensor:
        """Give the rows of a block: the participants', omega's and a spare one of zeros.

        numpy hands a matrix times its own transpose to BLAS' syrk, which takes twice as long as gemm for so
        few rows: the spare row, used on one side only, makes it gemm.
        """
        if dtype not in self._buffers:
            width = self._block_length(dtype) + _PADDING_BYTES // dtype.itemsize
            self._buffers[dtype] = np.zeros((self._weights.size + 2, width), dtype)
        return self._buffers[dtype]

    def _block_length(self, dtype: np.dtype[Any]) -> int:
        row_bytes = _BLOCK_BYTES // (self._weights.size + 2)
        return max(1, row_bytes // (dtype.itemsize * _DEPTH)) * _DEPTH

    def _count(self, size: int, dtype: np.dtype[Any]) -> None:
        """Keep what the rounding bound needs to know of a tensor that was measured in ``dtype``."""
        limits = np.finfo(dtype)
        length = self._block_length(dtype)
        self._tensors += 1
        self._additions = max(self._additions, length // _DEPTH + size // length + 1)
        self._unit = max(self._unit, float(limits.eps) / 2)
        self._underflow += 2 * size * float(limits.tiny)

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


def _shares(weights: Sequence[float] | Numbers) -> Numbers:
    """Divide the weights by their sum."""
    values = np.array(weights, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"weights must be a list of at least one number, got shape {values.shape}")
    for index, value in enumerate(values):
        if not 0 < value < math.inf:
            raise ValueError(f"participant {index}: weight {value}, must be positive and finite")
    # A power of two first, so that the sum cannot overflow.
    values = np.ldexp(values, -int(np.frexp(values.max())[1]))
    shares: Numbers = values / math.fsum(values)
    if shares.min() < _SMALLEST_SHARE:
        raise ValueError(f"participant {shares.argmin()}: weight too small beside the others'")
    return shares


def _culprit(updated: Sequence[Tensor]) -> str:
    """Say whose tensor is unfit, once something is known to be wrong."""
    for index, tensor in enumerate(updated):
        if not float(np.abs(tensor).max()) <= _LARGEST_VALUE:
            return f"participant {index}: a value that is not finite or is beyond {_LARGEST_VALUE:g}"
    return f"previous tensor: a value that is not finite or is beyond {_LARGEST_VALUE:g}"
