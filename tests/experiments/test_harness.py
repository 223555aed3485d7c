"""The experiments' harness: what was run is not run again, what is shown is what was stored."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import harness, outdated, tables

FIGURES = [name for name in harness.names() if (harness.FIGURES / name / "rows.jsonl").exists()]


@pytest.fixture
def figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.toml").write_text(
        'experiment = "methods"\n[fixed]\nwidth = 2\ndepth = 3\n'
        "[[part]]\nseeds = 2\n[part.fixed]\nwidth = 1\n[part.grid]\nheight = [1, 2]\n"
        "[[quick]]\nseeds = 1\n"
    )
    monkeypatch.setattr(harness, "FIGURES", tmp_path)
    return folder


def test_every_seed_has_every_point(figure: Path) -> None:
    found = [task.configuration for task in harness.tasks(figure.name)]
    assert [(each["seed"], each["height"]) for each in found] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert len(harness.tasks(figure.name, seeds=1)) == 2
    assert [dict(task.configuration) for task in harness.tasks(figure.name, quick=True)] == [
        {"width": 2, "depth": 3, "seed": 0}
    ]
    assert {(each["width"], each["depth"]) for each in found} == {(1, 3)}
    with pytest.raises(ValueError, match="there is no figure 'huge'; there are tiny"):
        harness.tasks("huge")


def test_a_sweep_that_was_cut_off_goes_on(figure: Path) -> None:
    todo, rows = harness.tasks(figure.name), figure / "rows.jsonl"
    assert harness.run(figure.name, todo[:1], None, rows) == 1
    first = rows.read_text()
    # A process that is killed may leave half a line.
    rows.write_text(first + '{"hash": "abc')
    assert harness.run(figure.name, todo, None, rows) == 3
    lines = rows.read_text().splitlines()
    assert lines[0] == first.strip()
    assert {json.loads(line)["hash"] for line in lines} == {task.hash for task in todo}
    assert harness.run(figure.name, todo, None, rows) == 0
    stored = json.loads(lines[1])
    assert set(stored) == {"hash", "experiment", "configuration", "results", "seconds", "date", "versions"}
    assert stored["versions"]["rescind"]


def test_a_stored_run_that_comes_out_otherwise_is_noticed(figure: Path) -> None:
    todo, rows = harness.tasks(figure.name), figure / "rows.jsonl"
    harness.run(figure.name, todo[:2], None, rows)
    stored = harness.stored(figure.name, rows)
    task, differences = harness.repeat(todo, stored)
    assert differences == []
    assert stored[task.hash]["seconds"] == min(row["seconds"] for row in stored.values())
    (first, *_), kept = stored[task.hash]["results"], dict(stored[task.hash]["results"][0])
    first |= {"rounds": -1, "seconds": -1.0}
    assert harness.repeat(todo, stored)[1] == [f"result 1: rounds is {kept.get('rounds')}, stored -1"]


def test_a_changed_configuration_is_another_run() -> None:
    one, other = harness.Task("cost", {"seed": 0}), harness.Task("cost", {"seed": 1})
    assert one.hash != other.hash
    assert one.hash == harness.Task("cost", {"seed": 0}).hash != harness.Task("noise", {"seed": 0}).hash


def test_who_has_no_data_is_told_what_to_do(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "experiments", "map", "--quick"]
    environment = {name: value for name, value in os.environ.items() if name != "RESCIND_DATA"}
    for more, sentence in (
        ([], "set the environment variable RESCIND_DATA"),
        (["--data", tmp_path], "is published at"),
    ):
        done = subprocess.run(
            [*words, *more],
            cwd=harness.FIGURES.parents[1],
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
        )
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_a_run_that_is_older_than_the_code_is_run_again_and_named() -> None:
    row = {"date": "2026-11-16", "results": [{"sigma": 0.5}, {"sigma": 0.0}], "configuration": {"method": "Last"}}
    assert outdated.find_changes(row) == ["a noised restart was pulled towards the start"]
    assert not outdated.find_changes(row | {"date": "2026-11-17"})
    # It never pulled its noised models.
    assert not outdated.find_changes(
        row | {"results": [{"sigma": 0.5}], "configuration": {"method": "SIFU as published"}}
    )
    # DP-FedAvg's noise is every round's.
    assert not outdated.find_changes(row | {"results": [{"sigma": 0.5, "multiplier": 2.0}]})
    paper = row | {"date": "2026-11-18", "configuration": {"method": "SIFU as published"}}
    rows = [row, paper, row | {"results": [{"rounds": 3}]}]
    assert outdated.describe(rows).startswith("2 of these 3 runs are older")
    assert outdated.describe([]) == ""


@pytest.mark.parametrize("name", FIGURES)
def test_a_readme_shows_what_is_stored(name: str) -> None:
    readme = (harness.FIGURES / name / "README.md").read_text("utf-8")
    shown = readme.partition(tables.BEGIN)[2].partition(tables.END)[0].strip()
    assert shown == harness.table(name, harness.stored(name), harness.tasks(name))
    assert "TODO" not in readme
    assert f"python -m experiments {name}" in readme


def test_without_a_word_the_figures_are_listed() -> None:
    command = [sys.executable, "-m", "experiments"]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == list(harness.names())
