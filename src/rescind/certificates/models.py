"""Which models a certificate can be about, and which one is in a file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rescind.certificates.predicate import Predicate
from rescind.checkpoints.tensors import StoredTensor, digest, read
from rescind.core.edges import ModelId
from rescind.errors import BrokenHistoryError
from rescind.history.history import History
from rescind.history.outcomes import Outcome


def find_covered(history: History, outcome: Outcome, head: bytes) -> Sequence[ModelId]:
    """Return the models that a claim is about at a head, in order.

    Rounds after the end of a restart are post-processing. A later restart is another matter, and so are rounds in
    which a client of the request may have taken part again.
    """
    newest = history.newest_at(head, outcome.readmitted)
    end = outcome.model_id or ModelId(newest.branch, 0)
    last = newest.round if newest.branch == end.branch else end.round
    if last < end.round:
        raise BrokenHistoryError(
            f"request {outcome.asked.number} led to {end}, and the journal tells of no such round"
        )
    return [ModelId(end.branch, round_) for round_ in range(end.round, last + 1)]


def find_by_digest(history: History, model_ids: Sequence[ModelId], model: str) -> ModelId | None:
    """Return the newest of some models that has a digest; ``None`` if none has."""
    return next((model_id for model_id in reversed(model_ids) if history.digest_of(model_id) == model), None)


def find_model(history: History, outcome: Outcome, path: Path) -> ModelId:
    """Return which of the models that a claim is about is in a file.

    Raises:
        ValueError: none of them is.
    """
    trained, _ = read_parts(path, [name for name, _, _ in history.run.tensors])
    model_ids = find_covered(history, outcome, history.head)
    model_id = find_by_digest(history, model_ids, digest(trained))
    if model_id is None:
        raise ValueError(
            f"{path} holds none of the models that request {outcome.asked.number} led to: "
            f"{model_ids[0]} to {model_ids[-1]}"
        )
    return model_id


def read_model_id(predicate: Predicate) -> ModelId:
    """Return the id of the model that a certificate is about."""
    return ModelId.read(predicate.model)


def read_parts(path: Path, trained: Collection[str]) -> tuple[dict[str, StoredTensor], dict[str, StoredTensor]]:
    """Return a safetensors file's tensors that are trained, by their names, and all others.

    Raises:
        DamagedCheckpointError: it is no such file.
    """
    with path.open("rb") as file:
        tensors = dict(read(file))
    return (
        {name: tensor for name, tensor in tensors.items() if name in trained},
        {name: tensor for name, tensor in tensors.items() if name not in trained},
    )
