"""Flower's arrays as numpy's, without a copy where that is possible, and without trust in what they say."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from flwr.app import Array, ArrayRecord

from rescind.checkpoints.tensors import digest
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.training import UNIT_ROUNDOFF, LocalTraining
from rescind.errors import HistoryError, RunMismatchError
from rescind.history.history import History
from rescind.history.run import check_head, compare_tensors, describe_model

_LOG = logging.getLogger("flwr")
_NEW = "or start a new history"

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
    return list(one.items()) == list(other.items())


def pack(tensors: Mapping[str, Tensor], arrays: ArrayRecord) -> ArrayRecord:
    """Return a whole model as Flower sends it: the arrays, in their order, with other numbers where there are any."""
    return ArrayRecord(
        {
            # Code of the user's gets it, and must not reach what is sent later.
            name: Array(np.asarray(tensors[name], order="C")) if name in tensors else replace(array)
            for name, array in arrays.items()
        }
    )


# The initial arrays of a run


def find_trained(
    arrays: ArrayRecord, named: Sequence[str] | None, training: LocalTraining, *, helper: bool
) -> tuple[str, ...]:
    """Return the trained tensors' names, sorted; refuse what is not in the model, or of another type than stated."""
    trained = tuple(sorted((name for name in arrays if not is_counter(arrays[name])) if named is None else named))
    unknown = [name for name in trained if name not in arrays]
    if unknown or not trained:
        named_wrongly = f"trained names {unknown}" if unknown else "there is nothing to train"
        raise ValueError(f"{named_wrongly}, and the model has {list(arrays)}")
    # Whoever executes it: nobody's word gives a network the curvature of a head.
    check_head(training.loss, [(name, arrays[name].dtype, tuple(arrays[name].shape)) for name in trained])
    if helper and sorted(name.rpartition(".")[2] for name in trained) != ["bias", "weight"]:
        raise ValueError(
            f"train_head trains a tensor called weight and one called bias, and trained is {list(trained)}: name the "
            "head's two tensors, or say Options(declared=True) if clients train by code of their own"
        )
    precision = training.precision
    other = [f"{name!r} is {arrays[name].dtype}" for name in trained if arrays[name].dtype != precision]
    if other:
        raise ValueError(
            f"the training's precision is {precision}, and {', '.join(other)}: convert the initial arrays, state the "
            "precision that they have, or name the tensors that are trained (trained=[...])"
        )
    return trained


def find_precision(arrays: ArrayRecord, named: Sequence[str] | None) -> str:
    """Return the type that most of the trained numbers have.

    Raises:
        ValueError: it is one that models are not computed in here.
    """
    sizes = Counter[str]()
    for name, array in arrays.items():
        if (named is None or name in named) and "float" in array.dtype:
            sizes[array.dtype] += math.prod(array.shape)
    precision = sizes.most_common(1)[0][0] if sizes else "float32"
    if precision not in UNIT_ROUNDOFF:
        raise ValueError(f"the trained tensors are {precision}: convert the initial arrays to float32 or float64")
    return precision


def digest_frozen(arrays: ArrayRecord, trained: Sequence[str]) -> str:
    """Return the SHA-256 of the tensors that nobody trains; empty if there are none."""
    frozen = {name: array.numpy() for name, array in arrays.items() if name not in trained}
    return digest(frozen) if frozen else ""


def begin_alike(history: History, arrays: ArrayRecord, trained: Sequence[str]) -> ArrayRecord:
    """Return the arrays that a history began with: its own theta_0^0, and what is frozen, if that is the same."""
    known = history.timeline.branches
    if not known:
        return arrays
    start = {name: arrays[name].numpy() for name in trained}
    if (tensors := describe_model(start)) != (begun := history.run.tensors):
        raise RunMismatchError(
            f"the trained tensors are not those that this history began with ({compare_tensors(begun, tensors)}): "
            f"make them the same in every run, {_NEW}"
        )
    frozen = {name: array for name, array in arrays.items() if name not in trained}
    if digest_frozen(arrays, trained) != history.run.facts.frozen:
        raise RunMismatchError(
            f"the tensors that are not trained ({', '.join(frozen) or 'there are none'}) are not those that this "
            "history began with: make them the same in every run, from a fixed seed or from a file, "
            f"{_NEW}"
        )
    if digest(start) == known[0].model:
        return arrays
    try:
        first = history.model(ModelId(0, 0))
    except (ValueError, HistoryError) as reason:
        raise RunMismatchError(
            f"the initial arrays are not those that this history began with, and its own cannot be used: {reason}. "
            f"Restore it from a backup, give the arrays of the first run, {_NEW}"
        ) from reason
    _LOG.info("rescind: the initial arrays are not those of the first run: the history's own, model 0.0, are used")
    return pack(first, arrays)
