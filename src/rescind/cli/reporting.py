"""``rescind report``: a run as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, check_page, opened, show, working


def report(
    history: Location,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path("report.html"),
    private: Annotated[
        bool, typer.Option("--private", help="The operator's own: with numbers computed from clients' data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write one HTML file about a run: requests and their claims, the branches, what an attack could reach.

    Example: rescind report hospital-history -o report.html
    """
    with opened(history) as there, working("writing the report"):
        check_page(output)
        try:
            from rescind.report import report as written
        except ModuleNotFoundError as missing:
            raise ValueError(f"{missing.name} is not installed: pip install 'rescind[report]'") from missing

        output.write_text(written(there, private=private), encoding="utf-8")
        if private:
            output.chmod(0o600)
    show({"file": str(output), "private": private}, [f"The report is in {output}."], as_json)
