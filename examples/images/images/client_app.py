"""What runs at a client: an anchor trains the body by code of its own, and everybody answers for the head."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import rescind.flower
from images import digits
from images.model import Model, features, train_body

# A simulation runs as many clients at a time as there are cores.
torch.set_num_threads(1)

app = ClientApp()


@app.query()
def query(msg: Message, context: Context) -> Message:
    """Say who this is, where the server has no registered keys to tell by."""
    return rescind.flower.identify_partition(msg, context)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Answer the server's question for the head, or train the body."""
    # What a SuperNode names goes before what the run says.
    config = {**context.run_config, **context.node_config}
    partition, partitions = int(config.get("partition-id", 0)), int(config.get("num-partitions", 1))
    images, labels = digits.share(str(config["data"]), partition, partitions)
    model = Model()
    model.load_state_dict(msg.content.array_records["arrays"].to_torch_state_dict())
    if rescind.flower.is_question(msg):
        return rescind.flower.train_head(msg, context, features(model, images), labels)
    train_body(model, images, labels, int(config["passes"]), float(config["learning-rate"]))
    metrics = MetricRecord({"num-examples": len(labels)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)
