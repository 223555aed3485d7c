"""The engine for Flower federations: a ServerApp's Grid on one side, the recorder's rounds on the other."""

from rescind.engines.flower.client import identify, keep_own, report_distance, train_head
from rescind.engines.flower.engine import FlowerEngine
from rescind.engines.flower.servers import Delegated, Reported

__all__ = ["Delegated", "FlowerEngine", "Reported", "identify", "keep_own", "report_distance", "train_head"]
