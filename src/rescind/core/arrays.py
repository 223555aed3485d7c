"""The arrays that the mathematics works on."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Tensor: TypeAlias = NDArray[np.floating[Any]]
Floats: TypeAlias = NDArray[np.float64]
Clients: TypeAlias = NDArray[np.int64]
Members: TypeAlias = NDArray[np.bool_]
