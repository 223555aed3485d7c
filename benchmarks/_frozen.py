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
        copy_private(source / "history", Path(location.address))
        copy_private(source / "history.secret", Path(f"{location.address}.secret"))
        return
    statements = (source / "dump.sql").read_text("utf-8").replace(RUN, location.run)
    address = make_url(location.address).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address) as connection:
        connection.execute(statements.encode())
    for models in source.glob(f"{RUN}-*"):
        copy_private(models, folder / models.name.replace(RUN, location.run))
    copy_private(source / "secret", folder / "secret")


def copy_private(source: Path, to: Path) -> None:
    """Copy a file or a folder, readable by its owner alone; a checkout has other modes."""
    if source.is_file():
        shutil.copyfile(source, to)
        to.chmod(0o600)
        return
    to.mkdir(mode=0o700)
    for path in source.iterdir():
        copy_private(path, to / path.name)
