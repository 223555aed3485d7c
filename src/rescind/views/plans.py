"""A recorded plan in one sentence, with what retraining would cost: for whoever agrees to it."""

from __future__ import annotations

from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.lineage import branch_exits

_NO_PLAN = "Without a plan: if the newest model never saw the clients, only names and numbers are erased."


def describe_plan(history: History, number: int) -> str:
    """Say what the recorded plan of a request does, or that there is none."""
    plan = history.timeline.plans.get(number)
    if plan is None:
        return _NO_PLAN
    exits = branch_exits(history.timeline.branches, history.newest)
    return f"{describe_way(plan)} The model at hand took {sum(place.round for place in exits)} rounds from the start."


def describe_way(plan: RecordedPlan | None) -> str:
    """Say what a plan does by itself, without a history at hand; None is none."""
    if plan is None:
        return _NO_PLAN
    candidate, numbers = plan.candidate, " and ".join(map(str, plan.requests))
    start = f"back to {candidate.node.model_id}"
    noise = f" with noise {candidate.sigma:.4g}" if candidate.sigma else ", without noise"
    how = ", then the head is solved" if candidate.solving else ""
    return (
        f"Request {numbers}, by {plan.method}: {start}{noise}{how}; about {candidate.predicted_rounds:.0f} rounds; "
        f"the claim is {candidate.mode.value}."
    )
