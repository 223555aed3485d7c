"""The durable ledger, on SQLite or PostgreSQL: fixed statements, bound values, one transaction a method."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Integer,
    Result,
    Row,
    Select,
    Table,
    and_,
    delete,
    func,
    insert,
    literal,
    select,
    update,
)

from rescind.core.arrays import Clients
from rescind.core.edges import ModelId
from rescind.errors import BrokenHistoryError, HistoryError, SchemaVersionError
from rescind.ledger import schema
from rescind.ledger.commitments import KEY_BYTES, canonical, stamp
from rescind.ledger.contract import (
    ABSENT_ROUNDS,
    CHECK,
    LARGEST_BOUNDS,
    ROUND,
    STAMPS,
    Ledger,
    bind_secret,
    derive_secret,
)
from rescind.ledger.databases import Database, Postgresql, Sqlite, is_writing
from rescind.ledger.foreign_objects import find_strange_files, find_strange_objects, find_strange_rows
from rescind.ledger.records import PARTICIPANT, REMAINING, Entry, RoundRecord, Span, Stretch
from rescind.ledger.schema import among, as_table
from rescind.ledger.secret_file import make_secret, read_secret, secret_mismatch

# A round can hold megabytes, an entry a few hundred bytes.
_ROUNDS_AT_ONCE = 16
_ENTRIES_AT_ONCE = 1000

# PostgreSQL answers it when it is this transaction's turn to write.
_VERSION = select(schema.run.c.schema_version).with_for_update()


class _Own(threading.local):
    """The connection of the transaction or snapshot that a thread is in, if it is in one."""

    connection: Connection | None = None


class SqlLedger(Ledger):
    """A ledger that outlives its process.

    Whoever writes without ``writing`` holds the run for that one call. It can be used by several threads.
    """

    def __init__(self, database: Database, secret: Path | None) -> None:
        self._database, self.secret_file = database, secret
        self._outside_secret: bytes | None = None
        self._writer: Connection | None = None
        self._hold = ExitStack()
        self._turn = threading.RLock()
        self._own = _Own()
        self._closed = False

    @classmethod
    def sqlite(cls, path: Path, secret: Path | None, *, create: bool = False, older: bool = False) -> SqlLedger:
        """Open the file of a run, or make a new one, which only its owner can read; ``secret`` is its secret file.

        With ``older`` it may have an older schema, for ``upgrade``.
        """
        return cls._opened(Sqlite(path), secret, create, older)

    @classmethod
    def postgresql(
        cls, address: str, run: str, secret: Path | None, *, create: bool = False, older: bool = False
    ) -> SqlLedger:
        """Open a run of a PostgreSQL database, or make a new one, in the schema ``rescind_<run>``."""
        return cls._opened(Postgresql(address, run), secret, create, older)

    @classmethod
    def _opened(cls, database: Database, secret: Path | None, create: bool, older: bool) -> SqlLedger:
        try:
            if create:
                database.create(make_secret(secret))
            else:
                database.open(older=older)
        except BaseException:
            database.engine.dispose()
            raise
        return cls(database, secret)

    def close(self) -> None:
        self._closed, self._writer = True, None
        self._hold.close()
        self._database.engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._check_open()
        with ExitStack() as hold:
            self._writer = hold.enter_context(self._database.hold())
            self._hold = hold
            try:
                yield
            finally:
                self._writer = None

    def upgrade(self, find_problems: Callable[[], Iterable[str]]) -> tuple[int, int]:
        """Bring the tables to this version's schema, in one transaction: all of it is done, or nothing.

        Args:
            find_problems: says what is wrong with the upgraded ledger; one problem, and it stays as it was.

        Returns:
            the number of the schema before and now.

        Raises:
            BrokenHistoryError: something is wrong with the upgraded ledger, or in the database beside it.
            LockedError: another process is writing to this run.
        """
        # Only who upgrades needs it.
        from rescind.ledger.upgrades import upgrade_tables

        where = self._database.where
        with self._held() as writer, self._database.transaction(writer), self._using(writer):
            before = schema.check(writer, where, older=True)
            if before < schema.SCHEMA_VERSION:
                # Whoever else reads or writes waits, and is told then.
                schema.lock_tables(writer)
                upgrade_tables(writer, before)
                for problem in chain(find_strange_objects(writer), find_problems()):
                    raise BrokenHistoryError(
                        f"{where} was not upgraded, and is as it was, with schema {before}: {problem}. Look at it "
                        "with `rescind doctor` of the version that wrote it"
                    )
        return before, schema.SCHEMA_VERSION

    def _rows(self, query: Executable) -> Sequence[Any]:
        with self._connected() as connection:
            return connection.execute(query).all()

    def _pairs(self, query: Executable) -> list[tuple[Any, Any]]:
        # Unpacked, because asking a thousand rows for their columns by name takes as long as the query.
        return [(first, second) for first, second in self._rows(query)]

    def _value(self, query: Executable) -> Any:
        """Return the first column of the first row; None if there is no row."""
        with self._connected() as connection:
            return connection.execute(query).scalar()

    def _write(self, *statements: Executable) -> None:
        with self._connected() as connection:
            for statement in statements:
                connection.execute(statement)

    def _insert(self, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows that have the table's columns in its order."""
        names = table.columns.keys()
        if rows:
            with self._connected() as connection:
                connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in rows])

    # The journal

    def entries(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        table = schema.journal
        query = select(table).order_by(table.c.sequence)
        if after:
            query = query.where(table.c.sequence > after)
        if kinds:
            query = query.where(among(table.c.kind, kinds))
        if kinds and ROUND not in kinds:
            # Said once more, in the words of the index, which is not used otherwise.
            query = query.where(schema.NOT_A_ROUND)
        # What is new is little, and not worth a cursor on the server.
        streamed = {} if after else {"yield_per": _ENTRIES_AT_ONCE}
        with self._connected() as connection, connection.execute(query, execution_options=streamed) as rows:
            yield from map(_entry, rows)

    def _run_secret(self) -> bytes:
        return bytes(self._value(select(schema.run.c.secret)))

    def outside_secret(self, purpose: str) -> bytes:
        if self._outside_secret is None:
            outside = read_secret(self.secret_file)
            (run,) = self._rows(select(schema.run))
            bound = bind_secret(outside, run.secret)
            if not hmac.compare_digest(derive_secret(bound, CHECK), run.secret_check):
                raise secret_mismatch(self.secret_file)
            self._outside_secret = bound
        return derive_secret(self._outside_secret, purpose)

    def last_entry(self) -> Entry | None:
        table = schema.journal
        rows = self._rows(select(table).order_by(table.c.sequence.desc()).limit(1))
        return _entry(rows[0]) if rows else None

    def _add_entry(self, entry: Entry, stamped: bytes) -> None:
        text = canonical(entry.body).decode()
        row = (entry.sequence, entry.kind, entry.time, text, entry.root, entry.head, stamped)
        self._insert(schema.journal, [row])

    # Clients

    def _last_pseudonym(self) -> int:
        return self._value(select(func.max(schema.client.c.pseudonym))) or 0

    def _add_clients(self, clients: Sequence[tuple[int, str, bytes]]) -> None:
        self._insert(schema.client, [(client, secrets.token_bytes(KEY_BYTES), None) for client, _, _ in clients])
        self._insert(schema.identity, [(client, name, None, nonce) for client, name, nonce in clients])

    def _identities(
        self, clients: Collection[int] | None = None, names: Collection[str] | None = None, *, labelled: bool = False
    ) -> Sequence[Any]:
        table = schema.identity
        query = select(table).order_by(table.c.pseudonym) if names is None else select(table)
        if isinstance(clients, range):
            query = query.where(table.c.pseudonym.between(clients.start, clients.stop - 1))
        elif clients is not None:
            query = query.where(among(table.c.pseudonym, clients))
        if names is not None:
            query = query.where(among(table.c.name, names))
        return self._rows(query.where(table.c.label.is_not(None)) if labelled else query)

    def count_names(self) -> int:
        return int(self._value(select(func.count()).select_from(schema.identity)))

    def _erased_among(self, digests: Collection[str]) -> list[tuple[str, int]]:
        table = schema.suppression
        return self._pairs(select(table).where(among(table.c.digest, digests)))

    def _set_labels(self, labels: Mapping[int, str]) -> None:
        table = schema.identity
        self._write(
            *(
                update(table).where(table.c.pseudonym == client).values(label=label)
                for client, label in labels.items()
            )
        )

    def _erased_leaves(self, first: int, last: int) -> dict[int, bytes]:
        kept = schema.client
        within = select(kept.c.pseudonym, kept.c.name_leaf).where(kept.c.pseudonym.between(first, last))
        return dict(self._pairs(within.where(kept.c.name_leaf.is_not(None))))

    def keys(self, clients: Clients) -> dict[int, bytes]:
        table = schema.client
        chosen = among(table.c.pseudonym, clients.tolist())
        return dict(self._pairs(select(table.c.pseudonym, table.c.key).where(chosen, table.c.key.is_not(None))))

    # Rounds and kept models

    def _add_round(self, sequence: int, round_: RoundRecord, release: Sequence[ModelId]) -> None:
        model_id, model, branch, kept = round_.model_id, bytes.fromhex(round_.model), schema.branch, schema.kept
        self._insert_round(sequence, round_, model)
        self._write(update(branch).where(branch.c.number == model_id.branch).values(last_round=model_id.round))
        self._insert(kept, [(model_id.branch, model_id.round, model)])
        self._release(release)

    def _insert_round(self, sequence: int, round_: RoundRecord, model: bytes) -> None:
        gram = None if round_.gram is None else round_.gram.astype("<f8").tobytes()
        row = (
            *(sequence, round_.model_id.branch, round_.model_id.round),
            *(round_.factor, round_.rounding, round_.update_norm),
            *(model, round_.salt, round_.participants.tobytes(), gram),
        )
        self._insert(schema.round_, [row])
        segment = sequence // schema.ROUNDS_PER_SEGMENT
        rows = select(literal(segment, Integer), as_table(round_.clients.tolist()), literal(sequence, Integer))
        self._write(insert(schema.participation).from_select(["segment", "client", "round"], rows))

    def _release(self, model_ids: Sequence[ModelId]) -> None:
        kept = schema.kept.c
        self._write(
            *(delete(schema.kept).where(kept.branch == left.branch, kept.round == left.round) for left in model_ids)
        )

    def _add_branch(self, number: int, model: str) -> None:
        self._insert(schema.branch, [(number, 0)])
        self._insert(schema.kept, [(number, 0, bytes.fromhex(model))])

    def last_round(self, branch: int) -> int:
        table = schema.branch
        last = self._value(select(table.c.last_round).where(table.c.number == branch))
        return -1 if last is None else last

    def rounds(self, span: Span, wanted: Collection[int] | None = None) -> Iterator[RoundRecord]:
        table = schema.round_
        query, count = select(table).where(_within(table, span)).order_by(table.c.round), span.last - span.first + 1
        if wanted is not None:
            query, count = query.where(among(table.c.round, wanted)), len(wanted)
        with self._connected() as connection:
            # A few rounds are not worth a cursor on the server, which has to be asked three more times for it.
            few = count <= _ROUNDS_AT_ONCE
            with connection.execute(query) if few else _streamed(connection, query, _ROUNDS_AT_ONCE) as rows:
                yield from map(_round, rows)

    def absent_rounds(self, span: Span) -> NDArray[np.void]:
        with self._connected() as connection:
            if connection.dialect.name == "postgresql":
                return schema.absent_rounds(connection, span)
            table = schema.round_
            query = select(table.c.round, table.c.factor, table.c.rounding).where(_within(table, span))
            # Ten thousand rows at once would wake the garbage collector, which takes longer than reading them.
            rows = _streamed(connection, query.order_by(table.c.round), _ENTRIES_AT_ONCE)
            parts = [np.array([tuple(row) for row in part], dtype=ABSENT_ROUNDS) for part in rows.partitions()]
        return np.concatenate([np.empty(0, dtype=ABSENT_ROUNDS), *parts])

    def rounds_of(self, clients: Clients) -> list[ModelId]:
        with self._connected() as connection:
            rows = schema.joined(connection, clients.tolist())
        return [ModelId(*row) for row in rows]

    def indexed_participants(self, span: Span) -> Iterator[tuple[ModelId, Clients]]:
        table = schema.round_
        query = select(table.c.sequence, table.c.round).where(_within(table, span)).order_by(table.c.sequence)
        model_ids = {sequence: ModelId(span.branch, number) for sequence, number in self._rows(query)}
        segments: dict[int, list[int]] = {}
        for sequence in model_ids:
            segments.setdefault(sequence // schema.ROUNDS_PER_SEGMENT, []).append(sequence)
        for segment, sequences in segments.items():
            participants = select(schema.participation.c.round, schema.participation.c.client)
            rows = self._pairs(participants.where(schema.participation.c.segment == segment))
            pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
            for sequence in sequences:
                yield model_ids[sequence], np.sort(pairs[pairs[:, 0] == sequence, 1])

    def kept(self) -> dict[ModelId, str]:
        table = schema.kept
        rows = self._rows(select(table).order_by(table.c.branch, table.c.round))
        return {ModelId(row.branch, row.round): row.model.hex() for row in rows}

    def _replace_objects(self, objects: Mapping[int, str]) -> None:
        table = schema.client_object
        self._write(delete(table).where(among(table.c.client, list(objects))))
        self._insert(table, [(client, bytes.fromhex(digest)) for client, digest in objects.items()])

    def objects(self) -> dict[int, str]:
        pairs = self._pairs(select(schema.client_object).order_by(schema.client_object.c.client))
        return {client: digest.hex() for client, digest in pairs}

    # What is derived

    def bounds_since(self) -> int | None:
        # The oldest, should somebody have put one beside it.
        oldest: int | None = self._value(select(func.min(schema.bounds.c.sequence)))
        return oldest

    def _read_bounds(self) -> tuple[int, bytes, bytes, bytes] | None:
        table, journal = schema.bounds, schema.journal
        query = select(table.c.sequence, journal.c.head, table.c.seal, table.c.content).join(
            journal, journal.c.sequence == table.c.sequence
        )
        # Asked by the database: what somebody else put there need not fit into memory.
        fits = func.length(table.c.content) <= LARGEST_BOUNDS
        for sequence, *values in self._rows(query.where(fits).order_by(table.c.sequence).limit(1)):
            # SQLite lets a column hold anything, also a text in place of bytes.
            if all(isinstance(value, bytes) for value in values):
                return sequence, *values
        return None

    def _replace_bounds(self, kept: tuple[int, bytes, bytes] | None) -> None:
        self._write(delete(schema.bounds))
        self._insert(schema.bounds, [kept] if kept else [])

    # Erasure

    def _drop_identities(self, leaves: Mapping[int, bytes], digests: Sequence[tuple[str, int]]) -> None:
        clients, names = schema.client, schema.identity
        self._insert(schema.suppression, digests)
        for client, leaf in leaves.items():
            self._write(update(clients).where(clients.c.pseudonym == client).values(name_leaf=leaf))
        self._write(delete(names).where(among(names.c.pseudonym, leaves)))

    def _drop_rounds(self, spans: Sequence[Span]) -> None:
        joined, table = schema.participation, schema.round_
        for span in spans:
            sequences = [row.sequence for row in self._rows(select(table.c.sequence).where(_within(table, span)))]
            for segment in sorted({sequence // schema.ROUNDS_PER_SEGMENT for sequence in sequences}):
                self._write(delete(joined).where(joined.c.segment == segment, among(joined.c.round, sequences)))
            self._write(*(delete(rows).where(_within(rows, span)) for rows in (table, schema.kept)))

    def _replace_stretches(self, superseded: Sequence[int], stretch: Stretch | None) -> None:
        table = schema.stretch
        self._write(delete(table).where(among(table.c.branch, superseded)))
        if stretch is not None:
            origin, remaining = stretch.origin, stretch.remaining.astype(REMAINING).tobytes()
            row = (stretch.branch, origin.branch, origin.round, stretch.common_factor, stretch.salt, remaining)
            self._insert(table, [row])

    def erase_objects(self, clients: Clients) -> None:
        table = schema.client_object
        with self._transaction():
            self._write(delete(table).where(among(table.c.client, clients.tolist())))

    def erase_keys(self, clients: Clients) -> None:
        table = schema.client
        with self._transaction():
            self._write(update(table).where(among(table.c.pseudonym, clients.tolist())).values(key=None))

    def stretches(self) -> dict[int, Stretch]:
        table = schema.stretch
        return {row.branch: _stretch(row) for row in self._rows(select(table).order_by(table.c.branch))}

    def compact(self) -> tuple[str, ...]:
        with self._held():
            left = self._database.compact()
        with self._connected() as connection:
            return (*left, *find_strange_objects(connection), *find_strange_files(connection))

    def unstamped_entries(self) -> list[int]:
        table, secret = schema.journal, self.outside_secret(STAMPS)
        query = select(table.c.sequence, table.c.head, table.c.stamp).order_by(table.c.sequence)
        with self._connected() as connection, _streamed(connection, query, _ENTRIES_AT_ONCE) as rows:
            return [row.sequence for row in rows if not _is_stamped(row, secret)]

    def erased_name_digests(self) -> list[tuple[str, int]]:
        table = schema.suppression
        return self._pairs(select(table).order_by(table.c.digest, table.c.pseudonym))

    def foreign_objects(self) -> Iterator[str]:
        with self._connected() as connection:
            yield from find_strange_objects(connection)
            yield from find_strange_files(connection)
            yield from find_strange_rows(connection)

    def copies(self) -> tuple[str, ...]:
        return self._database.copies()

    # Transactions

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._check_open()
        if self._own.connection is not None:
            # It is read as it was at one moment already, or as the transaction that is under way left it.
            yield
            return
        options = self._database.snapshot_options
        reader = self._database.engine.connect().execution_options(**options)
        with reader as connection, connection.begin(), self._using(connection):
            _check_version(connection.execute(select(schema.run.c.schema_version)).scalar_one())
            yield

    @contextmanager
    def _using(self, connection: Connection) -> Iterator[Connection]:
        """Let all that this thread reads and writes meanwhile go through one connection."""
        before, self._own.connection = self._own.connection, connection
        try:
            yield connection
        finally:
            self._own.connection = before

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Return the connection of the transaction that is under way in this thread, or one to read with."""
        self._check_open()
        if self._own.connection is not None:
            yield self._own.connection
            return
        with self._database.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def turn(self) -> Iterator[None]:
        self._check_open()
        if self._own.connection is not None and is_writing(self._own.connection):
            yield
            return
        # Before anything is written, and before a transaction is held up by a file.
        self.outside_secret(STAMPS)
        with self._database.transaction() as connection, self._using(connection):
            _take_turn(connection)
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.outside_secret(STAMPS)
        with self._held() as writer, self._database.transaction(writer), self._using(writer):
            _take_turn(writer)
            yield

    @contextmanager
    def _held(self) -> Iterator[Connection]:
        with self._turn, ExitStack() as stack:
            if self._writer is None:
                stack.enter_context(self.writing())
            writer = self._writer
            if writer is None or writer.invalidated:
                # A new connection would go on without the lock, which another writer may have by now.
                raise HistoryError(f"the connection to {self._database.where} was lost: open the history again")
            yield writer

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("this ledger is closed: open it again")


def _take_turn(connection: Connection) -> None:
    """Wait, in a transaction that writes, until PostgreSQL gives it its turn; the schema is still the one opened."""
    _check_version(connection.execute(_VERSION).scalar_one())


def _check_version(version: int) -> None:
    """Refuse to go on with another schema than the one that was opened."""
    if version != schema.SCHEMA_VERSION:
        raise SchemaVersionError(
            f"this history was upgraded to schema {version} meanwhile, and this rescind knows up to "
            f"{schema.SCHEMA_VERSION}: nothing was written. Install a newer rescind"
        )


def _streamed(connection: Connection, query: Select[Any], at_once: int) -> Result[Any]:
    """Read what may not fit into memory, all from one snapshot however long it takes."""
    return connection.execute(query, execution_options={"yield_per": at_once})


def _within(table: Table, span: Span) -> ColumnElement[bool]:
    return and_(table.c.branch == span.branch, table.c.round.between(span.first, span.last))


def _is_stamped(row: Row[Any], secret: bytes) -> bool:
    return isinstance(row.head, bytes) and row.stamp == stamp(secret, row.head)


def _entry(row: Row[Any]) -> Entry:
    try:
        body = json.loads(row.body)
    except (TypeError, ValueError, RecursionError) as unreadable:
        raise BrokenHistoryError(f"entry {row.sequence} cannot be read: {unreadable}") from unreadable
    # SQLite lets a column hold anything.
    fits = isinstance(body, dict) and isinstance(row.kind, str) and isinstance(row.time, str)
    if not fits or not isinstance(row.root, bytes) or not isinstance(row.head, bytes):
        raise BrokenHistoryError(f"entry {row.sequence} cannot be read: it is none that a ledger writes")
    return Entry(row.sequence, row.kind, row.time, body, row.root, row.head)


def _round(row: Row[Any]) -> RoundRecord:
    model_id = ModelId(row.branch, row.round)
    try:
        participants = np.frombuffer(row.participants, dtype=PARTICIPANT)
        count = len(participants)
        return RoundRecord(
            model_id=model_id,
            participants=participants,
            update_norm=row.update_norm,
            rounding=row.rounding,
            factor=row.factor,
            model=row.model.hex(),
            gram=None if row.gram is None else np.frombuffer(row.gram, dtype="<f8").reshape(count, count),
            salt=row.salt,
        )
    except ValueError as unreadable:
        raise BrokenHistoryError(f"the numbers of {model_id} cannot be read: {unreadable}") from unreadable


def _stretch(row: Row[Any]) -> Stretch:
    return Stretch(
        branch=row.branch,
        origin=ModelId(row.origin_branch, row.origin_round),
        remaining=np.frombuffer(row.remaining, dtype=REMAINING),
        common_factor=row.common_factor,
        salt=row.salt,
    )
