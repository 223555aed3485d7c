"""``rescind status`` and ``rescind clients``: how a run stands, and whom it knows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rescind.cli.shared import (
    AsJson,
    Location,
    Table,
    complain,
    describe_leaving,
    describe_wait,
    open_existing,
    parse_model,
    show,
    warn_of_changes,
)
from rescind.progress import show_progress
from rescind.texts import list_some

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rescind.views.clients import KnownClient
    from rescind.views.overview import Overview

_BAR = 24
_LINE = 60
# The exit code of --check; cron and systemd act on it.
OVERDUE = 3
# So many requests or clients are named in one line.
_MOST_NAMED = 10
# So many of the most influential clients are shown.
_MOST_SHOWN = 10


class Format(StrEnum):
    """What else the state can be printed as."""

    PROMETHEUS = "prometheus"


def status(
    history: Location,
    as_json: AsJson = False,
    format_: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Print metrics for a monitoring service: counts and times, no name and no private number.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="For cron: print nothing, and end with 3 if a request is overdue, or with 1 if the secret file "
            "shows that the journal was changed.",
        ),
    ] = False,
) -> None:
    """Show how a run stands: who moved the model, what is kept, open requests, what could be claimed.

    How far clients moved the model was computed from their data: keep it to yourself.

    Example: rescind status hospital-history
    Example: rescind status hospital-history --format prometheus
    Example: rescind status hospital-history --check
    """
    if format_ and (as_json or check):
        raise typer.BadParameter("--format stands alone: leave out --json and --check")
    now = datetime.now(UTC)
    if check:
        _check(history, now, as_json)
        return
    with open_existing(history) as opened, show_progress("reading"):
        from rescind.certificates.wording import describe_names
        from rescind.views.metrics import render_metrics
        from rescind.views.overview import overview, read_gauges
        from rescind.views.requests import open_requests

        if format_:
            typer.echo(render_metrics(read_gauges(opened, now)))
            return
        warn_of_changes(opened.integrity.stamp_problems())
        # People want to see the most influential ones, programs everybody.
        view = overview(opened, None if as_json else _MOST_SHOWN)
        gauges = read_gauges(opened, now)
        rows: list[dict[str, Any]] = [
            {
                "request": request.asked.number,
                "clients": request.clients,
                "scope": request.asked.request.scope.value,
                "deadline": request.asked.deadline[:10],
                "days_left": request.days_left,
                "begun": request.asked.served,
                "waits_for_approval_since": request.planned,
                "waits_for_rows": request.unnamed,
            }
            for request in open_requests(opened, now)
        ]
        doubts, names = opened.facts.doubts, asdict(opened.timeline.names)
    result = {
        "names": names,
        "newest": view.newest.name,
        "rounds": view.rounds,
        "clients": view.clients,
        "outsiders": [{"client": outsider.client, "last_time": outsider.since} for outsider in view.outsiders],
        "influences": [
            {"client": influence.client, "sensitivity": influence.sensitivity, "rounds": influence.rounds}
            for influence in view.influences
        ],
        "body": None if view.body is None else view.body.name,
        "anchors": list(view.anchors),
        "kept": [place.name for place in view.kept],
        "open_requests": rows,
        "stored_bytes": view.stored_bytes,
        "mode": view.claimable.mode.value,
        "raised_by": list(view.claimable.raised_by),
        "doubts": list(doubts),
        "run": gauges.run,
        "overdue_requests": gauges.overdue_requests,
        "undecided_requests": gauges.undecided_requests,
        "unnamed_requests": gauges.unnamed_requests,
        "next_deadline": gauges.next_deadline and gauges.next_deadline.isoformat(),
        "recorded_rounds": gauges.recorded_rounds,
        "last_round": gauges.last_round and gauges.last_round.isoformat(),
        "client_states": {state.value: count for state, count in gauges.clients.items()},
        "rejected_replies": gauges.rejected_replies,
        "unfinished_erasures": gauges.unfinished_erasures,
        "stamp_problems": gauges.stamp_problems,
    }
    # Where they stand in the way they are told with what else does.
    beside = [doubt for doubt in doubts if doubt not in view.claimable.raised_by]
    show(result, [*filter(None, [describe_names(names)]), *_words(view, rows), *beside], as_json)


def clients(
    history: Location,
    find: Annotated[
        str | None, typer.Option("--find", help="List only the clients in whose name or label this text is.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", help="List only the clients that are in this model, such as 1.5.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the clients that a run knows: name, key, state, whether it is in the newest model, recorded rounds.

    A forgotten one has a pseudonym only. Which node a client connects from is not recorded: flwr supernode list.

    Example: rescind clients hospital-history
    Example: rescind clients hospital-history --model 1.5
    Example: rescind clients hospital-history --find hungary
    """
    with open_existing(history) as opened, show_progress("reading"):
        from rescind.views.clients import list_clients

        known = list_clients(opened, None if model is None else parse_model(model))
    if model is not None:
        known = tuple(client for client in known if client.inside)
    if find is not None:
        known = tuple(client for client in known if find.casefold() in f"{client.label}\n{client.name}".casefold())
    rows = [
        {
            "pseudonym": client.pseudonym,
            "name": client.name,
            "label": client.label,
            "key": client.key,
            "state": client.state.value,
            "in_model": client.inside,
            "left_out": client.left_out,
            "rounds": client.rounds,
            "last_model": None if client.last is None else client.last.name,
            "last_time": client.last_time,
        }
        for client in known
    ]
    keys = any(client.key for client in known)
    heads = (
        "client",
        *(["key"] if keys else []),
        "state",
        f"in {model or 'the newest model'}",
        "rounds",
        "last round",
    )
    lines = [
        (
            client.called,
            *([client.key or "-"] if keys else []),
            client.state.value,
            _place(client, newest=model is None),
            str(client.rounds),
            "-" if client.last is None else f"{client.last}, {(client.last_time or '')[:10]}",
        )
        for client in known
    ]
    nobody = "nobody has taken part yet" if find is None and model is None else "no client is like that"
    show({"clients": rows}, [Table(heads, lines)] if lines else [nobody], as_json)


