"""What runs at the coordinator: Flower's FedAvg, recorded, so that a hospital can leave."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind
import rescind.flower
from hospitals.patients import FEATURES

TRAINING = rescind.LocalTraining(steps=10, learning_rate=0.1, loss=rescind.LogisticL2(l2=0.01, row_norm=2.5))

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Forget whoever asked for it, then train on."""
    config = context.run_config
    arrays = ArrayRecord({"weight": Array(np.zeros((1, FEATURES))), "bias": Array(np.zeros(1))})
    rounds, accuracy = int(config["num-rounds"]), float(config["accuracy"])
    # A round begins once two hospitals are connected, Flower's default: it must not hang on any one of them.
    averaging = FedAvg(fraction_evaluate=0.0)
    checkpoints, secret = (str(config[name]) or None for name in ("checkpoints", "secret"))
    with rescind.History(str(config["history"]), checkpoints=checkpoints, secret=secret) as history:
        options = rescind.flower.Options(
            serve=rescind.flower.at_once if config["serve"] else None, approval=bool(config["approval"])
        )
        strategy = rescind.flower.Recorded(averaging, history, training=TRAINING, options=options)
        rescind.flower.run(
            strategy,
            grid,
            arrays,
            num_rounds=rounds,
            until=rescind.flower.Accuracy(accuracy, most=rounds) if accuracy else None,
            solve=bool(config["solve"]),
            save_to=str(config["model"]) or None,
        )
