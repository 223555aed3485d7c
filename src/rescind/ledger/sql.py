"""The durable ledger, on SQLite or PostgreSQL: fixed statements, bound values, one transaction a method."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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
from rescind.errors import BrokenHistoryError, ForgottenClientError, HistoryError
from rescind.ledger import schema
from rescind.ledger.commitments import (
    KEY_BYTES,
    NO_HEAD,
    canonical,
    label_leaf,
    merkle_root,
    name_leaf,
    next_entry,
    round_root,
    stamp,
)
from rescind.ledger.contract import (
    ABSENT_ROUNDS,
    BRANCH,
    CHECK,
    LABEL,
    REGISTRATION,
    REJECTION,
    REMAINS,
    RETURNING,
    ROUND,
    STAMPS,
    Ledger,
    bind_secret,
    check_round,
    derive_secret,
    label_body,
    name_digest,
    normalise_body,
    registration_body,
    rejection_body,
    run_identifier,
)
from rescind.ledger.databases import Database, Postgresql, Sqlite
from rescind.ledger.records import PARTICIPANT, REMAINING, Entry, ModelId, RoundRecord, Span, Stretch
from rescind.ledger.schema import among, as_table
from rescind.ledger.secret_file import make_secret, read_secret, secret_mismatch
from rescind.ledger.strays import find_strange_objects, find_strange_rows

# A round can hold megabytes, an entry a few hundred bytes.
_ROUNDS_AT_ONCE = 16
_ENTRIES_AT_ONCE = 1000


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
        self._snapshot = threading.local()
        self._closed = False

    @classmethod
    def sqlite(cls, path: Path, secret: Path | None, *, create: bool = False) -> SqlLedger:
        """Open the file of a run, or make a new one, which only its owner can read; ``secret`` is its secret file."""
        return cls._opened(Sqlite(path), secret, create)

    @classmethod
    def postgresql(cls, address: str, run: str, secret: Path | None, *, create: bool = False) -> SqlLedger:
        """Open a run of a PostgreSQL database, or make a new one, in the schema ``rescind_<run>``."""
        return cls._opened(Postgresql(address, run), secret, create)

    @classmethod
    def _opened(cls, database: Database, secret: Path | None, create: bool) -> SqlLedger:
        try:
            if create:
                database.create(make_secret(secret))
            else:
                database.open()
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

    # The journal

    def append(self, kind: str, body: Mapping[str, Any], time: str) -> Entry:
        with self._beside_the_writer() as connection:
            return self._append(connection, kind, body, time)

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
        with self._reading() as connection, _streamed(connection, query, _ENTRIES_AT_ONCE) as rows:
            yield from map(_entry, rows)

    def identifier(self) -> str:
        with self._reading() as connection:
            secret = connection.execute(select(schema.run.c.secret)).scalar_one()
        return run_identifier(secret)

    def secret(self, purpose: str) -> bytes:
        with self._reading() as connection:
            return derive_secret(connection.execute(select(schema.run.c.secret)).scalar_one(), purpose)

    def outside_secret(self, purpose: str) -> bytes:
        if self._outside_secret is None:
            outside = read_secret(self.secret_file)
            with self._reading() as connection:
                run = connection.execute(select(schema.run)).one()
            bound = bind_secret(outside, run.secret)
            if not hmac.compare_digest(derive_secret(bound, CHECK), run.secret_check):
                raise secret_mismatch(self.secret_file)
            self._outside_secret = bound
        return derive_secret(self._outside_secret, purpose)

    def head(self) -> bytes:
        with self._reading() as connection:
            last = _last_entry(connection)
        return last.head if last else NO_HEAD

    # Clients

    def _register(self, names: list[str], time: str) -> Clients:
        # Nearly always all are known: then nothing is written, and no turn is waited for.
        known = self.pseudonyms(names)
        if all(name in known for name in names):
            return np.array([known[name] for name in names], dtype=np.int64)
        secret = self.outside_secret(RETURNING)
        with self._beside_the_writer() as connection:
            known = _pseudonyms(connection, names)
            new = [name for name in dict.fromkeys(names) if name not in known]
            # Whoever is known was not erased.
            gone = _forgotten(connection, secret, new)
            if gone:
                raise ForgottenClientError(sorted(gone))
            given_out = connection.execute(select(func.coalesce(func.max(schema.client.c.pseudonym), 0))).scalar_one()
            assigned = {name: number for number, name in enumerate(new, start=given_out + 1)}
            if assigned:
                self._insert_clients(connection, assigned, time)
        known |= assigned
        return np.array([known[name] for name in names], dtype=np.int64)

    def identities(self) -> dict[str, int]:
        table = schema.identity
        with self._reading() as connection:
            rows = connection.execute(select(table).order_by(table.c.pseudonym)).all()
        return {row.name: row.pseudonym for row in rows}

    def names(self, clients: Clients) -> dict[int, str]:
        with self._reading() as connection:
            return _names(connection, clients)

    def _pseudonyms(self, names: list[str]) -> dict[str, int]:
        with self._reading() as connection:
            return _pseudonyms(connection, names)

    def _forgotten(self, names: list[str]) -> set[str]:
        secret = self.outside_secret(RETURNING)
        with self._reading() as connection:
            return _forgotten(connection, secret, names)

    def _label(self, labels: Mapping[str, str], time: str) -> None:
        table = schema.identity
        with self._beside_the_writer() as connection:
            rows = connection.execute(select(table).where(among(table.c.name, labels))).all()
            changed = [row for row in rows if row.label != labels[row.name]]
            leaves = {row.pseudonym: label_leaf(row.nonce, row.pseudonym, labels[row.name]) for row in changed}
            if leaves:
                self._append(connection, LABEL, label_body(leaves), time)
            for row in changed:
                chosen = table.c.pseudonym == row.pseudonym
                connection.execute(update(table).where(chosen).values(label=labels[row.name]))

    def labels(self) -> dict[int, str]:
        table = schema.identity
        query = select(table.c.pseudonym, table.c.label).where(table.c.label.is_not(None))
        with self._reading() as connection:
            rows = connection.execute(query.order_by(table.c.pseudonym)).all()
        return {pseudonym: label for pseudonym, label in rows}  # noqa: C416

    def name_leaves(self, first: int, last: int) -> dict[int, bytes]:
        names, kept = schema.identity, schema.client
        within = select(kept.c.pseudonym, kept.c.name_leaf).where(kept.c.pseudonym.between(first, last))
        with self._reading() as connection:
            left = connection.execute(within.where(kept.c.name_leaf.is_not(None))).all()
            rows = connection.execute(select(names).where(names.c.pseudonym.between(first, last))).all()
        present = {client: name_leaf(nonce, client, name) for client, name, _, nonce in rows}
        return dict(sorted(({client: leaf for client, leaf in left} | present).items()))  # noqa: C416

    def label_leaves(self) -> dict[int, bytes]:
        table = schema.identity
        with self._reading() as connection:
            rows = connection.execute(select(table).where(table.c.label.is_not(None))).all()
        return {row.pseudonym: label_leaf(row.nonce, row.pseudonym, row.label) for row in rows}

    def keys(self, clients: Clients) -> dict[int, bytes]:
        with self._reading() as connection:
            return _keys(connection, clients)

    # Rounds and kept models

    def _commit_round(
        self,
        round_: RoundRecord,
        time: str,
        release: Sequence[ModelId],
        updates: Mapping[int, str],
        rejected: Mapping[int, str],
    ) -> Entry:
        model_id, model = round_.model_id, bytes.fromhex(round_.model)
        stored = [(model_id.branch, model_id.round, client, bytes.fromhex(of)) for client, of in updates.items()]
        with self._transaction() as connection:
            keys = _keys(connection, round_.clients)
            check_round(round_, _last_round(connection, model_id.branch), keys)
            if rejected:
                self._append(connection, REJECTION, rejection_body(model_id, rejected), time)
            body = {"branch": model_id.branch, "round": model_id.round}
            entry = self._append(connection, ROUND, body, time, round_root(round_, keys))
            _insert_round(connection, entry.sequence, round_, model)
            branch = schema.branch
            connection.execute(
                update(branch).where(branch.c.number == model_id.branch).values(last_round=model_id.round)
            )
            _insert(connection, schema.kept, [(model_id.branch, model_id.round, model)])
            _insert(connection, schema.client_update, stored)
            _release(connection, release)
        return entry

    def _start_branch(self, number: int, model: str, body: Mapping[str, Any], time: str) -> Entry:
        digest = bytes.fromhex(model)
        with self._transaction() as connection:
            if _last_round(connection, number) >= 0:
                raise ValueError(f"branch {number} was started already")
            entry = self._append(connection, BRANCH, body, time)
            _insert(connection, schema.branch, [(number, 0)])
            _insert(connection, schema.kept, [(number, 0, digest)])
        return entry

    def last_round(self, branch: int) -> int:
        with self._reading() as connection:
            return _last_round(connection, branch)

    def rounds(self, span: Span) -> Iterator[RoundRecord]:
        table = schema.round_
        query = select(table).where(_within(table, span)).order_by(table.c.round)
        with self._reading() as connection:
            # A few rounds are not worth a cursor on the server, which has to be asked three more times for it.
            few = span.last - span.first < _ROUNDS_AT_ONCE
            with connection.execute(query) if few else _streamed(connection, query, _ROUNDS_AT_ONCE) as rows:
                yield from map(_round, rows)

    def absent_rounds(self, span: Span) -> NDArray[np.void]:
        table = schema.round_
        query = select(table.c.round, table.c.factor, table.c.rounding).where(_within(table, span))
        # Ten thousand rows at once would wake the garbage collector, which takes longer than reading them.
        with (
            self._reading() as connection,
            _streamed(connection, query.order_by(table.c.round), _ENTRIES_AT_ONCE) as rows,
        ):
            parts = [np.array([tuple(row) for row in part], dtype=ABSENT_ROUNDS) for part in rows.partitions()]
        return np.concatenate([np.empty(0, dtype=ABSENT_ROUNDS), *parts])

    def rounds_of(self, clients: Clients) -> list[ModelId]:
        with self._reading() as connection:
            last = connection.execute(select(func.max(schema.participation.c.segment))).scalar_one()
            rows = [] if last is None else schema.joined(connection, range(last + 1), clients.tolist())
        return [ModelId(*row) for row in rows]

    def indexed_participants(self, span: Span) -> Iterator[tuple[ModelId, Clients]]:
        table = schema.round_
        query = select(table.c.sequence, table.c.round).where(_within(table, span)).order_by(table.c.sequence)
        with self._reading() as connection:
            model_ids = {row.sequence: ModelId(span.branch, row.round) for row in connection.execute(query)}
        segments: dict[int, list[int]] = {}
        for sequence in model_ids:
            segments.setdefault(sequence // schema.ROUNDS_PER_SEGMENT, []).append(sequence)
        for segment, sequences in segments.items():
            with self._reading() as connection:
                participants = select(schema.participation.c.round, schema.participation.c.client)
                rows = connection.execute(participants.where(schema.participation.c.segment == segment)).all()
            pairs = np.array([tuple(row) for row in rows], dtype=np.int64).reshape(-1, 2)
            for sequence in sequences:
                yield model_ids[sequence], np.sort(pairs[pairs[:, 0] == sequence, 1])

    def kept(self) -> dict[ModelId, str]:
        table = schema.kept
        with self._reading() as connection:
            rows = connection.execute(select(table).order_by(table.c.branch, table.c.round)).all()
        return {ModelId(row.branch, row.round): row.model.hex() for row in rows}

    def updates(self, span: Span) -> dict[tuple[ModelId, int], str]:
        table = schema.client_update
        query = select(table).where(_within(table, span)).order_by(table.c.round, table.c.client)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return {(ModelId(row.branch, row.round), row.client): row.digest.hex() for row in rows}

    # Erasure

    def erase_identities(self, clients: Clients) -> None:
        table, secret = schema.identity, self.outside_secret(RETURNING)
        with self._transaction() as connection:
            rows = connection.execute(select(table).where(among(table.c.pseudonym, clients.tolist()))).all()
            _insert(connection, schema.suppression, [(name_digest(secret, row.name).hex(),) for row in rows])
            for row in rows:
                leaf, chosen = (
                    name_leaf(row.nonce, row.pseudonym, row.name),
                    schema.client.c.pseudonym == row.pseudonym,
                )
                connection.execute(update(schema.client).where(chosen).values(name_leaf=leaf))
            connection.execute(delete(table).where(among(table.c.pseudonym, [row.pseudonym for row in rows])))

    def erase_rounds(
        self,
        spans: Sequence[Span],
        stretch: Stretch | None = None,
        superseded: Sequence[int] = (),
        remains: tuple[Mapping[str, Any], str] | None = None,
    ) -> None:
        with self._transaction() as connection:
            if remains is not None:
                self._append(connection, REMAINS, *remains)
            for span in spans:
                _erase_participations(connection, span)
                for table in (schema.round_, schema.kept, schema.client_update):
                    connection.execute(delete(table).where(_within(table, span)))
            _replace_stretches(connection, superseded, stretch)

    def erase_updates(self, clients: Clients) -> None:
        table = schema.client_update
        with self._transaction() as connection:
            connection.execute(delete(table).where(among(table.c.client, clients.tolist())))

    def erase_keys(self, clients: Clients) -> None:
        table = schema.client
        with self._transaction() as connection:
            chosen = among(table.c.pseudonym, clients.tolist())
            connection.execute(update(table).where(chosen).values(key=None))

    def stretches(self) -> dict[int, Stretch]:
        table = schema.stretch
        with self._reading() as connection:
            rows = connection.execute(select(table).order_by(table.c.branch)).all()
        return {row.branch: _stretch(row) for row in rows}

    def compact(self) -> tuple[str, ...]:
        with self._held():
            left = self._database.compact()
        with self._reading() as connection:
            return (*left, *find_strange_objects(connection))

    def unstamped_entries(self) -> list[int]:
        table, secret = schema.journal, self.outside_secret(STAMPS)
        query = select(table.c.sequence, table.c.head, table.c.stamp).order_by(table.c.sequence)
        with self._reading() as connection, _streamed(connection, query, _ENTRIES_AT_ONCE) as rows:
            return [row.sequence for row in rows if not _is_stamped(row, secret)]

    def erased_name_digests(self) -> list[str]:
        table = schema.suppression
        with self._reading() as connection:
            return list(connection.execute(select(table.c.digest).order_by(table.c.digest)).scalars())

    def strays(self) -> Iterator[str]:
        with self._reading() as connection:
            yield from find_strange_objects(connection)
            yield from find_strange_rows(connection)

    def copies(self) -> tuple[str, ...]:
        return self._database.copies()

    # Transactions

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._check_open()
        options = self._database.snapshot_options
        with self._database.engine.connect().execution_options(**options) as connection, connection.begin():
            self._snapshot.connection = connection
            try:
                yield
            finally:
                self._snapshot.connection = None

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        self._check_open()
        snapshot = getattr(self._snapshot, "connection", None)
        if snapshot is not None:
            yield snapshot
            return
        with self._database.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def _beside_the_writer(self) -> Iterator[Connection]:
        self._check_open()
        # Before anything is written, and before a transaction is held up by a file.
        self.outside_secret(STAMPS)
        with self._database.transaction() as connection:
            _take_turn(connection)
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        self.outside_secret(STAMPS)
        with self._held() as writer, self._database.transaction(writer):
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

    def _append(
        self, connection: Connection, kind: str, body: Mapping[str, Any], time: str, root: bytes = b""
    ) -> Entry:
        entry = next_entry(_last_entry(connection), kind, time, normalise_body(body), root)
        text, stamped = canonical(entry.body).decode(), stamp(self.outside_secret(STAMPS), entry.head)
        _insert(connection, schema.journal, [(entry.sequence, kind, time, text, root, entry.head, stamped)])
        return entry

    def _insert_clients(self, connection: Connection, assigned: Mapping[str, int], time: str) -> None:
        rows = [(number, name, None, secrets.token_bytes(KEY_BYTES)) for name, number in assigned.items()]
        leaves = [name_leaf(nonce, number, name) for number, name, _, nonce in rows]
        self._append(connection, REGISTRATION, registration_body(assigned.values()), time, merkle_root(leaves))
        _insert(connection, schema.client, [(row[0], secrets.token_bytes(KEY_BYTES), None) for row in rows])
        _insert(connection, schema.identity, rows)


def _take_turn(connection: Connection) -> None:
    """Wait, in a transaction that writes, until PostgreSQL gives it its turn."""
    connection.execute(select(schema.run.c.schema_version).with_for_update()).one()


def _last_entry(connection: Connection) -> Entry | None:
    table = schema.journal
    query = select(table).order_by(table.c.sequence.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else _entry(row)


def _last_round(connection: Connection, branch: int) -> int:
    table = schema.branch
    last_round = connection.execute(select(table.c.last_round).where(table.c.number == branch)).scalar()
    return -1 if last_round is None else last_round


def _forgotten(connection: Connection, secret: bytes, names: Sequence[str]) -> set[str]:
    table = schema.suppression
    digests = {name_digest(secret, name).hex(): name for name in names}
    erased = connection.execute(select(table.c.digest).where(among(table.c.digest, digests))).scalars()
    return {digests[digest] for digest in erased}


def _pseudonyms(connection: Connection, names: Sequence[str]) -> dict[str, int]:
    table = schema.identity
    rows = connection.execute(select(table.c.name, table.c.pseudonym).where(among(table.c.name, names))).all()
    # Unpacked, because asking a thousand rows for their columns by name takes as long as the query.
    return {name: pseudonym for name, pseudonym in rows}  # noqa: C416


def _names(connection: Connection, clients: Clients) -> dict[int, str]:
    table = schema.identity
    rows = connection.execute(select(table).where(among(table.c.pseudonym, clients.tolist()))).all()
    return {row.pseudonym: row.name for row in rows}


def _keys(connection: Connection, clients: Clients) -> dict[int, bytes]:
    table = schema.client
    chosen = among(table.c.pseudonym, clients.tolist())
    query = select(table.c.pseudonym, table.c.key).where(chosen, table.c.key.is_not(None))
    rows = connection.execute(query).all()
    return {pseudonym: key for pseudonym, key in rows}  # noqa: C416


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


def _replace_stretches(connection: Connection, superseded: Sequence[int], stretch: Stretch | None) -> None:
    table = schema.stretch
    gone = [*superseded, *([] if stretch is None else [stretch.branch])]
    connection.execute(delete(table).where(among(table.c.branch, gone)))
    if stretch is not None:
        origin, remaining = stretch.origin, stretch.remaining.astype(REMAINING).tobytes()
        row = (stretch.branch, origin.branch, origin.round, stretch.common_factor, stretch.salt, remaining)
        _insert(connection, table, [row])


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
    return Entry(row.sequence, row.kind, row.time, json.loads(row.body), row.root, row.head)


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
