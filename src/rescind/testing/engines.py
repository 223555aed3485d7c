"""The contract of an engine as tests: every sentence of ``Engine``, for whatever an engine trains with.

Derive from ``EngineConformance`` in a test module of yours and give it one fixture, ``make_engine``: a function that
makes the same engine anew each time it is called, with at least four clients, and if it samples participants, so
that some are left out. For readable failures, call ``pytest.register_assert_rewrite("rescind.testing.engines")``
before you import it.
"""

# Tests are asserts, and their names are what they say.
# ruff: noqa: D102, S101

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rescind.core.aggregation import Aggregator
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Sampling
from rescind.engines.engine import Engine, Replies

MakeEngine: TypeAlias = Callable[[], Engine]

# How far apart two orders of the same sums may be.
TOLERANCES = {"float32": 1e-5, "float64": 1e-10}
FIRST = ModelId(0, 1)
PLACES = [ModelId(branch, number) for branch in (0, 1) for number in range(1, 21)]


def average(engine: Engine, model: Mapping[str, Tensor], replies: Replies) -> dict[str, Tensor]:
    """Return the model that a round of federated averaging makes of the replies."""
    aggregator = Aggregator(replies.weights, server_learning_rate=engine.facts.training.server_learning_rate)
    return {name: aggregator.add(tensor, replies.tensors[name]) for name, tensor in model.items()}


def train(engine: Engine, rounds: int) -> dict[str, Tensor]:
    """Return the model after some rounds of federated averaging from the start."""
    model = engine.start()
    for number in range(1, rounds + 1):
        model_id = ModelId(0, number)
        names = engine.draw(model_id, engine.clients)
        if names:
            model = average(engine, model, engine.train(model, model_id, names))
    return model


def relative_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Return the distance of two models, relative to the first one's norm."""
    assert sorted(one) == sorted(other)
    first, second = _flat(one), _flat(other)
    return float(np.linalg.norm(first - second) / np.linalg.norm(first))


