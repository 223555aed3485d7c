"""Requests to be forgotten, as the journal tells them: what was asked, what was planned, what is owed since."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import takewhile

import numpy as np

from rescind.core.edges import sorted_group
from rescind.core.facts import DpFedAvg, Facts, Mode, PrivacyScope
from rescind.core.planning import Candidate
from rescind.core.sensitivity import first_joined, never_joined
from rescind.core.strict import participations
from rescind.core.summary import Forgotten, Request
from rescind.core.training import LocalTraining
from rescind.history.codec import decode, encode
from rescind.history.doubts import DOUBT_KINDS
from rescind.history.lineage import Lineage, branch_exits, branches, lineage_of, newest
from rescind.history.naming import check_names
from rescind.ledger.contract import Journal, Ledger
from rescind.ledger.records import ROOT, Branch, ModelId

_WEAKEST_LAST = list(Mode)
# GDPR art. 12 (3): a month, and two further ones where that is necessary.
_MOST_EXTENDED = 61
# A certificate lists them all, and one that nobody reads is not signed.
MOST_CLIENTS = 10_000


@dataclass(frozen=True, slots=True)
class FiledRequest:
    """A request as it was recorded: ``number`` names it, ``deadline`` is the day it has to be served by.

    It is served by a restart, which began ``branch``, or ``settled`` without one, where the model does not know its
    clients. ``forgotten`` are salted digests of its clients' names, which outlive the names: whoever has a client's
    receipt can tell which is its own.
    """

    number: int
    request: Request
    time: str
    deadline: str
    withdrawn: bool
    settled: bool
    branch: int | None
    forgotten: tuple[str, ...] = ()

    @property
    def served(self) -> bool:
        """Whether its clients are forgotten, and so may not take part any more."""
        return self.settled or self.branch is not None

    @property
    def open(self) -> bool:
        """Whether it is still to be served."""
        return not self.withdrawn and not self.served


@dataclass(frozen=True, slots=True)
class RecordedPlan:
    """The way that was chosen to serve requests together; ``public_plan`` if it was chosen without looking at data.

    ``method`` says which method chose it, ``seen`` is the number of the journal's last entry that it took into
    account, that of its own entry unless told.
    """

    requests: tuple[int, ...]
    candidate: Candidate
    public_plan: bool
    method: str = ""
    seen: int = 0


def ask(ledger: Ledger, request: Request, time: datetime, deadline: datetime) -> int:
    """Record a request and give its number; ``ValueError`` if it names more than a certificate can."""
    if len(request.group) > MOST_CLIENTS:
        raise ValueError(
            f"a request is about at most {MOST_CLIENTS} clients, as a certificate lists them, and this one is about "
            f"{len(request.group)}: split it"
        )
    check_names(ledger, request.group)
    names = ledger.names(sorted_group(request.group)).values()
    # Sorted, so that their order tells nothing.
    forgotten = sorted(blind_name(receipt(ledger, name), name) for name in names)
    body = {"request": encode(request), "deadline": deadline.isoformat(), "forgotten": forgotten}
    return ledger.append("request", body, time.isoformat()).sequence


def receipt(ledger: Ledger, name: str) -> bytes:
    """Return what a client needs to find itself in a certificate; it can be given again, also after an erasure."""
    return hmac.digest(ledger.outside_secret("receipts"), name.encode(), "sha256")


def blind_name(salt: bytes, name: str) -> str:
    """Return the digest that stands for a client, whose receipt is ``salt``."""
    return hashlib.sha256(b"rescind forgets " + salt + name.encode()).hexdigest()


def withdraw(ledger: Ledger, number: int, time: datetime) -> None:
    """Record that a request was taken back; only an open one can be."""
    check_open(ledger, number)
    ledger.append("withdrawal", {"request": number}, time.isoformat())


def extend(ledger: Ledger, number: int, days: int, reason: str, time: datetime) -> datetime:
    """Record that an open request may be served later, and why; gives the new deadline."""
    asked = check_open(ledger, number)
    if not reason.strip():
        raise ValueError("give a reason: without one a deadline is not extended")
    first = next(entry for entry in ledger.entries("request") if entry.sequence == number)
    deadline = datetime.fromisoformat(asked.deadline) + timedelta(days=min(max(days, 0), _MOST_EXTENDED + 1))
    latest = datetime.fromisoformat(str(first.body["deadline"])) + timedelta(days=_MOST_EXTENDED)
    if days < 1 or deadline > latest:
        raise ValueError(
            f"request {number} can be extended by 1 day or more, up to {latest:%Y-%m-%d}: two months in all"
        )
    body = {"request": number, "deadline": deadline.isoformat(), "reason": reason}
    ledger.append("extension", body, time.isoformat())
    return deadline


def name_group(ledger: Ledger, group: Iterable[int]) -> list[str]:
    """Return what people call these clients, or else their names; of whom both are erased the pseudonym."""
    return name_groups(ledger, [group])[0]


def name_groups(ledger: Ledger, groups: Sequence[Iterable[int]]) -> list[list[str]]:
    """Return the same for many groups, for which the ledger is asked once."""
    sorted_groups = [sorted_group(group).tolist() for group in groups]
    everybody = sorted_group(client for group in sorted_groups for client in group)
    known = ledger.names(everybody) | ledger.labels()
    return [[known.get(client, f"forgotten (pseudonym {client})") for client in clients] for clients in sorted_groups]


def record_plan(ledger: Ledger, plan: RecordedPlan, time: datetime) -> RecordedPlan:
    """Record how open requests are going to be served.

    The predicted rounds are rounded: they were computed from models that may have to be erased.
    """
    check_all_open(ledger, plan.requests)
    candidate = replace(plan.candidate, predicted_rounds=float(round(plan.candidate.predicted_rounds)))
    body = {
        "requests": list(plan.requests),
        "candidate": encode(candidate),
        "public_plan": plan.public_plan,
        "method": plan.method,
        "seen": plan.seen,
    }
    entry = ledger.append("plan", body, time.isoformat())
    return replace(plan, candidate=candidate, seen=plan.seen or entry.sequence)


def plans(journal: Journal) -> dict[int, RecordedPlan]:
    """Return the latest plan of each request."""
    found: dict[int, RecordedPlan] = {}
    for entry in journal.entries("plan"):
        numbers = tuple(int(number) for number in entry.body["requests"])
        candidate, public = decode(Candidate, entry.body["candidate"]), bool(entry.body["public_plan"])
        planned = RecordedPlan(
            numbers, candidate, public, str(entry.body["method"]), int(entry.body["seen"]) or entry.sequence
        )
        found |= dict.fromkeys(numbers, planned)
    return found


def last_change(ledger: Ledger) -> int:
    """Return the number of the last entry that a plan depends on."""
    kinds = ("run", "round", "branch", "erasure", "ends by data", *DOUBT_KINDS)
    return max((entry.sequence for entry in ledger.entries(*kinds)), default=0)


def is_stale(ledger: Ledger, plan: RecordedPlan) -> bool:
    """Return whether a plan is about a history that has changed, or about a request that is not open any more."""
    waiting = {asked.number for asked in filed_requests(ledger) if asked.open}
    return last_change(ledger) > plan.seen or not waiting.issuperset(plan.requests)


def filed_requests(journal: Journal) -> tuple[FiledRequest, ...]:
    """Return all requests in the order in which they arrived."""
    withdrawn, settled = (
        {int(entry.body["request"]) for entry in journal.entries(kind)} for kind in ("withdrawal", "settlement")
    )
    extended = {int(entry.body["request"]): str(entry.body["deadline"]) for entry in journal.entries("extension")}
    served = {number: each.number for each in branches(journal).values() for number in each.requests}
    return tuple(
        FiledRequest(
            entry.sequence,
            decode(Request, entry.body["request"]),
            entry.time,
            extended.get(entry.sequence, str(entry.body["deadline"])),
            entry.sequence in withdrawn,
            entry.sequence in settled,
            served.get(entry.sequence),
            tuple(map(str, entry.body["forgotten"])),
        )
        for entry in journal.entries("request")
    )


def is_unknown(ledger: Ledger, request: Request, facts: Facts) -> bool:
    """Return whether nobody of a request ever touched the newest model."""
    return are_unknown(ledger, [request], facts)[0]


def are_unknown(ledger: Ledger, requests: Sequence[Request], facts: Facts) -> list[bool]:
    """Return of each request whether nobody of it ever touched the newest model, whose path is read once."""
    if not requests:
        return []
    everybody = sorted_group(client for request in requests for client in request.group)
    path = lineage_of(ledger, newest(ledger), facts.training, everybody)
    # Where rounds were drawn again, who was absent may have had a part in that.
    redrawn = facts.redrawn_rounds and len(path.edges) > 0
    absent = frozenset[int]() if redrawn else frozenset(never_joined(path.edges, everybody).tolist())
    return [request.group <= absent for request in requests]


def settle(ledger: Ledger, number: int, facts: Facts, time: str) -> None:
    """Record that a request is served without a restart, because nobody of it ever touched the newest model."""
    if not is_unknown(ledger, check_open(ledger, number).request, facts):
        raise ValueError(f"the newest model knows clients of request {number}: plan it, and restart")
    ledger.append("settlement", {"request": number}, time)


def forgotten_clients(ledger: Ledger) -> frozenset[int]:
    """Return everybody whose request was served."""
    return frozenset(client for asked in filed_requests(ledger) if asked.served for client in asked.request.group)


@dataclass(frozen=True, slots=True)
class Obligation:
    """What an earlier request is owed now: ``branch`` is the one whose noise hides it, if noise does."""

    number: int
    request: Request
    mode: Mode
    public_plan: bool
    branch: int | None
    spent: tuple[float, ...]

    def forgotten(self, path: Lineage) -> Forgotten:
        """Return it as planning wants it, on a path."""
        behind = None if self.branch is None else path.behind_noise[self.branch]
        return Forgotten(self.request, self.mode, self.public_plan, behind, self.spent)


def obligations(journal: Journal) -> tuple[Obligation, ...]:
    """Follow every request that a restart served through the restarts after it, in the order of the restarts.

    A later restart from before its noise either hid its clients again or went back to where none of them had been.
    """
    known, planned = branches(journal), plans(journal)
    requests = {asked.number: asked.request for asked in filed_requests(journal)}
    standing: tuple[Obligation, ...] = ()
    for branch in sorted(known.values(), key=lambda each: each.number):
        plan = planned[branch.requests[0]] if branch.requests else None
        standing = tuple(_follow(each, branch, plan, known) for each in standing)
        if plan is None:
            continue
        for number in branch.requests:
            request, hidden = requests[number], number in branch.hidden
            noise = branch.number if hidden else None
            spent = (request.mu,) if hidden else ()
            # Noise that only earlier requests need leaves this one as untouched as it was.
            needless = bool(branch.sigma) and not hidden and plan.candidate.mode is not Mode.HEURISTIC
            # Where every round was noised, whoever took part in none before the restart is hidden by nothing either.
            took_part = dict(zip(branch.requests, branch.participations, strict=False))
            needless |= plan.candidate.mode is Mode.STRICT and took_part.get(number) == 0
            mode = Mode.EXACT if needless else plan.candidate.mode
            standing += (Obligation(number, request, mode, plan.public_plan, noise, spent),)
    return standing


def hidden_at(
    ledger: Ledger, parent: ModelId, training: LocalTraining, new: Sequence[FiledRequest]
) -> tuple[int, ...]:
    """Return the requests whose clients have touched a model, and whose own noise does not lie before it."""
    upstream = {model_id.branch for model_id in branch_exits(branches(ledger), parent)}
    earlier = obligations(ledger)
    promises: list[tuple[int, Request, int | None, bool]] = [
        (each.number, each.request, each.branch, each.branch is not None) for each in earlier
    ]
    promises += [(asked.number, asked.request, None, True) for asked in new]
    owed = sorted_group(client for _, request, _, _ in promises for client in request.group)
    path = lineage_of(ledger, parent, training, owed)
    everybody, found = frozenset[int](), []
    for number, request, noise, counts in promises:
        everybody |= request.group
        if not counts:
            continue
        groups = {request.group, everybody} if request.scope is PrivacyScope.SEQUENCE else {request.group}
        touched = any(first_joined(path.edges, group) < path.index[parent] for group in groups)
        if touched and noise not in upstream:
            found.append(number)
    return tuple(found)


def hidden_together(request: Request, earlier: Iterable[Request]) -> list[frozenset[int]]:
    """Return the groups that a request hides, each of them jointly; ``earlier`` are those served before it."""
    if request.scope is PrivacyScope.INDIVIDUAL:
        return [frozenset({client}) for client in request.group]
    if request.scope is PrivacyScope.GROUP:
        return [request.group]
    return [request.group, request.group.union(*(each.group for each in earlier))]


def groups_of(journal: Journal, asked: FiledRequest) -> list[frozenset[int]]:
    """Return the groups that a request which a restart served hides, each of them jointly."""
    before = takewhile(lambda each: each.number != asked.number, obligations(journal))
    return hidden_together(asked.request, (each.request for each in before))


def participations_at(ledger: Ledger, parent: ModelId, facts: Facts, new: Sequence[FiledRequest]) -> tuple[int, ...]:
    """Return for each new request the largest sum over the rounds up to a model of |W in S|^2; see ``Branch``."""
    if not isinstance(facts.public, DpFedAvg):
        return ()
    earlier, sums = [each.request for each in obligations(ledger)], []
    for asked in new:
        groups = hidden_together(asked.request, earlier)
        path = lineage_of(ledger, parent, facts.training, sorted_group(frozenset().union(*groups)))
        sums.append(max(participations(path.edges, group)[path.index[parent]] for group in groups))
        earlier.append(asked.request)
    # Of an erased stretch nobody knows it; what goes back behind one is never certified.
    return tuple(map(int, sums)) if np.isfinite(sums).all() else ()


def _follow(
    earlier: Obligation, branch: Branch, plan: RecordedPlan | None, known: Mapping[int, Branch]
) -> Obligation:
    """Return what an earlier request is owed after a later restart."""
    if branch.unbounded or earlier.number in branch.bare:
        return replace(earlier, mode=Mode.HEURISTIC, branch=None, spent=())
    if plan is not None and not plan.public_plan:
        # Its node and its noise follow data, so nothing that holds whatever these are can rest on it.
        weaker = Mode.INSTANCE if earlier.mode is Mode.STRICT else earlier.mode
        earlier = replace(earlier, mode=weaker, public_plan=earlier.public_plan and earlier.mode is not Mode.STRICT)
    if plan is not None and earlier.number in branch.hidden:
        spent = (*earlier.spent, earlier.request.mu)
        mode = _weaker_mode(earlier.mode, plan.candidate.mode)
        return replace(earlier, mode=mode, branch=branch.number, spent=spent)
    if earlier.branch is None or earlier.branch in _upstream(branch, known):
        return earlier
    # What was never proven may rest on rounds that were drawn again: only theta_0^0 is free of those.
    unproven = earlier.mode is Mode.HEURISTIC and branch.parent != ROOT
    return replace(earlier, mode=Mode.HEURISTIC if unproven else Mode.EXACT, branch=None, spent=())


def check_open(ledger: Ledger, number: int) -> FiledRequest:
    """Return an open request; refuse any other."""
    return check_all_open(ledger, [number])[0]


def check_all_open(ledger: Ledger, numbers: Sequence[int]) -> list[FiledRequest]:
    """Return open requests; refuse any other."""
    waiting = {asked.number: asked for asked in filed_requests(ledger) if asked.open}
    for number in numbers:
        if number not in waiting:
            raise ValueError(
                f"there is no open request {number}: it was served, withdrawn or never made; `rescind request list` "
                "tells"
            )
    return [waiting[number] for number in numbers]


def _upstream(branch: Branch, known: Mapping[int, Branch]) -> Iterator[int]:
    return (model_id.branch for model_id in branch_exits(known, branch.parent or ModelId(0, 0)))


def _weaker_mode(one: Mode, other: Mode) -> Mode:
    return max(one, other, key=_WEAKEST_LAST.index)
