"""The hospitals app on a real federation, and the same numbers wherever it runs."""

from __future__ import annotations

import importlib
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from safetensors.numpy import load_file
from typer.testing import CliRunner

from benchmarks._federation import Deployment, Node
from rescind import History
from rescind.cli import app as command_line
from rescind.core.facts import Mode, Source
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.outcomes import Outcome
from rescind.ledger.records import ModelId, RoundRecord, Span
from rescind.simulation import Federation, LogisticHead, Shard, Simulation
from rescind.testing.grid import InProcessGrid

APP = Path(__file__).parents[1] / "examples" / "hospitals"
NAMES = ("cleveland", "hungary", "switzerland", "long_beach_va")
ROUNDS = 4
SECONDS = 400.0


def hospital(name: str) -> Path:
    return APP / "data" / f"{name}.csv"


def module(name: str) -> ModuleType:
    if str(APP) not in sys.path:
        sys.path.insert(0, str(APP))
    return importlib.import_module(f"hospitals.{name}")


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the app's run-config; keys with underscores, as ``Deployment`` takes them."""
    defaults = {"history": str(folder / "history"), "model": str(folder / "model.safetensors"), "num_rounds": ROUNDS}
    return defaults | changes


@dataclass(frozen=True)
class Happened:
    """What a federation left behind, and what its logs said."""

    folder: Path
    trained: dict[str, Any]
    rounds: list[RoundRecord]
    labels: dict[int, str]
    sources: Any
    outcome: Outcome
    solved: Outcome
    newest: ModelId
    problems: list[str]
    first_log: str
    second_log: str
    third_log: str
    solved_log: str
    node_log: str
    refused: str
    known: list[bytes]


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> Happened:
    folder = tmp_path_factory.mktemp("federation")
    nodes = [Node(name, f'data="{hospital(name)}"') for name in NAMES]
    logs = []
    with Deployment(folder / "deployment", nodes) as deployment:

        def run(**changes: Any) -> None:
            number = deployment.run(APP, **config(folder, **changes))
            status = deployment.wait(number, SECONDS)
            logs.append(deployment.log(number))
            assert status == "finished:completed", logs[-1]

        run()
        trained = load_file(folder / "model.safetensors")
        with History(folder / "history") as history:
            rounds = list(history.ledger.rounds(Span(0, 1, ROUNDS)))
            labels, sources = history.ledger.labels(), history.run.facts.sources
            # What everybody was sent, and knows all four.
            known = [history.model(ModelId(0, each))["weight"].tobytes() for each in range(1, ROUNDS)]
        words = ["request", "add", str(folder / "history"), "switzerland", "--epsilon", "10", "--delta", "0.01"]
        assert CliRunner().invoke(command_line, words).exit_code == 0
        run(num_rounds=2, hospitals=3)
        # Switzerland's SuperNode is still connected.
        run(num_rounds=3, hospitals=3)
        with History(folder / "history") as history:
            (outcome,) = history.outcomes()
            newest, released = history.newest, load_file(folder / "model.safetensors")
            for name, tensor in history.model(newest).items():
                np.testing.assert_array_equal(released[name], tensor)
        assert CliRunner().invoke(command_line, [*words[:3], "long_beach_va"]).exit_code == 0
        run(hospitals=3, solve=True)
        deployment.unregister("switzerland")
        deployment.kill("switzerland")
        with pytest.raises(ChildProcessError) as refusal:
            deployment.start("switzerland")
        node_log = deployment.node_log("switzerland")
    with History(folder / "history") as history:
        # What was solved goes back to before everybody: Switzerland's claim is exact, too, now.
        also, solved = history.outcomes()
        assert also.modes == (Mode.EXACT,)
        problems = history.verify()
    return Happened(
        folder,
        trained,
        rounds,
        labels,
        sources,
        outcome,
        solved,
        newest,
        problems,
        *logs,
        node_log,
        str(refusal.value),
        known,
    )


def test_all_hospitals_train_and_are_known_by_their_keys(happened: Happened) -> None:
    assert [len(each.clients) for each in happened.rounds] == [4] * ROUNDS
    assert sorted(happened.labels.values()) == sorted(NAMES)
    assert happened.sources.identity is Source.CHECKED
    assert happened.sources.training is Source.EXECUTED
    assert f"model 0.{ROUNDS} with 4 of 4 clients" in happened.first_log


def test_one_hospital_leaves_by_a_plan_with_noise_from_a_later_round(happened: Happened) -> None:
    assert happened.outcome.modes == (Mode.INSTANCE,)
    assert happened.outcome.planned is not None
    candidate = happened.outcome.planned.candidate
    assert candidate.node.round > 0
    assert candidate.sigma > 0
    assert happened.outcome.rounds == 2
    assert f"request {happened.outcome.asked[0].number} is served (instance)" in happened.second_log
    assert "flwr supernode unregister" in happened.second_log


def test_who_left_is_not_asked_again_though_it_is_connected(happened: Happened) -> None:
    assert happened.newest == ModelId(1, 3)
    assert "model 1.3 with 3 of 3 clients" in happened.third_log
    # The first run's id is in the node's log; those of the runs after the request are not.
    assert happened.node_log.count("rescind: trained for model 0.") == ROUNDS
    assert "trained for model 1." not in happened.node_log


