"""A body from some, a head from all: who is no anchor leaves no trace, and what is counted is what is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from experiments.runs import staged
from rescind import LocalTraining, NetworkLoss
from rescind.simulation import Federation, Shard
from rescind.simulation.federation import examples
from rescind.simulation.trainers import Loop

CONFIGURATION: dict[str, Any] = {
    "width": 2,
    "clients": 8,
    "examples": 160,
    "passes": 6,
    "drawn": 2,
    "steps": 2,
    "batch": 10,
    "learning_rate": 0.05,
    "judged": 2,
    "most_anchors": 3,
    "leaving": 2,
    "held_out": 0,
    "tolerance": 0.003,
    "most_bytes": 200_000,
    "most_rounds": 10,
    "softmax_l2": [0.001],
    "ridge_l2": [0.001],
    "seed": 0,
}


def shard(seed: int, count: int = 20) -> Shard:
    source = np.random.default_rng(seed)
    labels = source.integers(3, size=count)
    images = source.normal(size=(count, 1, 18, 18)) + labels[:, None, None, None]
    return Shard(images.astype(np.float32), labels)


@pytest.fixture
def setting() -> staged.Setting:
    federation = Federation({f"client-{at}": shard(at) for at in range(8)}, shard(99, 60), 3)
    return staged.Setting(CONFIGURATION, federation)


def without(setting: staged.Setting, *names: str) -> staged.Setting:
    shards = {name: own for name, own in setting.federation.shards.items() if name not in names}
    return replace(setting, federation=replace(setting.federation, shards=shards))


def test_who_is_no_anchor_is_not_in_the_body(setting: staged.Setting) -> None:
    anchors, *others = setting.order[:3], *setting.order[3:]
    assert set(setting.leavers) <= set(others)
    fewer = without(setting, others[0])
    assert fewer.order[:3] == anchors
    whole, never = staged.train(setting, anchors, 4), staged.train(fewer, fewer.order[:3], 4)
    for name, tensor in whole.models[-1].items():
        np.testing.assert_array_equal(tensor, never.models[-1][name])
    # An anchor is in it.
    other = without(setting, anchors[0])
    changed = staged.train(other, other.order[:3], 4).models[-1]
    assert any((tensor != changed[name]).any() for name, tensor in whole.models[-1].items())


def test_a_head_forgets_exactly_and_costs_what_was_sent(setting: staged.Setting) -> None:
    configuration = {**CONFIGURATION, "anchors": 3}
    softmax, ridge = staged.train_staged(replace(setting, configuration=configuration))
    assert softmax["apart"] == ridge["apart"] == 0
    assert 1 < softmax["one_rounds"] <= 10
    assert ridge["one_rounds"] == 1
    # 24 rounds of 40 images are 6 passes over 160; what the body says of everybody's images is worth 4 of them.
    assert ridge["train_rounds"] == 24 - 4 + 1
    assert ridge["one_answers"] == 7
    assert ridge["ten_answers"] == 5
    assert ridge["scattered_answers"] == 7 + 6
    features = setting.network.features
    assert ridge["one_bytes"] == 7 * 8 * ((features + 1) * (features + 2) // 2 + 3 * (features + 1))
    assert softmax["anchor_answers"] == 20 * 2 + softmax["one_answers"]


def test_a_group_is_trained_again_for_each_time_that_somebody_leaves_it(setting: staged.Setting) -> None:
    (one,) = staged.train_groups(replace(setting, configuration={**CONFIGURATION, "groups": 1}))
    (four,) = staged.train_groups(replace(setting, configuration={**CONFIGURATION, "groups": 4}))
    weights = sum(tensor.numel() for tensor in setting.network.start().values())
    assert one["train_answers"] == four["train_answers"] == one["one_answers"] == one["ten_answers"] == 48
    assert one["train_bytes"] == 4 * weights * 48
    assert one["scattered_answers"] == 96
    # Of a group of two one is left, for six rounds.
    assert four["one_answers"] == 6
    assert four["scattered_rounds"] == 12


def test_training_side_by_side_is_training_one_after_the_other(setting: staged.Setting) -> None:
    data = examples(setting.federation.shards, torch.float64, None)
    training = LocalTraining(steps=3, learning_rate=0.05, loss=NetworkLoss(), precision="float64")
    names = list(setting.federation.shards)[:3]
    source = np.random.default_rng(0)
    batches = [torch.from_numpy(source.integers(20, size=(3, 5))) for _ in names]
    start = setting.network.start()
    many = staged.SideBySide(setting.network, data, training).train(start, names, batches)
    single = Loop(setting.network, data, training).train(start, names, batches)
    for name, tensor in single.items():
        assert (tensor != start[name]).any()
        torch.testing.assert_close(many[name], tensor, rtol=0, atol=1e-12)
