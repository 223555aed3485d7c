"""The desk against whoever means harm, and against what breaks around it."""

from __future__ import annotations

from time import sleep
from typing import Any

import pytest

from rescind.desk.board import Reader
from tests.desk.conftest import Office

# What is shown, whatever else is wrong


def look_often(office: Office, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("rescind.desk.board._EVERY", 0.02)
    monkeypatch.setattr("rescind.desk.board._SPARE", 0.0)
    office.desk.reader.start()
    return office.desk.reader


def wait_for(happened: Any) -> None:
    for _ in range(500):
        if happened():
            return
        sleep(0.02)
    raise AssertionError("it did not happen in ten seconds")


def test_the_desk_reads_on_once_a_damaged_database_is_restored(
    office: Office, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, ledger = look_often(office, monkeypatch), office.folder / "history" / "ledger.sqlite"
    whole = ledger.read_bytes()
    with caplog.at_level("WARNING", "rescind"):
        ledger.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
        wait_for(lambda: reader.problem)
        sleep(0.2)
    # Once, not at every look.
    assert len(caplog.records) <= 2
    ledger.write_bytes(whole)
    wait_for(lambda: not reader.problem)
    reader.stop()


def test_a_long_look_is_soon_followed_by_another(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    moment, rests = [1000.0], list[float]()
    monkeypatch.setattr("rescind.desk.board.monotonic", lambda: moment[0])

    class Ended:
        def wait(self, rest: float) -> bool:
            rests.append(rest)
            moment[0] += rest
            assert reader.problem == ""
            return len(rests) > 3

    def examine(_: object) -> list[Any]:
        moment[0] += 60
        return []

    monkeypatch.setattr("rescind.desk.board.examine_history", examine)
    monkeypatch.setattr("rescind.desk.board._HEALTH_EVERY", 0.0)
    reader = Reader(office.open)
    reader._ended = Ended()  # type: ignore[assignment]
    reader.refresh()
    reader._go_on()
    assert max(rests) < 300


def test_a_file_of_accuracies_that_is_no_such_file_is_said(office: Office) -> None:
    reader, file = office.desk.reader, office.folder / "accuracies.jsonl"
    reader.accuracies = file
    file.write_text("[" * 100_000)
    reader.refresh()
    assert "recursion" in reader.problem
    file.unlink()
    reader.refresh()
    assert reader.problem == ""
