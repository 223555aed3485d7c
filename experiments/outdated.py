"""Which stored runs are older than a change to the code that would make them otherwise, and what it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Change:
    """Something that runs up to a day did otherwise; ``concerns`` says of a stored run whether it did."""

    last: str
    what: str
    concerns: Callable[[Mapping[str, Any]], bool]


def _noises(row: Mapping[str, Any]) -> list[float]:
    """Return the noise of each restart of a run, where it tells it; what has a multiplier is noise of every round."""
    told = [result for result in row["results"] if "multiplier" not in result]
    return [result["sigma"] for result in told if result.get("sigma") is not None]


# What never pulled its noised models, or has no model of its own to noise.
_UNPULLED = ("SIFU as published", "Scratch, noised start")
CHANGES = (
    Change(
        "2026-11-16",
        "a noised restart was pulled towards the start",
        lambda row: any(_noises(row)) and row["configuration"].get("method") not in _UNPULLED,
    ),
    Change(
        "2026-11-18",
        "the paper's rule left out its noise where it had nobody to hide",
        lambda row: (
            row["configuration"].get("method") in ("SIFU as published", "SIFU, paper's rule") and 0 in _noises(row)
        ),
    ),
)


def find_changes(row: Mapping[str, Any]) -> list[str]:
    """Return what a stored run did otherwise than today's code."""
    return [change.what for change in CHANGES if row["date"] <= change.last and change.concerns(row)]


def describe(rows: Sequence[Mapping[str, Any]]) -> str:
    """Say how many of these runs are older than the code; empty if none is."""
    found = [changes for row in rows if (changes := find_changes(row))]
    if not found:
        return ""
    told = "; ".join(sorted({change for changes in found for change in changes}))
    return f"{len(found)} of these {len(rows)} runs are older than today's code: {told}."
