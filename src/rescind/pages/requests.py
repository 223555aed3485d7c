"""The requests of a run as a report shows them: what became of each, when, and what was there before and after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rescind.certificates.approvals import find_approval
from rescind.certificates.issue import gather_claims
from rescind.certificates.predicate import VERSION, Predicate
from rescind.certificates.verification import VerifiedCertificate
from rescind.certificates.wording import say
from rescind.core.edges import ModelId
from rescind.history.events import DeadlineExtended, RequestRefused, RequestWithdrawn
from rescind.history.history import History
from rescind.history.outcomes import Outcome, Scores
from rescind.ledger.records import Asker
from rescind.pages.fragments import (
    draw_days,
    fold,
    render_answers,
    render_assumptions,
    render_banner,
    render_figure,
    render_list,
)
from rescind.pages.summary import Summary, day_of, list_days, summarise
from rescind.views.requests import KnownRequest

_NO_REASON = ", and no reason was given"
_UNSIGNED = "everything: nothing signed was given to this report, so ask for it"
# The lists of a claim, with their titles.
_LISTS = {
    "constants": "Taken as constants: given, although data may have decided it",
    "public": "Public, and not hidden",
    "assumptions": "Rests on",
    "stays": "Still there of the forgotten",
    "not_claimed": "Not claimed",
}


@dataclass(frozen=True, slots=True)
class Served:
    """A request that was served: what may be claimed of it today, what was done for it, what was certified of it."""

    outcome: Outcome
    predicate: Predicate
    certificate: VerifiedCertificate | None
    several: bool
    common: Mapping[str, Sequence[Any]]

    @property
    def name(self) -> str:
        """What it is called on the page."""
        return f"request {self.outcome.asked.number}"

    @property
    def summary(self) -> Summary:
        """What the page says first of it."""
        return summarise(self.predicate, self.certificate.holds[0] if self.certificate else "")

    def render_banner(self) -> Iterator[str]:
        """Show the verdict and its three facts."""
        sealed = ("not signed", "nothing signed was given to this report")
        if self.certificate is not None:
            signed = "its signed report" if self.predicate.mode == "heuristic" else "its certificate"
            sealed = ("signed", f"{signed} was verified for this page")
        return render_banner(self.summary, sealed, about=self.name.capitalize(), level=3)

    def render_answers(self) -> Iterator[str]:
        """Answer an officer's questions; folded where there are several requests."""
        unchecked = (_UNSIGNED,) if self.certificate is None else self.certificate.unchecked
        answers = render_answers(self.summary, unchecked)
        return fold(f"Questions and answers about {self.name}", answers) if self.several else answers

    def render_lists(self) -> Iterator[str]:
        """Show what the claim rests on and what it leaves, but for what all requests have in common."""
        own = {
            kind: [line for line in lines if line not in self.common.get(kind, ())]
            for kind, lines in _lists_of(self.predicate).items()
        }
        return render_lists(own)


def find_served(history: History, certificates: Sequence[VerifiedCertificate]) -> list[Served]:
    """Return the requests that were served, each with its certificate if one was given."""
    verified = {certificate.statement.predicate.request: certificate for certificate in certificates}
    claims = [
        (outcome, gather_claims(history, outcome.asked.number, history.head)[0]) for outcome in history.outcomes()
    ]
    common = _common([predicate for _, predicate in claims])
    return [
        Served(outcome, predicate, verified.get(outcome.asked.number), len(claims) > 1, common)
        for outcome, predicate in claims
    ]


def _lists_of(predicate: Predicate) -> dict[str, Sequence[Any]]:
    lists = {kind: getattr(predicate, kind) for kind in _LISTS if kind != "stays"}
    return lists | {"stays": predicate.erasure.stays + predicate.erasure.unreachable}


def _common(predicates: Sequence[Predicate]) -> dict[str, Sequence[Any]]:
    """Return what is in the same list of every one of several requests."""
    if len(predicates) < 2:
        return {}
    first, *others = map(_lists_of, predicates)
    return {
        kind: [line for line in lines if all(line in other[kind] for other in others)]
        for kind, lines in first.items()
    }


