"""A round from what came in to what is recorded: replies or answers, and the model that was made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from rescind.core.aggregation import RoundMeasurement
from rescind.core.arrays import Floats, Tensor
from rescind.core.edges import RoundKind
from rescind.core.ridge import RidgeSums, add_up_ridge
from rescind.core.sums import Sums, add_up


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """What the participants of a round sent back, in one order.

    Attributes:
        names: the participants.
        weights: the n_i.
        steps: the K_i.
        tensors: tensor by tensor, every participant's own one after its local training (a part of theta_i^{n+1}).
        batch: the largest batch that anybody used.
        rejected: of whose replies no use is made, and why, in words that tell nothing of what these hold;
            ``TOO_LONG`` if the training cannot have made it.
        silent: what people call those who were drawn and did not answer, for whoever watches.
        settings: the digest of what they were told beside the model and the round's number, empty if that is nothing.
        labels: what people call participants, where that is not their name.

    Theory section 14.
    """

    names: tuple[str, ...]
    weights: Floats
    steps: tuple[int, ...]
    tensors: Mapping[str, Sequence[Tensor]]
    batch: int
    rejected: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    silent: tuple[str, ...] = field(default=(), kw_only=True)
    settings: str = field(default="", kw_only=True)
    labels: Mapping[str, str] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class Answers(Replies):
    """What clients answered to a solver's question: sums, no tensors; the n_i are numbers of rows, the K_i are 0.

    Attributes:
        gradients: the sum of the gradients of each one's rows; none for a ridge head.
        total: the sums over all rows; None if nobody answered, or for a ridge head.
        ridge: those for a ridge head; None if nobody answered, or for any other head.

    Theory section 16.
    """

    gradients: tuple[Floats, ...]
    total: Sums | None
    ridge: RidgeSums | None = field(default=None, kw_only=True)

    @property
    def rows(self) -> tuple[int, ...]:
        """How many rows each has (n_c)."""
        return tuple(map(int, self.weights))

    @classmethod
    def collect(
        cls,
        answered: Iterable[tuple[str, Sums | RidgeSums]],
        rejected: Mapping[str, str],
        silent: Sequence[str] = (),
        settings: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Self:
        """Add up the clients' sums as they come: no curvature but the total's is held.

        Args:
            answered: who answered, with the sums, of one kind.
            rejected: of whose answers no use is made, and why; it is read once all have come.
            silent: what people call those who did not answer.
            settings: as in ``Replies``.
            labels: as in ``Replies``.

        Returns:
            the answers.

        Theory section 16.
        """
        names, rows, gradients = list[str](), list[int](), list[Floats]()
        total: Sums | None = None
        ridge: RidgeSums | None = None
        for name, sums in answered:
            names.append(name)
            rows.append(sums.rows)
            if isinstance(sums, RidgeSums):
                ridge = sums if ridge is None else add_up_ridge([ridge, sums])
            else:
                gradients.append(sums.gradient)
                total = sums if total is None else add_up([total, sums])
        return cls(
            names=tuple(names),
            weights=np.array(rows, dtype=np.float64),
            steps=(0,) * len(names),
            tensors={},
            batch=0,
            gradients=tuple(gradients),
            total=total,
            ridge=ridge,
            rejected=dict(rejected),
            silent=tuple(silent),
            settings=settings,
            labels=labels or {},
        )


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """A round that is done: one object from whoever made the model to the ledger.

    Attributes:
        replies: what came in.
        model: the new model.
        measured: how far each participant was from the mean; of a solver's model, see ``solver_edge``.
        rounding: r, once it is known.
        kind: what made the model.

    Theory section 14.
    """

    replies: Replies
    model: dict[str, Tensor]
    measured: RoundMeasurement
    rounding: float = 0.0
    kind: RoundKind = RoundKind.TRAINED
