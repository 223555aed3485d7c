"""What a journal tells, read once: every question about requests, plans, branches and erasures is asked here."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypeVar

from rescind.core.edges import ModelId
from rescind.core.facts import Facts, PrivacyScope, Source
from rescind.core.summary import Request
from rescind.errors import BrokenHistoryError, NoHistoryError
from rescind.history.events import (
    EVENTS,
    AnchorsNamed,
    BodyTrained,
    BranchRetrained,
    ClientsReadmitted,
    DeadlineExtended,
    DoneByLogin,
    DoubtsLifted,
    EndByData,
    ErasureFinished,
    Event,
    HeadSolved,
    HeadStamped,
    MeanMissed,
    PlanApproved,
    RecordedPlan,
    RequestFiled,
    RequestRefused,
    RequestSettled,
    RequestWithdrawn,
    RowsNamed,
    RunNamed,
    SettingsTold,
    TrainingDoubted,
    read_event,
)
from rescind.history.run import Run
from rescind.ledger.contract import ROUND, Ledger
from rescind.ledger.records import OPERATOR, Branch, Entry, ErasurePlan, Sender

_E = TypeVar("_E")


@dataclass(frozen=True, slots=True)
class FiledRequest:
    """A request as it was recorded: ``number``, from 1 on, names it; ``deadline`` is the day it has to be served by.

    It is served by a restart, which began ``branch``, or ``settled`` without one, where the model does not know its
    clients. ``forgotten`` are salted digests of its clients' names, which outlive the names: whoever has a client's
    receipt can tell which is its own. ``first_deadline`` is the one before any extension. ``sender`` says who asked,
    ``refused`` why it is not served, if that was decided.
    """

    number: int
    request: Request
    time: str
    deadline: str
    withdrawn: bool
    settled: bool
    branch: int | None
    forgotten: tuple[str, ...] = ()
    first_deadline: str = ""
    sender: Sender = OPERATOR
    refused: str = ""

    @property
    def dropped(self) -> bool:
        """True if nobody is forgotten by it: it was taken back, or refused."""
        return self.withdrawn or bool(self.refused)

    @property
    def served(self) -> bool:
        """True once its clients are forgotten, and so may not take part any more."""
        return self.settled or self.branch is not None

    @property
    def open(self) -> bool:
        """True while it is still to be served."""
        return not self.dropped and not self.served


@dataclass(frozen=True, slots=True)
class Deletion:
    """One line of the deletion log: what had to go; ``completed`` says when it was gone, ``left`` what stayed.

    ``number`` is that of the entry that planned it; ``completed`` is empty as long as it is under way.
    """

    number: int
    plan: ErasurePlan
    completed: str
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why the declared training is doubted since a model; ``answer`` is the operator's, empty while it stands."""

    model_id: ModelId
    time: str
    reason: str
    answer: str = ""

    def __str__(self) -> str:
        return (
            f"the declared training is doubted since {self.model_id}: {self.reason}. Find out what clients execute; "
            'where the declaration is right all the same, say so (rescind doubts HISTORY --lift "why")'
        )


