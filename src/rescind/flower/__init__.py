"""Flower federations that can forget: wrap a strategy in ``Recorded``, and let ``run`` train and serve requests.

A ClientApp needs the helpers, which are in ``client``. All else is loaded when it is first asked for, as Flower
starts a client's process for every message: what is the server's, and the helpers that need torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rescind.flower.client import identify, identify_partition, is_question, keep_own, report_distance, train_head
from rescind.flower.limits import Limits

if TYPE_CHECKING:
    from rescind.core.facts import PublishedBody, Stages
    from rescind.engines.stops import Accuracy, Rounds
    from rescind.flower.features import digest_body, extract_features
    from rescind.flower.server.recorded import Options, Recorded
    from rescind.flower.server.run import run
    from rescind.serving import StopServing, at_once, nightly

__all__ = [
    "Accuracy",
    "Limits",
    "Options",
    "PublishedBody",
    "Recorded",
    "Rounds",
    "Stages",
    "StopServing",
    "at_once",
    "digest_body",
    "extract_features",
    "identify",
    "identify_partition",
    "is_question",
    "keep_own",
    "nightly",
    "report_distance",
    "run",
    "train_head",
]

_HOMES = {
    "Accuracy": "rescind.engines.stops",
    "Options": "rescind.flower.server.recorded",
    "PublishedBody": "rescind.core.facts",
    "Recorded": "rescind.flower.server.recorded",
    "Rounds": "rescind.engines.stops",
    "Stages": "rescind.core.facts",
    "StopServing": "rescind.serving",
    "at_once": "rescind.serving",
    "digest_body": "rescind.flower.features",
    "extract_features": "rescind.flower.features",
    "nightly": "rescind.serving",
    "run": "rescind.flower.server.run",
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'rescind.flower' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
