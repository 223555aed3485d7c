"""Certificates in files, signed anew or once more by somebody else, and the evidence for them."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from securesystemslib.signer import CryptoSigner, Signer

from rescind.certificates.annex import Annex, is_same_annex
from rescind.certificates.envelope import countersign, read_content, read_json, read_statement, sign
from rescind.certificates.errors import CertificateError, NotACertificateError
from rescind.certificates.models import read_model_id
from rescind.certificates.predicate import MOST_EVIDENCE, Evidence, InToto, Measured, Statement
from rescind.certificates.verification import find_weakened, verify
from rescind.core.edges import ModelId
from rescind.history.history import History

LONGEST_EVIDENCE = 64 * 1024
_MOST_CERTIFICATES = 1000


def read_signed(path: Path, history: History, number: int) -> tuple[bytes, ModelId, int] | None:
    """Return head, model and version of an existing certificate: a second signature is for these, not for today's."""
    if not path.exists():
        return None
    statement = read_statement(Statement, read_content(path))
    if (statement.predicate.run, statement.predicate.request) != (history.identifier, number):
        raise NotACertificateError(f"{path} holds something else already: choose another file")
    for weaker in find_weakened(statement.predicate, history):
        raise NotACertificateError(f"{path} is not signed once more: {weaker}, in another file")
    head = bytes.fromhex(statement.subject[1].digest.sha256)
    return head, read_model_id(statement.predicate), statement.predicate.version


def check_verifies(content: bytes, own: CryptoSigner, history: History, annex: bytes | None = None) -> None:
    """Refuse to hand out what was just signed if it would not verify with the history behind it."""
    try:
        verify(content, [own.public_key], history=history, annex=annex)
    except CertificateError as refusal:
        raise type(refusal)(f"nothing is written, for it would not verify: {refusal}") from refusal


def sign_for(path: Path, statement: InToto, own: Signer) -> bytes:
    """Sign a statement for a file; one that is there is signed once more, if it says the same."""
    if not path.exists():
        return sign(statement, [own])
    content = read_content(path)
    existing = read_statement(type(statement), content)
    same = existing == statement
    if isinstance(existing, Annex) and isinstance(statement, Annex):
        same = is_same_annex(existing, statement)
    if not same:
        raise NotACertificateError(f"{path} holds something else already: choose another file")
    return countersign(content, own)


def read_evidence(content: bytes) -> tuple[Evidence, ...]:
    """Read a JSON list of objects with ``what``, ``found`` and ``bound``, strictly."""
    try:
        return cast(tuple[Evidence, ...], read_json(Measured, content, LONGEST_EVIDENCE))
    except ValueError as error:
        raise ValueError(
            f"the evidence is no JSON list of at most {MOST_EVIDENCE} objects with what, found and bound, each a "
            f"text: {error}"
        ) from error


def read_certificate(path: Path) -> tuple[str, int, bytes] | None:
    """Return of which run and request a file is the certificate, and its content; who signed it is not looked at."""
    try:
        # Approvals and receipts may lie there, too; and whoever opened a pipe would wait for ever.
        statement = read_statement(Statement, content := read_content(path)) if path.is_file() else None
    except (CertificateError, OSError):
        return None
    if statement is None or statement.predicate.mode == "heuristic":
        return None
    return statement.predicate.run, statement.predicate.request, content


def find_certificates(folder: Path | None) -> dict[tuple[str, int], Path]:
    """Return the certificates in a folder by run and request, in the order of their times, the newest of each."""
    by_request: dict[tuple[str, int], Path] = {}
    files = () if folder is None else folder.glob("*.json")
    for path in sorted(files, key=lambda path: path.lstat().st_mtime)[-_MOST_CERTIFICATES:]:
        if (known := read_certificate(path)) is not None:
            by_request.pop(known[:2], None)
            by_request[known[:2]] = path
    return by_request
