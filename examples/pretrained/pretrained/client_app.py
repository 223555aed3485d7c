"""What runs at a client: its images become features, which stay here, and sums, which the server keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import rescind.flower
from pretrained import pictures
from pretrained.body import Body, as_rows

# A simulation runs as many clients at a time as there are cores.
torch.set_num_threads(1)

app = ClientApp()


@app.query()
def query(msg: Message, context: Context) -> Message:
    """Say who this is, where the server has no registered keys to tell by."""
    return rescind.flower.identify_partition(msg, context)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Answer with sums over the features, without those of images that somebody wants to be forgotten."""
    config = {**context.run_config, **context.node_config}
    body, (gone, request) = Body(), withdrawn(config)
    features, labels = look(body, config, "train", gone)
    # They are left out already, and of their features nothing is kept.
    left_out = {"removed": [], "request": request} if request else {}
    return rescind.flower.train_head(
        msg, context, features, labels, body=rescind.flower.digest_body(body), **left_out
    )


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Tell how many of this client's share of the test images the model gets right."""
    features, labels = look(Body(), {**context.run_config, **context.node_config}, "test")
    model = msg.content.array_records["arrays"]
    logits = features @ model["weight"].numpy().T + model["bias"].numpy()
    metrics = {"accuracy": float(np.mean(logits.argmax(axis=1) == labels)), "num-examples": len(labels)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)


def look(body: Body, config: Mapping[str, Any], part: str, gone: Sequence[int] = ()) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of a client's images, made once and kept in its cache, and what the images show.

    Where a SuperNode names its own file, that is its share.
    """
    own = int(config.get("partition-id", 0))
    share = pictures.share(str(config["data"]), own, int(config.get("num-partitions", 1)), part)
    images, labels = (np.delete(each, list(gone), axis=0) for each in share)
    folder = Path(str(config["cache"])).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    cache = folder / f"{part}-{own}.safetensors"
    return rescind.flower.extract_features(body, as_rows(images), cache=cache), labels


def withdrawn(config: Mapping[str, Any]) -> tuple[list[int], int]:
    """Return the images that are to be forgotten, counted from 0, and the last request that they belong to.

    A client names them in a file: on every line a request's number, and the images that were named for it.
    """
    file = Path(str(config["cache"])).expanduser() / f"withdrawn-{config.get('partition-id', 0)}"
    told = file.read_text().splitlines() if file.is_file() else []
    lines = [[int(number) for number in line.split()] for line in told]
    return [row for _, *rows in lines for row in rows], max((request for request, *_ in lines), default=0)
