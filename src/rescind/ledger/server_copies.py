"""What a PostgreSQL server copies out of its tables, where no erasure of ours reaches it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, text

# As they are for this role; those of an extension that is not loaded are missing.
_SETTINGS = text(
    """
    SELECT name, current_setting(name, true) AS shown, (SELECT setting FROM pg_settings AS s WHERE s.name = each.name)
    FROM unnest(cast(:names AS text[])) AS each (name)
    """
)
_NAMES = (
    *(
        "archive_mode",
        "wal_recycle",
        "log_statement",
        "log_parameter_max_length",
        "log_parameter_max_length_on_error",
    ),
    *("log_min_duration_statement", "log_min_duration_sample", "log_statement_sample_rate"),
    *("log_transaction_sample_rate", "auto_explain.log_min_duration", "pgaudit.log", "pgaudit.log_parameter"),
)
_PUBLISHED = text("SELECT count(DISTINCT pubname) FROM pg_publication_tables WHERE schemaname = :schema")
_SLOTS = text("SELECT count(*), count(*) FILTER (WHERE slot_type = 'logical') FROM pg_replication_slots")


def find_out_of_reach(connection: Connection, schema: str, checkpointed: bool) -> tuple[str, ...]:
    """Return in words all that may still hold erased values once the tables do not."""
    words = []
    if not checkpointed:
        words.append("This role may not run CHECKPOINT: the emptied files of the tables go at the server's next one.")
    recycled = ", and wal_recycle keeps old segments as they are until then."
    words.append(
        "The server's write-ahead log (pg_wal) holds erased values until its segments are removed or written over"
        + ("." if _settings(connection)["wal_recycle"] == "off" else recycled)
    )
    return (
        *words,
        *find_copies(connection, schema),
        "Backups and snapshots of the server, if there are any, hold what they held.",
    )


def find_copies(connection: Connection, schema: str) -> tuple[str, ...]:
    """Return in words where the server copies what is written to it, as far as it is set up to."""
    settings = _settings(connection)
    return (*_replicated(connection, schema, settings), *_logged(settings))


def _settings(connection: Connection) -> dict[str, str]:
    rows = connection.execute(_SETTINGS, {"names": list(_NAMES)})
    return {name: setting or shown for name, shown, setting in rows if setting or shown}


def _replicated(connection: Connection, schema: str, settings: Mapping[str, str]) -> Iterator[str]:
    slots, logical = connection.execute(_SLOTS).one()
    replicas = connection.execute(text("SELECT count(*) FROM pg_stat_replication")).scalar_one()
    published = connection.execute(_PUBLISHED, {"schema": schema}).scalar_one()
    if slots:
        yield f"{slots} replication slots make the server keep write-ahead log that their readers lack."
    if logical or published:
        yield (
            f"{logical} logical replication slots and {published} publications send rows elsewhere: whoever reads "
            "them may hold erased values."
        )
    if replicas:
        yield f"{replicas} replicas are connected; they follow, each with a write-ahead log of its own."
    if settings["archive_mode"] != "off":
        yield "The server archives its write-ahead log: the archive holds erased values until it is pruned."


def _logged(settings: Mapping[str, str]) -> Iterator[str]:
    """Return in words by which settings values of statements, names among them, get into the server's log files."""
    number = {name: float(settings[name]) for name in _NAMES if name.startswith("log_") and name != "log_statement"}
    sampled = number["log_min_duration_sample"] >= 0 and number["log_statement_sample_rate"] > 0
    logs = {
        "log_statement": settings["log_statement"] in ("mod", "all"),
        "log_min_duration_statement": number["log_min_duration_statement"] >= 0,
        "log_min_duration_sample": sampled,
        "log_transaction_sample_rate": number["log_transaction_sample_rate"] > 0,
    }
    causes = [name for name, on in logs.items() if on and number["log_parameter_max_length"]]
    # Values of a statement that fails are logged whatever the others say; a plan shows them even without parameters.
    causes += ["log_parameter_max_length_on_error"] if number["log_parameter_max_length_on_error"] else []
    causes += ["auto_explain"] if not settings.get("auto_explain.log_min_duration", "-1").startswith("-") else []
    if settings.get("pgaudit.log", "none") != "none" and settings.get("pgaudit.log_parameter", "off") != "off":
        causes.append("pgaudit")
    if causes:
        yield f"The server logs statements with their values ({', '.join(causes)}): its log files hold erased values."
