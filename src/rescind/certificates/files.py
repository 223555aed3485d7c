"""Certificates in files: signed anew, or signed once more by somebody else."""

from __future__ import annotations

from pathlib import Path

from securesystemslib.signer import CryptoSigner, Signer

from rescind.certificates.annex import Annex, agrees
from rescind.certificates.envelope import LONGEST, countersigned, signed, statement_in
from rescind.certificates.errors import CertificateError, NoCertificate
from rescind.certificates.predicate import InToto, Statement
from rescind.certificates.verification import verify, weakened
from rescind.history.history import History
from rescind.history.places import beginning


def content_of(path: Path) -> bytes:
    """Return what is in a certificate's file; of one that is too long only so much that it is refused."""
    return beginning(path, LONGEST)


def signed_head(path: Path, history: History, number: int) -> bytes | None:
    """Give the head of a certificate that is there: signed once more is what it says, wherever the history stands."""
    if not path.exists():
        return None
    there = statement_in(Statement, content_of(path))
    if (there.predicate.run, there.predicate.request) != (history.ledger.identifier(), number):
        raise NoCertificate(f"{path} holds something else already: choose another file")
    for weaker in weakened(there, history):
        raise NoCertificate(f"{path} is not signed once more: {weaker}, in another file")
    return bytes.fromhex(there.subject[1].digest.sha256)


def check_verifies(content: bytes, own: CryptoSigner, history: History, annex: bytes | None = None) -> None:
    """Refuse to hand out what was just signed if it would not verify with the history behind it."""
    try:
        verify(content, [own.public_key], history=history, annex=annex)
    except CertificateError as refusal:
        raise type(refusal)(f"nothing is written, for it would not verify: {refusal}") from refusal


def signed_for(path: Path, found: InToto, own: Signer) -> bytes:
    """Sign a statement for a file; one that is there is signed once more, if it says the same."""
    if not path.exists():
        return signed(found, [own])
    there = content_of(path)
    said = statement_in(type(found), there)
    same = agrees(said, found) if isinstance(said, Annex) and isinstance(found, Annex) else said == found
    if not same:
        raise NoCertificate(f"{path} holds something else already: choose another file")
    return countersigned(there, own)
