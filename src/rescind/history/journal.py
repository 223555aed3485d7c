"""The journal of a run as it is read and written: what it told up to now, and the clock that dates what is added.

The times are those of the coordinator's clock, which can be wrong and can be set back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from rescind.history.events import EVENTS, TIME_STAMP, Event, record
from rescind.history.timeline import Timeline
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Entry

# Clocks are set right by seconds every day, and two processes do not append in the order in which they looked.
_USUAL = timedelta(minutes=1)
# Far enough from the first and the last year of a calendar.
_YEARS = (1970, 9000)


class Journal:
    """Reads a ledger's journal, each entry once, and writes to it; every room of a history has the same one."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._read = (Timeline(), 0)
        self._numbers: dict[bytes, int] = {}

    @property
    def timeline(self) -> Timeline:
        """What the journal tells, up to now."""
        # Asked for several times a round: rounds are passed over once, not looked through again each time.
        # What was read, and up to where, change together: another thread may ask meanwhile.
        timeline, last = self._read
        if last:
            new = list(self.ledger.entries(after=last))
        else:
            # Asked first: the entries up to it are among those that are read then, but for rounds.
            newest = self.ledger.last_entry()
            last, new = newest.sequence if newest else 0, list(self.ledger.entries(*EVENTS))
        if any(entry.kind in EVENTS for entry in new):
            timeline = timeline.follow(new)
        self._read = (timeline, max(last, new[-1].sequence if new else 0))
        return timeline

    def read(self) -> Timeline:
        """Return what the journal tells, read anew: for whoever decides what is written.

        Of what is only seen inside of a turn, or was changed back since, nothing is remembered.
        """
        return Timeline.read(self.ledger)

    def read_again(self) -> None:
        """Read everything anew when it is asked for next: what was read before may have been changed since."""
        self._read = (Timeline(), 0)

    def number_of(self, head: bytes) -> int:
        """Return the number of the entry with which a head was the head of the chain.

        Raises:
            ValueError: the head is not in the chain.
        """
        # One certificate asks for it several times, and the journal may be long; what has a head never changes.
        if head not in self._numbers:
            number = next((entry.sequence for entry in self.ledger.entries() if entry.head == head), None)
            if number is None:
                raise ValueError(f"the head {head.hex()} is not in the chain of this history")
            self._numbers[head] = number
        return self._numbers[head]

    def head_before(self, entry: Entry) -> bytes:
        """Return the head of the chain before an entry that is not the first."""
        return next(self.ledger.entries(after=entry.sequence - 2)).head

    def heads(self) -> dict[bytes, int]:
        """Return the numbers of all entries, by the head of the chain after each."""
        return {entry.head: entry.sequence for entry in self.ledger.entries()}

    def count_after(self, number: int) -> int:
        """Return how many entries came after one; time stamps do not count, or each would ask for the next."""
        return sum(entry.kind != TIME_STAMP for entry in self.ledger.entries(after=number))

    def record(self, event: Event) -> Entry:
        """Append an event, dated now."""
        return record(self.ledger, event, self.now())

    def now(self) -> str:
        """Return the time, in ISO 8601."""
        return self.clock().isoformat()


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
