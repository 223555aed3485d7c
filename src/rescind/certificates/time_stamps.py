"""RFC 3161: an authority signs that a certificate, or the head of a history, existed at a time.

Whoever has the secret file can compute a chain anew, but could not have the new one stamped before that.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from rescind.certificates.envelope import read_statement
from rescind.certificates.errors import TimeStampError
from rescind.certificates.predicate import Statement
from rescind.history.events import HeadStamped
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.texts import shorten

if TYPE_CHECKING:
    from rfc3161_client import SignedData, TimeStampRequest, TimeStampResponse

# A time stamp has some thousand bytes, most of them certificates; so has an authority's file.
LONGEST_STAMP = 64 * 1024

_STAMPING, _ANY_USE = ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
_SHA256 = "2.16.840.1.101.3.4.2.1"
# Of the digests that tokens are signed over: SHA-256, SHA-384, SHA-512.
_SOUND = {_SHA256, "2.16.840.1.101.3.4.2.2", "2.16.840.1.101.3.4.2.3"}
# From a reply down to its certificates: which part holds the next, and its tag.
_TO_CERTIFICATES = ((0, 0x30), (1, 0x30), (1, 0xA0), (0, 0x30), (3, 0xA0))
# Clocks that are less apart are no news.
_APART = timedelta(days=1)
_WORD_OF_THE_AUTHORITY = (
    "the time of its stamp, which is the authority's word: that its clock was right, its key has not leaked, and its "
    "certificate was not revoked"
)


@dataclass(frozen=True, slots=True)
class TimeStamp:
    """What an authority says: whatever has this SHA-256 existed at this time.

    Attributes:
        digest: the SHA-256 of what was stamped.
        time: when, by the authority's clock.
        authority: who says so: the name in the certificate that signed it, and the policy it was made under.
    """

    digest: bytes
    time: datetime
    authority: str

    def __str__(self) -> str:
        return f"stamped on {self.time:%Y-%m-%d %H:%M:%S} UTC by {self.authority}"


def read_authorities(content: bytes) -> list[x509.Certificate]:
    """Return the certificates of time-stamp authorities, which are trusted, from a PEM file's content.

    Raises:
        ValueError: it holds none that can be read, or is too long.
    """
    if len(content) > LONGEST_STAMP:
        raise ValueError(f"the authority's file has more than {LONGEST_STAMP} bytes: give its own certificates alone")
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise ValueError(
            "the authority's file holds no certificates in PEM: give the ones that it publishes, with its root "
            "(openssl x509 -inform der -in FILE makes PEM of another format)"
        ) from error


def open_stamp(
    content: bytes, authorities: Sequence[x509.Certificate], query: TimeStampRequest | None = None
) -> TimeStamp:
    """Check a time stamp, and return what it says.

    Its authority's certificates have to have been valid at its time, not now: a stamp outlives them.

    Args:
        content: the authority's reply, in DER.
        authorities: certificates that are trusted, roots among them.
        query: what the authority was asked, if this is its answer.

    Raises:
        TimeStampError: it is none, answers another question, or is not by one of the authorities.
        ValueError: the package that reads it is not installed.
    """
    client = _load_client()
    if len(content) > LONGEST_STAMP:
        raise TimeStampError(f"it has more than {LONGEST_STAMP} bytes, and no time stamp has: look what it is")
    try:
        response = client.decode_timestamp_response(_sort_certificates(content))
        for wrong in _find_wrong(response, authorities, query):
            raise TimeStampError(wrong)
        info, (signer,) = response.tst_info, _find_signers(response.signed_data, authorities)
        name, issuer = signer.subject.rfc4514_string(), signer.issuer.rfc4514_string()
        client.VerifierBuilder(roots=list(authorities)).build().verify(response, info.message_imprint.message)
    except client.VerificationError as refusal:
        raise TimeStampError(
            "its signature leads to no authority in the file: it was changed, or is by one whose certificate is of "
            f"{issuer!a:.200}. Give that one's root, and the certificates between"
        ) from refusal
    except TimeStampError:
        raise
    except Exception as error:
        # Nothing is promised of what reading hostile bytes raises.
        raise TimeStampError(
            f"it is no time stamp (RFC 3161) that can be read, or was changed: {shorten(str(error), 100)}"
        ) from error
    authority = shorten(f"{name}, policy {info.policy.dotted_string}", 200)
    return TimeStamp(info.message_imprint.message, info.gen_time, authority)


def stamp(
    history: History,
    ask: Callable[[bytes], bytes],
    authorities: Sequence[x509.Certificate],
    certificate: bytes | None = None,
) -> tuple[bytes, TimeStamp]:
    """Have the newest head of a history stamped, or a certificate and so the head that it names, and record it.

    Args:
        history: the history.
        ask: sends a query to the authority, and returns its reply.
        authorities: certificates of the authority, roots among them.
        certificate: the certificate's bytes.

    Returns:
        the reply, to keep outside of the history, and what it says.

    Raises:
        TimeStampError: the reply cannot be used.
        ValueError: the certificate is of another history, nothing has been recorded yet, or the package for time
            stamps is not installed.
    """
    client = _load_client()
    if not history.timeline.moments:
        raise ValueError("nothing has been recorded here yet: there is nothing to stamp")
    head = history.head
    if certificate is not None:
        head = bytes.fromhex(read_statement(Statement, certificate).subject[1].digest.sha256)
    entry, content = history.journal.number_of(head), certificate or head
    query = client.TimestampRequestBuilder(content, client.HashAlgorithm.SHA256).build()
    reply = ask(query.as_bytes())
    try:
        stamped = open_stamp(reply, authorities, query)
    except TimeStampError as refusal:
        raise TimeStampError(f"nothing is recorded, for the answer cannot be used: {refusal}") from refusal
    named = "" if certificate is None else stamped.digest.hex()
    history.journal.record(HeadStamped(entry, b64encode(reply).decode(), named))
    return reply, stamped


def check_stamps(
    content: bytes,
    statement: Statement,
    stamps: Sequence[bytes],
    authorities: Sequence[x509.Certificate],
    history: History | None = None,
) -> tuple[list[str], list[str]]:
    """Compare a certificate, and the history if it is given, with their time stamps.

    Args:
        content: the certificate's bytes.
        statement: what it says.
        stamps: the bytes of time stamps that were kept outside of the history, each of the certificate or of a head.
        authorities: certificates that are trusted, roots among them.
        history: the history; its journal has time stamps, too.

    Returns:
        what holds, and what cannot be told.

    Raises:
        TimeStampError: one of the stamps is of something else, or none shows since when the certificate exists.
        ValueError: the package that reads them is not installed.
    """
    _load_client()
    # Read before the heads, as somebody may write meanwhile. Those of other certificates tell nothing without them.
    digest, events = hashlib.sha256(content).digest(), () if history is None else history.timeline.of(HeadStamped)
    recorded = [event for _, event in events if event.certificate in ("", digest.hex())]
    numbers = {} if history is None else history.journal.heads()
    own = numbers.get(bytes.fromhex(statement.subject[1].digest.sha256), 0)
    # The certificate names its head: a stamp of the one is a stamp of the other.
    entries = {hashlib.sha256(past).digest(): number for past, number in numbers.items()} | {digest: own}
    opened = [open_stamp(token, authorities) for token in stamps]
    for time_stamp in opened:
        if time_stamp.digest not in entries:
            raise TimeStampError(
                f"what was {time_stamp} is not this certificate as it is now"
                + (" nor a head of the history" if history is not None else "")
                + ": the certificate was signed anew since, or the history rewritten or rolled back. Ask for what "
                "was stamped; a stamp of the history is compared with --history"
            )
    strange = 0
    for event in recorded:
        try:
            time_stamp = open_stamp(b64decode(event.token), authorities)
        except (TimeStampError, ValueError):
            strange += 1
            continue
        if entries.get(time_stamp.digest) != event.entry:
            raise TimeStampError(
                f"what was {time_stamp} is not the head after entry {event.entry}, as the journal says: the history "
                "was rewritten since. Ask for the one that was stamped"
            )
        opened.append(time_stamp)
    opened.sort(key=lambda time_stamp: time_stamp.time)
    of_its_own = [time_stamp for time_stamp in opened if time_stamp.digest == digest]
    covering = [time_stamp for time_stamp in opened if entries[time_stamp.digest] >= own]
    since = next(iter([*of_its_own, *covering]), None)
    if since is None and not stamps:
        raise TimeStampError(
            "no time stamp shows since when it exists: ask for the one that lies beside it, CERTIFICATE.tsr, or for "
            "another (rescind stamp HISTORY --certificate)"
        )
    holds, unchecked = [], [_WORD_OF_THE_AUTHORITY]
    completed = parse_time(statement.predicate.erasure.completed)
    if covering and covering[0].time < completed - _APART:
        unchecked.append(
            f"its times: stamped on {covering[0].time:%Y-%m-%d}, it says it was completed later: a clock was wrong, "
            "or the authority's key has leaked"
        )
    if opened[-1].time > datetime.now(UTC) + _APART:
        unchecked.append(f"its times: {opened[-1].time:%Y-%m-%d}, of a stamp, is still to come: a clock was wrong")
    if of_its_own:
        holds.append(f"{since}: it existed by then with its signatures, and is unchanged")
    else:
        unchecked.append("since when it exists: it has no time stamp of its own")
    if history is None:
        unchecked.append("whether the history still is what was stamped with it: give the history")
        return holds, unchecked
    newest = max(opened, key=lambda time_stamp: entries[time_stamp.digest])
    holds += [
        f"{time_stamp}: the history existed by then up to entry {entries[time_stamp.digest]} of {len(numbers)}"
        for time_stamp in dict.fromkeys((newest if of_its_own else since or newest, newest))
    ]
    # An earlier stamp, of fewer entries, leaves open what came after them.
    first = f"of {covering[0].time:%Y-%m-%d}" if covering else "which is not at hand"
    unchecked.append(
        f"whether the history was rewritten before the first time stamp of all that the certificate rests on, {first}"
    )
    if later := history.journal.count_after(entries[newest.digest]):
        unchecked.append(f"whether what came after the newest time stamp was rewritten: {later} entries")
    if strange:
        unchecked.append(f"time stamps in the journal that are not of this authority: {strange}")
    return holds, unchecked


def _load_client() -> ModuleType:
    try:
        import rfc3161_client

        installed = tuple(map(int, re.findall("[0-9]+", version("rfc3161-client"))[:3]))
    except ModuleNotFoundError:
        installed = ()
    # Those before trust whatever root a time stamp brings along.
    if installed < (1, 0, 9):
        raise ValueError("time stamps need rfc3161-client, 1.0.9 or newer: pip install -U rfc3161-client")
    return rfc3161_client


def _sort_certificates(content: bytes) -> bytes:
    """Return a reply with its certificates in the order of DER: the package demands it, OpenSSL does not keep to it.

    Nobody signs their order. A reply that has none, or is not DER so far, is returned as it is.
    """
    inner, end = 0, len(content)
    try:
        for number, tag in _TO_CERTIFICATES:
            start, inner, end = _split(content, inner, end)[number]
            if content[start] != tag:
                return content
        certificates = sorted(content[start:after] for start, _, after in _split(content, inner, end))
    except (IndexError, ValueError):
        return content
    return content[:inner] + b"".join(certificates) + content[end:]


def _split(content: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return where each part of a stretch of DER starts, where what it holds does, and where it ends.

    Raises:
        IndexError, ValueError: it is not DER.
    """
    parts = []
    while start < end:
        size, inner = content[start + 1], start + 2
        if size > 0x80:
            inner += size - 0x80
            size = int.from_bytes(content[start + 2 : inner])
        # A length may also be left open (0x80), but not in DER.
        if content[start + 1] == 0x80 or inner + size > end:
            raise ValueError("not DER")
        parts.append((start, inner, inner + size))
        start = inner + size
    return parts


