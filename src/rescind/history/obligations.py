"""What served requests are owed, restart after restart: which noise hides their clients, and what may be claimed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import takewhile

from rescind.core.facts import Mode, PrivacyScope
from rescind.core.summary import Obligation, Request
from rescind.history.events import RecordedPlan
from rescind.history.lineage import branch_exits
from rescind.history.timeline import FiledRequest, Timeline
from rescind.ledger.records import ROOT, Branch

_WEAKEST_LAST = list(Mode)


def find_obligations(timeline: Timeline) -> tuple[Obligation, ...]:
    """Follow every request that a restart served through the restarts after it, in the order of the restarts.

    A later restart from before its noise hid its clients again, went back to where none of them had been, or left
    them to nothing (``heuristic``).
    """
    requests = {filed.number: filed.request for filed in timeline.requests}
    owed: list[Obligation] = []
    for branch in sorted(timeline.branches.values(), key=lambda started: started.number):
        plan = timeline.plans[branch.requests[0]] if branch.requests else None
        upstream = {model_id.branch for model_id in branch_exits(timeline.branches, branch.parent or ROOT)}
        owed = [_follow(earlier, branch, plan, upstream) for earlier in owed]
        if plan is None:
            continue
        # Where every round was noised, whoever took part in none before the restart is hidden by nothing either.
        took_part = dict(zip(branch.requests, branch.participations, strict=False))
        all_hidden = set(branch.hidden)
        for number in branch.requests:
            request, hidden = requests[number], number in all_hidden
            noise = branch.number if hidden else None
            spent = (request.mu,) if hidden else ()
            # Noise that only earlier requests need leaves this one as exact as it was.
            needless = bool(branch.sigma and all_hidden) and not hidden and plan.candidate.mode is not Mode.HEURISTIC
            needless |= plan.candidate.mode is Mode.STRICT and took_part.get(number) == 0
            mode = Mode.EXACT if needless else plan.candidate.mode
            owed.append(Obligation(number, request, mode, plan.public_plan, noise, spent))
    return tuple(owed)


def hidden_together(request: Request, earlier: Iterable[Request]) -> list[frozenset[int]]:
    """Return the groups that a request hides, each of them jointly; ``earlier`` are those served before it."""
    if request.scope is PrivacyScope.INDIVIDUAL:
        return [frozenset({client}) for client in request.group]
    if request.scope is PrivacyScope.SEQUENCE:
        return [request.group, request.group.union(*(other.group for other in earlier))]
    return [request.group]


def groups_of(timeline: Timeline, filed: FiledRequest) -> list[frozenset[int]]:
    """Return the groups that a request hides, each jointly; the request was served by a restart."""
    before = takewhile(lambda obligation: obligation.number != filed.number, find_obligations(timeline))
    return hidden_together(filed.request, (obligation.request for obligation in before))


def _follow(earlier: Obligation, branch: Branch, plan: RecordedPlan | None, upstream: Collection[int]) -> Obligation:
    """Return what an earlier request is owed after a later restart; ``upstream`` are the branches that led to it."""
    if earlier.number in branch.bare:
        return replace(earlier, mode=Mode.HEURISTIC, branch=None, spent=())
    if plan is not None and not plan.public_plan:
        # Its node and its noise follow data, so nothing that holds whatever these are can rest on it.
        weaker = Mode.INSTANCE if earlier.mode is Mode.STRICT else earlier.mode
        earlier = replace(earlier, mode=weaker, public_plan=earlier.public_plan and earlier.mode is not Mode.STRICT)
    if plan is not None and earlier.number in branch.hidden:
        spent = (*earlier.spent, earlier.request.mu)
        mode = max(earlier.mode, plan.candidate.mode, key=_WEAKEST_LAST.index)
        return replace(earlier, mode=mode, branch=branch.number, spent=spent)
    if earlier.branch is None or earlier.branch in upstream:
        return earlier
    # A heuristic claim may be so because rounds were drawn again: only theta_0^0 precedes all of those.
    unproven = earlier.mode is Mode.HEURISTIC and branch.parent != ROOT
    return replace(earlier, mode=Mode.HEURISTIC if unproven else Mode.EXACT, branch=None, spent=())
