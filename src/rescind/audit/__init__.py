"""Attempts to falsify a claim: they can show that it is wrong, never that it is right.

``RecordingEngine`` and ``compare_worlds`` retrain without a client and hold the distance against the bound;
``tell_apart`` releases two worlds many times over; ``measure_recall`` asks for a watermark; ``attack`` infers
membership. What they find is evidence, and may stand in a certificate as measured.
"""

from rescind.audit.attacks import (
    LowerBound,
    Power,
    Rate,
    Recall,
    attack,
    measure_confidence,
    measure_recall,
    tell_apart,
)
from rescind.audit.replay import Comparison, RecordingEngine, compare_worlds, train_without

__all__ = [
    "Comparison",
    "LowerBound",
    "Power",
    "Rate",
    "Recall",
    "RecordingEngine",
    "attack",
    "compare_worlds",
    "measure_confidence",
    "measure_recall",
    "tell_apart",
    "train_without",
]
