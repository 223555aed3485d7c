"""What lies in a durable ledger's database or folder and no ledger put there: objects, texts, rows, files.

A trigger or a column can keep what an erasure deletes, and a text can say more than what it is read as.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Executable, NullPool, create_engine, create_mock_engine, func, select, text
from sqlalchemy.schema import CreateTable

from rescind.checkpoints.store import UNFINISHED, is_finished
from rescind.ledger import schema
from rescind.ledger.commitments import canonical

# What a history's folder holds: the database, with SQLite's own files and the lock beside it, and two stores.
DATABASE, STORES = "ledger.sqlite", ("checkpoints", "objects")

_ENTRIES_AT_ONCE = 1000
_NAMED = 5

# What there is, in the words of the statements that made it: whole ones in SQLite, line by line in PostgreSQL.
# Spaces and quotes are left to SQLAlchemy's taste.
_OBJECTS = {
    "sqlite": """
        SELECT type || ' ' || name,
            replace(replace(replace(replace(sql, char(10), ''), char(9), ''), ' ', ''), '"', '')
        FROM sqlite_master
    """,
    "postgresql": """
        WITH own AS (
            SELECT each.* FROM pg_class AS each JOIN pg_namespace ON pg_namespace.oid = each.relnamespace
            WHERE nspname = current_schema()
        ), found AS (
            SELECT CASE relkind WHEN 'r' THEN 'table ' WHEN 'v' THEN 'view ' ELSE 'relation ' END || relname AS what
            FROM own WHERE relkind <> 'i'
            UNION ALL
            SELECT replace(replace(pg_get_indexdef(oid, 0, true), ' USING btree', ''), '::text', '')
            FROM own WHERE relkind = 'i'
                AND oid NOT IN (SELECT conindid FROM pg_constraint WHERE contype IN ('p', 'u', 'x'))
            UNION ALL
            SELECT 'in ' || relname || ': ' || attname || ' ' || upper(format_type(atttypid, atttypmod))
                || CASE WHEN attcollation = typcollation THEN '' ELSE ' COLLATE ' || collname END
                || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
                || CASE WHEN atthasdef THEN ' with a default' ELSE '' END
                || CASE WHEN coalesce(attstattarget, -1) = 0 THEN '' ELSE ' sampled for statistics' END
            FROM pg_attribute JOIN own ON own.oid = attrelid JOIN pg_type ON pg_type.oid = atttypid
            LEFT JOIN pg_collation ON pg_collation.oid = attcollation
            WHERE relkind = 'r' AND attnum > 0 AND NOT attisdropped
            UNION ALL
            SELECT 'in ' || relname || ': ' || pg_get_constraintdef(pg_constraint.oid)
            FROM pg_constraint JOIN own ON own.oid = conrelid WHERE contype <> 'n'
            UNION ALL
            SELECT 'trigger ' || tgname FROM pg_trigger JOIN own ON own.oid = tgrelid WHERE NOT tgisinternal
            UNION ALL
            SELECT 'rule ' || rulename FROM pg_rewrite JOIN own ON own.oid = ev_class
            UNION ALL
            SELECT 'policy ' || polname FROM pg_policy JOIN own ON own.oid = polrelid
            UNION ALL
            SELECT 'statistics ' || stxname FROM pg_statistic_ext JOIN own ON own.oid = stxrelid
            UNION ALL
            SELECT 'table below ' || relname FROM pg_inherits JOIN own ON own.oid = inhparent
            UNION ALL
            SELECT 'function ' || proname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
            WHERE nspname = current_schema()
        )
        SELECT replace(what, '"', ''), '' FROM found
    """,
}

# Rows that no round is found by: they would still tell who took part in one that was erased.
_PARTICIPATIONS_OF_NO_ROUND = text(
    f"""
    SELECT count(*) FROM participation AS each WHERE segment <> round / {schema.ROUNDS_PER_SEGMENT}
    OR NOT EXISTS (SELECT 1 FROM round WHERE round.sequence = each.round)
    """  # noqa: S608
)

_THERE_AND_ERASED = text(
    "SELECT count(*) FROM client WHERE name_leaf IS NOT NULL AND pseudonym IN (SELECT pseudonym FROM identity)"
)


def find_strange_objects(connection: Connection) -> Iterator[str]:
    """Say what is in the database and no ledger made, or made and is gone or changed.

    That is tables, columns, constraints, indices, triggers, views, functions.
    """
    objects = _rows(connection, text(_OBJECTS[connection.dialect.name]))
    expected = _made_in_sqlite() if connection.dialect.name == "sqlite" else _made_in_postgresql()
    yield from (
        f"the database has what rescind did not make so, and what may keep erased values: {_harmless(name)}"
        for name, _ in sorted(objects - expected, key=str)
    )
    yield from (
        f"the database lacks what rescind made, or has it changed: {name}"
        for name, _ in sorted(expected - objects, key=str)
    )


def find_strange_files(connection: Connection) -> Iterator[str]:
    """Say which files are in a history's folder beside those that rescind and SQLite make."""
    if connection.dialect.name == "sqlite" and _file(connection).name == DATABASE:
        yield from _strange_files(_file(connection))


