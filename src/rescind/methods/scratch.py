"""Scratch: train again from theta_0^0 without the group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core.planning import Candidate, candidates
from rescind.core.summary import Request, Summary
from rescind.methods.method import Certifying


@dataclass(frozen=True, slots=True)
class Scratch(Certifying):
    """Retrains from the public start: always possible, always ``exact``.

    Theory section 7.
    """

    name: ClassVar[str] = "Scratch"

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Take theta_0^0.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            a restart at the public start.

        Raises:
            ValueError: there is no request, or a client of one took part in no round.
        """
        return candidates(summary, *requests)[0]
