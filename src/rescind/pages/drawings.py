"""Pictures without a library, as SVG in the page's own colours, each with a text for who cannot see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from rescind.certificates.wording import format_share
from rescind.pages.fragments import Picture, escape, frame_picture
from rescind.pages.summary import count

_WIDTH, _MARGIN = 660, 60
_BLUE, _GREY, _RED = "#3d7dca", "#8c8c8c", "#c9453b"


def draw_days(days: Mapping[str, date], due: str = "due") -> Picture:
    """Draw days in their order, one after the other and not to scale; what comes after the day ``due`` is red."""
    ordered = sorted(days.items(), key=lambda named: (named[1], named[0] == due))
    step = (_WIDTH - 2 * _MARGIN) / max(len(ordered) - 1, 1)
    parts = [f'<path d="M{_MARGIN} 40H{_MARGIN + step * (len(ordered) - 1):g}" stroke="{_GREY}" stroke-width="2"/>']
    for at, (name, day) in enumerate(ordered):
        x = _MARGIN + at * step
        late = due in days and day > days[due]
        colour = _RED if late else _BLUE
        if at:
            between = (day - ordered[at - 1][1]).days
            waited = "same day" if not between else count(between, "day")
            parts.append(_text(x - step / 2, 30, waited, 13))
        inside = "Canvas" if name == due else colour
        parts.append(f'<circle cx="{x:g}" cy="40" r="8" fill="{inside}" stroke="{colour}" stroke-width="3"/>')
        parts += [_text(x, 70, name, 15, bold=True), _text(x, 90, day.isoformat(), 14)]
    words = ", ".join(f"{name} {day}" for name, day in ordered)
    return _picture(100, parts, f"In this order: {words}.")


def draw_chances(chances: Mapping[str, float | None], rate: float) -> Picture:
    """Draw the most that an attack reaches beside what guessing reaches; None stands for no limit."""
    rows: list[tuple[str, float | None, str]] = [(f"guessing: {100 * rate:g}%", rate, _GREY)]
    for name, chance in chances.items():
        if chance is None:
            rows.append((f"{name}: not known, nothing limits it", None, _RED))
        else:
            limit = "no more than guessing" if chance == rate else f"at most {format_share(chance)}"
            rows.append((f"{name}: {limit}", chance, _BLUE))
    parts, length = [], _WIDTH - 20
    for at, (label, chance, colour) in enumerate(rows):
        y = 10 + 48 * at
        parts.append(_text(10, y + 10, label, 15, anchor="start"))
        parts.append(f'<rect x="10" y="{y + 18}" width="{length}" height="16" fill="none" stroke="{_GREY}"/>')
        dashes = ' fill-opacity="0.25" stroke-dasharray="6 4"' if chance is None else ""
        width = length * (1.0 if chance is None else min(chance, 1.0))
        parts.append(
            f'<rect x="10" y="{y + 18}" width="{max(width, 2):.4g}" height="16" fill="{colour}" stroke="{colour}"'
            f"{dashes}/>"
        )
    bottom = 10 + 48 * len(rows)
    parts += [
        _text(10 + length * share / 100, bottom + 8, f"{share}%", 13, anchor=anchor)
        for share, anchor in ((0, "start"), (25, "middle"), (50, "middle"), (75, "middle"), (100, "end"))
    ]
    told = "; ".join(label for label, _, _ in rows)
    text = (
        f"How often an attack that wrongly accuses {100 * rate:g}% of outsiders recognises a forgotten participant: "
    )
    return _picture(bottom + 14, parts, f"{text}{told}.")


def _text(x: float, y: float, words: str, size: int, *, anchor: str = "middle", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'


def _picture(height: int, parts: Sequence[str], text: str) -> Picture:
    return frame_picture(f'viewBox="0 0 {_WIDTH} {height}" fill="currentColor"', "".join(parts), text)
