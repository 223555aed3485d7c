"""A network in two stages: who trains its body is settled beforehand, and the head on it is solved with everybody."""

from __future__ import annotations

from dataclasses import dataclass

from rescind.core.regularity import LogisticL2, SoftmaxL2, SquaredL2
from rescind.core.ridge import check_ridge_loss
from rescind.core.sums import head_names


@dataclass(frozen=True, slots=True)
class Stages:
    """Some clients, the anchors, train the body; then it stays as it is, and the head is solved with all clients.

    Whoever is no anchor is forgotten exactly by solving the head once more. An anchor costs the body, too.

    Attributes:
        body_rounds: how many rounds the anchors train.
        head: the names of the head's two tensors, which end in ``weight`` and ``bias``; all others are the body's.
        loss: what the head is solved for, with an L2 term above 0; ``SquaredL2`` (ridge) takes one round.

    Raises:
        ValueError: ``body_rounds`` is below 1, ``head`` does not name a head, or the loss cannot be solved for.

    Theory section 17.
    """

    body_rounds: int
    head: tuple[str, str]
    loss: SoftmaxL2 | LogisticL2 | SquaredL2

    def __post_init__(self) -> None:
        if isinstance(self.body_rounds, bool) or not isinstance(self.body_rounds, int):
            raise ValueError(f"body_rounds is {self.body_rounds!r}; it has to be a whole number")
        if not 1 <= self.body_rounds < 2**31:
            raise ValueError(f"body_rounds is {self.body_rounds!r}; the anchors train one round or more")
        if not isinstance(self.head, tuple | list) or not all(isinstance(name, str) for name in self.head):
            raise ValueError(f"head is {self.head!r}; give the names of its two tensors")
        # In one order, so that the same stages are equal.
        object.__setattr__(self, "head", head_names(self.head))
        if not isinstance(self.loss, SoftmaxL2 | LogisticL2 | SquaredL2) or not self.loss.l2 > 0:
            raise ValueError("a head is solved for SoftmaxL2, LogisticL2 or SquaredL2 with an L2 term above 0")
        if isinstance(self.loss, SquaredL2) and self.loss.target_norm != 1:
            raise ValueError("the targets are classes, of norm 1: leave target_norm as it is")
        if isinstance(self.loss, SquaredL2):
            # Else it would be noticed only once the anchors have trained the body.
            check_ridge_loss(self.loss)

    def body_rounds_left(self, trained: int) -> int:
        """Return how many rounds a body still needs.

        Args:
            trained: how many it has.

        Returns:
            the rounds; 0 once it is whole.

        Theory section 17.
        """
        return max(self.body_rounds - trained, 0)
