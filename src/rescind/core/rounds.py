"""A round from what came in to what is recorded: replies or answers, and the model that was made of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

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
    def collect(cls, answered: Iterable[tuple[str, Sums]], **exchange: Any) -> Self:
        """Add up the clients' sums as they come: no curvature but the total's is held.

        Args:
            answered: who answered, with the sums.
            **exchange: ``rejected``, ``silent``, ``settings`` and ``labels`` as in ``Replies``; they are read once
                all have come.

        Returns:
            the answers.

        Theory section 16.
        """
        rows, gradients = dict[str, int](), list[Floats]()
        total: Sums | None = None
        for name, sums in answered:
            rows[name] = sums.rows
            gradients.append(sums.gradient)
            total = sums if total is None else add_up([total, sums])
        return cls._of(rows, gradients=tuple(gradients), total=total, **exchange)

    @classmethod
    def collect_ridge(cls, answered: Iterable[tuple[str, RidgeSums]], **exchange: Any) -> Self:
        """Add up the sums for a ridge head as they come: none but the total is held.

        Args:
            answered: who answered, with the sums.
            **exchange: as in ``collect``.

        Returns:
            the answers.

        Theory section 16.
        """
        parts = (({name: sums.rows}, sums) for name, sums in answered)
        return cls._of({}, gradients=(), total=None, **exchange).of_kept(parts)

    def of_kept(self, kept: Iterable[tuple[Mapping[str, int], RidgeSums]]) -> Self:
        """Return these answers with the sums that are kept, of those who sent them now and of others.

        Args:
            kept: how many rows each of some clients has, and their sums for a ridge head, added up as far as may be.

        Returns:
            the answers of all.

        Theory section 16.
        """
        rows = dict[str, int]()

        def take() -> Iterator[RidgeSums]:
            for own, sums in kept:
                rows.update(own)
                yield sums

        ridge = add_up_ridge(take())
        weights = np.array(list(rows.values()), dtype=np.float64)
        return replace(self, names=tuple(rows), weights=weights, steps=(0,) * len(rows), ridge=ridge)

    @classmethod
    def _of(cls, rows: Mapping[str, int], **rest: Any) -> Self:
        weights = np.array(list(rows.values()), dtype=np.float64)
        return cls(names=tuple(rows), weights=weights, steps=(0,) * len(rows), tensors={}, batch=0, **rest)


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
