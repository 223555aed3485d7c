"""What a client does for its coordinator at most, and what a hostile coordinator gets of its rows."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

import rescind.flower
from benchmarks.coordinator import NONE, Hospital, compute, nearest, small_batches, thresholds
from rescind import LocalTraining, LogisticL2, SoftmaxL2
from rescind.core.edges import ModelId
from rescind.core.regularity import SquaredL2
from rescind.core.sums import Wanted
from rescind.engines.complaints import Complaint, recognise
from rescind.flower import Limits
from rescind.flower.wire import COUNTED, Instructions, seal, tell_password
from rescind.testing.grid import pose_as_task

ROWS, FEATURES = 40, 3
LOSS = LogisticL2(l2=0.01, row_norm=1.0)
FIRST = Instructions(LocalTraining(2, 0.5, LOSS), ("weight", "bias"), 0, bytes(32), ModelId(0, 1), bytes(32))


def context(run: int = 1, **config: Any) -> Context:
    return Context(run, 7, config, RecordDict(), {})


def ask(on: Context, told: Instructions = FIRST, model: float = 0.0, rows: int = ROWS, **options: Any) -> Message:
    pose_as_task()
    rng = np.random.default_rng(0)
    classes = 2 if told.ridge else 1
    arrays = ArrayRecord({"weight": Array(np.full((classes, FEATURES), model)), "bias": Array(np.zeros(classes))})
    message = Message(RecordDict({"arrays": arrays, "config": ConfigRecord(told.record())}), 7, "train")  # type: ignore[arg-type]
    seal(message, tell_password(on))
    features, labels = rng.normal(size=(rows, FEATURES)), rng.integers(2, size=rows)
    return rescind.flower.train_head(message, on, features, labels, **options)


def told(**changes: Any) -> Instructions:
    named = {name: getattr(FIRST, name) for name in FIRST.__dataclass_fields__}
    return Instructions(**named | changes)


# What is refused


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"told": told(training=LocalTraining(1_001, 0.5, LOSS))}, Complaint.STEPS),
        ({"told": told(training=LocalTraining(2, 5.0, LOSS))}, Complaint.RATE),
        # The step is as large, for rows that may be as long.
        ({"told": told(training=LocalTraining(2, 0.5, LogisticL2(0.01, 5.0)))}, Complaint.RATE),
        ({"told": told(training=LocalTraining(2, 0.5, LOSS, proximal=9.0))}, Complaint.RATE),
        ({"told": told(batch=10)}, Complaint.BATCH),
        ({"model": 1e9}, Complaint.LENGTH),
        ({"model": 1e9, "told": told(wanted=Wanted.FULL)}, Complaint.LENGTH),
        ({"model": 1e200, "told": told(wanted=Wanted.GRADIENT)}, Complaint.LENGTH),
        ({"model": float("nan")}, Complaint.LENGTH),
        ({"rows": 9}, Complaint.FEW_ROWS),
        ({"rows": 9, "told": told(wanted=Wanted.GRADIENT)}, Complaint.FEW_ROWS),
    ],
)
def test_what_is_beyond_the_limits_is_refused_and_logged_at_the_client(
    asked: dict[str, Any], complaint: Complaint, caplog: pytest.LogCaptureFixture
) -> None:
    on = context()
    with pytest.raises(ValueError, match=r"\w") as refused, np.errstate(all="ignore"):
        ask(on, **asked)
    assert recognise(str(refused.value)) is complaint
    assert f"rescind: this client does not answer: {refused.value}" in caplog.text
    assert COUNTED not in on.state


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        ({"told": told(training=LocalTraining(1_001, 0.5, LOSS))}, Limits(steps=1_001)),
        ({"told": told(training=LocalTraining(2, 5.0, LOSS))}, Limits(learning_rate=2.6)),
        ({"told": told(batch=10)}, Limits(batch=10)),
        ({"told": told(batch=ROWS)}, Limits()),
        ({"model": 1e3}, Limits(length=2e3)),
        ({"rows": 9}, Limits(rows=9)),
        # The answer is the same at every model.
        ({"model": 1e9, "told": told(ridge=SquaredL2(0.01, 1.0))}, Limits()),
    ],
)
def test_a_client_may_allow_more(asked: dict[str, Any], limits: Limits) -> None:
    ask(context(), **asked, limits=limits)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"rows": 0}, "rows"),
        ({"steps": 1.5}, "whole number"),
        ({"length": float("nan")}, "length"),
        ({"share": 0}, "share"),
    ],
)
def test_limits_are_numbers_above_0(values: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Limits(**values)


@pytest.mark.parametrize(
    "change",
    [
        {"training": LocalTraining(3, 0.5, LOSS)},
        {"training": LocalTraining(2, 0.5, LogisticL2(l2=0.01, row_norm=0.5))},
        {"trained": ("head.weight", "head.bias")},
        {"batch": ROWS},
        {"ridge": SquaredL2(0.01, 1.0)},
    ],
)
def test_the_settings_of_the_first_message_hold_for_the_run(change: dict[str, Any]) -> None:
    on = context()
    ask(on)
    # What may differ: the question, the model, the round.
    ask(on, told(wanted=Wanted.FULL, seed=bytes(31) + b"1", model_id=ModelId(1, 5)), model=0.5)
    changed = told(**{**change, "trained": FIRST.trained})
    if "trained" in change:
        changed = told(trained=("bias", "weight"))
    with pytest.raises(ValueError, match="not those of its first message"):
        ask(on, changed)
    # Flower hands the state on to the next run of a series, which has settings of its own.
    later = context(run=2)
    later.state = on.state
    ask(later, changed)


def test_a_run_has_so_many_replies() -> None:
    on = context()
    for _ in range(2):
        ask(on, limits=Limits(messages=3))
    ask(on, told(wanted=Wanted.GRADIENT), limits=Limits(messages=3))
    with pytest.raises(ValueError, match="has answered 3 times"):
        ask(on, limits=Limits(messages=3))
    later = context(run=2)
    later.state = on.state
    ask(later, limits=Limits(messages=3))


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ({}, 4),
        ({"wanted": Wanted.GRADIENT}, 4 + 1),
        ({"wanted": Wanted.FEATURES}, 4 + 1 + 10),
        ({"wanted": Wanted.FULL}, 4 + 1 + 10),
        ({"ridge": SquaredL2(0.01, 1.0)}, 8 + 10),
    ],
)
def test_every_number_that_is_told_counts(asked: dict[str, Any], numbers: int, tmp_path: Path) -> None:
    reply = ask(context(), told(**asked), counts=tmp_path / "counts.json")
    kept = json.loads((tmp_path / "counts.json").read_text())
    assert (kept["messages"], kept["numbers"]) == (1, numbers)
    arrays = [array.numpy() for record in reply.content.array_records.values() for array in record.values()]
    loss = 1 if "wanted" in asked else 0
    assert sum(array.size for array in arrays) + loss == numbers


def test_no_more_numbers_are_told_than_a_share_of_those_in_the_rows() -> None:
    on, limits = context(), Limits(share=0.1)
    # The rows hold 120 numbers.
    for _ in range(3):
        ask(on, limits=limits)
    with pytest.raises(ValueError, match=r"16 numbers would be told of rows that hold 120, .* 0\.1 times"):
        ask(on, limits=limits)


def test_a_client_is_told_once_that_its_rows_may_be_computed(caplog: pytest.LogCaptureFixture) -> None:
    on = context()
    for _ in range(31):
        ask(on, told())
    assert caplog.text.count("124 numbers are told now of rows that hold 120: whoever runs the server") == 1
    simulated = context(**{"partition-id": 0})
    for _ in range(31):
        ask(simulated, told())
    assert caplog.text.count("numbers are told now") == 1


# What is kept over all runs


def test_with_a_file_replies_are_counted_over_all_runs(tmp_path: Path) -> None:
    file, limits = tmp_path / "counts.json", Limits(messages=2)
    ask(context(1), counts=file, limits=limits)
    ask(context(2), counts=file, limits=limits)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for run in (2, 3):
        with pytest.raises(ValueError, match="has answered 2 times"):
            ask(context(run), counts=file, limits=limits)
    # A refusal tells nothing, and does not count.
    assert json.loads(file.read_text()) == {"messages": 2, "numbers": 8, "norms": {"row_norm": LOSS.row_norm}}


def test_norms_stay_the_same_over_all_runs(tmp_path: Path) -> None:
    """Two sums that differ in what rows or targets are clipped to show the one row that is longer."""
    file, ridge = tmp_path / "counts.json", SquaredL2(0.01, LOSS.row_norm)
    ask(context(1), counts=file)
    ask(context(2), told(ridge=ridge), counts=file)
    other = LocalTraining(2, 0.5, LogisticL2(l2=0.01, row_norm=LOSS.row_norm / 2))
    for run, changed in enumerate((told(ridge=replace(ridge, target_norm=0.9)), told(training=other)), 3):
        with pytest.raises(ValueError, match="can show single rows") as refused:
            ask(context(run), changed, counts=file)
        assert recognise(str(refused.value)) is Complaint.NORMS
    ask(context(9), told(ridge=replace(ridge, l2=0.5)), counts=file)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"messages": 1}', '{"messages": -1, "numbers": 0}', '{"messages": true, "numbers": 0}', "x" * 2000],
)
def test_a_file_of_something_else_is_not_taken_for_nothing_told(content: str, tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    file.write_text(content)
    with pytest.raises(ValueError, match="is no file of counts"):
        ask(context(), counts=file)
    assert file.read_text() == content


# What a hostile coordinator gets


@pytest.mark.parametrize(
    "attack", [lambda on: small_batches(on, 1), lambda on: small_batches(on, 10), thresholds, nearest]
)
def test_rows_cannot_be_singled_out(attack: Any) -> None:
    assert attack(Hospital(NONE, messages=450)) > 0.15
    assert attack(Hospital(Limits(), messages=450)) < 0.05


def test_rows_can_be_computed_from_more_numbers_than_they_hold_and_not_from_fewer() -> None:
    limits = (Limits(), Limits(share=1.0))
    found = [compute(Hospital(each, 20, 80), (1, 2, 3, 4), 4.0) for each in limits]
    assert found[0] == 1
    assert found[1] < 0.05


def test_a_softmax_head_has_the_same_limits() -> None:
    loss = SoftmaxL2(0.01, 1.0)
    sharp = told(training=LocalTraining(2, 2.1 / loss.curvature.high, loss))
    with pytest.raises(ValueError, match=r"learning rate times the loss's curvature is 2\.1"):
        ask(context(), sharp)
