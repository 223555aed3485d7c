"""The arrays that the mathematics works on."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Tensor: TypeAlias = NDArray[np.floating[Any]]
Floats: TypeAlias = NDArray[np.float64]
Clients: TypeAlias = NDArray[np.int64]
Members: TypeAlias = NDArray[np.bool_]


def take_half(matrix: NDArray[Any]) -> NDArray[Any]:
    """Return what of a symmetric matrix is not below its diagonal, row by row.

    Theory section 16.
    """
    return np.concatenate([row[at:] for at, row in enumerate(matrix)])


def fill_symmetric(half: NDArray[Any], width: int) -> NDArray[Any]:
    """Return the symmetric matrix of which ``half`` is what is not below the diagonal, row by row.

    Theory section 16.
    """
    matrix, start = np.empty((width, width), half.dtype), 0
    # Places of all numbers together would take more memory than the matrix.
    for at in range(width):
        end = start + width - at
        matrix[at, at:] = matrix[at:, at] = half[start:end]
        start = end
    return matrix
