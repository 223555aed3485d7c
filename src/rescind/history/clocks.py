"""The times of a journal: those of the coordinator's clock, which can be wrong and can be set back."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

from rescind.ledger.records import Entry

# Clocks are set right by seconds every day, and two processes do not append in the order in which they looked.
_USUAL = timedelta(minutes=1)
# Far enough from the first and the last year of a calendar.
_YEARS = (1970, 9000)


def parse_time(text: str) -> datetime:
    """Return a time; ``ValueError`` if it is none, or has no zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"the time {text!r:.80} has no zone")
    return time


def is_usual_time(text: str) -> bool:
    """Return whether a text is a time with a zone, spelled in the one usual way, that can be shown in any zone."""
    try:
        time = parse_time(text)
    except ValueError:
        return False
    return time.isoformat() == text and _YEARS[0] <= time.year <= _YEARS[1]


def later(one: str, other: str) -> str:
    """Return the later of two times."""
    return max(one, other, key=parse_time)


def add_months(time: datetime, months: int) -> datetime:
    """Return the same day some months later, or that month's last day where it has no such day."""
    years, month = divmod(time.month - 1 + months, 12)
    year = time.year + years
    return time.replace(year=year, month=month + 1, day=min(time.day, monthrange(year, month + 1)[1]))


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
