"""Solve: go back to a model that the group has not touched, and solve the head over the others' rows; no noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from rescind.core.facts import Facts
from rescind.core.planning import Candidate
from rescind.core.regularity import SquaredL2
from rescind.core.solver import Solving
from rescind.core.summary import Request, Summary
from rescind.methods.exact import Exact
from rescind.methods.method import Certifying, check_method


@dataclass(frozen=True, slots=True)
class Solve(Certifying):
    """For an L2 head: ``exact`` for any group, in a handful of rounds.

    Attributes:
        solving: how.

    Theory section 16.
    """

    solving: Solving = field(default_factory=Solving)
    name: ClassVar[str] = "solve"

    def obstacles(self, facts: Facts) -> tuple[str, ...]:
        """Return why the model cannot be solved.

        Args:
            facts: what is known of the training.

        Returns:
            the reasons; none if it can.
        """
        return tuple(f"this model cannot be solved: {reason}" for reason in facts.solving_obstacles)

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Take the last candidate that needs no noise, and solve from there.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            where to restart.

        Raises:
            ValueError: the model cannot be solved, there is no request, or a client of one took part in no round.
        """
        check_method(self, summary.facts)
        rounds = self.solving.expected_rounds(summary.head_parameters or summary.parameters)
        if isinstance(summary.facts.head_loss, SquaredL2):
            rounds = 1.0
        candidate = Exact().plan(summary, *requests)
        if stages := summary.facts.stages:
            # Every edge of such a path is a round.
            rounds += stages.body_rounds_left(candidate.node.index)
        return replace(candidate, predicted_rounds=rounds, solving=self.solving)