def test_another_hospital_is_forgotten_exactly_in_a_handful_of_rounds(happened: Happened) -> None:
    assert happened.solved.modes == (Mode.EXACT,)
    assert happened.solved.rounds <= 6
    assert f"model 2.{happened.solved.rounds} with 2 of 2 clients" in happened.solved_log
    assert "answered for model 2." not in happened.node_log
    shards = {name: Shard(*module("patients").load(hospital(name))) for name in ("cleveland", "hungary")}
    head, training = LogisticHead(module("patients").FEATURES), module("server_app").TRAINING
    engine = Simulation(Federation(shards, shards["hungary"], 2), head, training, secret=b"none is used")
    with History.in_memory() as history:
        newest = Revocable(history, engine).solve()
        assert newest.round == happened.solved.rounds
        assert differences(load_file(happened.folder / "model.safetensors"), history.model(newest)) <= 1e-9


def test_who_left_is_refused_once_its_key_is_barred(happened: Happened) -> None:
    assert "Failed to activate SuperNode" in happened.refused


def test_what_was_erased_is_gone_and_the_chain_holds(happened: Happened) -> None:
    assert happened.problems == []
    assert happened.outcome.left == ()
    stored = b"".join(path.read_bytes() for path in (happened.folder / "history").rglob("*") if path.is_file())
    assert b"switzerland" not in stored
    assert b"cleveland" in stored


def test_flowers_log_does_not_name_who_left(happened: Happened) -> None:
    superlink = (happened.folder / "deployment" / "superlink.log").read_text()
    for log in (happened.first_log, happened.second_log, happened.third_log, superlink):
        assert "rescind" in log or log is superlink
        assert "switzerland" not in log


def test_flowers_database_keeps_a_name_and_once_it_is_cleaned_no_model(happened: Happened) -> None:
    """Stopped and cleaned as docs/deployment.md says."""
    database = happened.folder / "deployment" / "state.db"
    with closing(sqlite3.connect(database)) as connection:
        for statement in ("PRAGMA secure_delete = ON", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            connection.execute(statement)
        query = "SELECT name FROM node WHERE unregistered_at IS NOT NULL"
        assert connection.execute(query).fetchall() == [("switzerland",)]
    stored = b"".join(path.read_bytes() for path in database.parent.glob("state.db*"))
    assert b"switzerland" in stored
    assert len(happened.known) == ROUNDS - 1
    assert [at for at, model in enumerate(happened.known, start=1) if model in stored] == []


def test_the_released_model_is_saved(happened: Happened) -> None:
    saved = load_file(happened.folder / "model.safetensors")
    with History(happened.folder / "history") as history:
        for name, tensor in history.model(history.newest).items():
            np.testing.assert_array_equal(saved[name], tensor)


# Parity: what the federation trained is what everybody else trains


def differences(one: dict[str, Any], other: dict[str, Any]) -> float:
    return max(
        float(np.linalg.norm(one[name] - other[name]) / np.linalg.norm(other[name])) for name in ("weight", "bias")
    )


def by_name(rounds: list[RoundRecord], names: dict[int, str]) -> list[dict[str, float]]:
    return [
        {
            names[client]: float(distance)
            for client, distance in zip(each.clients.tolist(), each.participants["distance"], strict=True)
        }
        for each in rounds
    ]


def check(happened: Happened, model: dict[str, Any], rounds: list[RoundRecord], names: dict[int, str]) -> None:
    assert differences(model, happened.trained) <= 1e-12
    for mine, theirs in zip(by_name(rounds, names), by_name(happened.rounds, happened.labels), strict=True):
        assert mine.keys() == theirs.keys()
        for name, distance in mine.items():
            assert distance == pytest.approx(theirs[name], rel=1e-9)


def test_the_simulator_trains_the_same(happened: Happened) -> None:
    shards = {name: Shard(*module("patients").load(hospital(name))) for name in NAMES}
    head = LogisticHead(module("patients").FEATURES)
    training = module("server_app").TRAINING
    engine = Simulation(Federation(shards, shards["hungary"], 2), head, training, secret=b"none is used")
    with History.in_memory() as history:
        Revocable(history, engine).train(Rounds(ROUNDS))
        names = {client: name for name, client in history.ledger.identities().items()}
        check(happened, history.model(history.newest), list(history.ledger.rounds(Span(0, 1, ROUNDS))), names)


def test_a_grid_in_this_process_trains_the_same(happened: Happened, tmp_path: Path) -> None:
    grid = InProcessGrid(module("client_app").app, {name: {"data": str(hospital(name))} for name in NAMES})
    chosen = {key.replace("_", "-"): value for key, value in config(tmp_path).items()}
    context = Context(1, 1, {}, RecordDict(), {"hospitals": 4, "accuracy": 0.0, "solve": False, "data": ""} | chosen)
    module("server_app").main(grid, context)
    with History(tmp_path / "history") as history:
        rounds = list(history.ledger.rounds(Span(0, 1, ROUNDS)))
        check(happened, load_file(tmp_path / "model.safetensors"), rounds, history.ledger.labels())


def test_flowers_own_simulation_trains_the_same(happened: Happened, tmp_path: Path) -> None:
    with Deployment(tmp_path / "ray", simulated=4) as simulated:
        run = simulated.run(APP, **config(tmp_path, data=str(APP / "data")))
        assert simulated.wait(run, SECONDS) == "finished:completed", simulated.log(run)
    with History(tmp_path / "history") as history:
        assert history.run.facts.sources.identity is Source.REPORTED
        rounds = list(history.ledger.rounds(Span(0, 1, ROUNDS)))
        check(happened, load_file(tmp_path / "model.safetensors"), rounds, history.ledger.labels())
