"""Methods that go back by a tape, against what they add up to by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from experiments.runs.requests import NoisedStart
from experiments.taped.fedaccum import FedAccum
from experiments.taped.federaser import FedEraser
from experiments.taped.tape import Beginning, DivergedError, Model, Tape, TapedRound, TapeMethod, forget, train
from rescind import History, Sampling
from rescind.core.edges import ModelId
from rescind.engines.engine import Replies
from rescind.engines.stops import Accuracy, Rounds
from rescind.forgetting import Revocable
from rescind.simulation import Simulation
from rescind.testing.small import simulation


def taped(engine: Simulation, rounds: int, interval: int = 1) -> tuple[Tape, list[Model]]:
    """Train, and return the tape with all models on it."""
    start = Tape(engine.start(), interval)
    models = [start.model]
    tape = train(engine, start, engine.clients, Rounds(rounds), watch=lambda _, model: models.append(model))
    return tape, models


def replies_of(engine: Simulation, models: list[Model], number: int) -> Replies:
    """Train a round again, which gives the same replies."""
    model_id = ModelId(0, number)
    return engine.train(models[number - 1], model_id, engine.draw(model_id, engine.clients))


def test_a_tape_has_the_models_that_a_history_records() -> None:
    engine = simulation()
    tape, models = taped(engine, 5)
    with History.in_memory() as history:
        Revocable(history, engine, seed=b"tape").train(Rounds(5))
        for number in range(6):
            recorded = history.model(ModelId(0, number))
            assert all(np.array_equal(models[number][name], recorded[name]) for name in recorded)
    assert (tape.branch, tape.round, tape.model) == (0, 5, models[-1])


@pytest.mark.parametrize(("interval", "kept"), [(1, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (10, [1])])
def test_what_was_sent_is_kept_in_every_so_many_rounds(interval: int, kept: list[int]) -> None:
    engine = simulation()
    tape, models = taped(engine, 5, interval)
    assert len(tape.rounds) == len(kept)
    for number, round_ in zip(kept, tape.rounds, strict=True):
        replies = replies_of(engine, models, number)
        assert sorted(round_.names) == sorted(replies.names)
        for name, weight, update in zip(round_.names, round_.weights, round_.updates, strict=True):
            at = replies.names.index(name)
            assert weight == replies.weights[at]
            for tensor, moved in update.items():
                assert np.array_equal(moved, replies.tensors[tensor][at] - models[number - 1][tensor])


def test_fedaccum_adds_up_the_remaining_updates() -> None:
    """By hand: theta_0 + sum over kept rounds of the remaining participants' weighted mean update."""
    engine = simulation()
    tape, models = taped(engine, 7, interval=2)
    gone, expected = engine.clients[:2], np.zeros((3, 6))
    for number in (1, 3, 5, 7):
        replies = replies_of(engine, models, number)
        stay = [at for at, name in enumerate(replies.names) if name not in gone]
        weights = replies.weights[stay]
        updates = [replies.tensors["weight"][at] - models[number - 1]["weight"] for at in stay]
        expected += sum(w * u for w, u in zip(weights / weights.sum(), updates, strict=True))
    begun = forget(engine, tape, FedAccum(), gone, Rounds(0))
    np.testing.assert_allclose(begun.model["weight"], expected, rtol=1e-12, atol=1e-15)
    assert (begun.branch, begun.round, begun.rounds) == (1, 0, ())


def test_federaser_takes_the_direction_from_the_new_update_and_the_length_from_the_kept_one() -> None:
    """By hand, two kept rounds: the first as it was kept, the second calibrated client by client."""
    engine = simulation(sampling=Sampling.EVERYBODY, rate=None)
    tape, models = taped(engine, 3, interval=2)
    gone, *names = engine.clients
    old = {number: replies_of(engine, models, number) for number in (1, 3)}
    weights = old[1].weights[1:] / old[1].weights[1:].sum()
    model = {"bias": np.zeros(3), "weight": np.zeros((3, 6))}
    for name in model:
        updates = old[1].tensors[name][1:] - models[0][name]
        model[name] = model[name] + np.tensordot(weights, updates, axes=1)
    new = engine.train(model, ModelId(1, 2), names)
    calibrated = {name: tensor.copy() for name, tensor in model.items()}
    for at, weight in enumerate(weights):
        kept = {name: old[3].tensors[name][at + 1] - models[2][name] for name in model}
        fresh = {name: new.tensors[name][at] - model[name] for name in model}
        length = np.sqrt(sum((kept[name] ** 2).sum() for name in model))
        scale = length / np.sqrt(sum((fresh[name] ** 2).sum() for name in model))
        for name in model:
            calibrated[name] += weight * scale * fresh[name]
    found = forget(engine, tape, FedEraser(), [gone], Rounds(2))
    for name in model:
        np.testing.assert_allclose(found.model[name], calibrated[name], rtol=1e-10, atol=1e-14)
    # What it calibrated is on the tape for whoever leaves next.
    assert [round_.names for round_ in found.rounds] == [tuple(names)]


def test_federaser_ends_with_its_own_rounds_before_accuracy_counts() -> None:
    engine = simulation()
    tape, _ = taped(engine, 8, interval=2)
    assert forget(engine, tape, FedEraser(), engine.clients[:1], Accuracy(0.01)).round == 4
    assert forget(engine, tape, FedEraser(), engine.clients[:1], Rounds(2)).round == 2


@pytest.mark.parametrize("method", [FedEraser(), FedAccum(), NoisedStart(0.05, b"noise")])
def test_who_left_is_on_no_later_tape(method: TapeMethod) -> None:
    engine = simulation()
    tape, _ = taped(engine, 6)
    for at in (1, 2):
        tape = forget(engine, tape, method, engine.clients[:at], Rounds(5))
        assert tape.branch == at
        assert tape.here.isdisjoint(engine.clients[:at])
        assert tape.rounds
        assert not any(set(engine.clients[:at]) & set(round_.names) for round_ in tape.rounds)


def test_replies_that_cannot_be_averaged_end_a_branch() -> None:
    engine = simulation()

    class Wild(FedAccum):
        def begin(self, start: Model, rounds: list[TapedRound], branch: int) -> Beginning:  # type: ignore[override]
            begun = super().begin(start, rounds, branch)
            return replace(begun, model={name: tensor + 1e200 for name, tensor in begun.model.items()})

    tape, _ = taped(engine, 2)
    with pytest.raises(DivergedError, match="after round 0"):
        forget(engine, tape, Wild(), engine.clients[:1], Rounds(3))
