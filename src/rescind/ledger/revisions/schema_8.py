"""Updates of rounds are stored no more; a client can have an object instead."""

from __future__ import annotations

from alembic.operations import Operations
from sqlalchemy import Column, Integer, LargeBinary

revision, down_revision = "8", None


def upgrade(op: Operations) -> None:
    """Drop the stored updates, and make the table of objects."""
    op.drop_table("client_update")
    op.create_table(
        "client_object",
        Column("client", Integer, primary_key=True, autoincrement=False, nullable=False),
        Column("digest", LargeBinary, nullable=False),
    )
