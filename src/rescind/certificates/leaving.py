"""What a client has in its own hands: the request that it signed with its node's key, and the receipt of one.

With the receipt it finds itself among the digests of a certificate.

The key of a Flower SuperNode is its name in a history, as a fingerprint. So the request carries the whole public key,
and nobody has to look it up: whoever holds its private half is the client that has the key's fingerprint as its name.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import Field
from securesystemslib.signer import CryptoSigner, Key, SSlibKey

from rescind.certificates.envelope import open_envelope, read_json, read_statement, sign
from rescind.certificates.errors import (
    ForeignRequestError,
    NotACertificateError,
    ReceiptMismatchError,
    ReplayedRequestError,
    StaleRequestError,
    UnregisteredKeyError,
    UnusableKeyError,
)
from rescind.certificates.keys import is_public, read_key
from rescind.certificates.predicate import (
    STATEMENT_TYPE,
    Count,
    Digest,
    InToto,
    Name,
    Part,
    Predicate,
    Run,
    Sha256,
    Words,
)
from rescind.core.facts import PrivacyScope, Source
from rescind.history.history import History
from rescind.history.journal import is_usual_time, parse_time
from rescind.history.participants import blind_name, name_key
from rescind.ledger.contract import LONGEST_NAME, is_name
from rescind.ledger.records import Asker, Sender
from rescind.private_files import check_private, name_when_full, open_private, read_bounded, warn_if_packed
from rescind.texts import make_plain

REQUEST_TYPE: Final = "urn:rescind:request-to-be-forgotten:1"
# Clocks of two machines differ.
_AHEAD = timedelta(days=1)
_LONGEST_RECEIPT = 64 * 1024
ClientName = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
# Those that Flower takes and that signatures are made with; each fixes the digest that is signed.
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


class SignedKey(Part):
    """Whose request it is: the SHA-256 of the public key's text."""

    name: Literal["client"]
    digest: Sha256


class Wish(Part):
    """What a client asks of a federation: that it, or some of its ``records``, be forgotten.

    ``key`` is its public key as PEM text, ``nonce`` a random number that tells two requests apart.
    """

    federation: Name
    scope: Literal["group", "records"]
    time: Words
    nonce: Digest
    key: Annotated[str, Field(min_length=1, max_length=2000)]


class SignedRequest(InToto):
    """An in-toto Statement, version 1, by which a client asks to be forgotten."""

    called = "a request to be forgotten"

    subject: tuple[SignedKey]
    predicate_type: Literal["urn:rescind:request-to-be-forgotten:1"] = Field(alias="predicateType")
    predicate: Wish

    @property
    def client(self) -> str:
        """The name under which a history knows the client: its key's fingerprint."""
        return name_key(self.predicate.key.encode())

    @property
    def sender(self) -> Sender:
        """What a history keeps of it: a digest, which tells nobody whose it is."""
        return Sender(Asker.KEY, hashlib.sha256(self.payload()).hexdigest())


def sign_request(key: Path, federation: str, *, records: bool = False, time: datetime | None = None) -> bytes:
    """Sign a request to be forgotten, and return the file's content.

    Args:
        key: the private key by which the client's SuperNode is registered.
        federation: what its operator calls the federation.
        records: whether only some of the client's rows are to be forgotten.
        time: when it is signed, now by default.

    Returns:
        the signed request, for the operator.

    Raises:
        UnusableKeyError: there is no such key, or others can read it.
        ValueError: the federation's name cannot be one.
    """
    if not is_name(federation):
        raise ValueError(
            f"{make_plain(federation)!r:.80} is not a valid name of a federation: give what its operator calls it, 1 "
            f"to {LONGEST_NAME} characters in one line"
        )
    signer, text = _load_client_key(key)
    statement = SignedRequest(
        type_=STATEMENT_TYPE,
        subject=(SignedKey(name="client", digest=Sha256(sha256=hashlib.sha256(text).hexdigest())),),
        predicate_type=REQUEST_TYPE,
        predicate=Wish(
            federation=federation,
            scope="records" if records else "group",
            time=(time or datetime.now(UTC)).isoformat(),
            nonce=secrets.token_hex(32),
            key=text.decode(),
        ),
    )
    return sign(statement, [signer])


def open_request(content: bytes) -> SignedRequest:
    """Check the signature of a request by the key that it carries, and return what it says.

    Args:
        content: the file's bytes.

    Returns:
        the request.

    Raises:
        NotACertificateError: the file is no signed request.
        UnsignedCertificateError: it was not signed by its key, or was changed since.
        UnusableKeyError: its key is of no kind that nodes are registered by.
    """
    claimed = read_statement(SignedRequest, content)
    request = open_envelope(SignedRequest, content, [_read_client_key(claimed.predicate.key.encode())])
    wish = request.predicate
    if hashlib.sha256(wish.key.encode()).hexdigest() != request.subject[0].digest.sha256:
        raise NotACertificateError("the request is about another key than the one that it carries")
    if not is_usual_time(wish.time):
        raise NotACertificateError(f"the request's time, {wish.time!r:.80}, is not valid")
    return request


