"""How much a client tells its coordinator: what a message may ask for, and how many numbers leave in all."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flwr.app import ConfigRecord, Context

from rescind.core._checks import positive
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.sums import Wanted
from rescind.engines.complaints import Complaint
from rescind.engines.heads import LEAST_ROWS
from rescind.flower.wire import COUNTED, PREFIX, Instructions
from rescind.ledger.commitments import canonical
from rescind.private_files import open_private, warn_if_packed

_LOG = logging.getLogger("flwr")
# Two numbers and their names take far less.
_LONGEST_FILE = 1000
_ENOUGH = (
    "rescind: %d numbers are told now of rows that hold %d: whoever runs the server may be able to compute the rows. "
    "train_head(limits=Limits(share=...)) sets a limit"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a client does for its coordinator, at most.

    Attributes:
        rows: the fewest rows that a client has to have for its replies.
        batch: the fewest rows of a step where it does not use all of them; None if every step has to. Of batches,
            the coordinator knows which rows are in them: each reply may tell it about one row.
        steps: the most local steps of a round.
        learning_rate: the largest learning rate, times the loss's largest curvature (beta) and FedProx's term; above
            2, steps need not lead anywhere.
        length: the longest model, as the root mean square of its parameters times R' = sqrt(R^2 + 1), R being the
            row norm. A longer model can tell single rows apart in a sum.
        messages: the most replies in a run, rounds of training and a solver's questions together.
        share: the most numbers that are told, relative to those that the rows hold: at 1 and beyond it there can be
            enough of them to compute every row. None sets no limit; then the log warns once at 1.

    Raises:
        ValueError: a number is not above 0, or not a whole one where it has to be.
    """

    rows: int = LEAST_ROWS
    batch: int | None = None
    steps: int = 1_000
    learning_rate: float = 2.0
    length: float = 10.0
    messages: int = 1_000
    share: float | None = None

    def __post_init__(self) -> None:
        for name in ("rows", "batch", "steps", "learning_rate", "length", "messages", "share"):
            value = getattr(self, name)
            if value is None and name in ("batch", "share"):
                continue
            positive(name, value)
            if name in ("rows", "batch", "steps", "messages") and not isinstance(value, int):
                raise ValueError(f"{name} is {value!r}; it has to be a whole number")


@dataclass(frozen=True, slots=True)
class Count:
    """What was told: so many replies, with so many numbers in all, of rows and targets clipped to these norms."""

    messages: int = 0
    numbers: int = 0
    norms: Mapping[str, float] = field(default_factory=dict)


def admit(
    limits: Limits,
    told: Instructions,
    context: Context,
    shape: tuple[int, int],
    norm: float,
    rows: int,
    file: str | os.PathLike[str] | None = None,
) -> None:
    """Refuse a message that is beyond a client's limits, and count one that is not.

    The count and the settings of a run's first message are in the context's state, which Flower keeps for the run;
    where a file is named, it has the count over all runs.

    Args:
        limits: the client's own.
        told: the server's instructions.
        context: the ClientApp's context.
        shape: the head's numbers of classes and of features.
        norm: ||theta|| of the model that came.
        rows: how many rows the client has.
        file: where the count is kept over all runs.

    Raises:
        ValueError: the message is beyond the limits, or its settings are not those of the run's first one.
    """
    try:
        _check_message(limits, told, math.prod((shape[0], shape[1] + 1)), norm, rows)
        _count_message(limits, told, context, shape, rows, file)
    except ValueError as refused:
        _LOG.warning("rescind: this client does not answer: %s", refused)
        raise


def _check_message(limits: Limits, told: Instructions, parameters: int, norm: float, rows: int) -> None:
    training, loss = told.training, told.training.loss
    if rows < limits.rows:
        raise Complaint.FEW_ROWS.error(rows, limits.rows)
    # What is asked for a ridge head does not follow from the model. Other losses no head is trained by.
    if told.ridge is not None or not isinstance(loss, SoftmaxL2 | LogisticL2):
        return
    length, longest = norm * math.sqrt(loss.row_norm**2 + 1), limits.length * math.sqrt(parameters)
    # Written such that NaN is refused too.
    if not length <= longest:
        raise Complaint.LENGTH.error(f"{length:.3g}", f"{longest:.3g}")
    if told.wanted is not None:
        return
    if training.steps > limits.steps:
        raise Complaint.STEPS.error(training.steps, limits.steps)
    sharpness = training.learning_rate * (loss.curvature.high + training.proximal)
    if not sharpness <= limits.learning_rate:
        raise Complaint.RATE.error(f"{sharpness:.3g}", f"{limits.learning_rate:g}")
    if told.batch and told.batch < rows and (limits.batch is None or told.batch < limits.batch):
        raise Complaint.BATCH.error(told.batch, rows)