def _place(client: KnownClient, *, newest: bool) -> str:
    """Say whether a client is in a model; a solution may leave out who took part on the way to it."""
    return "no" if not client.inside else "left out of the solution" if newest and client.left_out else "yes"


def _check(history: str, now: datetime, as_json: bool) -> None:
    """Say in one line which requests are overdue, without names: the line ends up in logs and mails."""
    with open_existing(history) as opened:
        from rescind.views.overview import count_days_left, find_overdue

        rows = [
            {"request": asked.number, "deadline": asked.deadline[:10], "days_late": -count_days_left(asked, now)}
            for asked in find_overdue(opened, now)
        ]
        changed = opened.integrity.stamp_problems()
    if as_json:
        show({"overdue": rows, "stamp_problems": changed}, (), as_json)
    else:
        warn_of_changes(changed)
    if changed:
        # Who withdraws a request so has nobody overdue.
        raise typer.Exit(1)
    if not rows:
        return
    if not as_json:
        named = list_some([f"request {row['request']} since {row['deadline']}" for row in rows], _MOST_NAMED)
        complain(f"overdue: {named}. Start the federation's next run: it serves what is open")
    raise typer.Exit(OVERDUE)


def _words(view: Overview, waiting: list[dict[str, Any]]) -> Iterator[str | Table]:
    from rich.filesize import decimal

    from rescind.core.edges import NO_BOUND
    from rescind.views.overview import format_distance

    stored = decimal(view.stored_bytes)
    yield f"{view.newest}, after {view.rounds} rounds with {view.clients} clients; {stored} stored"
    if view.outsiders:
        yield f"left out of {view.newest}: {list_some([*map(str, view.outsiders)], _MOST_NAMED)}"
    yield ""
    largest = max((influence.sensitivity for influence in view.influences), default=0.0)
    rows = []
    for influence in view.influences:
        filled = round(_BAR * influence.sensitivity / largest) if 0 < largest < NO_BOUND else 0
        moved = format_distance(influence.sensitivity)
        rows.append((influence.client, "#" * filled, moved, str(influence.rounds)))
    yield Table(("client", "how far it may have moved the model", "", "recorded rounds"), rows)
    if view.clients > len(view.influences) == _MOST_SHOWN:
        yield f"and {view.clients - _MOST_SHOWN} more"
    yield ""
    if view.anchors:
        whole = f"whole since {view.body}" if view.body else "being trained"
        yield f"the network's body is {whole}; its anchors: {', '.join(view.anchors)}"
        yield "whoever is no anchor is forgotten by solving the head again; an anchor costs the body, too"
        yield ""
    yield "kept models, from the first round to the last"
    for branch, kept in groupby(view.kept, key=attrgetter("branch")):
        rounds = [model_id.round for model_id in kept]
        yield f"branch {branch}  {_time_line(rounds)}  {len(rounds)} of rounds {rounds[0]} to {rounds[-1]}"
    yield ""
    for row in waiting:
        late = row["days_left"] < 0
        due = f"due {row['deadline']}, {abs(row['days_left'])} days {'overdue' if late else 'left'}"
        begun = "; is being served; if that broke off, the next run finishes it" if row["begun"] else ""
        yield f"request {row['request']}: {describe_leaving(row)}; {due}{describe_wait(row)}{begun}"
    if not waiting:
        yield "no open requests"
    yield ""
    mode = view.claimable.mode.value
    if view.anchors or mode == "exact":
        yield "if somebody left now: exact"
        return
    if mode == "heuristic":
        yield "if somebody left now: exact by retraining; going back with noise would prove nothing, because"
    else:
        yield f"if somebody left now: exact by retraining, or {mode} with noise"
        if view.claimable.raised_by:
            yield "for strict it lacks:"
    yield from (f"  - {reason}" for reason in view.claimable.raised_by)


def _time_line(rounds: list[int]) -> str:
    """Draw where kept models lie; where there are more rounds than room, a mark stands for several."""
    first, last = rounds[0], rounds[-1]
    width = min(_LINE, last - first + 1)
    marked = {(at - first) * (width - 1) // max(last - first, 1) for at in rounds}
    return "".join("o" if at in marked else "." for at in range(width))
