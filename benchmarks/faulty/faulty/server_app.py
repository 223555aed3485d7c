"""A head behind a frozen tensor, recorded."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind
import rescind.flower

FEATURES, CLASSES = 6, 3
TRAINING = rescind.LocalTraining(steps=3, learning_rate=0.5, loss=rescind.SoftmaxL2(l2=0.02, row_norm=1.0))
TRAINED = ("head.bias", "head.weight")

app = ServerApp()


def initial() -> ArrayRecord:
    """Return the initial model."""
    return ArrayRecord(
        {
            "body": Array(np.arange(5, dtype=np.float32)),
            "head.weight": Array(np.zeros((CLASSES, FEATURES))),
            "head.bias": Array(np.zeros(CLASSES)),
        }
    )


def recorded(history: rescind.History, nodes: int) -> rescind.flower.Recorded:
    """Return the strategy."""
    averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=nodes)
    return rescind.flower.Recorded(averaging, history, training=TRAINING, trained=TRAINED)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train; with a file to look for, train and forget until somebody makes it."""
    config = context.run_config
    stop, timeout = Path(str(config["stop"])), float(config["timeout"])
    checkpoints, secret = (str(config[name]) or None for name in ("checkpoints", "secret"))
    with rescind.History(str(config["history"]), checkpoints=checkpoints, secret=secret) as history:
        strategy = recorded(history, int(config["nodes"]))
        while True:
            rescind.flower.run(
                strategy,
                grid,
                initial(),
                int(config["num-rounds"]),
                timeout=timeout,
                save_to=str(config["model"]) or None,
            )
            if not config["stop"] or stop.exists():
                return
            time.sleep(1)
