"""A verified certificate as one HTML page, for people: no script, no network, light and dark, fit to print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape as escaped

from rescind.certificates.verification import VerifiedCertificate, describe_evidence, describe_noise
from rescind.certificates.wording import format_at_most, format_exactly, format_share
from rescind.checkpoints.storage import is_digest
from rescind.texts import make_plain

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


def render_page(found: VerifiedCertificate, made: str) -> str:
    """Return the page; everything that a document says is escaped. ``made`` says when and by what it was checked."""
    said = found.statement.predicate
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(said.title)}</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{STYLE}</style></head><body><main>",
            f"<h1>{escape(said.title)}</h1>",
            f'<p class="claim">{escape(said.claim)}</p>',
            f"<p>{escape(made)} This page proves nothing by itself: whoever doubts it verifies the certificate.</p>",
            *_table("Request", _request(found)),
            *_table("Guarantee", _guarantee(found)),
            *_list("Taken as constants", said.constants),
            *_list("Public, and not hidden", said.public),
            *_list("Checked", found.holds),
            *_list("Since then", found.since),
            *_list("Not checked here", found.unchecked),
            *_table("Rests on", [(each.what, each.basis) for each in said.assumptions]),
            *_list("Measured, which proves nothing", tuple(map(describe_evidence, said.evidence))),
            *_list("Not claimed", said.not_claimed),
            *_list("Why it is no certificate", said.reasons),
            *_list("What is still there of the forgotten", said.erasure.stays + said.erasure.unreachable),
            "</main></body></html>",
            "",
        ]
    )


def escape(text: str) -> str:
    """Return a text from outside as HTML."""
    return escaped(make_plain(text))


def _request(found: VerifiedCertificate) -> Iterator[tuple[str, str]]:
    said = found.statement.predicate
    yield "number", f"{said.request} of history {said.run}"
    yield "asked", _time(said.asked)
    yield "due", _time(said.deadline)
    yield "completed", _time(said.erasure.completed)
    yield "erasure", said.erasure.level
    if said.mode != "heuristic":
        yield "compared with", said.counterfactual
    for subject in found.statement.subject:
        yield f"{subject.name}, SHA-256", subject.digest.sha256
    for each in said.forgotten:
        yield "forgotten (salted digest)", each


def _guarantee(found: VerifiedCertificate) -> Iterator[tuple[str, str]]:
    said = found.statement.predicate
    yield "mode", said.mode
    if said.guarantee is not None:
        yield "epsilon, delta", f"{format_exactly(said.guarantee.epsilon)}, {format_exactly(said.guarantee.delta)}"
        yield "released models covered", str(said.guarantee.releases)
        for at in said.guarantee.epsilons:
            yield f"epsilon at delta {at.delta:g}", format_at_most(at.epsilon)
        for power in said.guarantee.powers:
            yield (
                f"most that an attack finds at {power.false_positive_rate:.1%} false alarms",
                format_share(power.true_positive_rate),
            )
    if said.noise is not None:
        yield "noise on every parameter", f"{said.noise.sigma:g}, from {said.noise.source}"
    if said.rounds is not None:
        yield "noise in every round", describe_noise(said.rounds).partition(": ")[2]
    examples = "all examples" if said.facts.batch is None else f"{said.facts.batch} examples each"
    training = said.training
    yield "training", f"{training.loss}, {training.steps} steps of {training.learning_rate:g} on {examples}"
    if said.solving is not None:
        yield "after the restart", f"the head was solved, to a gradient of norm {said.solving.tolerance:g} at most"
    yield "parameters", str(said.facts.parameters)
    yield "weights of participants", "all the same" if said.facts.equal_weights else "their numbers of examples"
    if said.training.expansion is not None:
        yield "B, and its power over a round", f"{said.training.expansion:.6g}, {said.training.factor:.6g}"
    yield "sampling", said.sampling


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