def _count_message(
    limits: Limits,
    told: Instructions,
    context: Context,
    shape: tuple[int, int],
    rows: int,
    file: str | os.PathLike[str] | None,
) -> None:
    settings, kept = _digest(told), context.state.config_records.get(COUNTED, ConfigRecord())
    # Flower hands the state on to later runs of a series.
    of_this_run = kept.get("run") == str(context.run_id)
    if of_this_run and kept["settings"] != settings:
        raise Complaint.SETTINGS.error()
    numbers, held = _count_numbers(told, *shape), rows * shape[1]

    def add(count: Count) -> Count:
        norms = _norms(told)
        for name in norms.keys() & count.norms.keys():
            if norms[name] != count.norms[name]:
                raise Complaint.NORMS.error(name, norms[name], count.norms[name])
        after = Count(count.messages + 1, count.numbers + numbers, {**count.norms, **norms})
        if after.messages > limits.messages:
            raise Complaint.MESSAGES.error(limits.messages)
        if limits.share is not None and after.numbers > limits.share * held:
            raise Complaint.SHARE.error(after.numbers, held, f"{limits.share:g}")
        # In a simulation nobody reads the log, and there are hundreds of clients.
        if count.numbers <= held < after.numbers and "partition-id" not in context.node_config:
            _LOG.warning(_ENOUGH, after.numbers, held)
        return after

    if file is None:
        after = add(Count(int(kept["messages"]), int(kept["numbers"])) if of_this_run else Count())  # type: ignore[arg-type]
    else:
        after = _add_in_file(Path(file), add)
    context.state[COUNTED] = ConfigRecord(
        {
            "run": str(context.run_id),
            "settings": settings,
            "messages": after.messages,
            "numbers": after.numbers,
        }
    )


def _add_in_file(file: Path, add: Callable[[Count], Count]) -> Count:
    """Change the count in a file, which other processes of this client may want to change at the same time."""
    if not file.exists():
        warn_if_packed(file)
    with open(file, "a+b", opener=open_private) as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)
        kept.seek(0)
        after = add(_parse(kept.read(_LONGEST_FILE), file))
        # Cut off here, the file is empty or no JSON. To begin at 0 then would forget what was told.
        kept.truncate(0)
        kept.write(json.dumps(asdict(after)).encode())
        kept.flush()
        os.fsync(kept.fileno())
    return after


def _parse(content: bytes, file: Path) -> Count:
    if not content:
        return Count()
    try:
        kept = json.loads(content)
        count = Count(kept["messages"], kept["numbers"], kept.get("norms", {}))
    except (ValueError, TypeError, KeyError, RecursionError):
        count = Count(-1, -1)
    counted = all(type(number) is int and number >= 0 for number in (count.messages, count.numbers))
    if not counted or not isinstance(count.norms, dict):
        raise Complaint.COUNTS.error(file)
    return count


def _norms(told: Instructions) -> dict[str, float]:
    """Return what rows and targets are clipped to: two sums that differ in it alone can show a single row."""
    loss = told.ridge or told.training.loss
    return {name: getattr(loss, name) for name in ("row_norm", "target_norm") if hasattr(loss, name)}


def _count_numbers(told: Instructions, classes: int, features: int) -> int:
    """Return how many numbers a reply tells of the rows."""
    width = features + 1
    gradient, triangle = classes * width, width * (width + 1) // 2
    if told.ridge is not None:
        return gradient + triangle
    if told.wanted is None:
        return gradient
    # The loss is one more.
    full = gradient * (gradient + 1) // 2
    return gradient + 1 + {Wanted.GRADIENT: 0, Wanted.FEATURES: triangle, Wanted.FULL: full}[told.wanted]


def _digest(told: Instructions) -> str:
    """Return what stands for the settings that have to stay the same in a run."""
    named = ("training", "ridge", "trained", "batch", "body")
    settings = {name: value for name, value in told.record().items() if name.removeprefix(PREFIX) in named}
    return hashlib.sha256(canonical(settings)).hexdigest()
