"""What the soak judges by: a leak is seen, a restart is none, and a database that restarts is the same one."""

from __future__ import annotations

import psycopg
import pytest

from benchmarks._postgresql import restartable
from benchmarks.soak import TO_SETTLE, Sample, growth


def life(process: int, begin: int, end: int, held: int, leak: int = 0) -> list[Sample]:
    """Return what a process held each second: what it needs, the imports before that, and what leaks."""
    return [
        Sample(at, process, (held if at - begin > TO_SETTLE / 2 else held // 2) + leak * (at - begin))
        for at in range(begin, end)
    ]


def test_a_leak_is_growth_and_what_a_process_needs_to_start_is_none():
    assert growth(life(1, 0, 2000, 10**8), 1000, 2000) == 0
    assert growth(life(1, 0, 2000, 10**8, leak=20_000), 1000, 2000) == pytest.approx(10**7 / 1.25e8, rel=0.02)
    # One that was started again in the time that is looked at.
    assert growth([*life(1, 0, 1100, 10**8), *life(2, 1100, 2000, 10**8)], 1000, 2000) == 0


def test_memory_of_which_nothing_is_known_is_not_called_flat():
    assert growth(life(1, 0, 500, 10**8), 1000, 2000) is None
    assert growth(life(1, 0, 1400, 10**8), 1000, 2000) is None


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restarted_database_has_what_it_had_and_has_dropped_its_sessions(mode):
    with restartable() as server:
        with psycopg.connect(server.address, autocommit=True) as session:
            session.execute("CREATE TABLE kept AS SELECT 7 AS number")
            server.restart(mode)
            with pytest.raises(psycopg.OperationalError):
                session.execute("SELECT 1")
        with psycopg.connect(server.address) as session:
            assert session.execute("SELECT number FROM kept").fetchall() == [(7,)]
