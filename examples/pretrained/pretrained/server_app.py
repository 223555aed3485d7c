"""What runs at the coordinator, without torch: Flower's FedAvg, recorded, for a ridge head on a published body."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind
import rescind.flower
from pretrained.published import CLASSES, DIGEST, FEATURES, NAME

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Forget whoever asked for it, then ask those who are not in the model yet."""
    config = context.run_config
    arrays = ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES))), "bias": Array(np.zeros(CLASSES))})
    with rescind.History(str(config["history"])) as history:
        strategy = rescind.flower.Recorded(
            FedAvg(min_available_nodes=int(config["clients"])),
            history,
            training=rescind.LocalTraining.solved(rescind.SquaredL2(l2=float(config["l2"]), row_norm=1.0)),
            body=rescind.flower.PublishedBody(NAME, DIGEST),
        )
        rescind.flower.run(strategy, grid, arrays, save_to=str(config["model"]) or None)
