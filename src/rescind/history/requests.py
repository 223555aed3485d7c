"""Requests to be forgotten, as the journal tells them: what was asked, what was planned, what is owed since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from rescind.core.facts import Mode
from rescind.core.planning import Candidate
from rescind.core.summary import Forgotten, Request
from rescind.history.codec import decode, encode
from rescind.history.ledger import Ledger
from rescind.history.path import Path, branches, lineage
from rescind.history.records import Branch, Place

_WEAKEST_LAST = list(Mode)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it was recorded: ``number`` names it, ``deadline`` is the day it has to be served by."""

    number: int
    request: Request
    time: str
    deadline: str
    withdrawn: bool
    branch: int | None

    @property
    def open(self) -> bool:
        """Whether it is still to be served."""
        return not self.withdrawn and self.branch is None


@dataclass(frozen=True, slots=True)
class Planned:
    """The way that was chosen to serve a request; ``public_plan`` if it was chosen without looking at data."""

    request: int
    candidate: Candidate
    public_plan: bool


def ask(ledger: Ledger, request: Request, time: datetime, deadline: datetime) -> int:
    """Record a request and give its number."""
    body = {"request": encode(request), "deadline": deadline.isoformat()}
    return ledger.append("request", body, time.isoformat()).sequence


def withdraw(ledger: Ledger, number: int, time: datetime) -> None:
    """Record that a request was taken back; only an open one can be."""
    if not any(asked.number == number and asked.open for asked in asked_for(ledger)):
        raise ValueError(f"there is no open request {number}: it was served, withdrawn, or never made")
    ledger.append("withdrawal", {"request": number}, time.isoformat())


def record_plan(ledger: Ledger, plan: Planned, time: datetime) -> None:
    """Record how a request is going to be served."""
    body = {"request": plan.request, "candidate": encode(plan.candidate), "public_plan": plan.public_plan}
    ledger.append("plan", body, time.isoformat())


def plans(ledger: Ledger) -> dict[int, Planned]:
    """Give the latest plan of each request."""
    return {
        int(entry.body["request"]): Planned(
            int(entry.body["request"]), decode(Candidate, entry.body["candidate"]), bool(entry.body["public_plan"])
        )
        for entry in ledger.entries("plan")
    }


def asked_for(ledger: Ledger) -> tuple[Asked, ...]:
    """Give all requests in the order in which they arrived."""
    withdrawn = {int(entry.body["request"]) for entry in ledger.entries("withdrawal")}
    served = {each.request: each.number for each in branches(ledger).values() if each.request is not None}
    return tuple(
        Asked(
            entry.sequence,
            decode(Request, entry.body["request"]),
            entry.time,
            str(entry.body["deadline"]),
            entry.sequence in withdrawn,
            served.get(entry.sequence),
        )
        for entry in ledger.entries("request")
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """What an earlier request is owed now: ``branch`` is the one whose noise hides it, if noise does."""

    request: Request
    mode: Mode
    public_plan: bool
    branch: int | None
    spent: tuple[float, ...]

    def forgotten(self, path: Path) -> Forgotten:
        """Give it as planning wants it, on a path."""
        behind = None if self.branch is None else path.behind_noise[self.branch]
        return Forgotten(self.request, self.mode, self.public_plan, behind, self.spent)


def standings(ledger: Ledger) -> tuple[Standing, ...]:
    """Follow every served request through the restarts after it, in the order in which they were served.

    A later restart from before its noise either hid the group again or went back to where nobody of it had been.
    """
    known, planned = branches(ledger), plans(ledger)
    requests = {asked.number: asked.request for asked in asked_for(ledger)}
    standing: tuple[Standing, ...] = ()
    for branch in sorted(known.values(), key=lambda each: each.number):
        if branch.request is None:
            continue
        plan, request = planned[branch.request], requests[branch.request]
        standing = tuple(_after(each, branch, plan.candidate, known) for each in standing)
        noised = bool(branch.sigma)
        standing += (
            Standing(
                request,
                plan.candidate.mode,
                plan.public_plan,
                branch.number if noised else None,
                (request.mu,) if noised else (),
            ),
        )
    return standing


def _after(earlier: Standing, branch: Branch, chosen: Candidate, known: Mapping[int, Branch]) -> Standing:
    """Give what an earlier request is owed after a later one's restart."""
    if earlier.branch is None:
        return earlier
    mode = earlier.mode
    if earlier.request.group in chosen.weakened:
        mode = _weaker(mode, Mode.INSTANCE)
    if earlier.branch in _upstream(branch, known):
        return replace(earlier, mode=mode)
    if earlier.request.group in chosen.rechecked:
        spent = (*earlier.spent, earlier.request.mu)
        return replace(earlier, mode=_weaker(mode, chosen.mode), branch=branch.number, spent=spent)
    return replace(earlier, mode=Mode.EXACT, branch=None, spent=())


def _upstream(branch: Branch, known: Mapping[int, Branch]) -> Iterator[int]:
    return (place.branch for place in lineage(known, branch.parent or Place(0, 0)))


def _weaker(one: Mode, other: Mode) -> Mode:
    return max(one, other, key=_WEAKEST_LAST.index)
