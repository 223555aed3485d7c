"""What a restart has to hide, and whom the newest model does not know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rescind.core.edges import ModelId, sorted_group
from rescind.core.facts import DpFedAvg, Facts, PrivacyScope
from rescind.core.sensitivity import first_joined, never_joined
from rescind.core.strict import participations
from rescind.core.summary import Request
from rescind.core.training import LocalTraining
from rescind.errors import ClosedRequestError
from rescind.history.lineage import branch_exits, lineage_of
from rescind.history.outcomes import find_obligations, find_outcomes, hidden_together
from rescind.history.timeline import FiledRequest, Timeline, newest_model
from rescind.ledger.contract import Ledger


def hidden_at(
    ledger: Ledger, timeline: Timeline, parent: ModelId, training: LocalTraining, new: Sequence[FiledRequest]
) -> tuple[int, ...]:
    """Return the requests whose clients have touched a model, and whose own noise does not lie before it."""
    upstream = {model_id.branch for model_id in branch_exits(timeline.branches, parent)}
    earlier = find_obligations(timeline)
    promises: list[tuple[int, Request, int | None, bool]] = [
        (owed.number, owed.request, owed.branch, owed.branch is not None) for owed in earlier
    ]
    promises += [(filed.number, filed.request, None, True) for filed in new]
    owed = sorted_group(client for _, request, _, _ in promises for client in request.group)
    path = lineage_of(ledger, timeline.branches, parent, training, owed)
    everybody, hidden = frozenset[int](), []
    for number, request, noise, counts in promises:
        everybody |= request.group
        if not counts:
            continue
        groups = {request.group, everybody} if request.scope is PrivacyScope.SEQUENCE else {request.group}
        touched = any(first_joined(path.edges, group) < path.index[parent] for group in groups)
        if touched and noise not in upstream:
            hidden.append(number)
    return tuple(hidden)


def participations_at(
    ledger: Ledger, timeline: Timeline, parent: ModelId, facts: Facts, new: Sequence[FiledRequest]
) -> tuple[int, ...]:
    """Return for each new request the largest sum over the rounds up to a model of |W in S|^2; see ``Branch``."""
    if not isinstance(facts.public, DpFedAvg):
        return ()
    earlier, sums = [obligation.request for obligation in find_obligations(timeline)], []
    for filed in new:
        groups = hidden_together(filed.request, earlier)
        everybody = sorted_group(frozenset().union(*groups))
        path = lineage_of(ledger, timeline.branches, parent, facts.training, everybody)
        sums.append(max(participations(path.edges, group)[path.index[parent]] for group in groups))
        earlier.append(filed.request)
    # Behind what nothing bounds; what goes back there is never certified.
    return tuple(map(int, sums)) if np.isfinite(sums).all() else ()


def check_open(timeline: Timeline, number: int) -> FiledRequest:
    """Return an open request; refuse any other."""
    return check_all_open(timeline, [number])[0]


def check_all_open(timeline: Timeline, numbers: Sequence[int]) -> list[FiledRequest]:
    """Return open requests; refuse any other."""
    for number in numbers:
        if number not in timeline.open_requests:
            begun = {asked.number for asked in timeline.requests if asked.served} - find_outcomes(timeline).keys()
            raise ClosedRequestError(
                f"request {number} is being served, and no longer open; if that broke off, the next run finishes it"
                if number in begun
                else f"there is no open request {number}: it was served, withdrawn, refused or never made; `rescind "
                "request list` tells"
            )
    return [timeline.open_requests[number] for number in numbers]


def are_unknown(ledger: Ledger, timeline: Timeline, asked: Sequence[Request]) -> list[bool]:
    """Return of each request whether nobody of it ever touched the newest model, whose lineage is read once."""
    if not asked:
        return []
    facts = timeline.run.facts
    everybody = sorted_group(client for request in asked for client in request.group)
    newest = newest_model(ledger, timeline)
    edges = lineage_of(ledger, timeline.branches, newest, facts.training, everybody).edges
    # Where rounds were drawn again, who was absent may have had a part in that.
    redrawn = facts.redrawn_rounds and len(edges) > 0
    absent = frozenset[int]() if redrawn else frozenset(never_joined(edges, everybody).tolist())
    return [request.group <= absent for request in asked]
