"""What lies in a durable ledger's database and no ledger put there: objects, texts and rows of other hands.

A trigger or a column can keep what an erasure deletes, and a text can say more than what it is read as.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from sqlalchemy import Connection, create_mock_engine, select, text
from sqlalchemy.schema import CreateIndex, CreateTable

from rescind.history import schema
from rescind.history.commitments import canonical

_ENTRIES_AT_ONCE = 1000

# Indices that a constraint made have no name of ours, and hold nothing but the rows of today.
_OBJECTS = {
    "sqlite": """
        SELECT type || ' ' || name FROM sqlite_master WHERE type <> 'index' OR sql IS NOT NULL
        UNION ALL
        SELECT 'column ' || each.name || '.' || info.name || ' ' || lower(info.type)
            || CASE WHEN info.dflt_value IS NULL THEN '' ELSE ' with a default' END
            || CASE WHEN info.hidden = 0 THEN '' ELSE ' computed' END
        FROM sqlite_master AS each, pragma_table_xinfo(each.name) AS info WHERE each.type = 'table'
    """,
    "postgresql": """
        WITH own AS (
            SELECT each.* FROM pg_class AS each JOIN pg_namespace ON pg_namespace.oid = each.relnamespace
            WHERE nspname = current_schema()
        )
        SELECT CASE relkind WHEN 'r' THEN 'table' WHEN 'i' THEN 'index' WHEN 'v' THEN 'view' ELSE 'relation' END
            || ' ' || relname
        FROM own WHERE oid NOT IN (SELECT conindid FROM pg_constraint WHERE contype IN ('p', 'u', 'x'))
        UNION ALL
        SELECT 'column ' || relname || '.' || attname || ' ' || format_type(atttypid, atttypmod)
            || CASE WHEN atthasdef THEN ' with a default' ELSE '' END
            || CASE WHEN coalesce(attstattarget, -1) = 0 THEN '' ELSE ' sampled for statistics' END
        FROM pg_attribute JOIN own ON own.oid = attrelid
        WHERE relkind = 'r' AND attnum > 0 AND NOT attisdropped
        UNION ALL
        SELECT 'trigger ' || tgname FROM pg_trigger JOIN own ON own.oid = tgrelid WHERE NOT tgisinternal
        UNION ALL
        SELECT 'rule ' || rulename FROM pg_rewrite JOIN own ON own.oid = ev_class
        UNION ALL
        SELECT 'policy ' || polname FROM pg_policy JOIN own ON own.oid = polrelid
        UNION ALL
        SELECT 'constraint ' || conname FROM pg_constraint JOIN own ON own.oid = conrelid
        WHERE contype NOT IN ('p', 'u', 'x', 'n')
        UNION ALL
        SELECT 'statistics ' || stxname FROM pg_statistic_ext JOIN own ON own.oid = stxrelid
        UNION ALL
        SELECT 'table below ' || relname FROM pg_inherits JOIN own ON own.oid = inhparent
        UNION ALL
        SELECT 'function ' || proname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
        WHERE nspname = current_schema()
    """,
}

# Rows that no round is found by: they would still tell who took part in one that was erased.
_STRAY_PARTICIPATIONS = text(
    f"""
    SELECT count(*) FROM participation AS each WHERE segment <> round / {schema.ROUNDS_PER_SEGMENT}
    OR NOT EXISTS (SELECT 1 FROM round WHERE round.sequence = each.round)
    """  # noqa: S608
)


def strange_objects(connection: Connection) -> Iterator[str]:
    """Say which tables, columns, indices, triggers, views or functions a ledger did not make, or made and lacks."""
    found = set(connection.execute(text(_OBJECTS[connection.dialect.name])).scalars())
    expected = _made(f"{connection.dialect.name}+{connection.dialect.driver}://")
    # Names are somebody else's text: shown without what a terminal would obey.
    yield from (
        f"the database has what rescind did not make, and what may keep erased values: {ascii(each)[1:-1]:.120}"
        for each in sorted(found - expected)
    )
    yield from (f"the database lacks what rescind made: {each}" for each in sorted(expected - found))


def strange_rows(connection: Connection) -> Iterator[str]:
    """Say which entries are stored in other words than a ledger writes, and whether rows belong to no round."""
    table = schema.journal
    query = select(table.c.sequence, table.c.body).order_by(table.c.sequence)
    with connection.execute(query, execution_options={"yield_per": _ENTRIES_AT_ONCE}) as rows:
        for sequence, body in rows:
            if not _is_canonical(body):
                yield f"the text of entry {sequence} is not the one that was written: it may hide something"
    strays = connection.execute(_STRAY_PARTICIPATIONS).scalar_one()
    if strays:
        yield f"{strays} rows of participations belong to no round that is there"


@cache
def _made(address: str) -> frozenset[str]:
    """Return what ``schema.create`` makes in a kind of database, in the words of the queries above."""
    made: list[Any] = []
    engine = create_mock_engine(address, lambda ddl, *_, **__: made.append(ddl))
    schema.TABLES.create_all(engine, checkfirst=False)
    tables = [each.element for each in made if isinstance(each, CreateTable)]
    columns = (
        f"column {table.name}.{each.name} {each.type.compile(engine.dialect).partition(' COLLATE')[0].lower()}"
        for table in tables
        for each in table.columns
    )
    indices = (f"index {each.element.name}" for each in made if isinstance(each, CreateIndex))
    return frozenset((*columns, *indices, *(f"table {each.name}" for each in tables)))


def _is_canonical(body: object) -> bool:
    try:
        return isinstance(body, str) and canonical(json.loads(body)) == body.encode()
    except (ValueError, RecursionError):
        return False
