"""Signatures of those who approve plans: made with a key of their own, checked with the history at hand."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from securesystemslib.signer import CryptoSigner, SSlibKey

from rescind.certificates.curve import is_sound
from rescind.certificates.envelope import fingerprint
from rescind.history.decisions import Sign, write_approval
from rescind.history.events import PlanApproved
from rescind.history.timeline import Timeline


def sign_by(signer: CryptoSigner) -> Sign:
    """Return a function that signs approvals with a key."""
    public = signer.public_key.keyval["public"]
    return lambda text: (public, signer.sign(text).signature)


def find_approval_problem(timeline: Timeline, run: str, number: int) -> str | None:
    """Say what is wrong with the signature under the approval of a request's plan; None if nothing is."""
    approval = timeline.approval_of(number)
    if approval is None:
        return None
    _, event = approval
    if not event.key and not event.signature:
        return None
    try:
        raw = bytes.fromhex(event.key)
        if not is_sound(raw):
            raise ValueError("anybody could sign for this key")
        text = write_approval(run, timeline.planned_at(number), event.by)
        Ed25519PublicKey.from_public_bytes(raw).verify(bytes.fromhex(event.signature), text)
    except (ValueError, InvalidSignature):
        return f"the approval of request {number} is not signed by the key that it names"
    return None


def name_approver(event: PlanApproved) -> str | None:
    """Return the fingerprint of the key that an approval is signed with; None if it is not signed."""
    if not event.key:
        return None
    return fingerprint(SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(bytes.fromhex(event.key))))
