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
