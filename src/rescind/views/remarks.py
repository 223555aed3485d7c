"""What a released model's file says of itself: public, and true when it was written. To its reader it is a claim."""

from __future__ import annotations

import re
from pathlib import Path

from rescind.checkpoints import tensors
from rescind.core.edges import ModelId
from rescind.history.history import History
from rescind.history.outcomes import find_outcomes

DIGEST, HEAD, RUN, MODEL, REQUESTS = (f"rescind.{name}" for name in ("digest", "head", "run", "model", "requests"))
# Whatever else is in their place was not written by rescind, and is not shown.
_SPELLINGS = {
    DIGEST: re.compile("[0-9a-f]{64}"),
    HEAD: re.compile("[0-9a-f]{64}"),
    RUN: re.compile("[0-9a-f]{16}"),
    MODEL: re.compile(r"[0-9]{1,9}\.[0-9]{1,9}"),
    REQUESTS: re.compile("[0-9]{1,9}(,[0-9]{1,9})*"),
}


def describe_release(history: History, model_id: ModelId) -> dict[str, str]:
    """Return what the file of a released model says of itself.

    Args:
        history: where the model is recorded.
        model_id: which model it is.

    Returns:
        the SHA-256 of its trained tensors, the run's identifier, the model's name there, the head of the chain, and
        the numbers of the requests that were served before, if there are any; nothing that tells of a client.

    Raises:
        ValueError: the model's round was erased.
    """
    recorded = history.digest_of(model_id)
    if recorded is None:
        raise ValueError(f"{model_id} was erased: only the newest model is released")
    served = sorted(find_outcomes(history.timeline))
    remarks = {
        DIGEST: recorded,
        RUN: history.identifier,
        MODEL: model_id.name,
        HEAD: history.head.hex(),
    }
    return remarks | ({REQUESTS: ",".join(map(str, served))} if served else {})


def read_remarks(path: Path) -> dict[str, str]:
    """Return what a model's file says of itself, as far as it is spelt as rescind spells it.

    Raises:
        DamagedCheckpointError: it is no safetensors file.
    """
    with path.open("rb") as file:
        remarks = tensors.read_remarks(file)
    return {name: text for name, text in remarks.items() if name in _SPELLINGS and _SPELLINGS[name].fullmatch(text)}
