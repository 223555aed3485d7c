"""FedAccum: add up what the remaining clients once sent, as if they had sent the same without the group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rescind.core.summary import Node, Summary
from rescind.history.history import History
from rescind.ledger.records import ModelId
from rescind.methods._stored import find_stored_rounds, load_updates
from rescind.methods.method import Beginning, Heuristic


@dataclass(frozen=True, slots=True)
class FedAccum(Heuristic):
    """Starts from theta_0^0 plus the stored updates of the remaining clients, averaged in every stored round.

    Paper: Section 5.1; it is FedEraser without calibration.
    """

    name: ClassVar[str] = "FedAccum"
    why: ClassVar[str] = "the stored updates were computed from models that the group had trained"

    def node(self, summary: Summary) -> Node:
        """Take theta_0^0.

        Args:
            summary: what planning sees of the history.

        Returns:
            the first kept node.
        """
        return summary.kept[0]

    def begin(self, history: History, tip: ModelId, parent: ModelId, leaving: Collection[int]) -> Beginning:
        """Add up the stored updates.

        Args:
            history: the history.
            tip: the newest model, before the restart.
            parent: the model to restart from.
            leaving: the pseudonyms of those who leave.

        Returns:
            the start plus the averaged updates of those who remain.

        Raises:
            ValueError: the run stores no updates.
        """
        start = history.model(parent)
        model = {name: tensor.astype(np.float64) for name, tensor in start.items()}
        for round_ in find_stored_rounds(history, tip, leaving):
            shares = round_.weights / round_.weights.sum()
            for share, update in zip(shares, load_updates(history, round_), strict=True):
                for name, tensor in update.items():
                    model[name] += share * tensor
        return Beginning({name: model[name].astype(start[name].dtype) for name in start}, unbounded=True)
