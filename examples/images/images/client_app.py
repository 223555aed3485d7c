"""What runs at a client: the frozen extractor turns its images into rows once, our helper trains the head on them."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

import rescind.flower
from images import digits
from images.model import Model, features

# A simulation runs as many clients at a time as there are cores.
torch.set_num_threads(1)

app = ClientApp()

# A process of the simulation serves many clients, in many rounds; the extractor stays the same.
_ROWS: dict[int, tuple[NDArray[np.float32], NDArray[np.int64]]] = {}


@app.query()
def query(msg: Message, context: Context) -> Message:
    """Say who this is, where the server has no registered keys to tell by."""
    return rescind.flower.identify(msg, context)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train as the server says."""
    return rescind.flower.train_head(msg, context, *own_rows(context, msg.content.array_records["arrays"]))


def own_rows(context: Context, arrays: ArrayRecord) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the features of this client's images by the extractor that the server sent, and their digits."""
    # What a SuperNode names goes before what the run says.
    config = {**context.run_config, **context.node_config}
    partition = int(config["partition-id"])
    if partition not in _ROWS:
        images, labels = digits.share(str(config["data"]), partition, int(config["num-partitions"]))
        model = Model()
        model.load_state_dict(arrays.to_torch_state_dict())
        _ROWS[partition] = features(model, images), labels
    return _ROWS[partition]