def _find_signers(data: SignedData, authorities: Sequence[x509.Certificate]) -> set[x509.Certificate]:
    """Return the certificates that may be the only signer's.

    Issuers are not compared: to OpenSSL two spellings are one, and a token may come with a certificate that nobody
    signed with.
    """
    (signer,) = data.signer_infos
    certificates = {*authorities, *map(x509.load_der_x509_certificate, data.certificates)}
    return {certificate for certificate in certificates if certificate.serial_number == signer.serial_number}


def _find_wrong(
    response: TimeStampResponse, authorities: Sequence[x509.Certificate], query: TimeStampRequest | None
) -> Iterator[str]:
    """Say what is wrong with a reply, apart from its signature; the package leaves some of it to others."""
    if response.status:
        words = shorten(" ".join(response.status_string), 100)
        yield f"the authority refused, with status {response.status} {words!r}: ask it why, or ask another one"
    info = response.tst_info
    imprint = info.message_imprint
    algorithms = {algorithm.dotted_string for algorithm in response.signed_data.digest_algorithms}
    if imprint.hash_algorithm.dotted_string != _SHA256 or not algorithms <= _SOUND or info.policy is None:
        yield "it rests on another digest than SHA-256, or names no policy: have it made by another authority"
    if query is not None and imprint.message != query.message_imprint.message:
        yield "it is of something else than what was sent: ask again, or another authority"
    if query is not None and info.nonce != query.nonce:
        yield "it answers another query, made before or for somebody else: ask again, or another authority"
    signers = _find_signers(response.signed_data, authorities)
    if len(signers) != 1:
        yield "it holds not exactly one certificate of its signer: have it made anew"
    for signer in signers:
        if not signer.not_valid_before_utc <= info.gen_time <= signer.not_valid_after_utc:
            yield (
                f"its authority's certificate was not valid on {info.gen_time:%Y-%m-%d}, when it was made, but from "
                f"{signer.not_valid_before_utc:%Y-%m-%d} to {signer.not_valid_after_utc:%Y-%m-%d}: ask another one"
            )
        if [(use.critical, list(use.value)) for use in _find_uses(signer)] != [(True, [_STAMPING])]:
            yield "the certificate that signed it is not for time stamps (timeStamping, alone, critical): ask another"
    # Who may certify servers only gives nobody the right to stamp, and OpenSSL does not look at that.
    for certificate in map(x509.load_der_x509_certificate, response.signed_data.certificates):
        if any(not {_STAMPING, _ANY_USE} & set(use.value) for use in _find_uses(certificate)):
            yield "it comes with a certificate that is not for time stamps: ask another authority"


def _find_uses(certificate: x509.Certificate) -> list[x509.Extension[x509.ExtendedKeyUsage]]:
    """Return what a certificate is limited to; nothing if it is not limited."""
    return [use for use in certificate.extensions if isinstance(use.value, x509.ExtendedKeyUsage)]
