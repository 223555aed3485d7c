"""What a monitoring service may know of a run: counts and times, and nothing that tells of anybody.

Whoever is alarmed at night need not be who may see names, and no erasure reaches what a metrics server keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from rescind.history.events import RepliesRejected
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.ledger.contract import ROUND
from rescind.views.clients import ClientState, count_states, find_silent
from rescind.views.overview import count_days_left, find_unfinished


@dataclass(frozen=True, slots=True)
class Gauges:
    """A run in numbers that hold no name, and nothing that was computed from anybody's data.

    ``run`` is the run's identifier. ``next_deadline`` is that of the most urgent open request. ``recorded_rounds``
    and ``rejected_replies`` are counted from the beginning on, also those that were erased since. ``clients`` counts
    by state; the silent are left out where nobody can tell who they are. ``stamp_problems`` counts what shows that
    somebody without the secret changed what the journal tells; None if the secret file is not at hand.
    """

    run: str
    open_requests: int
    overdue_requests: int
    next_deadline: datetime | None
    recorded_rounds: int
    last_round: datetime | None
    clients: Mapping[ClientState, int]
    rejected_replies: int
    stored_bytes: int
    standing_doubts: int
    unfinished_erasures: int
    stamp_problems: int | None


def read_gauges(history: History, now: datetime) -> Gauges:
    """Return what a monitoring service may know of a run, as it is at one moment.

    Args:
        history: the history.
        now: the time, which decides what is overdue.

    Returns:
        the numbers; a history in which nothing was recorded yet has them too.

    Raises:
        ValueError: a deadline or the time of the last round is no time.
        BrokenHistoryError: the journal cannot be read.
    """
    stored_bytes = history.models.stored_bytes() + history.objects.stored_bytes()
    with history.ledger.snapshot():
        timeline = history.timeline
        rounds, last = 0, None
        for entry in history.ledger.entries(ROUND):
            rounds, last = rounds + 1, entry
        states, unfinished = count_states(history.ledger, timeline), find_unfinished(history)
        changed = history.integrity.stamp_problems()
        unknown = {ClientState.SILENT} if find_silent(history.ledger, timeline, ()) is None else set()
        return Gauges(
            run=history.identifier,
            open_requests=len(unfinished),
            overdue_requests=sum(count_days_left(asked, now) < 0 for asked in unfinished),
            next_deadline=min((parse_time(asked.deadline) for asked in unfinished), default=None),
            recorded_rounds=rounds,
            last_round=None if last is None else parse_time(last.time),
            clients={state: states[state] for state in ClientState if state not in unknown},
            rejected_replies=sum(len(event.rejected) for _, event in timeline.of(RepliesRejected)),
            stored_bytes=stored_bytes,
            standing_doubts=len(timeline.standing_doubts),
            unfinished_erasures=len(timeline.unfinished_deletions),
            stamp_problems=None if changed is None else len(changed),
        )
