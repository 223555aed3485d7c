"""SIFU: go back to a kept model, add the noise that hides the group there, train on without it.

The first request of a run is the paper's IFU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core._checks import positive
from rescind.core.planning import Candidate, candidates, cheapest, paper_choice, strict_candidates
from rescind.core.summary import Request, Summary
from rescind.methods.method import Certifying


@dataclass(frozen=True, slots=True)
class Sifu(Certifying):
    """Chooses the node and the noise together: the cheapest predicted recovery, retraining among the candidates.

    Theory section 12.
    """

    name: ClassVar[str] = "SIFU"

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Choose the cheapest candidate.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            where to restart, and with which noise.

        Raises:
            ValueError: there is no request, or a client of one took part in no round.
        """
        return cheapest(candidates(summary, *requests))


@dataclass(frozen=True, slots=True)
class StrictSifu(Certifying):
    """The same without looking at data: what it claims holds for every data set.

    Theory sections 7 and 8.
    """

    name: ClassVar[str] = "strict SIFU"
    public_plan: ClassVar[bool] = True

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Choose the candidate that public quantities say is cheapest.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            where to restart, and with which noise.

        Raises:
            ValueError: there is no strict plan, no request, or a client of one took part in no round.
        """
        return cheapest(strict_candidates(summary, *requests))


@dataclass(frozen=True, slots=True)
class PaperSifu(Certifying):
    """The paper's rule: the noise is fixed beforehand, the last kept node that it hides the group at is taken.

    To the paper's letter it goes with B = 1 (``NetworkLoss``), a ``ClassicBudget`` and ``PrivacyScope.INDIVIDUAL``,
    by which a group's sensitivity is its largest client's: that proves nothing, and is called ``heuristic``. So is a
    ``sigma`` that is not on the public list (``public_sigma``); it can be planned with, and drawn with a seed only.

    Attributes:
        sigma: the noise.

    Raises:
        ValueError: ``sigma`` is not a finite number above 0.

    Paper: Algorithm 2 (IFU) for the first request, Algorithm 3 (SIFU). Theory section 12.
    """

    sigma: float
    name: ClassVar[str] = "SIFU, paper's rule"

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Take the last node whose sensitivity is at most Psi*.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            where to restart, with the fixed noise.

        Raises:
            ValueError: there is no request, or a client of one took part in no round.
        """
        return paper_choice(summary, *requests, sigma=self.sigma)
