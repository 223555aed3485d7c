"""When training ends: after some rounds, or when the remaining clients are served well enough.

A rule sees the branch's rounds and its model only, so that training that was cut off ends where it would have ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from rescind.core._checks import at_most_one


class Stop(Protocol):
    """A rule by which training ends; ``public`` if it looks at nobody's data."""

    @property
    def public(self) -> bool:
        """Whether it is known beforehand when training ends."""

    @property
    def most(self) -> int:
        """The rounds after which a branch ends in any case."""

    def reached(self, rounds: int, accuracy: Callable[[], float]) -> bool:
        """Return whether a branch that has so many rounds has come to its end.

        ``accuracy`` measures the mean accuracy of those who took part, each on its own data, when it is called; it is
        negative where nobody tells one.
        """


@dataclass(frozen=True, slots=True)
class Rounds:
    """Ends when the branch has so many rounds."""

    most: int
    public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not isinstance(self.most, int) or self.most < 0:
            raise ValueError(f"a branch of {self.most!r} rounds cannot be trained: give 0 or more")

    @classmethod
    def share(cls, share: float, of: int) -> Rounds:
        """Allow a share of the rounds that another training took, rounded up."""
        at_most_one("share", share)
        return cls(math.ceil(share * of))

    def reached(self, rounds: int, accuracy: Callable[[], float]) -> bool:  # noqa: ARG002, other rules look
        """Return whether there are as many."""
        return rounds >= self.most


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Ends as another rule does, but not before ``least`` rounds unless its rounds are used up."""

    rule: Stop
    least: int

    @property
    def public(self) -> bool:
        """The other rule's."""
        return self.rule.public

    @property
    def most(self) -> int:
        """The other rule's."""
        return self.rule.most

    def reached(self, rounds: int, accuracy: Callable[[], float]) -> bool:
        """Ask the other rule when it is time."""
        return rounds >= self.most or (rounds >= self.least and self.rule.reached(rounds, accuracy))


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Ends at a mean accuracy of the remaining clients, looked at every ``every`` rounds; or after ``most`` rounds.

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
        """Return whether the accuracy is reached, or the rounds are used up."""
        if rounds >= self.most:
            return True
        return rounds >= self.least and rounds % self.every == 0 and accuracy() >= self.threshold
