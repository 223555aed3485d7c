"""One writer a run: locks that the operating system or the database frees when their holder dies."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from rescind.errors import LockedError
from rescind.private_files import name_when_full, read_bounded

_LONGEST_DESCRIPTION = 4096

_SESSION = text(
    """
    SELECT activity.pid, activity.application_name, activity.usename,
           to_char(activity.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') AS since
    FROM pg_locks AS held JOIN pg_stat_activity AS activity ON activity.pid = held.pid
    WHERE held.locktype = 'advisory' AND held.granted AND held.objsubid = 1
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND held.classid = CAST(CAST(:high AS bigint) AS oid) AND held.objid = CAST(CAST(:low AS bigint) AS oid)
    """
)


@contextmanager
def folder_lock(holder_file: Path) -> Iterator[None]:
    """Hold the folder of a file for this process; the kernel lets it go when the process ends, however it ends.

    ``holder_file`` says who holds it. It is the folder that is held: a file of its own could be deleted, and two
    processes would hold two files of the same name.
    """
    # Only POSIX has it, and whoever verifies a certificate elsewhere holds nothing.
    import fcntl

    folder, holder = os.open(holder_file.parent, os.O_RDONLY | os.O_DIRECTORY), os.getpid()
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(_folder_holder(holder_file)) from None
        descriptor = os.open(holder_file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.ftruncate(descriptor, 0)
            with name_when_full(holder_file):
                os.pwrite(descriptor, json.dumps(_description()).encode(), 0)
            yield
        finally:
            # A process that was forked meanwhile has the same lock, and neither ends it nor keeps it.
            if os.getpid() == holder:
                os.ftruncate(descriptor, 0)
                fcntl.flock(folder, fcntl.LOCK_UN)
            os.close(descriptor)
    finally:
        os.close(folder)


@contextmanager
def session_lock(connection: Connection, schema: str) -> Iterator[None]:
    """Hold a schema for this session of PostgreSQL; the server lets it go when the session ends."""
    key = _key(schema)
    with connection.begin():
        held = connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": key}).scalar_one()
        if not held:
            raise LockedError(_session_holder(connection, key))
    try:
        yield
    finally:
        _unlock(connection, key)


def application_name() -> str:
    """Return the name under which the sessions of this process show up in PostgreSQL, which keeps 63 bytes of it."""
    return f"rescind {socket.gethostname()[:40]}:{os.getpid()}"


def _unlock(connection: Connection, key: int) -> None:
    # A connection that was lost took the lock with it, and a new one never had it.
    if connection.invalidated:
        return
    try:
        with connection.begin():
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": key})
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise


def _description() -> dict[str, str | int]:
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "user": _user(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
        # Without its arguments, which may hold a password.
        "command": Path(sys.argv[0]).name or "python",
    }


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _folder_holder(holder_file: Path) -> str:
    try:
        holder = json.loads(read_bounded(holder_file, _LONGEST_DESCRIPTION))
        return "process {process} on {host} ({command}, user {user}, since {since})".format(**holder)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        # It has the lock and has not yet said who it is, or somebody deleted what it said.
        return "another process"


def _session_holder(connection: Connection, key: int) -> str:
    unsigned = key % 2**64
    halves = {"high": unsigned >> 32, "low": unsigned % 2**32}
    session = connection.execute(_SESSION, halves).first()
    if session is None:
        return "another session, which has just ended or cannot be seen"
    return (
        f"{session.application_name or 'an unnamed application'} (user {session.usename}, "
        f"PostgreSQL process {session.pid}, since {session.since})"
    )


def _key(schema: str) -> int:
    digest = hashlib.sha256(f"rescind writer {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
