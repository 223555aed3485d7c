"""rescind makes a federated training run revocable: record, plan, forget, verify."""

from rescind.core.facts import Facts, Sampling
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.training import LocalTraining
from rescind.history import Goal, History

__version__ = "0.1.0.dev0"

__all__ = ["Facts", "Goal", "History", "LocalTraining", "LogisticL2", "Sampling", "SoftmaxL2"]
