"""rescind makes a federated training run revocable: record, plan, forget, verify."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescind.core.facts import Facts, Sampling
    from rescind.core.regularity import Curvature, DeclaredLoss, LogisticL2, SoftmaxL2, UnprovenLoss
    from rescind.core.training import LocalTraining
    from rescind.history import Goal, History

__version__ = "0.1.0.dev0"

__all__ = [
    "Curvature",
    "DeclaredLoss",
    "Facts",
    "Goal",
    "History",
    "LocalTraining",
    "LogisticL2",
    "Sampling",
    "SoftmaxL2",
    "UnprovenLoss",
]

_HOMES = {
    "Curvature": "rescind.core.regularity",
    "DeclaredLoss": "rescind.core.regularity",
    "Facts": "rescind.core.facts",
    "Goal": "rescind.history",
    "History": "rescind.history",
    "LocalTraining": "rescind.core.training",
    "LogisticL2": "rescind.core.regularity",
    "Sampling": "rescind.core.facts",
    "SoftmaxL2": "rescind.core.regularity",
    "UnprovenLoss": "rescind.core.regularity",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: a help text should not have to wait for a database library."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rescind' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
