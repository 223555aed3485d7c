"""Parts of a page for people: no script, no network, light and dark, fit to print. Whatever comes in is escaped.

Pictures that need no library are among them, as SVG in the page's own colours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape as escaped
from itertools import groupby

from rescind.certificates.predicate import Assumption
from rescind.certificates.wording import format_share
from rescind.pages.summary import Summary, count
from rescind.texts import is_digest, shorten

STYLE = """
:root { color-scheme: light dark; background: Canvas; color: CanvasText; --line: #767676; }
:root { --fine: #2e7d32; --weak: #8f5200; --wrong: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --fine: #6fbf73; --weak: #f0a94a; --wrong: #f2857c; } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 1.8rem; }
h3 { font-size: 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; }
tr + tr { border-top: 1px solid var(--line); } th { font-weight: 600; } th[scope="row"] { width: 40%; }
.banner { border: 1px solid var(--line); border-left: .6rem solid var(--tone); padding: .8rem 1rem; margin: 1rem 0; }
.banner h2, .banner h3 { margin: 0 0 .6rem; font-size: 1.25rem; line-height: 1.3; }
.fine { --tone: var(--fine); } .weak { --tone: var(--weak); } .wrong { --tone: var(--wrong); }
.facts { display: flex; flex-wrap: wrap; gap: .6rem 1.6rem; list-style: none; margin: 0; padding: 0; }
.facts li { flex: 1 1 11rem; } .facts strong { display: block; font-size: 1.15rem; color: var(--tone); }
dt { font-weight: 600; margin-top: .7rem; } dd { margin: .1rem 0 0; }
details { border-top: 1px solid var(--line); padding: .4rem 0; } summary { cursor: pointer; font-weight: 600; }
.word { display: block; font-size: .9rem; } .word::before { content: "\\2192\\00a0"; }
div.wrong { border-left: 4px solid var(--tone); padding-left: .8rem; }
code, li, dd { overflow-wrap: anywhere; } figure { margin: 1rem 0; } svg { width: 100%; height: auto; }
@media (max-width: 32rem) { th, td { font-size: .8rem; padding: .2rem; } }
@media print { body { margin: 0; max-width: none; } ::details-content { content-visibility: visible; } }
"""

MODES = {
    "exact": "the model was made without the data of those who left",
    "strict": "the limit holds whatever anybody's data are",
    "instance": "the limit holds for this federation as it was, with the listed constants taken as given",
    "heuristic": "something was tried, and nothing is proven of it",
}
LOSSES = {
    "SoftmaxL2": "softmax regression with an L2 term",
    "LogisticL2": "logistic regression with an L2 term",
    "SquaredL2": "squared error with an L2 term (ridge)",
    "DeclaredLoss": "a loss whose curvature the operator declared",
    "NetworkLoss": "a loss of which nothing is proven, such as a whole network's",
}
_BASES = {
    "proven": "it is mathematics",
    "assumed": "it is about machines and ciphers, and nobody has proven it",
    "checked by the server": "the operator's own server measured it, nobody independent",
    "executed by our helper": "code of rescind did it on the participants' machines",
    "reported by the client": "it is a participant's word",
    "reported by the participant": "it is that participant's word",
    "declared by the operator": "it is the operator's word: ask how it is ensured",
}
# Words that need explaining where they stand, in the order in which they are looked for.
_TERMS = {
    "client": "a participant",
    "participant": "an organisation, a person or a device that trains on data of its own",
    "pseudonym": "the number by which the history calls a participant",
    "keyed digest": "a fingerprint of a name that only somebody with the secret file can compute",
    "salt": "random bytes without which a fingerprint tells nothing",
    "root": "one fingerprint that stands for many numbers, which cannot be read from it",
    "ledger": "the database of the history",
    "registration": "the entry by which a participant first came into the history",
    "sensitivity": "how far a participant may have moved the model, at most",
    "weight": "how much a participant counts in the mean of a round",
    "restart": "training went back to an earlier model, the restart point, and on without those who left",
    "released": "handed out by the operator",
    "noise": "random numbers that are added to a model and hide traces in it",
    "round": "one turn of training: the model goes out, the participants train, their replies are averaged",
    "curvature": "how strongly a training step can stretch a difference; B is that factor",
    "exp and log": "two functions that every computer has; a unit in the last place is the smallest step of a number",
    "ChaCha20": "a cipher that makes random numbers",
    "tensors": "the tables of numbers that a model consists of",
    "masks": "random numbers that hide each reply from the server and cancel in the sum",
    "SHA-256": "a fingerprint of a file",
    "L2 term": "a part of the training that keeps numbers small",
    "gradient": "the direction in which training moves a model",
    "epsilon": "how far two chances may be apart; 0 would be no difference at all",
    "evaluation": "measuring how good a model is",
    "plan": "the record of how a request was to be served",
}
_LONGEST = 2000
# Of the pictures that need no library.
WIDTH, MARGIN = 660, 60
BLUE, GREY, RED = "#3d7dca", "#8c8c8c", "#c9453b"


def escape(text: str) -> str:
    """Return a text from outside as HTML, in one line and of bounded length."""
    return escaped(shorten(text, _LONGEST))


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG element and the text that stands for it."""

    svg: str
    text: str


def frame_picture(attributes: str, content: str, text: str) -> Picture:
    """Return SVG as a picture with a text for who cannot see it."""
    return Picture(f'<svg {attributes} role="img" aria-label="{escape(text)}">{content}</svg>', text)


def render_page(title: str, content: Iterable[str], head: str = "", before: str = "") -> str:
    """Return a whole page under its title; ``head`` is HTML for its head, ``before`` stands above the title."""
    opening = (
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{STYLE}</style>{head}</head><body>{before}<main>",
        f"<h1>{escape(title)}</h1>",
    )
    return "\n".join((*opening, *content, "</main></body></html>", ""))


def render_banner(summary: Summary, sealed: tuple[str, str], about: str = "", level: int = 2) -> Iterator[str]:
    """Show the verdict and its three facts; ``sealed`` says in a word and in a sentence what was signed."""
    heading = f"{about}: {summary.verdict[0].lower()}{summary.verdict[1:]}" if about else summary.verdict
    guessing = f"chance that an attack recognises a forgotten participant; guessing: {100 * summary.rate:g}%"
    facts = (
        (summary.limit, "on what an attack could recognise" if summary.chance is None else guessing),
        ("in time" if summary.in_time else "too late", summary.served),
        sealed,
    )
    yield f'<section class="banner {summary.grade}"><h{level}>{escape(heading)}</h{level}><ul class="facts">'
    yield from (f"<li><strong>{escape(word)}</strong> {escape(sentence)}</li>" for word, sentence in facts)
    yield "</ul></section>"


def render_warning(title: str, lines: Sequence[str], level: int = 2) -> Iterator[str]:
    """Warn of something, where there is anything to warn of."""
    if lines:
        yield f'<div class="wrong"><h{level}>{escape(title)}</h{level}>'
        yield from render_items(lines)
        yield "</div>"


def render_answers(summary: Summary, unchecked: Sequence[str]) -> Iterator[str]:
    """Answer an officer's questions, each in a sentence or two."""
    yield "<dl>"
    for question, answer in summary.answers:
        yield f"<dt>{escape(question)}</dt><dd>{escape(answer)}</dd>"
    word = "This is the word of whoever signed or wrote it; each line says what it takes to check it:"
    checked = "Nothing is left that this page says of the request and that can be checked."
    for question, lead, lines in (
        ("What was not checked?", word if unchecked else checked, unchecked),
        ("What do I do now?", "", summary.steps),
    ):
        yield f"<dt>{question}</dt><dd>{lead}"
        yield from render_items(lines) if lines else ()
        yield "</dd>"
    yield "</dl>"


def render_figure(picture: Picture, caption: str = "") -> str:
    """Show a picture; without a caption its own text stands under it."""
    return f"<figure>{picture.svg}<figcaption>{escape(caption or picture.text)}</figcaption></figure>"


def render_table(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Show names and values."""
    yield "<table>"
    for name, value in rows:
        shown = f"<code>{escape(value)}</code>" if is_digest(value) else escape(value)
        yield f'<tr><th scope="row">{escape(name)}</th><td>{shown}</td></tr>'
    yield "</table>"


def render_columns(heads: Sequence[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Show rows under the names of their columns."""
    names = "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
    yield f"<table><tr>{names}</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
    yield "</table>"


def fold(title: str, content: Iterable[str], *, unfolded: bool = False) -> Iterator[str]:
    """Fold something away under its title."""
    yield f"<details{' open' if unfolded else ''}><summary>{escape(title)}</summary>"
    yield from content
    yield "</details>"


def render_list(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Fold a list away; each word that needs it is explained where it first stands."""
    if lines:
        yield from fold(f"{title} ({len(lines)})", render_items(lines, set()))


def render_assumptions(title: str, assumptions: Sequence[Assumption]) -> Iterator[str]:
    """Fold away what a claim rests on, by whose word it is known."""
    if assumptions:
        yield from fold(f"{title} ({len(assumptions)})", _by_basis(assumptions))


def _by_basis(assumptions: Sequence[Assumption]) -> Iterator[str]:
    order, known = list(_BASES), set[str]()
    ordered = sorted(assumptions, key=lambda assumption: order.index(assumption.basis))
    for basis, group in groupby(ordered, key=lambda assumption: assumption.basis):
        yield f"<h3>{escape(basis.capitalize())}: {escape(_BASES[basis])}</h3>"
        yield from render_items([assumption.what for assumption in group], known)


def render_items(lines: Iterable[str], known: set[str] | None = None) -> Iterator[str]:
    """Show a list; words that need it and are not in ``known`` are explained and join it, none without ``known``."""
    known = set(_TERMS) if known is None else known
    yield "<ul>"
    for line in lines:
        new = [term for term in _TERMS if term not in known and re.search(rf"\b{term}s?\b", line)]
        known.update(new)
        words = "".join(f'<span class="word">{escape(f"{term}: {_TERMS[term]}")}</span>' for term in new)
        yield f"<li>{escape(line)}{words}</li>"
    yield "</ul>"


def draw_days(days: Mapping[str, date], due: str = "due") -> Picture:
    """Draw days in their order, one after the other and not to scale; what comes after the day ``due`` is red."""
    ordered = sorted(days.items(), key=lambda named: (named[1], named[0] == due))
    step = (WIDTH - 2 * MARGIN) / max(len(ordered) - 1, 1)
    parts = [f'<path d="M{MARGIN} 40H{MARGIN + step * (len(ordered) - 1):g}" stroke="{GREY}" stroke-width="2"/>']
    for at, (name, day) in enumerate(ordered):
        x = MARGIN + at * step
        late = due in days and day > days[due]
        colour = RED if late else BLUE
        if at:
            between = (day - ordered[at - 1][1]).days
            waited = "same day" if not between else count(between, "day")
            parts.append(label_at(x - step / 2, 30, waited, 13))
        inside = "Canvas" if name == due else colour
        parts.append(f'<circle cx="{x:g}" cy="40" r="8" fill="{inside}" stroke="{colour}" stroke-width="3"/>')
        parts += [label_at(x, 70, name, 15, bold=True), label_at(x, 90, day.isoformat(), 14)]
    words = ", ".join(f"{name} {day}" for name, day in ordered)
    return draw_svg(100, parts, f"In this order: {words}.")


def draw_chances(chances: Mapping[str, float | None], rate: float) -> Picture:
    """Draw the most that an attack reaches beside what guessing reaches; None stands for no limit."""
    rows: list[tuple[str, float | None, str]] = [(f"guessing: {100 * rate:g}%", rate, GREY)]
    for name, chance in chances.items():
        if chance is None:
            rows.append((f"{name}: not known, nothing limits it", None, RED))
        else:
            limit = "no more than guessing" if chance == rate else f"at most {format_share(chance)}"
            rows.append((f"{name}: {limit}", chance, BLUE))
    parts, length = [], WIDTH - 20
    for at, (label, chance, colour) in enumerate(rows):
        y = 10 + 48 * at
        parts.append(label_at(10, y + 10, label, 15, anchor="start"))
        parts.append(f'<rect x="10" y="{y + 18}" width="{length}" height="16" fill="none" stroke="{GREY}"/>')
        dashes = ' fill-opacity="0.25" stroke-dasharray="6 4"' if chance is None else ""
        width = length * (1.0 if chance is None else min(chance, 1.0))
        parts.append(
            f'<rect x="10" y="{y + 18}" width="{max(width, 2):.4g}" height="16" fill="{colour}" stroke="{colour}"'
            f"{dashes}/>"
        )
    bottom = 10 + 48 * len(rows)
    parts += [
        label_at(10 + length * share / 100, bottom + 8, f"{share}%", 13, anchor=anchor)
        for share, anchor in ((0, "start"), (25, "middle"), (50, "middle"), (75, "middle"), (100, "end"))
    ]
    told = "; ".join(label for label, _, _ in rows)
    text = (
        f"How often an attack that wrongly accuses {100 * rate:g}% of outsiders recognises a forgotten participant: "
    )
    return draw_svg(bottom + 14, parts, f"{text}{told}.")


def label_at(x: float, y: float, words: str, size: int, *, anchor: str = "middle", bold: bool = False) -> str:
    """Return words at a place of a picture."""
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def draw_svg(height: int, parts: Sequence[str], text: str) -> Picture:
    """Return a picture of the usual width, made of its parts."""
    return frame_picture(f'viewBox="0 0 {WIDTH} {height}" fill="currentColor"', "".join(parts), text)
