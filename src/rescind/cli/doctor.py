"""``rescind doctor``: whether a run stands safely."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rescind.cli.shared import (
    AsJson,
    report_errors,
    show,
    show_progress,
)

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
            found = list(examine(history, key or [], database or []))
    words = [f"{each.verdict:>7}  {each.what}: {each.detail}" for each in found]
    result = {"checks": [{"what": each.what, "verdict": each.verdict, "detail": each.detail} for each in found]}
    show(result, words, as_json)
    if any(each.verdict == "repair" for each in found):
        raise typer.Exit(1)
