"""Flower federations that can forget: wrap a strategy in ``Recorded``, and let ``run`` train and serve requests."""

from rescind.engines.stops import Accuracy, Rounds
from rescind.flower.client import identify, keep_own, report_distance, train_head
from rescind.flower.recorded import Recorded, run

__all__ = ["Accuracy", "Recorded", "Rounds", "identify", "keep_own", "report_distance", "run", "train_head"]
