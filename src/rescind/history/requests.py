"""Requests to be forgotten: filed, planned, extended, withdrawn, settled; and what a restart has to hide for them."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np

from rescind.core.edges import sorted_group
from rescind.core.facts import DpFedAvg, Facts, Mode, PrivacyScope
from rescind.core.sensitivity import first_joined, never_joined
from rescind.core.strict import participations
from rescind.core.summary import Request
from rescind.core.training import LocalTraining
from rescind.errors import ClosedRequestError, MissingSecretError, UnknownClientError, UnsafePermissionsError
from rescind.history.clocks import add_months
from rescind.history.erasure import check_suppression
from rescind.history.events import (
    DeadlineExtended,
    DoubtsLifted,
    EndByData,
    MeanMissed,
    RecordedPlan,
    RequestFiled,
    RequestSettled,
    RequestWithdrawn,
    TrainingDoubted,
    record,
)
from rescind.history.lineage import branch_exits, lineage_of, newest_model
from rescind.history.naming import check_names
from rescind.history.obligations import find_obligations, hidden_together
from rescind.history.outcomes import find_outcomes, outcome_of
from rescind.history.run import Run
from rescind.history.senders import OPERATOR, Sender
from rescind.history.timeline import Doubt, FiledRequest, Timeline
from rescind.ledger.contract import ROUND, Ledger
from rescind.ledger.records import Branch, ErasurePlan, ModelId

# GDPR art. 12 (3): a month, and two further ones where that is necessary.
_MOST_MONTHS = 2
# A certificate lists them all, and one that nobody reads is not signed.
MOST_CLIENTS = 10_000
# An operator's own words stay in the journal for good.
LONGEST_REASON = 1000
# What a plan depends on, beside the rounds.
_CHANGES = (Run, Branch, ErasurePlan, EndByData, TrainingDoubted, DoubtsLifted, MeanMissed)


def ask(ledger: Ledger, request: Request, time: datetime, deadline: datetime, sender: Sender = OPERATOR) -> int:
    """Record a request and return its number; ``ValueError`` if it cannot be served, or is made already."""
    if len(request.group) > MOST_CLIENTS:
        raise ValueError(
            f"a request is about at most {MOST_CLIENTS} clients, as a certificate lists them, and this one is about "
            f"{len(request.group)}: split it"
        )
    if sender != OPERATOR and len(request.group) != 1:
        raise ValueError(f"{sender.asker.value} asks for one client, and this request is about {len(request.group)}")
    # Before its turn, because it reads the whole journal.
    check_names(ledger, request.group)
    with ledger.turn():
        if request.scope is PrivacyScope.SEQUENCE and ledger.readmitted():
            raise ValueError(
                "a sequence hides everybody who left before, and somebody was readmitted: ask with the scope 'group'"
            )
        filed = Timeline.read(ledger).requests
        for asked in filed:
            if not asked.dropped and asked.request.group & request.group:
                raise ValueError(
                    f"request {asked.number} is about some of these clients already: leave them out, or take it back "
                    f"if it is still open (rescind request withdraw HISTORY {asked.number})"
                )
        names = ledger.names(sorted_group(request.group)).values()
        # Sorted, so that their order tells nothing.
        forgotten = sorted(blind_name(receipt(ledger, name), name) for name in names)
        record(ledger, RequestFiled(request, deadline.isoformat(), tuple(forgotten), sender), time.isoformat())
        return len(filed) + 1


def receipt(ledger: Ledger, name: str) -> bytes:
    """Return what a client needs to find itself in a certificate; it can be given again, also after an erasure."""
    return hmac.digest(ledger.outside_secret("receipts"), name.encode(), "sha256")


def blind_name(salt: bytes, name: str) -> str:
    """Return the digest that stands for a client, whose receipt is ``salt``."""
    return hashlib.sha256(b"rescind forgets " + salt + name.encode()).hexdigest()


def withdraw(ledger: Ledger, number: int, time: datetime, reason: str = "") -> None:
    """Record that a request was taken back, and why; only an open one can be."""
    _check_length(reason)
    with ledger.turn():
        check_open(Timeline.read(ledger), number)
        record(ledger, RequestWithdrawn(number, reason), time.isoformat())


def extend(ledger: Ledger, number: int, days: int, reason: str, time: datetime) -> datetime:
    """Record that an open request may be served later, and why; returns the new deadline."""
    check_reason(reason, "a deadline is not extended")
    with ledger.turn():
        filed = check_open(Timeline.read(ledger), number)
        deadline = datetime.fromisoformat(filed.deadline) + timedelta(days=min(max(days, 0), 366))
        latest = add_months(datetime.fromisoformat(filed.first_deadline), _MOST_MONTHS)
        if days < 1 or deadline > latest:
            raise ValueError(
                f"request {number} can be extended by 1 day or more, up to {latest:%Y-%m-%d}: two months in all"
            )
        record(ledger, DeadlineExtended(number, deadline.isoformat(), reason), time.isoformat())
    return deadline


def _check_length(reason: str) -> None:
    if len(reason) > LONGEST_REASON:
        raise ValueError(f"the reason has {len(reason)} characters: at most {LONGEST_REASON} are recorded")


def name_groups(ledger: Ledger, groups: Sequence[Iterable[int]]) -> list[list[str]]:
    """Return what people call each group's clients, or else their names; of whom both are erased the pseudonym."""
    sorted_groups = [sorted_group(group).tolist() for group in groups]
    everybody = sorted_group(client for group in sorted_groups for client in group)
    if not len(everybody):
        return sorted_groups
    labels = ledger.labels()
    known, stay = ledger.names(everybody) | labels, dict[tuple[int, ...], list[str]]()
    timeline = Timeline() if known.keys() >= set(everybody.tolist()) else Timeline.read(ledger)
    # Who only reads need not have the secret.
    with suppress(MissingSecretError, UnsafePermissionsError):
        identities = ledger.identities() if timeline.requests else {}
        for number, names in rows_asked(ledger, timeline, list(identities)).items():
            group = sorted_group(timeline.requests[number - 1].request.group).tolist()
            # Nothing tells whose each of the old pseudonyms was: only all of them together have names.
            if len(names) == len(group):
                stay[tuple(group)] = sorted(labels.get(identities[name], name) for name in names)
    return [
        stay.get(tuple(clients)) or [known.get(client, f"forgotten (pseudonym {client})") for client in clients]
        for clients in sorted_groups
    ]


