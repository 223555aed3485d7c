"""A recorded plan in a few sentences, with what retraining would cost: for whoever agrees to it."""

from __future__ import annotations

from rescind.history.events import RecordedPlan, RequestFiled
from rescind.history.history import History
from rescind.history.lineage import branch_exits
from rescind.texts import list_some

_NO_PLAN = "Without a plan: if the newest model never saw the clients, only names and numbers are erased."
_MOST_DIGESTS = 10


def describe_plan(history: History, number: int) -> str:
    """Say what the recorded plan of a request does, or that there is none."""
    plan = history.timeline.plans.get(number)
    if plan is None:
        return _NO_PLAN
    exits = branch_exits(history.timeline.branches, history.newest)
    return (
        f"{describe_agreed(plan)} The model at hand took {sum(place.round for place in exits)} rounds from the start."
    )


def describe_agreed(agreed: RecordedPlan | RequestFiled) -> str:
    """Say of a plan, or of a request without one, all that whoever agrees should know; no history is at hand."""
    if isinstance(agreed, RequestFiled):
        return (
            f"The request that is due {agreed.deadline[:10]}, of {list_some(agreed.forgotten, _MOST_DIGESTS)}, as "
            f"certificates call who leaves. {_NO_PLAN}"
        )
    candidate, numbers = agreed.candidate, " and ".join(map(str, agreed.requests))
    start = f"back to {candidate.node.model_id}"
    noise = f" with noise {candidate.sigma:.4g}" if candidate.sigma else ", without noise"
    how = ""
    if solving := candidate.solving:
        how = f", then the head is solved to {solving.tolerance:g} in at most {solving.most_rounds} rounds"
    told = [
        f"Request {numbers}, by {agreed.method}: {start}{noise}{how}; about {candidate.predicted_rounds:.0f} rounds; "
        f"the claim is {candidate.mode.value}."
    ]
    if candidate.obstacles:
        told.append(f"Nothing is proven of it: {'; '.join(candidate.obstacles)}.")
    if candidate.weakened:
        told.append(f"It weakens the strict claim of {len(candidate.weakened)} earlier request(s) to instance.")
    return " ".join(told)
