"""What runs at the coordinator: Flower's FedAvg, recorded, with noise in every round."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind
import rescind.flower
from rescind.engines.server import NoisedAverage

FEATURES, HIDDEN = 10, 4
SERVER = NoisedAverage(clip=0.5, denominator=4, noise_multiplier=2.0)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Forget whoever asked for it, then train on."""
    config, rng = context.run_config, np.random.default_rng(0)
    start = {"first": rng.normal(size=(FEATURES, HIDDEN)), "second": rng.normal(size=HIDDEN)}
    arrays = ArrayRecord({name: Array(tensor) for name, tensor in start.items()})
    with rescind.History(str(config["history"])) as history:
        # By coins that always fall for taking part: four hospitals are few.
        strategy = rescind.flower.Recorded(FedAvg(fraction_evaluate=0.0), history, server=SERVER, rate=1.0)
        rescind.flower.run(strategy, grid, arrays, num_rounds=int(config["num-rounds"]), save_to=str(config["model"]))
