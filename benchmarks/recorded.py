"""Federations in numpy whose training is recorded in a real history."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import numpy as np

from benchmarks.federations import Federation, Sampling, Softmax, noised
from rescind import Budget, History
from rescind.core.aggregation import RoundMeasurement
from rescind.core.edges import ModelId
from rescind.core.facts import Facts
from rescind.core.facts import Sampling as SamplingFact
from rescind.core.noise import grid_rounding
from rescind.core.regularity import DeclaredLoss, SoftmaxL2
from rescind.core.rounds import Replies, RoundResult
from rescind.core.training import UNIT_ROUNDOFF, LocalTraining
from rescind.history.recorder import Recorder
from rescind.ledger.records import Branch

# The heads are written as one vector here, which is no weight and bias: so what is proven of them is declared.
_HEAD = SoftmaxL2(l2=0.05, row_norm=1.0)
TRAINING = LocalTraining(
    steps=3, learning_rate=0.5, loss=DeclaredLoss(_HEAD.curvature, gradient_bound=_HEAD.gradient_bound)
)
FACTS = Facts(
    training=TRAINING,
    sampling=SamplingFact.POISSON,
    independent_randomness=True,
    redrawn_rounds=False,
    secret_noise=True,
    sample=0.5,
)


def ask_ago(history: History, name: str, days: int) -> int:
    """Ask in the name of a client, as if that were days ago; return the request's number."""
    history.journal.clock = lambda: datetime.now(UTC) - timedelta(days=days)
    try:
        return history.requests.ask([name], Budget(8.0, 0.01))
    finally:
        history.journal.clock = lambda: datetime.now(UTC)


def federation(
    seed: int, clients: int = 6, rate: float | None = None, features: int = 3, classes: int = 3
) -> Federation:
    """Make a federation of L2 softmax heads, each client with labels of its own taste."""
    stream = np.random.default_rng(seed)
    objectives = []
    for client in range(clients):
        rows = stream.normal(size=(20 + 3 * client, features))
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = np.eye(classes)[(rows @ stream.normal(size=(features, classes))).argmax(axis=1)]
        objectives.append(Softmax(np.hstack([rows, np.ones((len(rows), 1))]), labels, 0.05))
    return Federation(
        objectives=objectives,
        steps=[3] * clients,
        training=TRAINING,
        sampling=Sampling(rate=rate),
        start=np.zeros((features + 1) * classes),
        seed=seed,
    )


def name(client: int) -> str:
    return f"hospital-{client}"


def train(
    recorder: Recorder, clients: Federation, rounds: int, present: Collection[int], *, behind: bool = False
) -> None:
    """Train on from the newest model and record every round."""
    theta = recorder.model()["theta"]
    for _ in range(rounds):
        key = 10_000 * recorder.model_id.branch + recorder.model_id.round + 1
        drawn = clients.sampling.draw(clients.seed, key, present, len(clients.objectives))
        theta, edge = clients.train_round(theta, key, drawn)
        replies = Replies(
            tuple(map(name, drawn)),
            np.array([float(clients.objectives[client].examples) for client in drawn]),
            tuple(clients.steps[client] for client in drawn),
            {},
            batch=0,
        )
        measured = RoundMeasurement(edge.distances, edge.update_norm, edge.gram)
        recorder.record(RoundResult(replies, {"theta": theta}, measured, edge.rounding), behind=behind)


def forget(
    recorder: Recorder,
    clients: Federation,
    parent: ModelId,
    sigma: float,
    requests: tuple[int, ...],
    model: dict[str, np.ndarray],
) -> Branch:
    """Restart from a kept model with noise."""
    theta = noised(clients, model["theta"], sigma, recorder.model_id.branch + 1)
    unit = UNIT_ROUNDOFF[clients.training.precision]
    return recorder.restart(
        parent,
        {"theta": theta},
        requests=requests,
        sigma=sigma,
        noise_rounding=grid_rounding(theta.size, float(np.linalg.norm(theta)), unit),
        unit_roundoff=unit,
    )
