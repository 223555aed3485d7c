"""What clients have as rows and labels, as numpy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescind.engines.complaints import Complaint


def to_numpy(values: Any, name: str) -> NDArray[Any]:
    """Return values as a numpy array: numpy's own as they are, torch's tensors from whatever device, lists.

    Args:
        values: the values.
        name: what to call them in an error.

    Returns:
        the array.

    Raises:
        ValueError: they are no numbers that numpy has.
    """
    moved = values
    # A tensor that requires grad, or is on a GPU, does not become an array by itself; torch is not needed for asking.
    for step in ("detach", "cpu"):
        if callable(move := getattr(moved, step, None)):
            moved = move()
    try:
        array = np.asarray(moved)
    except (TypeError, ValueError, RuntimeError) as reason:
        raise Complaint.NO_ARRAY.error(name, _describe(values)) from reason
    if array.dtype == np.object_:
        raise Complaint.NO_ARRAY.error(name, _describe(values))
    return array


def _describe(values: Any) -> str:
    return f"{type(values).__name__} of {values.dtype}" if hasattr(values, "dtype") else type(values).__name__
