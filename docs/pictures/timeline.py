"""Draws one federation over time, for the first screen: ``PYTHONPATH=. python docs/pictures/timeline.py``.

Its numbers are those of the README's table: medians of stored runs.
"""

from __future__ import annotations

from pathlib import Path

from front import among
from style import BLUE, GREEN, INK, ORANGE, ground

from experiments.harness import rows
from experiments.tables import middle

WIDTH, HEIGHT = 640, 248
# Where model 0 lies, how wide a round is, and how high the two lines of training and the bars are.
LEFT, STEP = 16, 1.42
BEFORE, AFTER, BARS = 72, 138, 200
BOX = (496, 132)


def measure() -> tuple[int, int]:
    """Return the rounds of a training, and those that it took to forget a client which joined late."""
    own = among((row for row in rows("late") if row["method"] == "exact"), leaving=1, joined=0.75)
    return own[0]["rounds"], round(middle(own, "again"))


def write(x: float, y: float, words: str, anchor: str = "start", *, bold: bool = False) -> str:
    """Return a line of text."""
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" fill="{INK}" stroke="none" text-anchor="{anchor}"{weight}>{words}</text>'


def draw_line(start: float, end: float, y: float, colour: str, more: str = "") -> str:
    """Return a thick line from left to right."""
    return f'<path d="M{start:g},{y:g} H{end:g}" stroke="{colour}" stroke-width="6" {more}/>'


def draw() -> str:
    """Return the picture."""
    total, again = measure()
    first, last = LEFT + STEP * (total - again), LEFT + STEP * total
    return ground(
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
                'font-size="14">',
                "<title>Rounds are recorded, a client leaves, training goes back, a certificate is signed</title>",
                '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
                f'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="{INK}" stroke="none"/></marker></defs>',
                f'<g fill="none" stroke="{INK}" stroke-width="1.4">',
                write(LEFT, BEFORE - 36, "1  Record", bold=True),
                write(LEFT, BEFORE - 17, "every round, from the first"),
                draw_line(LEFT, first, BEFORE, BLUE),
                write(first, BEFORE - 17, "a late client trains", "middle"),
                f'<path d="M{first:g},{BEFORE - 12} V{BEFORE + 5}"/>',
                draw_line(first, last, BEFORE, ORANGE, 'stroke-dasharray="7 4"'),
                write((first + last) / 2, BEFORE + 22, "erased", "middle"),
                write(last + 8, BEFORE - 17, "2  It leaves", bold=True),
                write(last + 8, BEFORE + 5, f"after round {total}"),
                f'<path d="M{last - 2:g},{BEFORE + 8} C{last - 2:g},{AFTER - 18} {first + 50:g},{AFTER - 40} '
                f'{first + 4:g},{AFTER - 8}" marker-end="url(#end)"/>',
                write(first - 12, AFTER - 6, "3  Go back", "end", bold=True),
                write(first - 12, AFTER + 13, f"to round {total - again}, and train without it", "end"),
                draw_line(first, last, AFTER, BLUE),
                f'<path d="M{last + 6:g},{AFTER} H{BOX[0] - 2}" marker-end="url(#end)"/>',
                f'<rect x="{BOX[0]}" y="{AFTER - 26}" width="{BOX[1]}" height="52" rx="4" stroke="{GREEN}"/>',
                write(BOX[0] + 12, AFTER - 5, "4  Certificate", bold=True),
                write(BOX[0] + 12, AFTER + 14, "signed, exact"),
                draw_line(LEFT, LEFT + STEP * again, BARS, BLUE),
                write(LEFT + STEP * again + 10, BARS + 5, f"{again} rounds to forget"),
                draw_line(LEFT, last, BARS + 26, INK),
                write(last + 10, BARS + 31, f"{total} to retrain"),
                "</g>",
                "</svg>",
            ]
        )
    )


def main() -> None:
    """Draw it beside this file."""
    (Path(__file__).parent / "timeline.svg").write_text(draw() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
