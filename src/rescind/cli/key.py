"""``rescind key``: keys for signing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.explained import Command, Group
from rescind.cli.shared import AsJson, report_errors, show

# Nobody reads more before agreeing to it.
_LONGEST_PLAN = 4000

app = typer.Typer(cls=Group, help="Keys for signing certificates.", no_args_is_help=True)


@app.callback()
def main() -> None:
    """Keys for signing certificates."""


@app.command("new", cls=Command)
def new(
    path: Annotated[
        Path, typer.Argument(metavar="KEY", help="Where to write the private half; .pub is the public one.")
    ],
    as_json: AsJson = False,
) -> None:
    """Make a key for signing: encrypted, readable by you alone.

    The passphrase, of 12 characters or more, is asked for, or taken from the variable RESCIND_PASSPHRASE.

    Example: rescind key new operator.key
    """
    with report_errors():
        from rescind.certificates.envelope import fingerprint
        from rescind.certificates.keys import create_key, load_public_key

        public = create_key(path, passphrase(new=True))
        known = fingerprint(load_public_key(public))
    words = [
        f"The private key is in {path}; keep it away from the SuperLink.",
        f"Hand out {public}: with it anybody can verify what you sign.",
        f"Fingerprint (confirm it by phone or letter): {known}",
    ]
    show({"private": str(path), "public": str(public), "fingerprint": known}, words, as_json)


@app.command("approve", cls=Command)
def approve(
    file: Annotated[
        Path, typer.Argument(metavar="APPROVAL", help="The file that the desk's page of a request gives.")
    ],
    key: Annotated[Path, typer.Option(help="Your private key.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask once more.")] = False,
) -> None:
    """Sign an approval for the desk on your own machine; what is printed is for the page, or "signed" in JSON.

    Example: rescind key approve approval.json --key officer.key
    """
    with report_errors():
        from rescind.certificates.approvals import read_to_sign, sign_by
        from rescind.certificates.envelope import read_content
        from rescind.certificates.keys import load_signer
        from rescind.texts import make_plain
        from rescind.views.plans import describe_agreed

        try:
            asked = read_to_sign(read_content(file))
            words = make_plain(describe_agreed(asked.read()))
        except ValueError as error:
            raise ValueError(
                f"{file} is no approval that can be signed: save the one that the request's page has now. "
                + make_plain(str(error))[:300]
            ) from error
        if len(words) > _LONGEST_PLAN:
            raise ValueError("it takes too long to tell: approve it where the history is (rescind request approve)")
        signer, told = load_signer(key, passphrase()), asked.approval
        typer.echo(f"Entry {told.plan} of run {told.approved}. {words}", err=True)
        if not yes:
            typer.confirm(f'Sign as "{told.by}"?', abort=True, err=True)
        public, signature = sign_by(signer)(asked.text)
        typer.echo(json.dumps({"key": public, "signature": signature}))


def passphrase(new: bool = False) -> str:
    """Return the passphrase of the environment, or ask for it."""
    if (known := os.environ.get("RESCIND_PASSPHRASE")) is not None:
        return known
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new))
