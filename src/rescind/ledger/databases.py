"""The two databases that can hold a run: how each is reached, made, held by one writer, and compacted."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, ExceptionContext, QueuePool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, DBAPIError, OperationalError

from rescind.errors import HistoryError, NoHistoryError, StillReadError
from rescind.ledger import schema
from rescind.ledger.commitments import KEY_BYTES
from rescind.ledger.contract import CHECK, bind_secret, derive_secret
from rescind.ledger.locks import application_name, folder_lock, session_lock
from rescind.ledger.server_copies import find_copies, find_out_of_reach
from rescind.private_files import full_disk

# Seconds that a transaction waits for another process's.
_LOCK_TIMEOUT = 60

_LOCK_NOT_AVAILABLE = "55P03"

# SQLite takes a file that is shorter than this for an empty one.
_SMALLEST_PAGE = 512

# A disk with less has no place for SQLite's own files.
_LEAST_ROOM = 2**16

_WAIT = "the erasure is finished by whoever records or erases next, when nobody reads"

_RUN_NAME = re.compile(r"[a-z0-9_]{1,50}")


class Database(ABC):
    """One place for one run."""

    # What a connection needs to read everything as it was at one moment.
    snapshot_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, engine: Engine, where: str, name: str) -> None:
        self.engine = engine
        self.where = where
        self._name = name

    @abstractmethod
    def hold(self) -> AbstractContextManager[Connection]:
        """Hold the run as its only writer, on the connection that will write."""

    @abstractmethod
    def compact(self) -> tuple[str, ...]:
        """Overwrite or give back what deleted rows occupied; say what could not be reached."""

    def copies(self) -> tuple[str, ...]:
        """Return in words where what is written is copied to, out of reach."""
        return ()

    @abstractmethod
    def create(self, outside: bytes) -> None:
        """Make the history, in one transaction, where nothing is yet; ``outside`` is the secret in its file."""

    @abstractmethod
    def open(self, *, older: bool = False) -> None:
        """Refuse a place that does not hold a whole history of this version, or with ``older`` one to upgrade."""

    @contextmanager
    def transaction(self, connection: Connection | None = None) -> Iterator[Connection]:
        """Write, after everybody who was writing before; on a connection of its own unless one is given."""
        if connection is None:
            with self.engine.connect() as own, self.transaction(own):
                yield own
            return
        with connection.execution_options(rescind_writes=True).begin():
            yield connection

    def _fill(self, connection: Connection, outside: bytes) -> None:
        tables = schema.tables_found(connection)
        if tables:
            raise FileExistsError(f"{self.where} already holds {'a history' if 'journal' in tables else 'tables'}")
        secret = secrets.token_bytes(KEY_BYTES)
        schema.create(connection, self._name, secret, derive_secret(bind_secret(outside, secret), CHECK))


class Sqlite(Database):
    """One file, and beside it SQLite's own -wal and -shm and, in .lock, who is writing; one run a folder."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        # mode=rw: a path that was mistyped is not made into an empty database.
        address = f"file:{quote(str(self._path))}?mode=rw"
        engine = create_engine(
            "sqlite://",
            creator=partial(
                sqlite3.connect,
                address,
                uri=True,
                timeout=_LOCK_TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
            ),
            poolclass=QueuePool,
            hide_parameters=True,
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        event.listen(engine, "handle_error", self._name_when_full)
        super().__init__(engine, str(path), path.stem)

    @contextmanager
    def hold(self) -> Iterator[Connection]:
        # Where the file is: a symbolic link to it, in another folder, leads to the same lock.
        with folder_lock(Path(f"{self._path.resolve()}.lock")), self.engine.connect() as connection:
            yield connection

    def create(self, outside: bytes) -> None:
        try:
            # Private from its first byte on; SQLite gives its other files the same mode.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            # An empty file is what a creation that was cut off leaves behind, so going on is safe.
            if not self._is_database():
                raise FileExistsError(f"{self.where} already holds something else") from None
        self._switch_to_wal()
        with self.transaction() as connection:
            self._fill(connection, outside)

    def open(self, *, older: bool = False) -> None:
        if not self._path.is_file():
            raise NoHistoryError(f"{self.where} holds no history: there is no such file")
        try:
            if not self._is_database():
                raise NoHistoryError(f"{self.where} holds no history: it is not a database")
            with self.engine.connect() as connection:
                schema.check(connection, self.where, older=older)
            # A copy that SQLite's own tools made has lost the setting.
            self._switch_to_wal()
        except (sqlite3.OperationalError, OperationalError) as error:
            if _needs_to_write(error):
                raise HistoryError(
                    f"{self.where} cannot be opened where nothing can be written ({getattr(error, 'orig', error)}): "
                    "SQLite writes beside a database even to read it. Copy the whole folder to where you can write, "
                    "and open it there"
                ) from error
            raise

    def compact(self) -> tuple[str, ...]:
        with self._by_hand() as driver:
            emptied = _empty_wal(driver)
            driver.execute("VACUUM")
            emptied = _empty_wal(driver) and emptied
        if not emptied:
            raise StillReadError(
                f"another process is reading {self.where}, whose write-ahead log still holds erased values; {_WAIT}"
            )
        return ()

    def _is_database(self) -> bool:
        # Not read by hand: closing the file would drop the locks that other connections of this process have on it.
        if 0 < self._path.stat().st_size < _SMALLEST_PAGE:
            return False
        try:
            with self._by_hand() as driver:
                driver.execute("SELECT count(*) FROM sqlite_master")
        except (sqlite3.OperationalError, OperationalError):
            # It is locked, or not ours to read, which says nothing about what it is.
            raise
        except (sqlite3.DatabaseError, DatabaseError):
            return False
        return True

    def _switch_to_wal(self) -> None:
        with self._by_hand() as driver:
            driver.execute("PRAGMA journal_mode=WAL")

    @contextmanager
    def _by_hand(self) -> Iterator[sqlite3.Connection]:
        """Return the driver's connection, for what SQLite refuses inside a transaction."""
        with self.engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)  # noqa: S101
            try:
                yield driver
            except sqlite3.OperationalError as error:
                self._check_room(error)
                raise

    def _name_when_full(self, context: ExceptionContext) -> None:
        self._check_room(context.original_exception)

    def _check_room(self, error: BaseException) -> None:
        """Raise the error about a full disk in place of one of SQLite's, which names no file."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        # Where its -shm cannot grow it only says that something failed.
        failed = code == sqlite3.SQLITE_IOERR and shutil.disk_usage(self._path.parent).free < _LEAST_ROOM
        if failed or code == sqlite3.SQLITE_FULL:
            raise full_disk(self._path) from error


class Postgresql(Database):
    """One schema of a database, named after the run."""

    snapshot_options: ClassVar[Mapping[str, Any]] = {"isolation_level": "REPEATABLE READ"}

    def __init__(self, address: str, run: str) -> None:
        if not _RUN_NAME.fullmatch(run):
            raise ValueError(
                f"{run!r:.80} is not a valid name for a run: it takes 1 to 50 of the characters a-z, 0-9 and _"
            )
        self.schema = f"rescind_{run}"
        url = _psycopg_url(address)
        try:
            engine = create_engine(
                url, connect_args={"application_name": application_name()}, hide_parameters=True, pool_pre_ping=True
            )
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("PostgreSQL needs its driver: pip install 'psycopg[binary]'") from error
        event.listen(engine, "connect", self._prepare)
        # Options in the address can hold a password, too.
        shown = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
        super().__init__(engine, f"{shown} (schema {self.schema})", run)

    @contextmanager
    def hold(self) -> Iterator[Connection]:
        with self.engine.connect() as connection, session_lock(connection, self.schema):
            yield connection

    def create(self, outside: bytes) -> None:
        with self._reached() as connection, self.transaction(connection):
            encoding = connection.execute(text("SHOW server_encoding")).scalar_one()
            if encoding != "UTF8":
                raise ValueError(f"{self.where} is encoded in {encoding}, which lacks letters: it has to be UTF8")
            # Two that create the same run at once take turns, and the second finds it made.
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:schema))"), {"schema": self.schema})
            if not self._is_there(connection):
                connection.exec_driver_sql(f'CREATE SCHEMA "{self.schema}"')
            self._fill(connection, outside)

    def open(self, *, older: bool = False) -> None:
        with self._reached() as connection:
            if not self._is_there(connection):
                raise NoHistoryError(f"{self.where} holds no history: there is no such schema")
            self._check_grants(connection)
            schema.check(connection, self.where, older=older)

    def _check_grants(self, connection: Connection) -> None:
        """Refuse a role to which the tables would look as if they were not there."""
        unreadable = text(
            "SELECT NOT has_schema_privilege(:schema, 'USAGE') OR EXISTS (SELECT FROM pg_class WHERE relkind = 'r' "
            "AND relnamespace = to_regnamespace(:schema) AND NOT has_table_privilege(oid, 'SELECT'))"
        )
        if connection.execute(unreadable, {"schema": self.schema}).scalar_one():
            role = connection.execute(text("SELECT current_user")).scalar_one()
            raise HistoryError(
                f"{self.where} may not be read by the role {role}. Whoever made it says: GRANT USAGE ON SCHEMA "
                f"{self.schema} TO {role}; GRANT SELECT ON ALL TABLES IN SCHEMA {self.schema} TO {role}"
            )

    def compact(self) -> tuple[str, ...]:
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            in_use = [table for table in schema.TABLES.tables if not self._rewrite(connection, table)]
            if in_use:
                raise StillReadError(f"another session is using {', '.join(in_use)} of {self.where}; {_WAIT}")
            return find_out_of_reach(connection, self.schema, _checkpoint(connection))

    def copies(self) -> tuple[str, ...]:
        with self.engine.connect() as connection:
            return find_copies(connection, self.schema)

    def _rewrite(self, connection: Connection, table: str) -> bool:
        try:
            connection.exec_driver_sql(f'VACUUM (FULL) "{self.schema}"."{table}"')
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            return False
        return True

    @contextmanager
    def _reached(self) -> Iterator[Connection]:
        try:
            connection = self.engine.connect()
        except OperationalError as error:
            raise HistoryError(f"{self.where} cannot be reached: {error.orig}") from error
        with connection:
            yield connection

    def _is_there(self, connection: Connection) -> bool:
        query = text("SELECT count(*) FROM pg_namespace WHERE nspname = :schema")
        return bool(connection.execute(query, {"schema": self.schema}).scalar_one())

    def _prepare(self, driver: Any, _record: object) -> None:
        driver.autocommit = True
        # Without statistics the server overestimates our queries, and would compile them for longer than they take.
        driver.execute(
            "SELECT set_config('search_path', %s, false), set_config('lock_timeout', %s, false), "
            "set_config('synchronous_commit', 'on', false), set_config('jit', 'off', false)",
            [self.schema, f"{_LOCK_TIMEOUT * 1000:.0f}ms"],
        )
        driver.autocommit = False


def is_writing(connection: Connection) -> bool:
    """Return whether a connection's transactions are those of ``Database.transaction``."""
    return bool(connection.get_execution_options().get("rescind_writes", False))


