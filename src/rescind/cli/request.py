"""``rescind request``: asking to be forgotten. Carrying it out is up to the federation's next run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from rescind.cli.shared import AsJson, Location, open_existing, show

if TYPE_CHECKING:
    from rescind.history.timeline import FiledRequest

app = typer.Typer(
    help="Requests to be forgotten: add one, list them, extend one, take one back.", no_args_is_help=True
)
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="The request's number.")]


@app.command()
def add(
    history: Location,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Who asks to be forgotten.")],
    epsilon: Annotated[float, typer.Option(help="The guarantee's epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The guarantee's delta.")] = 1e-5,
    as_json: AsJson = False,
) -> None:
    """Record that clients ask to be forgotten; the federation's next run carries it out.

    Example: rescind request add hospital-history switzerland --epsilon 5
    """
    with open_existing(history) as opened:
        from rescind.core.calibration import Budget

        number = opened.ask(clients, Budget(epsilon, delta))
        asked = opened.timeline.open_requests[number]
        names = opened.names(asked.request.group)
        receipts = {name: opened.receipt(name) for name in names}
    words = [
        f"Request {number} is recorded, for epsilon {epsilon:g} and delta {delta:g}, to be served by "
        f"{asked.deadline[:10]}.",
        *(f"Receipt for {name}, by which it finds itself in the certificate: {receipts[name]}" for name in receipts),
        f"{', '.join(dict.fromkeys(clients))} will not be asked to train any more.",
        "Start the federation's next run as always: it goes back, adds the noise that is needed, trains on with the "
        "others, and erases.",
    ]
    show({"request": number, "deadline": asked.deadline, "receipts": receipts}, words, as_json)


@app.command("list")
def list_(history: Location, as_json: AsJson = False) -> None:
    """List all requests, and what became of them.

    Example: rescind request list hospital-history
    """
    with open_existing(history) as opened:
        everything = opened.timeline.requests
        names = opened.describe_groups([asked.request.group for asked in everything])
        done = {asked.number for outcome in opened.outcomes() for asked in outcome.asked}
        rows: list[dict[str, Any]] = [
            {
                "request": asked.number,
                "asked": asked.time[:10],
                "clients": clients,
                "epsilon": asked.request.budget.epsilon,
                "delta": asked.request.budget.delta,
                "state": _state(asked, asked.number in done),
                "deadline": asked.deadline[:10],
            }
            for asked, clients in zip(everything, names, strict=True)
        ]
    words = [
        (
            str(row["request"]),
            row["asked"],
            ", ".join(row["clients"]),
            f"({row['epsilon']:g}, {row['delta']:g})",
            _due(row),
        )
        for row in rows
    ]
    show({"requests": rows}, words, as_json)


@app.command()
def extend(
    history: Location,
    number: Number,
    days: Annotated[int, typer.Option(help="By how many days; two months at most in all (GDPR art. 12).")],
    reason: Annotated[str, typer.Option(help="Why; it is recorded, and the requester has to be told.")],
    as_json: AsJson = False,
) -> None:
    """Extend the deadline of an open request, with a reason.

    Example: rescind request extend hospital-history 1 --days 30 --reason "many requests at once"
    """
    with open_existing(history) as opened:
        deadline = opened.extend(number, days, reason)
    words = [f"Request {number} is to be served by {deadline[:10]}. Tell the requester, within its first month."]
    show({"request": number, "deadline": deadline}, words, as_json)


@app.command()
def withdraw(history: Location, number: Number, as_json: AsJson = False) -> None:
    """Take back a request that is still open.

    Example: rescind request withdraw hospital-history 1
    """
    with open_existing(history) as opened:
        opened.withdraw(number)
    show({"request": number, "state": "withdrawn"}, [f"Request {number} is withdrawn."], as_json)


def _state(asked: FiledRequest, done: bool) -> str:
    if asked.withdrawn:
        return "withdrawn"
    if done:
        return "served"
    return "being served" if asked.served else "open"


def _due(row: dict[str, Any]) -> str:
    return f"{row['state']}, due {row['deadline']}" if row["state"] in ("open", "being served") else str(row["state"])
