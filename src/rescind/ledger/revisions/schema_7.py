"""The tables of 0.1.0, the first release."""

from __future__ import annotations

from typing import Any

from alembic.operations import Operations
from sqlalchemy import (
    Boolean,
    Column,
    Double,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ExcludeConstraint

revision, down_revision = "7", None

_BYTEWISE = Text().with_variant(Text(collation="C"), "postgresql")


def _number(name: str, **options: Any) -> Column[int]:
    return Column(name, Integer, nullable=False, autoincrement=False, **options)


def _text(name: str, nullable: bool = False) -> Column[str]:
    return Column(name, Text, nullable=nullable)


def _bytes(name: str, nullable: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=nullable)


def _float(name: str) -> Column[float]:
    return Column(name, Double, nullable=False)


def upgrade(op: Operations) -> None:
    """Make all tables."""
    on_sqlite = op.get_context().dialect.name == "sqlite"
    op.create_table(
        "run", _number("schema_version", primary_key=True), _text("name"), _bytes("secret"), _bytes("secret_check")
    )
    op.create_table(
        "journal",
        _number("sequence", primary_key=True),
        Column("kind", _BYTEWISE, nullable=False),
        _text("time"),
        _text("body"),
        _bytes("root"),
        _bytes("head"),
        _bytes("stamp"),
    )
    others = text("kind <> 'round'")
    op.create_index("journal_kind", "journal", ["kind"], postgresql_where=others, sqlite_where=others)
    op.create_table("branch", _number("number", primary_key=True), _number("last_round"))
    op.create_table(
        "round",
        _number("sequence", primary_key=True),
        _number("branch"),
        _number("round"),
        _float("factor"),
        _float("rounding"),
        _float("update_norm"),
        _bytes("model"),
        _bytes("salt"),
        _bytes("participants"),
        _bytes("gram", nullable=True),
        UniqueConstraint("branch", "round"),
    )
    participation = [_number("segment"), _number("client"), _number("round")]
    if on_sqlite:
        op.create_index("round_in_short", "round", ["branch", "round", "factor", "rounding"])
        by_client = PrimaryKeyConstraint("segment", "client", "round")
        op.create_table("participation", *participation, by_client, sqlite_with_rowid=False)
    else:
        op.create_table("participation", *participation)
        op.create_index("participation_client", "participation", ["segment", "client"])
    op.create_table(
        "client",
        _number("pseudonym", primary_key=True),
        _bytes("key", nullable=True),
        _bytes("name_leaf", nullable=True),
    )
    op.create_table(
        "identity",
        _number("pseudonym", primary_key=True),
        Column("name", _BYTEWISE, nullable=False),
        _text("label", nullable=True),
        _bytes("nonce"),
        UniqueConstraint("name") if on_sqlite else ExcludeConstraint(("name", "="), using="hash"),
    )
    op.create_table(
        "suppression",
        Column("digest", _BYTEWISE, nullable=False),
        _number("pseudonym"),
        PrimaryKeyConstraint("digest", "pseudonym"),
    )
    op.create_table(
        "kept", _number("branch"), _number("round"), _bytes("model"), PrimaryKeyConstraint("branch", "round")
    )
    op.create_table(
        "client_update",
        _number("branch"),
        _number("round"),
        _number("client"),
        _bytes("digest"),
        PrimaryKeyConstraint("branch", "round", "client"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "stretch",
        _number("branch", primary_key=True),
        _number("origin_branch"),
        _number("origin_round"),
        Column("common_factor", Boolean, nullable=False),
        _bytes("salt"),
        _bytes("remaining"),
    )
    op.create_table("bounds", _number("sequence", primary_key=True), _bytes("seal"), _bytes("content"))