def _psycopg_url(address: str) -> URL:
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        # Without its cause, which may show the password.
        raise ValueError("the address is not of the form postgresql://user:password@host:port/database") from None
    if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise ValueError(f"the address begins with {url.drivername}://; PostgreSQL's begins with postgresql://")
    return url.set(drivername="postgresql+psycopg")


def _prepare_sqlite(driver: sqlite3.Connection, _record: object) -> None:
    driver.execute("PRAGMA synchronous=FULL")
    driver.execute("PRAGMA secure_delete=ON")
    # In KiB when negative. One commit changes all pages of a segment of the participations.
    driver.execute("PRAGMA cache_size=-32768")


def _needs_to_write(error: sqlite3.OperationalError | OperationalError) -> bool:
    """Return whether SQLite gave up because it could not write; the last 8 bits of its codes tell the kind."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", 0)
    return code & 0xFF in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _begin_sqlite(connection: Connection) -> None:
    # A writer asks for its turn at once: one that has read before it asks is refused when another came in between.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing(connection) else "BEGIN")


def _empty_wal(driver: sqlite3.Connection) -> bool:
    (busy, _, _) = driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return not busy


def _checkpoint(connection: Connection) -> bool:
    try:
        connection.exec_driver_sql("CHECKPOINT")
    except DBAPIError:
        return False
    return True
