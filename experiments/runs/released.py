"""SIFU with the settings of the code that was released with the paper, for what its weights alone do.

Nothing of the product is used: momentum and noise from a seed have no bound. Softmax regression with bias on
normalised pixels, plain means of a fixed number of clients, classes that leave one after the other. A client adds its
distance from the mean of a round, times a weight, to its Psi, which begins anew in each branch. Training goes back to
the last model before somebody of the group is above Psi*: in the first branch where somebody is, or in the newest.
Noise is added at every restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from experiments.data import partitions, sets
from experiments.harness import Configuration, Row
from rescind.core.calibration import ClassicBudget, sensitivity_threshold

SCRATCH = "Scratch"
# What a distance from the mean counts, by how many clients are left and how many take part.
WEIGHTS: Mapping[str, Callable[[int, int], float]] = {
    "SIFU, 1/(clients - 1)": lambda left, _: 1 / (left - 1),
    "SIFU, 1/(participants - 1)": lambda _, drawn: 1 / (drawn - 1),
}
NEWEST = ", newest branch"
# Where it is looked for the model to go back to: from the first branch on, as in Algorithm 3, or in the newest alone.
SIFU = (*WEIGHTS, f"SIFU, 1/(clients - 1){NEWEST}")
MEAN, DEVIATION = 0.1307, 0.3081

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Clients:
    """Everybody's rows, with a one for the bias, and labels: (clients, rows, features + 1) and (clients, rows)."""

    rows: Floats
    labels: NDArray[np.int64]
    grams: Floats
    targets: Floats

    @classmethod
    def of(cls, configuration: Configuration) -> Clients:
        """Return every client the images of one class; ten neighbours share it."""
        images, count = sets.load("mnist", None), configuration["clients"]
        each = configuration["examples"] // count
        parts = partitions.one_class(images.train_labels, count, each, configuration["seed"])
        pixels = (images.train[np.concatenate(parts)].reshape(count, each, -1) / 255 - MEAN) / DEVIATION
        rows = np.concatenate([pixels, np.ones((count, each, 1))], axis=2)
        labels = images.train_labels[np.concatenate(parts)].reshape(count, each)
        return cls(rows, labels, rows @ rows.transpose(0, 2, 1), np.eye(10)[labels])

    def accuracy(self, model: Floats, who: Sequence[int]) -> float:
        """Return the mean of the clients' accuracies."""
        return float(((self.rows[who] @ model).argmax(axis=2) == self.labels[who]).mean())

    def train(self, model: Floats, who: Sequence[int], configuration: Configuration) -> Floats:
        """Return their models after full-batch steps with momentum, iterated on the logits."""
        rows, grams, targets = self.rows[who], self.grams[who], self.targets[who]
        step = configuration["learning_rate"] / rows.shape[1]
        logits, velocity, total = rows @ model, np.zeros_like(targets), np.zeros_like(targets)
        for _ in range(configuration["steps"]):
            velocity = configuration["momentum"] * velocity + softmax(logits, axis=2) - targets
            total += velocity
            logits -= step * (grams @ velocity)
        trained: Floats = model - step * (rows.transpose(0, 2, 1) @ total)
        return trained


@dataclass(eq=False)
class Branch:
    """The models of a branch, and every client's Psi at each of them."""

    number: int
    models: list[Floats]
    psi: list[Floats] = field(default_factory=list)


def run(configuration: Configuration) -> list[Row]:
    """Train, and let classes leave one after the other."""
    clients, seed, count = Clients.of(configuration), configuration["seed"], configuration["clients"]
    draws = np.random.Generator(np.random.PCG64([seed, 1]))
    bound = 1 / math.sqrt(clients.rows.shape[2] - 1)
    start = np.random.Generator(np.random.PCG64([seed, 0])).uniform(-bound, bound, (clients.rows.shape[2], 10))
    method = configuration["method"]
    weight = WEIGHTS.get(method.removesuffix(NEWEST))
    goal = sensitivity_threshold(
        configuration["sigma"], ClassicBudget(configuration["epsilon"], configuration["delta"]).mu
    )

    def train(branch: Branch, left: Sequence[int]) -> None:
        branch.psi.append(np.zeros(count))
        while not ended(branch, left):
            who = sorted(draws.choice(left, configuration["drawn"], replace=False).tolist())
            trained = clients.train(branch.models[-1], who, configuration)
            mean = trained.mean(axis=0)
            psi = branch.psi[-1].copy()
            if weight is not None:
                distances = np.sqrt(((trained - mean) ** 2).sum(axis=(1, 2)))
                psi[who] += weight(len(left), len(who)) * distances
            branch.psi.append(psi)
            branch.models.append(mean)

    def ended(branch: Branch, left: Sequence[int]) -> bool:
        rounds = len(branch.models) - 1
        if rounds < configuration["least"] or rounds % configuration["every"]:
            return False
        good = clients.accuracy(branch.models[-1], left) >= configuration["threshold"]
        return good or bool(rounds >= configuration["most"])

    left, path = list(range(count)), [Branch(0, [start])]
    train(path[0], left)
    trained, found = len(path[0].models) - 1, list[Row]()
    leaving = count // 10
    for number, group in enumerate(configuration["groups"], 1):
        gone = list(range(group * leaving, (group + 1) * leaving))
        left = [client for client in left if client not in gone]
        if weight is None:
            begun, branch = (0, 0), Branch(number, [start])
        else:
            path, at = cut(path, gone, goal, newest=method.endswith(NEWEST))
            begun = (path[-1].number, at)
            noise = np.random.Generator(np.random.PCG64([seed, 2, number])).normal(size=start.shape)
            branch = Branch(number, [path[-1].models[at] + configuration["sigma"] * noise])
            path.append(branch)
        train(branch, left)
        found.append(
            {
                "request": number,
                "trained": trained,
                "from": f"{begun[0]}.{begun[1]}",
                "rounds": len(branch.models) - 1,
                "retain": round(clients.accuracy(branch.models[-1], left), 4),
                "forget": round(clients.accuracy(branch.models[-1], gone), 4),
            }
        )
    return found


def cut(path: list[Branch], gone: Sequence[int], goal: float, *, newest: bool) -> tuple[list[Branch], int]:
    """Return the path up to the model that training goes back to, and that model's round."""
    for at, branch in enumerate(path):
        below = [psi[gone].max() <= goal for psi in branch.psi]
        if at == len(path) - 1 or not (newest or all(below)):
            last = max(number for number, fits in enumerate(below) if fits)
            branch.models, branch.psi = branch.models[: last + 1], branch.psi[: last + 1]
            return path[: at + 1], last
    raise AssertionError("a path has a branch")