def render_lists(lists: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Fold the lists of a claim away."""
    for kind, title in _LISTS.items():
        yield from (render_assumptions if kind == "assumptions" else render_list)(title, lists.get(kind, ()))


def describe_steps(history: History) -> dict[int, list[str]]:
    """Say of each request who asked, if that was the client itself, who approved it, and how its deadline moved."""
    timeline = history.timeline
    notes: dict[int, list[str]] = {asked.number: [] for asked in timeline.requests}
    for asked in timeline.requests:
        if asked.sender.asker is not Asker.OPERATOR:
            notes[asked.number].append(f"It was asked for by {say(VERSION, asked.sender.asker.value)}.")
        if (approval := find_approval(timeline, history.identifier, asked.number)) is not None:
            entry, event = approval
            signed = "and signed that" if event.key else "without a signature"
            notes[asked.number].append(f"On {day_of(entry.time)} {event.by} approved its plan, {signed}.")
    for entry, moved in timeline.of(DeadlineExtended):
        told = f"On {day_of(entry.time)} its deadline was moved to {day_of(moved.deadline)}: {moved.reason}."
        notes[moved.request].append(told)
    return notes


def describe_dropped(history: History) -> list[str]:
    """Say which requests were taken back or refused, by whom and why."""
    timeline = history.timeline
    taken = {
        event.request: f"withdrawn on {day_of(entry.time)}" + (f": {event.reason}" if event.reason else _NO_REASON)
        for entry, event in timeline.of(RequestWithdrawn)
    }
    taken |= {
        event.request: f"refused on {day_of(entry.time)} by {event.by}: {event.reason}"
        for entry, event in timeline.of(RequestRefused)
    }
    filed = [asked for asked in timeline.requests if asked.dropped]
    names = history.participants.describe([asked.request.group for asked in filed])
    return [
        f"Request {asked.number} ({', '.join(clients)}; asked on {day_of(asked.time)}) was {taken[asked.number]}."
        for asked, clients in zip(filed, names, strict=True)
    ]


def draw_times(history: History, request: Served, notes: Mapping[int, Sequence[str]]) -> str:
    """Draw when a request was asked, served, certified and due."""
    asked, days = request.outcome.asked, list_days(request.predicate)
    certified = ""
    if request.certificate is not None:
        signed = bytes.fromhex(request.certificate.statement.subject[1].digest.sha256)
        days["certified"] = max(days["served"], history.integrity.entry_times(signed)[-1][0].date())
        certified = " Certified is the history as it was on that day."
    if days["due"] != day_of(asked.first_deadline):
        days["first due"] = day_of(asked.first_deadline)
    moved = "".join(f" {note}" for note in notes.get(asked.number, ()))
    return render_figure(draw_days(days), f"{request.name.capitalize()}, in days.{certified}{moved}")


def draw_open_times(request: KnownRequest, now: datetime) -> str:
    """Draw how long a request still has."""
    asked = request.asked
    days = {"asked": day_of(asked.time), "today": now.astimezone(UTC).date(), "due": day_of(asked.deadline)}
    return render_figure(draw_days(days), f"Request {asked.number}, which is not served yet, in days.")


def compare_accuracies(
    served: Sequence[Served], measured: Mapping[ModelId, Scores], parts: Mapping[str, str], digits: int
) -> Iterator[tuple[str, ...]]:
    """Say how good the model was before and after each request; an officer sees whole percents of held-out data."""
    for request in served:
        restart = request.outcome.restart
        if restart is None or not measured:
            continue
        branch = restart.branch
        before = max((model_id for model_id in measured if model_id.branch < branch.number), default=None)
        own = (model_id for model_id in measured if model_id.branch == branch.number)
        after = max((model_id for model_id in own if model_id.round <= request.outcome.rounds), default=None)
        for part, label in parts.items():
            shares = [None if model_id is None else getattr(measured[model_id], part) for model_id in (before, after)]
            if any(share is not None for share in shares):
                told = ("not measured" if share is None else f"{share:.{digits}%}" for share in shares)
                yield str(request.outcome.asked.number), label, *told
