"""Forgetting by hand: a restart as the product makes it, but with seeded noise, and the rounds that follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rescind import History
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.planning import Candidate
from rescind.engines.server import average, draw_noise
from rescind.simulation import Simulation

Model = Mapping[str, Tensor]


def restarted(history: History, candidate: Candidate, seed: bytes) -> Model:
    """Return the model that a candidate begins with: the kept one, and noise."""
    model_id = ModelId(candidate.node.branch, candidate.node.round)
    model: Model = history.model(model_id)
    if not candidate.sigma:
        return model
    return draw_noise(model, candidate.sigma, seed, model_id.round, repr(candidate.sigma))


def trained_on(engine: Simulation, model: Model, names: Sequence[str], rounds: int) -> Model:
    """Train so many rounds with these clients."""
    for number in range(1, rounds + 1):
        model_id = ModelId(1, number)
        model = average(model, engine.train(model, model_id, engine.draw(model_id, names)), 1.0).model
    return model


@dataclass(frozen=True, slots=True)
class Arrival:
    """When a goal was reached: after how many rounds, and with which model."""

    rounds: int
    model: Model


def recovered(
    engine: Simulation,
    model: Model,
    names: Sequence[str],
    goals: Mapping[str, Callable[[Model], bool]],
    most: int,
) -> dict[str, Arrival]:
    """Train with these clients until each goal has been reached once; one that never is counts as ``most`` rounds."""
    rounds = 0
    found: dict[str, Arrival] = {}
    while True:
        for name, reached in goals.items():
            if name not in found and (rounds == most or reached(model)):
                found[name] = Arrival(rounds, model)
        if len(found) == len(goals):
            return found
        rounds += 1
        model_id = ModelId(1, rounds)
        model = average(model, engine.train(model, model_id, engine.draw(model_id, names)), 1.0).model
