"""rescind makes a federated training run revocable: record, plan, forget, verify."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rescind.certificates.verification import verify
    from rescind.core.calibration import Budget
    from rescind.core.edges import ModelId
    from rescind.core.facts import Facts, Sampling
    from rescind.core.regularity import Curvature, DeclaredLoss, LogisticL2, NetworkLoss, SoftmaxL2, SquaredL2
    from rescind.core.training import LocalTraining
    from rescind.engines.accuracies import Accuracies
    from rescind.engines.stops import Accuracy, Rounds
    from rescind.forgetting import Revocable
    from rescind.history.history import History
    from rescind.history.run import Goal
    from rescind.ledger.records import ErasureLevel
    from rescind.methods import Exact, Last, PaperSifu, Scratch, Sifu, Solve, StrictSifu

__version__ = "0.1.0"

_HOMES = {
    "rescind.certificates.verification": ("verify",),
    "rescind.core.calibration": ("Budget",),
    "rescind.core.edges": ("ModelId",),
    "rescind.core.facts": ("Facts", "Sampling"),
    "rescind.core.regularity": ("Curvature", "DeclaredLoss", "LogisticL2", "NetworkLoss", "SoftmaxL2", "SquaredL2"),
    "rescind.core.training": ("LocalTraining",),
    "rescind.engines.accuracies": ("Accuracies",),
    "rescind.engines.stops": ("Accuracy", "Rounds"),
    "rescind.forgetting": ("Revocable",),
    "rescind.history.history": ("History",),
    "rescind.history.run": ("Goal",),
    "rescind.ledger.records": ("ErasureLevel",),
    "rescind.methods": ("Exact", "Last", "PaperSifu", "Scratch", "Sifu", "Solve", "StrictSifu"),
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
    "PaperSifu",
    "Revocable",
    "Rounds",
    "Sampling",
    "Scratch",
    "Sifu",
    "SoftmaxL2",
    "Solve",
    "SquaredL2",
    "StrictSifu",
    "flower",
    "simulation",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for: a help text should not have to wait for a database library."""
    if name in ("flower", "simulation"):
        return import_module(f"rescind.{name}")
    for home, names in _HOMES.items():
        if name in names:
            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'rescind' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Show the public names, loaded or not, and nothing else."""
    return [*__all__, "__version__"]
