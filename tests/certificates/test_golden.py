"""Certificates whose bytes never change: fixed keys, fixed times, fixed facts.

Written anew by ``python tests/certificates/test_golden.py``, after a change that was meant.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner

from rescind.certificates.envelope import sign
from rescind.certificates.keys import load_public_key
from rescind.certificates.verification import verify
from rescind.core.facts import Mode
from tests.certificates.golden_statements import MODES, golden

FOLDER = Path(__file__).parent / "golden"
# Published on purpose: it signs nothing but these.
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def written(mode: Mode) -> bytes:
    return sign(golden(mode), [CryptoSigner(KEY)])


@pytest.mark.parametrize("mode", MODES)
def test_the_bytes_are_those_of_the_golden_file(mode: Mode) -> None:
    assert written(mode) == (FOLDER / f"{mode.value}.json").read_bytes()


@pytest.mark.parametrize("mode", MODES)
def test_the_golden_file_holds(mode: Mode) -> None:
    content = (FOLDER / f"{mode.value}.json").read_bytes()
    assert verify(content, [load_public_key(FOLDER / "key.pub")]).statement == golden(mode)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    pem = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (FOLDER / "key.pub").write_bytes(pem)
    for each in MODES:
        (FOLDER / f"{each.value}.json").write_bytes(written(each))
