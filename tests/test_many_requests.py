"""Many requests: what is shown of them costs as many questions to the ledger as a few do, and none is too large."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rescind import History
from rescind.cli import app
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.requests import MOST_CLIENTS
from rescind.testing.small import simulation
from tests.builders import register


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with History(tmp_path / "history") as history:
        Revocable(history, simulation(40, rate=1.0, secret_noise=True)).train(Rounds(2))
        names = list(history.participants.all())
        history.participants.label({name: f"hospital {name}" for name in names})
    return tmp_path / "history"


def ask(folder: Path, clients: range) -> None:
    with History(folder) as history:
        for at in clients:
            history.requests.ask([f"clinic-{at}"], Budget(3.0, 1e-5))


def shown(*words: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output)
    return found


def waiting(folder: Path) -> None:
    with History(folder) as history:
        assert history.requests.waiting()


@pytest.mark.parametrize(
    "work",
    [
        lambda folder: shown("request", "list", str(folder)),
        lambda folder: shown("status", str(folder)),
        waiting,
    ],
    ids=["list", "status", "waiting"],
)
def test_thirty_requests_ask_the_ledger_no_more_often_than_three(
    work: Callable[[Path], object], folder: Path, count_statements: Callable[[Callable[[], object]], int]
) -> None:
    ask(folder, range(3))
    few = count_statements(lambda: work(folder))
    ask(folder, range(3, 30))
    assert count_statements(lambda: work(folder)) == few


def test_they_are_listed_under_their_own_names(folder: Path) -> None:
    ask(folder, range(3))
    with History(folder) as history:
        history.requests.ask(["clinic-20", "clinic-11"], Budget(3.0, 1e-5))
    listed = [sorted(each["clients"]) for each in shown("request", "list", str(folder))["requests"]]
    assert listed == [
        *([f"hospital clinic-{at}"] for at in range(3)),
        ["hospital clinic-11", "hospital clinic-20"],
    ]
    assert [sorted(each["clients"]) for each in shown("status", str(folder))["open_requests"]] == listed


def test_a_request_that_no_certificate_could_list_is_refused_when_it_is_asked() -> None:
    with History.in_memory() as history:
        names = [f"client-{at}" for at in range(MOST_CLIENTS + 1)]
        register(history, *names)
        before = history.head
        with pytest.raises(ValueError, match=r"at most 10000 clients.*about 10001: split it"):
            history.requests.ask(names, Budget(3.0, 1e-5))
        assert history.head == before
        history.requests.ask(names[:-1], Budget(3.0, 1e-5))
