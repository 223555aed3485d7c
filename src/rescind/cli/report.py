"""``rescind report``: a run as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, check_page, open_existing, show
from rescind.progress import show_progress


def report(
    history: Location,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path("report.html"),
    private: Annotated[
        bool, typer.Option("--private", help="The operator's own: with numbers computed from clients' data.")
    ] = False,
    certificate: Annotated[
        list[Path] | None, typer.Option(help="A certificate to verify and show, with what was measured.")
    ] = None,
    key: Annotated[
        list[Path] | None, typer.Option(help="A public key that the certificates have to be signed with.")
    ] = None,
    model: Annotated[Path | None, typer.Option(help="The released model, to check that they are about it.")] = None,
    accuracies: Annotated[
        Path | None, typer.Option(help="Accuracies over time, as rescind.engines.accuracies writes them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file about a run: requests and their claims, the branches, what an attack could reach.

    A certificate that does not hold ends it, with the exit codes of rescind verify.

    Example: rescind report hospital-history --certificate certificate.json --key operator.key.pub
    """
    with open_existing(history) as opened, show_progress("writing the report"):
        check_page(output)
        if bool(certificate) != bool(key):
            raise ValueError("give certificates and the public keys that they are signed with: --certificate, --key")
        try:
            from rescind.pages.report import render_report as written
        except ModuleNotFoundError as missing:
            raise ValueError(f"{missing.name} is not installed: pip install matplotlib") from missing

        from rescind.certificates.envelope import read_content
        from rescind.certificates.keys import load_public_key
        from rescind.certificates.verification import verify
        from rescind.engines.accuracies import read_accuracies
        from rescind.private_files import name_when_full, open_private, warn_if_packed

        keys = [load_public_key(path) for path in key or []]
        page = written(
            opened,
            private=private,
            certificates=[
                verify(read_content(path), keys, threshold=len(keys), model=model, history=opened)
                for path in certificate or []
            ],
            measured=None if accuracies is None else read_accuracies(accuracies),
        )
        opener = open_private if private else None
        with name_when_full(output), open(output, "w", encoding="utf-8", opener=opener) as file:
            file.write(page)
        if private:
            warn_if_packed(output)
    show({"file": str(output), "private": private}, [f"The report is in {output}."], as_json)
