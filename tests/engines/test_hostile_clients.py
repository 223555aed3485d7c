"""No client ends a run, has another one rejected, or raises another one's bound beyond what is stated."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import rescind.flower
from benchmarks.client_fuzz import (
    BOUNDED,
    DECLARED,
    HEAD32,
    KINDS,
    NAMES,
    TRAINED,
    Attack,
    Hostile,
    arrays_of,
    initial,
    limits,
    sensitivities,
    sent_far,
    solve_with_liars,
    strategy,
)
from rescind import DeclaredLoss, History, LocalTraining, SoftmaxL2
from rescind.core.calibration import Budget
from rescind.core.edges import NO_BOUND, ModelId
from rescind.core.regularity import Curvature
from rescind.engines.engine import TOO_LONG, Replies
from rescind.engines.server import norm
from rescind.flower.server.arrays import is_usable
from rescind.history.events import RepliesRejected
from tests.builders import labels_of, rounds_of

EVIL, HONEST = NAMES[4], NAMES[:4]


def nothing(rng: np.random.Generator, reply: Message, msg: Message) -> None:
    """Send what an honest client sends."""


def grid(attack: Attack = nothing, evaluation: Attack = nothing, names: tuple[str, ...] = NAMES[:5]) -> Hostile:
    return Hostile(attack, evaluation, attackers=(EVIL,), names=names, loses=False)


def run(history: History, kind: str, on: Hostile, rounds: int = 3, **options: Any) -> None:
    rescind.flower.run(strategy(kind, history, **options), on, initial(kind), num_rounds=rounds)


def participants(history: History, rounds: int = 3) -> list[set[str]]:
    labels = labels_of(history)
    return [{labels[each] for each in round_.clients.tolist()} for round_ in rounds_of(history, 0, 1, rounds)]


def reasons(history: History) -> list[str]:
    return [reason for _, event in history.timeline.of(RepliesRejected) for _, reason in event.rejected]


def honest_sensitivities(kind: str, on: Hostile, rounds: int = 3, **options: Any) -> dict[str, float]:
    with History.in_memory() as history:
        run(history, kind, on, rounds, **options)
        return sensitivities(history, HONEST, rounds)


# Numbers


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_not_usable_in_any_type(dtype: Any, value: float) -> None:
    assert is_usable(np.ones(5, dtype))
    assert is_usable(np.full(5, 1e4, dtype))
    assert not is_usable(np.array([0, value, 0], dtype))


@pytest.mark.parametrize(("dtype", "fine", "large"), [(np.float32, 1e12, 1e14), (np.float64, 1e134, 1e136)])
def test_numbers_whose_squares_cannot_be_added_are_not_usable(dtype: Any, fine: float, large: float) -> None:
    tensor = np.full(10**4, fine, dtype)
    assert is_usable(tensor)
    assert np.isfinite(np.dot(tensor - -tensor, tensor - -tensor))
    for value in (large, -large, np.finfo(dtype).max):
        assert not is_usable(np.array([0, value], dtype))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.inf, -3e38])
def test_no_number_ends_a_run_or_leaves_a_request_half_served(history: History, kind: str, value: float) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        tensor = arrays_of(reply)["head.weight"].numpy().copy()
        tensor[0, 0] = value
        arrays_of(reply)["head.weight"] = Array(tensor)

    on = grid(attack)
    on.active = False
    run(history, kind, on, rounds=1)
    on.active = True
    run(history, kind, on, rounds=2)
    assert participants(history, 2) == [{*HONEST, EVIL}, {*HONEST}]
    history.requests.ask([HONEST[0]], Budget(8.0, 1e-3))
    run(history, kind, on, rounds=1)
    assert len(history.outcomes()) == 1
    assert len(reasons(history)) == 2


# What a strategy of the user's gets


def foreign(rng: np.random.Generator, reply: Message, msg: Message) -> None:
    """Call arrays what they are not, and add what nobody asked for."""
    arrays = arrays_of(reply)
    for name in list(arrays):
        arrays[name] = Array("O", (10**9,), "pickle", arrays[name].data)
    reply.content["metrics"] = MetricRecord({"num-examples": 12, "[/]": [1.0, 2.0]})


def test_an_array_that_says_it_is_a_pickle_changes_nothing(history: History) -> None:
    run(history, "FedAdam", grid(foreign))
    with History.in_memory() as other:
        run(other, "FedAdam", grid())
        for name, tensor in other.model(other.newest).items():
            np.testing.assert_array_equal(history.model(history.newest)[name], tensor)


def test_a_strategy_is_handed_nothing_that_a_client_made(history: History) -> None:
    seen: list[Any] = []

    class Curious(FedMedian):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            seen.extend(copy.deepcopy(list(replies)))
            return super().aggregate_train(server_round, replies)

    common: dict[str, Any] = {"min_train_nodes": 1, "min_available_nodes": 1, "fraction_evaluate": 0.0}
    chosen = replace(strategy("FedAdam", history), strategy=Curious(**common))
    rescind.flower.run(chosen, grid(foreign), initial("FedAdam"), num_rounds=1)
    assert len(seen) == 5
    for reply in seen:
        assert set(reply.content) == {"arrays", "metrics"}
        assert list(reply.content["metrics"]) == ["num-examples"]
        described = {name: (array.dtype, tuple(array.shape), array.stype) for name, array in arrays_of(reply).items()}
        first = initial("FedAdam")
        assert described == {name: (each.dtype, tuple(each.shape), each.stype) for name, each in first.items()}


def test_where_every_reply_is_rejected_a_strategy_is_not_asked(history: History) -> None:
    class Proud(FedMedian):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            assert list(replies)
            return super().aggregate_train(server_round, replies)

    common: dict[str, Any] = {"min_train_nodes": 1, "min_available_nodes": 1, "fraction_evaluate": 0.0}
    chosen = replace(strategy("FedAdam", history), strategy=Proud(**common))

    def no_arrays(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        del reply.content["arrays"]

    on = grid(no_arrays, names=(EVIL,))
    rescind.flower.run(chosen, on, initial("FedAdam"), num_rounds=2)
    assert history.newest == ModelId(0, 2)


def test_more_metrics_than_anybody_needs_are_a_rejection(history: History) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["metrics"] = MetricRecord({"num-examples": 12} | {f"m{at}": 1.0 for at in range(1500)})

    run(history, "plain", grid(attack), rounds=1)
    assert reasons(history) == ["it holds more than 1000 metrics"]


def test_metrics_of_one_client_do_not_hide_those_of_the_others(history: History) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["more"] = MetricRecord({f"m{at}": [1.0] for at in range(1500)})

    seen: list[Any] = []

    def combine(contents: list[RecordDict], weighted_by: str) -> MetricRecord:
        seen.extend(set(content) for content in contents)
        return MetricRecord({"examples": sum(float(content["metrics"][weighted_by]) for content in contents)})

    chosen = strategy("plain", history)
    chosen.strategy.evaluate_metrics_aggr_fn = chosen.strategy.train_metrics_aggr_fn = combine
    result = rescind.flower.run(chosen, grid(evaluation=attack), initial("plain"), num_rounds=1)
    assert result.evaluate_metrics_clientapp[1]["examples"] == 4 * 12
    # Nothing but metrics reaches code of the user's.
    assert seen == [{"metrics"}] * 9


@pytest.mark.parametrize(
    "told",
    [
        {"accuracy": [0.0], "num-examples": 12},
        {"accuracy": [0.0] * 100, "num-examples": 12},
        {"accuracy": 0.0, "num-examples": 2**62},
        {"accuracy": 0.0, "num-examples": float("inf")},
        {"accuracy": 0.0, "num-examples": [12]},
        {"accuracy": float("nan"), "num-examples": 12},
        {"accuracy": float("-inf"), "num-examples": 12},
        {"accuracy": 0.0, "num-examples": 12, "more": [1.0, float("nan")]},
        {"accuracy": 0.0, "num-examples": 12, "more": 1.0},
        {"accuracy": 0.0},
        {"num-examples": 10**7},
        {},
    ],
)
@pytest.mark.parametrize("liar", [NAMES[0], EVIL])
def test_metrics_of_one_client_do_not_spoil_those_of_the_others(
    history: History, caplog: pytest.LogCaptureFixture, told: dict[str, Any], liar: str
) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["metrics"] = MetricRecord(dict(told))

    on = Hostile(nothing, attack, attackers=(liar,), names=NAMES[:5], loses=False)
    with caplog.at_level("INFO", "flwr"):
        result = rescind.flower.run(strategy("plain", history), on, initial("plain"), num_rounds=1)
    assert dict(result.evaluate_metrics_clientapp[1]) == {"accuracy": 0.5}
    assert f"the metrics of client {liar!r} are not used" in caplog.text


def test_messages_are_let_go_of_before_the_next_round_brings_its_own(history: History) -> None:
    alive: list[int] = []
    held: list[int] = []
    sent: list[weakref.ref[Message]] = []

    class Watched(Hostile):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            gc.collect()
            alive.append(sum(each() is not None for each in sent))
            held.append(sum(type(each) is Replies for each in gc.get_objects()))
            replies = list(super().send_and_receive(messages, timeout=timeout))
            sent[:] = map(weakref.ref, replies)
            return replies

    on = Watched(nothing, nothing, attackers=(), names=NAMES[:5])
    chosen = replace(strategy("plain", history), strategy=FedAvg(fraction_evaluate=0.0))
    rescind.flower.run(chosen, on, initial("plain"), num_rounds=3)
    # A question what they wish, and three rounds.
    assert alive == [0] * 4
    assert held == held[:1] * 4


# Denial of forgetting


def test_no_number_of_examples_raises_another_clients_bound(history: History) -> None:
    """The more one client weighs, the less the others do; rounding adds next to nothing."""

    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["metrics"] = MetricRecord({"num-examples": 10**7})

    calm, attacked = honest_sensitivities("plain", grid()), honest_sensitivities("plain", grid(attack))
    assert all(attacked[name] < 0.01 * calm[name] for name in HONEST)


def test_a_number_of_examples_that_would_leave_no_rounding_bound_is_rejected(history: History) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["metrics"] = MetricRecord({"num-examples": 10**7})

    training = replace(HEAD32, steps=400)
    most = training.most_examples(parameters=21)
    assert training.rounding(1.0, 21, int(most)) < 1
    assert training.rounding(1.0, 21, int(1.001 * most)) == NO_BOUND
    run(history, "plain", grid(attack), rounds=1, training=training)
    assert participants(history, 1) == [{*HONEST}]
    assert sensitivities(history, HONEST, 1)[HONEST[0]] < 10
    # In batches it takes nothing from anybody.
    with History.in_memory() as other:
        run(other, "plain", grid(attack), rounds=1, training=training, batch=5)
        assert participants(other, 1) == [{*HONEST, EVIL}]


@pytest.mark.parametrize("told", [1e9, sys.float_info.max, float("inf"), float("nan"), -1.0, [1.0], None])
def test_no_told_distance_raises_another_clients_bound(history: History, told: Any) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["metrics"] = MetricRecord({} if told is None else {"rescind-distance": told})

    run(history, "masked", grid(evaluation=attack))
    calm, attacked = honest_sensitivities("masked", grid()), sensitivities(history, HONEST, 3)
    assert attacked == pytest.approx(calm, rel=1e-4)
    # Whoever tells what cannot be counts as far away as it can be.
    (client,) = history.participants.find([EVIL])
    for round_ in rounds_of(history, 0, 1, 1):
        distance = float(round_.participants["distance"][round_.clients == client][0])
        assert distance == HEAD32.longest_update(0.0) + round_.update_norm


@pytest.mark.parametrize("told", [sys.float_info.max, None])
def test_no_told_distance_ends_the_training_of_a_network(history: History, told: Any) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["metrics"] = MetricRecord({} if told is None else {"rescind-distance": told})

    run(history, "network", grid(evaluation=attack), masked=True)
    history.requests.ask([HONEST[0]], Budget(8.0, 1e-3))
    run(history, "network", grid(evaluation=attack), rounds=1, masked=True)
    assert len(history.outcomes()) == 1


def test_masked_updates_of_a_declared_loss_need_its_gradient_bound(history: History) -> None:
    loss = DeclaredLoss(Curvature(0.0, 1.0))
    with pytest.raises(ValueError, match="gradient_bound"):
        strategy("declared", history, training=replace(DECLARED, loss=loss), masked=True)
    strategy("declared", history, masked=True)


def test_who_spoils_masked_rounds_took_part_in_them(history: History) -> None:
    """What one client hides in the sum is used: else what others did would depend on it, and ``exact`` be false."""

    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        arrays_of(reply)["head.bias"] = Array(np.full(3, 1e3, np.float32))

    run(history, "masked", grid(attack))
    assert participants(history) == [{*HONEST, EVIL}] * 3
    history.requests.ask([EVIL], Budget(8.0, 1e-3))
    run(history, "masked", grid(attack), rounds=1)
    (outcome,) = history.outcomes()
    # By a restart, not by saying that the model never knew it.
    assert outcome.restart is not None
    assert outcome.restart is not None


def test_rounding_follows_what_is_added_up_behind_masks(history: History) -> None:
    """Two clients whose masks do not cancel but for rounding: told distances know nothing of that."""
    large = 3e12

    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        arrays_of(reply)["head.bias"] = Array(np.full(3, large, np.float32))

    run(history, "masked", grid(attack), rounds=1)
    (round_,) = rounds_of(history, 0, 1, 1)
    assert round_.rounding > large * 2.0**-24


def test_a_result_that_the_l2_term_would_have_pulled_back_is_rejected(history: History) -> None:
    """Short enough, and pointing away from 0: the ball that strict bounds rest on would be left round by round."""
    loss = SoftmaxL2(l2=1.0, row_norm=1.0)
    training = replace(HEAD32, steps=3, learning_rate=0.6, loss=loss)

    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        came = {name: arrays_of(msg)[name].numpy() for name in TRAINED}
        length = norm(came)
        away = came if length else {name: np.ones_like(tensor) for name, tensor in came.items()}
        longest = 0.999 * training.longest_update(length) / norm(away)
        for name, tensor in came.items():
            arrays_of(reply)[name] = Array((tensor + longest * away[name]).astype(np.float32))
        reply.content["metrics"] = MetricRecord({"num-examples": 10**5})

    run(history, "plain", grid(attack), rounds=6, training=training)
    assert norm(history.model(history.newest)) <= loss.gradient_bound / loss.l2
    assert TOO_LONG in reasons(history)


@given(
    steps=st.integers(1, 9),
    rate=st.floats(0.01, 1.9),
    l2=st.floats(0.001, 1.0),
    proximal=st.floats(0.0, 1.0),
    seed=st.integers(0, 99),
)
def test_no_result_of_a_head_lies_outside_its_reach(
    steps: int, rate: float, l2: float, proximal: float, seed: int
) -> None:
    """Gradients of the full length, all in one direction or turned each step: the worst that data can do."""
    training = LocalTraining(steps, rate, SoftmaxL2(l2=l2, row_norm=1.0), proximal=proximal, precision="float64")
    rng = np.random.default_rng(seed)
    start, turns = rng.normal(size=5) * rng.choice([0.0, 1e-3, 1.0, 1e3]), bool(seed % 2)
    reach = training.head_reach(float(np.linalg.norm(start)))
    assume(reach is not None)
    direction = rng.normal(size=5)
    direction *= training.loss.gradient_bound / np.linalg.norm(direction)
    result, scale = start, 1 - rate * (l2 + proximal)
    for step in range(steps):
        sign = -1 if turns and scale < 0 and step % 2 else 1
        result = result - rate * (sign * direction + l2 * result + proximal * (result - start))
    factor, radius = reach
    assert np.linalg.norm(result - factor * start) <= radius
    # And no larger than it has to be.
    if turns or scale >= 0:
        assert np.linalg.norm(result - factor * start) >= radius * (1 - 1e-5) - 1e-9 * np.linalg.norm(start)


@pytest.mark.parametrize("length", [2.0, 1e3, 1e30])
def test_an_update_longer_than_a_declared_loss_makes_is_rejected(history: History, length: float) -> None:
    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        sent_far(rng, reply, msg, share=length)

    run(history, "declared", grid(attack))
    assert participants(history) == [{*HONEST}] * 3
    assert reasons(history) == [TOO_LONG] * 3


@pytest.mark.parametrize("low", [0.0, 0.5, 1.5])
@pytest.mark.parametrize("proximal", [0.0, 0.3])
def test_no_update_of_a_declared_loss_is_longer_than_its_bound(low: float, proximal: float) -> None:
    """Gradients of the full length in the worst direction, with the L2 term beside the bound or within it."""
    loss = DeclaredLoss(Curvature(low, 2.0), gradient_bound=1.0)
    training = LocalTraining(7, 0.9, loss, proximal=proximal, precision="float32")
    start = np.array([3.0, 0.0], np.float32)
    bound = training.longest_update(3.0)
    assert bound is not None
    for l2 in (low, 0.0):
        for direction in (np.array([1, 0]), np.array([0, 1]), np.array([-1, 0])):
            model = start.copy()
            for _ in range(7):
                gradient = direction + l2 * model + proximal * (model - start)
                model = (model - 0.9 * gradient).astype(np.float32)
            assert np.linalg.norm(model - start) <= bound
    assert replace(training, momentum=0.9).longest_update(3.0) is None
    assert replace(training, loss=DeclaredLoss(Curvature(low, 2.0))).longest_update(3.0) is None


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(BOUNDED),
    examples=st.sampled_from([1, 12, 48, 200, 10**4, 10**7]),
    share=st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.999, 1.5, 1e3])),
    turns=st.sampled_from(["stays", "alternates", "random", "away from the mean"]),
    told=st.sampled_from([0.0, 1.0, 1e9]),
)
def test_the_search_for_the_worst_that_one_client_can_do_finds_nothing_beyond_the_limit(
    kind: str, examples: int, share: float, turns: str, told: float
) -> None:
    # Nothing limits what is hidden behind masks.
    assume(kind != "masked" or share <= 1)
    sign = 1.0

    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        nonlocal sign
        sign = -sign if turns == "alternates" else sign
        direction: Any = {"head.bias": np.full(3, sign), "head.weight": np.zeros((3, 6))}
        if turns == "away from the mean":
            came, mine = arrays_of(msg), arrays_of(reply)
            direction = {name: came[name].numpy() - mine[name].numpy() for name in direction}
        sent_far(rng, reply, msg, share, None if turns == "random" else direction)
        reply.content["metrics"] = MetricRecord({"num-examples": examples})

    def tell(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        reply.content["metrics"] = MetricRecord({"rescind-distance": told})

    with History.in_memory() as history:
        run(history, kind, grid(attack, tell), rounds=4)
        found, most = sensitivities(history, HONEST, 4), limits(history, HONEST, 4)
        assert all(found[name] <= most[name] for name in HONEST)


# One client among those who are drawn


def drawn_alone(history: History, on: Hostile) -> None:
    one = FedAvg(fraction_train=0.01, fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    chosen = replace(strategy("plain", history, seed=b"drawn by lot, number 12"), strategy=one)
    rescind.flower.run(chosen, on, initial("plain"), num_rounds=8)


def test_a_client_that_is_drawn_alone_several_times_does_not_end_a_run(history: History) -> None:
    def no_arrays(rng: np.random.Generator, reply: Message, msg: Message) -> None:
        del reply.content["arrays"]

    drawn_alone(history, grid(no_arrays, names=(HONEST[0], EVIL)))
    assert [len(each) for each in participants(history, 8)] == [0] * 5 + [1] * 3
    everybody = grid(no_arrays, names=(HONEST[0], EVIL))
    everybody.attackers = everybody.names
    with History.in_memory() as other, pytest.raises(ValueError, match="could be used"):
        drawn_alone(other, everybody)


@pytest.mark.parametrize("at", [1, 15])
def test_a_liar_that_knows_every_check_does_not_hold_a_solve_up(at: int) -> None:
    """Held against their last answer only, these liars made it take 12 and 9 times the rounds."""
    grown, seen, lies = solve_with_liars(at, seed=0)
    assert lies > 3
    assert grown <= 3
    assert (seen.ended, seen.unserved, seen.honest_rejected) == ("", 0, 0)
