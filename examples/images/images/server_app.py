"""What runs at the coordinator: Flower's FedAvg, recorded, for a network in two stages."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import rescind
import rescind.flower
from images import digits
from images.model import HEAD, Model, features

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Forget whoever asked for it, then train on."""
    config = context.run_config
    images, labels = digits.test(str(config["data"]))
    model, truth = Model(), torch.from_numpy(labels)

    @torch.no_grad()
    def evaluate(_: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        rows = features(model, images)
        heads = {"aux": model.aux, "head": model.head}
        return MetricRecord(
            {n: float((head(rows).argmax(dim=1) == truth).double().mean()) for n, head in heads.items()}
        )

    averaging = FedAvg(fraction_evaluate=0.0, min_available_nodes=int(config["clients"]))
    stages = rescind.flower.Stages(
        body_rounds=int(config["body-rounds"]),
        head=HEAD,
        loss=rescind.SoftmaxL2(l2=float(config["l2"]), row_norm=1.0),
    )
    with rescind.History(str(config["history"])) as history:
        strategy = rescind.flower.Recorded(
            averaging, history, stages=stages, anchors=[f"client-{at}" for at in range(int(config["anchors"]))]
        )
        rescind.flower.run(
            strategy,
            grid,
            ArrayRecord(model.state_dict()),
            evaluate_fn=evaluate,
            save_to=str(config["model"]) or None,
        )
