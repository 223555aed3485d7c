"""A verified certificate as one HTML page, for people: no script, no network, light and dark, fit to print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape as escaped

from rescind.certificates.verification import VerifiedCertificate, describe_evidence, describe_noise
from rescind.certificates.wording import format_at_most, format_exactly, format_share
from rescind.texts import is_digest, make_plain

STYLE = """
:root { color-scheme: light dark; --line: #767676; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 1.8rem; }
h3 { font-size: 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; }
tr + tr { border-top: 1px solid var(--line); } th { font-weight: 600; } th[scope="row"] { width: 40%; }
.claim { border: 2px solid currentColor; padding: .8rem 1rem; font-size: 1.1rem; }
code { overflow-wrap: anywhere; } figure { margin: 1rem 0; } svg { width: 100%; height: auto; }
.wrong { border-left: 4px solid #b3261e; padding-left: .8rem; } @media print { body { margin: 0; max-width: none; } }
"""


def render_page(verified: VerifiedCertificate, made: str) -> str:
    """Return the page; everything that a document says is escaped. ``made`` says when and by what it was checked."""
    predicate = verified.statement.predicate
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(predicate.title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body><main>",
            f"<h1>{escape(predicate.title)}</h1>",
            f'<p class="claim">{escape(predicate.claim)}</p>',
            f"<p>{escape(made)} This page proves nothing by itself: whoever doubts it verifies the certificate.</p>",
            *_table("Request", _request(verified)),
            *_table("Guarantee", _guarantee(verified)),
            *_list("Taken as constants", predicate.constants),
            *_list("Public, and not hidden", predicate.public),
            *_list("Checked", verified.holds),
            *_list("Since then", verified.since),
            *_list("Not checked here", verified.unchecked),
            *_table("Rests on", [(assumption.what, assumption.basis) for assumption in predicate.assumptions]),
            *_list("Measured, which proves nothing", tuple(map(describe_evidence, predicate.evidence))),
            *_list("Not claimed", predicate.not_claimed),
            *_list("Why it is no certificate", predicate.reasons),
            *_list("What is still there of the forgotten", predicate.erasure.stays + predicate.erasure.unreachable),
            "</main></body></html>",
            "",
        ]
    )


def escape(text: str) -> str:
    """Return a text from outside as HTML."""
    return escaped(make_plain(text))


def _request(verified: VerifiedCertificate) -> Iterator[tuple[str, str]]:
    predicate = verified.statement.predicate
    yield "number", f"{predicate.request} of history {predicate.run}"
    yield "asked", _time(predicate.asked)
    yield "due", _time(predicate.deadline)
    yield "completed", _time(predicate.erasure.completed)
    yield "erasure", predicate.erasure.level
    if predicate.mode != "heuristic":
        yield "compared with", predicate.counterfactual
    for subject in verified.statement.subject:
        yield f"{subject.name}, SHA-256", subject.digest.sha256
    for digest in predicate.forgotten:
        yield "forgotten (salted digest)", digest
    for named in predicate.rows:
        yield "its rows (salted commitment)", named.root


def _guarantee(verified: VerifiedCertificate) -> Iterator[tuple[str, str]]:
    predicate = verified.statement.predicate
    yield "mode", predicate.mode
    if (stated := predicate.guarantee) is not None:
        yield "epsilon, delta", f"{format_exactly(stated.epsilon)}, {format_exactly(stated.delta)}"
        yield "released models covered", str(stated.releases)
        for at in stated.epsilons:
            yield f"epsilon at delta {at.delta:g}", format_at_most(at.epsilon)
        for power in stated.powers:
            yield (
                f"most that an attack finds at {power.false_positive_rate:.1%} false alarms",
                format_share(power.true_positive_rate),
            )
    if predicate.noise is not None:
        yield "noise on every parameter", f"{predicate.noise.sigma:g}, from {predicate.noise.source}"
    if predicate.rounds is not None:
        yield "noise in every round", describe_noise(predicate.rounds).partition(": ")[2]
    examples = "all examples" if predicate.facts.batch is None else f"{predicate.facts.batch} examples each"
    training = predicate.training
    steps = f"{training.steps} steps of {training.learning_rate:g} on {examples}"
    yield "training", f"{training.loss}, {steps if training.steps else 'by code of their own'}"
    if predicate.solving is not None:
        settings = predicate.solving
        yield (
            "after the restart",
            f"the head was solved, until its gradient's norm was at most {settings.tolerance:g} or after "
            f"{settings.most_rounds} rounds",
        )
    yield "parameters", str(predicate.facts.parameters)
    yield "weights of participants", "all the same" if predicate.facts.equal_weights else "their numbers of examples"
    if predicate.training.expansion is not None:
        yield "B, and its power over a round", f"{predicate.training.expansion:.6g}, {predicate.training.factor:.6g}"
    yield "sampling", predicate.sampling


def _time(text: str) -> str:
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _table(title: str, rows: Iterator[tuple[str, str]] | Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"<h2>{escape(title)}</h2><table>"
    for name, value in rows:
        shown = f"<code>{escape(value)}</code>" if is_digest(value) else escape(value)
        yield f'<tr><th scope="row">{escape(name)}</th><td>{shown}</td></tr>'
    yield "</table>"


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"<h2>{escape(title)}</h2><ul>"
        yield from (f"<li>{escape(line)}</li>" for line in lines)
        yield "</ul>"
