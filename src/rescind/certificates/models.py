"""Which models a certificate can be about, which one is in a file, and whether the history bears a claim about it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from rescind.certificates.predicate import Predicate
from rescind.checkpoints.tensors import StoredTensor, digest, read
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.sensitivity import first_joined
from rescind.errors import BrokenHistoryError
from rescind.history.events import EndByData
from rescind.history.history import History
from rescind.history.lineage import Lineage
from rescind.history.outcomes import Outcome, groups_of
from rescind.history.timeline import Timeline
from rescind.views.models import open_model


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
    with open_model(path) as file:
        tensors = dict(read(file))
    return (
        {name: tensor for name, tensor in tensors.items() if name in trained},
        {name: tensor for name, tensor in tensors.items() if name not in trained},
    )


def find_unfounded(timeline: Timeline, outcome: Outcome, knows_them: bool | None) -> Iterator[str]:
    """Say why the recorded facts and rounds do not bear a claim in its mode; ``knows_them`` is ``has_touched``.

    The journal's own word for the mode is not believed.
    """
    number, facts = outcome.asked.number, timeline.facts
    if knows_them and outcome.mode is Mode.EXACT:
        yield f"clients of request {number} took part on the way to a model that is said never to have seen them"
    elif knows_them:
        yield f"clients of request {number} took part after the noise that hides them"
    if outcome.mode is Mode.INSTANCE and facts.strict_obstacles:
        yield from (f"what is recorded proves no instance: {obstacle}" for obstacle in facts.obstacles)
    if outcome.mode is Mode.STRICT:
        yield from (f"what is recorded proves nothing strict: {obstacle}" for obstacle in facts.strict_obstacles)
        restarts = (outcome.restart, outcome.basis if outcome.noise else None)
        seen = max((restart.planned.seen for restart in restarts if restart is not None), default=0)
        if any(entry.sequence <= seen for entry, _ in timeline.of(EndByData)):
            yield "a rule that looks at data had ended training before it was planned, so it is not strict"


def has_touched(history: History, head: bytes, outcome: Outcome, model_id: ModelId) -> bool | None:
    """Return whether a client of the request took part on the way to a model, since the noise if some hides it.

    ``None`` if that is erased.
    """
    asked, branch = outcome.asked, outcome.basis.branch if outcome.basis else None
    groups = [asked.request.group] if branch is None else groups_of(history.timeline_at(head), asked)
    path = find_path(history, model_id, groups)
    if path is None:
        return None
    first: int | None = 0
    if branch is not None and outcome.mode is not Mode.EXACT:
        first = path.behind_noise.get(branch.number, path.index.get(ModelId(branch.number, 0)))
    if first is None:
        return None
    since = path.edges[first : path.index[model_id]]
    return any(first_joined(since, group) < len(since) for group in groups)


def find_path(history: History, model_id: ModelId, groups: Collection[frozenset[int]]) -> Lineage | None:
    """Return the way to a model, with what groups of clients did on it; ``None`` if that is erased."""
    try:
        return history.lineage(model_id, frozenset().union(*groups))
    except BrokenHistoryError:
        return None
