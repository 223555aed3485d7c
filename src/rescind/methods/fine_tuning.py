"""Fine-tuning: go on from the newest model without the group, and hope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rescind.core.summary import Node, Summary
from rescind.methods.method import Heuristic


@dataclass(frozen=True, slots=True)
class FineTuning(Heuristic):
    """Trains the newest model on with the remaining clients.

    Paper: Section 5.1, Appendix A.
    """

    name: ClassVar[str] = "Fine-tuning"
    why: ClassVar[str] = (
        "fine-tuning starts from a model that the group trained; with fewer samples than features it can never forget"
    )

    def node(self, summary: Summary) -> Node:
        """Take the newest model.

        Args:
            summary: what planning sees of the history.

        Returns:
            the last kept node.
        """
        return summary.kept[-1]
