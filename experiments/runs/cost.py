"""What forgetting a client, or a group together, costs with proven noise, against training again from the start.

A softmax head with an L2 term on public frozen features, rows of norm 1, everybody takes part. Whoever forgets is
done when the remaining clients' mean accuracy is within half a point of what as many rounds without the leavers
give. Compared are retraining, the planner, the best of its candidates in hindsight, and the paper's rule with a
fixed sigma made valid (exact calibration, the right weights, sigma from the public list). Hindsight tries, for every
sigma, the latest candidate, unless it would take longer than the best known even without noise. A way that has not
arrived after three times the training counts as that many rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.data.federations import federation_of, head_of
from experiments.harness import Configuration, Row
from rescind import History, LocalTraining, SoftmaxL2
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.noise import public_sigma
from rescind.core.planning import Candidate, candidates, cheapest, paper_choice
from rescind.core.summary import Request
from rescind.engines.server import draw_noise
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.simulation import Simulation

HALF_A_POINT = 0.005
# The paper's for MNIST is 0.05.
PAPER_SIGMA = public_sigma(0.05)


@dataclass(frozen=True)
class Measured:
    """What one way cost: the rounds, and the test accuracy at their end."""

    rounds: int
    test: float


def engine_of(configuration: Configuration) -> Simulation:
    """Return the engine: full-batch steps, everybody takes part."""
    federation = federation_of(configuration)
    loss = SoftmaxL2(l2=configuration["l2"], row_norm=1.0)
    return Simulation(
        federation,
        head_of(federation),
        LocalTraining(
            steps=configuration["steps"],
            learning_rate=configuration["learning_rate"],
            loss=loss,
            precision=configuration.get("precision", "float64"),
        ),
        secret=f"cost {configuration['seed']}".encode(),
    )


class Recovery:
    """Counts the rounds from a candidate to the target, without the leavers; each candidate's noise is drawn once.

    The target comes from a model that is trained again for all rounds; ``retrained_test`` is its test accuracy.
    """

    def __init__(self, engine: Simulation, history: History, names: Sequence[str], rounds: int, seed: bytes) -> None:
        self._engine, self._history, self._names = engine, history, names
        self.most, self._seed = 3 * rounds, seed
        self._known: dict[tuple[ModelId, float], Measured] = {}
        model = engine.start()
        for round_ in range(rounds):
            model = self._next(model, round_)
        self.retrained_test = engine.test_accuracy(model)
        self._target = engine.accuracy(model, names) - HALF_A_POINT

    def measure(self, candidate: Candidate, most: int | None = None) -> Measured:
        """Count the rounds, at most three times the training's or ``most``."""
        model_id = ModelId(candidate.node.branch, candidate.node.round)
        key, most = (model_id, candidate.sigma), self.most if most is None else most
        if key in self._known:
            return self._known[key]
        model: Mapping[str, Tensor] = self._history.model(model_id)
        if candidate.sigma:
            model = draw_noise(
                model, candidate.sigma, self._seed, model_id.branch, model_id.round, repr(candidate.sigma)
            )
        rounds = 0
        while rounds < most and self._engine.accuracy(model, self._names) < self._target:
            model, rounds = self._next(model, rounds), rounds + 1
        found = Measured(rounds, self._engine.test_accuracy(model))
        # One that was given up may be asked for again with more patience.
        if rounds < most or most == self.most:
            self._known[key] = found
        return found

    def _next(self, model: Mapping[str, Tensor], rounds: int) -> dict[str, Tensor]:
        replies = self._engine.train(model, ModelId(1, rounds + 1), self._names)
        shares = replies.weights / replies.weights.sum()
        return {name: np.tensordot(shares, np.asarray(replies.tensors[name]), axes=1) for name in model}


def leaver_of(clients: Sequence[str], seed: int) -> str:
    """Return who leaves."""
    return clients[int(np.random.default_rng(seed).integers(len(clients)))]


def leavers_of(clients: Sequence[str], configuration: Configuration) -> list[str]:
    """Return who leaves together: those who are named, or so many, drawn by the seed; one if nothing is said."""
    leaving, seed = configuration.get("leaving", 1), configuration["seed"]
    if isinstance(leaving, list):
        return leaving
    if leaving == 1:
        return [leaver_of(clients, seed)]
    count = len(clients) // 4 if leaving == "a quarter" else leaving
    drawn = np.random.default_rng(seed).choice(len(clients), size=count, replace=False)
    return [clients[at] for at in sorted(drawn.tolist())]


def run(configuration: Configuration) -> list[Row]:
    """Train one federation and forget some of its clients under each budget, in every way that is compared."""
    found, _ = forgotten(configuration)
    return found


def forgotten(configuration: Configuration) -> tuple[list[Row], float]:
    """Do so, and give the rows and the test accuracy of a model that is trained again for all rounds."""
    engine, rounds, seed = engine_of(configuration), configuration["rounds"], configuration["seed"]
    leaving = leavers_of(engine.clients, configuration)
    found = []
    with History.in_memory() as history:
        Revocable(history, engine).train(Rounds(rounds))
        group = history.participants.find(leaving)
        summary = history.summary(group)
        others = [name for name in engine.clients if name not in leaving]
        recovery = Recovery(engine, history, others, rounds, f"noise {seed}".encode())
        for epsilon in configuration["epsilons"]:
            request = Request(group, Budget(epsilon, configuration["delta"]))
            offered = candidates(summary, request)
            chosen, paper = cheapest(offered), paper_choice(summary, request, sigma=PAPER_SIGMA)
            scratch, planner = recovery.measure(offered[0]), recovery.measure(chosen)
            best = min(scratch.rounds, planner.rounds)
            for each in sorted({each.sigma: each for each in offered}.values(), key=lambda each: -each.node.round):
                if scratch.rounds - each.node.round < best:
                    best = min(best, recovery.measure(each, best).rounds)
            found.append(
                {
                    "epsilon": epsilon,
                    "scratch": scratch.rounds,
                    "planner": planner.rounds,
                    "hindsight": best,
                    "paper": recovery.measure(paper).rounds,
                    "predicted": round(chosen.predicted_rounds, 1),
                    "scratch_test": round(scratch.test, 4),
                    "planner_test": round(planner.test, 4),
                    "node": chosen.node.round,
                    "sigma": chosen.sigma,
                    "mode": chosen.mode.value,
                }
            )
    return found, recovery.retrained_test
