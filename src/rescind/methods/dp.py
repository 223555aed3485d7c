"""DP: train with noise in every round, so that forgetting needs none of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core.facts import DpFedAvg, Facts
from rescind.core.planning import Candidate, cheapest, strict_candidates
from rescind.core.summary import Request, Summary
from rescind.methods.method import Certifying, check_method


@dataclass(frozen=True, slots=True)
class Dp(Certifying):
    """Goes back as far as the noise of the rounds, composed, exceeds the budget; often not at all.

    The training has to be DP-FedAvg from its first round on (``rescind.engines.server.NoisedAverage``).

    Paper: Section 5.1. Theory section 8.
    """

    name: ClassVar[str] = "DP"
    public_plan: ClassVar[bool] = True

    def obstacles(self, facts: Facts) -> tuple[str, ...]:
        """Return that the rounds are not noised, or what keeps their noise from holding for every data set.

        Args:
            facts: what is known of the training.

        Returns:
            the reasons; none if DP can serve.
        """
        if isinstance(facts.public, DpFedAvg):
            return facts.strict_plan_obstacles
        return (
            "this run is not trained by DP-FedAvg: its rounds carry no noise that could hide anybody; train with "
            "server=NoisedAverage(...) from the first round on",
        )

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Take the last node at which mu_W is within the budget.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            where to restart.

        Raises:
            ValueError: the run was not trained by DP-FedAvg, or there is no strict plan.
        """
        check_method(self, summary.facts)
        return cheapest(strict_candidates(summary, *requests))
