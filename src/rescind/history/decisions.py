"""Who agrees to a plan, or refuses a request: named persons, whose words stay in the journal."""

from __future__ import annotations

from collections.abc import Callable

from rescind.errors import StalePlanError
from rescind.history.events import PlanApproved, RequestRefused, record
from rescind.history.requests import are_unknown, check_open, check_reason, is_stale
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import canonical
from rescind.ledger.contract import LONGEST_NAME, Ledger, is_name
from rescind.ledger.records import Entry
from rescind.texts import make_plain

# Of a text, the raw public key and the signature, both in hexadecimal.
Sign = Callable[[bytes], tuple[str, str]]


def approve(ledger: Ledger, number: int, by: str, sign: Sign | None, time: str) -> PlanApproved:
    """Record that a named person agrees to the recorded plan of an open request, and return what was recorded."""
    timeline = Timeline.read(ledger)
    asked = check_open(timeline, number)
    _check_person(by)
    # Whom the newest model does not know is forgotten without a plan.
    if not are_unknown(ledger, timeline, [asked.request])[0]:
        plan = timeline.plans.get(number)
        if plan is None:
            raise ValueError(
                f"request {number} has no recorded plan yet: the next run records one, or Revocable.plan"
            )
        if is_stale(ledger, timeline, plan):
            raise StalePlanError(
                f"the history has changed since request {number} was planned: the federation's next run plans anew"
            )
    planned = timeline.planned_at(number)
    key, signature = sign(write_approval(ledger.identifier(), planned, by)) if sign else ("", "")
    approval = PlanApproved(planned.sequence, by, key, signature)
    record(ledger, approval, time)
    return approval


def refuse(ledger: Ledger, number: int, by: str, reason: str, time: str) -> None:
    """Record that a named person decided not to serve an open request, and why."""
    _check_person(by)
    check_reason(reason, "a request is not refused")
    with ledger.turn():
        check_open(Timeline.read(ledger), number)
        record(ledger, RequestRefused(number, by, reason), time)


def write_approval(run: str, planned: Entry, by: str) -> bytes:
    """Return the text that whoever approves a plan signs: the head of the chain binds all that was known then."""
    return canonical({"approved": run, "plan": planned.sequence, "head": planned.head.hex(), "by": by})


def _check_person(by: str) -> None:
    if not is_name(by) or not by.strip():
        raise ValueError(
            f"{make_plain(str(by))!r:.80} is not a valid name for a person: give 1 to {LONGEST_NAME} characters in "
            "one line"
        )
