"""Exact: go back to the last model that the group has not touched, and train on without it; no noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core.facts import Mode
from rescind.core.planning import Candidate, candidates, cheapest
from rescind.core.summary import Request, Summary
from rescind.methods.method import Certifying


@dataclass(frozen=True, slots=True)
class Exact(Certifying):
    """Needs nothing of the training, so it is for networks too: cheap for whoever joined late, Scratch otherwise.

    Theory section 7.
    """

    name: ClassVar[str] = "exact"

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Take the last candidate that needs no noise.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            where to restart.

        Raises:
            ValueError: there is no request, or a client of one took part in no round.
        """
        return cheapest([candidate for candidate in candidates(summary, *requests) if candidate.mode is Mode.EXACT])
