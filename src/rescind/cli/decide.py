"""What a person decides: a request approved or refused, doubts lifted, a participant readmitted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, Number, open_existing, show

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

    Example: rescind request approve hospital-history 1 --by "A. Officer" --key officer.key
    """
    with open_existing(history) as opened:
        from rescind.certificates.approvals import sign_by
        from rescind.certificates.keys import load_signer
        from rescind.cli.key import passphrase
        from rescind.errors import StalePlanError
        from rescind.views.plans import describe_plan

        plan = opened.timeline.plans.get(number)
        words = describe_plan(opened, number)
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

    Example: rescind request refuse hospital-history 1 --by "A. Officer" --reason "a law asks to keep it until 2030"
    """
    with open_existing(history) as opened:
        opened.requests.refuse(number, by, reason)
    words = [
        f"Request {number} is refused by {by}.",
        "Tell the requester why within a month of the request, and that it can complain (GDPR art. 12 (4)). A node "
        "that asked by its configuration is told in the next run.",
    ]
    show({"request": number, "state": "refused", "by": by, "reason": reason}, words, as_json)


def doubts(
    history: Location,
    lift: Annotated[
        str | None, typer.Option(metavar="REASON", help="Why the declared training is right; it is recorded.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what was recorded against the run's declarations, and lift doubts about the training, with a reason.

    While a doubt stands nothing with noise is certified. That a server recorded something else than the mean is a
    fact, and cannot be lifted.

    Example: rescind doubts hospital-history --lift "an old app; updated"
    """
    with open_existing(history) as opened:
        lifted = opened.lift_doubts(lift) if lift is not None else ()
        all_doubts = opened.timeline.doubts
        not_means = opened.timeline.missed_means
    result = {
        "doubts": [
            {
                "model": doubt.model_id.name,
                "time": doubt.time,
                "reason": doubt.reason,
                "lifted": doubt.answer or None,
            }
            for doubt in all_doubts
        ],
        "not_means": [model_id.name for model_id in not_means],
        "lifted_now": len(lifted),
    }
    words = [
        *((str(doubt.model_id), doubt.time[:10], doubt.reason, _answered(doubt.answer)) for doubt in all_doubts),
        *(
            (str(model_id), "is not the mean of its round's replies, nor may later ones be", "a fact")
            for model_id in not_means
        ),
        *(
            [f"Lifted {len(lifted)} doubt(s), on your word. Plans made before have to be made again."]
            if lifted
            else []
        ),
    ]
    show(result, words or ["Nothing is doubted."], as_json)


def readmit(
    history: Location,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the forgotten client was called.")],
    reason: Annotated[
        str, typer.Option(help="Why, without its name; it is recorded for good, and no erasure reaches it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Let a forgotten client take part again, as a new one; until then it is refused by name, label and key.

    Models that are recorded later may know its data again: its request is not certified of them.

    Example: rescind request readmit hospital-history switzerland --reason "a new contract, signed today"
    """
    with open_existing(history) as opened:
        clients = opened.participants.readmit(name, reason)
    words = [f"{name} may take part again, as a new client. Its request is certified of earlier models only."]
    if len(clients) > 1:
        words.append(f"So may whoever shared a name or a label with it: {len(clients)} pseudonyms in all.")
    show({"readmitted": list(clients), "reason": reason}, words, as_json)


def _answered(answer: str) -> str:
    return f"lifted: {answer}" if answer else "stands"
