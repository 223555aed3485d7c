"""The engine for Flower federations: a ServerApp's Grid on one side, the recorder's rounds on the other."""

from rescind.engines.flower.client import identify, keep_own, report_distance, train_head
from rescind.engines.flower.engine import FlowerEngine
from rescind.engines.flower.servers import DelegatedServer, MaskedServer

__all__ = ["DelegatedServer", "FlowerEngine", "MaskedServer", "identify", "keep_own", "report_distance", "train_head"]
