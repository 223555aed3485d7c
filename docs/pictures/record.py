"""Records ``rescind demo`` as a picture that moves: ``python docs/pictures/record.py``.

The demonstration is really run. Only the pace is made up: as fast as people read.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from typer.testing import CliRunner

from rescind.cli import app

RECORDING = Path(__file__).parent / "demo.svg"
COLUMNS, VISIBLE = 100, 24
WIDTH, LINE, MARGIN = 760, 18, 14
# Lines that are there from the beginning.
FIRST = 5
# Seconds: after each line, before a new step, and at the end.
PACE, PAUSE, END = 0.12, 1.6, 8.0
BOLD, ANSI = "\x1b[1m", re.compile(r"\x1b\[[0-9;]*m")


def play() -> list[str]:
    """Run the demonstration, and return the lines that it prints; a step's sentence begins with ``BOLD``."""
    shown = CliRunner(env={"COLUMNS": str(COLUMNS), "RESCIND_PASSPHRASE": ""}).invoke(app, ["demo"], color=True)
    if shown.exit_code:
        raise SystemExit(f"the demonstration failed: {shown.output}")
    return [fold for line in shown.output.splitlines() for fold in folds(line)]


def folds(line: str) -> list[str]:
    """Return a line in lines that fit."""
    bold, text = (BOLD, line.removeprefix(BOLD)) if line.startswith(BOLD) else ("", line)
    return [bold + part for part in textwrap.wrap(ANSI.sub("", text), COLUMNS) or [""]]


def draw(lines: Sequence[str]) -> str:
    """Return a picture in which the lines move up, one after the other, and begin anew when all were shown."""
    waits = [PACE + PAUSE * line.startswith(BOLD) for line in lines]
    total = sum(waits) + END
    steps, seconds = [], 0.0
    for at, wait in enumerate(waits, 1):
        seconds += wait
        steps.append(f"{100 * seconds / total:.2f}%{{transform:translateY({LINE * (VISIBLE - at)}px)}}")
    last = LINE * (VISIBLE - len(lines))
    height = LINE * VISIBLE + 2 * MARGIN
    texts = [
        f'<text x="{MARGIN}" y="{LINE * at + 13}" class="{"b" if line.startswith(BOLD) else "p"}">'
        f"{escape(line.removeprefix(BOLD))}</text>"
        for at, line in enumerate(lines)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
            "<title>rescind demo: clinics train, one leaves and is forgotten, an auditor verifies it</title>",
            "<style>",
            "text{font:12px ui-monospace,Menlo,Consolas,monospace;white-space:pre;fill:#c9d1d9}",
            ".b{font-weight:bold;fill:#ffffff}",
            f"#screen{{transform:translateY({last}px);animation:scroll {total:.1f}s step-end infinite}}",
            f"@keyframes scroll{{0%{{transform:translateY({LINE * (VISIBLE - FIRST)}px)}}{''.join(steps[FIRST:])}}}",
            "@media(prefers-reduced-motion:reduce){#screen{animation:none}}",
            "</style>",
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#161b22"/>',
            f'<svg y="{MARGIN}" width="{WIDTH}" height="{LINE * VISIBLE}"><g id="screen">',
            *texts,
            "</g></svg>",
            "</svg>",
        ]
    )


def main() -> None:
    """Write it beside this file."""
    RECORDING.write_text(draw(play()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
