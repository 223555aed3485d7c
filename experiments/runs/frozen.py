"""A network, the same with DP-FedAvg, and an L2 head on public frozen features: accuracy against guarantee.

All on the same federation. For a head it is measured what forgetting one client costs by the planner, with a proof
(``experiments.runs.cost``). A network can be made to forget with a proof by training again, or without another round
if there was noise in every round of its training: so much that a client which takes part as often as is expected is
within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from experiments.federations import federation_of, trained_by
from experiments.harness import Configuration, Row
from experiments.runs import cost
from rescind import Sampling
from rescind.core.calibration import largest_mu
from rescind.core.noise import Tensor
from rescind.engines.server import Average, NoisedAverage, Server
from rescind.engines.simulation import Simulation
from rescind.history.records import Place


def run(configuration: Configuration) -> list[Row]:
    """Train in one way, and say how good the model is and what forgetting costs."""
    if configuration["features"] != "images":
        return cost.run(configuration)
    if "clip" not in configuration:
        return [
            {"scratch": configuration["rounds"], "scratch_test": trained(configuration, Average()), "mode": "exact"}
        ]
    found = []
    for epsilon in configuration["epsilons"]:
        expected = configuration["rounds"] * configuration["drawn"] / configuration["clients"]
        multiplier = math.sqrt(expected) / largest_mu(epsilon, configuration["delta"])
        server = NoisedAverage(
            configuration["clip"], configuration["drawn"], multiplier, seed=secret_of(configuration)
        )
        test = trained(configuration, server)
        found.append(
            {"epsilon": epsilon, "planner": 0, "planner_test": test, "sigma": server.sigma, "mode": "strict"}
        )
    return found


def secret_of(configuration: Configuration) -> bytes:
    """Give what all chance of a run comes from."""
    return b"frozen %d" % configuration["seed"]


def trained(configuration: Configuration, server: Server) -> float:
    """Train a network, and give its accuracy on held-out images."""
    federation = federation_of(configuration)
    training, network = trained_by(configuration, federation)
    noised = server.facts is not None
    engine = Simulation(
        federation,
        network,
        replace(training, clips_updates=noised),
        sampling=Sampling.POISSON,
        rate=configuration["drawn"] / configuration["clients"],
        batch=configuration["batch"],
        secret=secret_of(configuration),
        secret_noise=not noised,
        public=server.facts,
    )
    model: Mapping[str, Tensor] = engine.start()
    for number in range(1, configuration["rounds"] + 1):
        model = server.round(engine, model, Place(0, number), engine.clients).model
    return round(engine.test_accuracy(model), 4)
