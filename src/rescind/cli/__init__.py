"""The command line. What a command needs is imported when it runs, so that a help text comes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from rescind import __version__
from rescind.cli import (
    certify,
    decide,
    demo,
    desk,
    doctor,
    erase,
    forget,
    init,
    key,
    leave,
    publish,
    report,
    request,
    stamp,
    status,
    upgrade,
    verify,
)
from rescind.cli.explained import Command, Group

app = typer.Typer(
    name="rescind",
    cls=Group,
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


# What a command is for decides where it is listed. A line each: the whole list is to be seen at once.
_PANELS: dict[str, dict[str, tuple[Callable[..., None] | typer.Typer, str]]] = {
    "Try": {
        "demo": (demo.demo, "Show a federation that forgets, in under a minute"),
        "init": (init.init, "Make a new history, and show the lines for an app"),
    },
    "Watch": {
        "status": (status.status, "Show how a run stands, and what is open"),
        "clients": (status.clients, "List the participants, and who is in a model"),
        "report": (report.report, "Write one HTML file about a run"),
        "desk": (desk.app, "Serve a page of what is due, and an interface"),
        "doctor": (doctor.doctor, "Look for what is missing or not safe"),
    },
    "Requests": {
        "request": (request.app, "Add, preview, approve and serve requests"),
        "leave": (leave.leave, "Sign a request on the participant's own machine"),
    },
    "Certificates": {
        "certify": (certify.certify, "Sign what became of a request"),
        "verify": (verify.verify, "Check a certificate offline"),
        "stamp": (stamp.stamp, "Have a certificate or the history time-stamped"),
        "key": (key.app, "Make a key for signing"),
        "publish": (publish.publish, "Register the released model with MLflow"),
    },
    "Maintenance": {
        "renew": (forget.renew, "Let participants send their sums again"),
        "doubts": (decide.doubts, "List and lift doubts about the training"),
        "erase": (erase.erase, "Erase what is left of the forgotten"),
        "upgrade": (upgrade.upgrade, "Migrate a history of an older version"),
    },
}
for _panel, _commands in _PANELS.items():
    for _name, (_does, _line) in _commands.items():
        if isinstance(_does, typer.Typer):
            app.add_typer(_does, name=_name, rich_help_panel=_panel, short_help=_line)
        else:
            app.command(_name, cls=Command, rich_help_panel=_panel, short_help=_line)(_does)
