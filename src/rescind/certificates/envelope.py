"""A statement in a DSSE envelope: signed by one or several, opened by whoever has their public keys."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from securesystemslib.dsse import Envelope
from securesystemslib.signer import Key, Signature, Signer

from rescind.certificates.errors import NotACertificateError, UnsignedCertificateError, UnusableKeyError
from rescind.certificates.keys import is_sound
from rescind.certificates.predicate import InToto
from rescind.private_files import read_bounded
from rescind.texts import shorten

PAYLOAD_TYPE = "application/vnd.in-toto+json"
# A certificate has some thousand characters, and 90 more a client; more than this is not worth parsing.
LONGEST = 2 * 1024 * 1024
_MOST_SIGNATURES = 16

Kind = TypeVar("Kind", bound=InToto)


def sign(statement: InToto, signers: Sequence[Signer]) -> bytes:
    """Sign a statement, and return the file's content."""
    envelope = Envelope(statement.payload(), PAYLOAD_TYPE, {})
    for signer in signers:
        envelope.sign(signer)
    return _serialise(envelope)


def countersign(content: bytes, signer: Signer) -> bytes:
    """Add a signature to a file that others have signed already."""
    envelope = _parse_envelope(content)
    envelope.sign(signer)
    return _serialise(envelope)


def open_envelope(kind: type[Kind], content: bytes, keys: Sequence[Key], threshold: int = 1) -> Kind:
    """Check the signatures, then the form, and return the statement; ``threshold`` of the keys must have signed."""
    if not 1 <= threshold <= len(keys):
        raise ValueError(f"threshold is {threshold}; it has to be from 1 to the number of keys, {len(keys)}")
    for key in keys:
        if key.keytype == "ed25519" and not is_sound(bytes.fromhex(key.keyval["public"])):
            raise UnusableKeyError(
                f"the public key {fingerprint(key)} belongs to no private one: anybody could sign for it"
            )
    envelope = _parse_envelope(content)
    pae = envelope.pae()
    signatures = envelope.signatures.values()
    verified = {key.keyid for key in keys if any(_verifies(key, signature, pae) for signature in signatures)}
    if len(verified) < threshold:
        missing = sorted({fingerprint(key) for key in keys if key.keyid not in verified})
        raise UnsignedCertificateError(
            f"{threshold} different keys have to have signed {kind.called}, and {len(verified)} did"
            + (f"; no valid signature by {', '.join(missing)}" if missing else "")
            + ". Either it was changed after it was signed, or another key signed it: ask the signer for both again"
        )
    return _statement(kind, envelope)


def fingerprint(key: Key) -> str:
    """Return what two people compare to be sure of a key: its whole digest, for a beginning can be matched."""
    return key.keyid


def read_statement(kind: type[Kind], content: bytes) -> Kind:
    """Return what a file says, whoever signed it."""
    return _statement(kind, _parse_envelope(content))


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a JSON object of its pairs; refuse one that has a name twice."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name is there twice")
    return table


def read_json(kind: Any, content: bytes, longest: int) -> Any:
    """Return what a JSON text holds, strictly: of a kind, and no longer than so many bytes; else ``ValueError``."""
    if len(content) > longest:
        raise ValueError(f"it has more than {longest} bytes")
    try:
        # Whatever stands there twice would be read once.
        json.loads(content, object_pairs_hook=_refuse_duplicates)
        return TypeAdapter(kind).validate_json(content, strict=True)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def _serialise(envelope: Envelope) -> bytes:
    content = (json.dumps(envelope.to_dict(), indent=1, sort_keys=True) + "\n").encode()
    if len(content) > LONGEST:
        raise ValueError(
            f"it would have {len(content)} bytes, and more than {LONGEST} are not read: split the request"
        )
    return content


def read_content(path: Path) -> bytes:
    """Return what is in a signed file; of one that is too long only so much that it is refused."""
    return read_bounded(path, LONGEST)


def _statement(kind: type[Kind], envelope: Envelope) -> Kind:
    try:
        statement = kind.model_validate_json(envelope.payload, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        wrong = error.errors()[0]
        at = ".".join(map(str, wrong["loc"])) or "the whole"
        raise NotACertificateError(
            f"what is signed is not {kind.called}: {at}: {shorten(wrong['msg'], 200)}"
        ) from error
    except ValueError as error:
        raise NotACertificateError(f"what is signed is not {kind.called}: {_short(error)}") from error
    if statement.payload() != envelope.payload:
        raise NotACertificateError(
            f"it is signed, and spelled otherwise than {kind.called}: keys or numbers are written twice"
        )
    return statement


def _verifies(key: Key, signature: Signature, data: bytes) -> bool:
    # The key's own identifier is not looked at in the signature: whoever holds the key signed it, or did not.
    try:
        key.verify_signature(Signature(key.keyid, signature.signature), data)
    except Exception:
        return False
    return True


def _parse_envelope(content: bytes) -> Envelope:
    """Read an envelope strictly: nothing but payload, type and signatures, none of them twice."""
    if len(content) > LONGEST:
        raise NotACertificateError(f"the file is too long: a certificate has at most {LONGEST} bytes")
    if not content.strip():
        raise NotACertificateError("the file is empty")
    try:
        # Some editors begin a text with a mark that means nothing.
        document = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_refuse_duplicates)
    except UnicodeDecodeError as error:
        raise NotACertificateError("the file is no text, and so no signed document") from error
    except (ValueError, RecursionError) as error:
        raise NotACertificateError(
            f"the file is cut off, or was edited, or is no JSON at all: {_short(error)}"
        ) from error
    if not isinstance(document, dict) or document.keys() != {"payload", "payloadType", "signatures"}:
        raise NotACertificateError(
            "the file is no signed envelope: it needs payload, payloadType and signatures, no more"
        )
    signatures = document["signatures"]
    if document["payloadType"] != PAYLOAD_TYPE or not isinstance(signatures, list):
        raise NotACertificateError(f"the envelope holds no {PAYLOAD_TYPE}")
    if not 1 <= len(signatures) <= _MOST_SIGNATURES:
        raise NotACertificateError(f"the envelope has {len(signatures)} signatures; 1 to {_MOST_SIGNATURES} are read")
    by_key: dict[str, Signature] = {}
    for signature in signatures:
        whole = isinstance(signature, dict) and signature.keys() == {"keyid", "sig"}
        if not whole or not isinstance(signature["keyid"], str):
            raise NotACertificateError("a signature needs keyid and sig, and nothing else")
        if signature["keyid"] in by_key:
            raise NotACertificateError("two signatures name the same key")
        by_key[signature["keyid"]] = Signature(signature["keyid"], _decode_base64(signature["sig"]).hex())
    return Envelope(_decode_base64(document["payload"]), PAYLOAD_TYPE, by_key)


def _decode_base64(text: Any) -> bytes:
    """Read base64 that has one spelling only."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise NotACertificateError("the envelope is not in base64") from error
    if base64.b64encode(data).decode() != text:
        raise NotACertificateError("the envelope's base64 is spelled in an unusual way")
    return data


def _short(error: Exception) -> str:
    return shorten(str(error).splitlines()[0], 200) if str(error) else type(error).__name__
