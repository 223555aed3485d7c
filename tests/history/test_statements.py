"""A database is far away: how often it is asked does not depend on what there is to read."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from rescind.core.calibration import Budget
from rescind.history.history import History
from rescind.views.overview import overview, read_gauges
from tests.builders import FACTS, federation, train

CLIENTS = federation(seed=6, clients=8, rate=0.4)


def plan(history: History) -> None:
    history.summary(history.participants.find(["hospital-1"]))


def show(history: History) -> None:
    overview(history)
    read_gauges(history, history.journal.clock())


@pytest.mark.parametrize("work", [plan, show])
def test_twenty_rounds_ask_no_more_often_than_two_hundred(
    work: Callable[[History], None],
    count_statements: Callable[[Callable[[], object]], int],
    postgresql: str,
    tmp_path: Path,
) -> None:
    run = f"statements_{secrets.token_hex(4)}"
    location = {"checkpoints": str(tmp_path / "models"), "run": run, "secret": tmp_path / "secret"}
    counts = []
    for rounds in (20, 180):
        with History(postgresql, **location) as history:
            with history.recording(FACTS, {"theta": CLIENTS.start}, capacity=4) as recorder:
                train(recorder, CLIENTS, rounds, range(8))
            history.requests.ask([f"hospital-{3 if rounds == 20 else 4}"], Budget(3.0, 1e-5))
        # Once more, as somebody does who has read nothing yet.
        with History(postgresql, **location) as history:
            counts.append(count_statements(lambda: work(history)))
    assert counts[1] == counts[0] <= 35
