"""Keys: slow to guess, read by standard tools, never overwritten, and sound or refused."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.signer import SSlibKey
from typer.testing import CliRunner

from rescind.certificates import keys as sealing
from rescind.certificates.envelope import PAYLOAD_TYPE, fingerprint, open_envelope
from rescind.certificates.errors import UnusableKeyError
from rescind.certificates.keys import create_key, is_sound, load_public_key, load_signer
from rescind.certificates.predicate import Statement
from rescind.cli import app

PASSPHRASE = "correct horse battery"  # noqa: S105
P = 2**255 - 19
# A point of order 8: eight times it is the neutral point.
EIGHTH = bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05")
SMALL = {
    "neutral": (1).to_bytes(32, "little"),
    "order 2": (P - 1).to_bytes(32, "little"),
    "order 4": bytes(32),
    "order 4, other sign": bytes(31) + b"\x80",
    "order 8": EIGHTH,
    "order 8, other sign": EIGHTH[:31] + bytes([EIGHTH[31] | 0x80]),
}
NO_POINTS = {"no root": (2).to_bytes(32, "little"), "spelled otherwise": (P + 3).to_bytes(32, "little")}


def pem(raw: bytes) -> bytes:
    public = Ed25519PublicKey.from_public_bytes(raw)
    return public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize("name", [*SMALL, *NO_POINTS])
def test_a_public_key_that_anybody_can_sign_for_is_refused(name: str, tmp_path: Path) -> None:
    raw = (SMALL | NO_POINTS)[name]
    (tmp_path / "weak.pub").write_bytes(pem(raw))
    with pytest.raises(UnusableKeyError, match="anybody could sign"):
        load_public_key(tmp_path / "weak.pub")
    # Given to the library directly, with the signature that needs no key.
    weak = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(raw))
    signature = {"keyid": "x", "sig": base64.b64encode(b"\x01" + bytes(63)).decode()}
    envelope = {"payload": "e30=", "payloadType": PAYLOAD_TYPE, "signatures": [signature]}
    with pytest.raises(UnusableKeyError, match="anybody could sign"):
        open_envelope(Statement, json.dumps(envelope).encode(), [weak])


def test_every_key_that_is_made_is_sound() -> None:
    for _ in range(200):
        assert is_sound(Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    assert not is_sound(b"")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="OpenSSL's command is not installed")
def test_a_key_is_slow_to_guess_and_openssl_reads_it(tmp_path: Path) -> None:
    public = create_key(tmp_path / "key", PASSPHRASE)
    parsed = subprocess.run(
        ["openssl", "asn1parse", "-in", str(tmp_path / "key")],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ":scrypt" in parsed
    # N, r, p.
    assert all(f"INTEGER           :{cost}" in parsed for cost in ("4000", "08"))
    read = subprocess.run(
        ["openssl", "pkey", "-in", str(tmp_path / "key"), "-passin", f"pass:{PASSPHRASE}", "-pubout"],  # noqa: S607
        capture_output=True,
        check=True,
    ).stdout
    assert read == public.read_bytes()
    assert load_signer(tmp_path / "key", PASSPHRASE).public_key.keyval == load_public_key(public).keyval


def test_neither_half_of_a_key_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "one.pub").write_bytes(b"somebody's")
    with pytest.raises(UnusableKeyError, match=r"one\.pub is there already"):
        create_key(tmp_path / "one", PASSPHRASE)
    assert (tmp_path / "one.pub").read_bytes() == b"somebody's"
    assert not (tmp_path / "one").exists()
    (tmp_path / "two").write_bytes(b"somebody's")
    with pytest.raises(UnusableKeyError, match="two is there already"):
        create_key(tmp_path / "two", PASSPHRASE)
    assert (tmp_path / "two").read_bytes() == b"somebody's"
    assert not (tmp_path / "two.pub").exists()


def test_a_fingerprint_is_shown_in_full(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["key", "new", str(tmp_path / "key"), "--json"], env={"RESCIND_PASSPHRASE": PASSPHRASE}
    )
    known = fingerprint(load_public_key(tmp_path / "key.pub"))
    assert len(known) == 64
    assert json.loads(result.output)["fingerprint"] == known


def test_doctor_says_that_a_key_is_public_or_quickly_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def told(path: Path) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["doctor", "--key", str(path), "--json"])
        checks = [each for each in json.loads(result.output)["checks"] if each["what"].startswith("key")]
        return result.exit_code, f"{checks[0]['verdict']}: {checks[0]['detail']}"

    public = create_key(tmp_path / "key", PASSPHRASE)
    assert told(tmp_path / "key") == (0, "fine: encrypted, readable by you alone")
    assert told(public) == (
        0,
        f"note: it is a public key, to be handed out: fingerprint {fingerprint(load_public_key(public))}",
    )
    quick = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(PASSPHRASE.encode()),
    )
    (tmp_path / "quick").write_bytes(quick)
    (tmp_path / "quick").chmod(0o600)
    assert "guessed quickly" in told(tmp_path / "quick")[1]
    monkeypatch.setattr(sealing, "_N", 2)
    create_key(tmp_path / "two", PASSPHRASE)
    monkeypatch.undo()
    assert "guessed quickly" in told(tmp_path / "two")[1]
    for cut in (b"", b"MA==", b"MIL/", (tmp_path / "key").read_bytes()[38:60]):
        (tmp_path / "cut").write_bytes(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n" + cut)
        (tmp_path / "cut").chmod(0o600)
        assert "guessed quickly" in told(tmp_path / "cut")[1]
    (tmp_path / "weak.pub").write_bytes(pem(SMALL["neutral"]))
    assert told(tmp_path / "weak.pub")[0] == 1
