"""Stored updates along a line of training: what FedEraser and FedAccum start from."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from rescind.core.arrays import Floats, Tensor
from rescind.history.history import History
from rescind.ledger.records import ModelId


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
    rounds, gone = [], history.timeline.forgotten.union(leaving)
    for round_, digests in history.stored_updates(tip):
        weights = dict(zip(round_.clients.tolist(), round_.participants["weight"].tolist(), strict=True))
        staying = [client for client in digests if client not in gone]
        if staying:
            rounds.append(
                StoredRound(
                    names=tuple(history.names(staying)),
                    weights=np.array([weights[client] for client in staying]),
                    digests=tuple(digests[client] for client in staying),
                )
            )
    return rounds


def load_updates(history: History, round_: StoredRound) -> list[Mapping[str, Tensor]]:
    """Load the updates of a stored round, in the order of its names."""
    return [history.updates.load(digest) for digest in round_.digests]
