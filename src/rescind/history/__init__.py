"""What happened, durably and erasably: ledger, checkpoints, retention, recorder, erasure."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescind.history.history import History
    from rescind.history.recorder import Recorder
    from rescind.history.run import Goal
    from rescind.ledger.records import Branch, ErasureLevel, ErasurePlan, ModelId

__all__ = ["Branch", "ErasureLevel", "ErasurePlan", "Goal", "History", "ModelId", "Recorder"]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: who only reads a format needs no database library."""
    homes = {
        "History": "rescind.history.history",
        "Recorder": "rescind.history.recorder",
        "Goal": "rescind.history.run",
    }
    if name not in __all__:
        raise AttributeError(f"module 'rescind.history' has no attribute {name!r}")
    return getattr(import_module(homes.get(name, "rescind.ledger.records")), name)
