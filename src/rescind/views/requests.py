"""The requests of a run as people see them: who leaves, how each stands, what it waits for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rescind.history.history import History
from rescind.history.outcomes import find_outcomes
from rescind.history.timeline import FiledRequest
from rescind.views.overview import count_days_left, find_undecided


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request and how it stands; ``days_left`` is negative when its deadline has passed.

    ``done`` says whether it was served to the end, with its erasure. ``planned`` is when it was planned, if nobody
    has agreed to that yet. ``unnamed`` says whether it is about rows that its clients have not named yet,
    ``readmitted`` whether one of its clients may take part again.
    """

    asked: FiledRequest
    clients: list[str]
    done: bool
    days_left: int
    planned: str | None
    unnamed: bool
    readmitted: bool

    @property
    def unfinished(self) -> bool:
        """True while it is still to be served to the end."""
        return not (self.asked.dropped or self.done)

    @property
    def overdue(self) -> bool:
        """True if it is unfinished although its day has passed."""
        return self.unfinished and self.days_left < 0

    @property
    def state(self) -> str:
        """How it stands, in a word or two."""
        if self.asked.dropped:
            return "refused" if self.asked.refused else "withdrawn"
        if self.done:
            return "served, readmitted since" if self.readmitted else "served"
        return "being served" if self.asked.served else "open"


def list_requests(history: History, now: datetime) -> list[KnownRequest]:
    """Return all requests, in the order in which they were asked."""
    timeline = history.timeline
    names = history.participants.describe([asked.request.group for asked in timeline.requests])
    done, undecided, unnamed = find_outcomes(timeline), find_undecided(timeline), timeline.unnamed_rows
    return [
        KnownRequest(
            asked=asked,
            clients=clients,
            done=asked.number in done,
            days_left=count_days_left(asked, now),
            planned=undecided.get(asked.number),
            unnamed=asked.number in unnamed,
            readmitted=timeline.readmitted(asked.number) is not None,
        )
        for asked, clients in zip(timeline.requests, names, strict=True)
    ]


def open_requests(history: History, now: datetime) -> list[KnownRequest]:
    """Return the requests that are not served to the end."""
    return [request for request in list_requests(history, now) if request.unfinished]
