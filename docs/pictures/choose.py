"""Draws which way to forget suits whom: ``python docs/pictures/choose.py``.

Two ladders of questions, one for linear models and one for networks. *Yes* leads to a way, with what it costs and
what may be claimed; *no* to the next question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from style import BLUE, GREEN, INK, ground

LINE, PADDING, BETWEEN = 18, 9, 26
# Where questions and ways begin, and how wide they are.
ASKED, ANSWERED = (10, 300), (370, 330)


@dataclass(frozen=True)
class Rung:
    """A question, and the way that *yes* leads to; the last rung asks nothing."""

    question: tuple[str, ...]
    way: tuple[str, ...]

    @property
    def height(self) -> int:
        """How high it is drawn."""
        return LINE * max(len(self.question), len(self.way)) + 2 * PADDING


LADDERS = {
    "A linear model, or a linear head on a frozen network, with an L2 term": (
        Rung(
            ("May the server keep sums over each", "client's rows (10 or more of each)?"),
            (
                "a ridge head, from kept sums",
                "exact, for anybody and any group: no round,",
                "and no client is asked",
            ),
        ),
        Rung(
            ("May it at least see such sums", "while it trains?"),
            (
                "Solve()",
                "exact, for anybody and any group: 5 to 10",
                "rounds, 15 to 50 above 2,000 parameters;",
                "a client sends more than in training",
            ),
        ),
        Rung(
            ("Does one leave, of 1,000 or more,", "or of 100 who are much alike?"),
            ("Sifu(): noise", "instance, an (epsilon, delta): often 0 to 20", "rounds of 40; the plan says how many"),
        ),
        Rung((), ("Sifu(): retrains", "exact: all rounds")),
    ),
    "A network": (
        Rung(
            ("Is there a published network that", "is good for your kind of data?"),
            ("freeze it, and train a head on it", "as above"),
        ),
        Rung(
            ("Are some clients sure to stay, and", "may they train the body alone?"),
            (
                "two stages, and Solve()",
                "exact: 8 to 10 rounds; the body's rounds,",
                "too, if one of these clients leaves",
            ),
        ),
        Rung(
            ("Will you be able to retrain?",),
            ("Exact()", "exact: the rounds since the leaver joined"),
        ),
        Rung(
            (),
            (
                "Dp(), from the first round on",
                "strict: no rounds, but a less accurate",
                "model; for 1,000 clients or more",
            ),
        ),
    ),
}


def draw_box(x: int, y: float, width: int, height: float, colour: str, corner: int, lines: Sequence[str]) -> str:
    """Return a box with lines of text in it."""
    top = y + (height - LINE * len(lines)) / 2 + 13
    texts = [
        f'<text x="{x + 12}" y="{top + LINE * at:g}" fill="{INK}"{weigh(colour, at)}>{escape(line)}</text>'
        for at, line in enumerate(lines)
    ]
    frame = f'<rect x="{x}" y="{y:g}" width="{width}" height="{height:g}" rx="{corner}" stroke="{colour}"/>'
    return "\n".join([frame, *texts])


def weigh(colour: str, at: int) -> str:
    """Return how bold a line is: a way's name is."""
    return ' font-weight="bold"' if colour == GREEN and at == 0 else ""


def draw_arrow(points: str, word: str, x: float, y: float) -> str:
    """Return an arrow, and the answer that leads along it."""
    line = f'<polyline points="{points}" marker-end="url(#end)"/>'
    return f'{line}\n<text x="{x:g}" y="{y:g}" fill="{INK}" font-style="italic">{word}</text>'


def draw() -> str:
    """Return the picture."""
    drawn, y = [], 0.0
    for title, rungs in LADDERS.items():
        y += BETWEEN
        drawn.append(f'<text x="{ASKED[0]}" y="{y:g}" fill="{INK}" font-size="16">{escape(title)}</text>')
        y += 14
        for rung, after in zip(rungs, [*rungs[1:], None], strict=True):
            middle, foot = y + rung.height / 2, y + rung.height
            drawn.append(draw_box(ANSWERED[0], y, ANSWERED[1], rung.height, GREEN, 2, rung.way))
            if rung.question:
                drawn.append(draw_box(ASKED[0], y, ASKED[1], rung.height, BLUE, 16, rung.question))
                start, end = sum(ASKED), ANSWERED[0] - 3
                drawn.append(draw_arrow(f"{start},{middle:g} {end},{middle:g}", "yes", start + 16, middle - 6))
            if after is not None:
                x = ASKED[0] + 40
                if after.question:
                    points = f"{x},{foot:g} {x},{foot + BETWEEN - 3:g}"
                else:
                    last = foot + BETWEEN + after.height / 2
                    points = f"{x},{foot:g} {x},{last:g} {ANSWERED[0] - 3},{last:g}"
                drawn.append(draw_arrow(points, "no", x + 8, foot + 17))
            y = foot + BETWEEN
    width = sum(ANSWERED) + 10
    frame = f'viewBox="0 0 {width} {y:g}" font-family="sans-serif" font-size="14"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>'
    end = (
        '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>'
    )
    title = "<title>Which way to forget suits you: questions and what they lead to</title>"
    lines = f'<g fill="none" stroke="{INK}" stroke-width="1.4">'
    texts = (part.replace("<text", '<text stroke="none"') for part in [lines, *drawn])
    return ground("\n".join([head, title, end, *texts, "</g>", "</svg>"]))


def main() -> None:
    """Draw it beside this file."""
    (Path(__file__).parent / "choose.svg").write_text(draw() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
