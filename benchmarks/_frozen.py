"""Histories as released versions wrote them: ``tests/history/frozen`` has one of each schema, on both databases."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg
from sqlalchemy import make_url

from benchmarks._killing import Location

FROZEN = Path(__file__).parents[1] / "tests" / "history" / "frozen"
# What the run on PostgreSQL is called in the files; no other word in them is like it.
RUN = "frozen_history"


def restore(schema: int, location: Location) -> None:
    """Put the history of a schema at a location; its secret file goes where the location has it."""
    source, folder = FROZEN / f"schema_{schema}" / location.backend, Path(location.folder)
    if location.backend == "sqlite":
        _copy(source / "history", Path(location.address))
        _copy(source / "history.secret", Path(f"{location.address}.secret"))
        return
    statements = (source / "dump.sql").read_text("utf-8").replace(RUN, location.run)
    address = make_url(location.address).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as connection:
        connection.execute(statements.encode())
    for models in source.glob(f"{RUN}-*"):
        _copy(models, folder / models.name.replace(RUN, location.run))
    _copy(source / "secret", folder / "secret")


def _copy(source: Path, to: Path) -> None:
    """Copy a file or a folder, readable by its owner alone; a checkout has other modes."""
    if source.is_file():
        shutil.copyfile(source, to)
        to.chmod(0o600)
        return
    to.mkdir(mode=0o700)
    for path in source.iterdir():
        _copy(path, to / path.name)
