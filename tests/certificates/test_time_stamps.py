"""Time stamps, against an authority that OpenSSL plays on this machine, honestly and not."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import permutations
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from rescind import History, Revocable, Rounds
from rescind.certificates.envelope import read_statement, sign
from rescind.certificates.errors import TimeStampError
from rescind.certificates.issue import build_statement
from rescind.certificates.keys import create_key
from rescind.certificates.predicate import Statement
from rescind.certificates.time_stamps import LONGEST_STAMP, check_stamps, open_stamp, read_authorities, stamp
from rescind.certificates.verification import explain, verify
from rescind.cli import authority as asking
from rescind.history.events import EVENTS, TIME_STAMP, HeadStamped
from rescind.methods import Last, Sifu
from tests.builders import BUDGET, KEY, SIGNER, entries_of, everybody, rechain, run_sql, said

client = pytest.importorskip("rfc3161_client")
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="OpenSSL's command is not installed")

PASSPHRASE = "correct horse battery"  # noqa: S105
STAMPING, SERVING = ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.SERVER_AUTH
SETTINGS = """[tsa]
serial = serial
crypto_device = builtin
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256, sha1
"""


def made_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Certified:
    """A key with its certificate, for days from today on; a root where nobody issues it."""

    def __init__(
        self,
        name: str,
        issuer: Certified | None = None,
        uses: tuple[x509.ObjectIdentifier, ...] = (STAMPING,),
        critical: bool = True,
        days: tuple[int, int] = (-20, 20),
        number: int | None = None,
        key: ec.EllipticCurvePrivateKey | None = None,
        is_root: bool = False,
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        today = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(made_name(name))
            .issuer_name(issuer.certificate.subject if issuer else made_name(name))
            .public_key(self.key.public_key())
            .serial_number(number or x509.random_serial_number())
            .not_valid_before(today + timedelta(days[0]))
            .not_valid_after(today + timedelta(days[1]))
            .add_extension(x509.BasicConstraints(is_root, None), critical=True)
        )
        if uses and (not is_root or issuer):
            made = made.add_extension(x509.ExtendedKeyUsage(uses), critical)
        self.certificate = made.sign(issuer.key if issuer else self.key, hashes.SHA256())

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def write(self, folder: Path) -> None:
        private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / "signer.pem").write_bytes(self.pem)
        (folder / "key.pem").write_bytes(self.key.private_bytes(serialization.Encoding.PEM, *private))


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)  # noqa: S607


class Authority:
    """Answers queries over HTTP; a test changes who signs, or the whole answer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, Certified("Root", is_root=True)
        self.signer = Certified("Stamps\u202e Ltd", self.root)
        (folder / "settings").write_text(SETTINGS)
        (folder / "serial").write_text("01\n")
        self.answer: Callable[[bytes], bytes] = self.reply
        self.status, self.headers, self.queries = 200, dict[str, str](), list[bytes]()
        # How many bytes are sent at once, and whether there is a pause after them.
        self.step, self.hurry = 2**20, Event()
        self.hurry.set()

    def reply(self, query: bytes, *chain: Certified) -> bytes:
        self.signer.write(self.folder)
        (self.folder / "query").write_bytes(query)
        (self.folder / "chain.pem").write_bytes(b"".join(other.pem for other in chain))
        files = ("-queryfile", "query", "-signer", "signer.pem", "-inkey", "key.pem", "-out", "reply")
        more = ("-chain", "chain.pem") if chain else ()
        openssl(self.folder, "ts", "-reply", "-config", "settings", "-section", "tsa", *files, *more)
        return (self.folder / "reply").read_bytes()

    def by(
        self,
        signer: Certified,
        *others: Certified,
        digest: str = "sha256",
        change: Callable[[bytes], bytes] = bytes,
    ) -> Callable[[bytes], bytes]:
        """Answer with a token that somebody else signed, for whom OpenSSL would make none."""

        def reply(query: bytes) -> bytes:
            self.reply(query)
            signer.write(self.folder)
            (self.folder / "others.pem").write_bytes(b"".join(other.pem for other in others))
            openssl(self.folder, "ts", "-reply", "-in", "reply", "-token_out", "-out", "token")
            read = ("-verify", "-noverify", "-inform", "der", "-in", "token", "-binary", "-out", "info")
            openssl(self.folder, "cms", *read)
            (self.folder / "info").write_bytes(change((self.folder / "info").read_bytes()))
            words = ("-sign", "-binary", "-nodetach", "-econtent_type", "1.2.840.113549.1.9.16.1.4", "-in", "info")
            files = ("-signer", "signer.pem", "-inkey", "key.pem", "-md", digest, "-outform", "der", "-out", "token")
            more = ("-certfile", "others.pem") if others else ()
            openssl(self.folder, "cms", *words, *files, *more)
            return framed(framed(b"\x02\x01\x00") + (self.folder / "token").read_bytes())

        return reply

    def dated(self, time: datetime) -> Callable[[bytes], bytes]:
        """Answer with a token of another time than now."""

        def date(info: bytes) -> bytes:
            return re.sub(rb"\x18\x0f\d{14}Z", b"\x18\x0f" + f"{time:%Y%m%d%H%M%SZ}".encode(), info)

        return self.by(self.signer, change=date)


