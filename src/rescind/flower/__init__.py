"""Flower federations that can forget: wrap a strategy in ``Recorded``, and let ``run`` train and serve requests."""

from typing import TYPE_CHECKING, Any

from rescind.core.stages import Stages
from rescind.engines.stops import Accuracy, Rounds
from rescind.flower.client import identify, is_question, keep_own, report_distance, train_head

if TYPE_CHECKING:
    from rescind.flower.recorded import Recorded, run

__all__ = [
    "Accuracy",
    "Recorded",
    "Rounds",
    "Stages",
    "identify",
    "is_question",
    "keep_own",
    "report_distance",
    "run",
    "train_head",
]


def __getattr__(name: str) -> Any:
    """Load the server's half when it is first asked for: Flower starts a client's process for every message."""
    if name not in ("Recorded", "run"):
        raise AttributeError(f"module 'rescind.flower' has no attribute {name!r}")
    from rescind.flower import recorded

    return getattr(recorded, name)
