"""``rescind status``: how a run stands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rescind.cli.shared import (
    AsJson,
    Location,
    open_existing,
    show,
    show_progress,
    table,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from rescind.history.overview import Overview

_BAR = 24
_LINE = 60


def status(history: Location, as_json: AsJson = False) -> None:
    """Show how a run stands: who moved the model, what is kept, open requests, what could be claimed.

    How far clients moved the model was computed from their data: keep it to yourself.
    Example: rescind status hospital-history
    """
    with open_existing(history) as there, show_progress("reading"):
        from rescind.history.overview import open_requests, overview

        found = overview(there)
        rows: list[dict[str, Any]] = [
            {
                "request": each.asked.number,
                "clients": each.clients,
                "deadline": each.asked.deadline[:10],
                "days_left": each.days_left,
                "begun": each.asked.served,
            }
            for each in open_requests(there, found, datetime.now(UTC))
        ]
        doubts = there.facts.doubts
    result = {
        "newest": f"{found.newest.branch}.{found.newest.round}",
        "rounds": found.rounds,
        "clients": found.clients,
        "influences": [
            {"client": each.client, "sensitivity": each.sensitivity, "rounds": each.rounds}
            for each in found.influences
        ],
        "kept": [f"{place.branch}.{place.round}" for place in found.kept],
        "open_requests": rows,
        "stored_bytes": found.stored_bytes,
        "mode": found.claimable.mode.value,
        "raised_by": list(found.claimable.raised_by),
        "doubts": list(doubts),
    }
    # Where they stand in the way they are told with what else does.
    beside = [each for each in doubts if each not in found.claimable.raised_by]
    show(result, [*_words(found, rows), *beside], as_json)


def _words(found: Overview, waiting: list[dict[str, Any]]) -> Iterator[str | Table]:
    from rich.filesize import decimal

    stored = decimal(found.stored_bytes)
    yield f"{found.newest}, after {found.rounds} rounds with {found.clients} clients; {stored} stored"
    yield ""
    largest = max((each.sensitivity for each in found.influences), default=0.0)
    rows = []
    for each in found.influences:
        filled = round(_BAR * each.sensitivity / largest) if 0 < largest < float("inf") else 0
        rows.append((each.client, "#" * filled, f"{each.sensitivity:.3g}", str(each.rounds)))
    yield table(("client", "how far it may have moved the model", "", "recorded rounds"), rows)
    if found.clients > len(found.influences):
        yield f"and {found.clients - len(found.influences)} more"
    yield ""
    by_branch: dict[int, list[int]] = {}
    for place in found.kept:
        by_branch.setdefault(place.branch, []).append(place.round)
    yield "kept models, from the first round to the last"
    for branch, rounds in by_branch.items():
        yield f"branch {branch}  {_time_line(rounds)}  {len(rounds)} of rounds {rounds[0]} to {rounds[-1]}"
    yield ""
    for row in waiting:
        due = f"due {row['deadline']}, {row['days_left']} days left"
        begun = "; begun, the next run finishes it" if row["begun"] else ""
        yield f"request {row['request']}: {', '.join(row['clients'])}; {due}{begun}"
    if not waiting:
        yield "no open requests"
    yield ""
    mode = found.claimable.mode.value
    if mode == "heuristic":
        yield "if somebody left now: exact by retraining; going back with noise would prove nothing, because"
    else:
        yield f"if somebody left now: exact by retraining, or {mode} with noise"
        if found.claimable.raised_by:
            yield "for strict it lacks:"
    yield from (f"  - {each}" for each in found.claimable.raised_by)


def _time_line(rounds: list[int]) -> str:
    """Draw where kept models lie; where there are more rounds than room, a mark stands for several."""
    first, last = rounds[0], rounds[-1]
    width = min(_LINE, last - first + 1)
    marked = {(at - first) * (width - 1) // max(last - first, 1) for at in rounds}
    return "".join("o" if at in marked else "." for at in range(width))
