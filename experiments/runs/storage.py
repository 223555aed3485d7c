"""What it costs in rounds that only some models are kept.

One long training of a softmax head on public frozen features, everybody takes part, every model is kept. The rule by
which a run keeps models is then followed over the same rounds with less room, with and without a goal, and evenly
spaced models are taken beside it. From each set of kept models the planner chooses for clients drawn at random. What
that costs is predicted on one curve, that of all models, and for the first client it is measured: rounds until the
remaining clients' mean accuracy is within half a point of what as many rounds without the client give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.harness import Configuration, Row
from experiments.runs.cost import Recovery, engine_of
from rescind import History
from rescind.core.arrays import Floats
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId, RoundEdge
from rescind.core.planning import candidates, cheapest
from rescind.core.recovery import RecoveryCurve
from rescind.core.summary import Request, Summary
from rescind.core.tracker import SensitivityTracker
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.lineage import Lineage
from rescind.history.retention import Retention, exact_rounds, exact_shares
from rescind.history.run import Goal
from rescind.ledger.records import Branch


def thinned(summary: Summary, models: Floats, kept: Sequence[int]) -> Summary:
    """Return what planning would see if only these models of a training had been kept."""
    chosen = models[list(kept)]
    curve = RecoveryCurve.measured(
        nodes=np.array(kept, dtype=np.float64),
        trained=np.array(kept, dtype=np.float64),
        moves=np.linalg.norm(np.diff(chosen, axis=0), axis=1),
        travelled=np.linalg.norm(chosen - chosen[0], axis=1),
        parameters=summary.parameters,
        training=summary.facts.training,
    )
    return replace(summary, kept=[summary.kept[node] for node in kept], curve=curve)


def evenly(end: int, capacity: int) -> list[int]:
    """Return the first model, the last one, and so many between them, evenly spaced."""
    return sorted({round(at) for at in np.linspace(0, end, capacity + 2).tolist()})


def kept_by_the_rule(path: Lineage, capacity: int, goal: Goal | None) -> list[int]:
    """Return what a recorder would have kept of a branch 0 that everybody took part in."""
    tracker, retention = SensitivityTracker(), Retention(capacity, goal.threshold if goal else None)
    share = exact_shares({0: Branch(0, "")}, capacity)[0]
    for edge in path.edges:
        if not isinstance(edge, RoundEdge):
            raise TypeError(f"a training without restarts has rounds only, not {edge!r}")
        tracker.record(edge)
        set_aside = exact_rounds(0, tracker.last_node, share) if goal else ()
        retention.observe(tracker.last_node, edge.clients, tracker.sensitivities, set_aside)
    return list(retention.kept)


def kept_sets(history: History, configuration: Configuration) -> dict[tuple[str, int], list[int]]:
    """Return the models that are kept: by what rule, and with room for how many."""
    path, rounds = history.lineage(), configuration["rounds"]
    epsilon, delta, sigma = configuration["goal"]
    goals = {"rule": None, "rule with goal": Goal(Budget(epsilon, delta), sigma)}
    found = {}
    for capacity in configuration["capacities"]:
        for kind, goal in goals.items():
            found[(kind, capacity)] = kept_by_the_rule(path, capacity, goal)
        found[("evenly", capacity)] = evenly(rounds, capacity)
    return found


def run(configuration: Configuration) -> list[Row]:
    """Train once, and forget from what each rule keeps."""
    engine, seed, rounds = engine_of(configuration), configuration["seed"], configuration["rounds"]
    source = np.random.default_rng(seed)
    leavers = [engine.clients[at] for at in source.permutation(len(engine.clients))[: configuration["leavers"]]]
    found: list[Row] = []
    with History.in_memory() as history:
        Revocable(history, engine, capacity=rounds).train(Rounds(rounds))
        # Everybody is in every round, so one client's path is everybody's.
        summary = history.summary(history.participants.find(leavers[:1]))
        loaded = [history.model(ModelId(0, at)) for at in range(rounds + 1)]
        models = np.array([np.concatenate([tensor.ravel() for tensor in model.values()]) for model in loaded])
        seen = {kind: thinned(summary, models, kept) for kind, kept in kept_sets(history, configuration).items()}
        others = [name for name in engine.clients if name != leavers[0]]
        recovery = Recovery(engine, history, others, rounds, f"noise {seed}".encode())
        for epsilon in configuration["epsilons"]:
            requests = [
                Request(history.participants.find([leaver]), Budget(epsilon, configuration["delta"]))
                for leaver in leavers
            ]
            offered = [candidates(summary, request) for request in requests]
            by_node = [{each.node.index: each.predicted_rounds for each in every} for every in offered]
            best = [cheapest(every) for every in offered]
            scratch, measured = recovery.measure(offered[0][0]), recovery.measure(best[0])
            for (kind, capacity), thin in {("all", rounds): summary, **seen}.items():
                chosen = [cheapest(candidates(thin, request)) for request in requests]
                extra = [
                    rounds_at[own.node.index] - rounds_at[all_.node.index]
                    for rounds_at, own, all_ in zip(by_node, chosen, best, strict=True)
                ]
                found.append(
                    {
                        "epsilon": epsilon,
                        "kind": kind,
                        "capacity": capacity,
                        "kept": len(thin.kept),
                        "scratch": scratch.rounds,
                        "predicted_all": float(np.mean([each.predicted_rounds for each in best])),
                        "extra_predicted": float(np.mean(extra)),
                        "worst_predicted": float(np.max(extra)),
                        "measured_all": measured.rounds,
                        "measured": recovery.measure(chosen[0]).rounds,
                        "node": chosen[0].node.round,
                        "sigma": chosen[0].sigma,
                        "retrained": sum(each.node.index == 0 for each in chosen),
                    }
                )
    return found
