"""What is told of a model: which requests' clients it knows, and what a released model's file says of itself.

To who reads a file its remarks are a claim: they are public, and were true when it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rescind.checkpoints import tensors
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.sensitivity import first_joined
from rescind.errors import BrokenHistoryError, DamagedCheckpointError
from rescind.history.history import History
from rescind.history.lineage import branch_exits
from rescind.history.outcomes import find_obligations, find_outcomes

DIGEST, HEAD, RUN, MODEL, REQUESTS = (f"rescind.{name}" for name in ("digest", "head", "run", "model", "requests"))
# Whatever else is in their place was not written by rescind, and is not shown.
_SPELLINGS = {
    DIGEST: re.compile("[0-9a-f]{64}"),
    HEAD: re.compile("[0-9a-f]{64}"),
    RUN: re.compile("[0-9a-f]{16}"),
    MODEL: re.compile(r"[0-9]{1,9}\.[0-9]{1,9}"),
    REQUESTS: re.compile("[0-9]{1,9}(,[0-9]{1,9})*"),
}


def find_known(history: History, model_id: ModelId) -> tuple[int, ...] | None:
    """Return the requests that were served and whose clients took part on the way to a model, in front of no noise.

    A restart that served a request, or whose noise hides its clients, is where they are forgotten: what was trained
    after it knows them no more, as far as the request's own certificate says so.

    Args:
        history: the history.
        model_id: the model, whether it is still kept or not.

    Returns:
        the requests' numbers; None if nobody can tell any more, because its rounds were erased, or if it never was.
    """
    with history.ledger.snapshot():
        timeline = history.timeline
        served = [filed for filed in timeline.requests if filed.served]
        if model_id.branch not in timeline.branches or model_id > history.newest_of(model_id.branch):
            return None
        try:
            path = history.lineage(model_id, frozenset[int]().union(*(filed.request.group for filed in served)))
        except BrokenHistoryError:
            return None
    on_path = [timeline.branches[leg.branch] for leg in branch_exits(timeline.branches, model_id)]
    places = {branch.number: path.index.get(ModelId(branch.number, 0)) for branch in on_path}
    # Whom the noise of the rounds hides, it hides behind any later restart as well: that goes back to fewer rounds.
    by_rounds = {
        owed.number
        for owed in find_obligations(timeline)
        if owed.branch is None and owed.mode in (Mode.STRICT, Mode.INSTANCE)
    }
    known = []
    for filed in served:
        forgetting = [
            branch.number
            for branch in on_path
            if filed.number in branch.requests + branch.hidden
            or (filed.number in by_rounds and branch.number > (filed.branch or 0))
        ]
        last = max(forgetting, default=0)
        # A branch that lies inside an erased stretch has no place of its own: the stretch's end is its place.
        since = min(place for number, place in places.items() if number >= last and place is not None)
        if first_joined(path.edges[since:], filed.request.group) < len(path.edges) - since:
            known.append(filed.number)
    return tuple(known)


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


@contextmanager
def open_model(path: Path) -> Iterator[tensors.SeekableFile]:
    """Open a model's file to read it; what is wrong with its content is told with its name."""
    with path.open("rb") as file:
        try:
            yield file
        except DamagedCheckpointError as damaged:
            raise DamagedCheckpointError(f"{path} is no safetensors file that can be read: {damaged}") from damaged


def read_remarks(path: Path) -> dict[str, str]:
    """Return what a model's file says of itself, as far as it is spelt as rescind spells it.

    Raises:
        DamagedCheckpointError: it is no safetensors file.
    """
    with open_model(path) as file:
        remarks = tensors.read_remarks(file)
    return {name: text for name, text in remarks.items() if name in _SPELLINGS and _SPELLINGS[name].fullmatch(text)}