def rows_asked(ledger: Ledger, timeline: Timeline, names: Sequence[str]) -> dict[int, list[str]]:
    """Return by request, of those that were served, whose rows were to go, among these names."""
    asked = [filed for filed in timeline.requests if filed.served and filed.request.scope is PrivacyScope.RECORDS]
    digests = {blind_name(receipt(ledger, name), name): name for name in names} if asked else {}
    return {filed.number: [digests[own] for own in filed.forgotten if own in digests] for filed in asked}


def record_plan(ledger: Ledger, plan: RecordedPlan, time: datetime) -> RecordedPlan:
    """Record how open requests are going to be served.

    The predicted rounds are rounded: they were computed from models that may have to be erased.
    """
    check_all_open(Timeline.read(ledger), plan.requests)
    candidate = replace(plan.candidate, predicted_rounds=float(round(plan.candidate.predicted_rounds)))
    rounded = replace(plan, candidate=candidate)
    entry = record(ledger, rounded, time.isoformat())
    return replace(rounded, seen=plan.seen or entry.sequence)


def last_change(ledger: Ledger, timeline: Timeline) -> int:
    """Return the number of the last entry that a plan depends on."""
    numbers = [entry.sequence for entry, event in timeline.moments if isinstance(event, _CHANGES)]
    return max(
        (*numbers, *(entry.sequence for entry in ledger.entries(ROUND, after=max(numbers, default=0)))), default=0
    )


