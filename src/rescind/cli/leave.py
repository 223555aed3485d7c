"""``rescind leave``: a participant's own request to be forgotten, signed on its own machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, report_errors, show


def leave(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file for the signed request.")],
    key: Annotated[Path, typer.Option(help="The private key that the SuperNode is started with.")],
    federation: Annotated[str, typer.Option(help="What its operator calls the federation.")],
    records: Annotated[bool, typer.Option("--records", help="Only some of your rows go; you stay.")] = False,
    as_json: AsJson = False,
) -> None:
    """Sign a request to be forgotten, on the participant's machine, for the federation's operator.

    Nothing is sent: name the file in your SuperNode's configuration (rescind-leave="FILE"), or hand it to the
    operator, who records it with rescind request import. Keep a copy: with it the certificate shows that your own key
    asked (rescind verify --request).

    Example: rescind leave leave.json --key hospital-3 --federation "Four hospitals"
    """
    with report_errors():
        from rescind.certificates.leaving import open_request, sign_request
        from rescind.private_files import name_when_full

        content = sign_request(key, federation, records=records)
        request = open_request(content)
        try:
            with name_when_full(file), file.open("xb") as new:
                new.write(content)
        except FileExistsError as taken:
            raise ValueError(f"{file} is there already: choose another file") from taken
    asked = "that some of its rows be forgotten" if records else "to be forgotten"
    words = [
        f"{file} asks {federation} {asked}, in the name of {request.client}.",
        f'Start your SuperNode with rescind-leave="{file.resolve()}" in its --node-config, or hand the file to the '
        "federation's operator; keep a copy, and ask for a receipt.",
    ]
    if records:
        words.append("Which rows, your own program says once the operator has told you the request's number.")
    show({"file": str(file), "client": request.client, "federation": federation, "records": records}, words, as_json)
