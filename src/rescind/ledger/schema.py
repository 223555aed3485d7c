"""The tables of a durable ledger: one SQLite file, or one schema of a PostgreSQL database, is one run.

No table has a column for the run, so one writer, one erasure and one compaction concern one run only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    bindparam,
    column,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, ExcludeConstraint
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeEngine

from rescind.errors import IncompleteHistoryError, NoHistoryError, SchemaVersionError
from rescind.ledger.contract import ABSENT_ROUNDS
from rescind.ledger.records import Span

# The number of the tables below, and of the newest revision. From the first released one on, a history can be
# upgraded.
SCHEMA_VERSION, FIRST_RELEASED = 8, 7

# A look-up of one client seeks once a segment. An insert stays within the pages of the current one: larger segments
# make look-ups cheaper and commits dearer.
ROUNDS_PER_SEGMENT = 128

TABLES = MetaData()

# Compared byte by byte, whatever language the server speaks.
_BYTEWISE = Text().with_variant(Text(collation="C"), "postgresql")


def _number(name: str, **options: Any) -> Column[int]:
    return Column(name, Integer, nullable=False, autoincrement=False, **options)


def _bytes(name: str, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable)


run = Table(
    "run",
    TABLES,
    _number("schema_version", primary_key=True),
    Column("name", Text, nullable=False),
    _bytes("secret"),
    # Tells whether a secret file is this run's own.
    _bytes("secret_check"),
)

journal = Table(
    "journal",
    TABLES,
    _number("sequence", primary_key=True),
    Column("kind", _BYTEWISE, nullable=False),
    Column("time", Text, nullable=False),
    # The canonical JSON, so that what is hashed is what is stored.
    Column("body", Text, nullable=False),
    _bytes("root"),
    _bytes("head"),
    _bytes("stamp"),
)

# Nearly all entries are rounds, which are found by their place. Without them the index costs a round nothing.
NOT_A_ROUND = text("kind <> 'round'")
Index("journal_kind", journal.c.kind, postgresql_where=NOT_A_ROUND, sqlite_where=NOT_A_ROUND)

branch = Table("branch", TABLES, _number("number", primary_key=True), _number("last_round"))

round_ = Table(
    "round",
    TABLES,
    _number("sequence", primary_key=True),
    _number("branch"),
    _number("round"),
    Column("factor", Double, nullable=False),
    Column("rounding", Double, nullable=False),
    Column("update_norm", Double, nullable=False),
    _bytes("model"),
    _bytes("salt"),
    # Last, because SQLite reads a row from its beginning, and its long values page by page.
    _bytes("participants"),
    _bytes("gram", nullable=True),
    UniqueConstraint("branch", "round"),
)

# What ``absent_rounds`` reads, side by side: in SQLite's table, pages of participants lie between two rows.
Index("round_in_short", round_.c.branch, round_.c.round, round_.c.factor, round_.c.rounding).ddl_if(dialect="sqlite")

# Finds the rounds of a client. ``round`` is the sequence of the round's entry.
participation = Table(
    "participation",
    TABLES,
    _number("segment"),
    _number("client"),
    _number("round"),
    PrimaryKeyConstraint("segment", "client", "round").ddl_if(dialect="sqlite"),
    sqlite_with_rowid=False,
)

# PostgreSQL keeps the rows elsewhere anyway; without the round its index is a quarter smaller.
Index("participation_client", participation.c.segment, participation.c.client).ddl_if(dialect="postgresql")

client = Table(
    "client",
    TABLES,
    _number("pseudonym", primary_key=True),
    _bytes("key", nullable=True),
    # Of an erased name only: else it is made anew from the identity.
    _bytes("name_leaf", nullable=True),
)

identity = Table(
    "identity",
    TABLES,
    _number("pseudonym", primary_key=True),
    Column("name", _BYTEWISE, nullable=False),
    # What people call it.
    Column("label", Text, nullable=True),
    _bytes("nonce"),
    UniqueConstraint("name").ddl_if(dialect="sqlite"),
    # A B-tree of PostgreSQL refuses long names and copies the short ones; a hash index holds none of them.
    ExcludeConstraint(("name", "="), using="hash").ddl_if(dialect="postgresql"),
)

# In hexadecimal, because SQLite can be given a list of texts and not a list of bytes.
suppression = Table(
    "suppression",
    TABLES,
    Column("digest", _BYTEWISE, nullable=False),
    _number("pseudonym"),
    # Two who left may have been called the same.
    PrimaryKeyConstraint("digest", "pseudonym"),
)

kept = Table(
    "kept",
    TABLES,
    _number("branch"),
    _number("round"),
    _bytes("model"),
    PrimaryKeyConstraint("branch", "round"),
)

client_object = Table("client_object", TABLES, _number("client", primary_key=True), _bytes("digest"))

stretch = Table(
    "stretch",
    TABLES,
    _number("branch", primary_key=True),
    _number("origin_branch"),
    _number("origin_round"),
    Column("common_factor", Boolean, nullable=False),
    _bytes("salt"),
    _bytes("remaining"),
)

# What is derived from the rounds up to an entry, at most one row: see ``Ledger.keep_bounds``.
bounds = Table("bounds", TABLES, _number("sequence", primary_key=True), _bytes("seal"), _bytes("content"))


class _Numbers(TypeDecorator[list[int]]):
    """A list of integers; those that no column can hold are left out, because they are in no row either."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(ARRAY(Integer()) if dialect.name == "postgresql" else JSON())

    def process_bind_param(self, value: list[int] | None, dialect: Dialect) -> list[int] | None:  # noqa: ARG002
        return value and [number for number in value if -(2**31) <= number < 2**31]


