"""Whom a run knows: who takes part, who is silent, who asked to leave, and of whom only a pseudonym is left."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rescind.flower
from rescind import History
from rescind.cli import app
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope, Sampling
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.events import AnchorsNamed
from rescind.history.participants import name_key
from rescind.ledger.records import ErasureLevel
from rescind.methods import Scratch
from rescind.simulation import Federation, Simulation, SoftmaxHead
from rescind.testing import small
from rescind.testing.grid import InProcessGrid
from rescind.texts import natural_order
from rescind.views.clients import ClientState, KnownClient, list_clients
from rescind.views.overview import overview
from tests.builders import BUDGET, entries_of, register
from tests.recording import grid, initial, recorded


def federation(history: History, *absent: str, **options: Any) -> Revocable:
    """Return twelve clinics, without those that are absent."""
    whole = small.federation(12)
    shards = {name: shard for name, shard in whole.shards.items() if name not in absent}
    head = SoftmaxHead(small.FEATURES, small.CLASSES)
    chosen = {"sampling": Sampling.EVERYBODY} | options
    engine = Simulation(Federation(shards, whole.test, whole.classes), head, small.TRAINING, secret=b"x", **chosen)
    return Revocable(history, engine)


def by_name(history: History) -> dict[str, KnownClient]:
    return {client.called: client for client in list_clients(history)}


def states(history: History) -> dict[str, str]:
    return {name: client.state.value for name, client in by_name(history).items()}


def told(folder: Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["clients", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    return list(json.loads(result.output)["clients"])


def lines(folder: Path) -> list[list[str]]:
    result = CliRunner().invoke(app, ["clients", str(folder)])
    assert result.exit_code == 0, result.output
    return [re.split("  +", line.strip()) for line in result.output.splitlines()]


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    names = ["a", "client-2", "client-2b", "client-10", "client-010", "x9y10", "x10y9", "x10", "10", "9"]
    wanted = ["9", "10", "a", "client-2", "client-2b", "client-010", "client-10", "x9y10", "x10", "x10y9"]
    assert sorted(names, key=natural_order) == wanted
    # Whatever a client calls itself can be compared with whatever another one does.
    odd = ["", "٣", "²", "1" * 256, "a1", "1a", "\x1b[2J", "-1", "1.5", "\U0001d7d9"]
    shuffled = random.Random(0).sample(odd, len(odd))
    assert sorted(odd, key=natural_order) == sorted(shuffled, key=natural_order)


def test_everybody_is_listed_with_rounds_and_the_last_one(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation(history, "clinic-3").train(Rounds(2))
        federation(history, "clinic-10").train(Rounds(5))
        history.participants.label({"clinic-4": "[/] Clinic\nof the North"})
        times = [entry.time for entry in entries_of(history, "round")]
    rows = {row["name"]: row for row in told(tmp_path / "history")}
    assert (rows["clinic-10"]["rounds"], rows["clinic-10"]["last_model"]) == (2, "0.2")
    assert rows["clinic-10"]["last_time"] == times[1]
    assert (rows["clinic-3"]["rounds"], rows["clinic-3"]["last_model"]) == (3, "0.5")
    assert {row["state"] for name, row in rows.items() if name != "clinic-10"} == {"active"}
    assert rows["clinic-10"]["state"] == "silent"
    assert rows["clinic-4"]["label"] == "[/] Clinic\nof the North"
    assert {row["key"] for row in rows.values()} == {None}
    heads, *listed = lines(tmp_path / "history")
    assert heads == ["client", "state", "in the newest model", "rounds", "last round"]
    assert [line[0] for line in listed] == [
        r"[/] Clinic\nof the North",
        *(f"clinic-{at}" for at in range(12) if at != 4),
    ]
    assert ["clinic-10", "silent", "yes", "2", f"model 0.2, {times[1][:10]}"] in listed


def test_a_client_is_followed_from_asking_to_coming_back(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation(history).train(Rounds(2))
        (old,) = history.participants.find(["clinic-2"])
        number = history.requests.ask(["clinic-2"], BUDGET)
        assert states(history)["clinic-2"] == "asked to leave"
        history.requests.withdraw(number)
        assert states(history)["clinic-2"] == "active"
        history.requests.ask(["clinic-2"], BUDGET)
        federation(history).forget(Scratch(), Rounds(1))
        gone = f"forgotten (pseudonym {old})"
        assert states(history)[gone] == "forgotten"
        assert "clinic-2" not in states(history)
        history.participants.readmit("clinic-2", "a new contract")
        assert states(history)[gone] == "readmitted"
        federation(history).train(Rounds(2))
        assert states(history)["clinic-2"] == "active"
        assert by_name(history)["clinic-2"].rounds == 1
        assert by_name(history)["clinic-2"].pseudonym != old
    (row,) = (row for row in told(tmp_path / "history") if row["pseudonym"] == old)
    assert (row["name"], row["label"], row["key"]) == (None, None, None)
    assert [gone, "readmitted", "no", "0", "-"] in lines(tmp_path / "history")


def test_a_request_that_is_not_served_to_the_end_has_not_forgotten_anybody() -> None:
    with History.in_memory() as history:

        class DiesError(Exception):
            pass

        def die(*_: object) -> None:
            raise DiesError

        whole = federation(history)
        whole.train(Rounds(2))
        history.requests.ask(["clinic-2"], BUDGET)
        engine = whole.engine
        with pytest.raises(DiesError):
            Revocable(history, engine, watch=die).forget(Scratch(), Rounds(2))
        assert states(history)["clinic-2"] == "asked to leave"


def test_whose_rows_go_stays_under_another_pseudonym() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(2))
        (old,) = history.participants.find(["clinic-2"])
        history.requests.ask(["clinic-2"], BUDGET, scope=PrivacyScope.RECORDS)
        assert states(history)["clinic-2"] == "asked to forget rows"
        federation(history).forget(Scratch(), Rounds(1))
        found = {client.pseudonym: client for client in list_clients(history)}
        assert (found[old].state, found[old].name) == (ClientState.ROWS_FORGOTTEN, None)
        assert states(history)["clinic-2"] == "active"


def test_where_participants_are_drawn_nobody_is_called_silent() -> None:
    with History.in_memory() as history:
        federation(history, sampling=Sampling.POISSON, rate=0.5).train(Rounds(4))
        clients = list_clients(history)
    assert {client.state for client in clients} == {ClientState.ACTIVE}
    # It is not as if all had been there.
    assert any(client.last != ModelId(0, 4) for client in clients)


def test_what_is_erased_is_not_counted_and_nobody_is_missed_in_it() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(3))
        history.requests.ask(["clinic-2"], BUDGET)
        federation(history).forget(Scratch(), Rounds(1), level=ErasureLevel.PURGE)
        clients = by_name(history)
        assert clients["clinic-1"].rounds == 1
        assert clients["clinic-1"].last == ModelId(1, 1)
        assert clients["clinic-1"].state is ClientState.ACTIVE


def test_a_key_is_shown_where_clients_are_known_by_it(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        rescind.flower.run(recorded(history), grid(authenticated=True), initial(), num_rounds=1)
    key = name_key(InProcessGrid.key("clinic-4"))
    (row,) = (row for row in told(tmp_path / "history") if row["label"] == "clinic-4")
    assert row["key"] == row["name"] == key
    heads, *listed = lines(tmp_path / "history")
    assert heads[:2] == ["client", "key"]
    assert ["clinic-4", key, "active", "yes", "1"] in [line[:5] for line in listed]


def test_who_only_says_that_it_is_a_key_has_none() -> None:
    key = name_key(b"mine")
    with History.in_memory() as history:
        rescind.flower.run(recorded(history), grid(), initial(), num_rounds=1)
        register(history, key)
        assert by_name(history)[key].key is None


def test_a_lost_message_makes_a_client_silent_and_a_useless_reply_does_not() -> None:
    hostile_now = False

    def by_one(content: Any, context: Any) -> None:
        if hostile_now and context.node_config["client-id"] == "clinic-2":
            content.metric_records["metrics"]["num-examples"] = -3

    with History.in_memory() as history:
        on = grid(by_one)
        rescind.flower.run(recorded(history), on, initial(), num_rounds=1)
        hostile_now = True
        on.failing.add("clinic-4")
        rescind.flower.run(recorded(history), on, initial(), num_rounds=2)
        silent = {name for name, state in states(history).items() if state == "silent"}
        assert silent == {"clinic-4"}
        assert by_name(history)["clinic-4"].last == ModelId(0, 1)
        on.failing.clear()
        rescind.flower.run(recorded(history), on, initial(), num_rounds=4)
        assert "silent" not in states(history).values()


def test_status_sorts_anchors_as_people_look_for_them() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(1))
        anchors = register(history, "key-10", "key-9")
        history.participants.label({"key-10": "hospital-10", "key-9": "hospital-9"})
        history.journal.record(AnchorsNamed(tuple(anchors)))
        assert overview(history).anchors == ("hospital-9", "hospital-10")


def test_a_history_without_anybody_says_so(tmp_path: Path) -> None:
    with History(tmp_path / "history"):
        pass
    assert lines(tmp_path / "history") == [["nobody has taken part yet"]]
    assert told(tmp_path / "history") == []
