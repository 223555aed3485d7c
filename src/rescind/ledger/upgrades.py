"""Upgrading the tables of a ledger, from the first released schema on, revision by revision.

A revision has the number of the schema that it makes, and the number in the table ``run`` says which one a history
has. Alembic's own table of versions is not used: of two numbers one could be wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Column, Connection, Integer, LargeBinary, update

from rescind.ledger import schema


def upgrade_tables(connection: Connection, version: int) -> None:
    """Run the revisions after a schema, within the caller's transaction."""
    operations = Operations(MigrationContext.configure(connection))
    for number, upgrade in sorted(REVISIONS.items()):
        if number > version:
            upgrade(operations)
    schema.keep_values_in_their_tables(connection)
    connection.execute(update(schema.run).values(schema_version=schema.SCHEMA_VERSION))


def _replace_updates_by_objects(operations: Operations) -> None:
    """Drop the stored updates of rounds; a client can have an object instead."""
    operations.drop_table("client_update")
    operations.create_table(
        "client_object",
        Column("client", Integer, primary_key=True, autoincrement=False, nullable=False),
        Column("digest", LargeBinary, nullable=False),
    )


# Those that were released never change.
REVISIONS: dict[int, Callable[[Operations], None]] = {8: _replace_updates_by_objects}
