"""The audits find what is there, and do not find what is not."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

from rescind import History, Sampling
from rescind.audit import (
    Comparison,
    LowerBound,
    Rate,
    RecordingEngine,
    attack,
    compare_worlds,
    measure_confidence,
    measure_recall,
    tell_apart,
    train_without,
)
from rescind.audit.evidence import (
    describe_membership,
    describe_releases,
    describe_replay,
    describe_watermark,
    to_json,
)
from rescind.audit.replay import distance
from rescind.certificates.files import read_evidence
from rescind.certificates.issue import build_guarantee
from rescind.certificates.predicate import Noise
from rescind.certificates.wording import NOISE_SOURCE
from rescind.core.calibration import Budget, attack_power, reached_epsilon
from rescind.core.edges import ROOT, ModelId
from rescind.core.facts import PrivacyScope
from rescind.core.noise import GRID
from rescind.core.solver import Solving
from rescind.core.summary import Request
from rescind.engines.server import NoisedAverage
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Sifu
from rescind.testing.small import TRAINING, simulation
from tests.builders import BUDGET


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 10), (10, 10), (1, 1000), (999, 1000), (500, 1000)])
def test_intervals_are_those_of_scipys_exact_test(hits: int, trials: int) -> None:
    rate = Rate(hits, trials, 0.025)
    exact = binomtest(hits, trials).proportion_ci(0.95, method="exact")
    assert rate.low == pytest.approx(exact.low, rel=1e-9, abs=1e-12)
    assert rate.high == pytest.approx(exact.high, rel=1e-9)
    assert rate.low <= rate.share <= rate.high


def test_what_is_no_share_is_refused() -> None:
    for hits, trials in ((1, 0), (3, 2), (-1, 4)):
        with pytest.raises(ValueError, match="no share"):
            Rate(hits, trials, 0.05)
    with pytest.raises(ValueError, match="risk"):
        Rate(1, 2, 0.5)


# Coupled replay


def test_the_distance_is_below_the_bound_and_not_far_below() -> None:
    tape = RecordingEngine(simulation(8))
    with History.in_memory() as history:
        Revocable(history, tape, seed=b"replay").train(Rounds(12))
        found = compare_worlds(history, tape, ["clinic-2", "clinic-5"])
        alone = compare_worlds(history, tape, ["clinic-2", "clinic-5"], PrivacyScope.INDIVIDUAL)
    assert [each.model_id for each in found] == [ModelId(0, number) for number in range(13)]
    assert not any(each.violated for each in found + alone)
    assert found[0].distance == 0
    assert max(each.distance / each.bound for each in found[1:] if each.bound) > 0.2


def test_leaving_nobody_out_changes_no_bit() -> None:
    tape = RecordingEngine(simulation(6))
    with History.in_memory() as history:
        Revocable(history, tape, seed=b"replay").train(Rounds(4))
        again = dict(train_without(tape, history.timeline.branches, (), history.newest))
        newest = history.model(history.newest)
    assert all((newest[name] == again[ModelId(0, 4)][name]).all() for name in newest)
    assert distance(tape.model(ModelId(0, 4)), newest) == 0


def test_a_replay_goes_through_the_noise_of_an_earlier_request() -> None:
    tape = RecordingEngine(simulation(12, sampling=Sampling.EVERYBODY, rate=None))
    with History.in_memory() as history:
        revocable = Revocable(history, tape, seed=b"replay")
        revocable.train(Rounds(10))
        history.requests.ask(["clinic-0"], BUDGET)
        (outcome,) = revocable.forget(Sifu(), Rounds(4), level=ErasureLevel.OUTPUT)
        assert outcome.restart is not None
        assert outcome.restart.branch.sigma > 0
        found = {each.model_id: each for each in compare_worlds(history, tape, ["clinic-3"])}
    parent = outcome.restart.branch.parent
    assert parent is not None
    before, behind = found[parent], found[ModelId(1, 0)]
    assert behind.distance == pytest.approx(before.distance, rel=1e-9)
    assert not any(each.violated for each in found.values())


@pytest.mark.parametrize("most_bytes", [100_000, 800, 100])
@pytest.mark.parametrize("most_rounds", [1, 2, 3, 40])
def test_a_solve_after_a_solve_is_replayed_as_another_one(most_rounds: int, most_bytes: int) -> None:
    """It begins without what the first one learned: a replay that went on with that raised a false alarm."""
    tape = RecordingEngine(simulation(6, sampling=Sampling.EVERYBODY, rate=None))
    with History.in_memory() as history:
        revocable = Revocable(history, tape, seed=b"replay")
        first = revocable.solve(Solving(most_rounds=most_rounds, most_bytes=most_bytes))
        revocable.solve(Solving(most_rounds=40, most_bytes=most_bytes))
        others = dict(train_without(tape, history.timeline.branches, ["nobody"], history.newest))
        assert max(distance(tape.model(model_id), other) for model_id, other in others.items()) == 0
        # Newton steps go on as if nothing had happened: there a second solve need not be told from the first.
        begun = {ModelId(0, 1), ModelId(0, first.round + 1)}
        assert tape.begun == begun or (most_bytes == 100_000 and tape.begun == {ModelId(0, 1)})
        assert not any(each.violated for each in compare_worlds(history, tape, ["clinic-3"]))


def test_the_real_epsilon_stands_beside_the_certified_one() -> None:
    each = Comparison(ROOT, distance=0.5, bound=1.0)
    assert not each.violated
    assert each.epsilon(0.5, 1e-5) == reached_epsilon(1.0, 1e-5)
    assert Comparison(ROOT, 1.1, 1.0).violated
    assert Comparison(ROOT, float("nan"), 1.0).violated


def test_a_replay_says_what_it_cannot_repeat() -> None:
    tape = RecordingEngine(simulation(6))
    with pytest.raises(ValueError, match="was not recorded"):
        tape.model(ModelId(0, 3))


# Two worlds, released many times over


def gaussian(seed: int, sigma: float = 1.0):  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    return lambda model: {name: tensor + sigma * rng.normal(size=tensor.shape) for name, tensor in model.items()}


def two_worlds(mu: float):  # type: ignore[no-untyped-def]
    away = np.zeros((2, 3))
    away[1, 1] = mu
    return {"weight": away}, {"weight": np.zeros((2, 3))}


def test_worlds_at_a_known_distance_are_told_apart_about_as_well_as_can_be() -> None:
    found = tell_apart(gaussian(0), gaussian(1), *two_worlds(2.0), delta=1e-5, releases=4000)
    assert 1.7 < found.mu < 2.0
    assert 1.0 < found.epsilon < reached_epsilon(2.0, 1e-5)


@pytest.mark.parametrize("mu", [0.0, 0.5, 1.5])
def test_the_lower_bound_is_seldom_above_the_truth(mu: float) -> None:
    release = gaussian(int(10 * mu))
    runs = [tell_apart(release, release, *two_worlds(mu), delta=1e-3, releases=200, risk=0.1) for _ in range(60)]
    # 60 times at most one in ten: 15 and more would happen once in a thousand series.
    assert sum(run.mu > mu for run in runs) < 15
    assert sum(run.epsilon > reached_epsilon(mu, 1e-3) for run in runs) < 15


def test_without_noise_every_release_gives_itself_away() -> None:
    found = tell_apart(lambda model: model, lambda model: model, *two_worlds(1e-9), delta=1e-5, releases=1000)
    assert found.mu > 4
    assert found.epsilon > 4


def test_the_same_world_twice_is_not_told_apart() -> None:
    same = two_worlds(0.0)[0]
    found = tell_apart(lambda model: model, lambda model: model, same, same, delta=1e-5, releases=100)
    assert (found.mu, found.epsilon) == (0.0, 0.0)


def test_too_few_releases_are_refused() -> None:
    with pytest.raises(ValueError, match="fewer than 20"):
        tell_apart(lambda model: model, lambda model: model, *two_worlds(1.0), delta=1e-5, releases=19)


def test_a_bound_on_epsilon_looks_at_both_errors() -> None:
    # Hardly anybody is accused, but all who are not accused are innocent.
    found = LowerBound(Rate(1000, 1000, 0.025), Rate(500, 1000, 0.025), 0.0)
    assert found.epsilon > 4


# Watermarks and membership


def test_recall_is_fishers_test() -> None:
    # The lady tasting tea: 17/70.
    assert measure_recall(3, 4, 1, 4).p_value == pytest.approx(17 / 70)
    remembered = measure_recall(90, 100, 12, 100)
    assert remembered.p_value < 1e-20
    assert remembered.released.low > remembered.reference.high


def test_an_attack_reaches_what_gaussian_examples_allow() -> None:
    rng, mu = np.random.default_rng(5), 2.0
    kinds = (mu, 0.0, mu, 0.0)
    worlds = [rng.normal(size=(4000, 3)) + np.array([shift, 0.0, 0.0]) for shift in kinds]
    found = attack(*worlds, rates=(0.01, 0.1))
    for rate, power in found.items():
        assert power.found.share == pytest.approx(attack_power(mu, rate), abs=0.05)
        assert power.allowed(mu / 2) < power.found.low <= power.allowed(mu)


def test_an_attack_on_equal_worlds_finds_as_many_as_it_wrongly_accuses() -> None:
    rng = np.random.default_rng(6)
    found = attack(*(rng.normal(size=(2000, 4)) for _ in range(4)), rates=(0.01,))
    assert found[0.01].found.low <= found[0.01].allowed(0.05)
    assert found[0.01].found.share < 0.03


def test_confidence_stays_finite() -> None:
    assert np.isfinite(measure_confidence(np.array([0.0, 0.5, 1.0]))).all()
    assert measure_confidence(np.array([0.5]))[0] == 0.0


# Evidence


def test_what_was_found_can_stand_in_a_certificate() -> None:
    noise = Noise(sigma=0.125, grid=GRID, source=NOISE_SOURCE, earlier=0)
    granted = build_guarantee(Request(frozenset({1}), Budget(5.0, 1e-5)), 21, noise, None)
    rng = np.random.default_rng(7)
    pieces = [
        describe_replay([Comparison(ROOT, 0.0, 0.0), Comparison(ModelId(0, 1), 0.5, 2.0)]),
        describe_releases(tell_apart(gaussian(0), gaussian(1), *two_worlds(1.0), delta=1e-5, releases=200), granted),
        *describe_membership(attack(*(rng.normal(size=(200, 4)) for _ in range(4)), rates=(0.1,)), granted),
        describe_watermark(measure_recall(3, 4, 1, 4)),
    ]
    assert read_evidence(to_json(pieces).encode()) == tuple(pieces)
    assert pieces[0].found == "at 0 of 2 models further away than the bound; at most 25% of it"
    assert "95.00%" in pieces[1].found
    assert "epsilon 5 at delta 1e-05" in pieces[1].bound
    assert pieces[-1].found.startswith("75.0%")


# What cannot be told is refused


def test_numbers_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        tell_apart(
            lambda model: {"weight": np.nan * model["weight"]},
            lambda model: model,
            *two_worlds(1.0),
            delta=1e-5,
            releases=20,
        )
    whole, gap = np.zeros((4, 2)), np.full((4, 2), np.nan)
    with pytest.raises(ValueError, match="not finite"):
        attack(whole, whole, gap, whole)


def test_a_client_can_be_called_by_its_label() -> None:
    tape = RecordingEngine(simulation(6))
    with History.in_memory() as history:
        Revocable(history, tape, seed=b"replay").train(Rounds(4))
        history.participants.label({"clinic-2": "St. Mary"})
        assert compare_worlds(history, tape, ["St. Mary"]) == compare_worlds(history, tape, ["clinic-2"])


def test_noised_rounds_are_not_replayed() -> None:
    server = NoisedAverage(clip=0.5, denominator=6.0, noise_multiplier=8.0)
    tape = RecordingEngine(simulation(6, public=server.facts, public_schedule=True, secret_noise=True))
    with History.in_memory() as history:
        Revocable(history, tape, server=server).train(Rounds(2))
        with pytest.raises(ValueError, match="nobody can draw again"):
            compare_worlds(history, tape, ["clinic-2"])


# Solves


@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_a_solve_is_replayed_and_no_distance_is_above_its_bound(precision: str) -> None:
    training = replace(TRAINING, precision=precision)
    tape = RecordingEngine(simulation(8, training=training, sampling=Sampling.EVERYBODY, rate=None))
    with History.in_memory() as history:
        federation = Revocable(history, tape, seed=b"none is drawn")
        federation.train(Rounds(2))
        solution = federation.solve()
        federation.train(Rounds(solution.round + 2))
        again = dict(train_without(tape, history.timeline.branches, (), history.newest))
        assert distance(again[history.newest], history.model(history.newest)) == 0
        for leaving in (["clinic-1"], ["clinic-0", "clinic-3", "clinic-5"]):
            compared = {each.model_id: each for each in compare_worlds(history, tape, leaving)}
            assert not any(each.violated for each in compared.values())
            assert 0 < compared[solution].distance < compared[solution].bound < 100
            assert 0 < compared[history.newest].bound < 100
        with pytest.raises(ValueError, match="a solver's"):
            tape.next_model(tape.start(), ["clinic-0"], solution)
