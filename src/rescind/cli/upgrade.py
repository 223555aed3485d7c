"""``rescind upgrade``: a history of an older version."""

from __future__ import annotations

import os

from rescind.cli.shared import AsJson, Location, read_run, report_errors, show
from rescind.progress import show_progress


def upgrade(history: Location, as_json: AsJson = False) -> None:
    """Migrate a history to this version's schema. One way: older versions can no longer open it.

    Stop whatever uses it, and back it up first. All of it is done, or nothing.

    Example: rescind upgrade hospital-history
    """
    with report_errors():
        from rescind.history.locations import upgrade_history

        run, secret = read_run()
        with show_progress("upgrading"):
            checkpoints = os.environ.get("RESCIND_CHECKPOINTS")
            before, now = upgrade_history(history, checkpoints=checkpoints, run=run, secret=secret)
    words = [
        f"Upgraded from schema {before} to schema {now}."
        if before != now
        else f"There is nothing to do: the history has schema {now}, which this rescind writes."
    ]
    show({"from": before, "to": now}, words, as_json)
