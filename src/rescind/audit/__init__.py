"""Attempts to falsify a claim: they can show that it is wrong, never that it is right.

``Tape`` and ``compared`` retrain without a client and hold the distance against the bound; ``tell_apart`` releases
two worlds many times over; ``recall`` asks for a watermark; ``attack`` infers membership. What they find is evidence,
and may stand in a certificate as measured.
"""

from rescind.audit.distinguishing import LowerBound, tell_apart
from rescind.audit.intervals import Rate
from rescind.audit.membership import Power, attack, confidence
from rescind.audit.replay import Compared, Tape, compared, world_without
from rescind.audit.watermark import Recall, recall

__all__ = [
    "Compared",
    "LowerBound",
    "Power",
    "Rate",
    "Recall",
    "Tape",
    "attack",
    "compared",
    "confidence",
    "recall",
    "tell_apart",
    "world_without",
]
