"""Whom a run waits for, for how long, and what it says of those who do not come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import Budget, History
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation
from tests.builders import rounds_of
from tests.recording import wrap

CLINICS = federation(4).shards
BUDGET = Budget(1.0, 1e-5)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescind.flower.server.nodes._PAUSE", 0.01)


def grid(*gone: str, identify: bool = True, authenticated: bool = True) -> InProcessGrid:
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        shard = CLINICS[str(context.node_config["client-id"])]
        return rescind.flower.train_head(msg, context, shard.features, shard.labels)

    if identify:

        @app.query()
        def query(msg: Message, context: Context) -> Message:
            return rescind.flower.identify(msg, context)

    on = InProcessGrid(app, {name: {"client-id": name} for name in CLINICS}, authenticated=authenticated)
    on.gone.update(gone)
    return on


def run(history: History, on: InProcessGrid, least: int, rounds: int = 1, timeout: float = 0.2) -> None:
    arrays = ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES))), "bias": Array(np.zeros(CLASSES))})
    mean = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=least)
    strategy = wrap(mean, history, training=TRAINING, seed=b"a seed for tests")
    rescind.flower.run(strategy, on, arrays, num_rounds=rounds, timeout=timeout)


def sizes(history: History, branch: int) -> list[int]:
    rounds = rounds_of(history, branch, 1, history.newest_of(branch).round)
    return [len(round_.clients) for round_ in rounds]


@pytest.mark.parametrize("authenticated", [True, False])
def test_nobody_waits_for_who_asked_to_leave_and_is_dead(
    history: History, caplog: pytest.LogCaptureFixture, authenticated: bool
) -> None:
    run(history, grid(authenticated=authenticated), 4, rounds=2)
    history.requests.ask(["clinic-1"], BUDGET)
    with caplog.at_level("INFO", "flwr"):
        run(history, grid("clinic-1", authenticated=authenticated), 4, rounds=2)
    assert sizes(history, 1) == [3, 3]
    assert (
        caplog.text.count("the strategy waits for 4 SuperNodes, and 1 of those who took part have left or asked") == 1
    )
    # Nor once it is forgotten, and its name erased.
    run(history, grid("clinic-1", authenticated=authenticated), 4, rounds=3)
    assert sizes(history, 1) == [3, 3, 3]
    assert "clinic-1" not in caplog.text


def test_who_asks_to_leave_while_it_is_waited_for_ends_the_wait(history: History) -> None:
    run(history, grid(), 4, rounds=2)

    class Asking(InProcessGrid):
        looks = 0

        def get_nodes(self) -> Any:
            self.looks += 1
            if self.looks == 3:
                history.requests.ask(["clinic-1"], BUDGET)
            return super().get_nodes()

    on = grid("clinic-1")
    on.__class__ = Asking
    run(history, on, 4, rounds=2, timeout=5.0)
    assert sizes(history, 1) == [3, 3]


def test_who_stays_is_still_waited_for_and_named(history: History, caplog: pytest.LogCaptureFixture) -> None:
    run(history, grid(), 4)
    history.requests.ask(["clinic-1"], BUDGET)
    with (
        caplog.at_level("INFO", "flwr"),
        pytest.raises(
            TimeoutError, match=r"2 SuperNodes .* and 3 are waited for \(missing: 'clinic-2'\)\. Start what"
        ),
    ):
        run(history, grid("clinic-1", "clinic-2"), 4, rounds=2)
    assert (
        "2 SuperNodes that may take part are connected, waiting at most 0 s for 3 (missing: 'clinic-2')"
        in caplog.text
    )
    due = history.timeline.requests[0].deadline[:10]
    assert f"request 1 waits for SuperNodes, and has to be served by {due}" in caplog.text
    # A number that can be reached by those who stay is not lowered, and newcomers are waited for as ever.
    run(history, grid("clinic-1", "clinic-2"), 2, rounds=2)
    with pytest.raises(TimeoutError, match="and 5 are waited for"):
        run(history, grid("clinic-1"), 6, rounds=3)


def test_where_everybody_has_left_nobody_is_waited_for(history: History) -> None:
    run(history, grid(), 4)
    history.requests.ask(list(CLINICS), BUDGET)
    with pytest.raises(ValueError, match="nobody is left who could take part"):
        run(history, grid(), 4, rounds=2, timeout=60.0)


def test_where_nobody_says_who_it_is_it_is_not_waited_for_long(
    history: History, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rescind.flower.server.nodes._GRACE", 0.05)
    with pytest.raises(
        TimeoutError, match=r"node \d+ \(its ClientApp has no @app\.query\(\)\).*rescind\.flower\.identify"
    ):
        run(history, grid(identify=False, authenticated=False), 2, timeout=600.0)
    assert caplog.text.count("failed: its ClientApp has no @app.query(). Its SuperNode's log says more") == 1
    assert caplog.text.count(" answered without a name of at most") == 1
    assert "rescind: 4 nodes (" in caplog.text
