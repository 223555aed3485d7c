"""The command line. What a command needs is imported when it runs, so that a help text comes at once."""

from __future__ import annotations

from typing import Annotated

import typer

from rescind import __version__
from rescind.cli import (
    certify,
    decide,
    demo,
    doctor,
    erase,
    forget,
    init,
    key,
    leave,
    preview,
    publish,
    report,
    request,
    status,
    upgrade,
    verify,
)

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


app.command("demo")(demo.demo)
app.command("init")(init.init)
app.command("status")(status.status)
app.command("clients")(status.clients)
app.add_typer(request.app, name="request")
app.command("leave")(leave.leave)
app.command("preview")(preview.preview)
app.command("forget")(forget.forget)
app.command("renew")(forget.renew)
app.command("approve")(decide.approve)
app.command("refuse")(decide.refuse)
app.command("doubts")(decide.doubts)
app.command("erase")(erase.erase)
app.command("readmit")(decide.readmit)
app.add_typer(key.app, name="key")
app.command("certify")(certify.certify)
app.command("verify")(verify.verify)
app.command("publish")(publish.publish)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)
app.command("upgrade")(upgrade.upgrade)
