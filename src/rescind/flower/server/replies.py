"""What comes back from a client, treated as hostile: only what passes every check here reaches the model."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict

from rescind.core.arrays import Tensor, fill_symmetric
from rescind.core.ridge import RidgeSums
from rescind.core.sums import Sums
from rescind.engines.engine import TOO_LONG
from rescind.flower.server.arrays import UnfitArrayError, is_counter, is_usable, view_array
from rescind.flower.wire import EXECUTED, LOSS, SUMS
from rescind.texts import is_digest

# What a log shows of the names and numbers that clients chose: no sentence, nothing that steers, and not many.
_SHOWN = re.compile(r"[A-Za-z][\w./-]{0,31}", re.ASCII)
_MOST_SHOWN = 10
# To combine more than any client needs would hold everybody up.
_MOST_METRICS = 1000
_OTHER_SUMS = "it does not hold the sums that were asked for"
NOT_EXECUTED = "it does not say that our helper executed what the server asked for"


class RejectedReplyError(ValueError):
    """A reply is not used; the message says why in words that are recorded, so it holds nothing of the reply."""


class WeightMismatchError(RejectedReplyError):
    """A client tells another number of examples than the one that it had at first."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What every reply has to say, whatever was asked.

    ``digest`` is what our helper echoes, None where clients train by code of their own. ``weighted_by`` names the
    metric that is the weight, ``most_examples`` is the largest weight, and ``first_weight`` the one that this client
    had when it took part first, if that is known.
    """

    digest: str | None
    weighted_by: str
    most_examples: int
    first_weight: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """A reply that is fit for use: the trained tensors, and the number of examples n_i."""

    tensors: Mapping[str, Tensor]
    rows: float


def check_answer(content: RecordDict, expected: Expected, parameters: int, curvature: int) -> Sums:
    """Return what an answer to a solver's question holds, or refuse it.

    ``parameters`` is the length of the gradient, ``curvature`` the width of the curvature, 0 if there is none to be.
    """
    rows, arrays = _rows_and_arrays(content, expected, {"gradient", *(["curvature"] if curvature else [])})
    loss = _metrics(content).get(LOSS)
    # Whole numbers can be too large for a float.
    if not isinstance(loss, float):
        raise RejectedReplyError(_OTHER_SUMS)
    gradient = np.asarray(_view(arrays["gradient"], np.empty(parameters)), dtype=np.float64)
    if not curvature:
        return Sums(rows, loss, gradient, None)
    half = _view(arrays["curvature"], np.empty(curvature * (curvature + 1) // 2))
    return Sums(rows, loss, gradient, fill_symmetric(half, curvature))


def check_ridge_answer(content: RecordDict, expected: Expected, outputs: int, width: int, bits: int) -> RidgeSums:
    """Return what an answer to the question for a ridge head holds, or refuse it; ``bits`` is its scale."""
    rows, arrays = _rows_and_arrays(content, expected, {"features", "targets"})
    features: Any = _view(arrays["features"], np.empty(width * (width + 1) // 2, np.int64))
    targets: Any = _view(arrays["targets"], np.empty((outputs, width), np.int64))
    return RidgeSums(rows, bits, features, targets)


def _rows_and_arrays(content: RecordDict, expected: Expected, named: set[str]) -> tuple[int, ArrayRecord]:
    rows, records = _check_weight(content, expected), content.array_records
    if rows != int(rows):
        raise RejectedReplyError("it does not hold a whole number of rows")
    arrays = records.get(SUMS)
    if arrays is None or len(records) > 1 or arrays.keys() != named:
        raise RejectedReplyError(_OTHER_SUMS)
    return int(rows), arrays


def _view(array: Array, like: Tensor) -> Tensor:
    try:
        return view_array(array, like)
    except UnfitArrayError as unfit:
        raise RejectedReplyError(str(unfit)) from unfit


def _check_weight(content: RecordDict, expected: Expected) -> float:
    """Return the weight that a reply tells, of what our helper executed if it has to, or refuse it."""
    executed = content.config_records.get(EXECUTED)
    if expected.digest is not None and (executed is None or executed.get("digest") != expected.digest):
        raise RejectedReplyError(NOT_EXECUTED)
    weight = _weight(_metrics(content), expected.weighted_by, expected.most_examples)
    if expected.first_weight is not None and weight != expected.first_weight:
        raise WeightMismatchError(f"its {expected.weighted_by} differs from the one that it had at first")
    return weight


def read_named(content: RecordDict, digest: str) -> str | None:
    """Return the root of a reply that says that rows are named, None if it has none; or refuse it."""
    executed = content.config_records.get(EXECUTED)
    if executed is None or executed.get("digest") != digest:
        raise RejectedReplyError(NOT_EXECUTED)
    return read_root(content)


def read_root(content: RecordDict) -> str | None:
    """Return the root by which a reply commits to the rows that it leaves out, if it does; or refuse it."""
    executed = content.config_records.get(EXECUTED)
    root = None if executed is None else executed.get("removed")
    if root is not None and not is_digest(root):
        raise RejectedReplyError("what it tells of the rows that it leaves out is no digest")
    return None if root is None else str(root)


def check_reply(
    content: RecordDict,
    expected: Expected,
    model: Mapping[str, Tensor],
    frozen: Mapping[str, Array],
    reach: tuple[float, float] | None,
) -> Reply:
    """Return what a reply to a round holds, or refuse it.

    ``model`` is theta^n, ``frozen`` what may not change. ``reach`` is a factor c and a radius: no result is further
    from c theta^n, if that is known.
    """
    weight, tensors = _check_weight(content, expected), _tensors(content, model, frozen)
    if reach is not None:
        factor, radius = reach
        with np.errstate(over="ignore"):
            apart = (np.subtract(tensor, factor * model[name]) for name, tensor in tensors.items())
            norms = [float(np.linalg.norm(difference.astype(np.float64))) for difference in apart]
        if not math.hypot(*norms) <= radius:
            raise RejectedReplyError(TOO_LONG)
    return Reply(tensors, weight)


def _tensors(content: RecordDict, model: Mapping[str, Tensor], frozen: Mapping[str, Array]) -> dict[str, Tensor]:
    # Flower makes the list of records anew whenever it is asked for it.
    records = list(content.array_records.values())
    if len(records) != 1:
        raise RejectedReplyError("it does not hold exactly one record of arrays")
    (arrays,) = records
    if not arrays.keys() >= model.keys() | frozen.keys():
        raise RejectedReplyError("a tensor of the model is missing")
    if len(arrays) > len(model) + len(frozen):
        raise RejectedReplyError("it holds a tensor that the model does not have")
    if any(arrays[name].data != array.data for name, array in frozen.items() if not is_counter(array)):
        raise RejectedReplyError("a tensor that is not trained was changed")
    tensors = {name: _view(arrays[name], tensor) for name, tensor in model.items()}
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


def describe_metrics(metrics: Mapping[str, object]) -> str:
    """Return as much of metrics as a log may show that is kept: how many there are, and single numbers by name."""
    shown = [
        f", {name} {value:.6g}"
        for name, value in metrics.items()
        # Written so that NaN counts as too large, and whole numbers that are too large for a float.
        if _SHOWN.fullmatch(name) and isinstance(value, int | float) and abs(value) <= sys.float_info.max
    ]
    return f"{len(metrics)} metrics{''.join(shown[:_MOST_SHOWN])}"


def list_metrics(contents: Iterable[RecordDict]) -> str:
    """Return the names of the metrics that most replies hold, as far as a log may show them."""
    names = Counter(name for content in contents for record in content.metric_records.values() for name in record)
    return ", ".join([name for name, _ in names.most_common() if _SHOWN.fullmatch(name)][:_MOST_SHOWN])


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
