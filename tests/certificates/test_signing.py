"""What would not verify is not handed out: ``certify`` checks what it signs, with the history behind it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from rescind import History
from rescind.certificates import issue
from rescind.certificates.predicate import Erasure
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.methods import Scratch
from rescind.testing.small import simulation
from tests.builders import run_sql, said


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, int]:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    said("key", "new", tmp_path / "key")
    with History(tmp_path / "history") as history:
        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s")
        federation.train(Rounds(2))
        number = history.requests.ask(["clinic-1"], Budget(3.0, 1e-5))
        federation.forget(Scratch(), Rounds(1))
    return tmp_path, number


def certified(folder: Path, number: int) -> Result:
    files = ("-o", folder / "certificate.json", "--annex", folder / "annex.json")
    return said("certify", folder / "history", number, "--key", folder / "key", *files)


def test_what_holds_is_written(served: tuple[Path, int]) -> None:
    assert certified(*served).exit_code == 0
    assert (served[0] / "certificate.json").exists()


def test_a_broken_history_is_not_signed_for(served: tuple[Path, int]) -> None:
    folder, _ = served
    run_sql(folder / "history", "UPDATE journal SET time = '2026-01-01T00:00:00+00:00' WHERE kind = 'run'")
    result = certified(*served)
    assert (result.exit_code, "nothing is written, for it would not verify" in result.output) == (15, True)
    assert not (folder / "certificate.json").exists()
    assert not (folder / "annex.json").exists()


def test_a_statement_that_contradicts_itself_is_not_signed(
    served: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    early = {"completed": "2001-01-01T00:00:00+00:00"}
    monkeypatch.setattr(issue, "Erasure", lambda **fields: Erasure(**(fields | early)))
    result = certified(*served)
    assert (result.exit_code, "completed before it was asked" in result.output) == (14, True)
    assert not (served[0] / "certificate.json").exists()
