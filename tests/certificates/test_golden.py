"""Certificates whose bytes never change: fixed keys, fixed times, fixed facts, in every version of the wording.

Those of a new version are written by ``python tests/certificates/test_golden.py``; older ones stay as they are.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner

from rescind.certificates.envelope import sign
from rescind.certificates.keys import load_public_key
from rescind.certificates.predicate import VERSION
from rescind.certificates.verification import verify
from rescind.core.facts import Mode
from tests.certificates.golden_statements import MODES, golden

FOLDER = Path(__file__).parent / "golden"
# Published on purpose: it signs nothing but these.
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
EVERY = list(product(range(1, VERSION + 1), MODES))


def written(mode: Mode, version: int) -> bytes:
    return sign(golden(mode, version), [CryptoSigner(KEY)])


@pytest.mark.parametrize(("version", "mode"), EVERY)
def test_the_bytes_are_those_of_the_golden_file(mode: Mode, version: int) -> None:
    assert written(mode, version) == (FOLDER / str(version) / f"{mode.value}.json").read_bytes()


@pytest.mark.parametrize(("version", "mode"), EVERY)
def test_the_golden_file_holds(mode: Mode, version: int) -> None:
    content = (FOLDER / str(version) / f"{mode.value}.json").read_bytes()
    assert verify(content, [load_public_key(FOLDER / "key.pub")]).statement == golden(mode, version)


@pytest.mark.parametrize(
    ("folder", "version"),
    [(FOLDER / "1" / "hospitals", 1), (Path(__file__).parents[2] / "docs" / "auditor", VERSION)],
)
def test_what_four_hospitals_were_given_holds_with_its_model(folder: Path, version: int) -> None:
    content, key = (folder / "certificate.json").read_bytes(), load_public_key(folder / "operator.key.pub")
    found = verify(content, [key], model=folder / "model.safetensors")
    assert found.statement.predicate.version == version
    assert "the model at hand is the one that it is about" in found.holds


if __name__ == "__main__":
    (FOLDER / str(VERSION)).mkdir(parents=True, exist_ok=True)
    pem = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (FOLDER / "key.pub").write_bytes(pem)
    for each in MODES:
        (FOLDER / str(VERSION) / f"{each.value}.json").write_bytes(written(each, VERSION))