def find_strange_rows(connection: Connection) -> Iterator[str]:
    """Say which rows belong to nothing that the journal tells of, and which entries a ledger words otherwise."""
    round_ = schema.round_.c
    # Before the journal, which somebody may be writing to: no row is there before its entry.
    rows = {
        "round": _rows(connection, select(round_.sequence, round_.branch, round_.round)),
        "branch": _rows(connection, select(schema.branch.c.number)),
        "client": _rows(connection, select(schema.client.c.pseudonym)),
    }
    rounds, branches, given_out = set(), set(), 0
    table = schema.journal
    query = select(table.c.sequence, table.c.kind, table.c.body).order_by(table.c.sequence)
    with connection.execute(query, execution_options={"yield_per": _ENTRIES_AT_ONCE}) as entries:
        for sequence, kind, body in entries:
            content = _read_body(body)
            if content is None:
                yield f"the text of entry {sequence} is not the one that was written: it may hide something"
            elif kind == "round":
                rounds.add((sequence, content.get("branch"), content.get("round")))
            elif kind == "branch":
                branches.add((content.get("number"),))
            elif kind == "registration":
                given_out = max(given_out, content.get("last", 0))
    for name, unknown in {
        "round": rows["round"] - rounds,
        "branch": rows["branch"] - branches,
        "client": {row for row in rows["client"] if not 0 < row[0] <= given_out},
    }.items():
        if unknown:
            yield f"{len(unknown)} rows of table {name} belong to nothing that the journal tells of"
    derived = connection.execute(select(func.count()).select_from(schema.bounds)).scalar_one()
    if derived > 1:
        yield f"table bounds has {derived} rows, not one: all others may hold erased values"
    participations = connection.execute(_PARTICIPATIONS_OF_NO_ROUND).scalar_one()
    if participations:
        yield f"{participations} rows of participations belong to no round that is there"
    if connection.execute(_THERE_AND_ERASED).scalar_one():
        yield "a client has a name, and what stays of an erased one"
    if connection.execute(select(schema.run.c.name)).scalar_one() != _run_name(connection):
        yield "the name of the run is not the one under which it was made: it may hide something"


def _rows(connection: Connection, query: Executable) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in connection.execute(query)}


def _strange_files(database: Path) -> Iterator[str]:
    stores = [store for store in STORES if database.with_name(store).is_dir()]
    own = {DATABASE, *(DATABASE + suffix for suffix in ("-wal", "-shm", ".lock")), *stores}
    strange = [name for name in os.listdir(database.parent) if name not in own]
    for store in stores:
        with suppress(FileNotFoundError), os.scandir(database.with_name(store)) as files:
            strange += [f"{store}/{file.name}" for file in files if not _is_of_a_store(file)]
    if strange:
        more = f" and {len(strange) - _NAMED} more" if len(strange) > _NAMED else ""
        yield (
            "the history's folder has files that rescind did not make, and that may hold erased values: "
            f"{', '.join(map(_harmless, sorted(strange)[:_NAMED]))}{more}; move them elsewhere, or delete them"
        )


def _is_of_a_store(file: os.DirEntry[str]) -> bool:
    return file.is_file(follow_symlinks=False) and (is_finished(file.name) or file.name.startswith(UNFINISHED))


@cache
def _made_in_sqlite() -> frozenset[tuple[Any, ...]]:
    """Return what ``schema.create`` makes in SQLite."""
    # Without a pool, which would leave the connection for the garbage collector to close.
    with create_engine("sqlite://", poolclass=NullPool).begin() as connection:
        schema.TABLES.create_all(connection, checkfirst=False)
        return frozenset(_rows(connection, text(_OBJECTS["sqlite"])))


@cache
def _made_in_postgresql() -> frozenset[tuple[Any, ...]]:
    """Return what ``schema.create`` makes in PostgreSQL, which gives each line of its statements back as it was."""
    made: list[Any] = []
    engine = create_mock_engine("postgresql+psycopg://", lambda ddl, *_, **__: made.append(ddl))
    schema.TABLES.create_all(engine, checkfirst=False)
    lines: list[str] = []
    for statement in made:
        words = str(statement.compile(dialect=engine.dialect)).strip().replace('"', "")
        if isinstance(statement, CreateTable):
            within = [line.strip("\t, ") for line in words.splitlines() if line.startswith("\t")]
            lines += [f"table {statement.element.name}", *(f"in {statement.element.name}: {line}" for line in within)]
        else:
            lines.append(words)
    return frozenset((line, "") for line in lines)


def _file(connection: Connection) -> Path:
    """Return the file of an SQLite database."""
    query = "SELECT file FROM pragma_database_list WHERE name = 'main'"
    return Path(connection.execute(text(query)).scalar_one())


def _run_name(connection: Connection) -> str:
    """Return the name under which a run was made in the database that a connection leads to."""
    if connection.dialect.name == "sqlite":
        return _file(connection).stem
    return str(connection.execute(text("SELECT current_schema()")).scalar_one()).removeprefix("rescind_")


def _read_body(body: object) -> dict[str, Any] | None:
    """Return what an entry's text says; nothing if a ledger would have worded it otherwise."""
    try:
        content = json.loads(body) if isinstance(body, str) else None
        return content if isinstance(content, dict) and canonical(content) == str(body).encode() else None
    except (ValueError, RecursionError):
        return None


def _harmless(name: str) -> str:
    """Return somebody else's text without what a terminal would obey."""
    return f"{ascii(name)[1:-1]:.120}"
