"""Pictures of the desk that need no library: when requests are due, how good the model was, who moved it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta

from rescind.desk.board import Measured, Moved, RequestShown
from rescind.pages.fragments import BLUE, GREY, RED, WIDTH, Picture, draw_svg, label_at
from rescind.texts import list_some, shorten

_MARGIN, _HEIGHT, _ROOM = 50, 160, 100
# So many points of a curve are drawn: more than these are no wider than a pixel.
_MOST_POINTS = 600
_MOST_NAMED = 20


def draw_deadlines(requests: Sequence[RequestShown], today: date) -> Picture:
    """Draw on a line of days when unfinished requests are due; those that are late are red."""
    due = sorted((date.fromisoformat(request.deadline[:10]), request.request) for request in requests)
    first = min(due[0][0], today) - timedelta(days=1)
    last = max(due[-1][0], today) + timedelta(days=1)
    scale = (WIDTH - 2 * _MARGIN) / (last - first).days

    def at(day: date) -> float:
        return _MARGIN + (day - first).days * scale

    # In the middle of its mark it would be cut off at an edge.
    anchor = "start" if at(today) < _ROOM else "end" if at(today) > WIDTH - _ROOM else "middle"
    parts = [
        f'<path d="M{_MARGIN} 60H{WIDTH - _MARGIN}" stroke="{GREY}" stroke-width="2"/>',
        f'<path d="M{at(today):g} 34V86" stroke="currentColor" stroke-width="2"/>',
        label_at(at(today), 24, f"today, {today.isoformat()}", 14, anchor=anchor, bold=True),
    ]
    free = -1.0
    for day, number in due:
        colour = RED if day < today else BLUE
        parts.append(f'<circle cx="{at(day):g}" cy="60" r="7" fill="{colour}"/>')
        # Where there is no room the text below names it.
        if at(day) - free > 26:
            parts.append(label_at(at(day), 104, str(number), 14))
            free = at(day)
    parts += [
        label_at(_MARGIN, 130, first.isoformat(), 13, anchor="start"),
        label_at(WIDTH - _MARGIN, 130, last.isoformat(), 13, anchor="end"),
    ]
    told = [f"request {number} {'was due' if day < today else 'is due'} {day.isoformat()}" for day, number in due]
    return draw_svg(140, parts, f"When requests are due: {list_some(told, _MOST_NAMED)}.")


def draw_accuracies(measured: Sequence[Measured]) -> Picture:
    """Draw the accuracy on held-out data over the recorded models; a line marks where training went back."""
    step = max(1, len(measured) // _MOST_POINTS)
    drawn = [*measured[:-1:step], measured[-1]]
    scale = (WIDTH - 2 * _MARGIN) / max(len(drawn) - 1, 1)
    height = _HEIGHT - 40
    points = [(_MARGIN + at * scale, 20 + height * (1 - one.accuracy)) for at, one in enumerate(drawn)]
    parts = [
        f'<path d="M{_MARGIN} {20 + height * (1 - share):g}H{WIDTH - _MARGIN}" stroke="{GREY}" stroke-width="1"/>'
        + label_at(_MARGIN - 6, 25 + height * (1 - share), f"{share:.0%}", 13, anchor="end")
        for share in (0.0, 0.5, 1.0)
    ]
    parts += [
        f'<path d="M{x:g} 14V{20 + height}" stroke="{RED}" stroke-width="2" stroke-dasharray="5 4"/>'
        for (x, _), before, one in zip(points[1:], drawn, drawn[1:], strict=False)
        if one.branch != before.branch
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2.5"/>')
    parts.append(label_at(WIDTH / 2, _HEIGHT - 2, "recorded models, from the first to the newest", 13))
    back = len({one.branch for one in drawn}) - 1
    text = f"Accuracy on held-out data: {drawn[0].accuracy:.1%} at first, {drawn[-1].accuracy:.1%} now"
    went = f"; training went back {back} time{'' if back == 1 else 's'}, at the dashed lines" if back else ""
    return draw_svg(_HEIGHT, parts, f"{text}{went}.")


def draw_influences(influences: Sequence[Moved]) -> Picture:
    """Draw how far the clients may have moved the model, as bars."""
    parts = []
    for at, moved in enumerate(influences):
        y = 10 + 30 * at
        width = 300 * (1.0 if moved.share is None else moved.share)
        dashes = ' fill-opacity="0.25" stroke-dasharray="6 4"' if moved.share is None else ""
        parts += [
            label_at(200, y + 14, shorten(moved.client, 24), 14, anchor="end"),
            f'<rect x="210" y="{y}" width="{max(width, 1):.4g}" height="18" fill="{BLUE}" stroke="{BLUE}"{dashes}/>',
            label_at(220 + width, y + 14, moved.distance, 13, anchor="start"),
        ]
    told = "; ".join(f"{moved.client} {moved.distance}" for moved in influences)
    return draw_svg(20 + 30 * len(influences), parts, f"How far each may have moved the model at most: {told}.")
