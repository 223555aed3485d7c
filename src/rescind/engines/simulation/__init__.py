"""A federation simulated in one process, on torch."""

from rescind.engines.simulation.federation import Federation, Shard
from rescind.engines.simulation.models import LogisticHead, Network, SoftmaxHead
from rescind.engines.simulation.simulation import Simulation

__all__ = ["Federation", "LogisticHead", "Network", "Shard", "Simulation", "SoftmaxHead"]
