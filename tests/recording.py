"""A Flower run as tests record it: a strategy, clinics that train a head, and a grid in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

import rescind.flower
from rescind import History
from rescind.flower import Options, Recorded
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation

CLINICS = federation(6).shards
TRAINED = ["head.bias", "head.weight"]
SEED = b"a federation for tests 0"
Change = Callable[[RecordDict, Context], None]
_OPTIONS = {option.name for option in fields(Options)}


def wrap(strategy: Strategy, history: History, **settings: Any) -> Recorded:
    """Return a recorded strategy; what of the settings is among its options goes there."""
    options = {name: settings.pop(name) for name in list(settings) if name in _OPTIONS}
    return Recorded(strategy, history, **settings, options=Options(**options))


def accuracy(arrays: ArrayRecord, name: str) -> float:
    rows, labels = CLINICS[name].features, CLINICS[name].labels
    rows = rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    logits = rows @ arrays["head.weight"].numpy().T + arrays["head.bias"].numpy()
    return float((logits.argmax(axis=1) == labels).mean())


def client_app(change: Change | None = None) -> ClientApp:
    """Return an app that trains with our helper; ``change`` alters what it sends."""
    app = ClientApp()

    @app.query()
    def query(msg: Message, context: Context) -> Message:
        return rescind.flower.identify(msg, context)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        shard = CLINICS[str(context.node_config["client-id"])]
        reply = rescind.flower.train_head(
            msg, context, shard.features, shard.labels, limits=rescind.flower.Limits(batch=4)
        )
        if change is not None:
            change(reply.content, context)
        return reply

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        told = rescind.flower.report_distance(msg, context)
        if told is not None:
            return told
        (arrays,) = msg.content.array_records.values()
        name = str(context.node_config["client-id"])
        metrics = MetricRecord({"accuracy": accuracy(arrays, name), "num-examples": len(CLINICS[name].labels)})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    return app


def grid(change: Change | None = None, clients: int = 6, authenticated: bool = False) -> InProcessGrid:
    nodes = {name: {"client-id": name} for name in list(CLINICS)[:clients]}
    return InProcessGrid(client_app(change), nodes, authenticated=authenticated)


def initial() -> ArrayRecord:
    return ArrayRecord(
        {
            "body": Array(np.arange(5, dtype=np.float32)),
            "head.weight": Array(np.zeros((CLASSES, FEATURES))),
            "head.bias": Array(np.zeros(CLASSES)),
        }
    )


def recorded(history: History, strategy: Any = None, **options: Any) -> Recorded:
    chosen = {"training": TRAINING, "trained": TRAINED, "seed": SEED} | options
    return wrap(strategy or fedavg(), history, **chosen)


def fedavg(**options: Any) -> FedAvg:
    return FedAvg(**({"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1} | options))
