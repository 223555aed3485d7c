"""What runs at the coordinator: training, then requests one after the other, each until the accuracy is back."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

import rescind
import rescind.flower
from rescind.core.calibration import Budget, ClassicBudget
from rescind.core.facts import PrivacyScope
from rescind.methods import FineTuning, PaperSifu, Scratch
from sifu import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, then forget one group after the other."""
    config = context.run_config
    seed, asked = int(config["seed"]), str(config["method"])
    sifu = PaperSifu(float(config["sigma"]))
    method = {"sifu": sifu, "sifu-sound": sifu, "scratch": Scratch(), "fine-tuning": FineTuning()}[asked]
    published = asked == "sifu"
    results = Path(str(config["results"])).expanduser()
    results.mkdir(parents=True, exist_ok=True)
    options = rescind.flower.Options(
        declared=not published,
        # All rounds are kept, as in the paper.
        capacity=10_000,
        level=rescind.ErasureLevel.OUTPUT,
        seed=str(seed).encode() if seed else None,
    )
    training = rescind.LocalTraining(
        steps=int(config["steps"]),
        learning_rate=float(config["learning-rate"]),
        loss=rescind.SoftmaxL2(l2=float(config["l2"]), row_norm=float(config["row-norm"])),
    )
    # To the paper's letter B = 1 is taken as given, as for a network of which nothing is stated; the noise is that of
    # the classic formula, for each client of a group alone.
    stated = rescind.LocalTraining.own_code("float64") if published else training
    formula, scope = (ClassicBudget, PrivacyScope.INDIVIDUAL) if published else (Budget, PrivacyScope.GROUP)
    budget = formula(float(config["epsilon"]), float(config["delta"]))
    least, most, every = (int(config[name]) for name in ("least", "most", "every"))
    until = rescind.Accuracy(float(config["threshold"]), least=least, most=most, every=every)

    with rescind.History.in_memory() as history:
        mean = FedAvg(
            fraction_train=float(config["fraction-train"]),
            fraction_evaluate=0.0,
            min_available_nodes=int(config["clients"]),
        )
        strategy = rescind.flower.Recorded(mean, history, training=stated, options=options)

        def run() -> nn.Linear:
            released = rescind.flower.run(
                strategy,
                grid,
                ArrayRecord(task.start()),
                until=until,
                method=method,
                save_to=results / "model.safetensors",
            )
            model = task.module()
            model.load_state_dict(released.arrays.to_torch_state_dict())
            return model

        run()
        clients = len(list(grid.get_node_ids()))
        remaining = set(range(clients))
        for number, label in enumerate(map(int, str(config["leaving"]).split()), 1):
            group = {client for client in remaining if task.class_of(client, clients) == label}
            if not group:
                continue
            remaining -= group
            history.requests.ask([f"client-{client}" for client in sorted(group)], budget, scope=scope)
            model, outcome = run(), history.outcomes()[-1]
            # Who has left is not asked any more: the experimenter, who has all the data, looks by himself.
            left, kept = (
                task.accuracy(model, [task.load(config, client, clients) for client in sorted(chosen)])
                for chosen in (group, remaining)
            )
            row = {"method": asked, "seed": seed, "request": number, "rounds": outcome.rounds}
            row |= {"mode": outcome.mode.value, "forget": round(left, 4), "retain": round(kept, 4)}
            logging.getLogger("flwr").info("sifu: %s", json.dumps(row))
            with (results / "rows.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
