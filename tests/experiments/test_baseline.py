"""The baseline: it runs, and its page has what the experiments' rows say."""

from __future__ import annotations

import importlib
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from experiments import harness
from experiments.figures.sequential import ACCURACIES, CLAIM, NOISE, REACHED, ROUNDS, by_request
from experiments.tables import BEGIN, END
from rescind.testing.grid import InProcessGrid

BASELINE = Path(__file__).parents[2] / "examples" / "sifu"
# What the app calls the rows' methods.
METHODS = {
    "scratch": "Scratch",
    "sifu": "SIFU as published",
    "sifu-sound": "SIFU, paper's rule",
    "fine-tuning": "Fine-tuning",
}
CLIENTS = 20


def run(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    """Run the app in this process, on random images, each class brighter in places of its own; return its rows."""
    client, server = (importlib.import_module(f"sifu.{half}_app") for half in ("client", "server"))
    if not (folder / "mnist.npz").exists():
        labels, pixels = np.arange(200) % 10, np.arange(28 * 28) % 10
        noise = np.random.default_rng(5).integers(0, 120, (200, 28 * 28), np.uint8)
        images = (noise + 100 * (labels[:, None] == pixels)).astype(np.uint8)
        np.savez(folder / "mnist.npz", x_train=images.reshape(-1, 28, 28), y_train=labels)
    usual = tomllib.loads((BASELINE / "pyproject.toml").read_text("utf-8"))["tool"]["flwr"]["app"]["config"]
    small = {
        "clients": CLIENTS,
        "examples": 10,
        "fraction-train": 0.5,
        "least": 4,
        "most": 8,
        "every": 4,
        "leaving": "0 1",
    }
    config = usual | small | {"data": str(folder), "results": str(folder / "results")} | changes
    nodes = {f"client-{at}": {**config, "partition-id": at, "num-partitions": CLIENTS} for at in range(CLIENTS)}
    server.main(InProcessGrid(client.app, nodes, authenticated=False), Context(1, 1, {}, RecordDict(), config))
    return [json.loads(line) for line in (folder / "results" / "rows.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("method", METHODS)
def test_the_baseline_runs(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BASELINE))
    rows = run(tmp_path, method=method)
    assert [row["request"] for row in rows] == [1, 2]
    claims = {"exact"} if method == "scratch" else {"heuristic", "exact"}
    assert {row["mode"] for row in rows} <= claims
    if method.startswith("sifu"):
        assert all(4 <= row["rounds"] <= 8 and row["forget"] <= 0.1 for row in rows)
        # The same seed is the same run.
        assert run(tmp_path, method=method)[2:] == rows


def test_the_baselines_table_is_made_of_the_rows() -> None:
    rows = [row for row in harness.rows("sequential") if row["method"] in METHODS.values()]
    table = by_request(rows, {**ROUNDS, **NOISE, **ACCURACIES, **CLAIM}, REACHED)
    shown = (BASELINE / "README.md").read_text("utf-8").partition(BEGIN)[2].partition(END)[0]
    assert shown.strip() == table


def test_the_baselines_settings_are_the_rows_settings() -> None:
    config = tomllib.loads((BASELINE / "pyproject.toml").read_text("utf-8"))["tool"]["flwr"]["app"]["config"]
    figure = tomllib.loads((harness.FIGURES / "sequential" / "config.toml").read_text("utf-8"))["fixed"]
    names = {"learning-rate": "learning_rate", "row-norm": "row_norm", "sigma": "fixed_sigma"}
    own = ("dataset", "steps", "l2", "threshold", "least", "most", "every", "epsilon", "delta", *names)
    assert {name: config[name] for name in own} == {name: figure[names.get(name, name)] for name in own}
    assert [int(label) for label in config["leaving"].split()] == figure["groups"]
    assert config["examples"] == figure["examples"] / figure["clients"]
    assert config["fraction-train"] == figure["drawn"] / figure["clients"]
