"""A verified certificate as one HTML page, for people: the verdict first, folded below what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rescind.certificates.verification import VerifiedCertificate, describe_evidence, describe_noise
from rescind.certificates.wording import describe_approver, format_at_most, format_exactly, format_share
from rescind.pages.fragments import (
    LOSSES,
    MODES,
    draw_chances,
    draw_days,
    escape,
    fold,
    render_answers,
    render_assumptions,
    render_banner,
    render_figure,
    render_list,
    render_page,
    render_table,
    render_warning,
)
from rescind.pages.summary import LEVELS, list_days, summarise


def render_certificate(verified: VerifiedCertificate, made: str) -> str:
    """Return the page; everything that a document says is escaped. ``made`` says when and by what it was checked."""
    predicate = verified.statement.predicate
    summary = summarise(predicate, verified.holds[0])
    return render_page(
        predicate.title,
        [
            *render_banner(summary, ("signed", "and unchanged since; by whose key is said below")),
            *render_warning("Since then", verified.since),
            *render_answers(summary, verified.unchecked),
            f"<p>{escape(made)} This page proves nothing by itself: whoever doubts it verifies the certificate.</p>",
            "<h2>When</h2>",
            render_figure(
                draw_days(list_days(predicate)),
                f"Request {predicate.request}, in days. A certificate does not say when it was signed: after it was "
                "served.",
            ),
            "<h2>What an attack could reach</h2>",
            render_figure(draw_chances({"with this model": summary.chance}, summary.rate)),
            "<h2>In full</h2>",
            *render_list("Why it is no certificate", predicate.reasons),
            *render_assumptions("Rests on", predicate.assumptions),
            *render_list("Still there of the forgotten", predicate.erasure.stays + predicate.erasure.unreachable),
            *render_list("Not claimed", predicate.not_claimed),
            *render_list("Taken as constants", predicate.constants),
            *render_list("Public, and not hidden", predicate.public),
            *render_list("Checked", verified.holds),
            *render_list("Measured, which proves nothing", tuple(map(describe_evidence, predicate.evidence))),
            *fold("The request", render_table(_request(verified))),
            *fold("The guarantee and the training", render_table(_guarantee(verified))),
        ],
    )


def _request(verified: VerifiedCertificate) -> Iterator[tuple[str, str]]:
    predicate = verified.statement.predicate
    yield from ((role, name) for role, name in predicate.names if name is not None)
    yield "number", f"{predicate.request} of history {predicate.run}"
    yield "asked", _time(predicate.asked)
    yield "asked by", predicate.asked_by
    if predicate.approved is not None:
        yield "plan approved", f"{_time(predicate.approved.time)}, {describe_approver(predicate.approved)}"
    yield "due", _time(predicate.deadline)
    if predicate.first_deadline != predicate.deadline:
        yield "due at first", _time(predicate.first_deadline)
    yield "completed", _time(predicate.erasure.completed)
    yield "erasure", f"{predicate.erasure.level}: {LEVELS[predicate.erasure.level]}"
    if predicate.mode != "heuristic":
        yield "compared with", predicate.counterfactual
    for subject in verified.statement.subject:
        yield f"{subject.name}, SHA-256 (its fingerprint)", subject.digest.sha256
    for digest in predicate.forgotten:
        yield "forgotten (salted digest of the name)", digest
    for named in predicate.rows:
        yield "its rows (salted commitment)", named.root


def _guarantee(verified: VerifiedCertificate) -> Iterator[tuple[str, str]]:
    predicate = verified.statement.predicate
    yield "mode", f"{predicate.mode}: {MODES[predicate.mode]}"
    if (stated := predicate.guarantee) is not None:
        yield "epsilon, delta", f"{format_exactly(stated.epsilon)}, {format_exactly(stated.delta)}"
        yield "released models covered", str(stated.releases)
        for at in stated.epsilons:
            yield f"epsilon at delta {at.delta:g}", format_at_most(at.epsilon)
        for power in stated.powers:
            yield (
                f"most that an attack finds if {power.false_positive_rate:.1%} of outsiders are wrongly accused",
                format_share(power.true_positive_rate),
            )
    if predicate.noise is not None:
        yield "noise on every parameter", f"{predicate.noise.sigma:g}, from {predicate.noise.source}"
    if predicate.rounds is not None:
        yield "noise in every round", describe_noise(predicate.rounds).partition(": ")[2]
    examples = "all examples" if predicate.facts.batch is None else f"{predicate.facts.batch} examples each"
    training = predicate.training
    steps = f"{training.steps} steps of {training.learning_rate:g} on {examples}" if training.steps else ""
    otherwise = "solved from sums over everybody's rows" if training.loss == "SquaredL2" else "by code of their own"
    yield "training", f"{LOSSES[training.loss]}, {steps or otherwise}"
    if (published := predicate.facts.body) is not None:
        yield "body that makes the features", f"{published.name}, SHA-256 {published.digest}"
    if predicate.solving is not None:
        settings = predicate.solving
        yield (
            "after the restart",
            f"the head was solved, until its gradient's norm was at most {settings.tolerance:g}"
            if settings.solved
            else f"the head was solved for {settings.most_rounds} rounds, which did not reach a gradient's norm of "
            f"{settings.tolerance:g}",
        )
    if (body := predicate.body) and (stages := predicate.facts.stages):
        yield (
            "body of the network",
            f"whole since model {body.model}, after {stages.body_rounds} rounds with {body.anchors} anchors, and it "
            "knows nobody else; the head is solved with everybody",
        )
    yield "parameters (numbers in the model)", str(predicate.facts.parameters)
    yield "weights of participants", "all the same" if predicate.facts.equal_weights else "their numbers of examples"
    if predicate.training.expansion is not None:
        yield (
            "B, by which a step can stretch a difference, and its power over a round",
            f"{predicate.training.expansion:.6g}, {predicate.training.factor:.6g}",
        )
    yield "sampling (how participants are chosen)", predicate.sampling


def _time(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