class EngineConformance:
    """What every engine has to do; ``make_engine`` is the fixture that a derived class gives."""

    # The start

    def test_there_are_clients_and_each_has_a_name_of_its_own(self, make_engine: MakeEngine) -> None:
        clients = make_engine().clients
        assert len(clients) >= 4
        assert len(set(clients)) == len(clients)
        assert clients == make_engine().clients

    def test_the_facts_are_the_same_every_time(self, make_engine: MakeEngine) -> None:
        assert make_engine().facts == make_engine().facts

    def test_the_facts_say_how_many_are_drawn(self, make_engine: MakeEngine) -> None:
        facts = make_engine().facts
        everybody = facts.sampling is Sampling.EVERYBODY
        assert (facts.sample is None) is everybody, "state the rate, size or share in sample: certificates state it"

    def test_the_start_is_the_same_every_time(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        first = _bytes(engine.start())
        assert _bytes(engine.start()) == first
        assert _bytes(make_engine().start()) == first

    def test_the_start_is_finite_and_of_the_precision_that_the_facts_state(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        for tensor in engine.start().values():
            assert tensor.dtype == engine.facts.training.precision
            assert np.isfinite(tensor).all()

    def test_the_start_cannot_be_changed_from_outside(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        first = _bytes(engine.start())
        for tensor in engine.start().values():
            tensor[...] = 7
        assert _bytes(engine.start()) == first

    # Who takes part

    def test_those_drawn_are_some_of_those_present_in_their_order(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        for present in (engine.clients, engine.clients[::-1], engine.clients[1:3]):
            for model_id in PLACES:
                drawn = engine.draw(model_id, present)
                assert drawn == [name for name in present if name in drawn]

    def test_nobody_is_drawn_from_nobody(self, make_engine: MakeEngine) -> None:
        assert make_engine().draw(FIRST, []) == []

    def test_drawing_again_gives_the_same(self, make_engine: MakeEngine) -> None:
        engine, another = make_engine(), make_engine()
        first = [engine.draw(model_id, engine.clients) for model_id in PLACES]
        assert [another.draw(model_id, engine.clients) for model_id in reversed(PLACES)] == first[::-1]

    def test_places_draw_differently_where_participants_are_sampled(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        everybody = engine.facts.sampling is Sampling.EVERYBODY
        for branch in (0, 1):
            drawn = [tuple(engine.draw(model_id, engine.clients)) for model_id in PLACES if model_id.branch == branch]
            assert (len(set(drawn)) == 1) == everybody
        branches = [[engine.draw(ModelId(b, n), engine.clients) for n in range(1, 21)] for b in (0, 1)]
        assert (branches[0] == branches[1]) == everybody

    def test_who_is_absent_does_not_change_whether_the_others_are_drawn(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        if engine.facts.sampling in (Sampling.FIXED_SIZE, Sampling.FRACTION):
            return
        for absent in (engine.clients[:1], engine.clients[1:2], engine.clients[1:3], engine.clients[-3:]):
            present = [name for name in engine.clients if name not in absent]
            for model_id in PLACES:
                others = [name for name in engine.draw(model_id, engine.clients) if name not in absent]
                assert engine.draw(model_id, present) == others

    # Training

    def test_replies_have_what_a_round_needs(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        names, model = engine.clients[:3], engine.start()
        replies = engine.train(model, FIRST, list(names))
        assert replies.names == names
        assert replies.weights.shape == (3,)
        assert replies.weights.dtype == np.float64
        assert (replies.weights > 0).all()
        assert np.isfinite(replies.weights).all()
        assert len(replies.steps) == 3
        assert min(replies.steps) >= 1
        assert replies.batch >= 1
        assert sorted(replies.tensors) == sorted(model)
        for name, tensors in replies.tensors.items():
            assert len(tensors) == 3
            for tensor in tensors:
                assert tensor.shape == model[name].shape
                assert tensor.dtype == model[name].dtype
                assert np.isfinite(tensor).all()

    def test_every_participant_learns_something_of_its_own(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        replies = engine.train(engine.start(), FIRST, engine.clients)
        start = _bytes(engine.start())
        results = [_bytes(_reply(replies, name)) for name in engine.clients]
        assert start not in results
        assert len({repr(result) for result in results}) == len(results)

    def test_asking_again_gives_the_same_bytes(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        names, model, model_id = engine.clients[:3], engine.start(), ModelId(1, 7)
        first = engine.train(model, model_id, names)
        engine.train(model, ModelId(1, 8), engine.clients[1:])
        for again in (engine.train(model, model_id, names), make_engine().train(model, model_id, names)):
            assert _bytes(again.tensors) == _bytes(first.tensors)
            assert again.weights.tobytes() == first.weights.tobytes()
            assert (again.names, again.steps, again.batch) == (first.names, first.steps, first.batch)

    def test_a_reply_does_not_depend_on_who_else_takes_part(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        model, model_id = train(engine, 2), ModelId(0, 3)
        together = engine.train(model, model_id, engine.clients)
        tolerance = TOLERANCES[engine.facts.training.precision]
        for names in (engine.clients[:1], engine.clients[2:4], engine.clients[::-1]):
            alone = engine.train(model, model_id, names)
            for name in names:
                assert relative_difference(_reply(together, name), _reply(alone, name)) <= tolerance
                at, position = names.index(name), engine.clients.index(name)
                assert alone.weights[at] == together.weights[position]
                assert alone.steps[at] == together.steps[position]

    def test_nobody_taking_part_is_a_round(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        replies = engine.train(engine.start(), FIRST, [])
        assert replies.names == ()
        assert replies.steps == ()
        assert replies.weights.shape == (0,)
        assert replies.weights.dtype == np.float64
        assert {name: len(tensors) for name, tensors in replies.tensors.items()} == dict.fromkeys(engine.start(), 0)

    def test_training_leaves_the_model_that_it_is_given_as_it_is(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        model = engine.start()
        before = _bytes(model)
        replies = engine.train(model, FIRST, engine.clients)
        for tensors in replies.tensors.values():
            for tensor in tensors:
                assert not any(np.shares_memory(tensor, own) for own in model.values())
        assert _bytes(model) == before

    def test_a_model_that_is_read_only_can_be_trained_and_judged(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        model = engine.start()
        for tensor in model.values():
            tensor.setflags(write=False)
        engine.train(model, FIRST, engine.clients[:1])
        engine.test_accuracy(model)

    def test_some_rounds_of_averaging_stay_finite(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        model = train(engine, 5)
        assert all(np.isfinite(tensor).all() for tensor in model.values())
        assert _bytes(model) != _bytes(engine.start())
        assert _bytes(train(make_engine(), 5)) == _bytes(model)

    def test_unknown_clients_are_refused_by_name(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        model, names = engine.start(), [engine.clients[0], "nobody-knows"]
        for asked in (
            lambda: engine.draw(FIRST, names),
            lambda: engine.train(model, FIRST, names),
            lambda: engine.accuracy(model, names),
        ):
            assert "nobody-knows" in _refusal(asked)

    # Accuracy

    def test_accuracies_are_shares(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        for model in (engine.start(), train(engine, 3)):
            for accuracy in (engine.test_accuracy(model), engine.accuracy(model, engine.clients)):
                assert accuracy is None or 0 <= accuracy <= 1

    def test_accuracy_is_the_mean_of_the_clients_own_in_any_order(self, make_engine: MakeEngine) -> None:
        engine = make_engine()
        model, names = train(engine, 3), engine.clients
        together = engine.accuracy(model, names)
        assert engine.accuracy(model, names[::-1]) == together
        own = [engine.accuracy(model, [name]) for name in names]
        if together is not None:
            np.testing.assert_allclose(np.mean(np.array(own, dtype=np.float64)), together, rtol=1e-12)


def _reply(replies: Replies, name: str) -> dict[str, Tensor]:
    at = replies.names.index(name)
    return {key: tensors[at] for key, tensors in replies.tensors.items()}


def _bytes(model: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: np.asarray(tensor).tobytes() for name, tensor in sorted(model.items())}


def _flat(model: Mapping[str, Any]) -> NDArray[np.float64]:
    return np.concatenate([np.asarray(model[name], dtype=np.float64).reshape(-1) for name in sorted(model)])


def _refusal(asked: Callable[[], object]) -> str:
    try:
        asked()
    except ValueError as refusal:
        return str(refusal)
    raise AssertionError("nothing was refused, and a ValueError was expected")
