"""What older versions of Flower lack, what takes its place, and whose name is made from what."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NoReturn

import pytest
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

import rescind.flower
from rescind import History
from rescind.core.facts import Source
from rescind.flower.server import grid as grid_module
from rescind.flower.versions import list_nodes
from rescind.flower.wire import EXECUTED
from rescind.testing.grid import InProcessGrid, pose_as_task
from tests.builders import BUDGET
from tests.recording import CLINICS, client_app, initial, recorded

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ("flwr.app", "flwr.clientapp", "flwr.serverapp")


class NumbersOnly(InProcessGrid):
    """A Grid as it was before 1.38: it gives the numbers of nodes, and nothing else of them."""

    @property
    def get_nodes(self) -> NoReturn:  # type: ignore[override]
        raise AttributeError("get_nodes")


def test_only_what_flower_documents_is_imported() -> None:
    for file in [*(ROOT / "src").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            private = [name for name in names if name.split(".")[0] == "flwr" and not name.startswith(PUBLIC)]
            assert not private, f"{file}: {private}"


def test_errors_have_flowers_numbers() -> None:
    named = (ErrorCode.LOAD_CLIENT_APP_EXCEPTION, ErrorCode.INVALID_FAB, ErrorCode.CLIENT_APP_CRASHED)
    assert tuple(grid_module._BY_CODE) == named


def test_where_a_grid_gives_numbers_only_clients_are_called_what_they_say_and_leave(history: History) -> None:
    on = NumbersOnly(client_app(), {name: {"client-id": name} for name in CLINICS})
    assert [(node.node_id, node.registered) for node in list_nodes(on)] == [(node, False) for node in on.ids.values()]
    strategy = recorded(history)
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    assert history.run.facts.sources.identity is Source.REPORTED
    assert set(history.participants.all()) == set(CLINICS)
    history.requests.ask(["clinic-1"], BUDGET)
    on.sent.clear()
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    assert {name for name, kind in on.sent if kind == MessageType.TRAIN} == set(CLINICS) - {"clinic-1"}


def test_of_two_nodes_that_say_the_same_the_one_seen_last_takes_part(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    first, again = "clinic-0", "clinic-0, started anew"

    class Returning(NumbersOnly):
        def get_node_ids(self) -> list[int]:
            self.gone = {name for name in (again,) if (first, MessageType.TRAIN) not in self.sent}
            # The newest first: the order says nothing of when a node came.
            return list(super().get_node_ids())[::-1]

    on = Returning(client_app(), {name: {"client-id": name} for name in CLINICS} | {again: {"client-id": first}})
    rescind.flower.run(recorded(history), on, initial(), num_rounds=3)
    asked = [name for name, kind in on.sent if kind == MessageType.TRAIN and name in (first, again)]
    assert asked == [first, again, again]
    assert f"the one that came last takes part, node {on.ids[again]}" in caplog.text


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"client-id": "mine", "client-name": "site-1", "partition-id": 0}, "mine"),
        # As FLARE configures its sites: partitions are given out by the order of names, and shift.
        ({"client-name": "site-1", "partition-id": 0, "num-partitions": 2}, "site-1"),
        ({"partition-id": 0, "num-partitions": 2}, None),
        ({}, None),
    ],
)
def test_a_name_is_made_from_a_position_only_where_the_app_says_so(config: dict[str, Any], name: str | None) -> None:
    def ask(answer: Any) -> Any:
        pose_as_task()
        question = Message(RecordDict({"config": ConfigRecord({})}), 7, MessageType.QUERY)
        context = Context(1, 7, config, RecordDict(), {})
        return answer(question, context).content.config_records[EXECUTED]["client-id"]

    if name is not None:
        assert ask(rescind.flower.identify) == ask(rescind.flower.identify_partition) == name
        return
    with pytest.raises(ValueError, match=r"identify_partition takes the place of identify"):
        ask(rescind.flower.identify)
    if config:
        assert ask(rescind.flower.identify_partition) == "client-0"
