"""Signed certificates with odd texts and numbers: refused in one plain line, at once, whatever is in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.errors import CertificateError, InconsistentCertificateError, NotACertificateError
from rescind.certificates.files import read_evidence
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import Erasure, Evidence, Statement
from rescind.certificates.verification import VerifiedCertificate, explain, verify
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Last
from rescind.pages.certificate import render_certificate
from tests.builders import KEY, SIGNER, everybody


@pytest.fixture(scope="module")
def found() -> Iterator[Statement]:
    with History.in_memory() as history:
        federation = Revocable(history, everybody(10))
        federation.train(Rounds(6))
        number = history.requests.ask(["clinic-1"], Budget(5.0, 1e-5))
        federation.forget(Last(), Rounds(2), level=ErasureLevel.OUTPUT)
        yield build_statement(history, number)


def altered(found: Statement, part: str = "", **changes: Any) -> Statement:
    said = found.predicate
    inner = {part: getattr(said, part).model_copy(update=changes)} if part else changes
    return found.model_copy(update={"predicate": said.model_copy(update=inner)})


def checked(found: Statement) -> VerifiedCertificate:
    return verify(sign(found, [SIGNER]), [KEY])


@pytest.mark.parametrize(
    "odd",
    [
        "\x1b[2J\x1b[HVerified",
        "a\nHolds:",
        "a\r",
        "a\x00b",
        "a\x9b2J",
        "a\x85b",
        "\u202eeverything",
        "\u2066a",
        "a\u2028b",
    ],
)
def test_texts_cannot_steer_the_terminal_that_shows_them(odd: str, found: Statement) -> None:
    evidence = Evidence(what="an attack", found="nothing", bound="1")
    for lie in (
        altered(found, "erasure", stays=(odd,)),
        altered(found, "erasure", unreachable=(odd,)),
        altered(found, evidence=(evidence.model_copy(update={"found": odd}),)),
        altered(found, run=odd),
        altered(found, "names", operator=odd),
        altered(found, trained=(odd,)),
        altered(found, sampling=odd),
        altered(found, "training", precision=odd),
    ):
        with pytest.raises(NotACertificateError) as caught:
            checked(lie)
        assert str(caught.value).isprintable()


def test_what_other_languages_write_is_shown(found: Statement) -> None:
    said = ("Übriges bleibt: שלום, 模型, naïve café",)
    assert checked(altered(found, "erasure", stays=said)).statement.predicate.erasure.stays == said


def test_evidence_with_control_characters_is_not_put_into_a_certificate() -> None:
    with pytest.raises(ValueError, match="evidence"):
        read_evidence(b'[{"what": "a\\u001b[2J", "found": "b", "bound": "c"}]')
    with pytest.raises(ValidationError):
        Erasure(level="output", completed="now", log="0" * 64, stays=("\x1b",), unreachable=())


def test_a_number_of_steps_that_nobody_makes_is_refused_at_once(found: Statement) -> None:
    with pytest.raises(NotACertificateError, match="steps"):
        checked(altered(found, "training", steps=2**62, proximal=0.1))
    with pytest.raises(InconsistentCertificateError):
        checked(altered(found, "training", steps=2**31 - 1, proximal=0.1))


@pytest.mark.parametrize(
    "time",
    [
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-10:00",
        "1969-12-31T23:59:59+00:00",
        "2020-W01-1T00:00:00+00:00",
        "20200101T000000+0000",
        "2026-01-01T00:00:00+23:59:59.5",
        "2026-01-01T00:00:00",
        "2026-01-01",
    ],
)
def test_a_time_has_one_spelling_and_a_usual_year(time: str, found: Statement) -> None:
    for lie in (altered(found, asked=time), altered(found, deadline=time), altered(found, "erasure", completed=time)):
        with pytest.raises(InconsistentCertificateError, match="time"):
            render_certificate(checked(lie), "today")


@pytest.mark.parametrize("run", ['"><svg onload=alert(1)>', "0123456789ABCDEF", "0123456789abcde", "hospital", ""])
def test_a_run_has_a_name_of_16_digits(run: str, found: Statement) -> None:
    with pytest.raises(NotACertificateError, match="run"):
        checked(altered(found, run=run))


@pytest.mark.parametrize(
    "change",
    [
        {"part": "training", "learning_rate": 1e308},
        {"part": "training", "steps": 2**31 - 1},
        {"part": "training", "steps": 2**31 - 1, "proximal": 0.1, "learning_rate": 1e6},
        {"part": "training", "l2": 1e308},
        {"part": "training", "row_norm": 1e308},
        {"part": "guarantee", "releases": 2**62},
        {"part": "guarantee", "epsilon": 1e308},
        {"part": "noise", "sigma": 2.0**1000},
    ],
)
def test_what_cannot_be_is_told_in_one_plain_line(change: dict[str, Any], found: Statement) -> None:
    with pytest.raises(CertificateError) as caught:
        checked(altered(found, **change))
    told = str(caught.value)
    assert told.isprintable()
    assert "validation error" not in told
    assert "(34" not in told
    assert len(told) < 300


def test_the_honest_one_holds_and_is_shown(found: Statement) -> None:
    assert all(line.isprintable() for line in explain(checked(found)))
