"""One more column where the names are, and one more table that the journal's kinds are copied to."""

from alembic.operations import Operations
from sqlalchemy import Column, Integer, Text

revision, down_revision = "9", "8"


def upgrade(op: Operations) -> None:
    # In SQLite the table is made anew: a column that is added to it would stand behind its constraints.
    with op.batch_alter_table("identity", recreate="always" if _on_sqlite(op) else "auto") as identity:
        identity.add_column(Column("country", Text))
    op.create_table("remark", Column("number", Integer, primary_key=True, autoincrement=False), Column("words", Text))
    op.execute("INSERT INTO remark SELECT sequence, kind FROM journal")


def _on_sqlite(op: Operations) -> bool:
    return op.get_context().dialect.name == "sqlite"
