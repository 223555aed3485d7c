"""What runs at the coordinator: Flower's FedAvg, recorded, so that a client can be forgotten."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind
import rescind.flower
from images import digits
from images.model import TRAINED, Model, features

# The largest learning rate that drives no two models apart is 2 / beta = 1.998, beta = (row_norm^2 + 1) / 2 + l2.
TRAINING = rescind.LocalTraining(
    steps=5, learning_rate=1.99, loss=rescind.SoftmaxL2(l2=0.001, row_norm=1.0), precision="float64"
)

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Forget whoever asked for it, then train on."""
    config = context.run_config
    images, labels = digits.test(str(config["data"]))
    model = Model()
    arrays = ArrayRecord(model.state_dict())
    rows, truth = torch.from_numpy(features(model, images)).double(), torch.from_numpy(labels)

    @torch.no_grad()
    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        right = model.head(rows).argmax(dim=1) == truth
        return MetricRecord({"accuracy": float(right.double().mean())})

    averaging = FedAvg(fraction_evaluate=0.0, min_available_nodes=int(config["clients"]))
    with rescind.History(str(config["history"])) as history:
        strategy = rescind.flower.Recorded(
            averaging, history, training=TRAINING, trained=TRAINED, rate=float(config["rate"])
        )
        rescind.flower.run(
            strategy,
            grid,
            arrays,
            num_rounds=int(config["num-rounds"]),
            evaluate_fn=evaluate,
            save_to=str(config["model"]) or None,
        )
