"""The command line. What a command needs is imported when it runs, so that a help text comes at once."""

from __future__ import annotations

from typing import Annotated

import typer

from rescind import __version__
from rescind.cli import certificates, doubting, erasing, keys, planning, reporting, requests, state

app = typer.Typer(
    name="rescind",
    help="Makes federated training revocable.",
    no_args_is_help=True,
    add_completion=False,
    # A traceback's variables would hold clients' names and numbers.
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rescind {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Make federated training revocable: record, plan, forget, verify."""


app.command("init")(state.init)
app.command("status")(state.status)
app.add_typer(requests.app, name="request")
app.command("plan")(planning.plan)
app.command("doubts")(doubting.doubts)
app.command("erase")(erasing.erase)
app.add_typer(keys.app, name="keys")
app.command("certify")(certificates.certify)
app.command("verify")(certificates.verify)
app.command("report")(reporting.report)
app.command("doctor")(state.doctor)
