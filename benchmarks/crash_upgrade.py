"""Does an upgrade end right, wherever it is killed?

A child upgrades a history that a released version wrote. It is killed right before or right after one of its
statements, which are spread over the whole upgrade with its commit, or at a random time. Then the history has to be
the old one or the upgraded one (else it is ``torn``). Upgraded once more, it has to hold what an upgrade that nobody
disturbed makes of it (else it is ``different``), to verify (``broken``), and to have no other files (``left_over``).
"""

from __future__ import annotations

import hashlib
import os
import signal
import sqlite3
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from sqlalchemy import Engine, event

from benchmarks._frozen import RUN, restore
from benchmarks._killing import PATIENCE_WITH_A_STEP, Life, Location, open_locations, said, tell
from benchmarks._measure import progress
from benchmarks.crash_flow import patiently
from benchmarks.next_schema import next_schema
from rescind.history.locations import upgrade_history
from rescind.ledger.schema import FIRST_RELEASED

FAILURES = ("torn", "different", "broken", "left_over")
# Of so many kills one is at a random time.
TIMED = 4
FILES = {"ledger.sqlite", "ledger.sqlite.lock", "checkpoints", "objects"}


def work(reports: Connection, location: Location, cut: int | None) -> None:
    """Upgrade a history, and die at an instant if one is given; there are two for every statement."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    instants = 0

    def die(*_: object) -> None:
        nonlocal instants
        if instants == cut:
            os.kill(os.getpid(), signal.SIGKILL)
        instants += 1

    with next_schema():
        tell(reports, "phase", "upgrading")
        for moment in ("before_cursor_execute", "after_cursor_execute", "commit"):
            event.listen(Engine, moment, die)
        upgrade(location)
        die()
    tell(reports, "finished", instants)


def upgrade(location: Location) -> None:
    patiently(lambda: upgrade_history(location.address, **location.places()))


def digest(location: Location) -> str:
    """Return a digest of all that the database holds: its tables and their rows, by the driver alone."""
    hashed = hashlib.sha256()
    for row in _sqlite_rows(location) if location.backend == "sqlite" else _postgresql_rows(location):
        # Every copy of the run has a name of its own there.
        hashed.update(repr(row).replace(location.run, RUN).encode())
    return hashed.hexdigest()


def _sqlite_rows(location: Location) -> Iterator[tuple[Any, ...]]:
    with closing(sqlite3.connect(Path(location.address, "ledger.sqlite"))) as connection:
        tables = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        yield from tables
        for name, statement in tables:
            if statement and statement.startswith("CREATE TABLE"):
                yield from sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)  # noqa: S608


def _postgresql_rows(location: Location) -> Iterator[tuple[Any, ...]]:
    columns = """
        SELECT relname, attname, format_type(atttypid, atttypmod), attnotnull, attstorage, attstattarget
        FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relnamespace = to_regnamespace(%s) AND relkind = 'r' AND attnum > 0 ORDER BY relname, attname
    """
    schema = f"rescind_{location.run}"
    with psycopg.connect(location.address) as connection:
        defined = connection.execute(columns, [schema]).fetchall()
        yield from defined
        for name in sorted({row[0] for row in defined}):
            table = psycopg.sql.Identifier(schema, name)
            rows = connection.execute(psycopg.sql.SQL("SELECT * FROM {}").format(table)).fetchall()
            yield from sorted(rows, key=repr)


class Ordeal:
    """Upgrades on one database that are killed, and what was found after each."""

    def __init__(self, context: ForkServerContext, location: Location) -> None:
        self._context, self.found, self.instants, self.seconds = context, Counter[str](), 0, 0.0
        restore(FIRST_RELEASED, location)
        self._before = digest(location)
        life = Life(context, work, location, None)
        life.listen(PATIENCE_WITH_A_STEP)
        life.end()
        (self.instants, ended) = next((words[1:] for words in life.reports if words[0] == "finished"), (0, 0.0))
        if not self.instants:
            raise RuntimeError(f"an upgrade does not work on {location.backend} at all")
        self.seconds = ended - life.phases[0][1]
        self._after = digest(location)
        self.found += self._examine(location)

    def kill(self, location: Location, cut: int | None, seconds: float) -> str:
        """Kill an upgrade at an instant or after a time, and tell what the history was then."""
        restore(FIRST_RELEASED, location)
        life = Life(self._context, work, location, cut)
        life.listen(PATIENCE_WITH_A_STEP, until="upgrading")
        life.listen(PATIENCE_WITH_A_STEP if cut is not None else seconds)
        code, through = life.end(), any(words[0] == "finished" for words in life.reports)
        state = {self._before: "old", self._after: "upgraded"}.get(digest(location), "torn")
        if through or code != -signal.SIGKILL:
            return "not killed"
        self.found["torn"] += said([f"{location.backend}, cut at {cut}: half upgraded"] if state == "torn" else [])
        try:
            upgrade(location)
            self.found += self._examine(location)
        except Exception:
            traceback.print_exc()
            self.found["broken"] += 1
        return state

    def _examine(self, location: Location) -> Counter[str]:
        found = Counter[str]()
        found["different"] += said(["it holds something else"] if digest(location) != self._after else [])
        with location.open() as history:
            found["broken"] += said(history.integrity.verify())
        if location.backend == "sqlite":
            found["left_over"] += said({path.name for path in Path(location.address).iterdir()} - FILES)
        return found


def ordeal(kills: int) -> dict[str, object]:
    rng, states, found = np.random.default_rng(5), dict[str, dict[str, int]](), Counter[str]()
    instants = {}
    bar = progress(range(kills), "kills")
    with open_locations("benchmarks.crash_upgrade") as (context, backends), next_schema():
        for number, (name, locate) in enumerate(backends.items()):
            backend, seen, own = Ordeal(context, locate()), Counter[str](), (kills + number) // 2
            timed = own // TIMED
            cuts = np.linspace(0, backend.instants - 1, own - timed).round().astype(int).tolist()
            for cut in [*cuts, *[None] * timed]:
                # One that was through before its time is no kill.
                while (state := backend.kill(locate(), cut, rng.uniform(0, backend.seconds))) == "not killed":
                    pass
                seen[state] += 1
                next(bar)
            states[name], instants[name] = dict(seen), backend.instants
            found += backend.found
    next(bar, None)
    return {
        "kills": kills,
        **{failure: found[failure] for failure in FAILURES},
        "instants": instants,
        "found_after_a_kill": states,
    }
