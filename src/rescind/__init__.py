"""rescind makes a federated training run revocable: record, plan, forget, verify."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescind.certificates.verification import verify
    from rescind.core.calibration import Budget
    from rescind.core.edges import ModelId
    from rescind.core.facts import Facts, Sampling
    from rescind.core.regularity import Curvature, DeclaredLoss, LogisticL2, NetworkLoss, SoftmaxL2
    from rescind.core.training import LocalTraining
    from rescind.engines.accuracies import Accuracies
    from rescind.engines.stops import Accuracy, Rounds
    from rescind.forgetting import Revocable
    from rescind.history.history import History
    from rescind.history.run import Goal
    from rescind.ledger.records import ErasureLevel
    from rescind.methods import Exact, Last, Scratch, Sifu, Solve, StrictSifu

__version__ = "0.1.0"

_HOMES = {
    "Accuracies": "rescind.engines.accuracies",
    "Accuracy": "rescind.engines.stops",
    "Budget": "rescind.core.calibration",
    "Curvature": "rescind.core.regularity",
    "DeclaredLoss": "rescind.core.regularity",
    "ErasureLevel": "rescind.ledger.records",
    "Exact": "rescind.methods",
    "Facts": "rescind.core.facts",
    "Goal": "rescind.history.run",
    "History": "rescind.history.history",
    "Last": "rescind.methods",
    "LocalTraining": "rescind.core.training",
    "LogisticL2": "rescind.core.regularity",
    "ModelId": "rescind.ledger.records",
    "Revocable": "rescind.forgetting",
    "Rounds": "rescind.engines.stops",
    "Sampling": "rescind.core.facts",
    "Scratch": "rescind.methods",
    "Sifu": "rescind.methods",
    "SoftmaxL2": "rescind.core.regularity",
    "Solve": "rescind.methods",
    "StrictSifu": "rescind.methods",
    "NetworkLoss": "rescind.core.regularity",
    "verify": "rescind.certificates.verification",
}

__all__ = [
    "Accuracies",
    "Accuracy",
    "Budget",
    "Curvature",
    "DeclaredLoss",
    "ErasureLevel",
    "Exact",
    "Facts",
    "Goal",
    "History",
    "Last",
    "LocalTraining",
    "LogisticL2",
    "ModelId",
    "NetworkLoss",
    "Revocable",
    "Rounds",
    "Sampling",
    "Scratch",
    "Sifu",
    "SoftmaxL2",
    "Solve",
    "StrictSifu",
    "flower",
    "simulation",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: a help text should not have to wait for a database library."""
    if name in ("flower", "simulation"):
        return import_module(f"rescind.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'rescind' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Show the public names, loaded or not, and nothing else."""
    return [*__all__, "__version__"]
