"""Both halves of the app, in numpy; a hospital's rows follow from its name."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import History, LocalTraining, SquaredL2

FEATURES, WIDTH, CLASSES = 6, 12, 3
BODY = np.random.default_rng(3).normal(size=(WIDTH, FEATURES))
DIGEST = hashlib.sha256(BODY.tobytes()).hexdigest()

# Flower looks for one name on a line.
client = ClientApp()
server = ServerApp()
client.query()(rescind.flower.identify)


@client.train()
def train(msg: Message, context: Context) -> Message:
    """Answer with sums over the features of the hospital's rows."""
    rng = np.random.default_rng(zlib.crc32(Path(str(context.node_config["data"])).stem.encode()))
    rows = rng.normal(size=(40, FEATURES))
    hidden = np.tanh(rows @ BODY.T)
    features = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
    return rescind.flower.train_head(msg, context, features, np.abs(rows[:, :CLASSES]).argmax(axis=1), body=DIGEST)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Forget whoever asked for it, then solve with whoever is not in the model yet."""
    arrays = ArrayRecord({"weight": Array(np.zeros((CLASSES, WIDTH))), "bias": Array(np.zeros(CLASSES))})
    with History(str(context.run_config["history"])) as history:
        averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=2)
        strategy = rescind.flower.Recorded(
            averaging,
            history,
            training=LocalTraining.solved(SquaredL2(l2=0.01, row_norm=1.0)),
            body=rescind.flower.PublishedBody("a random layer", DIGEST),
        )
        rescind.flower.run(strategy, grid, arrays, save_to=str(context.run_config["model"]))
