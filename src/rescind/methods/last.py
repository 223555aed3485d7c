"""Last: never go back, hide the group in the newest model under as much noise as that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core.edges import NOT_BOUNDED
from rescind.core.planning import Candidate, consider
from rescind.core.summary import Request, Summary
from rescind.methods.method import Certifying


@dataclass(frozen=True, slots=True)
class Last(Certifying):
    """Adds noise to the newest model.

    Paper: Section 5.1.
    """

    name: ClassVar[str] = "Last"

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Take the newest model, or say why no noise hides the group there.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            a restart at the newest model.

        Raises:
            ValueError: the group cannot be hidden in the newest model, there is no request, or a client of one took
                part in no round.
        """
        newest, (offered, left_out) = summary.kept[-1], consider(summary, *requests)
        for candidate in offered:
            if candidate.node == newest:
                return candidate
        reason = next((omitted.reason for omitted in left_out if omitted.node == newest), NOT_BOUNDED)
        raise ValueError(f"the group cannot be hidden in the newest model: {reason}; use another method")
