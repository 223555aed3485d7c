"""Which models know whom: what is left to take back of models that were handed out before somebody was forgotten."""

from __future__ import annotations

from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.sensitivity import first_joined
from rescind.errors import BrokenHistoryError
from rescind.history.history import History
from rescind.history.lineage import branch_exits
from rescind.history.outcomes import find_obligations


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
