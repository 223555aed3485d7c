"""Small federations in numpy whose training can be repeated exactly without some of the clients.

Everything random is drawn from (seed, round, client), so two worlds that differ in who takes part share all else.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from rescind.core.aggregation import Aggregator
from rescind.core.edges import AbsentRound, Edge, NoiseEdge, RoundEdge
from rescind.core.noise import GRID, add_noise, grid_rounding
from rescind.core.sensitivity import GRAM_LIMIT
from rescind.core.training import UNIT_ROUNDOFF, LocalTraining
from rescind.entropy import ReproducibleBytesNeverCertified

Array = NDArray[np.floating]


class Objective(Protocol):
    """A client's loss with its data."""

    @property
    def examples(self) -> int: ...

    def gradient(self, theta: Array, rows: NDArray[np.int64] | slice) -> Array: ...


@dataclass(frozen=True)
class Quadratic:
    """theta' H theta / 2 - b' theta, one b for each example."""

    hessian: Array
    linear: Array

    @property
    def examples(self) -> int:
        return len(self.linear)

    def gradient(self, theta: Array, rows: NDArray[np.int64] | slice) -> Array:
        return np.asarray(self.hessian @ theta - self.linear[rows].mean(axis=0))


@dataclass(frozen=True)
class Softmax:
    """Softmax regression with L2 on all parameters; ``features`` carry a column of ones for the bias."""

    features: Array
    labels: Array
    l2: float

    @property
    def examples(self) -> int:
        return len(self.features)

    def gradient(self, theta: Array, rows: NDArray[np.int64] | slice) -> Array:
        features, labels = self.features[rows], self.labels[rows]
        shares = self.shares(features @ theta.reshape(features.shape[1], -1))
        slope = (features.T @ (shares - labels)).reshape(-1) / len(features)
        return np.asarray(slope + theta.dtype.type(self.l2) * theta)

    def shares(self, logits: Array) -> Array:
        return np.asarray(softmax(logits, axis=1))


@dataclass(frozen=True)
class Logistic(Softmax):
    """One-logit logistic regression: one column of labels."""

    def shares(self, logits: Array) -> Array:
        return np.asarray(expit(logits))


@dataclass(frozen=True)
class Sampling:
    """Who takes part: all, each with probability ``rate`` (Poisson), or ``size`` of those present.

    ``minimum`` is the fault of drawing a round again when too few replied.
    """

    rate: float | None = None
    size: int | None = None
    minimum: int = 0

    def draw(self, seed: int, key: int, present: Collection[int], known: int) -> list[int]:
        if self.size is not None:
            order = np.random.default_rng((seed, key, 1)).permutation(known).tolist()
            return sorted([client for client in order if client in present][: self.size])
        if self.rate is None:
            return sorted(present)
        for attempt in range(1000):
            chances = np.random.default_rng((seed, key, 2, attempt)).random(known)
            drawn = [client for client in sorted(present) if chances[client] < self.rate]
            if len(drawn) >= min(self.minimum, len(present)):
                return drawn
        raise AssertionError("no round was ever large enough")


@dataclass(frozen=True)
class Federation:
    """Clients, their common training, and every source of randomness.

    ``shared_batches`` is the fault of one stream of batches for all; ``pulls`` that of a noised restart which is
    pulled towards the start, by a factor that counts as a constant; ``narrow_mean`` that of a mean which is summed in
    the tensors' own type, as if its rounding did not count.
    """

    objectives: Sequence[Objective]
    steps: Sequence[int]
    training: LocalTraining
    sampling: Sampling
    start: Array
    seed: int
    batch: int | None = None
    shared_batches: bool = False
    pulls: bool = False
    narrow_mean: bool = False
    grid: float | None = GRID

    def train_client(self, client: int, theta: Array, stream: np.random.Generator) -> tuple[Array, float]:
        """Return the client's model after its steps, in float64 and cast once, and the largest gradient it met."""
        objective, start, largest = self.objectives[client], theta.astype(np.float64), 0.0
        rate, pull, local = self.training.learning_rate, self.training.proximal, start
        for _ in range(self.steps[client]):
            rows: NDArray[np.int64] | slice = slice(None)
            if self.batch is not None:
                rows = stream.integers(objective.examples, size=min(self.batch, objective.examples))
            gradient = objective.gradient(local, rows)
            largest = max(largest, float(np.linalg.norm(gradient)))
            local = local - rate * (gradient + pull * (local - start))
        return local.astype(theta.dtype), largest

    def train_round(self, theta: Array, key: int, participants: Sequence[int]) -> tuple[Array, RoundEdge]:
        """Train one round and record it, as a server would."""
        if not participants:
            none = np.empty(0)
            return theta, RoundEdge(np.empty(0, dtype=np.int64), none, none, none, 0.0, rounding=0.0)
        shared = np.random.default_rng((self.seed, key, 3))
        results = []
        for client in participants:
            own = np.random.default_rng((self.seed, key, 4, client))
            results.append(self.train_client(client, theta, shared if self.shared_batches else own))
        weights = np.array([float(self.objectives[client].examples) for client in participants])
        rate = self.training.server_learning_rate
        aggregator = Aggregator(weights, gram=len(participants) <= GRAM_LIMIT, server_learning_rate=rate)
        new = aggregator.add(theta, [model for model, _ in results])
        if self.narrow_mean:
            updates = np.stack([model for model, _ in results]) - theta
            new = theta + theta.dtype.type(rate) * ((weights / weights.sum()).astype(theta.dtype) @ updates)
        measured = aggregator.result()
        rounding = self.training.rounding(
            measured.largest_norm,
            parameters=theta.size,
            batch=self.batch or max(self.objectives[client].examples for client in participants),
            gradient_bound=max(largest for _, largest in results),
            steps=max(self.steps[client] for client in participants),
        )
        edge = RoundEdge(
            clients=np.array(participants, dtype=np.int64),
            weights=weights,
            factors=np.array([self.training.factor(self.steps[client]) for client in participants]),
            distances=measured.distances,
            update_norm=measured.update_norm,
            gram=measured.gram,
            rounding=rounding,
            server_learning_rate=rate,
        )
        return new, edge


