"""What runs at a client."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor
from torch.utils.data import DataLoader

from network import task

# A simulation runs as many clients at a time as there are cores.
torch.set_num_threads(1)

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train the network on this client's images."""
    net, batches, _ = prepare(msg, context)
    config = msg.content.config_records["config"]
    loss = task.train(net, batches, int(context.run_config["local-epochs"]), float(config["lr"]))
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(batches.dataset)})
    return Message(content=RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Test the network on images that this client holds back."""
    net, _, batches = prepare(msg, context)
    metrics = MetricRecord({"accuracy": task.test(net, batches), "num-examples": len(batches.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)


def prepare(
    msg: Message, context: Context
) -> tuple[task.Net, DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Return the network that the server sent, and this client's images."""
    net = task.Net()
    net.load_state_dict(msg.content.array_records["arrays"].to_torch_state_dict())
    # Where a SuperNode names a file of its own, that is the client's part.
    config = {**context.run_config, **context.node_config}
    partition, partitions = int(config.get("partition-id", 0)), int(config.get("num-partitions", 1))
    training, held_out = task.load_data(str(config["data"]), partition, partitions)
    return net, training, held_out
