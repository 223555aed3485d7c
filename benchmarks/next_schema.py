"""A schema that is never released: what upgrades are tried with beside those that are."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from contextlib import contextmanager

from alembic.operations import Operations
from sqlalchemy import Column, Integer, MetaData, Table, Text

from rescind.ledger import foreign_objects, schema, upgrades


@contextmanager
def next_schema() -> Iterator[None]:
    """Let this process be a version of rescind with one more revision."""
    before = schema.SCHEMA_VERSION, schema.TABLES
    schema.SCHEMA_VERSION, schema.TABLES = before[0] + 1, _tables()
    upgrades.REVISIONS[schema.SCHEMA_VERSION] = _upgrade
    _forget_tables()
    try:
        yield
    finally:
        del upgrades.REVISIONS[schema.SCHEMA_VERSION]
        schema.SCHEMA_VERSION, schema.TABLES = before
        _forget_tables()


def _upgrade(op: Operations) -> None:
    """Add a column where the names are, and a table that the journal's kinds are copied to."""
    # In SQLite the table is made anew: a column that is added to it would stand behind its constraints.
    on_sqlite = op.get_context().dialect.name == "sqlite"
    with op.batch_alter_table("identity", recreate="always" if on_sqlite else "auto") as identity:
        identity.add_column(Column("country", Text))
    op.create_table("remark", Column("number", Integer, primary_key=True, autoincrement=False), Column("words", Text))
    op.execute("INSERT INTO remark SELECT sequence, kind FROM journal")


def _tables() -> MetaData:
    """Return the tables with one more, and with one more column where the names are."""
    # Copies of the tables would not know what is for one database only, so they are made once more.
    tables: MetaData = runpy.run_path(schema.__file__)["TABLES"]
    tables.tables["identity"].append_column(Column("country", Text))
    Table("remark", tables, Column("number", Integer, primary_key=True, autoincrement=False), Column("words", Text))
    return tables


def _forget_tables() -> None:
    foreign_objects._made_in_sqlite.cache_clear()
    foreign_objects._made_in_postgresql.cache_clear()