def check_request(history: History, request: SignedRequest, within: timedelta, now: datetime) -> None:
    """Check whether a signed request is one for this history, from one of its clients, and new.

    Args:
        history: where it is to be recorded.
        request: the request, of which ``open_request`` has checked who signed it.
        within: how old it may be.
        now: today.

    Raises:
        ForeignRequestError: it is for another federation.
        StaleRequestError: it is too old, or its time is still to come.
        ReplayedRequestError: it was handed in before.
        UnregisteredKeyError: no client of this history has its key.
    """
    wish, federation = request.predicate, history.timeline.names.federation
    if wish.federation != federation:
        own = f"is called {federation!r}" if federation else "has no name yet (rescind init --federation NAME)"
        raise ForeignRequestError(f"the request is for the federation {wish.federation!r}, and this one {own}")
    age = now - parse_time(wish.time)
    if age > within:
        raise StaleRequestError(
            f"the request was signed on {wish.time[:10]}, more than {within.days} days ago: ask the client for a new "
            "one, or say how old it may be (--days)"
        )
    if age < -_AHEAD:
        raise StaleRequestError(f"the request says that it was signed on {wish.time[:10]}, which is still to come")
    for filed in history.timeline.requests:
        if filed.sender == request.sender:
            raise ReplayedRequestError(
                f"this very request was handed in before, on {filed.time[:10]}, and is request {filed.number}: who "
                "asks again signs a new one"
            )
    if history.run.facts.sources.identity is not Source.CHECKED:
        raise UnregisteredKeyError(
            "nobody's key is known in this federation: its nodes say themselves who they are. Register their keys "
            "(flwr supernode register), or record the request yourself (rescind request add)"
        )
    if request.client not in history.participants.all():
        raise UnregisteredKeyError(
            f"no client here has the request's key, {request.client}: it never took part, or was forgotten already"
        )


def scope_of(request: SignedRequest) -> PrivacyScope:
    """Return whose removal a signed request asks for."""
    return PrivacyScope(request.predicate.scope)


def _load_client_key(path: Path) -> tuple[CryptoSigner, bytes]:
    """Return who signs, and the public key's text as Flower has it."""
    content = read_key(path)
    if is_public(content) or content.startswith((b"ecdsa-", b"ssh-")):
        raise UnusableKeyError(f"{path} is a public key: sign with the private one, which the SuperNode has")
    check_private(path)
    by_ssh = b"OPENSSH PRIVATE KEY" in content
    load = serialization.load_ssh_private_key if by_ssh else serialization.load_pem_private_key
    try:
        private = load(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UnusableKeyError(
            f"{path} holds no private key that can be read without a passphrase: give the file that the SuperNode is "
            "started with (--auth-supernode-private-key)"
        ) from error
    if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, _CURVES):
        raise UnusableKeyError(f"{path} holds a key of another kind: SuperNodes have keys of a NIST curve")
    return CryptoSigner(private), _write_text(private.public_key())


def _read_client_key(text: bytes) -> Key:
    """Return the public key that a request carries; it has to be spelled as Flower spells it."""
    try:
        public = serialization.load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UnusableKeyError("the request carries no public key that can be read") from error
    if not isinstance(public, ec.EllipticCurvePublicKey) or not isinstance(public.curve, _CURVES):
        raise UnusableKeyError("the request carries a key of another kind: SuperNodes have keys of a NIST curve")
    if _write_text(public) != text:
        raise UnusableKeyError("the request spells its public key in an unusual way")
    return SSlibKey.from_crypto(public)


def _write_text(public: ec.EllipticCurvePublicKey) -> bytes:
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


class Receipt(Part):
    """The receipt of one client: what it is ``called``, and the salt of each of its ``names``: of its keys, say."""

    run: Run
    request: Count
    called: ClientName
    names: Mapping[ClientName, Digest]


def write_receipt(path: Path, receipt: Receipt) -> None:
    """Write a receipt into a new file, for its owner alone."""
    with name_when_full(path), open(path, "x", encoding="utf-8", opener=open_private) as file:
        json.dump(receipt.model_dump(mode="json"), file, indent=1)
    warn_if_packed(path)


def read_receipt(path: Path) -> Receipt:
    """Read a receipt, strictly."""
    content = read_bounded(path, _LONGEST_RECEIPT)
    try:
        return parse_receipt(content)
    except ValueError as error:
        raise ValueError(f"{path} is no receipt, as rescind request add --receipt writes it") from error


def parse_receipt(content: bytes) -> Receipt:
    """Return the receipt that a file or a message holds; ``ValueError`` if it holds none."""
    return cast(Receipt, read_json(Receipt, content, _LONGEST_RECEIPT))


def find_client(receipt: Receipt, predicate: Predicate) -> str:
    """Say by which names a receipt's client is among the forgotten of a certificate.

    Raises:
        ReceiptMismatchError: it is not among them, or not by all of its names.
    """
    missing = [
        name
        for name, salt in receipt.names.items()
        if blind_name(bytes.fromhex(salt), name) not in predicate.forgotten
    ]
    if missing or not receipt.names:
        raise ReceiptMismatchError(
            f"{receipt.called} is not among the forgotten{_listed(receipt.called, missing)}: the receipt is for "
            f"request {receipt.request} of history {receipt.run}, and this is about request {predicate.request} of "
            f"{predicate.run}"
        )
    return f"{receipt.called} is among the forgotten{_listed(receipt.called, list(receipt.names))}"


def check_signer(receipt: Receipt, client: str) -> None:
    """Refuse the receipt of another client than the one whose key signed a request.

    Raises:
        ReceiptMismatchError: the client is none of the receipt's names.
    """
    if client not in receipt.names:
        raise ReceiptMismatchError(f"the receipt is that of {receipt.called}, and the request was signed by {client}")


def _listed(called: str, names: list[str]) -> str:
    return f", as {' and '.join(names)}" if names and names != [called] else ""