def framed(content: bytes, tag: bytes = b"\x30") -> bytes:
    """Return a DER sequence, or something else with another tag."""
    size = len(content).to_bytes(4, "big").lstrip(b"\0") or b"\0"
    return tag + (size if len(content) < 128 else bytes([0x80 + len(size)]) + size) + content


@pytest.fixture(scope="module")
def everyday(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Authority, str]]:
    """An authority and its address."""
    authority = Authority(tmp_path_factory.mktemp("authority"))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = self.rfile.read(int(self.headers["Content-Length"]))
            authority.queries.append(query)
            content = authority.answer(query)
            self.send_response(authority.status)
            for name, value in authority.headers.items():
                self.send_header(name, value)
            self.end_headers()
            # Who asked may have gone.
            try:
                for at in range(0, len(content), authority.step):
                    self.wfile.write(content[at : at + authority.step])
                    authority.hurry.wait(0.02)
            except OSError:
                return

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield authority, f"http://127.0.0.1:{server.server_address[1]}/tsa"
        server.shutdown()


@pytest.fixture
def authority(everyday: tuple[Authority, str], tmp_path: Path) -> Iterator[Authority]:
    authority, _ = everyday
    (tmp_path / "tsa.pem").write_bytes(authority.root.pem)
    signer = authority.signer
    yield authority
    authority.answer, authority.signer, authority.status, authority.headers = authority.reply, signer, 200, {}
    authority.step = 2**20
    authority.hurry.set()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stamped")
    create_key(folder / "key", PASSPHRASE)
    with History(folder / "history") as history:
        federation = Revocable(history, everybody(6))
        federation.train(Rounds(2))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Last(), Rounds(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESCIND_PASSPHRASE", PASSPHRASE)
        certify(folder)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history that has forgotten a client, with its certificate and the operator's key."""
    monkeypatch.setenv("RESCIND_PASSPHRASE", PASSPHRASE)
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path


def certify(folder: Path, name: str = "certificate.json") -> None:
    made = said("certify", folder / "history", 1, "--key", folder / "key", "-o", folder / name)
    assert made.exit_code == 0, made.output


def ask_for(folder: Path, everyday: tuple[Authority, str], *words: object) -> Any:
    return said("stamp", folder / "history", "--tsa", everyday[1], "--tsa-certificate", folder / "tsa.pem", *words)


def check(folder: Path, *words: object, certificate: str = "certificate.json", tsa: bool = True) -> Any:
    trusted = ("--tsa-certificate", folder / "tsa.pem") if tsa else ()
    result = said("verify", folder / certificate, "--key", folder / "key.pub", *trusted, *words)
    return result.exit_code, " ".join(result.output.split())


def query_for(content: bytes = b"content") -> Any:
    return client.TimestampRequestBuilder().data(content).hash_algorithm(client.HashAlgorithm.SHA256).build()


def test_a_stamped_certificate_is_checked_offline(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    made = ask_for(folder, everyday, "--certificate", folder / "certificate.json")
    assert made.exit_code == 0, made.output
    assert (folder / "certificate.json.tsr").is_file()
    # A digest leaves the house, and nothing else.
    assert (folder / "certificate.json").read_bytes()[:40] not in authority.queries[-1]
    assert len(authority.queries[-1]) < 100
    code, output = check(folder)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert (code, f"stamped on {today}" in output) == (0, True), output
    # The authority's name is shown as it is spelt, and the policy that it states.
    assert r"by CN=Stamps\u202e Ltd, policy 1.2.3.4.1: it existed by then with its signatures" in output
    assert "not checked: the time of its stamp, which is the authority's word" in output
    code, output = check(folder, "--history", folder / "history", "--full")
    assert (code, "the history existed by then up to entry" in output) == (0, True), output
    assert "Not checked here:" in output
    assert f"rewritten before the first time stamp of all that the certificate rests on, of {today}" in output
    # OpenSSL says the same of it.
    files = ("-data", "certificate.json", "-in", "certificate.json.tsr", "-CAfile", "tsa.pem")
    openssl(folder, "ts", "-verify", *files)


def test_without_the_option_nothing_is_asked_of_a_stamp(folder: Path) -> None:
    (folder / "certificate.json.tsr").write_bytes(b"no time stamp")
    code, output = check(folder, tsa=False)
    assert (code, "stamped" in output) == (0, False)


def test_a_missing_stamp_is_a_failure(folder: Path, authority: Authority) -> None:
    for words in ((), ("--history", folder / "history")):
        code, output = check(folder, *words)
        assert (code, "not verified: no time stamp shows since when it exists" in output) == (23, True), output
    code, output = check(folder, "--stamp", folder / "certificate.json", tsa=False)
    assert (code, "with their authority's certificates" in output) == (1, True), output


def test_a_pipe_beside_a_certificate_is_not_waited_for(folder: Path, authority: Authority) -> None:
    os.mkfifo(folder / "certificate.json.tsr")
    words = ("verify", "certificate.json", "--key", "key.pub", "--tsa-certificate", "tsa.pem")
    beside = Path(sys.executable).parent / "rescind"
    done = subprocess.run([beside, *words], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "no time stamp shows since when" in done.stderr) == (23, True), done.stderr


def test_a_certificate_that_was_changed_or_is_another_does_not_fit(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    ask_for(folder, everyday, "--certificate", folder / "certificate.json")
    certify(folder, "other.json")
    shutil.copy(folder / "certificate.json.tsr", folder / "other.json.tsr")
    code, output = check(folder, certificate="other.json")
    assert (code, "is not this certificate as it is now: " in output) == (23, True), output
    code, output = check(folder, "--history", folder / "history", certificate="other.json")
    assert (code, "nor a head of the history: " in output) == (23, True), output
    # The same statement with one signature more is another file.
    create_key(folder / "officer", PASSPHRASE)
    said("certify", folder / "history", 1, "--key", folder / "officer", "-o", folder / "certificate.json")
    assert check(folder)[0] == 23
    words = ("--certificate", folder / "certificate.json")
    again = ask_for(folder, everyday, *words)
    assert (again.exit_code, "is there already, and not written over" in again.output) == (1, True), again.output
    (folder / "certificate.json.tsr").unlink()
    assert ask_for(folder, everyday, *words).exit_code == 0
    assert check(folder)[0] == 0


def rewrite(folder: Path) -> None:
    """Change what the history says, and compute chain and stamps anew with the secret."""
    run_sql(folder / "history", "UPDATE journal SET time = '2026-01-01T00:00:00+00:00' WHERE kind = 'run'")
    run_sql(folder / "history", "DELETE FROM bounds")
    rechain(folder / "history")
    # With the secret and the operator's key nothing is wrong with it.
    certify(folder, "new.json")
    assert check(folder, "--history", folder / "history", certificate="new.json", tsa=False)[0] == 0


def test_a_history_rewritten_with_the_secret_lacks_the_head_of_a_stamp_kept_elsewhere(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    assert ask_for(folder, everyday, "-o", folder / "kept.tsr").exit_code == 0
    kept = ("--history", folder / "history", "--stamp", folder / "kept.tsr")
    code, output = check(folder, *kept)
    assert (code, "the history existed by then up to entry" in output) == (0, True), output
    assert "not checked: since when it exists: it has no time stamp of its own" in output
    run_sql(folder / "history", "DELETE FROM journal WHERE kind = 'time stamp'")
    rewrite(folder)
    code, output = check(folder, *kept, certificate="new.json")
    assert (code, "or the history rewritten or rolled back" in output) == (23, True), output
    # A new time stamp helps nobody: it is of today, and the old one fits no better.
    assert ask_for(folder, everyday, "--certificate", folder / "new.json").exit_code == 0
    assert check(folder, *kept, certificate="new.json")[0] == 23
    # Who has kept none learns since when the new one exists, and no more.
    code, output = check(folder, *kept[:2], certificate="new.json")
    assert (code, "whether the history was rewritten before the first time stamp" in output) == (0, True), output
    # Even the old certificate, with its stamp or without, fits no more.
    assert check(folder, *kept[:2])[0] == 15


def test_a_stamp_from_before_what_it_tells_or_from_the_future_is_named(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    for days, told in ((-15, "it says it was completed later"), (0, ""), (15, "of a stamp, is still to come")):
        authority.answer = authority.dated(datetime.now(UTC) + timedelta(days=days))
        assert ask_for(folder, everyday, "--certificate", folder / "certificate.json").exit_code == 0
        code, output = check(folder)
        assert (code, told in output, "not checked: its times" in output) == (0, True, bool(told)), output
        (folder / "certificate.json.tsr").unlink()


def test_what_an_early_stamp_does_not_cover_may_have_been_rewritten_until_the_next(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    with History(folder / "history") as history:
        early = entries_of(history)[1].head
    long_ago = datetime.now(UTC) - timedelta(days=15)
    (folder / "kept.tsr").write_bytes(authority.dated(long_ago)(query_for(early).as_bytes()))
    run_sql(folder / "history", "UPDATE journal SET time = '2026-01-01T00:00:00+00:00' WHERE kind = 'request'")
    run_sql(folder / "history", "DELETE FROM bounds")
    rechain(folder / "history")
    certify(folder, "new.json")
    kept = ("--history", folder / "history", "--stamp", folder / "kept.tsr")
    code, output = check(folder, *kept, certificate="new.json")
    assert (code, "of all that the certificate rests on, which is not at hand" in output) == (0, True), output
    assert ask_for(folder, everyday, "--certificate", folder / "new.json").exit_code == 0
    code, output = check(folder, *kept, certificate="new.json")
    assert (code, f"certificate rests on, of {datetime.now(UTC):%Y-%m-%d}" in output) == (0, True), output
    assert f"{long_ago:%Y-%m-%d}" not in output


def test_a_stamp_in_the_journal_of_a_rewritten_history_does_not_fit(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    ask_for(folder, everyday)
    rewrite(folder)
    code, output = check(folder, "--history", folder / "history", certificate="new.json")
    assert (code, "is not the head after entry" in output) == (23, True), output


def test_stamps_of_the_journal_show_what_they_are_of(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    """A later head covers a certificate; stamps of other authorities are counted; what came after is named."""
    with History(folder / "history") as history:
        entries = len(entries_of(history))
        history.journal.record(HeadStamped(entries, "no base64"))
    # What another certificate's is of, nobody can tell without it.
    certify(folder, "other.json")
    assert ask_for(folder, everyday, "--certificate", folder / "other.json").exit_code == 0
    assert ask_for(folder, everyday).exit_code == 0
    with History(folder / "history") as history:
        history.requests.ask(["clinic-2"], BUDGET)
    code, output = check(folder, "--history", folder / "history", "--full")
    assert code == 0, output
    assert f"the history existed by then up to entry {entries + 2} of {entries + 4}" in output
    assert "whether what came after the newest time stamp was rewritten: 1 entries" in output
    assert "time stamps in the journal that are not of this authority: 1" in output
    assert "since when it exists: it has no time stamp of its own" in output


def test_a_timer_stamps_every_so_many_entries(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    authority.queries.clear()
    with History(folder / "history") as history:
        entries = len(entries_of(history))
    assert "Nothing to do" in ask_for(folder, everyday, "--every", entries + 1).output
    assert ask_for(folder, everyday, "--every", entries, "-o", folder / "first.tsr").exit_code == 0
    # Its own entry is none that would have to be stamped.
    assert "0 entries came since" in ask_for(folder, everyday, "--every", 1, "-o", folder / "head.tsr").output
    with History(folder / "history") as history:
        history.requests.ask(["clinic-2"], BUDGET)
    assert "1 entries came since" in ask_for(folder, everyday, "--every", 2).output
    assert len(authority.queries) == 1
    again = ask_for(folder, everyday, "--every", 1, "-o", folder / "head.tsr", "--json")
    assert '"stamped": true' in again.output
    assert check(folder, "--history", folder / "history", "--stamp", folder / "head.tsr")[0] == 0
    both = ask_for(folder, everyday, "--every", 1, "--certificate", folder / "certificate.json")
    assert (both.exit_code, "leave it out" in both.output) == (1, True)


def test_nobody_without_the_secret_silences_the_timer(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    with History(folder / "history") as history:
        history.journal.record(HeadStamped(10**9, ""))
    run_sql(folder / "history", "UPDATE journal SET stamp = zeroblob(32) WHERE kind = 'time stamp'")
    refused = ask_for(folder, everyday, "--every", 1)
    assert (refused.exit_code, "was added without the secret" in refused.output) == (1, True), refused.output


def test_what_cannot_be_written_is_not_recorded_either(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    (folder / "link.tsr").symlink_to(folder / "elsewhere")
    for name, told in (("heads/1.tsr", "a folder that is there"), ("link.tsr", "is there already")):
        refused = ask_for(folder, everyday, "--every", 1, "-o", folder / name)
        assert (refused.exit_code, told in refused.output) == (1, True), refused.output
    (folder / "heads").mkdir()
    assert ask_for(folder, everyday, "--every", 1, "-o", folder / "heads" / "1.tsr").exit_code == 0
    assert (folder / "heads" / "1.tsr").stat().st_size


def test_a_stamp_disturbs_no_plan_and_no_older_reader(
    folder: Path, authority: Authority, everyday: tuple[Authority, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = everybody(6)
    with History(folder / "history") as history:
        federation = Revocable(history, engine)
        plan = federation.plan(Sifu(), history.requests.ask(["clinic-2"], BUDGET))
        stamp(history, authority.reply, [authority.root.certificate])
        assert not history.requests.is_stale(plan)
        history.requests.approve(2, "A. Officer")
        federation.forget(Sifu(), Rounds(1))
        assert history.integrity.verify() == []
        assert history.timeline.requests[1].served
        content = sign(build_statement(history, 2), [SIGNER])
        stamp(history, authority.reply, [authority.root.certificate], content)
        found = verify(content, [KEY], history=history, authorities=authority.root.pem)
        assert "it existed by then with its signatures" in " ".join(" ".join(explain(found)).split())
    # A version that does not know such entries passes them over, and they are in the chain.
    monkeypatch.delitem(EVENTS, TIME_STAMP)  # type: ignore[arg-type]
    with History(folder / "history") as history:
        assert not list(history.timeline.of(HeadStamped))
        assert len(entries_of(history, TIME_STAMP)) == 2
        assert history.integrity.verify() == []
        Revocable(history, engine).train(Rounds(3))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda _: b"<html>Welcome</html>", "it is no time stamp (RFC 3161) that can be read"),
        (lambda _: b"", "it is no time stamp"),
        (lambda _: framed(framed(b"\x02\x01\x02")), "the authority refused, with status 2"),
        (lambda _: framed(framed(b"\x02\x01\x02" + framed(b"\x0c\x03\x1b[m"))), r"status 2 '\\x1b[m'"),
        (lambda _: b"\x30" * (LONGEST_STAMP + 5), f"it has more than {LONGEST_STAMP} bytes"),
    ],
    ids=["page", "nothing", "rejection", "rejection that steers", "long"],
)
def test_what_is_no_stamp_is_refused_and_not_recorded(
    answer: Callable[[bytes], bytes],
    told: str,
    folder: Path,
    authority: Authority,
    everyday: tuple[Authority, str],
) -> None:
    authority.answer = answer
    refused = ask_for(folder, everyday, "-o", folder / "head.tsr")
    assert (refused.exit_code, told in refused.output) == (23, True), refused.output
    assert "\x1b" not in refused.output
    assert not (folder / "head.tsr").exists()
    with History(folder / "history") as history:
        assert not list(history.timeline.of(HeadStamped))


def test_no_more_is_read_than_a_stamp_can_have(authority: Authority, everyday: tuple[Authority, str]) -> None:
    authority.answer = lambda _: bytes(10 * LONGEST_STAMP)
    assert len(asking.ask(everyday[1], b"query")) == LONGEST_STAMP + 1


def other_query(authority: Authority, content: bytes) -> Callable[[bytes], bytes]:
    return lambda _: authority.reply(query_for(content).as_bytes())


def test_an_answer_to_another_query_is_refused(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    with History(folder / "history") as history:
        head = history.head
    for content, told in ((b"something else", "something else than what was sent"), (head, "another query")):
        authority.answer = other_query(authority, content)
        refused = ask_for(folder, everyday)
        assert (refused.exit_code, told in refused.output) == (23, True), refused.output


def test_no_address_but_an_authoritys_is_asked(
    folder: Path, authority: Authority, everyday: tuple[Authority, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tsa.pem").write_bytes(authority.root.pem)
    for url in (f"file://{folder}/certificate.json", "ftp://127.0.0.1/", "data:,x", "tsa.example.org", "http://"):
        result = said("stamp", folder / "history", "--tsa", url, "--tsa-certificate", folder / "tsa.pem")
        assert (result.exit_code, "is no address of an authority" in result.output) == (1, True), result.output
    for target in (f"file://{folder}/certificate.json", everyday[1]):
        authority.status, authority.headers = 302, {"Location": target}
        result = ask_for(folder, everyday)
        assert (result.exit_code, "gave no time stamp: HTTP Error 302" in result.output) == (1, True), result.output
    authority.status, authority.headers = 500, {}
    assert "HTTP Error 500" in ask_for(folder, everyday).output
    # Byte by byte, each in time.
    authority.status, authority.step, authority.answer = 200, 1, lambda _: bytes(LONGEST_STAMP)
    authority.hurry.clear()
    monkeypatch.setattr(asking, "_SECONDS", 0.5)
    before = time.monotonic()
    result = ask_for(folder, everyday)
    assert (result.exit_code, "it took more than 0.5 seconds" in result.output) == (1, True), result.output
    assert time.monotonic() - before < 10


@pytest.fixture
def hostile(authority: Authority) -> dict[str, tuple[Callable[[bytes], bytes], str]]:
    """Tokens that an authority should not make, or did not, and what is said of them."""
    root, unfit = authority.root, "is not for time stamps"
    plain = Certified("Plain", root, uses=())
    other = Certified("Other", is_root=True)
    web = Certified("Web", root, uses=(SERVING,), is_root=True)
    twin = Certified("Twin", root, key=plain.key, number=plain.certificate.serial_number)
    return {
        "expired": (authority.by(Certified("Old", root, days=(-20, -1))), "was not valid on"),
        "not yet": (authority.by(Certified("New", root, days=(1, 20))), "was not valid on"),
        "no use": (authority.by(plain), unfit),
        "twin": (authority.by(plain, twin), "not exactly one certificate of its signer"),
        "another use": (authority.by(Certified("Server", root, uses=(SERVING,))), unfit),
        "by who certifies servers": (
            authority.by(Certified("Web Stamps", web), web),
            "a certificate that is not for",
        ),
        "two uses": (authority.by(Certified("Both", root, uses=(STAMPING, SERVING))), unfit),
        "not critical": (authority.by(Certified("Lax", root, critical=False)), unfit),
        "another authority": (authority.by(Certified("Stamps", Certified("Root", is_root=True))), "no authority in"),
        "weak": (authority.by(authority.signer, digest="sha1"), "another digest than SHA-256"),
        "brings its root": (authority.by(Certified("Stamps", other), other), "no authority in"),
        "signs itself": (authority.by(Certified("Alone")), "no authority in"),
    }


def test_tokens_of_nobody_who_may_stamp_are_refused(
    hostile: dict[str, tuple[Callable[[bytes], bytes], str]], authority: Authority
) -> None:
    query, roots = query_for(), [authority.root.certificate]
    assert open_stamp(authority.by(authority.signer)(query.as_bytes()), roots, query).authority
    for name, (answer, told) in hostile.items():
        with pytest.raises(TimeStampError) as refused:
            open_stamp(answer(query.as_bytes()), roots, query)
        assert told in str(refused.value), name


def test_nobody_gives_the_authority_another_name(authority: Authority) -> None:
    """To OpenSSL two spellings of an issuer are one, and neither is signed: the package alone takes such a token."""
    signer = Certified("Stamps", authority.root)
    posing = Certified("Office", Certified("ROOT", is_root=True), number=signer.certificate.serial_number)
    reply = authority.by(signer, posing)(query_for().as_bytes())
    at = reply.rindex(b"Root")
    with pytest.raises(TimeStampError, match="not exactly one certificate of its signer"):
        open_stamp(reply[:at] + b"ROOT" + reply[at + 4 :], [authority.root.certificate])


def test_a_weak_digest_is_refused(authority: Authority) -> None:
    content = authority.folder / "content"
    content.write_bytes(b"content")
    openssl(authority.folder, "ts", "-query", "-data", "content", "-sha1", "-cert", "-out", "sha1")
    reply = authority.reply((authority.folder / "sha1").read_bytes())
    with pytest.raises(TimeStampError, match="another digest than SHA-256"):
        open_stamp(reply, [authority.root.certificate])


def test_a_stamp_outlives_its_authoritys_certificates(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the stated time: nothing looks at today's."""
    root = Certified("Root", is_root=True, days=(-20, 20))
    reply = authority.by(Certified("Stamps", root))(query_for().as_bytes())
    assert open_stamp(reply, [root.certificate]).time.date() == datetime.now(UTC).date()
    expired = Certified("Root", is_root=True, days=(-20, -1), key=root.key)
    with pytest.raises(TimeStampError, match="no authority in the file"):
        open_stamp(reply, [expired.certificate])


def test_certificates_between_are_taken_from_stamp_or_file(authority: Authority) -> None:
    between = Certified("Between", authority.root, uses=(), is_root=True)
    signer, query = Certified("Stamps", between), query_for().as_bytes()
    roots = read_authorities(authority.root.pem + between.pem)
    assert open_stamp(authority.by(signer, between)(query), roots[:1]).digest
    assert open_stamp(authority.by(signer)(query), roots).digest
    for trusted in (roots[:1], roots[1:]):
        with pytest.raises(TimeStampError, match="no authority in the file"):
            open_stamp(authority.by(signer)(query), trusted)
    with pytest.raises(ValueError, match="no certificates in PEM"):
        read_authorities(authority.root.certificate.public_bytes(serialization.Encoding.DER))
    # A part of a long list would be read, and the right one be missing.
    with pytest.raises(ValueError, match="its own certificates alone"):
        read_authorities(between.pem * 150 + authority.root.pem)


@pytest.mark.parametrize(("name", "root"), [("S" * 64, "R"), ("S", "R" * 64)], ids=["falling", "rising"])
def test_certificates_come_in_any_order(name: str, root: str, authority: Authority) -> None:
    """OpenSSL puts the signer's first; in DER, which the package demands, the shorter one comes first."""
    top = Certified(root, is_root=True)
    authority.signer = Certified(name, top)
    with History.in_memory() as history:
        Revocable(history, everybody(6)).train(Rounds(1))
        sent = list[bytes]()

        def ask(query: bytes) -> bytes:
            sent.append(authority.reply(query, top))
            return sent[0]

        reply, _ = stamp(history, ask, [top.certificate])
        ((_, event),) = history.timeline.of(HeadStamped)
    # What is kept is what the authority sent.
    assert authority.signer.der + top.der in reply
    assert reply == b64decode(event.token) == sent[0]


@pytest.fixture(scope="module")
def parted(everyday: tuple[Authority, str]) -> tuple[Authority, Callable[[bytes], bytes]]:
    """An authority, and what puts something else in the place of its token's certificates."""
    authority, _ = everyday
    info, signers = authority.reply(query_for().as_bytes(), authority.root).split(
        framed(authority.signer.der + authority.root.der, b"\xa0")
    )
    info = info[info.index(b"\x02\x01\x03\x31") :]
    signed = bytes.fromhex("06092a864886f70d010702")

    def put(certificates: bytes) -> bytes:
        data = framed(framed(info + certificates + signers), b"\xa0")
        return framed(framed(b"\x02\x01\x00") + framed(signed + data))

    return authority, put


def test_certificates_that_were_tampered_with_are_refused_as_ever(
    parted: tuple[Authority, Callable[[bytes], bytes]],
) -> None:
    authority, put = parted
    signer, root, roots = authority.signer.der, authority.root.der, [authority.root.certificate]
    chain = [signer, root, Certified("Between", authority.root, uses=(), is_root=True).der]
    for order in (*permutations(chain), (signer, root, signer), (signer,)):
        assert open_stamp(put(framed(b"".join(order), b"\xa0")), roots).authority
    both, unread = root + signer, "it is no time stamp"
    for certificates, told in (
        (b"", "not exactly one certificate of its signer"),
        (framed(b"", b"\xa0"), "not exactly one certificate of its signer"),
        (framed(root, b"\xa0"), "not exactly one certificate of its signer"),
        (framed(both + framed(b"") * 10_000, b"\xa0"), unread),
        (framed(both + bytes(20_000), b"\xa0"), unread),
        (framed(both + b"\x30", b"\xa0"), unread),
        (framed(both[:-1], b"\xa0"), unread),
        (framed(both, b"\x31"), unread),
        (b"\xa0\x80" + both + b"\0\0", unread),
        (b"\xa0\x84\xff\xff\xff\xff" + both, unread),
        (b"\xa0\xff" + both, unread),
        (framed(b"\x30\x80" + both + b"\0\0", b"\xa0"), unread),
        # Its issuer's name is of a kind that nobody knows.
        (framed(signer.replace(b"\x0c\x04Root", b"\xac\x04Root", 1), b"\xa0"), unread),
    ):
        with pytest.raises(TimeStampError, match=told):
            open_stamp(put(certificates), roots)
    with pytest.raises(TimeStampError, match=unread):
        open_stamp(put(framed(signer + root, b"\xa0")) + b"\0\0", roots)


def test_a_changed_stamp_says_nothing_else(authority: Authority) -> None:
    reply, roots = authority.reply(query_for().as_bytes(), authority.root), [authority.root.certificate]
    told, rng = open_stamp(reply, roots), random.Random(7)
    for _ in range(800):
        changed = bytearray(reply)
        at = rng.randrange(len(reply))
        if rng.random() < 0.5:
            changed[at] ^= 1 << rng.randrange(8)
        else:
            del changed[at]
        # Where nothing was changed that is signed, it says the same.
        with suppress(TimeStampError):
            assert open_stamp(bytes(changed), roots) == told


def test_without_the_package_the_rest_verifies(
    folder: Path, authority: Authority, everyday: tuple[Authority, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for(folder, everyday, "--certificate", folder / "certificate.json")
    # One that is too old is worse than none: it takes anybody's stamps.
    with monkeypatch.context() as patch:
        patch.setattr("rescind.certificates.time_stamps.version", lambda _: "1.0.8")
        assert check(folder)[0] == 1
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    assert check(folder, tsa=False)[0] == 0
    code, output = check(folder)
    assert (code, "time stamps need rfc3161-client, 1.0.9 or newer: pip install" in output) == (1, True), output
    result = ask_for(folder, everyday)
    assert (result.exit_code, "pip install -U rfc3161-client" in result.output) == (1, True)


def test_nothing_and_another_historys_certificate_are_not_stamped(
    folder: Path, authority: Authority, everyday: tuple[Authority, str]
) -> None:
    with History.in_memory() as history, pytest.raises(ValueError, match="nothing to stamp"):
        stamp(history, authority.reply, [authority.root.certificate])
    with History.in_memory() as history:
        Revocable(history, everybody(6)).train(Rounds(1))
        content = (folder / "certificate.json").read_bytes()
        with pytest.raises(ValueError, match="is not in the chain of this history"):
            stamp(history, authority.reply, [authority.root.certificate], content)
        _, made = stamp(history, authority.reply, [authority.root.certificate])
        assert len(made.digest) == 32
    with pytest.raises(TimeStampError, match="no time stamp shows"):
        check_stamps(content, read_statement(Statement, content), [], [authority.root.certificate])
