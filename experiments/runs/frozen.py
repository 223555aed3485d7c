"""A network, the same with DP-FedAvg, and an L2 head on public frozen features: accuracy against guarantee.

All on the same federation, and the same client leaves. For a head it is measured what forgetting it costs by the
planner, with a proof (``experiments.runs.cost``), or by solving it (``experiments.runs.solved``). A network can be
made to forget with a proof by training again; or without another round if there was noise in every round of its
training, so much that a client is within the budget that takes part two standard deviations more often than is
expected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.data.federations import federation_of, trained_by
from experiments.harness import Configuration, Row
from experiments.runs import cost, solved
from rescind import Sampling, Solve
from rescind.core.arrays import Tensor
from rescind.core.calibration import largest_mu
from rescind.core.edges import ModelId
from rescind.engines.server import Average, NoisedAverage, Server
from rescind.simulation import Simulation


def run(configuration: Configuration) -> list[Row]:
    """Train in one way, and say how good the model is and what forgetting costs."""
    if configuration.get("method") == Solve.name:
        return solved_head(configuration)
    if configuration["features"] != "images":
        return head(configuration)
    leaver = cost.leaver_of(list(federation_of(configuration).shards), configuration["seed"])
    if "clip" not in configuration:
        test, _, _ = trained(configuration, Average(), [leaver])
        return [{"scratch": configuration["rounds"], "retrained_test": test, "mode": "exact"}]
    return [noised(configuration, epsilon, leaver) for epsilon in configuration["epsilons"]]


def head(configuration: Configuration) -> list[Row]:
    """Forget by the planner; beside it stands a head that was trained again for as many rounds as the first."""
    rows, test = cost.forgotten(configuration)
    return [{**row, "retrained_test": round(test, 4)} for row in rows]


def solved_head(configuration: Configuration) -> list[Row]:
    """Forget by solving; beside it stands a head that was trained again for as many rounds as in ``head``."""
    (row,) = solved.run(configuration)
    own = {"planner": row["solve"], "planner_test": row["solve_test"], "retrained_test": row["scratch_test"]}
    return [{**row, **own}]


def noised(configuration: Configuration, epsilon: float, leaver: str) -> Row:
    """Train with noise in every round; what may be claimed follows from how often the leaver really took part."""
    mu, rounds = largest_mu(epsilon, configuration["delta"]), configuration["rounds"]
    rate = configuration["drawn"] / configuration["clients"]
    often = rounds * rate + 2 * math.sqrt(rounds * rate * (1 - rate))
    clip, drawn = configuration["clip"], configuration["drawn"]
    server = NoisedAverage(clip, drawn, math.sqrt(often) / mu, seed=secret_of(configuration))
    test, counts, done = trained(configuration, server, [])
    # Noise is rounded up to the public list.
    multiplier = server.sigma * drawn / clip
    within = math.sqrt(counts.get(leaver, 0)) / multiplier <= mu
    return {
        "epsilon": epsilon,
        "planner": 0,
        "planner_test": test,
        "sigma": server.sigma,
        "multiplier": round(multiplier, 3),
        "took_part": counts.get(leaver, 0),
        "rounds_done": done,
        "mode": "strict" if within else "over the budget",
    }


def secret_of(configuration: Configuration) -> bytes:
    """Return what all chance of a run comes from."""
    return b"frozen %d" % configuration["seed"]


def trained(
    configuration: Configuration, server: Server, without: Sequence[str]
) -> tuple[float, dict[str, int], int]:
    """Train a network without somebody, and give its held-out accuracy, who took part how often, and the rounds.

    Noise may make the weights so large that no client can train on: then it ends there.
    """
    federation, noise = federation_of(configuration), server.facts is not None
    training, network = trained_by(configuration, federation)
    engine = Simulation(
        federation,
        network,
        replace(training, clips_updates=noise),
        sampling=Sampling.POISSON,
        rate=configuration["drawn"] / configuration["clients"],
        batch=configuration["batch"],
        secret=secret_of(configuration),
        secret_noise=not noise,
        public=server.facts,
    )
    names = [name for name in engine.clients if name not in without]
    model: Mapping[str, Tensor] = engine.start()
    counts: dict[str, int] = {}
    done = 0
    for number in range(1, configuration["rounds"] + 1):
        try:
            made = server.round(engine, model, ModelId(0, number), names)
        except ValueError:
            if not noise:
                raise
            break
        model, done = made.model, number
        for name in made.replies.names:
            counts[name] = counts.get(name, 0) + 1
    return round(engine.test_accuracy(model), 4), counts, done
