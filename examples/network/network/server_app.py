"""What runs at the coordinator."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from network.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train the network by federated averaging."""
    config = context.run_config
    arrays = ArrayRecord(Net().state_dict())
    strategy = FedAvg()
    result = strategy.start(
        grid,
        arrays,
        num_rounds=int(config["num-rounds"]),
        train_config=ConfigRecord({"lr": float(config["learning-rate"])}),
    )
    path = Path(str(config["model"])).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(result.arrays.to_torch_state_dict(), path)
