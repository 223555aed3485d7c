"""Processes that ask, withdraw or refuse at the same moment: what one of them does, the others find done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from rescind import History
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.testing.small import simulation
from tests.builders import entries_of

# Opens the history, says so, and acts when it is told to.
PROGRAM = """
import sys
from rescind.core.calibration import Budget
from rescind.history.history import History
location, checkpoints, run, secret, act = sys.argv[1:]
with History(location, checkpoints=checkpoints, run=run, secret=secret, create=False) as history:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        exec(act)
    except ValueError as refused:
        print("refused:", refused, flush=True)
    else:
        print("done", flush=True)
"""
Place = tuple[str, str, str, str]


@pytest.fixture(params=["folder", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place with a history of two rounds."""
    address = str(tmp_path / "history")
    if request.param == "postgresql":
        address = request.getfixturevalue("postgresql")
    where = (address, str(tmp_path / "models"), f"race_{uuid4().hex[:8]}", str(tmp_path / "secret"))
    with opened(where) as history:
        Revocable(history, simulation(6, secret_noise=True)).train(Rounds(2))
    return where


def opened(place: Place) -> History:
    location, checkpoints, run, secret = place
    return History(location, checkpoints=checkpoints, run=run, secret=secret)


def race(place: Place, act: str, processes: int = 4) -> list[str]:
    """Return what processes say that do the same at the same moment."""
    command = [sys.executable, "-c", PROGRAM, *place, act]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return [process.communicate()[0].strip() for process in started]


def test_of_processes_that_ask_at_once_for_one_client_one_makes_a_request(place: Place) -> None:
    said = race(place, 'history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))')
    assert said.count("done") == 1
    assert sum("request 1 is about some of these clients already" in each for each in said) == len(said) - 1
    with opened(place) as history:
        assert [filed.number for filed in history.timeline.requests] == [1]
        assert history.integrity.verify() == []


def test_a_request_that_processes_take_back_or_refuse_at_once_ends_once(place: Place) -> None:
    with opened(place) as history:
        history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
        before = len(entries_of(history))
    act = 'history.requests.withdraw(1) if __import__("os").getpid() % 2 else history.requests.refuse(1, "Ann", "no")'
    said = race(place, act)
    assert said.count("done") == 1
    with opened(place) as history:
        assert len(entries_of(history)) == before + 1


def test_a_history_is_opened_while_another_process_closes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rescind.history import locations

    with History(tmp_path / "history"):
        pass
    beside = tmp_path / "history" / "ledger.sqlite-shm"
    beside.touch(mode=0o600)
    check = locations.check_private

    def close_first(path: Path) -> None:
        # The last one that closes a ledger removes what SQLite has beside it.
        if path == beside:
            path.unlink()
        check(path)

    monkeypatch.setattr(locations, "check_private", close_first)
    with History(tmp_path / "history", create=False) as history:
        assert history.integrity.verify() == []
    assert not beside.exists()
