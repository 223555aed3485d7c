"""Clinics whose sums for a ridge head are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import Budget, History, LocalTraining, SquaredL2
from rescind.checkpoints.tensors import digest
from rescind.flower import run
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, federation
from tests.builders import labels_of, rounds_of
from tests.recording import wrap

CLINICS = federation(6).shards
LOSS = SquaredL2(l2=0.01, row_norm=1.0)
TRAINING = LocalTraining.solved(LOSS)
BUDGET = Budget(1.0, 1e-5)
EVERYBODY = tuple(CLINICS)


class Clinics:
    """Clients that note who was asked, at which model; ``rows`` says how many rows one has.

    ``removed`` says which rows one leaves out.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.shown: set[float] = set()
        self.rows: dict[str, int] = {}
        self.removed: dict[str, list[int]] = {}
        self.request = 1
        self.app = ClientApp()
        self.app.query()(rescind.flower.identify)
        self.app.train()(self.train)

    def train(self, msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        (settings,) = msg.content.config_records.values()
        # Whether its rows are named is no question about them.
        if not settings["rescind.only_rows"]:
            self.asked.append(name)
        (arrays,) = msg.content.array_records.values()
        self.shown |= {float(np.abs(array.numpy()).max()) for array in arrays.values()}
        shard, count = CLINICS[name], self.rows.get(name)
        told: dict[str, Any] = {}
        if name in self.removed:
            told = {"removed": self.removed[name], "request": self.request}
        return rescind.flower.train_head(msg, context, shard.features[:count], shard.labels[:count], **told)

    def start(self, history: History, *names: str, **options: Any) -> list[str]:
        """Run with the named clients alone, and return who was asked."""
        self.asked.clear()
        return self.run_on(history, InProcessGrid(self.app, {name: {"client-id": name} for name in names}), **options)

    def run_on(
        self, history: History, grid: InProcessGrid, save_to: Path | None = None, least: int = 1, **options: Any
    ) -> list[str]:
        """Run on these nodes, of which so many have to be there, and return who was asked."""
        mean = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=least)
        options = {"training": TRAINING} | options
        kind = options["training"].precision
        weight, bias = np.zeros((CLASSES, FEATURES), kind), np.zeros(CLASSES, kind)
        arrays = ArrayRecord({"weight": Array(weight), "bias": Array(bias)})
        run(wrap(mean, history, **options), grid, arrays, timeout=0.5, save_to=save_to)
        return sorted(self.asked)


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in EVERYBODY if name not in names)


def model_of(*names: str, rows: Mapping[str, int] | None = None) -> str:
    """Return the digest of the model of a federation that never had anybody else."""
    clinics = Clinics()
    clinics.rows = dict(rows or {})
    with History.in_memory() as history:
        clinics.start(history, *names)
        return newest(history)


def newest(history: History) -> str:
    return digest(history.model(history.newest))


def in_model(history: History) -> set[str]:
    round_, called = rounds_of(history, history.newest.branch)[-1], labels_of(history)
    return {called[int(client)] for client in round_.clients}
