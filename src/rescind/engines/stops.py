"""When training ends: after some rounds, or when the remaining clients are served well enough.

A rule sees the branch's rounds and its model only, so that training that was cut off ends where it would have ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import ClassVar, Protocol

from rescind.core._checks import at_most_one


class Stop(Protocol):
    """A rule by which training ends; ``public`` if it looks at nobody's data."""

    @property
    def public(self) -> bool:
        """True if it is known beforehand when training ends."""

    @property
    def most(self) -> int:
        """The rounds after which a branch ends in any case."""

    def reached(self, rounds: int, accuracy: Callable[[], float]) -> bool:
        """Return whether a branch has come to its end.

        Args:
            rounds: how many rounds the branch has.
            accuracy: measures, when it is called, the mean accuracy of those who took part, each on its own data; it
                is negative where nobody tells one.

        Returns:
            True if no further round is to be trained.
        """


@dataclass(frozen=True, slots=True)
class Rounds:
    """Ends when the branch has a number of rounds.

    Attributes:
        most: that number, at least 0.

    Raises:
        ValueError: ``most`` is not an integer of at least 0.
    """

    most: int
    public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.most, int) or self.most < 0:
            raise ValueError(f"a branch of {self.most!r} rounds cannot be trained: give 0 or more")

    @classmethod
    def share(cls, share: float, of: int) -> Rounds:
        """Allow a share of the rounds that another training took, rounded up.

        Args:
            share: above 0 and at most 1.
            of: how many rounds the other training took.

        Returns:
            the rule.

        Raises:
            ValueError: ``share`` is out of its range.
        """
        at_most_one("share", share)
        return cls(math.ceil(share * of))

    def reached(self, rounds: int, accuracy: Callable[[], float]) -> bool:  # noqa: ARG002, other rules look
        """Return whether the branch has that many rounds.

        Args:
            rounds: how many rounds the branch has.
            accuracy: not looked at.

        Returns:
            True if there are ``most`` rounds or more.
        """
        return rounds >= self.most


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Ends at a mean accuracy of the remaining clients, or when the rounds are used up.

    Attributes:
        threshold: the accuracy, above 0 and at most 1.
        least: the rounds before which the accuracy is not looked at.
        most: the rounds after which the branch ends in any case.
        every: the accuracy is looked at every so many rounds.

    Raises:
        ValueError: ``threshold`` is out of its range, ``every`` is below 1, or 0 <= ``least`` <= ``most`` does not
            hold.

    Paper: Section 5.3, with ``least`` 50 and ``most`` 10,000.
    """

    threshold: float
    least: int = 0
    most: int = 10_000
    every: int = 1
    public: ClassVar[bool] = False

    def __post_init__(self) -> None:
        at_most_one("threshold", self.threshold)
        if not 0 <= self.least <= self.most or self.every < 1:
            raise ValueError("a branch needs 0 <= least <= most rounds, and its accuracy looked at every round or so")

    def reached(self, rounds: int, accuracy: Callable[[], float]) -> bool:
        """Return whether the accuracy is reached, or the rounds are used up.

        Args:
            rounds: how many rounds the branch has.
            accuracy: see ``Stop.reached``.

        Returns:
            True if no further round is to be trained.
        """
        if rounds >= self.most:
            return True
        return rounds >= self.least and rounds % self.every == 0 and accuracy() >= self.threshold


def format_accuracy(accuracy: float) -> str:
    """Return an accuracy in per cent, rounded down: what has not reached a threshold does not look as if it had."""
    return f"{Decimal(repr(accuracy)).scaleb(2).quantize(Decimal('0.1'), ROUND_FLOOR)}%"
