"""``rescind request``: asking to be forgotten. Carrying it out is up to the federation's next run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rescind.cli.decide import approve, readmit, refuse
from rescind.cli.explained import Command, Group
from rescind.cli.forget import forget
from rescind.cli.preview import preview
from rescind.cli.shared import (
    AsJson,
    Delta,
    Epsilon,
    Location,
    Number,
    Table,
    describe_leaving,
    describe_wait,
    open_existing,
    show,
    warn_of_changes,
)

if TYPE_CHECKING:
    from rescind.history.history import History
    from rescind.history.timeline import FiledRequest


class Scope(Enum):
    """Whose removal a request hides."""

    INDIVIDUAL = "individual"
    GROUP = "group"


app = typer.Typer(
    cls=Group, help="Requests to be forgotten: add, preview, approve and serve them.", no_args_is_help=True
)


@app.command(cls=Command, short_help="Record that participants ask to be forgotten")
def add(
    history: Location,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Who asks to be forgotten.")],
    records: Annotated[
        bool, typer.Option("--records", help="Forget single records: the participant names them itself, and stays.")
    ] = False,
    scope: Annotated[
        Scope, typer.Option(help="Whose removal is hidden: each client's alone, or that of all who ask here.")
    ] = Scope.GROUP,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    classic: Annotated[
        bool, typer.Option("--classic", help="The paper's noise formula; it proves nothing, so you get a report.")
    ] = False,
    receipt: Annotated[
        list[Path] | None,
        typer.Option(help="A new file for the receipt; once for each CLIENT, in their order. For that client alone."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Record that clients ask to be forgotten; the federation's next run carries it out.

    Example: rescind request add hospital-history switzerland --epsilon 5 --receipt switzerland.json
    Example: rescind request add hospital-history hungary --records
    Example: rescind request add hospital-history hungary --scope individual --epsilon 10 --delta 0.01 --classic
    """
    with open_existing(history) as opened:
        from rescind.core.calibration import Budget, ClassicBudget
        from rescind.core.facts import PrivacyScope

        if records and (classic or scope is not Scope.GROUP):
            raise ValueError("rows are forgotten without noise: leave out --classic and --scope")
        files = _receipt_files(clients, receipt or [])
        groups = {client: opened.participants.find([client]) for client in clients}
        hidden = PrivacyScope.RECORDS if records else PrivacyScope(scope.value)
        budget = ClassicBudget(epsilon, delta) if classic else Budget(epsilon, delta)
        number = opened.requests.ask(clients, budget, scope=hidden)
        result, words = _hand_out(opened, history, number, groups, files)
    show(result, words, as_json)


@app.command("import", cls=Command, short_help="Record a request that a participant signed itself")
def import_(
    history: Location,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What rescind leave wrote on the client's machine.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    days: Annotated[int, typer.Option(min=1, max=365, help="How many days ago it may have been signed.")] = 30,
    receipt: Annotated[Path | None, typer.Option(help="A new file for the receipt, for that client alone.")] = None,
    as_json: AsJson = False,
) -> None:
    """Record a request that a client signed itself, once it is checked; the certificate will say so.

    Exit codes: 0 it is recorded; 1 a file or an argument is wrong; 10 its key cannot be used; 11 no signed request;
    12 not signed by its key; 18 handed in before; 19 for another federation; 20 nobody's key; 21 too old.

    Example: rescind request import hospital-history leave.json --receipt hospital-3.json
    """
    with open_existing(history) as opened:
        from datetime import UTC, datetime, timedelta

        from rescind.certificates.envelope import read_content
        from rescind.certificates.leaving import check_request, open_request, scope_of
        from rescind.core.calibration import Budget

        request = open_request(read_content(file))
        check_request(opened, request, timedelta(days=days), datetime.now(UTC))
        group = opened.participants.find([request.client])
        (called,) = opened.participants.describe([group])[0]
        files = _receipt_files([called], [receipt] if receipt else [])
        budget, scope = Budget(epsilon, delta), scope_of(request)
        number = opened.requests.ask([request.client], budget, scope=scope, sender=request.sender)
        result, words = _hand_out(opened, history, number, {called: group}, files)
    show(result, [f"{called} asked with its own key, {request.client}.", *words], as_json)


@app.command("list", cls=Command, short_help="List requests, and what became of them")
def list_(history: Location, as_json: AsJson = False) -> None:
    """List all requests, which of them are overdue, and what became of the others.

    Example: rescind request list hospital-history
    """
    with open_existing(history) as opened:
        from datetime import UTC, datetime

        from rescind.views.requests import list_requests

        warn_of_changes(opened.integrity.stamp_problems())
        rows: list[dict[str, Any]] = [
            {
                "request": request.asked.number,
                "asked": request.asked.time[:10],
                "clients": request.clients,
                "asked_by": request.asked.sender.asker.value,
                "scope": request.asked.request.scope.value,
                "epsilon": request.asked.request.budget.epsilon,
                "delta": request.asked.request.budget.delta,
                "classic": not request.asked.request.budget.certifiable,
                "state": request.state,
                "deadline": request.asked.deadline[:10],
                "overdue": request.overdue,
                "waits_for_approval_since": request.planned,
                "waits_for_rows": request.unnamed,
            }
            for request in list_requests(opened, datetime.now(UTC))
        ]
    lines = [
        (
            str(row["request"]),
            row["asked"],
            describe_leaving(row),
            "exact"
            if row["scope"] == "records"
            else f"({row['epsilon']:g}, {row['delta']:g})" + (", classic" if row["classic"] else ""),
            _due(row),
        )
        for row in rows
    ]
    heads = ("request", "asked", "who leaves", "epsilon, delta", "state")
    show({"requests": rows}, [Table(heads, lines)] if lines else ["no requests"], as_json)


