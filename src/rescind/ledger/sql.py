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
from rescind.ledger.commitments import KEY_BYTES, canonical, label_leaf, name_leaf, next_entry, stamp
from rescind.ledger.contract import (
    ABSENT_ROUNDS,
    CHECK,
    LARGEST_BOUNDS,
    RETURNING,
    ROUND,
    STAMPS,
    Ledger,
    bind_secret,
    derive_secret,
    erased_digests,
    normalise_body,
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
        with self._connected() as connection:
            return bytes(connection.execute(select(schema.run.c.secret)).scalar_one())

    def outside_secret(self, purpose: str) -> bytes:
        if self._outside_secret is None:
            outside = read_secret(self.secret_file)
            with self._connected() as connection:
                run = connection.execute(select(schema.run)).one()
            bound = bind_secret(outside, run.secret)
            if not hmac.compare_digest(derive_secret(bound, CHECK), run.secret_check):
                raise secret_mismatch(self.secret_file)
            self._outside_secret = bound
        return derive_secret(self._outside_secret, purpose)

    def last_entry(self) -> Entry | None:
        table = schema.journal
        with self._connected() as connection:
            row = connection.execute(select(table).order_by(table.c.sequence.desc()).limit(1)).first()
        return None if row is None else _entry(row)

    # Clients

    def _last_pseudonym(self) -> int:
        with self._connected() as connection:
            return int(connection.execute(select(func.coalesce(func.max(schema.client.c.pseudonym), 0))).scalar_one())

    def _add_clients(self, clients: Sequence[tuple[int, str, bytes]]) -> None:
        keys = [(client, secrets.token_bytes(KEY_BYTES), None) for client, _, _ in clients]
        with self._connected() as connection:
            _insert(connection, schema.client, keys)
            _insert(connection, schema.identity, [(client, name, None, nonce) for client, name, nonce in clients])

    def _rows_of_identities(self, *conditions: ColumnElement[bool]) -> Sequence[Any]:
        table = schema.identity
        with self._connected() as connection:
            return connection.execute(select(table).where(*conditions).order_by(table.c.pseudonym)).all()

    def identities(self) -> dict[str, int]:
        return {row.name: row.pseudonym for row in self._rows_of_identities()}

    def count_names(self) -> int:
        with self._connected() as connection:
            return int(connection.execute(select(func.count()).select_from(schema.identity)).scalar_one())

    def names(self, clients: Clients) -> dict[int, str]:
        rows = self._rows_of_identities(among(schema.identity.c.pseudonym, clients.tolist()))
        return {row.pseudonym: row.name for row in rows}

    def _pseudonyms(self, names: list[str]) -> dict[str, int]:
        table = schema.identity
        with self._connected() as connection:
            rows = connection.execute(select(table.c.name, table.c.pseudonym).where(among(table.c.name, names))).all()
        # Unpacked, because asking a thousand rows for their columns by name takes as long as the query.
        return {name: pseudonym for name, pseudonym in rows}  # noqa: C416

    def _erased_among(self, digests: Collection[str]) -> list[tuple[str, int]]:
        table = schema.suppression
        with self._connected() as connection:
            rows = connection.execute(select(table).where(among(table.c.digest, digests))).all()
        return [(digest, client) for digest, client in rows]

    def _identities_of(self, names: Collection[str]) -> Sequence[Any]:
        return self._rows_of_identities(among(schema.identity.c.name, names))

    def _set_labels(self, labels: Mapping[int, str]) -> None:
        table = schema.identity
        with self._connected() as connection:
            for client, label in labels.items():
                connection.execute(update(table).where(table.c.pseudonym == client).values(label=label))

    def labels(self) -> dict[int, str]:
        rows = self._rows_of_identities(schema.identity.c.label.is_not(None))
        return {client: label for client, _, label, _ in rows}

    def name_leaves(self, first: int, last: int) -> dict[int, bytes]:
        kept = schema.client
        within = select(kept.c.pseudonym, kept.c.name_leaf).where(kept.c.pseudonym.between(first, last))
        with self._connected() as connection, self._using(connection):
            left = connection.execute(within.where(kept.c.name_leaf.is_not(None))).all()
            rows = self._rows_of_identities(schema.identity.c.pseudonym.between(first, last))
        present = {client: name_leaf(nonce, client, name) for client, name, _, nonce in rows}
        return dict(sorted(({client: leaf for client, leaf in left} | present).items()))  # noqa: C416

    def label_leaves(self) -> dict[int, bytes]:
        rows = self._rows_of_identities(schema.identity.c.label.is_not(None))
        return {client: label_leaf(nonce, client, label) for client, _, label, nonce in rows}

    def keys(self, clients: Clients) -> dict[int, bytes]:
        table = schema.client
        chosen = among(table.c.pseudonym, clients.tolist())
        query = select(table.c.pseudonym, table.c.key).where(chosen, table.c.key.is_not(None))
        with self._connected() as connection:
            rows = connection.execute(query).all()
        return {pseudonym: key for pseudonym, key in rows}  # noqa: C416

    # Rounds and kept models

    def _add_round(self, sequence: int, round_: RoundRecord, release: Sequence[ModelId]) -> None:
        model_id, model, branch = round_.model_id, bytes.fromhex(round_.model), schema.branch
        with self._connected() as connection:
            _insert_round(connection, sequence, round_, model)
            connection.execute(
                update(branch).where(branch.c.number == model_id.branch).values(last_round=model_id.round)
            )
            _insert(connection, schema.kept, [(model_id.branch, model_id.round, model)])
            _release(connection, release)

    def _add_branch(self, number: int, model: str) -> None:
        with self._connected() as connection:
            _insert(connection, schema.branch, [(number, 0)])
            _insert(connection, schema.kept, [(number, 0, bytes.fromhex(model))])

    def last_round(self, branch: int) -> int:
        table = schema.branch
        with self._connected() as connection:
            last = connection.execute(select(table.c.last_round).where(table.c.number == branch)).scalar()
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
        with self._connected() as connection:
            model_ids = {row.sequence: ModelId(span.branch, row.round) for row in connection.execute(query)}
        segments: dict[int, list[int]] = {}
        for sequence in model_ids:
            segments.setdefault(sequence // schema.ROUNDS_PER_SEGMENT, []).append(sequence)
        for segment, sequences in segments.items():
            with self._connected() as connection:
                participants = select(schema.participation.c.round, schema.participation.c.client)
                rows = connection.execute(participants.where(schema.participation.c.segment == segment)).all()
            pairs = np.array([tuple(row) for row in rows], dtype=np.int64).reshape(-1, 2)
            for sequence in sequences:
                yield model_ids[sequence], np.sort(pairs[pairs[:, 0] == sequence, 1])

    def kept(self) -> dict[ModelId, str]:
        table = schema.kept
        with self._connected() as connection:
            rows = connection.execute(select(table).order_by(table.c.branch, table.c.round)).all()
        return {ModelId(row.branch, row.round): row.model.hex() for row in rows}

    def _replace_object(self, client: int, digest: str) -> None:
        with self._connected() as connection:
            connection.execute(delete(schema.client_object).where(schema.client_object.c.client == client))
            _insert(connection, schema.client_object, [(client, bytes.fromhex(digest))])

    def objects(self) -> dict[int, str]:
        with self._connected() as connection:
            rows = connection.execute(select(schema.client_object).order_by(schema.client_object.c.client)).all()
        return {row.client: row.digest.hex() for row in rows}

    # What is derived

    def bounds_since(self) -> int | None:
        with self._connected() as connection:
            # The oldest, should somebody have put one beside it.
            oldest: int | None = connection.execute(select(func.min(schema.bounds.c.sequence))).scalar_one()
        return oldest

    def _read_bounds(self) -> tuple[int, bytes, bytes, bytes] | None:
        table, journal = schema.bounds, schema.journal
        query = select(table.c.sequence, journal.c.head, table.c.seal, table.c.content).join(
            journal, journal.c.sequence == table.c.sequence
        )
        # Asked by the database: what somebody else put there need not fit into memory.
        fits = func.length(table.c.content) <= LARGEST_BOUNDS
        with self._connected() as connection:
            row = connection.execute(query.where(fits).order_by(table.c.sequence).limit(1)).first()
        # SQLite lets a column hold anything, also a text in place of bytes.
        if row is None or not all(isinstance(value, bytes) for value in row[1:]):
            return None
        return row.sequence, row.head, row.seal, row.content

    def _replace_bounds(self, kept: tuple[int, bytes, bytes] | None) -> None:
        with self._connected() as connection:
            connection.execute(delete(schema.bounds))
            _insert(connection, schema.bounds, [kept] if kept else [])

    # Erasure

    def erase_identities(self, clients: Clients, *, may_return: bool = False) -> None:
        table, secret = schema.identity, self.outside_secret(RETURNING)
        chosen_names = among(table.c.pseudonym, clients.tolist())
        with self._transaction() as connection:
            rows = self._rows_of_identities(chosen_names)
            for client, name, label, nonce in rows:
                if not may_return:
                    _insert(connection, schema.suppression, erased_digests(secret, client, name, label))
                chosen, leaf = schema.client.c.pseudonym == client, name_leaf(nonce, client, name)
                connection.execute(update(schema.client).where(chosen).values(name_leaf=leaf))
            connection.execute(delete(table).where(chosen_names))

    def _drop_rounds(self, spans: Sequence[Span]) -> None:
        with self._connected() as connection:
            for span in spans:
                _erase_participations(connection, span)
                for table in (schema.round_, schema.kept):
                    connection.execute(delete(table).where(_within(table, span)))

    def _replace_stretches(self, superseded: Sequence[int], stretch: Stretch | None) -> None:
        table = schema.stretch
        with self._connected() as connection:
            connection.execute(delete(table).where(among(table.c.branch, superseded)))
            if stretch is not None:
                origin, remaining = stretch.origin, stretch.remaining.astype(REMAINING).tobytes()
                row = (stretch.branch, origin.branch, origin.round, stretch.common_factor, stretch.salt, remaining)
                _insert(connection, table, [row])

    def erase_objects(self, clients: Clients) -> None:
        table = schema.client_object
        with self._transaction() as connection:
            connection.execute(delete(table).where(among(table.c.client, clients.tolist())))

    def erase_keys(self, clients: Clients) -> None:
        table = schema.client
        with self._transaction() as connection:
            chosen = among(table.c.pseudonym, clients.tolist())
            connection.execute(update(table).where(chosen).values(key=None))

    def stretches(self) -> dict[int, Stretch]:
        table = schema.stretch
        with self._connected() as connection:
            rows = connection.execute(select(table).order_by(table.c.branch)).all()
        return {row.branch: _stretch(row) for row in rows}

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
        with self._connected() as connection:
            rows = connection.execute(select(table).order_by(table.c.digest, table.c.pseudonym)).all()
        return [(digest, client) for digest, client in rows]

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
    def _transaction(self) -> Iterator[Connection]:
        self.outside_secret(STAMPS)
        with self._held() as writer, self._database.transaction(writer), self._using(writer):
            _take_turn(writer)
            yield writer

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

    def _append(self, kind: str, body: Mapping[str, Any], time: str, root: bytes = b"") -> Entry:
        with self._connected() as connection:
            entry = next_entry(self.last_entry(), kind, time, normalise_body(body), root)
            text, stamped = canonical(entry.body).decode(), stamp(self.outside_secret(STAMPS), entry.head)
            _insert(connection, schema.journal, [(entry.sequence, kind, time, text, root, entry.head, stamped)])
        return entry


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


def _insert_round(connection: Connection, sequence: int, round_: RoundRecord, model: bytes) -> None:
    gram = None if round_.gram is None else round_.gram.astype("<f8").tobytes()
    _insert(
        connection,
        schema.round_,
        [
            (
                *(sequence, round_.model_id.branch, round_.model_id.round),
                *(round_.factor, round_.rounding, round_.update_norm),
                *(model, round_.salt, round_.participants.tobytes(), gram),
            )
        ],
    )
    segment = sequence // schema.ROUNDS_PER_SEGMENT
    rows = select(literal(segment, Integer), as_table(round_.clients.tolist()), literal(sequence, Integer))
    connection.execute(insert(schema.participation).from_select(["segment", "client", "round"], rows))


def _erase_participations(connection: Connection, span: Span) -> None:
    joined, table = schema.participation, schema.round_
    sequences = connection.execute(select(table.c.sequence).where(_within(table, span))).scalars().all()
    segments = {sequence // schema.ROUNDS_PER_SEGMENT for sequence in sequences}
    for segment in sorted(segments):
        chosen = and_(joined.c.segment == segment, among(joined.c.round, sequences))
        connection.execute(delete(joined).where(chosen))


def _release(connection: Connection, model_ids: Sequence[ModelId]) -> None:
    table = schema.kept
    for model_id in model_ids:
        connection.execute(delete(table).where(table.c.branch == model_id.branch, table.c.round == model_id.round))


def _insert(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert rows that have the table's columns in its order."""
    names = table.columns.keys()
    if rows:
        connection.execute(insert(table), [dict(zip(names, row, strict=True)) for row in rows])


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
