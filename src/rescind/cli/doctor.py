"""``rescind doctor``: whether a run stands safely."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rescind.cli.shared import AsJson, report_errors, show, show_progress

if TYPE_CHECKING:
    pass


def doctor(
    history: Annotated[str | None, typer.Argument(metavar="HISTORY", help="A history to look at, too.")] = None,
    key: Annotated[list[Path] | None, typer.Option(help="A private key to look at, too.")] = None,
    database: Annotated[
        list[Path] | None, typer.Option(help="A database of a Flower SuperLink to look at, too (its --database).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Look for what is missing or not safe: versions, permissions, clock, disk, keys, the history's chain.

    It ends with 1 if something has to be repaired. Example: rescind doctor hospital-history --key operator.key
    """
    with report_errors():
        from rescind.cli.examination import examine

        with show_progress("examining"):
            findings = list(examine(history, key or [], database or []))
    words = [f"{finding.verdict:>7}  {finding.what}: {finding.detail}" for finding in findings]
    show({"checks": [asdict(finding) for finding in findings]}, words, as_json)
    if any(finding.verdict == "repair" for finding in findings):
        raise typer.Exit(1)
