"""A federation simulated in one process, on torch."""

from rescind.simulation.federation import Federation, Shard
from rescind.simulation.models import LogisticHead, Network, SoftmaxHead
from rescind.simulation.simulation import Simulation

__all__ = ["Federation", "LogisticHead", "Network", "Shard", "Simulation", "SoftmaxHead"]