def is_stale(ledger: Ledger, timeline: Timeline, plan: RecordedPlan) -> bool:
    """Return whether a plan is about a history that has changed, or about a request that is not open any more."""
    return last_change(ledger, timeline) > plan.seen or not timeline.open_requests.keys() >= set(plan.requests)


def are_unknown(ledger: Ledger, timeline: Timeline, requests: Sequence[Request]) -> list[bool]:
    """Return of each request whether nobody of it ever touched the newest model, whose lineage is read once."""
    if not requests:
        return []
    facts = timeline.run.facts
    everybody = sorted_group(client for request in requests for client in request.group)
    newest = newest_model(ledger, timeline)
    edges = lineage_of(ledger, timeline.branches, newest, facts.training, everybody).edges
    # Where rounds were drawn again, who was absent may have had a part in that.
    redrawn = facts.redrawn_rounds and len(edges) > 0
    absent = frozenset[int]() if redrawn else frozenset(never_joined(edges, everybody).tolist())
    return [request.group <= absent for request in requests]


def settle(ledger: Ledger, number: int, time: str) -> None:
    """Record that a request is served without a restart, because nobody of it ever touched the newest model."""
    timeline = Timeline.read(ledger)
    if not are_unknown(ledger, timeline, [check_open(timeline, number).request])[0]:
        raise ValueError(f"the newest model knows clients of request {number}: plan it, and restart")
    record(ledger, RequestSettled(number), time)


def lift_doubts(ledger: Ledger, reason: str, time: datetime) -> tuple[Doubt, ...]:
    """Record why the declared training is right all the same; return the doubts that this lifts."""
    check_reason(reason, "a doubt is not lifted")
    lifted = Timeline.read(ledger).standing_doubts
    if not lifted:
        raise ValueError("there is no doubt to lift: `rescind doubts` lists what was recorded")
    record(ledger, DoubtsLifted(reason), time.isoformat())
    return lifted


def readmit(ledger: Ledger, name: str, reason: str, time: datetime) -> tuple[int, ...]:
    """Record that a forgotten client may take part again, as a new one, and why; return its old pseudonyms.

    ``name`` is its name or its label. Whoever shared one of them with it, or with one who did, is readmitted with it:
    only so nothing is claimed of what one of them trains under the name of another.
    """
    check_reason(reason, "nobody is readmitted")
    if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", reason, re.IGNORECASE):
        raise ValueError("the reason names the client: it is recorded for good, so say it without the name")
    # Whoever could change the list would have somebody else readmitted.
    ledger.check_stamps()
    check_suppression(ledger)
    timeline = Timeline.read(ledger)
    erased = ledger.erased_as([name], [name]).get(name, set())
    present = {client for client, label in ledger.labels().items() if label == name}
    clients = ledger.linked(erased.union(present, ledger.pseudonyms([name]).values()))
    _check_served(timeline, clients)
    if not erased:
        raise UnknownClientError(
            f"nobody called {name!r} was forgotten here: there is nothing to readmit"
            + (", it may take part" if clients else "")
        )
    again = {client for _, client in ledger.erased_name_digests() if client in clients} - ledger.readmitted()
    if not again:
        raise ValueError(f"{name!r} was readmitted already: it may take part")
    _check_exact(timeline, again)
    ledger.readmit(sorted(again), reason, time.isoformat())
    return tuple(sorted(again))


def _check_served(timeline: Timeline, clients: Collection[int]) -> None:
    """Refuse clients of a request that has not been served to its end, with the erasure."""
    done = find_outcomes(timeline)
    erasing = {number for deletion in timeline.unfinished_deletions for number in deletion.plan.requests}
    for filed in timeline.requests:
        asked = not filed.dropped and not filed.request.group.isdisjoint(clients)
        if asked and (filed.number not in done or filed.number in erasing):
            raise ValueError(
                f"request {filed.number} is about this client and not served to its end, with the erasure: start the "
                "federation's next run (or withdraw a request that is open), then readmit"
            )


