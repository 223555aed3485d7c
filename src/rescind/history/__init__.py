"""What happened, durably and erasably: ledger, checkpoints, retention, recorder, erasure."""

from rescind.history.history import History
from rescind.history.recorder import Recorder
from rescind.history.run import Goal
from rescind.ledger.records import Branch, ErasureLevel, ErasurePlan, ModelId

__all__ = ["Branch", "ErasureLevel", "ErasurePlan", "Goal", "History", "ModelId", "Recorder"]
