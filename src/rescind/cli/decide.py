"""``rescind approve`` and ``rescind refuse``: a named person decides on a request before it is served."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rescind.cli.shared import AsJson, Location, Number, open_existing, show

if TYPE_CHECKING:
    from rescind.history.events import RecordedPlan
    from rescind.history.history import History

_NO_PLAN = "Without a plan: if the newest model never saw the clients, only names and numbers are erased."
Person = Annotated[str, typer.Option(help="Who decides; it is recorded for good.")]


def approve(
    history: Location,
    number: Number,
    by: Person,
    key: Annotated[Path | None, typer.Option(help="A private key of that person, to sign the approval with.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask once more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Agree to the recorded plan of a request, which a run with Options(approval=True) waits for.

    A plan is for the history as it was: if training went on since, the next run plans anew, and asks again.
    Example: rescind approve hospital-history 1 --by "A. Officer" --key officer.key
    """
    with open_existing(history) as opened:
        from rescind.certificates.approvals import sign_by
        from rescind.certificates.keys import load_signer
        from rescind.cli.key import passphrase
        from rescind.errors import StalePlanError

        plan = opened.timeline.plans.get(number)
        words = _NO_PLAN if plan is None else _describe(opened, plan)
        if not (yes or as_json):
            typer.confirm(f"{words} Approve it?", abort=True)
        sign = None if key is None else sign_by(load_signer(key, passphrase()))
        if opened.timeline.plans.get(number) != plan:
            raise StalePlanError(f"request {number} was planned again while this plan was shown: look at that one")
        approval = opened.requests.approve(number, by, sign)
    signed = ", signed" if approval.key else ""
    result = {"request": number, "plan": words, "by": by, "signed": bool(approval.key)}
    show(result, [words, f"Approved by {by}{signed}. The run that waits, or the next one, carries it out."], as_json)


def refuse(
    history: Location,
    number: Number,
    by: Person,
    reason: Annotated[
        str, typer.Option(help="Why; it is recorded for good, so name no client. The requester has to be told.")
    ],
    as_json: AsJson = False,
) -> None:
    """Decide that a request is not served, with a reason; its clients stay.

    Example: rescind refuse hospital-history 1 --by "A. Officer" --reason "a law asks to keep the data until 2030"
    """
    with open_existing(history) as opened:
        opened.requests.refuse(number, by, reason)
    words = [
        f"Request {number} is refused by {by}.",
        "Tell the requester why within a month of the request, and that it can complain (GDPR art. 12 (4)). A node "
        "that asked by its configuration is told in the next run.",
    ]
    show({"request": number, "state": "refused", "by": by, "reason": reason}, words, as_json)


def _describe(history: History, plan: RecordedPlan) -> str:
    """Say in one sentence what a plan does, and what retraining would cost."""
    from rescind.history.lineage import branch_exits

    candidate, numbers = plan.candidate, " and ".join(map(str, plan.requests))
    exits = branch_exits(history.timeline.branches, history.newest)
    start = f"back to {candidate.node.model_id}"
    noise = f" with noise {candidate.sigma:.4g}" if candidate.sigma else ", without noise"
    how = ", then the head is solved" if candidate.solving else ""
    return (
        f"Request {numbers}, by {plan.method}: {start}{noise}{how}; about {candidate.predicted_rounds:.0f} rounds; "
        f"the claim is {candidate.mode.value}. The model at hand took {sum(place.round for place in exits)} rounds "
        "from the start."
    )
