"""FedAccum: add up what the remaining clients once sent, as if they had sent the same without the group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from experiments.taped.tape import Beginning, Model, TapedRound, TapeMethod


@dataclass(frozen=True, slots=True)
class FedAccum(TapeMethod):
    """Starts from theta_0^0 plus the kept updates of the remaining clients, averaged in every kept round.

    Paper: Section 5.1; it is FedEraser without calibration.
    """

    name: ClassVar[str] = "FedAccum"
    why: ClassVar[str] = "the stored updates were computed from models that the group had trained"

    def begin(self, start: Model, rounds: Sequence[TapedRound], branch: int) -> Beginning:  # noqa: ARG002
        """Add up the kept updates.

        Args:
            start: theta_0^0.
            rounds: the kept rounds, without those who left.
            branch: not looked at.

        Returns:
            the start plus the averaged updates of those who remain.
        """
        model = {name: tensor.astype(np.float64) for name, tensor in start.items()}
        for round_ in rounds:
            shares = round_.weights / round_.weights.sum()
            for share, update in zip(shares, round_.updates, strict=True):
                for name, tensor in update.items():
                    model[name] += share * tensor
        return Beginning({name: model[name].astype(start[name].dtype) for name in start})
