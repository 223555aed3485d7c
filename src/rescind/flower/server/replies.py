"""What comes back from a client, treated as hostile: only what passes every check here reaches the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict

from rescind.core.arrays import Tensor
from rescind.core.ridge import RidgeSums
from rescind.core.sums import Sums
from rescind.engines.engine import TOO_LONG
from rescind.flower.server.arrays import UnfitArrayError, is_counter, is_usable, view_array
from rescind.flower.wire import EXECUTED, LOSS, SUMS
from rescind.texts import is_digest

# To combine more than any client needs would hold everybody up.
_MOST_METRICS = 1000
_OTHER_SUMS = "it does not hold the sums that were asked for"
NOT_EXECUTED = "it does not say that our helper executed what the server asked for"


class RejectedReplyError(ValueError):
    """A reply is not used; the message says why in words that are recorded, so it holds nothing of the reply."""


class WeightMismatchError(RejectedReplyError):
    """A client tells another number of examples than the one that it had at first."""


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What a reply to a round has to look like.

    ``model`` is theta^n, ``frozen`` what may not change, ``weighted_by`` the name of the metric that is the weight,
    ``most_examples`` the largest weight. ``reach`` is a factor c and a radius:
    no result is further from c theta^n, if that is known.
    """

    model: Mapping[str, Tensor]
    frozen: Mapping[str, Array]
    weighted_by: str
    most_examples: int
    reach: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Question:
    """What an answer to a solver's question has to look like.

    ``parameters`` is the length of the gradient, ``curvature`` the width of the curvature, 0 if there is none to be;
    ``weighted_by`` names the metric that is the number of rows, ``most_examples`` is the largest.
    """

    parameters: int
    curvature: int
    weighted_by: str
    most_examples: int


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A reply that is fit for use: the trained tensors, and the number of examples n_i."""

    tensors: Mapping[str, Tensor]
    examples: float


def check_answer(message: Message, asked: Question, digest: str, first_weight: float | None) -> Sums:
    """Return what an answer to a solver's question holds, or refuse it; the last two are those of ``check_reply``."""
    rows, arrays = _rows_and_arrays(
        message.content, asked, digest, first_weight, {"gradient", *(["curvature"] if asked.curvature else [])}
    )
    loss = _metrics(message.content).get(LOSS)
    # Whole numbers can be too large for a float.
    if not isinstance(loss, float):
        raise RejectedReplyError(_OTHER_SUMS)
    try:
        gradient = np.asarray(view_array(arrays["gradient"], np.empty(asked.parameters)), dtype=np.float64)
        curvature = _symmetric(arrays["curvature"], asked.curvature) if asked.curvature else None
    except UnfitArrayError as unfit:
        raise RejectedReplyError(str(unfit)) from unfit
    return Sums(rows, loss, gradient, curvature)


