"""The mode of a claim, recomputed from the history: the journal's own word for it is not believed."""

from __future__ import annotations

from collections.abc import Iterator

from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.sensitivity import first_joined
from rescind.errors import BrokenHistoryError
from rescind.history.events import EndByData
from rescind.history.history import History
from rescind.history.outcomes import Outcome, groups_of
from rescind.history.timeline import Timeline


def find_unfounded(timeline: Timeline, outcome: Outcome, knows_them: bool | None) -> Iterator[str]:
    """Say why the recorded facts and rounds do not bear a claim in its mode; ``knows_them`` is ``has_touched``."""
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
    try:
        path = history.lineage(model_id, frozenset().union(*groups))
    except BrokenHistoryError:
        return None
    first: int | None = 0
    if branch is not None and outcome.mode is not Mode.EXACT:
        first = path.behind_noise.get(branch.number, path.index.get(ModelId(branch.number, 0)))
    if first is None:
        return None
    since = path.edges[first : path.index[model_id]]
    return any(first_joined(since, group) < len(since) for group in groups)
