"""SIFU: go back to a kept model, add the noise that hides the group there, train on without it.

The first request of a run is the paper's IFU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core._checks import positive
from rescind.core.noise import is_public_sigma, public_sigma
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
        """Choose the cheapest candidate."""
        return cheapest(candidates(summary, *requests))


@dataclass(frozen=True, slots=True)
class StrictSifu(Certifying):
    """The same without looking at data: what it claims holds for every data set.

    Theory sections 7 and 8.
    """

    name: ClassVar[str] = "strict SIFU"
    public_plan: ClassVar[bool] = True

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Choose the candidate that public quantities say is cheapest."""
        return cheapest(strict_candidates(summary, *requests))


@dataclass(frozen=True, slots=True)
class PaperSifu(Certifying):
    """The paper's rule: the noise is fixed beforehand, the last kept node that it hides the group at is taken.

    ``sigma`` has to be on the public list (``public_sigma``) for a certificate.

    Paper: Algorithm 2 (IFU) for the first request, Algorithm 3 (SIFU). Theory section 12.
    """

    sigma: float
    name: ClassVar[str] = "SIFU, paper's rule"

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        if not is_public_sigma(self.sigma):
            raise ValueError(f"sigma is {self.sigma:g}; take one of the public list, {public_sigma(self.sigma):g}")

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Take the last node whose sensitivity is at most Psi*."""
        return paper_choice(summary, *requests, sigma=self.sigma)
