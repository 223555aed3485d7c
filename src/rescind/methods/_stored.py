"""Stored updates along a line of training: what FedEraser and FedAccum start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from rescind.core.edges import Floats, sorted_group
from rescind.core.noise import Tensor
from rescind.history.history import History
from rescind.history.lineage import branch_exits, branches
from rescind.history.requests import forgotten_clients
from rescind.ledger.records import ModelId, Span


@dataclass(frozen=True, slots=True, eq=False)
class StoredRound:
    """A round whose updates are stored, as far as its participants remain: names, weights, digests of the updates."""

    names: tuple[str, ...]
    weights: Floats
    digests: tuple[str, ...]


def find_stored_rounds(history: History, tip: ModelId, leaving: Collection[int]) -> list[StoredRound]:
    """Return the stored rounds on the line to a model, in order; those in which nobody remains are left out."""
    if not history.run.update_interval:
        raise ValueError("this run stores no updates: record it with an update_interval of 1 or more")
    found, gone = [], forgotten_clients(history.ledger).union(leaving)
    for leg in branch_exits(branches(history.ledger), tip):
        span = Span(leg.branch, 1, leg.round)
        digests = history.ledger.updates(span)
        for round_ in history.ledger.rounds(span) if digests else ():
            here = {
                client: (weight, digests[round_.model_id, client])
                for client, weight in zip(
                    round_.clients.tolist(), round_.participants["weight"].tolist(), strict=True
                )
                if client not in gone and (round_.model_id, client) in digests
            }
            if here:
                names = history.ledger.names(sorted_group(here))
                weights, stored = zip(*here.values(), strict=True)
                found.append(StoredRound(tuple(names[each] for each in here), np.array(weights), stored))
    return found


def load_updates(history: History, round_: StoredRound) -> list[Mapping[str, Tensor]]:
    """Load the updates of a stored round, in the order of its names."""
    return [history.updates.load(digest) for digest in round_.digests]
