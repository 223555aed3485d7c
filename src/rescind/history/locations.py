"""Where a history lives: a folder with everything in it, or a PostgreSQL server and a place for the models.

It is opened there, made, and brought from an older version's schema to this one's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rescind.checkpoints.store import CheckpointStore, FolderStore
from rescind.errors import HistoryError, IncompleteHistoryError, NoHistoryError
from rescind.history.tampering import UNREADABLE, find_name_problems, find_number_problems
from rescind.history.timeline import Timeline
from rescind.ledger.contract import Ledger
from rescind.ledger.foreign_objects import DATABASE, STORES
from rescind.ledger.sql import SqlLedger
from rescind.private_files import check_private, warn_if_packed

_POSTGRESQL = ("postgresql://", "postgres://", "postgresql+psycopg://")


def open_stores(
    location: str | os.PathLike[str],
    checkpoints: str | None,
    run: str,
    secret: str | os.PathLike[str] | None,
    *,
    create: bool,
) -> tuple[Ledger, CheckpointStore, CheckpointStore]:
    """Open the ledger and the stores of models and of clients' objects, or make them."""
    address = expand_home(location)
    locate = locate_files(address, checkpoints, run)
    ledger = _open_or_create(locate_ledger(address, run, secret, create=create), create=create)
    place = locate(ledger)
    return ledger, open_store(f"{place}/checkpoints"), open_store(f"{place}/objects")


def expand_home(place: str | os.PathLike[str]) -> str:
    """Return a path in which ~ is the home folder, as no shell looks at one in quotes or in a variable."""
    return os.path.expanduser(os.fspath(place))


def open_store(
    address: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> CheckpointStore:
    """Return the store at a place: a folder's path or ``s3://bucket/prefix``.

    Keys and endpoint of S3 come from where s3fs looks (environment, fsspec's configuration) or from
    ``storage_options``. Other places are refused, because how to erase there is not known.
    """
    text = expand_home(address)
    protocol, separator, rest = text.partition("://")
    if isinstance(address, str) and separator and protocol in ("s3", "s3a"):
        # Not every place needs what it imports.
        from rescind.checkpoints.bucket import BucketStore

        return BucketStore(text, storage_options or {})
    if storage_options:
        raise ValueError(f"storage_options are for s3:// addresses, not for {text}")
    if isinstance(address, os.PathLike) or not separator:
        return FolderStore(Path(os.path.abspath(text)))
    if protocol == "file":
        return FolderStore(Path(os.path.abspath(rest)))
    raise ValueError(f"{text} is no place for checkpoints: use a folder or s3://bucket/prefix")


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
    address = expand_home(location)
    locate = locate_files(address, checkpoints, run)
    with closing(locate_ledger(address, run, secret)(older=True)) as ledger:
        before, now = ledger.upgrade(lambda: _find_problems(ledger))
        # Up to schema 7 clients' updates could be stored.
        open_store(f"{locate(ledger)}/updates").remove()
    return before, now


def locate_files(address: str, checkpoints: str | None, run: str) -> Callable[[Ledger], str]:
    """Return what tells where the files of a ledger are; on a server somebody has to say that."""
    on_server = address.startswith(_POSTGRESQL)
    if on_server and not checkpoints:
        raise HistoryError(
            "a history on PostgreSQL needs a place for its models: give checkpoints, a folder or s3://bucket/prefix"
        )
    if not checkpoints:
        return lambda _: str(Path(address))
    # Two runs must not take each other's models for orphans, however their addresses coincide.
    return lambda ledger: f"{checkpoints.rstrip('/')}/{f'{run}-' if on_server else ''}{ledger.identifier()}"


def locate_ledger(
    address: str, run: str, secret: str | os.PathLike[str] | None, *, create: bool = False
) -> Callable[..., SqlLedger]:
    """Return what opens the ledger at an address; with ``create`` a folder that is missing is made."""
    if sys.platform == "win32":
        raise HistoryError(
            "a history needs Linux or another POSIX system: on Windows work inside WSL. "
            "Certificates are verified here as well, without a history"
        )
    secret_file = None if secret is None else Path(expand_home(secret))
    if not address:
        raise HistoryError("no history is named: give a folder, or a PostgreSQL address")
    if address.startswith(_POSTGRESQL):
        return partial(SqlLedger.postgresql, address, run, secret_file)
    if "://" in address:
        raise HistoryError(
            f"{address} is neither a folder nor a PostgreSQL address (postgresql://user@host/database)"
        )
    folder = _check_folder(Path(address), create=create)
    # Beside the folder: a copy of the folder is a copy without the secret.
    beside = folder.resolve().with_name(f"{folder.resolve().name}.secret")
    return partial(SqlLedger.sqlite, folder / DATABASE, secret_file or beside)


def _open_or_create(ledger: Callable[..., Ledger], *, create: bool) -> Ledger:
    try:
        return ledger()
    except (NoHistoryError, IncompleteHistoryError):
        if not create:
            raise
    # A creation that was cut off has left nothing yet, and is repeated.
    try:
        return ledger(create=True)
    except FileExistsError:
        # Another process was quicker, or something else is there: opening it says what.
        return ledger()


def _check_folder(folder: Path, *, create: bool) -> Path:
    """Return the folder of a history; one that is missing or empty becomes a new one."""
    if folder.exists() and not folder.is_dir():
        raise NoHistoryError(f"{folder} is a file: give the folder of a history")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if not names and not create:
        raise NoHistoryError(f"there is no history in {folder}: check the path, or record a run there first")
    if names and DATABASE not in names:
        if names.intersection(STORES):
            raise IncompleteHistoryError(
                f"{folder} has models but no {DATABASE}: restore the whole folder from a backup, or delete it"
            )
        raise NoHistoryError(
            f"{folder} holds other files and no history: check the path; a new history needs a new or an empty folder"
        )
    if not names:
        warn_if_packed(folder / DATABASE)
    if not folder.exists():
        folder.mkdir(parents=True)
        folder.chmod(0o700)
    check_private(folder)
    for name in sorted(names):
        # With SQLite's own files beside it, which go when somebody else closes the ledger.
        if name.startswith(DATABASE):
            with nullcontext() if name == DATABASE else suppress(FileNotFoundError):
                check_private(folder / name)
    return folder


def _find_problems(ledger: Ledger) -> Iterator[str]:
    """Say what an upgrade must not have changed and is not as it was recorded; an erasure may be half done."""
    try:
        yield from ledger.stamp_problems()
        entries = list(ledger.entries())
        timeline = Timeline().follow(entries)
        yield from find_number_problems(ledger, timeline, entries, {})
        yield from find_name_problems(ledger, timeline)
    except UNREADABLE as broken:
        yield f"it cannot be read: {broken}"
