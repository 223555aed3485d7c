"""The command line as an operator meets it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from rescind import History
from rescind.cli import app
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.tensors import save
from rescind.methods import Scratch
from rescind.testing.small import simulation


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with History(tmp_path / "history") as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").train(Rounds(2))
        history.ledger.label({"clinic-3": "Clinic of the North"})
    return tmp_path / "history"


def said(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_request_is_added_listed_and_taken_back(folder: Path) -> None:
    added = said("request", "add", folder, "clinic-1", "--epsilon", 5)
    assert added.exit_code == 0
    assert "Request 5 is recorded" in added.output
    again = said("request", "add", folder, "Clinic of the North")
    assert again.exit_code == 0
    lines = said("request", "list", folder).output.splitlines()
    assert [line.split("\t")[2] for line in lines] == ["clinic-1", "Clinic of the North"]
    assert all("open, due" in line for line in lines)
    assert said("request", "withdraw", folder, 5).exit_code == 0
    with History(folder) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").forget(Scratch(), Rounds(1))
    lines = said("request", "list", folder).output.splitlines()
    assert [line.split("\t")[3] for line in lines] == ["withdrawn", "served"]
    assert lines[1].split("\t")[2] == "client 4"


def test_a_request_that_is_being_served_is_not_called_served(folder: Path) -> None:
    said("request", "add", folder, "clinic-1")
    with History(folder) as history:

        class Dies(Exception):
            pass

        def die(*_: object) -> None:
            raise Dies

        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s", watch=die)
        with pytest.raises(Dies):
            federation.forget(Scratch(), Rounds(2))
    assert "being served" in said("request", "list", folder).output


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("request", "add", "{folder}", "clinic-11"), "did you mean 'clinic-1'"),
        (("request", "add", "{folder}", "clinic-1", "--delta", "2"), "delta"),
        (("request", "add", "nowhere", "clinic-1"), "there is no history in nowhere"),
        (("request", "withdraw", "{folder}", "99"), "no open request 99"),
        (("request", "list", ""), "no history is named"),
    ],
)
def test_mistakes_are_told_in_a_sentence(folder: Path, words: tuple[str, ...], hint: str) -> None:
    result = said(*(word.format(folder=folder) for word in words))
    assert result.exit_code == 1
    assert hint in result.output
    assert "Traceback" not in result.output


def test_a_request_is_certified_by_two_and_verified(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    said("request", "add", folder, "clinic-1")
    with History(folder) as history:
        Revocable(history, simulation(4, rate=1.0), seed=b"s").forget(Scratch(), Rounds(1))
        save(history.model(history.newest), tmp_path / "model")
    for name in ("operator", "officer"):
        assert said("keys", "new", tmp_path / name).exit_code == 0
    certificate = tmp_path / "certificate.json"
    for name in ("operator", "officer"):
        result = said("certify", folder, 5, "--key", tmp_path / name, "-o", certificate)
        assert result.exit_code == 0, result.output
        assert "Certificate of forgetting" in result.output
    words = ["verify", certificate, "--key", tmp_path / "operator.pub", "--key", tmp_path / "officer.pub"]
    result = said(*words, "--model", tmp_path / "model", "--history", folder, "--html", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "signed by all given keys" in result.output
    assert "the model at hand is the one" in result.output
    assert "never computed from these clients' data" in result.output
    assert "Not claimed:" in result.output
    assert "Not checked here:" not in result.output
    assert "Not checked here:" in said(*words).output
    page = (tmp_path / "page.html").read_text()
    assert page.count("<h2>") >= 5
    assert "http" not in page
    assert "never computed from these clients&#x27; data" in page


def test_what_does_not_hold_ends_with_its_own_code(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    assert said("certify", folder, 5, "--key", tmp_path / "key").exit_code == 1
    (tmp_path / "none").write_text("{}")
    said("keys", "new", tmp_path / "key")
    assert said("keys", "new", tmp_path / "key").exit_code == 10
    assert said("verify", tmp_path / "none", "--key", tmp_path / "key.pub").exit_code == 11