@app.command(cls=Command, short_help="Extend a deadline, with a reason")
def extend(
    history: Location,
    number: Number,
    days: Annotated[int, typer.Option(help="By how many days; two months at most in all (GDPR art. 12).")],
    reason: Annotated[
        str, typer.Option(help="Why; it is recorded for good, so name nobody. The requester has to be told.")
    ],
    as_json: AsJson = False,
) -> None:
    """Extend the deadline of an open request, with a reason, within a month of the day on which it came.

    Example: rescind request extend hospital-history 1 --days 30 --reason "many requests at once"
    """
    with open_existing(history) as opened:
        deadline = opened.requests.extend(number, days, reason)
    words = [f"Request {number} is to be served by {deadline[:10]}. Tell the requester, within its first month."]
    show({"request": number, "deadline": deadline}, words, as_json)


@app.command(cls=Command, short_help="Take back a request that is still open")
def withdraw(
    history: Location,
    number: Number,
    reason: Annotated[str, typer.Option(help="Why; it is recorded for good, so name nobody.")] = "",
    as_json: AsJson = False,
) -> None:
    """Take back a request that is still open, with a reason if there is one to tell.

    Example: rescind request withdraw hospital-history 1 --reason "asked by mistake"
    """
    with open_existing(history) as opened:
        opened.requests.withdraw(number, reason)
    show({"request": number, "state": "withdrawn"}, [f"Request {number} is withdrawn."], as_json)


app.command(cls=Command, short_help="Show what forgetting somebody would take")(preview)
app.command(cls=Command, short_help="Agree to the recorded plan of a request")(approve)
app.command(cls=Command, short_help="Decide that a request is not served")(refuse)
app.command(cls=Command, short_help="Serve what needs no participant: kept sums")(forget)
app.command(cls=Command, short_help="Let a forgotten participant take part again")(readmit)


def _hand_out(
    history: History,
    location: str,
    number: int,
    groups: Mapping[str, frozenset[int]],
    files: Mapping[str, Path],
) -> tuple[dict[str, object], list[str]]:
    """Write the receipts of a new request; return what was done, for programs and in words."""
    from rescind.certificates.leaving import Receipt, write_receipt

    asked = history.timeline.open_requests[number]
    receipts = {name: history.participants.receipt(name) for name in history.participants.names(asked.request.group)}
    for client, path in files.items():
        own = {name: receipts[name] for name in history.participants.names(groups[client])}
        write_receipt(path, Receipt(run=history.identifier, request=number, called=client, names=own))
    everybody, budget = ", ".join(groups), asked.request.budget
    records = asked.request.scope.value == "records"
    asked_for = "without noise" if records else f"for epsilon {budget.epsilon:g} and delta {budget.delta:g}"
    asked_for += "" if budget.certifiable else ", by the paper's noise formula, which proves nothing"
    words = [
        f"Request {number} is recorded, {asked_for}, to be served by {asked.deadline[:10]}.",
        *(f"The receipt of {client} is in {path}: give it to {client} alone." for client, path in files.items()),
        *(
            f"Receipt for {name}, by which it finds itself in the certificate: {receipts[name]}"
            for name in (() if files else receipts)
        ),
        *(_next_for_rows(everybody, number) if records else _next_for_clients(everybody)),
        *_now(history, location, asked),
    ]
    return {"request": number, "deadline": asked.deadline, "receipts": receipts}, words


def _receipt_files(clients: Sequence[str], paths: Sequence[Path]) -> dict[str, Path]:
    """Return the file for each client's receipt; checked up front: once the request is recorded it is too late."""
    if paths and (len(paths), len(set(paths))) != (len(clients), len(clients)):
        raise ValueError(
            f"{len(clients)} client(s) ask, and --receipt names {len(set(paths))} file(s): name one for each"
        )
    for path in paths:
        if path.exists() or not path.parent.is_dir():
            raise ValueError(f"{path} is there already, or its folder is not: choose another file for the receipt")
    return dict(zip(clients, paths, strict=False))


def _next_for_clients(clients: str) -> tuple[str, ...]:
    return (
        f"{clients} will not be asked to train any more.",
        "Run your app as usual (flwr run): that run removes their influence, trains on with the others and erases "
        "their data.",
    )


def _next_for_rows(clients: str, number: int) -> tuple[str, ...]:
    return (
        f"Tell {clients} to leave the rows out (train_head's removed, with request={number}): until then it cannot "
        "take part.",
        "Until this is served more rows can join it: nothing has to be recorded here for them.",
        "Run your app as usual (flwr run): that run goes back to before their first round and trains on.",
    )


def _now(history: History, location: str, asked: FiledRequest) -> tuple[str, ...]:
    # What solves takes a second to load.
    if history.run.facts.keeps_sums:
        from rescind.unattended import needs_nobody

        if needs_nobody(history, asked):
            return (f"Or forget now, with no client there: rescind request forget {location}",)
    return ()


def _due(row: dict[str, Any]) -> str:
    if row["state"] not in ("open", "being served"):
        return str(row["state"])
    due = "overdue since" if row["overdue"] else "due"
    return f"{row['state']}, {due} {row['deadline']}{describe_wait(row)}"
