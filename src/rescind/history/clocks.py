"""The times of a journal: those of the coordinator's clock, which can be wrong and can be set back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

from rescind.ledger.records import Entry

# Clocks are set right by seconds every day, and two processes do not append in the order in which they looked.
_USUAL = timedelta(minutes=1)


def parse_time(text: str) -> datetime:
    """Return a time; ``ValueError`` if it is none, or has no zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r:.80} has no zone")
    return time


def later(one: str, other: str) -> str:
    """Return the later of two times."""
    return max(one, other, key=parse_time)


def entry_times(entries: Iterable[Entry]) -> list[tuple[datetime, int]]:
    """Return the times of all entries with their numbers; one that is no time is passed over."""
    times = []
    for entry in entries:
        with suppress(ValueError):
            times.append((parse_time(entry.time), entry.sequence))
    return times


def find_steps_back(times: list[tuple[datetime, int]]) -> Iterator[str]:
    """Say so if an entry is earlier than one before it."""
    latest = accumulate((time for time, _ in times), max)
    for (_, (time, number)), before in zip(pairwise(times), latest, strict=False):
        if time < before - _USUAL:
            yield f"entry {number} is earlier than one before it: the clock was set back, so times are not exact"
            return


def find_future(times: list[tuple[datetime, int]], now: datetime) -> Iterator[str]:
    """Say so if an entry is later than now."""
    time, number = max(times, default=(now, 0))
    if time > now + _USUAL:
        yield f"entry {number} is from {time.isoformat()}, in the future: a clock is wrong"
