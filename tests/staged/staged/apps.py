"""Both halves of the app, in numpy; a hospital's rows follow from its name."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import History, SoftmaxL2

ANCHORS = ("cleveland", "hungary")
BODY_ROUNDS = 2
FEATURES, WIDTH, CLASSES = 6, 4, 3
# So much of it that Newton's method needs few rounds.
STAGES = rescind.flower.Stages(BODY_ROUNDS, ("head.weight", "head.bias"), SoftmaxL2(l2=20.0, row_norm=1.0))

# Flower looks for one name on a line.
client = ClientApp()
server = ServerApp()
client.query()(rescind.flower.identify)


@client.train()
def train(msg: Message, context: Context) -> Message:
    """Answer the solver, or train the body towards the directions in which the rows vary."""
    rng = np.random.default_rng(zlib.crc32(Path(str(context.node_config["data"])).stem.encode()))
    rows = rng.normal(size=(40, FEATURES))
    labels = np.abs(rows[:, :CLASSES]).argmax(axis=1)
    arrays = msg.content.array_records["arrays"]
    body = arrays["body"].numpy()
    if rescind.flower.is_question(msg):
        hidden = np.tanh(rows @ body.T)
        features = hidden / np.linalg.norm(hidden, axis=1, keepdims=True)
        return rescind.flower.train_head(msg, context, features, labels)
    own = ArrayRecord({**arrays, "body": Array(body + 0.1 * body @ (rows.T @ rows) / len(rows))})
    return Message(
        RecordDict({"arrays": own, "metrics": MetricRecord({"num-examples": len(rows)})}),
        reply_to=msg,
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Forget whoever asked for it, then train on."""
    model = {
        "body": np.random.default_rng(3).normal(size=(WIDTH, FEATURES)),
        "head.weight": np.zeros((CLASSES, WIDTH)),
        "head.bias": np.zeros(CLASSES),
    }
    arrays = ArrayRecord({name: Array(tensor) for name, tensor in model.items()})
    with History(str(context.run_config["history"])) as history:
        averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=2)
        strategy = rescind.flower.Recorded(averaging, history, stages=STAGES, anchors=ANCHORS)
        rescind.flower.run(strategy, grid, arrays, save_to=str(context.run_config["model"]))
