"""SIFU: go back to a kept model, add the noise that hides the group there, train on without it.

The first request of a run is the paper's IFU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core._checks import positive
from rescind.core.facts import Facts
from rescind.core.noise import public_sigma, sigma_limits
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

    def obstacles(self, facts: Facts) -> tuple[str, ...]:
        """Return what keeps a bound from holding for every data set.

        Args:
            facts: what is known of the training.

        Returns:
            the reasons; none if there can be a strict plan.
        """
        return facts.strict_plan_obstacles

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

    The noise is added at every restart, also where nobody has to be hidden; of that restart ``exact`` stays true.

    To the paper's letter it goes with B = 1 (``NetworkLoss``), a ``ClassicBudget`` and ``PrivacyScope.INDIVIDUAL``,
    by which a group's sensitivity is its largest client's: that proves nothing, and is called ``heuristic``.

    Attributes:
        sigma: the noise. Secret noise is rounded up to the public list (0.05 to 0.0625, 0.1 to 0.125), and that is
            what is planned and recorded; noise from a seed is drawn as it is, and is ``heuristic`` off the list.

    Raises:
        ValueError: ``sigma`` is not a number above 0, or larger than noise can be drawn.

    Paper: Algorithm 2 (IFU) for the first request, Algorithm 3 (SIFU). Theory section 12.
    """

    sigma: float
    name: ClassVar[str] = "SIFU, paper's rule"

    def __post_init__(self) -> None:
        try:
            # Recorded as a plain number, by which one plan is told from another.
            object.__setattr__(self, "sigma", float(self.sigma))
        except (TypeError, OverflowError) as unfit:
            raise ValueError(f"sigma is {self.sigma!r}; it has to be a number") from unfit
        positive("sigma", self.sigma)
        if self.sigma > (largest := sigma_limits()[1]):
            raise ValueError(f"sigma is {self.sigma!r}; noise can be drawn up to {largest:g}")

    def obstacles(self, facts: Facts) -> tuple[str, ...]:
        """Return that noise from a seed, which is not rounded up, would be too small to be drawn.

        Args:
            facts: what is known of the training.

        Returns:
            the reasons; none if requests can be served.
        """
        least = sigma_limits()[0]
        if facts.secret_noise or self.sigma >= least:
            return Certifying.obstacles(self, facts)
        return (f"sigma is {self.sigma!r}, and noise from a seed can be drawn from {least:g} on",)

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
        sigma = self.sigma
        if summary.facts.secret_noise:
            sigma = public_sigma(max(sigma, sigma_limits(summary.grid)[0]))
        return paper_choice(summary, *requests, sigma=sigma)
