"""The report: everything on one page, private numbers only where they belong."""

from __future__ import annotations

import json
import re
from contextlib import chdir
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rescind import Goal, History, Sampling
from rescind.cli import app
from rescind.core.calibration import Budget
from rescind.core.facts import PublicHead
from rescind.engines.accuracies import Accuracies, read_accuracies
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.overview import overview
from rescind.ledger.records import ModelId
from rescind.methods import FineTuning, Method, Scratch, Sifu, StrictSifu
from rescind.report import render_report
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
        page = render_report(history, private=False, now=NOON)
        private = render_report(history, private=True, now=NOON)
        assert page == render_report(history, private=False, now=NOON)
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
        assert all(f"{each.client} {each.sensitivity:.3g}" in private for each in influences[:4])
        assert not any(f">{each.sensitivity:.3g}<" in page for each in influences)
        assert "went back to</th>" in private
    assert "went back to</th>" not in page
    assert "rounds of training behind the model" not in page


def test_a_report_can_be_written_before_anybody_leaves(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation(history).train(Rounds(3))
    done = CliRunner().invoke(app, ["report", str(tmp_path / "history"), "-o", str(tmp_path / "report.html")])
    assert done.exit_code == 0, done.output
    assert "Nobody has been forgotten yet" in (tmp_path / "report.html").read_text("utf-8")
    words = ["report", str(tmp_path / "history"), "--private", "-o", str(tmp_path / "private.html")]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (tmp_path / "private.html").stat().st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a history that forgot somebody, its certificate with evidence, and accuracies over time."""
    folder = tmp_path_factory.mktemp("signed")
    with History(folder / "history") as history:
        made = federation(history)
        watch = Accuracies(folder / "accuracies.jsonl", history, made.engine, forget=["clinic-3"], interval=2)
        made = replace(made, watch=watch, goal=Goal(Budget(8.0, 0.01), 0.125))
        made.train(Rounds(6))
        number = history.ask(["clinic-3"], Budget(8.0, 0.01))
        made.forget(Sifu(), Rounds(2))
        made.plan(Sifu(), history.ask(["clinic-4"], Budget(8.0, 0.01)))
    evidence = [{"what": "a replay", "found": "0 of 7 above", "bound": "at none"}]
    (folder / "evidence.json").write_text(json.dumps(evidence))
    run(folder, "key", "new", "operator.key")
    run(folder, "certify", "history", str(number), "--key", "operator.key", "--evidence", "evidence.json")
    return folder


def run(folder: Path, *words: str, code: int = 0) -> str:
    with chdir(folder):
        done = CliRunner().invoke(app, list(words), env={"RESCIND_PASSPHRASE": "a passphrase"})
    assert done.exit_code == code, done.output
    return done.output


SIGNED = ["--certificate", "certificate.json", "--key", "operator.key.pub"]


def test_a_certificate_is_shown_with_its_verification_and_what_was_measured(signed: Path) -> None:
    run(signed, "report", "history", *SIGNED, "--accuracies", "accuracies.jsonl")
    page = (signed / "report.html").read_text("utf-8")
    assert "Its certificate was verified." in page
    assert "the history at hand is unbroken" in page
    assert "<td>a replay</td><td>0 of 7 above</td><td>at none</td>" in page
    assert "Noise against guarantee" in page
    assert "Deletion log" in page
    assert "on held-out data" in page
    # What is measured on clients' data is the operator's alone.
    assert "of the remaining " not in page
    assert "would go back to" not in page
    run(signed, "report", "history", *SIGNED, "--accuracies", "accuracies.jsonl", "--private", "-o", "private.html")
    private = (signed / "private.html").read_text("utf-8")
    for part in ("of the remaining", "of the forgotten", "on held-out data"):
        assert f">{part}</text>" in private
    for label in ("restarted", "would go back to", "hidden by the goal&#x27;s noise", "hidden by the noise planned"):
        assert label.replace("&#x27;", "'") in private
    run(signed, "report", "history")
    assert "Nothing signed about it" in (signed / "report.html").read_text("utf-8")


def test_a_certificate_that_does_not_hold_is_not_shown(signed: Path) -> None:
    run(signed, "key", "new", "other.key")
    wrong = ["--certificate", "certificate.json", "--key", "other.key.pub"]
    assert "no valid signature" in run(signed, "report", "history", *wrong, "-o", "none.html", code=12)
    assert "--key" in run(signed, "report", "history", "--certificate", "certificate.json", code=1)
    assert not (signed / "none.html").exists()


def test_accuracies_are_read_as_they_were_written(signed: Path) -> None:
    found = read_accuracies(signed / "accuracies.jsonl")
    assert list(found) == [ModelId(0, 2), ModelId(0, 4), ModelId(0, 6), ModelId(1, 2)]
    assert all(None not in (each.retain, each.forget, each.test) for each in found.values())
    assert (signed / "accuracies.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("no json", "not a line such as"),
        ('{"retain": 0.5}', "not a line such as"),
        ("[]", "not a line such as"),
        ('{"model": "0.1", "test": NaN}', "between 0 and 1"),
        ('{"model": "0.1", "test": 95}', "between 0 and 1"),
    ],
)
def test_a_wrong_line_of_accuracies_is_named(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "measured").write_text('{"model": "0.1", "test": 0.5}\n' + line + "\n")
    with pytest.raises(ValueError, match=f"line 2: .*{said}"):
        read_accuracies(tmp_path / "measured")


def test_names_are_escaped() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(2))
        everybody = {f"clinic-{number}": f"$ \\frac{{{number}" for number in range(30)}
        history.label({**everybody, "clinic-4": "<script>alert(1)</script>"})
        history.ask(["clinic-4"], Budget(8.0, 0.01))
        page = render_report(history, private=True, now=NOON)
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_broken_history_is_named_first() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(2))
        digest = history.ledger.kept()[history.newest]
        history.models.delete(digest)
        page = render_report(history, private=False, now=NOON)
    assert page.index("The history contradicts itself") < page.index("still in the model")