NUMBERS = _Numbers()
TEXTS = JSON().with_variant(ARRAY(Text), "postgresql")

# The places of the rounds of these clients. The index is entered once a segment and client. PostgreSQL, which has no
# statistics to see why, is forced to it with OFFSET 0.
_JOINED = {
    "sqlite": """
        WITH RECURSIVE one (segment) AS (
            SELECT 0 UNION ALL SELECT segment + 1 FROM one WHERE segment < (SELECT max(segment) FROM participation)
        ), found AS (
            SELECT DISTINCT round FROM participation
            WHERE segment IN (SELECT segment FROM one)
              AND client IN (SELECT value FROM json_each(:clients))
        )
        SELECT round.branch, round.round FROM round JOIN found ON round.sequence = found.round
        ORDER BY round.branch, round.round
    """,
    "postgresql": """
        WITH found AS MATERIALIZED (
            SELECT DISTINCT entered.round
            FROM generate_series(0, (SELECT max(segment) FROM participation)) AS one (segment)
            CROSS JOIN unnest(:clients) AS who (client)
            CROSS JOIN LATERAL (
                SELECT round FROM participation AS each
                WHERE each.segment = one.segment AND each.client = who.client OFFSET 0
            ) AS entered
        )
        SELECT round.branch, round.round FROM round JOIN found ON round.sequence = found.round
        ORDER BY round.branch, round.round
    """,
}


def joined(connection: Connection, clients: Iterable[int]) -> Sequence[Row[int, int]]:
    """Return branch and number of the rounds that any of these clients took part in, in order."""
    query = text(_JOINED[connection.dialect.name]).bindparams(bindparam("clients", type_=NUMBERS))
    return connection.execute(query, {"clients": list(clients)}).all()


# All rounds as one value, in the bytes of PostgreSQL's own protocol: rows take longer, each of them.
_ABSENT_ROUNDS = text(
    """
    SELECT string_agg(int4send(round) || float8send(factor) || float8send(rounding), '' ORDER BY round) FROM round
    WHERE branch = :branch AND round BETWEEN :first AND :last
    """
)
_SENT = np.dtype([("round", ">i4"), ("factor", ">f8"), ("rounding", ">f8")])


def absent_rounds(connection: Connection, span: Span) -> NDArray[np.void]:
    """Return number, factor and rounding of a span's rounds in PostgreSQL, in order."""
    bounds_of_span = {"branch": span.branch, "first": span.first, "last": span.last}
    sent = connection.execute(_ABSENT_ROUNDS, bounds_of_span).scalar_one()
    return np.frombuffer(sent or b"", dtype=_SENT).astype(ABSENT_ROUNDS)


class _Among(FunctionElement[bool]):
    """A test that a column's value is in a list, which is bound as one parameter however long it is.

    It has no type: of a Boolean SQLAlchemy would make ``... = 1`` for SQLite, which then uses no index.
    """

    inherit_cache = True


@compiles(_Among, "sqlite")
def _among_in_sqlite(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    value, listed = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{value} IN (SELECT value FROM json_each({listed}))"  # noqa: S608


@compiles(_Among, "postgresql")
def _among_in_postgresql(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    value, listed = (compiler.process(clause, **options) for clause in element.clauses)
    return f"{value} = ANY ({listed})"


class _Listed(FunctionElement[int]):
    """The integers of a list as a table with the column ``value``."""

    name = "listed"
    inherit_cache = True


@compiles(_Listed, "sqlite")
def _listed_in_sqlite(element: _Listed, compiler: SQLCompiler, **options: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **options)})"


@compiles(_Listed, "postgresql")
def _listed_in_postgresql(element: _Listed, compiler: SQLCompiler, **options: Any) -> str:
    return f"(SELECT unnest({compiler.process(element.clauses, **options)}) AS value)"


