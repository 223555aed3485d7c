"""The hospitals app trains the same wherever it runs; test_federation compares the simulator with real processes."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, RecordDict
from safetensors.numpy import load_file

from benchmarks._federation import Deployment
from rescind import History
from rescind.core.facts import Source
from rescind.testing.grid import InProcessGrid
from tests.builders import labels_of, rounds_of
from tests.hospitals import APP, NAMES, ROUNDS, SECONDS, check_parity, config, hospital, module


def check_run(folder: Path) -> None:
    with History(folder / "history") as history:
        rounds = rounds_of(history, 0, 1, ROUNDS)
        check_parity(load_file(folder / "model.safetensors"), rounds, labels_of(history))


def test_a_grid_in_this_process_trains_the_same(tmp_path: Path) -> None:
    grid = InProcessGrid(module("client_app").app, {name: {"data": str(hospital(name))} for name in NAMES})
    chosen = {key.replace("_", "-"): value for key, value in config(tmp_path).items()}
    defaults = {"accuracy": 0.0, "solve": False, "serve": False, "approval": False}
    defaults |= dict.fromkeys(("data", "checkpoints", "secret"), "")
    context = Context(1, 1, {}, RecordDict(), defaults | chosen)
    module("server_app").main(grid, context)
    check_run(tmp_path)


def test_flowers_own_simulation_trains_the_same(tmp_path: Path) -> None:
    with Deployment(tmp_path / "ray", simulated=4) as simulated:
        run = simulated.run(APP, **config(tmp_path, data=str(APP / "data")))
        assert simulated.wait(run, SECONDS) == "finished:completed", simulated.log(run)
    with History(tmp_path / "history") as history:
        assert history.run.facts.sources.identity is Source.REPORTED
    check_run(tmp_path)
