"""What runs at a client; it knows nothing of forgetting but its name."""

from __future__ import annotations

from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

import rescind.flower
from sifu import task

# A simulation runs as many clients at a time as there are cores.
torch.set_num_threads(1)

app = ClientApp()
app.query()(rescind.flower.identify_partition)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train on this client's examples."""
    model, rows, labels = prepare(msg, context)
    task.train(model, rows, labels, settings(context))
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Tell the accuracy on them, by which training ends."""
    model, rows, labels = prepare(msg, context)
    metrics = MetricRecord({"accuracy": task.accuracy(model, [(rows, labels)]), "num-examples": len(labels)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


def prepare(msg: Message, context: Context) -> tuple[nn.Linear, Tensor, Tensor]:
    """Return the model that the server sent, and this client's examples."""
    model = task.module()
    model.load_state_dict(msg.content.array_records["arrays"].to_torch_state_dict())
    config = settings(context)
    return model, *task.load(config, int(config["partition-id"]), int(config["num-partitions"]))


def settings(context: Context) -> dict[str, Any]:
    """Return the run's settings; where a SuperNode names a folder of its own, that goes first."""
    return {**context.run_config, **context.node_config}
