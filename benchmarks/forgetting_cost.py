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

import numpy as np
import torch

from benchmarks._measure import finish, progress
from benchmarks._mnist import parsed
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


HEADS = (("projection", 0.001), ("projection", 0.003), ("convolutions", 0.001))
SETTINGS = [
    Setting(kind, l2, clients, split)
    for (kind, l2), clients, split in product(HEADS, (100, 1000), ("iid", "one class"))
]


@dataclass(frozen=True)
class Measured:
    """What one way cost: the rounds, and the test accuracy at their end."""

    rounds: int
    test: float


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


class Recovery:
    """Counts the rounds from a candidate to the target, without the leaver; each candidate's noise is drawn once."""

    def __init__(self, engine: Simulation, history: History, names: Sequence[str]) -> None:
        self._engine, self._history, self._names = engine, history, names
        self._known: dict[tuple[Place, float], Measured] = {}
        model = engine.start()
        for round_ in range(TRAINED):
            model = self._next(model, round_)
        self._target = engine.accuracy(model, names) - HALF_A_POINT

    def measure(self, candidate: Candidate, most: int = MOST) -> Measured:
        """Count up to ``most`` rounds."""
        place = Place(candidate.node.branch, candidate.node.round)
        key = (place, candidate.sigma)
        if key in self._known:
            return self._known[key]
        model: Mapping[str, Tensor] = self._history.model(place)
        if candidate.sigma:
            noised, start = noise(model, candidate.sigma, None), self._engine.start()
            factor = pull_factor(noised, start, candidate.sigma)
            model = pulled(noised, start, factor) if factor < 1 else noised
        rounds = 0
        while rounds < most and self._engine.accuracy(model, self._names) < self._target:
            model, rounds = self._next(model, rounds), rounds + 1
        found = Measured(rounds, self._engine.test_accuracy(model))
        # One that was given up may be asked for again with more patience.
        if rounds < most or most == MOST:
            self._known[key] = found
        return found

    def _next(self, model: Mapping[str, Tensor], rounds: int) -> dict[str, Tensor]:
        replies = self._engine.train(model, Place(1, rounds + 1), self._names)
        shares = replies.weights / replies.weights.sum()
        return {name: np.tensordot(shares, np.asarray(replies.tensors[name]), axes=1) for name in model}


def measured(task: tuple[Setting, int, str | None, Sequence[Budget]]) -> list[dict[str, Any]]:
    """Train one federation and forget one of its clients under each budget."""
    setting, seed, folder, budgets = task
    torch.set_num_threads(1)
    engine = engine_of(setting, seed, folder)
    leaver = engine.clients[np.random.default_rng(seed).integers(len(engine.clients))]
    found = []
    with History.in_memory() as history:
        Revocable(history, engine).train(Rounds(TRAINED))
        group = history.clients([leaver])
        summary = history.summary(group)
        recovery = Recovery(engine, history, [name for name in engine.clients if name != leaver])
        for budget in budgets:
            request = Request(group, budget)
            offered = candidates(summary, request)
            chosen, paper = cheapest(offered), paper_choice(summary, request, sigma=PAPER_SIGMA)
            scratch, planner = recovery.measure(offered[0]), recovery.measure(chosen)
            best = min(scratch.rounds, planner.rounds)
            for each in sorted({each.sigma: each for each in offered}.values(), key=lambda each: -each.node.round):
                if scratch.rounds - each.node.round < best:
                    best = min(best, recovery.measure(each, best).rounds)
            by_paper = recovery.measure(paper)
            found.append(
                {
                    "planner_rounds": planner.rounds,
                    "hindsight_rounds": best,
                    "paper_rounds": by_paper.rounds,
                    "scratch_rounds": scratch.rounds,
                    "predicted_rounds": round(chosen.predicted_rounds, 1),
                    "planner_test": planner.test,
                    "paper_test": by_paper.test,
                    "scratch_test": scratch.test,
                    "planner_node": chosen.node.round,
                    "planner_sigma": chosen.sigma,
                    "mode": chosen.mode.value,
                }
            )
    return found


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