def among(tested: ColumnElement[Any], values: Iterable[int] | Iterable[str]) -> ColumnElement[bool]:
    """Test whether a column's value is one of these integers or texts."""
    as_list = TEXTS if isinstance(tested.type, Text) else NUMBERS
    return _Among(tested, bindparam(None, list(values), type_=as_list))


def as_table(values: Iterable[int]) -> ColumnElement[int]:
    """Return integers as the column of a table."""
    table = _Listed(bindparam(None, list(values), type_=NUMBERS)).table_valued(column("value", Integer))
    return table.c.value


def create(connection: Connection, name: str, secret: bytes, check: bytes) -> None:
    """Make all tables and the row of the run, within the caller's transaction."""
    TABLES.create_all(connection, checkfirst=False)
    keep_values_in_their_tables(connection)
    row = {"schema_version": SCHEMA_VERSION, "name": name, "secret": secret, "secret_check": check}
    connection.execute(insert(run), row)


def tables_found(connection: Connection) -> set[str]:
    """Return the names of the tables that are there, of a history or not."""
    return set(inspect(connection).get_table_names())


def check(connection: Connection, where: str, *, older: bool = False) -> int:
    """Refuse a database that is not a whole history with this version's schema; return the schema's number.

    With ``older`` it may be any history that can be upgraded to that schema.
    """
    tables, expected = tables_found(connection), set(TABLES.tables)
    if tables and not tables & expected:
        raise NoHistoryError(f"{where} is a database of something else")
    if run.name in tables:
        columns = {table_column["name"] for table_column in inspect(connection).get_columns(run.name)}
        version = _read_version(connection, columns, where)
        if older and version is not None and FIRST_RELEASED <= version < SCHEMA_VERSION:
            return version
        if version is not None and version != SCHEMA_VERSION:
            raise SchemaVersionError(_other_version(where, version))
        if not {table_column.name for table_column in run.columns} <= columns:
            raise _not_a_run(where)
        if version is not None and expected <= tables:
            return version
    missing = sorted(expected - tables) or ["the row of table run"]
    raise IncompleteHistoryError(
        f"{where} lacks {', '.join(missing)}: delete it and create it again, or restore a copy"
    )


def _read_version(connection: Connection, columns: Collection[str], where: str) -> int | None:
    """Return the number of a database's schema, whatever else its table of runs has; None if that is empty."""
    if run.c.schema_version.name not in columns:
        raise _not_a_run(where)
    versions = connection.execute(select(run.c.schema_version)).scalars().all()
    if len(versions) > 1:
        raise NoHistoryError(f"{where} is no history any more: its table 'run' has {len(versions)} rows, not one")
    # Somebody may have made another column of it, which holds anything.
    if versions and (type(versions[0]) is not int or versions[0] < 1):
        raise NoHistoryError(f"{where} is no history any more: the number of its schema is none")
    return versions[0] if versions else None


def _not_a_run(where: str) -> NoHistoryError:
    return NoHistoryError(f"{where} is a database of something else: its table 'run' is not a history's")


def _other_version(where: str, version: int) -> str:
    if version > SCHEMA_VERSION:
        return f"{where} has schema {version}, and this rescind knows up to {SCHEMA_VERSION}: install a newer rescind"
    advice = (
        "back it up, and run `rescind upgrade` on it"
        if version >= FIRST_RELEASED
        else "it is from before the first release, and cannot be upgraded. Open it with the rescind that made it"
    )
    return f"{where} has schema {version}, and this rescind writes {SCHEMA_VERSION}: {advice}"


def lock_tables(connection: Connection) -> None:
    """Let everybody else wait for the end of a transaction that changes tables, holding nothing that it needs.

    Whoever only waited for a row of a table would hold the table, and neither could go on.
    """
    if connection.dialect.name == "postgresql":
        quote = connection.dialect.identifier_preparer.quote
        tables = ", ".join(map(quote, sorted(tables_found(connection))))
        connection.exec_driver_sql(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")


def keep_values_in_their_tables(connection: Connection) -> None:
    """Keep PostgreSQL from copying values elsewhere, and from trying to compress what looks random.

    ANALYZE copies samples of a column into pg_statistic, where no erasure would find them. All queries here follow a
    key, so plans need no statistics.
    """
    if connection.dialect.name != "postgresql":
        return
    quote = connection.dialect.identifier_preparer.quote
    for table in TABLES.sorted_tables:
        changes = [f"ALTER COLUMN {quote(table_column.name)} SET STATISTICS 0" for table_column in table.columns]
        blobs = [table_column for table_column in table.columns if isinstance(table_column.type, LargeBinary)]
        changes += [f"ALTER COLUMN {quote(table_column.name)} SET STORAGE EXTERNAL" for table_column in blobs]
        connection.exec_driver_sql(f"ALTER TABLE {quote(table.name)} {', '.join(changes)}")
