"""FedEraser: repeat the kept rounds without the group, each update as long as the kept one, its direction new.

Liu, Ma, Yang, Wang, Liu: FedEraser, IWQoS 2021. Of their calibration training, which may be shorter than the usual
one, this has the full K local steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.taped.tape import Beginning, Model, TapedRound, TapeMethod
from rescind.core.edges import ModelId
from rescind.core.rounds import RoundResult
from rescind.engines.engine import Engine, Replies
from rescind.engines.server import Average, average, compute_updates, norm


@dataclass(frozen=True, slots=True)
class FedEraser(TapeMethod):
    """Calibrates the kept updates of the remaining clients, round by round from theta_0^0, then trains on."""

    name: ClassVar[str] = "FedEraser"
    why: ClassVar[str] = "the lengths of the updates are those from models that the group had trained"

    def begin(self, start: Model, rounds: Sequence[TapedRound], branch: int) -> Beginning:  # noqa: ARG002
        """Repeat the kept rounds from the start, then go on as usual.

        Args:
            start: theta_0^0.
            rounds: the kept rounds, without those who left.
            branch: not looked at.

        Returns:
            the start, the server that calibrates, and how many rounds are kept.
        """
        return Beginning(start, CalibratingServer(tuple(rounds)), least=len(rounds))


@dataclass(frozen=True, slots=True, eq=False)
class CalibratingServer:
    """A server that calibrates one kept round after the other, and averages when there are none left.

    Attributes:
        kept: the kept rounds, in order.
    """

    kept: tuple[TapedRound, ...]
    facts: ClassVar[None] = None

    def round(self, engine: Engine, model: Model, model_id: ModelId, present: Sequence[str]) -> RoundResult:
        """Calibrate the kept round of this number.

        Args:
            engine: who trains.
            model: the model before the round.
            model_id: the id of the model that the round will make.
            present: those who could take part.

        Returns:
            the round.
        """
        if model_id.round > len(self.kept):
            return Average().round(engine, model, model_id, present)
        kept = self.kept[model_id.round - 1]
        # The first kept updates started from theta_0^0, which the group never touched: they are right as they are.
        if model_id.round == 1:
            steps = (engine.facts.training.steps,) * len(kept.names)
            tensors = {name: [tensor + update[name] for update in kept.updates] for name, tensor in model.items()}
            replies = Replies(kept.names, kept.weights, steps, tensors, batch=0)
        else:
            replies = calibrate(model, engine.train(model, model_id, kept.names), kept.updates)
        return average(model, replies, engine.facts.training.server_learning_rate)


def calibrate(model: Model, replies: Replies, kept: Sequence[Model]) -> Replies:
    """Return every new update with the length of the kept one; one that does not move stays.

    Args:
        model: the model before the round.
        replies: what the participants sent back.
        kept: their kept updates, in the order of the replies.

    Returns:
        the replies with their updates scaled.
    """
    updates = list(compute_updates(model, replies).values())
    lengths = [norm(update) for update in updates]
    scales = [norm(old) / length if length else 0.0 for old, length in zip(kept, lengths, strict=True)]
    tensors = {
        name: [
            (tensor + scale * update[name].astype(np.float64)).astype(tensor.dtype)
            for scale, update in zip(scales, updates, strict=True)
        ]
        for name, tensor in model.items()
    }
    return Replies(replies.names, replies.weights, replies.steps, tensors, replies.batch)