def check_ridge_answer(
    message: Message, asked: Question, digest: str, first_weight: float | None, bits: int
) -> RidgeSums:
    """Return what an answer to the question for a ridge head holds, or refuse it; ``bits`` is its scale."""
    rows, arrays = _rows_and_arrays(message.content, asked, digest, first_weight, {"features", "targets"})
    width = asked.curvature
    try:
        features = _symmetric(arrays["features"], width, np.int64)
        targets: Any = view_array(arrays["targets"], np.empty((asked.parameters // width, width), np.int64))
    except UnfitArrayError as unfit:
        raise RejectedReplyError(str(unfit)) from unfit
    return RidgeSums(rows, bits, features, targets)


def _rows_and_arrays(
    content: RecordDict, asked: Question, digest: str, first_weight: float | None, named: set[str]
) -> tuple[int, ArrayRecord]:
    _check_executed(content, digest)
    rows = _weight(_metrics(content), asked.weighted_by, asked.most_examples)
    if rows != int(rows):
        raise RejectedReplyError("it does not hold a whole number of rows")
    if first_weight is not None and rows != first_weight:
        raise WeightMismatchError(f"its {asked.weighted_by} differs from the one that it had at first")
    records = content.array_records
    arrays = records.get(SUMS)
    if arrays is None or len(records) > 1 or arrays.keys() != named:
        raise RejectedReplyError(_OTHER_SUMS)
    return int(rows), arrays


def _symmetric(array: Array, width: int, type_: type[np.generic] = np.float64) -> Any:
    """Return the whole matrix of which one half was sent."""
    places = np.triu_indices(width)
    half = view_array(array, np.empty(len(places[0]), type_))
    matrix = np.empty((width, width), type_)
    matrix[places] = half
    matrix.T[places] = half
    return matrix


def _check_executed(content: RecordDict, digest: str) -> None:
    executed = content.config_records.get(EXECUTED)
    if executed is None or executed.get("digest") != digest:
        raise RejectedReplyError(NOT_EXECUTED)


def read_root(message: Message) -> str | None:
    """Return the root by which a reply commits to the rows that it leaves out, if it does; or refuse it."""
    executed = message.content.config_records.get(EXECUTED)
    root = None if executed is None else executed.get("removed")
    if root is not None and not is_digest(root):
        raise RejectedReplyError("what it tells of the rows that it leaves out is no digest")
    return None if root is None else str(root)


def check_reply(message: Message, expected: Expected, digest: str | None, first_weight: float | None) -> Reply:
    """Return what a reply holds, or refuse it.

    ``digest`` is what our helper echoes, None where clients train by code of their own; ``first_weight`` is the
    weight that this client had when it took part first.
    """
    content = message.content
    if digest is not None:
        _check_executed(content, digest)
    weight = _weight(_metrics(content), expected.weighted_by, expected.most_examples)
    if first_weight is not None and weight != first_weight:
        raise WeightMismatchError(f"its {expected.weighted_by} differs from the one that it had at first")
    tensors = _tensors(content, expected)
    if expected.reach is not None:
        factor, radius = expected.reach
        with np.errstate(over="ignore"):
            apart = (np.subtract(tensor, factor * expected.model[name]) for name, tensor in tensors.items())
            norms = [float(np.linalg.norm(difference.astype(np.float64))) for difference in apart]
        if not math.hypot(*norms) <= radius:
            raise RejectedReplyError(TOO_LONG)
    return Reply(tensors, weight)


def _tensors(content: RecordDict, expected: Expected) -> dict[str, Tensor]:
    # Flower makes the list of records anew whenever it is asked for it.
    records = list(content.array_records.values())
    if len(records) != 1:
        raise RejectedReplyError("it does not hold exactly one record of arrays")
    (arrays,) = records
    missing = (expected.model.keys() | expected.frozen.keys()) - arrays.keys()
    if missing:
        raise RejectedReplyError("a tensor of the model is missing")
    if len(arrays) > len(expected.model) + len(expected.frozen):
        raise RejectedReplyError("it holds a tensor that the model does not have")
    fixed = {name: array for name, array in expected.frozen.items() if not is_counter(array)}
    if any(arrays[name].data != array.data for name, array in fixed.items()):
        raise RejectedReplyError("a tensor that is not trained was changed")
    try:
        tensors = {name: view_array(arrays[name], tensor) for name, tensor in expected.model.items()}
    except UnfitArrayError as unfit:
        raise RejectedReplyError(str(unfit)) from unfit
    if not all(map(is_usable, tensors.values())):
        raise RejectedReplyError("a tensor holds numbers that are not finite, or too large")
    return tensors


def combinable(content: RecordDict, weighted_by: str, most_examples: int) -> MetricRecord:
    """Return the metrics that a reply holds, fit for a mean with the others', or refuse it."""
    metrics = _metrics(content)
    _weight(metrics, weighted_by, most_examples)
    numbers = (number for value in metrics.values() for number in (value if isinstance(value, list) else [value]))
    # Written so that NaN counts as infinite.
    if not all(abs(number) < math.inf for number in numbers):
        raise RejectedReplyError("it holds metrics that are not finite")
    return metrics


def kinds(metrics: MetricRecord) -> frozenset[tuple[str, int | None]]:
    """Describe metrics: their names, and how long those are that are lists."""
    return frozenset((name, len(value) if isinstance(value, list) else None) for name, value in metrics.items())


def _metrics(content: RecordDict) -> MetricRecord:
    records = list(content.metric_records.values())
    if len(records) != 1:
        raise RejectedReplyError("it does not hold exactly one record of metrics")
    (metrics,) = records
    if sum(len(value) if isinstance(value, list) else 1 for value in metrics.values()) > _MOST_METRICS:
        raise RejectedReplyError(f"it holds more than {_MOST_METRICS} metrics")
    return metrics


def _weight(metrics: MetricRecord, weighted_by: str, most: int) -> float:
    weight = metrics.get(weighted_by)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise RejectedReplyError(f"its {weighted_by} is missing, or no number")
    if not 1 <= weight <= most:
        raise RejectedReplyError(f"its {weighted_by} is not a number of examples from 1 to {most}")
    return float(weight)
