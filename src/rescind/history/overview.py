"""How a run stands: who moved the model how far, what is kept, what is owed, what could be claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from rescind.core.edges import Aggregation, Erased, members, sorted_group
from rescind.core.facts import Facts, Mode
from rescind.core.tracker import SensitivityTracker
from rescind.history.history import History
from rescind.history.records import Place
from rescind.history.requests import Asked, asked_for, forgotten_clients, named


@dataclass(frozen=True, slots=True)
class Influence:
    """How far a client may have moved the newest model (Psi), and how many of its rounds there are still recorded."""

    client: str
    sensitivity: float
    rounds: int


@dataclass(frozen=True, slots=True)
class Claimable:
    """What a certificate could say if somebody left now, without retraining: its mode, and what would raise it.

    Retraining is ``exact`` always.
    """

    mode: Mode
    raised_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """A run at a glance; ``influences`` are the largest, ``clients`` counts all who took part on the newest line."""

    newest: Place
    rounds: int
    clients: int
    influences: tuple[Influence, ...]
    kept: tuple[Place, ...]
    open_requests: tuple[Asked, ...]
    stored_bytes: int
    claimable: Claimable


def overview(history: History, most: int = 10) -> Overview:
    """Look over a run; of the clients the ``most`` influential ones are named."""
    path = history.path()
    tracker, joined = SensitivityTracker(), dict[int, int]()
    for edge in path.edges:
        tracker.record(edge)
        if isinstance(edge, Aggregation | Erased):
            counts = isinstance(edge, Aggregation)
            for client in edge.clients.tolist():
                joined[client] = joined.get(client, 0) + counts
    everybody = sorted_group(joined)
    values = tracker.sensitivities(everybody)
    # Whoever was forgotten is still named in an erased stretch, and is not who is asked about.
    there = ~members(everybody, sorted_group(forgotten_clients(history.ledger)))
    everybody, values = everybody[there], values[there]
    order = np.argsort(-values, kind="stable")[:most]
    chosen = np.sort(everybody[order])
    names = dict(zip(chosen.tolist(), named(history.ledger, chosen.tolist()), strict=True))
    return Overview(
        newest=history.newest,
        rounds=path.trained[-1],
        clients=len(everybody),
        influences=tuple(
            Influence(names[client], float(value), joined[client])
            for client, value in zip(everybody[order].tolist(), values[order].tolist(), strict=True)
        ),
        kept=tuple(sorted(history.ledger.kept())),
        open_requests=tuple(asked for asked in asked_for(history.ledger) if asked.open),
        stored_bytes=history.models.stored_bytes() + history.updates.stored_bytes(),
        claimable=claimable(_facts(history)),
    )


def claimable(facts: Facts) -> Claimable:
    """Tell what could be claimed of a restart with noise, from the facts alone."""
    if not facts.strict_obstacles and facts.public_rounds:
        return Claimable(Mode.STRICT, ())
    if not facts.obstacles:
        public = (
            () if facts.public_rounds else ("training ended by a rule that looks at data: use a number of rounds",)
        )
        return Claimable(Mode.INSTANCE, facts.strict_obstacles + public)
    return Claimable(Mode.HEURISTIC, facts.obstacles)


def days_left(asked: Asked, now: datetime) -> int:
    """Give the days until a request's deadline, negative when it has passed."""
    return (datetime.fromisoformat(asked.deadline) - now).days


def _facts(history: History) -> Facts:
    return replace(history.run.facts, public_rounds=not any(history.ledger.entries("ends by data")))
