"""What runs at a hospital: a network of two layers, trained by code that knows nothing of rescind."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Make ten steps on all patients."""
    table = np.nan_to_num(np.genfromtxt(str(context.node_config["data"]), delimiter=",", skip_header=1))
    rows, ill = table[:, :-1] / 100, table[:, -1]
    first, second = (msg.content.array_records["arrays"][name].numpy().copy() for name in ("first", "second"))
    for _ in range(10):
        seen = np.tanh(rows @ first)
        wrong = (1 / (1 + np.exp(-seen @ second)) - ill) / len(ill)
        inner = np.outer(wrong, second) * (1 - seen**2)
        first, second = first - 0.5 * rows.T @ inner, second - 0.5 * seen.T @ wrong
    arrays = ArrayRecord({"first": Array(first), "second": Array(second)})
    metrics = MetricRecord({"num-examples": len(ill)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)
