"""Clocks that go back, run ahead or name a deadline in 9999: certificates verify, and nobody is told a falsehood."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from securesystemslib.signer import CryptoSigner
from typer.testing import CliRunner

from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import VerifiedCertificate, explain, verify
from rescind.cli import app
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.methods import Scratch
from rescind.pages.certificate import render_certificate
from rescind.testing.small import simulation


@pytest.fixture
def history(stored_history: History) -> History:
    return stored_history


def certified(history: History, asked_at: timedelta, served_at: timedelta) -> VerifiedCertificate:
    """Ask and serve, each by a clock that is wrong by so much."""
    federation = Revocable(history, simulation(rate=1.0, secret_noise=True))
    federation.train(Rounds(2))
    history.journal.clock = lambda: datetime.now(UTC) + asked_at
    number = history.requests.ask(["clinic-3"], Budget(3.0, 1e-5))
    history.journal.clock = lambda: datetime.now(UTC) + served_at
    federation.forget(Scratch(), Rounds(1))
    own = CryptoSigner.generate_ed25519()
    content = sign(build_statement(history, number), [own])
    verify(content, [own.public_key])
    found = verify(content, [own.public_key], history=history)
    assert history.integrity.verify() == []
    render_certificate(found, "today")
    return found


def clocks(folder: Path) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, ["doctor", str(folder), "--json"])
    checks = json.loads(result.output)["checks"]
    return result.exit_code, [f"{each['verdict']}: {each['detail']}" for each in checks if each["what"] == "clock"]


def test_a_clock_that_is_right_is_not_mentioned(history: History, tmp_path: Path) -> None:
    found = certified(history, timedelta(), timedelta())
    assert not any("times" in each for each in found.unchecked)
    assert clocks(tmp_path / "history") == (
        0,
        ["fine: no entry is from the future, none earlier than one before it"],
    )


def test_a_clock_that_went_back_between_request_and_erasure_is_told(history: History, tmp_path: Path) -> None:
    found = certified(history, timedelta(), timedelta(hours=-1))
    said = found.statement.predicate
    assert said.erasure.completed == said.asked
    (told,) = (each for each in found.unchecked if each.startswith("its times: "))
    assert "the clock was set back" in told
    assert "the clock was set back" in " ".join(explain(found)).replace("\n", " ").replace("  ", "")
    code, (said_by_doctor,) = clocks(tmp_path / "history")
    assert (code, said_by_doctor.startswith("note: entry ")) == (0, True)


def test_what_is_still_to_come_is_not_told_as_done(history: History, tmp_path: Path) -> None:
    found = certified(history, timedelta(days=400), timedelta(days=400))
    told = [each for each in found.unchecked if "still to come" in each]
    assert [each.partition(" on ")[0] for each in told] == [
        "its times: it was asked for",
        "its times: it was completed",
    ]
    code, (said_by_doctor,) = clocks(tmp_path / "history")
    assert (code, "in the future: a clock is wrong: set it" in said_by_doctor) == (1, True)


@pytest.mark.parametrize("year", [9000, 9999])
def test_nobody_waits_until_9999(year: int, history: History) -> None:
    Revocable(history, simulation(rate=1.0, secret_noise=True)).train(Rounds(1))
    with pytest.raises(ValueError, match="more than a year away"):
        history.requests.ask(["clinic-3"], Budget(3.0, 1e-5), deadline=datetime(year, 12, 31, tzinfo=UTC))
    number = history.requests.ask(["clinic-3"], Budget(3.0, 1e-5), deadline=datetime.now(UTC) + timedelta(days=300))
    with pytest.raises(ValueError, match="two months in all"):
        history.requests.extend(number, 10**12, "never")
    history.journal.clock = lambda: datetime(year, 12, 31, tzinfo=UTC)
    with pytest.raises(ValueError, match="clock says"):
        history.requests.ask(["clinic-4"], Budget(3.0, 1e-5))
