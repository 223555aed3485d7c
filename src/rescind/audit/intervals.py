"""Shares of trials with exact intervals: whatever the true share is, they miss it no more often than they say."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import betaincinv


@dataclass(frozen=True, slots=True)
class Rate:
    """``hits`` of ``trials``, and what the true share is at least and at most.

    Each end is wrong with a probability of at most ``risk``; the interval of Clopper and Pearson.
    """

    hits: int
    trials: int
    risk: float

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.trials or not self.trials:
            raise ValueError(f"{self.hits} of {self.trials} is no share: there has to be at least one trial")
        if not 0 < self.risk < 0.5:
            raise ValueError(f"risk is {self.risk!r}; it has to lie between 0 and 1/2")

    @property
    def share(self) -> float:
        """The share that was seen."""
        return self.hits / self.trials

    @property
    def low(self) -> float:
        """What the true share is at least."""
        return float(betaincinv(self.hits, self.trials - self.hits + 1, self.risk)) if self.hits else 0.0

    @property
    def high(self) -> float:
        """What the true share is at most."""
        missed = self.trials - self.hits
        return float(betaincinv(self.hits + 1, missed, 1 - self.risk)) if missed else 1.0
