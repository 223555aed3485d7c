"""Certificates whose bytes never change: fixed keys, fixed times, fixed facts.

Written anew by ``python tests/certificates/test_golden.py``, after a change that was meant.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner

from rescind.certificates.envelope import signed
from rescind.certificates.issue import CLAIMS, NOISE_SOURCE, NOT_CLAIMED, TITLES, guarantee, training_part
from rescind.certificates.keys import public_key
from rescind.certificates.predicate import (
    CERTIFICATE_TYPE,
    REPORT_TYPE,
    STATEMENT_TYPE,
    Assumption,
    Erasure,
    Evidence,
    Noise,
    Predicate,
    Sha256,
    Statement,
    Subject,
)
from rescind.certificates.verification import verify
from rescind.core.facts import Mode
from rescind.core.noise import GRID
from rescind.core.regularity import SoftmaxL2
from rescind.core.training import LocalTraining

FOLDER = Path(__file__).parent / "golden"
# Published on purpose: it signs nothing but these.
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MODES = [Mode.EXACT, Mode.INSTANCE, Mode.HEURISTIC]


def golden(mode: Mode) -> Statement:
    noised = mode is not Mode.EXACT
    return Statement(
        type_=STATEMENT_TYPE,
        subject=(
            Subject(name="model", digest=Sha256(sha256="a" * 64)),
            Subject(name="head of the history", digest=Sha256(sha256="b" * 64)),
        ),
        predicate_type=REPORT_TYPE if mode is Mode.HEURISTIC else CERTIFICATE_TYPE,
        predicate=Predicate(
            title=TITLES[mode],
            version=1,
            run="0123456789abcdef",
            request=23,
            asked="2026-11-01T12:00:00+00:00",
            deadline="2026-12-01T12:00:00+00:00",
            forgotten=("c" * 64, "d" * 64),
            mode=mode.value,
            claim=CLAIMS[mode],
            scope="group",
            counterfactual="each client by its own coin",
            sampling="poisson, 0.3",
            guarantee=guarantee(5.0, 1e-5, 1) if mode is Mode.INSTANCE else None,
            noise=Noise(sigma=0.125, grid=GRID, source=NOISE_SOURCE) if noised else None,
            trained=("head.bias", "head.weight"),
            frozen="e" * 64,
            training=training_part(LocalTraining(5, 0.5, SoftmaxL2(0.01, 1.0))),
            assumptions=(Assumption(what="who the clients are", basis="checked by the server"),),
            erasure=Erasure(
                level="purge",
                completed="2026-11-02T12:00:00+00:00",
                log="f" * 64,
                stays=("a digest",),
                unreachable=(),
            ),
            not_claimed=NOT_CLAIMED,
            reasons=("the rounds were drawn again",) if mode is Mode.HEURISTIC else (),
            evidence=()
            if mode is Mode.EXACT
            else (Evidence(what="an attack", found="epsilon at least 0.1, with 95 %", bound="epsilon 5"),),
        ),
    )


def written(mode: Mode) -> bytes:
    return signed(golden(mode), [CryptoSigner(KEY)])


@pytest.mark.parametrize("mode", MODES)
def test_the_bytes_are_those_of_the_golden_file(mode: Mode) -> None:
    assert written(mode) == (FOLDER / f"{mode.value}.json").read_bytes()


@pytest.mark.parametrize("mode", MODES)
def test_the_golden_file_holds(mode: Mode) -> None:
    content = (FOLDER / f"{mode.value}.json").read_bytes()
    assert verify(content, [public_key(FOLDER / "key.pub")]).statement == golden(mode)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    pem = KEY.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (FOLDER / "key.pub").write_bytes(pem)
    for each in MODES:
        (FOLDER / f"{each.value}.json").write_bytes(written(each))
