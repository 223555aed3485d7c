"""FedEraser: repeat the stored rounds without the group, each update as long as the stored one, its direction new.

Liu, Ma, Yang, Wang, Liu: FedEraser, IWQoS 2021. Of their calibration training, which may be shorter than the usual
one, this has the full K local steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rescind.core.arrays import Tensor
from rescind.core.summary import Node, Summary
from rescind.engines.engine import Engine, Replies
from rescind.engines.server import Average, RoundResult, average, compute_updates, norm
from rescind.history.history import History
from rescind.ledger.records import ModelId
from rescind.methods._stored import StoredRound, find_stored_rounds, load_updates
from rescind.methods.method import Beginning, Heuristic, OwnRounds


@dataclass(frozen=True, slots=True)
class FedEraser(Heuristic):
    """Calibrates the stored updates of the remaining clients, round by round from theta_0^0, then trains on."""

    name: ClassVar[str] = "FedEraser"
    why: ClassVar[str] = "the lengths of the updates are those from models that the group had trained"

    def node(self, summary: Summary) -> Node:
        """Take theta_0^0.

        Args:
            summary: what planning sees of the history.

        Returns:
            the first kept node.
        """
        return summary.kept[0]

    def begin(self, history: History, tip: ModelId, parent: ModelId, leaving: Collection[int]) -> Beginning:  # noqa: ARG002
        """Go back to the start.

        Args:
            history: the history.
            tip: the newest model, before the restart; not looked at.
            parent: the model to restart from.
            leaving: the pseudonyms of those who leave; not looked at.

        Returns:
            the model to restart from, as it is.
        """
        return Beginning(history.model(parent), unbounded=True)

    def rounds(self, history: History, tip: ModelId, leaving: Collection[int]) -> OwnRounds:
        """Repeat the stored rounds, then go on as usual.

        Args:
            history: the history.
            tip: the newest model, before the restart.
            leaving: the pseudonyms of those who leave.

        Returns:
            the server that calibrates, and how many rounds are stored.

        Raises:
            ValueError: the run stores no updates.
        """
        stored = tuple(find_stored_rounds(history, tip, leaving))
        return OwnRounds(CalibratingServer(history, stored), least=len(stored))


@dataclass(frozen=True, slots=True, eq=False)
class CalibratingServer:
    """A server that calibrates one stored round after the other, and averages when there are none left.

    Attributes:
        history: where the updates are stored.
        stored: the rounds whose updates are stored, in order.
    """

    history: History
    stored: tuple[StoredRound, ...]
    facts: ClassVar[None] = None

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        """Calibrate the stored round of this number.

        Args:
            engine: who trains.
            model: the model before the round.
            model_id: the id of the model that the round will make.
            present: those who could take part.

        Returns:
            the round.
        """
        if model_id.round > len(self.stored):
            return Average().round(engine, model, model_id, present)
        round_ = _keep_present(self.stored[model_id.round - 1], present)
        stored = load_updates(self.history, round_)
        # The first stored updates started from theta_0^0, which the group never touched: they are right as they are.
        if model_id.round == 1:
            steps = (engine.facts.training.steps,) * len(stored)
            tensors = {name: [tensor + update[name] for update in stored] for name, tensor in model.items()}
            replies = Replies(round_.names, round_.weights, steps, tensors, batch=0)
        else:
            replies = calibrate(model, engine.train(model, model_id, round_.names), stored)
        return average(model, replies, engine.facts.training.server_learning_rate)


def _keep_present(round_: StoredRound, present: Sequence[str]) -> StoredRound:
    """Leave out who does not train any more."""
    stay = [at for at, name in enumerate(round_.names) if name in set(present)]
    return StoredRound(
        tuple(round_.names[at] for at in stay), round_.weights[stay], tuple(round_.digests[at] for at in stay)
    )


def calibrate(model: Mapping[str, Tensor], replies: Replies, stored: Sequence[Mapping[str, Tensor]]) -> Replies:
    """Return every new update with the length of the stored one; one that does not move stays.

    Args:
        model: the model before the round.
        replies: what the participants sent back.
        stored: their stored updates, in the order of the replies.

    Returns:
        the replies with their updates scaled.
    """
    updates = list(compute_updates(model, replies).values())
    lengths = [norm(update) for update in updates]
    scales = [norm(old) / length if length else 0.0 for old, length in zip(stored, lengths, strict=True)]
    tensors = {
        name: [
            (tensor + scale * update[name].astype(np.float64)).astype(tensor.dtype)
            for scale, update in zip(scales, updates, strict=True)
        ]
        for name, tensor in model.items()
    }
    return Replies(replies.names, replies.weights, replies.steps, tensors, replies.batch)
