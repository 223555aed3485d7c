"""The report: everything on one page, private numbers only where they belong."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rescind import History, Sampling
from rescind.cli import app
from rescind.core.calibration import Budget
from rescind.core.facts import PublicHead
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.overview import overview
from rescind.methods import FineTuning, Method, Scratch, Sifu, StrictSifu
from rescind.report import report
from rescind.testing.small import simulation

HEAD = PublicHead(initial_norm=0.0, parameters=21, batch=15)
METHODS: dict[str, Method] = {
    "exact": Scratch(),
    "strict": StrictSifu(),
    "instance": Sifu(),
    "heuristic": FineTuning(),
}
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


def federation(history: History) -> Revocable:
    engine = simulation(
        30, sampling=Sampling.EVERYBODY, rate=None, secret_noise=True, public=HEAD, public_schedule=True
    )
    return Revocable(history, engine)


@pytest.mark.parametrize("mode", METHODS)
def test_it_says_what_may_be_claimed_and_is_one_file(mode: str) -> None:
    with History.in_memory() as history:
        made = federation(history)
        made.train(Rounds(12))
        number = history.ask(["clinic-3"], Budget(8.0, 0.01))
        made.forget(METHODS[mode], Rounds(2))
        history.ask(["clinic-4"], Budget(8.0, 0.01))
        page = report(history, private=False, now=NOON)
        private = report(history, private=True, now=NOON)
        assert page == report(history, private=False, now=NOON)
        influences = overview(history).influences
    assert f"<td>{mode}</td>" in page
    assert f"Request {number}: " in page
    assert "clinic-4) is open, due" in page
    assert "clinic-3" not in page + private
    assert ("This is not a certificate" in page) is (mode == "heuristic")
    for text in (page, private):
        links = re.findall(r"""(?:src|href)=["'](?!#)([^"']*)|url\((?!#)([^)]*)""", text)
        assert links == []
        assert "<script" not in text
        assert text.count("<svg") == text.count('role="img" aria-label="') >= 1
    # Psi is the operator's alone.
    if mode != "heuristic":
        assert all(f"{each.sensitivity:.3g}" in private for each in influences)
        assert not any(f">{each.sensitivity:.3g}<" in page for each in influences)
        assert "went back to" in private
    assert "went back to" not in page


def test_a_report_can_be_written_before_anybody_leaves(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation(history).train(Rounds(3))
    done = CliRunner().invoke(app, ["report", str(tmp_path / "history"), "-o", str(tmp_path / "report.html")])
    assert done.exit_code == 0, done.output
    assert "Nobody has been forgotten yet" in (tmp_path / "report.html").read_text("utf-8")
    words = ["report", str(tmp_path / "history"), "--private", "-o", str(tmp_path / "private.html")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (tmp_path / "private.html").stat().st_mode & 0o777 == 0o600


def test_names_are_escaped() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(2))
        everybody = {f"clinic-{number}": f"$ \\frac{{{number}" for number in range(30)}
        history.ledger.label({**everybody, "clinic-4": "<script>alert(1)</script>"})
        history.ask(["clinic-4"], Budget(8.0, 0.01))
        page = report(history, private=True, now=NOON)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_broken_history_is_named_first() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(2))
        digest = history.ledger.kept()[history.newest]
        history.models.delete(digest)
        page = report(history, private=False, now=NOON)
    assert page.index("The history contradicts itself") < page.index("The model was trained")
