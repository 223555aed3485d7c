"""How a run stands: who moved the model how far, what is kept, what is owed, what could be claimed.

Gauges are what a monitoring service may know of it: counts and times, and nothing that tells of anybody. Whoever is
alarmed at night need not be who may see names, and no erasure reaches what a metrics server keeps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from rescind.core.edges import NO_BOUND, NOT_BOUNDED, ModelId, find_members, sorted_group
from rescind.core.facts import Facts, Mode
from rescind.history.bounds import read_bounds
from rescind.history.events import RepliesRejected
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.history.lineage import find_body
from rescind.history.outcomes import find_outcomes
from rescind.history.timeline import FiledRequest, Timeline, newest_model
from rescind.ledger.contract import ROUND
from rescind.texts import natural_order
from rescind.views.clients import (
    ClientState,
    Outsider,
    count_outsiders,
    count_states,
    find_outsiders,
    find_silent,
    find_solved_for,
)


@dataclass(frozen=True, slots=True)
class Influence:
    """How far a client may have moved the newest model (Psi), and how many of its rounds there are still recorded.

    ``client`` is what people call it, which others may be called too; ``pseudonym`` is its own.
    """

    client: str
    pseudonym: int
    sensitivity: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Claimable:
    """What a certificate could say if somebody left now, without retraining: its mode, and what would raise it.

    Retraining is ``exact`` always.
    """

    mode: Mode
    raised_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at a glance; ``influences`` are the largest, ``clients`` counts all whom the newest model is for.

    ``outsiders`` may take part, and are left out of it.
    ``open_requests`` are those that are not served to the end, with their erasure. Of a network in two stages
    ``body`` is the first model that has its body whole, ``anchors`` are those who trained it, or may until then.
    """

    newest: ModelId
    rounds: int
    clients: int
    outsiders: tuple[Outsider, ...]
    influences: tuple[Influence, ...]
    kept: tuple[ModelId, ...]
    open_requests: tuple[FiledRequest, ...]
    stored_bytes: int
    claimable: Claimable
    body: ModelId | None
    anchors: tuple[str, ...]


def overview(history: History, most: int | None = 10) -> Overview:
    """Look over a run; of the clients the ``most`` influential ones are named, or all."""
    with history.ledger.snapshot():
        return _overview(history, most)


def _overview(history: History, most: int | None) -> Overview:
    timeline = history.timeline
    bounds, newest = read_bounds(history.ledger, timeline), newest_model(history.ledger, timeline)
    known = bounds.tracker.state()
    # Whoever was forgotten is still named in an erased stretch, and is not who is asked about.
    remaining = ~find_members(known.clients, sorted_group(timeline.forgotten))
    everybody, rounds = known.clients[remaining], known.rounds[remaining]
    solved_for = (
        find_solved_for(history.ledger, timeline) if newest in timeline.solved else frozenset(everybody.tolist())
    )
    values = bounds.tracker.sensitivities(everybody)
    order = np.argsort(-values, kind="stable")[:most]
    chosen = np.sort(everybody[order]).tolist()
    restarts = (outcome.restart for outcome in find_outcomes(timeline).values())
    looked = any(restart and not restart.planned.public_plan for restart in restarts)
    names = dict(zip(chosen, history.participants.describe([chosen])[0], strict=True))
    body = find_body(timeline.branches, timeline.bodies, newest)
    # Before it is whole, those who may train it.
    anchors = timeline.anchors if body is None else frozenset(body.clients)
    return Overview(
        newest=newest,
        rounds=bounds.erased + sum(model_id.round > 0 for model_id in bounds.index),
        clients=len(solved_for),
        outsiders=find_outsiders(history, solved_for),
        influences=tuple(
            Influence(names[client], client, value, count)
            for client, value, count in zip(
                everybody[order].tolist(), values[order].tolist(), rounds[order].tolist(), strict=True
            )
        ),
        kept=tuple(sorted(history.kept())),
        open_requests=find_unfinished(history),
        stored_bytes=history.models.stored_bytes() + history.objects.stored_bytes(),
        claimable=claimable(timeline.facts, looked_at_data=looked),
        body=None if body is None else body.model_id,
        anchors=tuple(sorted(history.participants.describe([anchors - timeline.forgotten])[0], key=natural_order)),
    )


