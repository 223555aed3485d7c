"""Requests one after the other: runs that train alike train once, and come to what they would have come to alone."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.runs import requests
from experiments.runs.membership import together
from rescind.simulation import Federation, Shard

CONFIGURATION = {
    "features": "pixels",
    "clients": 6,
    "drawn": 3,
    "steps": 2,
    "learning_rate": 0.5,
    "l2": 0.01,
    "row_norm": 1.0,
    "epsilon": 10.0,
    "delta": 0.01,
    "threshold": 0.9,
    "least": 5,
    "most": 12,
    "every": 5,
    "leaving": 1,
    "capacity": 100,
    "fixed_sigma": 0.05,
    "groups": [0, 1],
    "seed": 0,
}


def train_anew(patch: pytest.MonkeyPatch) -> None:
    """Let this process have trained nothing so far."""
    patch.setattr(requests, "_trained", {})
    patch.setattr(requests, "_references", {})


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count the trainings of a small federation that no file is needed for."""
    source = np.random.default_rng(0)

    def shard(label: int) -> Shard:
        rows = source.normal(size=(20, 4)) * 0.2
        rows[:, label] += 0.5
        return Shard(rows, np.full(20, label))

    shards = {f"client-{at:04}": shard(at % 3) for at in range(6)}
    federation = Federation(shards, shard(0), 3)
    monkeypatch.setattr(requests, "federation_of", lambda _: federation)
    train_anew(monkeypatch)
    found: list[str] = []
    train = requests.Revocable.train

    def counted(self: requests.Revocable, until: requests.Stop) -> object:
        found.append(str(self.engine.facts.training.loss))
        return train(self, until)

    on_tape = requests.tape.train

    def counted_on_tape(engine: requests.Departing, start: requests.tape.Tape, *rest: object) -> object:
        if not start.branch:
            found.append("tape")
        return on_tape(engine, start, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(requests.Revocable, "train", counted)
    monkeypatch.setattr(requests.tape, "train", counted_on_tape)
    return found


def test_who_trains_alike_trains_once(trainings: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [
        CONFIGURATION | {"method": method, "groups": groups}
        for method in ("Scratch", "SIFU", "Last", "SIFU as published", "FedEraser", "FedAccum")
        for groups in ([0, 1], [2])
    ]
    together = [requests.run(configuration) for configuration in asked]
    assert len(trainings) == 3
    alone = []
    for configuration in asked:
        train_anew(monkeypatch)
        alone.append(requests.run(configuration))
    assert together == alone
    assert len(trainings) == 3 + len(asked)


def test_another_seed_is_another_training(trainings: list[str]) -> None:
    for seed in range(5):
        requests.run(CONFIGURATION | {"method": "Scratch", "seed": seed})
    assert len(trainings) == 5
    assert len(requests._trained) == requests.TRAININGS


@pytest.mark.usefixtures("trainings")
def test_the_control_begins_from_the_start_under_the_papers_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    noise = requests.draw_noise

    def seen(model: requests.Mapping[str, requests.Tensor], sigma: float, *words: object, grid: int) -> object:
        begun.append((max(float(np.abs(tensor).max()) for tensor in model.values()), sigma, words))
        return noise(model, sigma, *words, grid=grid)

    monkeypatch.setattr(requests, "draw_noise", seen)
    rows = requests.run(CONFIGURATION | {"method": requests.NoisedStart.name})
    assert [words for _, _, words in begun] == [(b"noise 0", "restart", branch) for branch in (1, 1, 2)]
    # A softmax head begins at zero; the second request's noise comes upon the first one's.
    assert [largest > 0 for largest, _, _ in begun] == [False, False, True]
    assert {sigma for _, sigma, _ in begun} == {0.05}
    assert [(row["from"], row["sigma"]) for row in rows] == [("0.0", 0.05)] * 2


def test_networks_are_attacked_beside_their_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    source = np.random.default_rng(1)

    def shard(label: int) -> Shard:
        images = source.normal(size=(8, 1, 18, 18)).astype(np.float32)
        images[:, :, label] += 1
        return Shard(images, np.full(8, label))

    shards = {f"client-{at:04}": shard(at % 3) for at in range(6)}
    test = together([shard(0), shard(1), shard(2)])
    monkeypatch.setattr(requests, "federation_of", lambda _: Federation(shards, test, 3))
    train_anew(monkeypatch)
    network = {"features": "images", "width": 1, "hidden": 4, "batch": 4, "reference": 4, "learning_rate": 0.1}
    dp = {"clip": 0.5, "noise_multiplier": 4.5, "capacity": 4}
    modes = {}
    for method in ("Scratch", "SIFU", "SIFU as published", "Last", "Fine-tuning", "FedEraser", "DP"):
        found = requests.run({**CONFIGURATION, **network, **(dp if method == "DP" else {}), "method": method})
        assert [row["request"] for row in found] == [1, 2]
        assert all(0 <= row[key] <= 1 for row in found for key in ("attack", "attack_before"))
        modes[method] = {row["mode"] for row in found}
    # Nothing is proven of a network: noise on it is never more than heuristic.
    assert modes["Scratch"] == {"exact"}
    assert modes["Last"] == modes["Fine-tuning"] == modes["FedEraser"] == {"heuristic"}
    assert modes["SIFU"] <= {"exact", "heuristic"}
    assert "heuristic" not in modes["DP"]
    assert len(requests._references) == 1
    # So much noise that the weights leave all bounds: no result, and no end of the sweep either.
    (broken,) = requests.run({**CONFIGURATION, **network, **dp, "clip": 40.0, "most": 60, "method": "DP"})
    assert broken["refusal"].startswith("training broke down under its own noise after round ")


@pytest.mark.parametrize("method", [requests.PUBLISHED, requests.LOOSE])
def test_rows_are_called_after_what_was_asked_for(method: str, trainings: list[str]) -> None:
    rows = requests.run({**CONFIGURATION, "method": method})
    assert trainings
    assert {row["method"] for row in rows} == {method}
