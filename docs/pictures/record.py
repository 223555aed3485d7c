"""Records ``rescind demo`` as a picture that moves: ``python docs/pictures/record.py``.

The demonstration is really run, and shown up to its proof. Only the pace is made up: as fast as people read.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

from typer.testing import CliRunner

from rescind.cli import app

RECORDING = Path(__file__).parent / "demo.svg"
# What the last line says.
PROOF = "the same bytes"
COLUMNS, VISIBLE = 100, 20
WIDTH, LINE, MARGIN = 760, 18, 14
GROUND = "#161b22"
# Seconds: after each line, after a step, and at the end.
PACE, PAUSE, END = 0.08, 1.0, 3.0
BOLD, ANSI = "\x1b[1m", re.compile(r"\x1b\[[0-9;]*m")


def play() -> list[str]:
    """Run the demonstration, and return its lines up to the proof; a step's sentence begins with ``BOLD``."""
    shown = CliRunner(env={"COLUMNS": str(COLUMNS), "RESCIND_PASSPHRASE": ""}).invoke(app, ["demo"], color=True)
    if shown.exit_code:
        raise SystemExit(f"the demonstration failed: {shown.output}")
    before, proof, after = shown.output.partition(PROOF)
    lines = (before + proof + after.partition("\n")[0]).strip().splitlines()
    return [fold for line in lines for fold in folds(line)]


def folds(line: str) -> list[str]:
    """Return a line in lines that fit."""
    bold, text = (BOLD, line.removeprefix(BOLD)) if line.startswith(BOLD) else ("", line)
    return [bold + part for part in textwrap.wrap(ANSI.sub("", text), COLUMNS) or [""]]


def draw(lines: Sequence[str]) -> str:
    """Return a picture in which one line appears after the other, moves up, and all begins anew."""
    # A step's last line stays before the next one begins; the first step is there at once.
    bold = [line.startswith(BOLD) for line in [*lines, BOLD]]
    waits = [PACE + PAUSE * (after and not now) for now, after in pairwise(bold)]
    first = waits.index(PACE + PAUSE)
    waits[:first] = [0.0] * first
    total = sum(waits) + END
    scrolled, covered, seconds = [], [], 0.0
    for shown, wait in enumerate(waits, 1):
        share = f"{100 * seconds / total:.2f}%"
        scrolled.append(f"{share}{{transform:translateY({-LINE * max(0, shown - VISIBLE)}px)}}")
        covered.append(f"{share}{{transform:translateY({LINE * shown}px)}}")
        seconds += wait
    pace = f"{total:.1f}s step-end infinite"
    whole, height = LINE * len(lines), LINE * VISIBLE + 2 * MARGIN
    texts = [
        f'<text x="{MARGIN}" y="{LINE * at + 13}" class="{"b" if line.startswith(BOLD) else "p"}">'
        f"{escape(line.removeprefix(BOLD))}</text>"
        for at, line in enumerate(lines)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
            "<title>rescind demo: clinics train, one leaves, the model made without it has the same bytes</title>",
            "<style>",
            "text{font:12px ui-monospace,Menlo,Consolas,monospace;white-space:pre;fill:#c9d1d9}",
            ".b{font-weight:bold;fill:#ffffff}",
            f"#screen{{transform:translateY({LINE * VISIBLE - whole}px);animation:scroll {pace}}}",
            f"#cover{{transform:translateY({whole}px);animation:show {pace}}}",
            f"@keyframes scroll{{{''.join(scrolled)}}}",
            f"@keyframes show{{{''.join(covered)}}}",
            "@media(prefers-reduced-motion:reduce){#screen,#cover{animation:none}}",
            "</style>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="{GROUND}"/>',
            f'<svg y="{MARGIN}" width="{WIDTH}" height="{LINE * VISIBLE}"><g id="screen">',
            *texts,
            # What is still to come lies under it.
            f'<rect id="cover" width="{WIDTH}" height="{whole}" fill="{GROUND}"/>',
            "</g></svg>",
            "</svg>",
        ]
    )


def main() -> None:
    """Write it beside this file."""
    RECORDING.write_text(draw(play()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
