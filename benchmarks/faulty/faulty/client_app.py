"""Trains with our helper, unless a fault is asked for."""

from __future__ import annotations

import time
import zlib
from pathlib import Path

import numpy as np
from flwr.app import Array, Context, Message, RecordDict
from flwr.clientapp import ClientApp

import rescind.flower
from faulty.server_app import CLASSES, FEATURES

# Seconds for which a client does nothing.
PAUSES = {"slow": 12.0, "hangs": 45.0, "hangs for long": 90.0}

app = ClientApp()
app.query()(rescind.flower.identify)


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a client's examples, which follow from its name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    rows = rng.normal(size=(20 + len(name), FEATURES))
    return rows, (rows @ rng.normal(size=(FEATURES, CLASSES))).argmax(axis=1)


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Train, and misbehave as the file says."""
    path = Path(str(context.node_config.get("fault", "/nowhere")))
    fault = path.read_text().strip() if path.exists() else ""
    if fault == "raises":
        raise RuntimeError("this client was told to fail")
    time.sleep(PAUSES.get(fault, 0.0))
    # A run that is disturbed for hours has more rounds than a client answers by default.
    limits = rescind.flower.Limits(messages=10**6)
    reply = rescind.flower.train_head(msg, context, *data(str(context.node_config["client"])), limits=limits)
    spoil(reply.content, fault)
    return reply


def spoil(content: RecordDict, fault: str) -> None:
    """Change what a client sends."""
    arrays = content.array_records["arrays"]
    if fault == "NaN":
        arrays["head.weight"] = Array(np.full((CLASSES, FEATURES), np.nan))
    elif fault == "infinite":
        arrays["head.bias"] = Array(np.full(CLASSES, np.inf))
    elif fault == "too far":
        arrays["head.weight"] = Array(np.full((CLASSES, FEATURES), 1e6))
    elif fault == "wrong shape":
        arrays["head.weight"] = Array(np.zeros((CLASSES, FEATURES + 1)))
    elif fault == "thousandfold num-examples":
        content.metric_records["metrics"]["num-examples"] *= 1000
    elif fault == "frozen tensor changed":
        arrays["body"] = Array(np.arange(5, dtype=np.float32) + 1)
