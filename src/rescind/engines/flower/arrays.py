"""Flower's arrays as numpy's, without a copy where that is possible, and without trust in what they say."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.lib import format as npy

from rescind.core.noise import Tensor

# numpy's header of an array that has a few dimensions takes 128 bytes; this is plenty.
_LONGEST_HEADER = 4096


class UnfitArray(ValueError):
    """An array is not what was asked for; the message says how, and nothing of its content."""


def view(array: Array) -> Tensor:
    """Give the numbers of an array read-only, and not copied.

    Flower's own way reads them into new memory: for all participants of a round that is as much again as their
    replies.
    """
    data = array.data
    # Magic string and version take 8 bytes, the header's length 2 in version 1 and 4 in version 2.
    begin = 10 if data[6:7] == b"\1" else 12
    begin += int.from_bytes(data[8:begin], "little")
    try:
        shape, columns_first, dtype = _header(data[: min(begin, _LONGEST_HEADER)])
    except (ValueError, KeyError) as error:
        raise UnfitArray("a tensor that is not in numpy's format") from error
    if dtype.hasobject or len(data) - begin != math.prod(shape) * dtype.itemsize:
        raise UnfitArray("a tensor with more or fewer bytes than its shape has")
    flat: Tensor = np.frombuffer(data, dtype, offset=begin)
    return flat.reshape(shape[::-1]).T if columns_first else flat.reshape(shape)


def viewed(array: Array, like: Tensor) -> Tensor:
    """Give the numbers of an array that has to have the type and the shape of another."""
    tensor = view(array)
    if tensor.dtype != like.dtype:
        raise UnfitArray("a tensor of another type than the model's")
    if tensor.shape != like.shape:
        raise UnfitArray("a tensor of another shape than the model's")
    return tensor


@lru_cache(maxsize=256)
def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read what stands before the numbers; kept, as all participants send the same few."""
    stream = io.BytesIO(data)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    shape, columns_first, dtype = readers[npy.read_magic(stream)](stream, max_header_size=_LONGEST_HEADER)
    return shape, columns_first, dtype


def finite(tensor: Tensor) -> bool:
    """Tell whether all numbers are finite."""
    flat = tensor.reshape(-1)
    # One fast pass; only a sum of squares that overflows needs a closer look.
    return bool(np.isfinite(np.dot(flat, flat))) or bool(np.isfinite(flat).all())


def packed(tensors: Mapping[str, Tensor], frozen: Mapping[str, Array], order: tuple[str, ...]) -> ArrayRecord:
    """Give a whole model as Flower sends it: what is trained, and what is frozen, in the order it had at first."""
    record = ArrayRecord()
    for name in order:
        record[name] = frozen[name] if name in frozen else Array(np.ascontiguousarray(tensors[name]))
    return record
