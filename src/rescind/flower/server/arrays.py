"""Flower's arrays as numpy's, without a copy where that is possible, and without trust in what they say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from flwr.app import Array, ArrayRecord

from rescind.core.arrays import Tensor

# What numpy writes before the numbers of an array, in the versions 1.0 and 2.0 of its format. numpy's own reader
# evaluates this text, and there are many that make it fail in ways of their own.
_MAGIC = re.compile(rb"\x93NUMPY(?:\x01\x00(?P<short>..)|\x02\x00(?P<long>....))", re.DOTALL)
_TEXT = re.compile(
    rb"\{'descr': '(?P<type>[<>|=]?[a-zA-Z]\d{1,3})', 'fortran_order': (?P<columns>True|False), "
    rb"'shape': \((?P<shape>[\d, ]{0,200})\), \} *\n"
)
_LONGEST_TEXT = 1024
# The largest numbers that are used, by type: the squares of more of them than any model has can be added up within
# the type, by a strategy of the user's too, and differences of them can be formed. A mean is never larger.
_LARGEST = {"float32": 1e13, "float64": 1e135}


class UnfitArrayError(ValueError):
    """An array is not what was asked for; the message says how, and nothing of its content."""


def view_array(array: Array, like: Tensor) -> Tensor:
    """Return the numbers of an array that has to have the type and shape of another; read-only, not copied.

    Flower's own way reads them into new memory: for all participants of a round that is as much again as their
    replies.
    """
    data = array.data
    magic = _MAGIC.match(data)
    length = int.from_bytes(magic["short"] or magic["long"], "little") if magic else 0
    begin = magic.end() + length if magic else 0
    text = _TEXT.fullmatch(data, magic.end(), begin) if magic and length <= _LONGEST_TEXT else None
    if text is None:
        raise UnfitArrayError("a tensor that is not in numpy's format")
    if text["type"].decode() != like.dtype.str:
        raise UnfitArrayError("a tensor of another type than the model's")
    if [int(size) for size in re.findall(rb"\d{1,18}", text["shape"])] != list(like.shape):
        raise UnfitArrayError("a tensor of another shape than the model's")
    if len(data) - begin != like.nbytes:
        raise UnfitArrayError("a tensor with more or fewer bytes than its shape has")
    flat: Tensor = np.frombuffer(data, like.dtype, offset=begin)
    columns_first = text["columns"] == b"True"
    return flat.reshape(like.shape[::-1]).T if columns_first else flat.reshape(like.shape)


def is_counter(array: Array) -> bool:
    """Return whether an array is one whole number, such as BatchNorm's count of batches, which nobody learns."""
    return not array.shape and array.dtype.startswith(("int", "uint"))


def is_usable(tensor: Tensor) -> bool:
    """Return whether all numbers are finite, and small enough to be computed with in their own type."""
    flat = tensor.reshape(-1)
    # A number of the tensor's own type: any other would be cast to it, and may become infinite.
    largest = flat.dtype.type(_LARGEST.get(str(flat.dtype), np.finfo(flat.dtype).max))
    with np.errstate(over="ignore", invalid="ignore"):
        # One fast pass; only a sum of squares that is too large needs a closer look.
        if np.dot(flat, flat) < largest:
            return True
        return bool((np.abs(flat) <= largest).all())


def copy_record(record: ArrayRecord) -> ArrayRecord:
    """Return a copy that can be changed in every way without the record's noticing; its bytes are shared."""
    return ArrayRecord({name: replace(array) for name, array in record.items()})


def is_same_record(one: ArrayRecord, other: ArrayRecord) -> bool:
    """Return whether two records hold the same arrays under the same names, byte by byte and in the same order."""
    spelt = [
        [(name, array.dtype, tuple(array.shape), array.stype, array.data) for name, array in record.items()]
        for record in (one, other)
    ]
    return spelt[0] == spelt[1]


def pack(tensors: Mapping[str, Tensor], frozen: Mapping[str, Array], order: tuple[str, ...]) -> ArrayRecord:
    """Return a whole model as Flower sends it: what is trained, and what is frozen, in the order it had at first."""
    record = ArrayRecord()
    for name in order:
        # Code of the user's gets it, and must not reach what is sent later.
        record[name] = replace(frozen[name]) if name in frozen else Array(np.asarray(tensors[name], order="C"))
    return record