def find_unfinished(history: History) -> tuple[FiledRequest, ...]:
    """Return the requests that are not served to the end: those that are open, or that a run broke off with."""
    timeline = history.timeline
    done = find_outcomes(timeline)
    return tuple(asked for asked in timeline.requests if not asked.dropped and asked.number not in done)


def format_distance(distance: float) -> str:
    """Return a distance as people are shown it, in words where nothing bounds it."""
    # NaN, too, is no bound.
    return f"{distance:.3g}" if distance < NO_BOUND else NOT_BOUNDED


def find_undecided(timeline: Timeline) -> dict[int, str]:
    """Return when each open request was planned to whose plan nobody has agreed yet.

    Whether somebody has to is up to the run. Where nobody has, it carries a plan out as soon as it has made it.
    """
    numbers = timeline.open_requests.keys() & timeline.plans.keys()
    return {
        number: timeline.planned_at(number).time for number in sorted(numbers) if not timeline.approvals_of(number)
    }


def claimable(facts: Facts, *, looked_at_data: bool = False) -> Claimable:
    """Return what could be claimed of a restart with noise; ``looked_at_data`` if an earlier plan did."""
    if facts.training.is_solved:
        # No noise is ever needed.
        return Claimable(Mode.EXACT, ())
    lacks = facts.strict_obstacles
    if not facts.public_rounds:
        lacks += ("training ended by a rule that looks at data: use a number of rounds",)
    if looked_at_data:
        lacks += ("an earlier request was served by a plan that looked at data: nothing raises that any more",)
    if not lacks:
        return Claimable(Mode.STRICT, ())
    if not facts.obstacles:
        return Claimable(Mode.INSTANCE, lacks)
    return Claimable(Mode.HEURISTIC, facts.obstacles)


def count_days_left(asked: FiledRequest, now: datetime) -> int:
    """Return in how many days a request is due, by the calendar of its deadline; below 0 once the day has passed."""
    deadline = parse_time(asked.deadline)
    return (deadline.date() - now.astimezone(deadline.tzinfo).date()).days


def find_overdue(history: History, now: datetime) -> list[FiledRequest]:
    """Return the requests that are not served to the end although their day has passed, the oldest deadline first."""
    late = [asked for asked in find_unfinished(history) if count_days_left(asked, now) < 0]
    return sorted(late, key=lambda asked: parse_time(asked.deadline))


@dataclass(frozen=True, slots=True)
class Gauges:
    """A run in numbers that hold no name, and nothing that was computed from anybody's data.

    ``run`` is the run's identifier. ``undecided_requests`` are planned, and nobody has agreed to that yet;
    ``unnamed_requests`` are about rows that are not named yet.
    ``next_deadline`` is that of the most urgent open request. ``recorded_rounds``
    and ``rejected_replies`` are counted from the beginning on, also those that were erased since. ``clients`` counts
    by state; the silent are left out where nobody can tell who they are. ``outsiders`` counts those who may take part
    and are left out of the newest model. ``stamp_problems`` counts what shows that
    somebody without the secret changed what the journal tells; None if the secret file is not at hand.
    """

    run: str
    open_requests: int
    overdue_requests: int
    undecided_requests: int
    unnamed_requests: int
    next_deadline: datetime | None
    recorded_rounds: int
    last_round: datetime | None
    clients: Mapping[ClientState, int]
    rejected_replies: int
    stored_bytes: int
    outsiders: int
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
            undecided_requests=len(find_undecided(timeline)),
            unnamed_requests=len(timeline.unnamed_rows),
            next_deadline=min((parse_time(asked.deadline) for asked in unfinished), default=None),
            recorded_rounds=rounds,
            last_round=None if last is None else parse_time(last.time),
            clients={state: states[state] for state in ClientState if state not in unknown},
            rejected_replies=sum(len(event.rejected) for _, event in timeline.of(RepliesRejected)),
            stored_bytes=stored_bytes,
            outsiders=count_outsiders(history.ledger, timeline),
            standing_doubts=len(timeline.standing_doubts),
            unfinished_erasures=len(timeline.unfinished_deletions),
            stamp_problems=None if changed is None else len(changed),
        )
