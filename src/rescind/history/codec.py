"""The core's frozen dataclasses as JSON and back: facts, requests, candidates.

A value carries the name of its class, and only classes that are listed here are made: no pickle, no import by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from rescind.core.calibration import Budget, ClassicBudget
from rescind.core.edges import ModelId
from rescind.core.facts import (
    DpFedAvg,
    Facts,
    Mode,
    PrivacyScope,
    PublicHead,
    PublishedBody,
    Sampling,
    Source,
    Sources,
    Stages,
)
from rescind.core.planning import Candidate
from rescind.core.regularity import Curvature, DeclaredLoss, LogisticL2, NetworkLoss, SoftmaxL2, SquaredL2
from rescind.core.solver import Solving
from rescind.core.summary import Node, Request
from rescind.core.training import LocalTraining
from rescind.history.run import Goal, Run
from rescind.ledger.records import Asker, Branch, ErasureLevel, ErasurePlan, Sender, Span, is_number

Value = TypeVar("Value")

_CLASSES: dict[str, type] = {
    known.__name__: known
    for known in (
        *(Branch, Budget, Candidate, ClassicBudget, Curvature, DeclaredLoss, DpFedAvg, ErasureLevel, ErasurePlan),
        *(
            Facts,
            Goal,
            LocalTraining,
            LogisticL2,
            Mode,
            ModelId,
            Node,
            PrivacyScope,
            PublicHead,
            PublishedBody,
            Request,
        ),
        *(Asker, Run, Sampling, Sender, SoftmaxL2, Solving, Source, Sources, Span, SquaredL2, Stages, NetworkLoss),
    )
}
_CLASS = "class"


def encode(value: object) -> Any:
    """Return the JSON for a value made of the listed classes, tuples, frozen sets of numbers and plain values."""
    if isinstance(value, Enum):
        return {_CLASS: _known(value), "name": value.name}
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: encode(getattr(value, field.name)) for field in fields(value) if field.init}
        return {_CLASS: _known(value), **named}
    if isinstance(value, frozenset):
        return {_CLASS: "frozenset", "items": sorted(value)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} has no place in a record: it is no measurement")
    if value is None or (isinstance(value, bool | int | float | str) and not isinstance(value, np.generic)):
        return value
    raise ValueError(f"{value!r} is a {type(value).__name__}, for which there is no record")


def decode(kind: type[Value], document: object) -> Value:
    """Make the value that ``encode`` was given; every class checks its own numbers again.

    Raises:
        ValueError: the document is not one that ``encode`` makes of such a value.
    """
    value = _read(lambda: _decoded(document))
    if not isinstance(value, kind):
        raise ValueError(f"expected a {kind.__name__}, found {type(value).__name__}")
    return value


def decode_fields(kind: type[Value], document: Mapping[str, object]) -> Value:
    """Make a value of which only the fields were encoded, each of the type that its class says.

    Raises:
        ValueError: the fields are not those of the class.
    """
    value: Value = _read(lambda: _made(kind, document))
    return value


def _read(make: Callable[[], Value]) -> Value:
    try:
        return make()
    except (TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as mismatch:
        raise ValueError(f"it does not fit this version: {mismatch}") from mismatch


def _decoded(document: object) -> Any:
    if isinstance(document, list):
        return tuple(map(_decoded, document))
    if not isinstance(document, dict):
        return document
    name = document.get(_CLASS)
    if name == "frozenset":
        return frozenset(document["items"])
    known = _CLASSES.get(str(name))
    if known is None:
        raise ValueError(f"a record of class {name!r:.80} is not known here: it may come from a newer version")
    if issubclass(known, Enum):
        return known[document["name"]]
    return _made(known, {key: item for key, item in document.items() if key != _CLASS})


def _made(kind: Any, document: Mapping[str, object]) -> Any:
    named, hints = {name: _decoded(item) for name, item in document.items()}, _hints(kind)
    for name, value in named.items():
        if name in hints and not _checker(hints[name])(value):
            raise ValueError(f"its {name} is unfit: {value!a:.40}")
    return kind(**named)


# Asked for every event of a journal.
@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


# Made once for each type: a journal may tell of ten thousand clients in one event.
@cache
def _checker(hint: Any) -> Callable[[Any], bool]:
    """Return what says whether a value is one that a field of this type can have."""
    within = get_args(hint)
    if get_origin(hint) is tuple and within[-1] is ...:
        fits = _checker(within[0])
        return lambda value: isinstance(value, tuple) and all(map(fits, value))
    checkers = tuple(map(_checker, within))
    if get_origin(hint) is tuple:
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(checkers)
            and all(fits(part) for fits, part in zip(checkers, value, strict=True))
        )
    if get_origin(hint) is frozenset:
        return lambda value: isinstance(value, frozenset) and all(map(checkers[0], value))
    if within:
        return lambda value: any(fits(value) for fits in checkers)
    if hint is int:
        return is_number
    if hint is float:
        # It may have been written as 1.
        return lambda value: type(value) in (int, float) and math.isfinite(value)
    return lambda value: isinstance(value, hint)


def _known(value: object) -> str:
    name = type(value).__name__
    if _CLASSES.get(name) is not type(value):
        raise ValueError(f"{value!r} is a {name}, for which there is no record")
    return name
