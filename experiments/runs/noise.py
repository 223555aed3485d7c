"""The noise that one leaver takes under each rule, for one training.

A softmax head with an L2 term (or without) on public frozen features, everybody takes part. Psi is taken at a model
with B = 1 and with the proven factor, for one client and for ten together, and by the strict bound, which sees no
update; then sigma at every budget, as a plan asks for it, and the smallest member of the public list above it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from experiments.harness import Configuration, Row
from experiments.runs.cost import engine_of
from experiments.runs.distances import with_one
from rescind import History
from rescind.core.arrays import Floats
from rescind.core.calibration import Budget, ClassicBudget
from rescind.core.facts import PublicHead
from rescind.core.noise import public_sigma, sigma_limits
from rescind.core.sensitivity import group_sensitivity
from rescind.core.strict import strict_sensitivity
from rescind.core.summary import Request
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable


def run(configuration: Configuration) -> list[Row]:
    """Train, choose who leaves, and work out all sigmas."""
    engine, rounds = engine_of(configuration), configuration["rounds"]
    source = np.random.default_rng(configuration["seed"])
    ten = [engine.clients[at] for at in source.permutation(len(engine.clients))[: configuration["group"]]]
    with History.in_memory() as history:
        Revocable(history, engine, capacity=1).train(Rounds(rounds))
        one, group = history.participants.find(ten[:1]), history.participants.find(ten)
        edges = history.lineage().edges
        as_if = with_one(edges)
        # Which rule, of whom: Psi at every model.
        bounds: dict[str, Floats] = {
            "B = 1": group_sensitivity(as_if, one),
            "B = 1, ten": group_sensitivity(as_if, group),
            "proven": group_sensitivity(edges, one),
            "proven, ten": group_sensitivity(edges, group),
        }
        if configuration["l2"]:
            examples = configuration["examples"] // configuration["clients"]
            head = PublicHead(initial_norm=0.0, parameters=history.run.parameters, batch=examples)
            strict = replace(engine.facts, public=head).head_bound()
            bounds["strict"] = strict_sensitivity(edges, one, strict)
            bounds["strict, ten"] = strict_sensitivity(edges, group, strict)
        smallest, largest = sigma_limits(history.run.grid)
    found = []
    for at in (rounds // 2, rounds):
        for delta in configuration["deltas"]:
            for epsilon in configuration["epsilons"]:
                exact, classic = Request(one, Budget(epsilon, delta)), ClassicBudget(epsilon, delta)
                needed = {name: (float(psi[at]), exact.mu) for name, psi in bounds.items()}
                needed["classic, B = 1"] = (float(bounds["B = 1"][at]), classic.mu)
                for rule, (psi, mu) in needed.items():
                    sigma = psi / mu
                    listed = public_sigma(max(sigma, smallest))
                    found.append(
                        {
                            "round": at,
                            "delta": delta,
                            "epsilon": epsilon,
                            "rule": rule,
                            "psi": psi,
                            "sigma": sigma,
                            "public": listed if listed <= largest else None,
                            "holds": classic.holds if rule.startswith("classic") else True,
                        }
                    )
    return found
