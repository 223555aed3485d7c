"""The report's content, gathered from a history, and the page that is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from rescind import __version__
from rescind.certificates.drawings import Picture, draw_chances, draw_days
from rescind.certificates.fragments import (
    LOSSES,
    MODES,
    escape,
    fold,
    render_answers,
    render_assumptions,
    render_banner,
    render_figure,
    render_list,
    render_opening,
)
from rescind.certificates.issue import attack_power_of, gather_claims
from rescind.certificates.predicate import Names, Predicate
from rescind.certificates.summary import LEVELS, Summary, day_of, summarise
from rescind.certificates.verification import VerifiedCertificate, describe_noise
from rescind.certificates.wording import describe_names
from rescind.core.calibration import sensitivity_threshold
from rescind.core.edges import ErasedStretch
from rescind.core.sensitivity import client_sensitivities
from rescind.history.events import DeadlineExtended, RequestWithdrawn
from rescind.history.history import History
from rescind.history.outcomes import Outcome, Scores
from rescind.history.overview import OpenRequest, Overview, open_requests, overview
from rescind.history.timeline import FiledRequest
from rescind.ledger.records import Branch, ModelId
from rescind.report.pictures import Line, Promise, accuracies, noises, powers, sensitivities, sketch, tree
from rescind.texts import make_plain

_CURVES = 5
_MOST_DRAWN = 10
# What is measured on clients' data is the operator's alone.
_TEST = {"test": "on held-out data"}
_PARTS = {"retain": "of the remaining", "forget": "of the forgotten", **_TEST}
_UNSIGNED = "All of it is the word of whoever keeps this history: nothing signed was given to this report."
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

    asked: FiledRequest
    outcome: Outcome
    predicate: Predicate
    certificate: VerifiedCertificate | None
    several: bool
    common: Mapping[str, Sequence[Any]]

    @property
    def name(self) -> str:
        """What it is called on the page."""
        return f"request {self.asked.number}"

    @property
    def summary(self) -> Summary:
        """What the page says first of it."""
        return summarise(self.predicate, self.certificate.holds[0] if self.certificate else "")

    @property
    def banner(self) -> Markup:
        """The verdict and its three facts."""
        sealed = ("not signed", "nothing signed was given to this report")
        if self.certificate is not None:
            signed = "its signed report" if self.predicate.mode == "heuristic" else "its certificate"
            sealed = ("signed", f"{signed} was verified for this page")
        return _join(render_banner(self.summary, sealed, about=self.name.capitalize(), level=3))

    @property
    def answers(self) -> Markup:
        """An officer's questions; folded where there are several requests."""
        unchecked = (_UNSIGNED,) if self.certificate is None else self.certificate.unchecked
        answers = render_answers(self.summary, unchecked)
        return _join(fold(f"Questions and answers about {self.name}", answers) if self.several else answers)

    @property
    def lists(self) -> Markup:
        """What the claim rests on and what it leaves, but for what all requests have in common."""
        own = {
            kind: [line for line in lines if line not in self.common.get(kind, ())]
            for kind, lines in _lists_of(self.predicate).items()
        }
        return _render_lists(own)


def render_report(
    history: History,
    *,
    private: bool,
    certificates: Sequence[VerifiedCertificate] = (),
    measured: Mapping[ModelId, Scores] | None = None,
    now: datetime | None = None,
) -> str:
    """Return the page. With ``private`` it is the operator's own, with numbers computed from clients' data.

    ``certificates`` were verified against this history; ``measured`` are accuracies, see ``engines.accuracies``.
    """
    now, measured = now or datetime.now(UTC), measured or {}
    view, served, drawn = overview(history), _served(history, certificates), gather_lines(history)
    waiting, notes, names = open_requests(history, view, now), _extensions(history), history.timeline.names
    claims = {
        request.name: partial(attack_power_of, request.predicate) for request in served if request.predicate.guarantee
    }
    promises = {
        request.name: Promise(request.predicate.noise.sigma, guarantee.mu, guarantee.epsilon, guarantee.delta)
        for request in served
        if (guarantee := request.predicate.guarantee) and request.predicate.noise
    }
    chances = {request.name: request.summary.chance for request in served[-_MOST_DRAWN:]}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_fit
    )
    template = environment.from_string((files("rescind.report") / "report.html").read_text("utf-8"))
    title = "Who was forgotten, and how well" + (f": the federation {names.federation}" if names.federation else "")
    return template.render(
        opening=_join(render_opening(title)),
        title=title,
        names=describe_names(Names(**asdict(names))),
        version=__version__,
        now=f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        private=private,
        run=history.identifier,
        head=history.head.hex(),
        overview=view,
        served=served,
        common=_render_lists(served[0].common) if served else "",
        waiting=waiting,
        notes=notes,
        withdrawn=_withdrawals(history),
        times=[*(_times(history, request, notes) for request in served), *(_open_times(one, now) for one in waiting)],
        chances=Markup(render_figure(draw_chances(chances, served[0].summary.rate))) if served else "",  # noqa: S704
        compared=list(_compare(served, measured, _PARTS if private else _TEST, 1 if private else 0)),
        facts=history.run.facts,
        loss=LOSSES[type(history.run.facts.training.loss).__name__],
        modes=MODES,
        levels=LEVELS,
        parameters=history.run.parameters,
        tree=tree(drawn, history.newest) if private else sketch(drawn, history.newest),
        curves=_curves(history, view) if private else None,
        powers=powers(claims) if claims else None,
        noises=noises(promises) if promises else None,
        accuracies=accuracies(measured, drawn, _PARTS) if private else _released(measured, history.newest),
        deletions=history.timeline.deletions,
        problems=history.verify(),
        made_of=describe_noise,
    )


