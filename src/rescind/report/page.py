"""The report's content, gathered from a history, and the page that is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from itertools import groupby

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from rescind import __version__
from rescind.certificates.drawings import Picture, draw_chances
from rescind.certificates.fragments import LOSSES, MODES, escape, render_figure, render_opening
from rescind.certificates.issue import attack_power_of
from rescind.certificates.predicate import Names
from rescind.certificates.summary import LEVELS
from rescind.certificates.verification import VerifiedCertificate, describe_noise
from rescind.certificates.wording import describe_names
from rescind.core.calibration import sensitivity_threshold
from rescind.core.edges import ErasedStretch
from rescind.core.sensitivity import client_sensitivities
from rescind.history.history import History
from rescind.history.outcomes import Scores
from rescind.history.overview import Overview, open_requests, overview
from rescind.ledger.records import Branch, ModelId
from rescind.report.pictures import (
    Line,
    Promise,
    accuracies,
    name_requests,
    noises,
    powers,
    sensitivities,
    sketch,
    tree,
)
from rescind.report.requests import (
    compare_accuracies,
    describe_dropped,
    describe_steps,
    draw_open_times,
    draw_times,
    find_served,
    join,
    render_lists,
)
from rescind.texts import make_plain

# So many names fit below a picture, or beside its lines; of more requests the newest are drawn.
_CURVES = 5
_MOST_DRAWN = 10
# What is measured on clients' data is the operator's alone.
_TEST = {"test": "on held-out data"}
_PARTS = {"retain": "of the remaining", "forget": "of the forgotten", **_TEST}


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
    view, served, drawn = overview(history), find_served(history, certificates), gather_lines(history)
    waiting, notes, names = open_requests(history, view, now), describe_steps(history), history.timeline.names
    promised = [request for request in served if request.predicate.guarantee][-_CURVES:]
    claims = {request.name: partial(attack_power_of, request.predicate) for request in promised}
    promises = {
        request.name: Promise(request.predicate.noise.sigma, guarantee.mu, guarantee.epsilon, guarantee.delta)
        for request in promised
        if (guarantee := request.predicate.guarantee) and request.predicate.noise
    }
    chances = {request.name: request.summary.chance for request in served[-_MOST_DRAWN:]}
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_fit
    )
    template = environment.from_string((files("rescind.report") / "report.html").read_text("utf-8"))
    title = "Who was forgotten, and how well" + (f": the federation {names.federation}" if names.federation else "")
    return template.render(
        opening=join(render_opening(title)),
        title=title,
        names=describe_names(Names(**asdict(names))),
        version=__version__,
        now=f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        private=private,
        run=history.identifier,
        head=history.head.hex(),
        overview=view,
        served=served,
        common=render_lists(served[0].common) if served else "",
        waiting=waiting,
        notes=notes,
        withdrawn=describe_dropped(history),
        times=[
            *(draw_times(history, request, notes) for request in served),
            *(draw_open_times(one, now) for one in waiting),
        ],
        chances=Markup(render_figure(draw_chances(chances, served[0].summary.rate))) if served else "",  # noqa: S704
        compared=list(compare_accuracies(served, measured, _PARTS if private else _TEST, 1 if private else 0)),
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


def _released(measured: Mapping[ModelId, Scores], newest: ModelId) -> Picture | None:
    """Draw what an officer may see: held-out data, and no model from before the last restart."""
    since = {model_id: scores for model_id, scores in measured.items() if model_id.branch == newest.branch}
    return accuracies(since, {newest.branch: Line(Branch(newest.branch, ""), newest.round, (), ())}, _TEST)


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
        f"{name_requests(branch.requests)} restarted": path.trained[path.index[ModelId(number, 0)]]
        for number, branch in history.timeline.branches.items()
        if branch.requests and ModelId(number, 0) in path.index
    }
    restarts = dict(list(restarts.items())[-_MOST_DRAWN:])
    asked = {filed.number: filed for filed in view.open_requests[-_CURVES:]}
    for number, plan in history.timeline.plans.items():
        chosen = ModelId(plan.candidate.node.branch, plan.candidate.node.round)
        if number in asked and not history.is_stale(plan):
            restarts[f"request {number} would go back to"] = path.trained[path.index[chosen]]
            hidden = sensitivity_threshold(plan.candidate.sigma, asked[number].request.budget)
            thresholds |= {f"hidden by the noise planned for request {number}": hidden} if hidden > 0 else {}
    return sensitivities(curves, path.trained, thresholds, restarts)