def _check_exact(timeline: Timeline, clients: Collection[int]) -> None:
    """Refuse clients of whom the model may still hold a trace, or whom a request that is open is to hide.

    If they came back and left again, nothing would cover both traces together.
    """
    done = find_outcomes(timeline)
    for filed in timeline.requests:
        sequence = filed.request.scope is PrivacyScope.SEQUENCE
        if sequence and not filed.dropped and filed.number not in done:
            raise ValueError(
                f"request {filed.number} is to hide everybody who left before it, and is not served to its end: "
                "start the federation's next run, then readmit"
            )
        if filed.served and not filed.request.group.isdisjoint(clients):
            mode = outcome_of(timeline, filed.number).mode
            if mode is not Mode.EXACT:
                raise ValueError(
                    f"by request {filed.number} this client was not forgotten exactly ({mode.value}): the model may "
                    "hold a trace of it, and if it came back and left again nothing would cover both. If it "
                    "was hidden by noise, a later restart from before it joined makes that exact; then readmit it. "
                    "What a heuristic method did stays so for good"
                )


def check_reason(reason: str, otherwise: str) -> None:
    """Refuse no reason, or one that is too long; ``otherwise`` says what is not done without one."""
    if not reason.strip():
        raise ValueError(f"give a reason: without one {otherwise}")
    _check_length(reason)


def hidden_at(
    ledger: Ledger, timeline: Timeline, parent: ModelId, training: LocalTraining, new: Sequence[FiledRequest]
) -> tuple[int, ...]:
    """Return the requests whose clients have touched a model, and whose own noise does not lie before it."""
    upstream = {model_id.branch for model_id in branch_exits(timeline.branches, parent)}
    earlier = find_obligations(timeline)
    promises: list[tuple[int, Request, int | None, bool]] = [
        (owed.number, owed.request, owed.branch, owed.branch is not None) for owed in earlier
    ]
    promises += [(filed.number, filed.request, None, True) for filed in new]
    owed = sorted_group(client for _, request, _, _ in promises for client in request.group)
    path = lineage_of(ledger, timeline.branches, parent, training, owed)
    everybody, hidden = frozenset[int](), []
    for number, request, noise, counts in promises:
        everybody |= request.group
        if not counts:
            continue
        groups = {request.group, everybody} if request.scope is PrivacyScope.SEQUENCE else {request.group}
        touched = any(first_joined(path.edges, group) < path.index[parent] for group in groups)
        if touched and noise not in upstream:
            hidden.append(number)
    return tuple(hidden)


def participations_at(
    ledger: Ledger, timeline: Timeline, parent: ModelId, facts: Facts, new: Sequence[FiledRequest]
) -> tuple[int, ...]:
    """Return for each new request the largest sum over the rounds up to a model of |W in S|^2; see ``Branch``."""
    if not isinstance(facts.public, DpFedAvg):
        return ()
    earlier, sums = [obligation.request for obligation in find_obligations(timeline)], []
    for filed in new:
        groups = hidden_together(filed.request, earlier)
        everybody = sorted_group(frozenset().union(*groups))
        path = lineage_of(ledger, timeline.branches, parent, facts.training, everybody)
        sums.append(max(participations(path.edges, group)[path.index[parent]] for group in groups))
        earlier.append(filed.request)
    # Behind what nothing bounds; what goes back there is never certified.
    return tuple(map(int, sums)) if np.isfinite(sums).all() else ()


def check_open(timeline: Timeline, number: int) -> FiledRequest:
    """Return an open request; refuse any other."""
    return check_all_open(timeline, [number])[0]


def check_all_open(timeline: Timeline, numbers: Sequence[int]) -> list[FiledRequest]:
    """Return open requests; refuse any other."""
    for number in numbers:
        if number not in timeline.open_requests:
            raise ClosedRequestError(
                f"there is no open request {number}: it was served, withdrawn, refused or never made; `rescind "
                "request list` tells"
            )
    return [timeline.open_requests[number] for number in numbers]
