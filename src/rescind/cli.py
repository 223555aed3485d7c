"""The command line: for now, asking to be forgotten; carrying it out is up to the federation's next run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rescind.core.calibration import Budget
from rescind.core.edges import sorted_group
from rescind.forgetting import outcomes
from rescind.history.errors import HistoryError
from rescind.history.history import History
from rescind.history.requests import Asked, asked_for

app = typer.Typer(
    name="rescind", help="Makes federated training revocable.", no_args_is_help=True, add_completion=False
)
request = typer.Typer(help="Requests to be forgotten: add one, list them, take one back.", no_args_is_help=True)
app.add_typer(request, name="request")

Location = Annotated[str, typer.Argument(metavar="HISTORY", help="The history's folder, or its PostgreSQL address.")]


@app.callback()
def main() -> None:
    """Make federated training revocable: record, plan, forget, verify."""


@request.command()
def add(
    history: Location,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Who asks to be forgotten.")],
    epsilon: Annotated[float, typer.Option(help="The guarantee's epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The guarantee's delta.")] = 1e-5,
) -> None:
    """Record that clients ask to be forgotten; the federation's next run carries it out.

    Example: rescind request add hospital-history switzerland --epsilon 5
    """
    with _opened(history) as opened:
        number = opened.ask(clients, Budget(epsilon, delta))
        (asked,) = (each for each in asked_for(opened.ledger) if each.number == number)
    typer.echo(f"Request {number} is recorded, to be served by {asked.deadline[:10]}.")
    typer.echo(
        f"{', '.join(clients)} will not be asked to train any more. Start the federation's next run as always:"
    )
    typer.echo("it goes back, adds the noise that is needed, trains on with the others, and erases.")


@request.command("list")
def list_(history: Location) -> None:
    """List all requests, and what became of them."""
    with _opened(history) as opened:
        labels = opened.ledger.labels()
        done = {asked.number for outcome in outcomes(opened) for asked in outcome.asked}
        for asked in asked_for(opened.ledger):
            known = opened.ledger.names(sorted_group(asked.request.group)) | labels
            names = [known.get(client, f"client {client}") for client in sorted(asked.request.group)]
            typer.echo(
                f"{asked.number}\t{asked.time[:10]}\t{', '.join(names)}\t{_state(asked, asked.number in done)}"
            )


@request.command()
def withdraw(
    history: Location, number: Annotated[int, typer.Argument(metavar="NUMBER", help="The request's number.")]
) -> None:
    """Take back a request that is still open."""
    with _opened(history) as opened:
        opened.withdraw(number)
    typer.echo(f"Request {number} is withdrawn.")


def _state(asked: Asked, done: bool) -> str:
    if asked.withdrawn:
        return "withdrawn"
    if done:
        return "served"
    return f"{'being served' if asked.served else 'open'}, due {asked.deadline[:10]}"


@contextmanager
def _opened(location: str) -> Iterator[History]:
    """Open a history that exists already; what goes wrong with it is told in a sentence."""
    try:
        with History(location, create=False) as history:
            yield history
    except (HistoryError, OSError, ValueError) as error:
        typer.echo(f"rescind: {error}", err=True)
        raise typer.Exit(1) from error
