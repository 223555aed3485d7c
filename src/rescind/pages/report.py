"""One page about a run, gathered from its history: for the officer without private numbers, for the operator with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import groupby

import numpy as np

from rescind import __version__
from rescind.certificates.issue import attack_power_of
from rescind.certificates.verification import VerifiedCertificate, describe_noise
from rescind.certificates.wording import describe_names
from rescind.core.calibration import sensitivity_threshold
from rescind.core.edges import NO_BOUND, ErasedStretch, ModelId
from rescind.core.sensitivity import client_sensitivities
from rescind.history.history import History
from rescind.history.outcomes import Scores
from rescind.history.timeline import Deletion
from rescind.ledger.records import Branch
from rescind.pages.fragments import (
    LOSSES,
    MODES,
    Picture,
    draw_chances,
    escape,
    fold,
    render_columns,
    render_figure,
    render_items,
    render_page,
    render_table,
    render_warning,
)
from rescind.pages.pictures import (
    Line,
    accuracies,
    name_requests,
    noises,
    powers,
    sensitivities,
    sketch,
    tree,
)
from rescind.pages.requests import (
    Served,
    compare_accuracies,
    describe_dropped,
    describe_steps,
    draw_open_times,
    draw_times,
    find_served,
    render_lists,
)
from rescind.pages.summary import LEVELS, count
from rescind.texts import list_some, make_plain
from rescind.views.overview import Overview, format_distance, overview
from rescind.views.requests import KnownRequest, open_requests

# So many names fit below a picture, or beside its lines; of more requests the newest are drawn.
_CURVES = 5
_MOST_DRAWN = 10
# What is measured on clients' data is the operator's alone.
_TEST = {"test": "on held-out data"}
_PARTS = {"retain": "of the remaining", "forget": "of the forgotten", **_TEST}
_WRONG = ' class="wrong"'


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
    view, served, notes = overview(history), find_served(history, certificates), describe_steps(history)
    waiting, names = open_requests(history, now), history.timeline.names
    times = [
        *(draw_times(history, request, notes) for request in served),
        *(draw_open_times(one, now) for one in waiting),
    ]
    chances = {request.name: request.summary.chance for request in served[-_MOST_DRAWN:]}
    return render_page(
        "Who was forgotten, and how well" + (f": the federation {names.federation}" if names.federation else ""),
        [
            *_opening(history, now, private),
            "<h2>In short</h2>",
            *render_warning(
                "The history contradicts itself. Nothing below can be relied on:", history.integrity.verify(), level=3
            ),
            *(part for request in served for part in _in_short(request)),
            *(["<h3>Open, withdrawn and refused requests, and the model today</h3>"] if served else []),
            *_today(history, view, served, waiting, notes, private),
            *(["<h2>When</h2>", *times] if times else []),
            *(
                ["<h2>What an attack could reach</h2>", render_figure(draw_chances(chances, served[0].summary.rate))]
                if served
                else []
            ),
            *_compared(served, measured, private),
            *(part for request in served for part in _in_full(request, private)),
            *_in_common(served),
            *(_influences(history, view) if private else []),
            *_for_specialists(history, view, served, measured, private),
        ],
    )


def _opening(history: History, now: datetime, private: bool) -> Iterator[str]:
    names = describe_names(asdict(history.timeline.names))
    called = f"{names[0].upper()}{names[1:]}. " if names else ""
    made = f"Run {history.identifier}, {now.astimezone(UTC):%Y-%m-%d %H:%M} UTC, rescind {__version__}."
    reader = (
        "<strong>For the operator: it holds numbers that were computed from clients' data. Do not pass it on."
        "</strong>"
        if private
        else "For the officer: numbers that were computed from clients' data are left out, but for accuracies on "
        "held-out data."
    )
    yield f"<p>{escape(called + made)}\n{reader}</p>"


def _in_short(request: Served) -> Iterator[str]:
    yield from request.render_banner()
    if request.certificate is not None:
        yield from render_warning("Since it was signed:", request.certificate.since, level=4)
    yield from request.render_answers()


def _today(
    history: History,
    view: Overview,
    served: Sequence[Served],
    waiting: Sequence[KnownRequest],
    notes: Mapping[int, Sequence[str]],
    private: bool,
) -> Iterator[str]:
    """Say what is open, what was dropped, and who is in the model."""
    yield "<ul>"
    if not served:
        yield "<li>Nobody has been forgotten yet.</li>"
    for request in waiting:
        asked, left = request.asked, request.days_left
        state = f"is {'begun' if asked.served else 'open'}, due {asked.deadline[:10]}"
        state += f", and waits for approval since {request.planned[:10]}" if request.planned else ""
        spare = f"<strong>{count(-left, 'day')} late</strong>" if left < 0 else f"{count(left, 'day')} left"
        told = "".join(f" {note}" for note in notes.get(asked.number, ()))
        yield (
            f"<li{_WRONG if left < 7 else ''}>Request {asked.number} ({escape(', '.join(request.clients))}) "
            f"{escape(state)}: {spare}.{escape(told)}</li>"
        )
    yield from (f"<li>{escape(note)}</li>" for note in describe_dropped(history))
    trained = f", which was trained for {count(view.rounds, 'round')}" if private else ""
    yield (
        f"<li>{count(view.clients, 'participant')} who took part {'is' if view.clients == 1 else 'are'} still in the "
        f"model{trained}.</li>"
    )
    if view.outsiders:
        outside = list_some([escape(str(outsider)) for outsider in view.outsiders], _MOST_DRAWN)
        yield f"<li>Left out of it, though they may take part: {outside}.</li>"
    mode = view.claimable.mode.value
    would, noise = ("would ", "prove nothing") if mode == "heuristic" else ("", "could be claimed as <em>{}</em>: {}")
    going_back = (
        f"training again would forget them exactly;\ngoing back with noise {would}{noise.format(mode, MODES[mode])}."
    )
    solving = "solving the head once more would forget them exactly."
    yield f"<li>If somebody left now, {solving if mode == 'exact' else going_back}</li>"
    yield "</ul>"


def _compared(served: Sequence[Served], measured: Mapping[ModelId, Scores], private: bool) -> Iterator[str]:
    """Show how good the model was before and after each request; an officer sees whole percents of held-out data."""
    rows = list(compare_accuracies(served, measured, _PARTS if private else _TEST, 1 if private else 0))
    if rows:
        yield "<h2>How good the model is, before and after</h2>"
        yield from render_columns(("request", "accuracy", "before", "after"), rows)
        whole = "" if private else " In whole percent: the model before knew those who left."
        yield (
            "<p>The share of examples that the model gets right. <em>Before</em> is the last model that was measured "
            "before training went back, <em>after</em> the last one that was measured when the request was served."
            f"{whole}</p>"
        )


def _in_full(request: Served, private: bool) -> Iterator[str]:
    predicate, certificate = request.predicate, request.certificate
    heuristic = predicate.mode == "heuristic"
    titled = predicate.title if certificate or heuristic else "what may be claimed"
    yield f"<h2>Request {request.outcome.asked.number} in full: {escape(titled)}</h2>"
    yield f"<p>{escape(predicate.claim)}</p>"
    yield from render_table(_facts(request, private))
    if predicate.reasons:
        yield "<h3>Why it is no certificate</h3>"
        yield from render_items(predicate.reasons)
    if certificate is None:
        yield "<p>Nothing signed about it was given to this report.</p>"
    else:
        yield f"<h3>{'Its signed report' if heuristic else 'Its certificate'} was verified for this page</h3>"
        yield from render_items(certificate.holds)
        if evidence := certificate.statement.predicate.evidence:
            yield "<h3>Tried to show that it is wrong</h3>"
            rows = ((one.what, one.found, one.bound) for one in evidence)
            yield from render_columns(("what was tried", "found", "the claim allows"), rows)
            yield "<p>That an attempt failed proves nothing. It is the signers' word.</p>"
    yield from request.render_lists()


def _facts(request: Served, private: bool) -> Iterator[tuple[str, str]]:
    predicate, outcome = request.predicate, request.outcome
    yield "mode", f"{predicate.mode}: {MODES[predicate.mode]}"
    if predicate.mode != "heuristic":
        yield "compared with", predicate.counterfactual
    if (stated := predicate.guarantee) is not None:
        released = count(stated.releases, "released model")
        yield "epsilon, delta", f"{stated.epsilon:g}, {stated.delta:g}, for {released}"
    if predicate.noise is not None:
        yield "noise on every number of the model", f"{predicate.noise.sigma:g}"
    if private and (restart := outcome.restart):
        planned = restart.planned
        yield "went back to", f"{restart.branch.parent}; {count(outcome.rounds, 'round')} of retraining"
        about = f"about {planned.candidate.predicted_rounds:.0f} rounds predicted"
        yield "planned by", f"{planned.method.partition(' (')[0]}; {about}"
    gone = (
        f". Gone: {count(outcome.erasure.models, 'model')}, {count(outcome.erasure.updates, 'client object')}, the "
        f"numbers of {count(outcome.erasure.rounds, 'round')}"
    )
    yield "erasure", f"{predicate.erasure.level}: {LEVELS[predicate.erasure.level]}{gone if private else ''}"
    if predicate.rounds is not None:
        yield "hidden by", describe_noise(predicate.rounds)


def _in_common(served: Sequence[Served]) -> Iterator[str]:
    lists = list(render_lists(served[0].common)) if served else []
    if lists:
        yield f"<h2>What all {len(served)} requests have in common</h2>"
        yield from lists


def _influences(history: History, view: Overview) -> Iterator[str]:
    yield "<h2>Who moved the model how far</h2>"
    if (curves := _curves(history, view)) is not None:
        yield render_figure(curves)
    rows = ((influence.client, format_distance(influence.sensitivity)) for influence in view.influences)
    yield from render_columns(("client", "at most"), rows)


def _for_specialists(
    history: History,
    view: Overview,
    served: Sequence[Served],
    measured: Mapping[ModelId, Scores],
    private: bool,
) -> Iterator[str]:
    promised = [request for request in served if request.predicate.guarantee][-_CURVES:]
    claims = {request.name: partial(attack_power_of, request.predicate) for request in promised}
    promises = {
        request.name: (request.predicate.noise, request.predicate.guarantee)
        for request in promised
        if request.predicate.noise and request.predicate.guarantee
    }
    lines, newest = gather_lines(history), history.newest
    yield "<h2>For specialists</h2>"
    if claims:
        title = "What an attack could reach, by how many outsiders it wrongly accuses"
        yield from fold(title, [render_figure(powers(claims))])
    if promises:
        chosen = noises(promises)
        yield from fold("Noise against guarantee", [render_figure(chosen, f"{chosen.text} Dots: what was chosen.")])
    drawn = accuracies(measured, lines, _PARTS) if private else _released(measured, newest)
    if drawn is not None:
        caption = f"{drawn.text} Solid: the newest branch. Dotted: earlier ones."
        yield from fold("Accuracy, round by round", [render_figure(drawn, caption)], unfolded=private)
    came = tree(lines, newest) if private else sketch(lines, newest)
    caption = f"{came.text} A branch is a line of training; where training goes back, another begins."
    if not private:
        caption += " Not to scale: where training went back to was computed from data."
    yield from fold("How the model came about", [render_figure(came, caption)], unfolded=private)
    if history.timeline.deletions:
        heads = ("for request", "level", "completed", *(["what went"] if private else []), "out of reach")
        rows = (_deleted(deletion, private) for deletion in history.timeline.deletions)
        yield from fold("Deletion log", render_columns(heads, rows))
    yield from fold("Configuration", render_table(_configuration(history)))
    if private and view.claimable.raised_by:
        yield from fold("What a stronger claim lacks", render_items(view.claimable.raised_by))


def _deleted(deletion: Deletion, private: bool) -> Iterator[str]:
    plan = deletion.plan
    yield ", ".join(map(str, plan.requests))
    yield f"{plan.level.value}: {LEVELS[plan.level.value]}"
    yield deletion.completed[:16].replace("T", " ") or "not yet: the next run finishes it"
    if private:
        yield (
            f"the numbers of {count(plan.rounds, 'round')}, {count(plan.models, 'model')}, "
            f"{count(plan.updates, 'client object')}, the keys of {count(len(plan.keys), 'client')}"
        )
    yield "; ".join(deletion.left) or "nothing"


def _configuration(history: History) -> Iterator[tuple[str, str]]:
    facts = history.run.facts
    training = facts.training
    loss = LOSSES[type(training.loss).__name__]
    steps = f"{training.steps} steps of {training.learning_rate:g}, " if training.has_steps else ""
    yield "training", f"{loss}; {steps}{training.precision}"
    if facts.body is not None:
        yield "body that makes the features", f"{facts.body.name}, SHA-256 {facts.body.digest}"
    yield "participants", facts.sampling.value
    yield "parameters (numbers in the model)", f"{history.run.parameters:,}"
    yield "head of the history (its fingerprint)", history.head.hex()


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
    values[values >= NO_BOUND] = np.nan
    names = history.participants.describe([drawn])[0]
    labels = [
        make_plain(f"{name} ({client})" if names.count(name) > 1 else name)
        for name, client in zip(names, drawn, strict=True)
    ]
    curves = {label: values[:, at] for at, label in enumerate(labels) if (values[:, at] > 0).any()}
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
        if number in asked and not history.requests.is_stale(plan):
            restarts[f"request {number} would go back to"] = path.trained[path.index[plan.parent]]
            hidden = sensitivity_threshold(plan.candidate.sigma, asked[number].request.budget.mu)
            thresholds |= {f"hidden by the noise planned for request {number}": hidden} if hidden > 0 else {}
    return sensitivities(curves, path.trained, thresholds, restarts)
