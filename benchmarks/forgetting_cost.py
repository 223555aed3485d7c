"""How many rounds does forgetting one client cost, with proven noise, against training again from the start?

MNIST, a softmax head with an L2 term on public frozen features, rows of norm 1, everybody takes part, 60 rounds of 5
full-batch steps. A client leaves. Whoever forgets it is done when the remaining clients' mean accuracy is within half
a point of what 60 rounds without the client give. Compared are retraining (``scratch_rounds``), the planner, the best
of its candidates in hindsight, and the paper's rule with a fixed sigma made valid (exact calibration, the right
weights, sigma from the public list). Of candidates with the same sigma hindsight tries the latest. Every row is a
median over seeds; a way that has not arrived after three times the training counts as that many rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks._measure import finish, parser, progress
from experiments.data import features, partitions, sets
from rescind import History, LocalTraining, SoftmaxL2
from rescind.core.calibration import Budget
from rescind.core.noise import Tensor, public_sigma, pulled
from rescind.core.planning import Candidate, candidates, cheapest, paper_choice
from rescind.core.summary import Request
from rescind.engines.server import noise
from rescind.engines.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable, pull_factor
from rescind.history.records import Place

TRAINED, MOST = 60, 180
HALF_A_POINT = 0.005
# The paper's for MNIST is 0.05.
PAPER_SIGMA = public_sigma(0.05)
BUDGETS = (Budget(10.0, 0.01), Budget(5.0, 1e-5), Budget(3.0, 1e-5), Budget(1.0, 1e-5))
EXAMPLES = 20_000


@dataclass(frozen=True)
class Setting:
    """A federation and its head."""

    clients: int
    split: str
    features: str
    l2: float


SETTINGS = [
    Setting(clients, split, kind, l2)
    for kind, l2 in (("projection", 0.001), ("projection", 0.003), ("convolutions", 0.001))
    for clients in (100, 1000)
    for split in ("iid", "one class")
]
EXTRACTORS: Mapping[str, Callable[..., Any]] = {
    "projection": features.random_projection,
    "convolutions": features.straightened_convolutions,
}


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


def without(engine: Simulation, names: Sequence[str], model: Mapping[str, Tensor], branch: int) -> Iterable[float]:
    """Train on without the leaver and give the remaining clients' accuracy before each round."""
    model = dict(model)
    for round_ in range(MOST + 1):
        yield engine.accuracy(model, names)
        replies = engine.train(model, Place(branch, round_ + 1), names)
        shares = replies.weights / replies.weights.sum()
        model = {name: np.tensordot(shares, np.asarray(replies.tensors[name]), axes=1) for name in model}


class Recovery:
    """Counts the rounds from a candidate to the target; each candidate's noise is drawn once."""

    def __init__(self, engine: Simulation, history: History, names: Sequence[str], target: float) -> None:
        self._engine, self._history, self._names, self._target = engine, history, names, target
        self._known: dict[tuple[Place, float], int] = {}

    def rounds(self, candidate: Candidate, most: int = MOST) -> int:
        place = Place(candidate.node.branch, candidate.node.round)
        key = (place, candidate.sigma)
        if key not in self._known:
            model = self._history.model(place)
            if candidate.sigma:
                noised, start = noise(model, candidate.sigma, None), self._engine.start()
                factor = pull_factor(noised, start, candidate.sigma)
                model = pulled(noised, start, factor) if factor < 1 else dict(noised)
            for round_, accuracy in enumerate(without(self._engine, self._names, model, 1)):
                if accuracy >= self._target or round_ == MOST:
                    self._known[key] = round_
                    break
                if round_ >= most:
                    # Not better than what is known; how much worse is not needed.
                    return round_
        return self._known[key]


def measured(setting: Setting, seed: int, folder: str | None, budgets: Sequence[Budget]) -> list[dict[str, Any]]:
    engine = engine_of(setting, seed, folder)
    leaver = engine.clients[np.random.default_rng(seed).integers(len(engine.clients))]
    names = [name for name in engine.clients if name != leaver]
    found = []
    with History.in_memory() as history:
        Revocable(history, engine).train(Rounds(TRAINED))
        group = history.clients([leaver])
        summary = history.summary(group)
        accuracies = [
            accuracy
            for accuracy, _ in zip(without(engine, names, engine.start(), 1), range(TRAINED + 1), strict=False)
        ]
        recovery = Recovery(engine, history, names, accuracies[-1] - HALF_A_POINT)
        test = engine.test_accuracy(history.model(history.newest))
        for budget in budgets:
            request = Request(group, budget)
            offered = candidates(summary, request)
            chosen = cheapest(offered)
            paper = paper_choice(summary, request, sigma=PAPER_SIGMA)
            scratch = recovery.rounds(offered[0])
            planner = recovery.rounds(chosen)
            latest = {each.sigma: each for each in offered}
            best = min(scratch, planner)
            for each in sorted(latest.values(), key=lambda each: each.predicted_rounds):
                best = min(best, recovery.rounds(each, best))
            found.append(
                {
                    "planner_rounds": planner,
                    "predicted_rounds": chosen.predicted_rounds,
                    "hindsight_rounds": best,
                    "paper_rounds": recovery.rounds(paper),
                    "scratch_rounds": scratch,
                    "test_accuracy": test,
                    "sigma": chosen.sigma,
                    "node": chosen.node.round,
                    "mode": chosen.mode.value,
                    "paper_node": paper.node.round,
                }
            )
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--data", help="the folder of mnist.npz; else the environment variable RESCIND_DATA")
    options.add_argument("--seeds", type=int, help="how many (3, quick 1)")
    options.add_argument("--only", type=int, nargs="*", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    settings = [each for each in SETTINGS if not chosen.quick or (each.clients == 100 and each.l2 == 0.001)]
    if chosen.only:
        settings = [settings[at] for at in chosen.only]
    budgets = BUDGETS[::2] if chosen.quick else BUDGETS
    seeds = range(chosen.seeds or (1 if chosen.quick else 3))
    rows = []
    for setting in progress(settings, "settings"):
        start = perf_counter()
        runs = [measured(setting, seed, chosen.data, budgets) for seed in seeds]
        for at, budget in enumerate(budgets):
            here = [run[at] for run in runs]
            row: dict[str, Any] = {
                "clients": setting.clients,
                "split": setting.split,
                "features": setting.features,
                "lambda": setting.l2,
                "epsilon": budget.epsilon,
                "delta": budget.delta,
            }
            for key, value in here[0].items():
                row[key] = value if isinstance(value, str) else median(each[key] for each in here)
            rows.append(row)
            print(row, flush=True)
        print(perf_counter() - start)
    finish({"rows": rows})


if __name__ == "__main__":
    main()
