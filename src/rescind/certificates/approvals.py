"""Signatures of those who approve plans: made with a key of their own, checked with the history at hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, cast

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from securesystemslib.signer import CryptoSigner, SSlibKey

from rescind.certificates.envelope import fingerprint, read_json
from rescind.certificates.keys import is_sound
from rescind.certificates.predicate import Approval, Count, Digest, Name, Part, Run
from rescind.errors import BrokenHistoryError
from rescind.history.events import PlanApproved, RecordedPlan, RequestFiled, read_event
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.history.requests import Sign, write_approval
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import canonical, next_entry
from rescind.ledger.contract import is_name
from rescind.ledger.records import Entry

# A plan names those whom it hides by numbers: room for some 30,000.
_LONGEST = 1 << 18

# Whether somebody has to agree to a plan before it is carried out; or the keys, of which one has to have signed that.
Approvers = bool | Sequence[SSlibKey]


class SignedApproval(Part):
    """What whoever approves a plan signs: of which run and entry, with which head of the chain, and by whom."""

    approved: Run
    plan: Count
    head: Digest
    by: Name


class ToSign(Part):
    """An approval to be signed, with the entry that it agrees to and the head ``before`` it.

    The signature is of ``approval`` alone, as JSON with sorted keys and without spaces. Its ``head`` follows from the
    rest, so whoever signs need not believe what a page says of the plan.
    """

    approval: SignedApproval
    before: Digest
    kind: Literal["plan", "request"]
    time: str
    body: dict[str, Any]

    @property
    def text(self) -> bytes:
        """What is signed."""
        return canonical(self.approval.model_dump())

    def read(self) -> RecordedPlan | RequestFiled:
        """Return the plan that is agreed to, or without one the request; ``ValueError`` if it is another one."""
        before = Entry(self.approval.plan - 1, "", "", {}, b"", bytes.fromhex(self.before))
        entry = next_entry(before, self.kind, self.time, self.body)
        if entry.head.hex() != self.approval.head:
            raise ValueError("the plan that it shows is not the one that would be signed")
        if not is_name(self.approval.by):
            raise ValueError("what should be the approver's name is none")
        try:
            return cast(RecordedPlan | RequestFiled, read_event(entry))
        except BrokenHistoryError as error:
            raise ValueError(str(error)) from error


def ask_approval(history: History, planned: Entry, by: str) -> ToSign:
    """Return what somebody signs to agree to a plan, by its entry, or without a plan to a request."""
    return ToSign.model_validate(
        {
            "approval": json.loads(write_approval(history.identifier, planned, by)),
            "before": history.journal.head_before(planned).hex(),
            "kind": planned.kind,
            "time": planned.time,
            "body": planned.body,
        }
    )


def read_to_sign(content: bytes) -> ToSign:
    """Return what somebody is asked to sign; ``ValueError`` if it is no approval."""
    asked: ToSign = read_json(ToSign, content, _LONGEST)
    return asked


def sign_by(signer: CryptoSigner) -> Sign:
    """Return a function that signs approvals with a key."""
    public = signer.public_key.keyval["public"]
    return lambda text: (public, signer.sign(text).signature)


def check_approval(approval: Approvers) -> None:
    """Refuse what says neither whether somebody has to agree nor who.

    Raises:
        ValueError: it is no bool, and no list of public keys with at least one in it.
    """
    if isinstance(approval, bool):
        return
    if not isinstance(approval, Sequence) or not approval or not all(isinstance(key, SSlibKey) for key in approval):
        raise ValueError(
            f"approval is {approval!r:.80}: give True or False, or the public keys of those who may agree, at least "
            "one, as rescind.certificates.keys.load_public_key returns them"
        )


def is_approved(history: History, number: int, approval: Approvers) -> bool:
    """Return whether a request's plan may be carried out: somebody has agreed who may, or nobody has to."""
    approvals = history.timeline.approvals_of(number)
    if isinstance(approval, bool):
        return not approval or bool(approvals)
    listed = {key.keyval["public"] for key in approval}
    return any(
        event.key in listed and _is_signed(history.timeline, history.identifier, number, event)
        for _, event in approvals
    )


def describe_vain(history: History, number: int, approval: Approvers) -> str:
    """Say that somebody has agreed whose word does not count; empty if nobody has, or it counts."""
    vain = history.timeline.approvals_of(number) and not is_approved(history, number, approval)
    return "; it was approved, but with none of the keys that count" if vain else ""


def find_approval(timeline: Timeline, run: str, number: int) -> tuple[Entry, PlanApproved] | None:
    """Return the approval of a request's plan, the last one that is signed if one is; None if nobody approved it."""
    approvals = timeline.approvals_of(number)
    signed = [moment for moment in approvals if _is_signed(timeline, run, number, moment[1])]
    return next(reversed(signed or approvals), None)


def state_approval(timeline: Timeline, run: str, number: int) -> Approval | None:
    """Return when the plan of a request was approved, and by which key; not by whom, which is the journal's.

    Raises:
        ValueError: the approval names a key, and is not signed by it.
    """
    approval = find_approval(timeline, run, number)
    if approval is None:
        return None
    entry, event = approval
    if (event.key or event.signature) and not _is_signed(timeline, run, number, event):
        raise ValueError(f"the approval of request {number} is not signed by the key that it names")
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(event.key)) if event.key else None
    return Approval(
        # Where the clock was set back meanwhile, when it was asked is the earliest that it can have been.
        time=max(timeline.requests[number - 1].time, entry.time, key=parse_time),
        key=fingerprint(SSlibKey.from_crypto(public)) if public else None,
        login=True if entry.sequence in timeline.logins and public is None else None,
    )


def is_signature(text: bytes, key: str, signature: str) -> bool:
    """Return whether a signature of an approval's text is by a key, a raw public one; both in hexadecimal."""
    try:
        raw = bytes.fromhex(key)
        if not is_sound(raw):
            # Anybody could sign for it.
            return False
        Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(signature), text)
    except (ValueError, InvalidSignature):
        return False
    return True


def _is_signed(timeline: Timeline, run: str, number: int, event: PlanApproved) -> bool:
    """Return whether the key that an approval names has signed it."""
    return is_signature(write_approval(run, timeline.planned_at(number), event.by), event.key, event.signature)
