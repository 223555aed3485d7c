"""The initial arrays of a run: which of them are trained, and whether they are those that a history began with."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence

from flwr.app import ArrayRecord

from rescind.checkpoints.tensors import digest
from rescind.core.edges import ModelId
from rescind.core.training import UNIT_ROUNDOFF, LocalTraining
from rescind.errors import HistoryError, RunMismatchError
from rescind.flower.server.arrays import is_counter, pack
from rescind.history.history import History
from rescind.history.run import check_head, describe_model

_LOG = logging.getLogger("flwr")
_NEW = "or start a new history"


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
    if describe_model(start) != history.run.tensors:
        raise RunMismatchError(
            "the trained tensors have other names, types or shapes than those that this history began with: make "
            f"them the same in every run, {_NEW}"
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
    return pack(first, frozen, tuple(arrays))
