"""Upgrading the tables of a ledger, revision by revision.

A revision is named after the schema that it makes, and the number in the table ``run`` says which one a history has.
Alembic's own table of versions is not used: of two numbers one could be wrong.
"""

from __future__ import annotations

from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, update

from rescind.ledger import schema

# The folders of the revisions: a module each, with a function ``upgrade``.
FOLDERS = [Path(__file__).with_name("revisions")]


def upgrade_tables(connection: Connection, version: int) -> None:
    """Run the revisions after a schema, within the caller's transaction."""
    scripts = ScriptDirectory(str(FOLDERS[0]), version_locations=[str(folder) for folder in FOLDERS])
    operations = Operations(MigrationContext.configure(connection))
    # The newest comes first.
    for revision in reversed(list(scripts.walk_revisions())):
        if int(revision.revision) > version:
            revision.module.upgrade(operations)
    schema.keep_values_in_their_tables(connection)
    connection.execute(update(schema.run).values(schema_version=schema.SCHEMA_VERSION))