@dataclass(frozen=True)
class Step:
    """What was done between two models: a round and who was present, or noise of some size, or the pull after it."""

    key: int
    present: frozenset[int] = frozenset()
    participants: tuple[int, ...] = ()
    sigma: float | None = None
    pull: float | None = None


@dataclass(frozen=True)
class Path:
    """The retained path: models, what was done between them, and its record."""

    models: tuple[Array, ...]
    steps: tuple[Step, ...] = ()
    edges: tuple[Edge, ...] = ()

    def truncated(self, node: int) -> Path:
        return Path(self.models[: node + 1], self.steps[:node], self.edges[:node])

    def extended(self, model: Array, step: Step, edge: Edge) -> Path:
        return Path((*self.models, model), (*self.steps, step), (*self.edges, edge))


def train(federation: Federation, path: Path, present: frozenset[int], rounds: int, first_key: int) -> Path:
    """Train on from the end of the path with the clients that are present."""
    for key in range(first_key, first_key + rounds):
        participants = federation.sampling.draw(federation.seed, key, present, len(federation.objectives))
        model, edge = federation.train_round(path.models[-1], key, participants)
        path = path.extended(model, Step(key, present, tuple(participants)), edge)
    return path


def noised(federation: Federation, theta: Array, sigma: float, key: int) -> Array:
    """Add noise that both worlds get alike, on the grid as the product does it (or bare, where there is none)."""
    if federation.grid is None:
        return theta + sigma * np.random.default_rng((federation.seed, key, 5)).standard_normal(theta.shape)
    source = ReproducibleBytesNeverCertified(federation.seed * 1000 + key)
    return add_noise({"theta": theta}, sigma, federation.grid, source)["theta"]


def pulled(federation: Federation, theta: Array, sigma: float) -> tuple[Array, float]:
    """Pull a noised model towards the start by James and Stein's factor; give the factor too, never quite 0."""
    way = theta - federation.start
    factor = max(1 - sigma**2 * theta.size / max(float(way @ way), 1e-300), 2.0**-10)
    return np.asarray(federation.start + theta.dtype.type(factor) * way), factor


def with_noise(federation: Federation, path: Path, sigma: float, key: int) -> Path:
    """Append a noise edge and, where a federation makes that mistake, the pull as one of a constant factor."""
    unit = UNIT_ROUNDOFF[federation.training.precision]
    theta = noised(federation, path.models[-1], sigma, key)
    norm = float(np.linalg.norm(theta.astype(np.float64)))
    rounding = 0.0 if federation.grid is None else grid_rounding(theta.size, norm, unit, federation.grid)
    path = path.extended(theta, Step(key, sigma=sigma), NoiseEdge(sigma, rounding, unit))
    if not federation.pulls:
        return path
    start = float(np.linalg.norm(federation.start.astype(np.float64)))
    model, factor = pulled(federation, theta, sigma)
    return path.extended(model, Step(key, pull=sigma), AbsentRound(factor, 16 * unit * (norm + start)))


def retrained_without(federation: Federation, path: Path, group: Collection[int]) -> list[Array]:
    """Repeat the path in the world that never had the group, coupled in everything else."""
    theta = path.models[0]
    models = [theta]
    for step in path.steps:
        if step.pull is not None:
            theta, _ = pulled(federation, theta, step.pull)
        elif step.sigma is not None:
            theta = noised(federation, theta, step.sigma, step.key)
        else:
            participants = [client for client in step.participants if client not in group]
            if federation.sampling.minimum:
                present = step.present.difference(group)
                participants = federation.sampling.draw(
                    federation.seed, step.key, present, len(federation.objectives)
                )
            theta, _ = federation.train_round(theta, step.key, participants)
        models.append(theta)
    return models
