"""``rescind doctor``: whether a run stands safely."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, report_errors, show
from rescind.progress import show_progress


def doctor(
    history: Annotated[str | None, typer.Argument(metavar="HISTORY", help="A history to look at, too.")] = None,
    key: Annotated[list[Path] | None, typer.Option(help="A private key to look at, too.")] = None,
    database: Annotated[
        list[Path] | None, typer.Option(help="A database of a Flower SuperLink to look at, too (its --database).")
    ] = None,
    superlink: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="A SuperLink that must not let outsiders in; best from another machine."
        ),
    ] = None,
    root_certificates: Annotated[
        Path | None,
        typer.Option(help="The authority's certificate for --superlink, if this machine does not know it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look for what is missing or not safe: versions, permissions, clock, disk, keys, ports, the history's chain.

    It ends with 1 if something has to be repaired.

    Example: rescind doctor hospital-history --key operator.key
    """
    with report_errors():
        from rescind.cli.examination import examine

        with show_progress("examining"):
            findings = list(examine(history, key or [], database or [], superlink, root_certificates))
    words = [f"{finding.verdict:>7}  {finding.what}: {finding.detail}" for finding in findings]
    show({"checks": [asdict(finding) for finding in findings]}, words, as_json)
    if any(finding.verdict == "repair" for finding in findings):
        raise typer.Exit(1)
