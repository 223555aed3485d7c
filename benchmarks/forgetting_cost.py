"""How many rounds does forgetting one client cost, with proven noise, against training again from the start?

MNIST, a softmax head with an L2 term on public frozen features, rows of norm 1, everybody takes part, 60 rounds of 5
full-batch steps. A client leaves. Whoever forgets it is done when the remaining clients' mean accuracy is within half
a point of what 60 rounds without the client give. Compared are retraining (``scratch_rounds``), the planner, the best
of its candidates in hindsight, and the paper's rule with a fixed sigma made valid (exact calibration, the right
weights, sigma from the public list). Hindsight tries, for every sigma, the latest candidate, unless it would take
longer than the best known even without noise. Rows are medians over seeds; a way that has not arrived after three
times the training counts as that many rounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch

from benchmarks._measure import finish, progress
from benchmarks._mnist import parsed
from experiments.data import features, partitions, sets
from experiments.runs.cost import forgotten
from rescind import LocalTraining, SoftmaxL2
from rescind.core.calibration import Budget
from rescind.engines.simulation import Federation, Shard, Simulation, SoftmaxHead

TRAINED = 60
BUDGETS = (Budget(10.0, 0.01), Budget(5.0, 1e-5), Budget(3.0, 1e-5), Budget(1.0, 1e-5))
EXAMPLES = 20_000
EXTRACTORS: Mapping[str, Callable[..., Any]] = {
    "projection": features.random_projection,
    "convolutions": features.straightened_convolutions,
}


@dataclass(frozen=True)
class Setting:
    """A federation and its head."""

    features: str
    l2: float
    clients: int
    split: str


# What the shared rows are called here.
NAMES = {
    **{key: f"{key}_rounds" for key in ("planner", "hindsight", "paper", "scratch", "predicted")},
    "node": "planner_node",
    "sigma": "planner_sigma",
}
HEADS = (("projection", 0.001), ("projection", 0.003), ("convolutions", 0.001))
SETTINGS = [
    Setting(kind, l2, clients, split)
    for (kind, l2), clients, split in product(HEADS, (100, 1000), ("iid", "one class"))
]


@cache
def rows_of(kind: str, folder: str | None) -> tuple[Shard, Shard, int]:
    """Give training and test examples as rows of public features."""
    images = sets.load("mnist", folder)
    extract = EXTRACTORS[kind]
    train = Shard(extract(images.train), images.train_labels)
    return train, Shard(extract(images.test), images.test_labels), images.classes


def engine_of(setting: Setting, seed: int, folder: str | None) -> Simulation:
    train, test, classes = rows_of(setting.features, folder)
    split = {"iid": partitions.iid, "one class": partitions.one_class}[setting.split]
    parts = split(train.labels, setting.clients, EXAMPLES // setting.clients, seed)
    shards = {f"client-{at}": Shard(train.features[part], train.labels[part]) for at, part in enumerate(parts)}
    return Simulation(
        Federation(shards, test, classes),
        SoftmaxHead(train.features.shape[1], classes),
        LocalTraining(steps=5, learning_rate=1.8, loss=SoftmaxL2(l2=setting.l2, row_norm=1.0)),
        secret=f"forgetting cost {seed}".encode(),
    )


def measured(task: tuple[Setting, int, str | None, Sequence[Budget]]) -> list[dict[str, Any]]:
    """Train one federation and forget one of its clients under each budget."""
    setting, seed, folder, budgets = task
    torch.set_num_threads(1)
    found = forgotten(engine_of(setting, seed, folder), TRAINED, budgets, seed, None)
    return [{NAMES.get(key, key): value for key, value in row.items()} for row in found]


def row_of(setting: Setting, budget: Budget, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Take medians over the seeds; of modes the most frequent."""
    words = {key: max({run[key] for run in runs}, key=[run[key] for run in runs].count) for key in ("mode",)}
    return {
        "clients": setting.clients,
        "split": setting.split,
        "features": setting.features,
        "lambda": setting.l2,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        **{key: words.get(key) or median(run[key] for run in runs) for key in runs[0]},
    }


def main() -> None:
    chosen = parsed(__doc__, seeds=3)
    settings = [each for each in SETTINGS if not chosen.quick or (each.clients, each.l2) == (100, 0.001)]
    settings = settings[:2] if chosen.quick else settings
    budgets, seeds = (BUDGETS[::2], range(1)) if chosen.quick else (BUDGETS, range(chosen.seeds))
    tasks = [(setting, seed, chosen.data, budgets) for setting in settings for seed in seeds]
    os.environ["OMP_NUM_THREADS"] = "1"
    with get_context("forkserver").Pool(2) as workers:
        runs = list(progress(workers.imap(measured, tasks), "federations", len(tasks)))
    rows = []
    for at, setting in enumerate(settings):
        mine = runs[at * len(seeds) : (at + 1) * len(seeds)]
        rows += [row_of(setting, budget, [run[place] for run in mine]) for place, budget in enumerate(budgets)]
    finish(
        {
            "rows": rows,
            "worst_against_scratch": max(row["planner_rounds"] / row["scratch_rounds"] for row in rows),
            "not_proven": sum(row["mode"] == "heuristic" for row in rows),
        }
    )


if __name__ == "__main__":
    main()