def _fit(value: object) -> object:
    """Return what a page may show of a value; pictures and the page's own parts are fit already."""
    return Markup(escape(value)) if isinstance(value, str) and not isinstance(value, Markup) else value  # noqa: S704


def _join(parts: Iterable[str]) -> Markup:
    """Return parts of a page, which are escaped already, as one."""
    return Markup("\n".join(parts))  # noqa: S704


def _released(measured: Mapping[ModelId, Scores], newest: ModelId) -> Picture | None:
    """Draw what an officer may see: held-out data, and no model from before the last restart."""
    since = {model_id: scores for model_id, scores in measured.items() if model_id.branch == newest.branch}
    return accuracies(since, {newest.branch: Line(Branch(newest.branch, ""), newest.round, (), ())}, _TEST)


def _served(history: History, certificates: Sequence[VerifiedCertificate]) -> list[Served]:
    verified = {certificate.statement.predicate.request: certificate for certificate in certificates}
    claims = [
        (asked, outcome, gather_claims(history, asked.number, history.head)[0])
        for outcome in history.outcomes()
        for asked in outcome.asked
    ]
    common = _common([predicate for _, _, predicate in claims])
    return [
        Served(asked, outcome, predicate, verified.get(asked.number), len(claims) > 1, common)
        for asked, outcome, predicate in claims
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


def _render_lists(lists: Mapping[str, Sequence[Any]]) -> Markup:
    return _join(
        part
        for kind, title in _LISTS.items()
        for part in (render_assumptions if kind == "assumptions" else render_list)(title, lists.get(kind, ()))
    )


def _extensions(history: History) -> dict[int, list[str]]:
    """Say of each request how its deadline was moved, and why."""
    notes: dict[int, list[str]] = {}
    for entry, event in history.timeline.of(DeadlineExtended):
        told = f"On {day_of(entry.time)} its deadline was moved to {day_of(event.deadline)}: {event.reason}."
        notes.setdefault(event.request, []).append(told)
    return notes


def _withdrawals(history: History) -> list[str]:
    """Say which requests were taken back, and why."""
    taken = {
        event.request: (day_of(entry.time), event.reason) for entry, event in history.timeline.of(RequestWithdrawn)
    }
    filed = [asked for asked in history.timeline.requests if asked.withdrawn]
    names = history.describe_groups([asked.request.group for asked in filed])
    told = []
    for asked, clients in zip(filed, names, strict=True):
        day, reason = taken[asked.number]
        why = f": {reason}" if reason else ", and no reason was given"
        who = f"{', '.join(clients)}; asked on {day_of(asked.time)}"
        told.append(f"Request {asked.number} ({who}) was withdrawn on {day}{why}.")
    return told


def _times(history: History, request: Served, notes: Mapping[int, Sequence[str]]) -> Markup:
    """Draw when a request was asked, served, certified and due."""
    asked, predicate = request.asked, request.predicate
    days = {
        "asked": day_of(predicate.asked),
        "served": day_of(predicate.erasure.completed),
        "due": day_of(predicate.deadline),
    }
    certified = ""
    if request.certificate is not None:
        signed = bytes.fromhex(request.certificate.statement.subject[1].digest.sha256)
        days["certified"] = max(days["served"], history.entry_times(signed)[-1][0].date())
        certified = " Certified is the history as it was on that day."
    if days["due"] != day_of(asked.first_deadline):
        days["first due"] = day_of(asked.first_deadline)
    moved = "".join(f" {note}" for note in notes.get(asked.number, ()))
    return Markup(render_figure(draw_days(days), f"{request.name.capitalize()}, in days.{certified}{moved}"))  # noqa: S704


def _open_times(request: OpenRequest, now: datetime) -> Markup:
    asked = request.asked
    days = {"asked": day_of(asked.time), "today": now.astimezone(UTC).date(), "due": day_of(asked.deadline)}
    return Markup(render_figure(draw_days(days), f"Request {asked.number}, which is not served yet, in days."))  # noqa: S704


def _compare(
    served: Sequence[Served], measured: Mapping[ModelId, Scores], parts: Mapping[str, str], digits: int
) -> Iterator[tuple[str, ...]]:
    """Say how good the model was before and after each request; an officer sees whole percents of held-out data."""
    for request in served:
        branch = request.outcome.branch
        if branch is None or not measured:
            continue
        before = max((model_id for model_id in measured if model_id.branch < branch.number), default=None)
        own = (model_id for model_id in measured if model_id.branch == branch.number)
        after = max((model_id for model_id in own if model_id.round <= request.outcome.rounds), default=None)
        for part, label in parts.items():
            shares = [None if model_id is None else getattr(measured[model_id], part) for model_id in (before, after)]
            if any(share is not None for share in shares):
                told = ("not measured" if share is None else f"{share:.{digits}%}" for share in shares)
                yield str(request.asked.number), label, *told


def gather_lines(history: History) -> dict[int, Line]:
    """Return the branches as ``tree`` draws them."""
    timeline = history.timeline
    erased: dict[int, set[int]] = {}
    for span in (span for deletion in timeline.deletions for span in deletion.plan.spans):
        erased.setdefault(span.branch, set()).update(range(span.first, span.last + 1))
    kept = history.kept()
    return {
        number: Line(
            branch,
            history.newest_of(number).round,
            tuple(sorted(model_id.round for model_id in kept if model_id.branch == number)),
            tuple(_stretches(erased.get(number, ()))),
        )
        for number, branch in timeline.branches.items()
    }


def _stretches(rounds: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return the first and the last of each run of consecutive rounds."""
    ordered = sorted(rounds)
    for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]):
        members = [round_ for _, round_ in run]
        yield members[0], members[-1]


def _curves(history: History, view: Overview) -> Picture | None:
    """Draw the curves of who waits to be forgotten, and of the most influential clients, along the newest line."""
    waits = [client for asked in view.open_requests for client in sorted(asked.request.group)]
    # Sorted, as their names are.
    drawn = sorted(list(dict.fromkeys([*waits, *(influence.pseudonym for influence in view.influences)]))[:_CURVES])
    path = history.lineage(group=drawn)
    values = client_sensitivities(path.edges, drawn, range(len(path.edges) + 1))
    names = history.describe_groups([drawn])[0]
    labels = [
        make_plain(f"{name} ({client})" if names.count(name) > 1 else name)
        for name, client in zip(names, drawn, strict=True)
    ]
    curves = {label: values[:, at] for at, label in enumerate(labels) if np.isfinite(values[:, at]).all()}
    # Of erased rounds only the end is known.
    known = max((at for at, edge in enumerate(path.edges, start=1) if isinstance(edge, ErasedStretch)), default=0)
    curves = {label: np.where(np.arange(len(curve)) < known, np.nan, curve) for label, curve in curves.items()}
    if not curves:
        return None
    goal = history.run.goal
    thresholds = {"hidden by the goal's noise": goal.threshold} if goal else {}
    restarts = {
        f"request {', '.join(map(str, branch.requests))} restarted": path.trained[path.index[ModelId(number, 0)]]
        for number, branch in history.timeline.branches.items()
        if branch.requests and ModelId(number, 0) in path.index
    }
    asked = {filed.number: filed for filed in view.open_requests}
    for number, plan in history.timeline.plans.items():
        chosen = ModelId(plan.candidate.node.branch, plan.candidate.node.round)
        if number in asked and not history.is_stale(plan):
            restarts[f"request {number} would go back to"] = path.trained[path.index[chosen]]
            hidden = sensitivity_threshold(plan.candidate.sigma, asked[number].request.budget)
            thresholds |= {f"hidden by the noise planned for request {number}": hidden} if hidden > 0 else {}
    return sensitivities(curves, path.trained, thresholds, restarts)
