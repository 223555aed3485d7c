"""How far a model is from the one without a client, and how far three bounds say that it may be.

A softmax head or a network is trained, then trained again without one client, and without its ten neighbours, by the
same draws (coupled replay). Beside the true distance stand the bound that the product uses (joint, with a proven
factor where there is one), the published one (B = 1, the largest client of a group, weights over the participants),
and that of the released code, whose weights are 1/(M-1) of all M clients where those of the m participants are
1/(m-1). All clients have as many examples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from experiments.data.federations import federation_of, trained_by
from experiments.harness import Configuration, Row
from rescind import History, Sampling
from rescind.audit.replay import RecordingEngine, compare_worlds
from rescind.core.edges import Edge, RoundEdge, sorted_group
from rescind.core.sensitivity import client_sensitivities
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.simulation import Simulation


def secret_of(configuration: Configuration) -> bytes:
    """Return what all chance of a run comes from: other settings have other draws, not those of their seed alone."""
    return hashlib.sha256(json.dumps(dict(configuration), sort_keys=True).encode()).digest()


def engine_of(configuration: Configuration) -> Simulation:
    """Return the engine: everybody takes part, or ``draw`` clients a round if that is not 0."""
    federation = federation_of(configuration)
    training, model = trained_by(configuration, federation)
    drawn = configuration["drawn"]
    return Simulation(
        federation,
        model,
        training,
        sampling=Sampling.FIXED_SIZE if drawn else Sampling.EVERYBODY,
        size=drawn or None,
        batch=configuration.get("batch"),
        secret=secret_of(configuration),
    )


def with_one(edges: Sequence[Edge]) -> list[Edge]:
    """Return the same rounds as if B were 1, whatever is known of it."""
    return [
        replace(edge, factors=np.ones_like(edge.factors)) if isinstance(edge, RoundEdge) else edge for edge in edges
    ]


def run(configuration: Configuration) -> list[Row]:
    """Train, and compare with and without a client, with and without its neighbours."""
    engine, clients = engine_of(configuration), configuration["clients"]
    tape, source = RecordingEngine(engine), np.random.default_rng(list(secret_of(configuration)))
    participants = configuration["drawn"] or clients
    # Neighbours have the same class where clients have one class each.
    first = int(source.integers(clients // configuration["group"])) * configuration["group"]
    with History.in_memory() as history:
        Revocable(history, tape, capacity=1).train(Rounds(configuration["rounds"]))
        # Whoever was never drawn has nothing to hide.
        ten = list(history.ledger.pseudonyms(engine.clients[first : first + configuration["group"]]))
        one = ten[int(source.integers(len(ten)))]
        edges = with_one(history.lineage().edges)
        found = []
        for leaving in ([one], ten):
            replayed = {each.model_id.round: each for each in compare_worlds(history, tape, leaving)}
            wanted = sorted_group(history.participants.find(leaving)).tolist()
            published = client_sensitivities(edges, wanted, configuration["marks"]).max(axis=1)
            for at, largest in zip(configuration["marks"], published.tolist(), strict=True):
                found.append(
                    {
                        "leaving": "one" if len(leaving) == 1 else "ten",
                        "round": at,
                        "alpha": replayed[at].distance,
                        "sound": replayed[at].bound,
                        "published": largest,
                        "authors": largest * (participants - 1) / (clients - 1),
                    }
                )
    return found
