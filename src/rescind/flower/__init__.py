"""Flower federations that can forget: wrap a strategy in ``Recorded``, and let ``run`` train and serve requests."""

from typing import TYPE_CHECKING, Any

from rescind.core.stages import Stages
from rescind.engines.stops import Accuracy, Rounds
from rescind.flower.client import identify, is_question, keep_own, report_distance, train_head
from rescind.flower.limits import Limits

if TYPE_CHECKING:
    from rescind.flower.recorded import Recorded, run
    from rescind.serving import StopServing, at_once, nightly

__all__ = [
    "Accuracy",
    "Limits",
    "Recorded",
    "Rounds",
    "Stages",
    "StopServing",
    "at_once",
    "identify",
    "is_question",
    "keep_own",
    "nightly",
    "report_distance",
    "run",
    "train_head",
]


def __getattr__(name: str) -> Any:
    """Load the server's half when it is first asked for: Flower starts a client's process for every message."""
    if name in ("Recorded", "run"):
        from rescind.flower import recorded

        return getattr(recorded, name)
    if name in ("StopServing", "at_once", "nightly"):
        from rescind import serving

        return getattr(serving, name)
    raise AttributeError(f"module 'rescind.flower' has no attribute {name!r}")
