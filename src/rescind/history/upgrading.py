"""Bringing a history that an older version wrote to this version's schema."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

from rescind.checkpoints.store import CheckpointStore
from rescind.history.integrity import UNREADABLE
from rescind.history.locations import locate_files, locate_ledger
from rescind.history.naming import find_name_problems
from rescind.history.numbers import find_number_problems, first_models
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import broken_links
from rescind.ledger.contract import Ledger


def upgrade_history(
    location: str | os.PathLike[str],
    *,
    checkpoints: str | None = None,
    run: str = "main",
    secret: str | os.PathLike[str] | None = None,
) -> tuple[int, int]:
    """Bring a history to this version's schema, in one transaction: all of it is done, or nothing.

    The chain, the numbers and the names are compared with the journal before the transaction ends. Files that only
    older versions read are deleted after it.

    Args:
        location: a folder, or a PostgreSQL address.
        checkpoints: where the models are, if not in the folder.
        run: the run's name in a PostgreSQL database.
        secret: the secret file, if it is not beside the folder.

    Returns:
        the number of the schema before and now; the same if there was nothing to do.

    Raises:
        NoHistoryError: there is no history.
        SchemaVersionError: its schema is newer than this version's, or from before the first release.
        BrokenHistoryError: somebody changed the history; it is as it was.
        LockedError: another process is writing to this run.
        MissingSecretError: the secret file is not at hand.
    """
    address = os.fspath(location)
    locate = locate_files(address, checkpoints, run)
    with closing(locate_ledger(address, run, secret)(older=True)) as ledger:
        before, now = ledger.upgrade(lambda: _find_problems(ledger))
        # Up to schema 7 clients' updates could be stored.
        CheckpointStore(f"{locate(ledger)}/updates").remove()
    return before, now


def _find_problems(ledger: Ledger) -> Iterator[str]:
    """Say what an upgrade must not have changed and is not as it was recorded; an erasure may be half done."""
    try:
        yield from (f"entry {number} was added without the secret" for number in ledger.unstamped_entries())
        entries = list(ledger.entries())
        yield from (f"entry {number} does not follow from those before it" for number in broken_links(entries))
        timeline = Timeline().follow(entries)
        yield from find_number_problems(ledger, timeline, entries, first_models(timeline))
        yield from find_name_problems(ledger, timeline)
    except UNREADABLE as broken:
        yield f"it cannot be read: {broken}"
