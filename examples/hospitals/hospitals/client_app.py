"""What runs at a hospital: our helper trains the head, the hospital's data stay where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import rescind.flower
from hospitals import patients

# Partitions of a simulation, in this order.
NAMES = ("cleveland", "hungary", "switzerland", "long_beach_va")

app = ClientApp()


@app.query()
def query(msg: Message, context: Context) -> Message:
    """Say who this is, where the server has no registered keys to tell by."""
    context.node_config.setdefault("client-id", name(context))
    return rescind.flower.identify(msg, context)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train as the server says, without patients who withdrew."""
    file = Path(str(context.node_config.get("withdrawn", ""))).expanduser()
    receipts = f"{file}.receipts.json" if file.name else None
    removed, request = withdrawn(context)
    return rescind.flower.train_head(
        msg, context, *own_patients(context), removed=removed, request=request, receipts=receipts
    )


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Tell how many of the hospital's own patients the model gets right, without those who withdrew."""
    rows, labels = (np.delete(own, withdrawn(context)[0], axis=0) for own in own_patients(context))
    model = msg.content.array_records["arrays"]
    logits = rows @ model["weight"].numpy().T + model["bias"].numpy()
    accuracy = float(np.mean((logits[:, 0] > 0) == labels))
    metrics = MetricRecord({"accuracy": accuracy, "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


def own_patients(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Load this hospital's file: the one that its SuperNode names, or in a simulation the one of its partition."""
    if "data" in context.node_config:
        return patients.load(str(context.node_config["data"]))
    return patients.load(Path(str(context.run_config["data"])) / f"{name(context)}.csv")


def withdrawn(context: Context) -> tuple[list[int], int]:
    """Return the rows of patients who withdrew, and the last request that they belong to.

    The SuperNode may name a file for them: on every line a request's number, and the rows that were named for it.
    """
    file = Path(str(context.node_config.get("withdrawn", ""))).expanduser()
    told = file.read_text().splitlines() if file.is_file() else []
    lines = [[int(number) for number in line.split()] for line in told]
    return [row for _, *rows in lines for row in rows], max((request for request, *_ in lines), default=0)


def name(context: Context) -> str:
    """Return this hospital's name: that of its file, or of its partition."""
    config = context.node_config
    return Path(str(config["data"])).stem if "data" in config else NAMES[int(config["partition-id"])]