@dataclass(frozen=True)
class Timeline:
    """All events of a journal, in order, each with its entry; what follows from them is found once."""

    moments: tuple[tuple[Entry, Event], ...] = ()
    _derived: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @classmethod
    def read(cls, ledger: Ledger) -> Self:
        """Return the timeline of a ledger's whole journal."""
        return cls().follow(ledger.entries(*EVENTS))

    def follow(self, entries: Iterable[Entry]) -> Self:
        """Return the timeline with entries that came after it; rounds among them are passed over."""
        return type(self)((*self.moments, *((entry, read_event(entry)) for entry in entries if entry.kind in EVENTS)))

    def until(self, number: int) -> Self:
        """Return the timeline as it was when the journal's last entry had this number."""
        if number >= self.last:
            return self
        # Asked once a request, mostly of the same entry.
        if number not in self._derived:
            before = (moment for moment in self.moments if moment[0].sequence <= number)
            self._derived[number] = type(self)(tuple(before))
        then: Self = self._derived[number]
        return then

    def derive(self, find: Callable[[Self], _E]) -> _E:
        """Return what a function finds in this timeline; it is asked once, however many requests there are."""
        if find not in self._derived:
            self._derived[find] = find(self)
        result: _E = self._derived[find]
        return result

    def of(self, kind: type[_E]) -> Iterator[tuple[Entry, _E]]:
        """Return the events of a kind, in order, each with its entry."""
        return ((entry, event) for entry, event in self.moments if isinstance(event, kind))

    @property
    def last(self) -> int:
        """The number of the last entry that is not a round's."""
        return self.moments[-1][0].sequence if self.moments else 0

    @cached_property
    def run(self) -> Run:
        """What the run is; an error if nothing was recorded yet."""
        for _, run in self.of(Run):
            return run
        raise NoHistoryError("nothing has been recorded here yet: start the federation's first run")

    @cached_property
    def names(self) -> RunNamed:
        """What people call the operator, the federation and its model: what was said last."""
        named = [event for _, event in self.of(RunNamed)]
        return named[-1] if named else RunNamed()

    @cached_property
    def facts(self) -> Facts:
        """The run's facts, with what happened since: how training ended, and what contradicts them.

        Once the training was doubted, it counts as declared by the operator, also after the doubt is lifted. So does
        what the server's own code carries along, once clients were told other settings.
        """
        facts = self.run.facts
        sources = replace(facts.sources, training=Source.DECLARED) if self.doubts else facts.sources
        return replace(
            facts,
            sources=sources if self.fixed_settings else replace(sources, server=Source.DECLARED),
            fixed_settings=self.fixed_settings,
            public_rounds=not any(self.of(EndByData)),
            solved=any(event.solved for _, event in self.of(EndByData)),
            doubts=tuple(map(str, self.standing_doubts)),
            averages=not self.missed_means,
        )

    @cached_property
    def branches(self) -> dict[int, Branch]:
        """All branches by number."""
        return {branch.number: branch for _, branch in self.of(Branch)}

    @cached_property
    def retrained(self) -> dict[int, BranchRetrained]:
        """The branches that were trained to their ends, by number."""
        return {event.branch: event for _, event in self.of(BranchRetrained)}

    @cached_property
    def fixed_settings(self) -> bool:
        """True if clients were told the same in all rounds, as far as that was recorded."""
        return len({event.digest for _, event in self.of(SettingsTold)}) <= 1

    @cached_property
    def solved(self) -> frozenset[ModelId]:
        """The models with which a solve ended as the solution."""
        return frozenset(event.model_id for _, event in self.of(HeadSolved))

    @cached_property
    def stamped(self) -> int:
        """The number of the newest entry whose head a time-stamp authority has seen; 0 if there is none."""
        return max((event.entry for _, event in self.of(HeadStamped)), default=0)

    @cached_property
    def requests(self) -> tuple[FiledRequest, ...]:
        """All requests in the order in which they arrived."""
        self._refuse_strangers()
        withdrawn = {event.request for _, event in self.of(RequestWithdrawn)}
        settled = {event.request for _, event in self.of(RequestSettled)}
        extended = {event.request: event.deadline for _, event in self.of(DeadlineExtended)}
        served = {number: branch.number for branch in self.branches.values() for number in branch.requests}
        # Where a request was taken back in the very moment in which it was served, it was served.
        refused = {event.request: event.reason for _, event in self.of(RequestRefused)}
        withdrawn -= settled | served.keys()
        return tuple(
            FiledRequest(
                number=number,
                request=filed.request,
                time=entry.time,
                deadline=extended.get(number, filed.deadline),
                withdrawn=number in withdrawn,
                settled=number in settled,
                branch=served.get(number),
                forgotten=filed.forgotten,
                first_deadline=filed.deadline,
                sender=filed.sender,
                refused="" if number in settled | served.keys() else refused.get(number, ""),
            )
            for number, (entry, filed) in enumerate(self.of(RequestFiled), start=1)
        )

    def _refuse_strangers(self) -> None:
        """Refuse plans, restarts and erasures for requests that were not made, planned and served before them."""
        filed, planned, served = set[int](), set[int](), set[int]()
        for entry, event in self.moments:
            strangers = set[int]()
            if isinstance(event, RequestFiled):
                filed.add(len(filed) + 1)
            elif isinstance(event, RequestSettled):
                served.add(event.request)
            elif isinstance(event, RecordedPlan):
                strangers = set(event.requests) - filed
                planned.update(event.requests)
            elif isinstance(event, Branch):
                strangers = {*event.requests, *event.hidden} - planned
                served.update(event.requests)
            elif isinstance(event, ErasurePlan):
                strangers = set(event.requests) - served
            if strangers:
                raise BrokenHistoryError(
                    f"entry {entry.sequence} ({entry.kind}) is for request {min(strangers)}, and nothing before it is"
                )

    @cached_property
    def open_requests(self) -> dict[int, FiledRequest]:
        """The requests that are still to be served, by number."""
        return {filed.number: filed for filed in self.requests if filed.open}

    @cached_property
    def losing_rows(self) -> frozenset[int]:
        """Who waits until rows of theirs are forgotten, and then takes part again."""
        asked = (filed.request for filed in self.open_requests.values())
        return frozenset(
            client for request in asked if request.scope is PrivacyScope.RECORDS for client in request.group
        )

    @cached_property
    def leaving(self) -> frozenset[int]:
        """Who was forgotten, or waits to be: none of them may take part."""
        return frozenset(client for filed in self.requests if not filed.dropped for client in filed.request.group)

    @cached_property
    def unnamed_rows(self) -> dict[int, frozenset[str]]:
        """The open requests about rows that some clients have not named yet; these clients by their digests."""
        named = {(event.request, event.client) for _, event in self.of(RowsNamed)}
        unnamed = {
            filed.number: frozenset(client for client in filed.forgotten if (filed.number, client) not in named)
            for filed in self.open_requests.values()
            if filed.request.scope is PrivacyScope.RECORDS
        }
        return {number: clients for number, clients in unnamed.items() if clients}

    @cached_property
    def forgotten(self) -> frozenset[int]:
        """Everybody whose request was served."""
        return frozenset(client for filed in self.requests if filed.served for client in filed.request.group)

    @cached_property
    def bodies(self) -> tuple[BodyTrained, ...]:
        """The bodies of networks in two stages that were whole, in order."""
        return tuple(event for _, event in self.of(BodyTrained))

    @cached_property
    def anchors(self) -> frozenset[int]:
        """Everybody who may train, or has trained, the body of a network in two stages."""
        return frozenset(client for _, event in self.of(AnchorsNamed) for client in event.clients)

    @cached_property
    def returning(self) -> frozenset[int]:
        """Those of the forgotten who take part again under another pseudonym, as only some of their rows went.

        If two requests about a client crossed and one of them is for good, it does not return.
        """
        groups = {filed.number: filed.request.group for filed in self.requests}
        records = {filed.number for filed in self.requests if filed.request.scope is PrivacyScope.RECORDS}
        number, open_, gone, returning = 0, set[int](), frozenset[int](), frozenset[int]()
        for _, event in self.moments:
            if isinstance(event, RequestFiled):
                number += 1
                open_.add(number)
            elif isinstance(event, RequestWithdrawn | RequestRefused):
                open_.discard(event.request)
            elif isinstance(event, Branch | RequestSettled):
                served = groups.keys() & (event.requests if isinstance(event, Branch) else {event.request})
                gone = gone.union(*(groups[for_good] for for_good in served - records))
                stay = frozenset[int]().union(*(groups[rows] for rows in served & records))
                returning |= stay.difference(gone, *(groups[for_good] for for_good in open_ - records))
        return returning

    def readmitted(self, number: int) -> int | None:
        """Return the number of the first entry since a request was served that lets a client of it take part again.

        Models that were recorded after it may know the client's data again. It is the same client under a later
        pseudonym, too. A request whose clients are hidden together with those of requests before it is about these.
        """
        if not any(self.of(ClientsReadmitted)):
            return None
        filed, digests = self.requests[number - 1], set(self.requests[number - 1].forgotten)
        same = [other.request.group for other in self.requests if not digests.isdisjoint(other.forgotten)]
        if filed.request.scope is PrivacyScope.SEQUENCE and not filed.settled:
            same += [other.request.group for other in self.requests if other.served]
        group = filed.request.group.union(*same)
        entries = (entry.sequence for entry, event in self.of(ClientsReadmitted) if group & set(event.clients))
        served = self.served_at(number)
        return next((entry for entry in entries if served is not None and entry > served), None)

    def served_at(self, number: int) -> int | None:
        """Return the number of the entry that served a request, by a restart or without one."""
        return self._served_by.get(number)

    @cached_property
    def _served_by(self) -> dict[int, int]:
        """Of each request that was served, the number of the first entry that did."""
        served: dict[int, int] = {}
        for entry, event in self.moments:
            if isinstance(event, Branch | RequestSettled):
                for number in event.requests if isinstance(event, Branch) else (event.request,):
                    served.setdefault(number, entry.sequence)
        return served

    @cached_property
    def plans(self) -> dict[int, RecordedPlan]:
        """The plan of each request: the latest one, or that which the restart that serves it carries out."""
        return {
            number: replace(plan, seen=plan.seen or entry.sequence) for number, (entry, plan) in self._planned.items()
        }

    @cached_property
    def _planned(self) -> dict[int, tuple[Entry, RecordedPlan]]:
        """The plans with their entries. One that comes in the moment of the restart, or later, is not its own."""
        drawn_up: dict[int, list[tuple[Entry, RecordedPlan]]] = {}
        for entry, event in self.moments:
            if isinstance(event, RecordedPlan):
                for number in event.requests:
                    served = self.served_at(number)
                    if served is None or entry.sequence < served:
                        drawn_up.setdefault(number, []).append((entry, event))
            elif isinstance(event, Branch):
                for number in drawn_up.keys() & event.requests:
                    own = [moment for moment in drawn_up[number] if _carries_out(event, moment[1])]
                    drawn_up[number] = own or drawn_up[number]
        return {number: moments[-1] for number, moments in drawn_up.items()}

    def approvals_of(self, number: int) -> list[tuple[Entry, PlanApproved]]:
        """Return the approvals of a request's latest plan, with their entries.

        Without a plan they are those of the request itself. Whoever agrees once it is carried out has approved
        nothing.
        """
        planned, served = self.planned_at(number).sequence, self.served_at(number)
        return [
            (entry, event)
            for entry, event in self._approvals
            if event.plan == planned and (served is None or entry.sequence < served)
        ]

    @cached_property
    def _approvals(self) -> list[tuple[Entry, PlanApproved]]:
        return list(self.of(PlanApproved))

    @cached_property
    def logins(self) -> dict[int, DoneByLogin]:
        """Who wrote entries at the desk, by the entries' numbers; what was said of one later does not count."""
        return {event.entry: event for entry, event in self.of(DoneByLogin) if event.entry == entry.sequence - 1}

    def planned_at(self, number: int) -> Entry:
        """Return the entry of a request's latest plan; without a plan that of the request itself."""
        return self._planned_by[number]

    @cached_property
    def _planned_by(self) -> dict[int, Entry]:
        """Of each request the entry of its plan, or its own."""
        entries = {number: entry for number, (entry, _) in enumerate(self.of(RequestFiled), start=1)}
        return entries | {number: entry for number, (entry, _) in self._planned.items()}

    @cached_property
    def deletions(self) -> tuple[Deletion, ...]:
        """All erasures in the order in which they were begun."""
        done = {event.erasure: (entry, event) for entry, event in self.of(ErasureFinished)}
        deletions = []
        for begun, plan in self.of(ErasurePlan):
            entry, event = done.get(begun.sequence, (None, None))
            deletions.append(Deletion(begun.sequence, plan, entry.time if entry else "", event.left if event else ()))
        return tuple(deletions)

    @property
    def unfinished_deletions(self) -> list[Deletion]:
        """The erasures that were begun and not carried out to the end."""
        return [deletion for deletion in self.deletions if not deletion.completed]

    @cached_property
    def doubts(self) -> tuple[Doubt, ...]:
        """All doubts in the order in which they arose; an answer lifts all those before it."""
        doubts: list[Doubt] = []
        for entry, event in self.moments:
            if isinstance(event, TrainingDoubted):
                doubts.append(Doubt(event.model_id, entry.time, event.reason))
            elif isinstance(event, DoubtsLifted):
                doubts = [doubt if doubt.answer else replace(doubt, answer=event.reason) for doubt in doubts]
        return tuple(doubts)

    @property
    def standing_doubts(self) -> tuple[Doubt, ...]:
        """The doubts that nobody has lifted."""
        return tuple(doubt for doubt in self.doubts if not doubt.answer)

    @cached_property
    def missed_means(self) -> tuple[ModelId, ...]:
        """Of each branch the first model that was seen to be no mean of its round's replies, or began unbounded."""
        unbounded = [ModelId(branch.number, 0) for branch in self.branches.values() if branch.unbounded]
        return (*unbounded, *(event.model_id for _, event in self.of(MeanMissed)))


def newest_model(ledger: Ledger, timeline: Timeline) -> ModelId:
    """Return the newest model: the last one of the branch that was started last."""
    number = max(timeline.branches, default=None)
    if number is None:
        raise NoHistoryError("nothing has been recorded here yet: start the federation's first run")
    return ModelId(number, ledger.last_round(number))


def newest_model_at(ledger: Ledger, timeline: Timeline, last: int) -> ModelId:
    """Return the model that was the newest when the journal's last entry had this number."""
    number = max(timeline.until(last).branches)
    rounds = (entry.model_id for entry in ledger.entries(ROUND) if entry.sequence <= last)
    return ModelId(number, max((model_id.round for model_id in rounds if model_id.branch == number), default=0))


def _carries_out(branch: Branch, plan: RecordedPlan) -> bool:
    """Return whether a branch does what a plan says."""
    same = (plan.requests, plan.parent, plan.candidate.sigma)
    return same == (branch.requests, branch.parent, branch.sigma)
