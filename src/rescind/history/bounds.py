"""What a recorder derives from all rounds, kept in the ledger: whoever records next reads only the rounds since then.

It is derived anew, from the rounds, whenever what is kept is missing, was changed, was written by another version, or
is of another line of training.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescind.checkpoints import tensors
from rescind.core.edges import Edge, ModelId, RoundEdge
from rescind.core.tracker import SensitivityTracker, TrackerState
from rescind.errors import DamagedCheckpointError, MissingSecretError, UnsafePermissionsError
from rescind.history.events import ErasureFinished, StretchKept
from rescind.history.lineage import lineage_of, missing_rounds, read_rounds
from rescind.history.retention import Retention, RetentionState
from rescind.history.timeline import Timeline, newest_model
from rescind.ledger.contract import LARGEST_BOUNDS, Ledger
from rescind.ledger.records import Branch, ErasurePlan, Span

# Another number, whenever another state would be derived from the same rounds: then what is kept is no longer used.
_VERSION = b"bounds 2\n"

# The arrays of what is kept, with their types. Pseudonyms fit into 31 bits, and so do the nodes of a path.
_TRACKER = {
    "log_factors": "<f8",
    "low_log_factors": "<f8",
    "floors": "<f8",
    "clients": "<i4",
    "nodes": "<i4",
    "rounds": "<i4",
    "psi": "<f8",
}
_RETENTION = {"nodes": "<i8", "clients": "<i8", "firsts": "<i8", "psi": "<f8"}
_TYPES = {
    "legs": "<i8",
    "counts": "<i8",
    **{f"tracker.{name}": dtype for name, dtype in _TRACKER.items()},
    **{f"retention.{name}": dtype for name, dtype in _RETENTION.items()},
}

# A restart leaves the line, and an erasure changes what lies on it.
_TURNS = (Branch, ErasurePlan, StretchKept, ErasureFinished)


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """The bounds at the end of a path, what is kept of it, and each model's node.

    Somebody took part in ``joined`` of its rounds; ``erased`` ones are only counted. Up to the node ``kept`` this is
    in the ledger.
    """

    tracker: SensitivityTracker
    retention: Retention
    index: dict[ModelId, int]
    joined: int
    erased: int
    kept: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """What the ledger keeps; ``legs`` has for each branch of the line its number, first node and last round."""

    tracker: TrackerState
    retention: RetentionState
    legs: tuple[tuple[int, int, int], ...]
    joined: int
    erased: int

    @property
    def last_node(self) -> int:
        return len(self.tracker.floors) - 1

    def __post_init__(self) -> None:
        after, branch = 0, -1
        for number, first, last in self.legs:
            if number <= branch or first < after or last < 0:
                raise ValueError("branches follow each other")
            after, branch = first + last, number
        if not self.legs or after != self.last_node or not 0 <= self.erased <= self.joined:
            raise ValueError("the last branch ends where the path does")


def read_bounds(ledger: Ledger, timeline: Timeline) -> Bounds:
    """Return the bounds at the newest model: those that are kept, with what the rounds since then add.

    Raises:
        BrokenHistoryError: the numbers of a round on the path are gone.
    """
    newest, models = newest_model(ledger, timeline), ledger.kept()
    return _derive(ledger, timeline, newest, models, _read_kept(ledger, timeline, newest, models))


def follow_from_rounds(ledger: Ledger, timeline: Timeline) -> bool:
    """Return whether the bounds that are kept, if any, are those that all rounds give.

    The seal shows who wrote them, not from what: somebody may have changed rounds, and changed them back since.

    Raises:
        BrokenHistoryError: the numbers of a round on the path are gone.
    """
    newest, models = newest_model(ledger, timeline), ledger.kept()
    kept = _read_kept(ledger, timeline, newest, models)
    if kept is None:
        return True
    resumed, derived = (
        _as_arrays(_gather(_derive(ledger, timeline, newest, models, start))) for start in (kept, None)
    )
    # Another machine may have rounded otherwise.
    return all(
        resumed[name].shape == derived[name].shape
        and np.allclose(resumed[name], derived[name], rtol=1e-6 if dtype == "<f8" else 0.0, atol=1e-9)
        for name, dtype in _TYPES.items()
    )


def _derive(
    ledger: Ledger, timeline: Timeline, newest: ModelId, models: Iterable[ModelId], kept: _Kept | None
) -> Bounds:
    """Return the bounds at the newest model, from those that are kept on or from all rounds."""
    run = timeline.run
    edges: Iterable[Edge]
    if kept is None:
        path = lineage_of(ledger, timeline.branches, newest, run.facts.training)
        tracker, index, edges = SensitivityTracker(), dict(path.index), path.edges
        joined = erased = path.trained[-1] - sum(isinstance(edge, RoundEdge) for edge in edges)
    else:
        _check_rounds(ledger, kept)
        tracker, joined, erased = SensitivityTracker.resume(kept.tracker), kept.joined, kept.erased
        *before, (branch, first, last) = kept.legs
        index = _place_models([*before, (branch, first, newest.round)])
        edges = read_rounds(ledger, Span(branch, last + 1, newest.round), run.facts.training).values()
    stored = [index[model_id] for model_id in models if model_id in index]
    retention = Retention(run.capacity, run.goal.threshold if run.goal else None, stored=stored)
    if kept is not None:
        retention.resume(kept.retention)
    for edge in edges:
        tracker.record(edge)
        # A public schedule asks nobody what to keep.
        if not run.facts.public_schedule:
            retention.observe(tracker.last_node, edge.clients, tracker.sensitivities)
        joined += isinstance(edge, RoundEdge) and len(edge.clients) > 0
    return Bounds(tracker, retention, index, joined, erased, kept.last_node if kept else 0)


def keep_bounds(ledger: Ledger, newest: ModelId, bounds: Bounds) -> None:
    """Keep the bounds at the newest model in the ledger, unless they are too large for it."""
    content = _VERSION + b"".join(tensors.chunks(_as_arrays(_gather(bounds))))
    if len(content) <= LARGEST_BOUNDS:
        ledger.keep_bounds(newest, content)


def _gather(bounds: Bounds) -> _Kept:
    legs: dict[int, tuple[int, int, int]] = {}
    for model_id, node in bounds.index.items():
        number = model_id.branch
        last = max(model_id.round, legs[number][2]) if number in legs else model_id.round
        legs[number] = (number, node - model_id.round, last)
    states = bounds.tracker.state(), bounds.retention.state()
    return _Kept(*states, tuple(legs.values()), bounds.joined, bounds.erased)


def _place_models(legs: Iterable[tuple[int, int, int]]) -> dict[ModelId, int]:
    """Return the node of every model on the legs of a line."""
    return {ModelId(branch, at): first + at for branch, first, last in legs for at in range(last + 1)}


def _check_rounds(ledger: Ledger, kept: _Kept) -> None:
    """Refuse a history that lacks rounds which were read before: planning would, after hours of training."""
    for branch, _, last in kept.legs:
        span = Span(branch, 1, last)
        if ledger.absent_rounds(span)["round"].tolist() != list(range(1, last + 1)):
            raise missing_rounds(span)


def _read_kept(ledger: Ledger, timeline: Timeline, newest: ModelId, models: Iterable[ModelId]) -> _Kept | None:
    """Return what the ledger keeps, if it is of this version and of a beginning of the path to the newest model."""
    stored = None
    # Who only reads need not have the secret.
    with suppress(MissingSecretError, UnsafePermissionsError):
        stored = ledger.bounds()
    if stored is None:
        return None
    entry, content = stored
    turns = (moment.sequence for moment, event in timeline.moments if isinstance(event, _TURNS))
    if max(turns, default=0) > entry or not content.startswith(_VERSION):
        return None
    try:
        kept = _unpack(content[len(_VERSION) :])
    except (ValueError, DamagedCheckpointError):
        return None
    branch, _, last = kept.legs[-1]
    if branch != newest.branch or last > newest.round:
        return None
    index, nodes = _place_models(kept.legs), set(kept.retention.nodes.tolist())
    on_line = {index[model_id] for model_id in models if model_id in index}
    # What is kept only shrinks.
    known = kept.last_node in nodes and on_line <= nodes
    return kept if known or timeline.run.facts.public_schedule else None


def _as_arrays(kept: _Kept) -> dict[str, NDArray[Any]]:
    arrays = {
        "legs": np.array(kept.legs),
        "counts": np.array([kept.joined, kept.erased]),
        **{f"tracker.{name}": getattr(kept.tracker, name) for name in _TRACKER},
        **{f"retention.{name}": getattr(kept.retention, name) for name in _RETENTION},
    }
    return {name: array.astype(_TYPES[name]) for name, array in arrays.items()}


def _unpack(content: bytes) -> _Kept:
    """Read what was kept; anything else is a ``ValueError`` or a ``DamagedCheckpointError``."""
    arrays = dict(tensors.read(io.BytesIO(content)))
    if {name: array.dtype.str for name, array in arrays.items()} != _TYPES:
        raise ValueError("these are other arrays than were kept")
    legs, counts = arrays["legs"], arrays["counts"]
    if legs.ndim != 2 or legs.shape[1] != 3 or counts.shape != (2,):
        raise ValueError("branches or counts have another shape")
    joined, erased = counts.tolist()
    # All integers are 64 bits wide where they are computed with.
    wide: dict[str, Any] = {
        name: array.astype(np.int64) if array.dtype.kind == "i" else array for name, array in arrays.items()
    }
    return _Kept(
        TrackerState(**{name: wide[f"tracker.{name}"] for name in _TRACKER}),
        RetentionState(**{name: wide[f"retention.{name}"] for name in _RETENTION}),
        tuple((number, first, last) for number, first, last in legs.tolist()),
        joined,
        erased,
    )
