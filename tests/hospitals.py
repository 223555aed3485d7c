"""The hospitals app, wherever it runs, and what the simulator trains of its data."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from rescind import History
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import RoundRecord
from rescind.simulation import Federation, LogisticHead, Shard, Simulation
from tests.builders import rounds_of

APP = Path(__file__).parents[1] / "examples" / "hospitals"
NAMES = ("cleveland", "hungary", "switzerland", "long_beach_va")
ROUNDS = 3
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


def differences(one: dict[str, Any], other: dict[str, Any], *names: str) -> float:
    return max(
        float(np.linalg.norm(one[name] - other[name]) / np.linalg.norm(other[name]))
        for name in names or ("weight", "bias")
    )


def by_name(rounds: list[RoundRecord], names: dict[int, str]) -> list[dict[str, float]]:
    return [
        {
            names[client]: float(distance)
            for client, distance in zip(record.clients.tolist(), record.participants["distance"], strict=True)
        }
        for record in rounds
    ]


def train_simulated() -> tuple[dict[str, Any], list[dict[str, float]]]:
    """Return what the simulator trains, and every client's distance in each round."""
    shards = {name: Shard(*module("patients").load(hospital(name))) for name in NAMES}
    head = LogisticHead(module("patients").FEATURES)
    training = module("server_app").TRAINING
    engine = Simulation(Federation(shards, shards["hungary"], 2), head, training, secret=b"none is used")
    with History.in_memory() as history:
        Revocable(history, engine).train(Rounds(ROUNDS))
        names = {client: name for name, client in history.participants.all().items()}
        return history.model(history.newest), by_name(rounds_of(history, 0, 1, ROUNDS), names)


def check_parity(model: dict[str, Any], rounds: list[RoundRecord], labels: dict[int, str]) -> None:
    """Check that the simulator trains the same, and measures the same."""
    simulated, measured = train_simulated()
    assert differences(model, simulated) <= 1e-12
    for mine, theirs in zip(by_name(rounds, labels), measured, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9)
