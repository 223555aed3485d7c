"""Four hospitals with one model of heart disease: what it costs that one of them leaves, or two.

Logistic regression with an L2 term, trained as in the Flower example; everybody takes part with all its patients.
Whoever forgets is done when the mean accuracy of the remaining hospitals, each on its own patients, is within half a
point of what as many rounds without the leaver give; or, by a finer measure, when of the loss that those rounds gain
all but a hundredth is gained. Compared are the planner, noise on the newest model (``last``), and retraining from the
start. The seed draws the noise and nothing else: the training has no chance in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from experiments.data import heart
from experiments.harness import Configuration, Row
from experiments.runs.restarts import Arrival, Model, recovered, restarted, trained_on
from rescind import History, LocalTraining, LogisticL2
from rescind.core.calibration import Budget
from rescind.core.planning import Candidate, candidates, cheapest
from rescind.core.sensitivity import group_sensitivity
from rescind.core.summary import Request
from rescind.engines.heads import clip_rows
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.simulation import Federation, LogisticHead, Shard, Simulation

HALF_A_POINT = 0.005
HUNDREDTH = 0.01


@cache
def federation() -> Federation:
    """Return the hospitals; no patient is held out, so the test data are everybody's, and nobody looks at them."""
    hospitals = heart.load(None)
    shards = {
        name: Shard(rows, labels)
        for name, rows, labels in zip(hospitals.names, hospitals.rows, hospitals.labels, strict=True)
    }
    return Federation(shards, Shard(np.concatenate(hospitals.rows), np.concatenate(hospitals.labels)), 2)


def engine_of(configuration: Configuration, without: int = 0) -> Simulation:
    """Return the engine, with the training of the Flower example; so many patients of who leaves can be left out."""
    shards = dict(federation().shards)
    for name in configuration["leaving"]:
        shards[name] = Shard(shards[name].features[without:], shards[name].labels[without:])
    head_loss = LogisticL2(l2=configuration["l2"], row_norm=configuration["row_norm"])
    return Simulation(
        replace(federation(), shards=shards),
        LogisticHead(len(heart.FEATURES)),
        LocalTraining(steps=configuration["steps"], learning_rate=configuration["learning_rate"], loss=head_loss),
        equal_weights=configuration.get("equal_weights", False),
        secret=b"four hospitals",
    )


def loss(model: Model, names: Sequence[str], row_norm: float) -> float:
    """Return the mean of the hospitals' losses, each the mean over its patients, without the L2 term."""
    found = []
    for name in names:
        shard = federation().shards[name]
        logits = clip_rows(shard.features, row_norm) @ model["weight"][0] + model["bias"][0]
        found.append(np.mean(np.logaddexp(0.0, logits) - shard.labels * logits))
    return float(np.mean(found))


def run(configuration: Configuration) -> list[Row]:
    """Train with all four, and forget who leaves under each budget."""
    engine, rounds, leaving = engine_of(configuration), configuration["rounds"], configuration["leaving"]
    others = [name for name in engine.clients if name not in leaving]
    seed = f"hospitals {configuration['seed']}".encode()
    again = trained_on(engine, engine.start(), others, rounds)
    least = engine.accuracy(again, others) - HALF_A_POINT
    start, end = (loss(model, others, configuration["row_norm"]) for model in (engine.start(), again))
    most = end + HUNDREDTH * (start - end)
    goals: dict[str, Callable[[Model], bool]] = {
        "accuracy": lambda model: engine.accuracy(model, others) >= least,
        "loss": lambda model: loss(model, others, configuration["row_norm"]) <= most,
    }
    known: dict[tuple[int, float], dict[str, Arrival]] = {}

    def measured(candidate: Candidate) -> dict[str, Arrival]:
        key = (candidate.node.index, candidate.sigma)
        if key not in known:
            model = restarted(history, candidate, seed)
            known[key] = recovered(engine, model, others, goals, 3 * rounds)
        return known[key]

    def accuracies(model: Model, when: str) -> Row:
        return {
            f"remaining_{when}": engine.accuracy(model, others),
            f"leaver_{when}": engine.accuracy(model, leaving),
        }

    found = []
    with History.in_memory() as history:
        # Every model is kept: what a checkpoint is worth is another figure's question.
        Revocable(history, engine, capacity=rounds).train(Rounds(rounds))
        group = history.participants.find(leaving)
        summary = history.summary(group)
        psi = float(group_sensitivity(summary.edges, group)[-1])
        before, patients = (
            history.model(history.newest),
            sum(len(federation().shards[name].labels) for name in leaving),
        )
        for epsilon, delta in configuration["budgets"]:
            offered = candidates(summary, Request(group, Budget(epsilon, delta)))
            scratch, chosen, last = offered[0], cheapest(offered), offered[-1]
            row: Row = {
                "epsilon": epsilon,
                "delta": delta,
                "patients": patients,
                "psi": psi,
                "node": chosen.node.round,
                "sigma": chosen.sigma,
                "mode": chosen.mode.value,
                "predicted": round(chosen.predicted_rounds, 1),
                "last_node": last.node.round,
                "last_sigma": last.sigma,
            }
            for name, candidate in (("planner", chosen), ("scratch", scratch), ("last", last)):
                arrived = measured(candidate)
                row |= {f"{name}_by_{goal}": arrived[goal].rounds for goal in goals}
                row |= accuracies(arrived["accuracy"].model, name)
            found.append(row | accuracies(before, "before") | accuracies(again, "again"))
    return found
