import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescind.core.recovery import RecoveryCurve, predicted_rounds
from rescind.core.regularity import LogisticL2, NetworkLoss, SoftmaxL2
from rescind.core.training import LocalTraining


def curve(nodes: object, excess: object, travelled: object = None, cost: float = 1.0) -> RecoveryCurve:
    at = np.array(nodes, dtype=np.float64)
    way = np.zeros(len(at)) if travelled is None else np.array(travelled, dtype=np.float64)
    return RecoveryCurve(at, np.array(excess, dtype=np.float64), way, cost)


POWERS = 0.8 ** np.arange(41.0)
CURVE = curve(np.arange(41), 10 * (POWERS - POWERS[-1]), 5 * (1 - POWERS))


def test_without_noise_the_rest_of_training_is_predicted() -> None:
    for node in (0, 7, 25, 40):
        assert predicted_rounds(CURVE, node, 0.0, 100) == pytest.approx(40 - node, abs=1e-9)


@given(st.floats(0, 40), st.floats(1e-4, 10), st.floats(1, 3))
def test_more_noise_is_never_predicted_to_be_cheaper(node: float, sigma: float, more: float) -> None:
    before, after = (predicted_rounds(CURVE, node, level, 100) for level in (sigma, sigma * more))
    assert after >= before


def test_what_lies_beyond_the_start_is_extrapolated() -> None:
    near = CURVE.rounds_from(CURVE.excess[0])
    assert near == CURVE.rounds
    assert CURVE.rounds_from(10 * CURVE.excess[0]) > near + 5
    flat = curve([0, 10], [1, 1])
    assert np.isfinite(flat.rounds_from(100.0))


def test_training_that_steps_back_counts_from_the_last_time() -> None:
    detour = curve(range(5), [4, 1, 3, 1, 0])
    assert detour.rounds_from(2.0) == pytest.approx(1.5)


def test_a_public_curve_needs_no_history() -> None:
    public = RecoveryCurve.public(contraction=0.9, radius=5.0, rounds=30, parameters=40)
    assert public.rounds == 30
    assert public.excess_at(10) == pytest.approx((5 * 0.9**10) ** 2)
    assert public.noise_cost == 40
    # As far as distances tell, noise that outweighs the way travelled is worse than the start: nothing is added.
    for node in range(31):
        for sigma in (0.0, 0.1, 0.5, 2.0):
            assert predicted_rounds(public, node, sigma, 40) == pytest.approx(
                public.rounds_from(public.excess_at(node) + 40 * sigma**2)
            )


@pytest.mark.parametrize(
    ("nodes", "excess", "travelled"),
    [
        ([0], [1], [0]),
        ([0, 0], [1, 0], [0, 1]),
        ([0, 1], [1, -1], [0, 1]),
        ([0, 1], [1, 0], [0, -1]),
        ([0, 1], [1], [0, 1]),
        ([0, 1], [1, 0], [0]),
    ],
)
def test_a_curve_that_is_none_is_refused(nodes: list[float], excess: list[float], travelled: list[float]) -> None:
    with pytest.raises(ValueError, match="recovery curve"):
        curve(nodes, excess, travelled)
    with pytest.raises(ValueError, match="noise_cost"):
        curve([0, 1], [1, 0], cost=-1.0)


def test_the_first_half_tells_how_far_beyond_the_start_costs() -> None:
    steady = RecoveryCurve.public(contraction=0.9, radius=5.0, rounds=30, parameters=1)
    for rounds in (1.0, 7.5):
        assert steady.rounds_from((5.0 / 0.9**rounds) ** 2) == pytest.approx(30 + rounds)
    arrived = curve([0, 5, 10], [1, 0, 0])
    assert 10 < arrived.rounds_from(100.0) < 11


@pytest.mark.parametrize(("excess", "rounds"), [(0.0, 0.0), (1.5, 0.5), (3.5, 2.5), (4.5, 4.5), (5.0, 5.0)])
def test_only_the_last_time_that_training_had_as_much_to_gain_counts(excess: float, rounds: float) -> None:
    detour = curve(range(6), [5, 1, 4, 2, 3, 0])
    assert detour.rounds_from(excess) == pytest.approx(rounds)


def test_where_a_curve_starts_to_count_does_not_matter() -> None:
    later = curve(CURVE.nodes + 100, CURVE.excess, CURVE.travelled)
    assert later.rounds == CURVE.rounds
    for node, sigma in ((0.0, 0.0), (7.0, 0.1), (25.0, 3.0)):
        assert predicted_rounds(later, node + 100, sigma, 100) == pytest.approx(
            predicted_rounds(CURVE, node, sigma, 100)
        )
    assert later.rounds_from(1000.0) == pytest.approx(CURVE.rounds_from(1000.0))


def test_the_prediction_by_hand() -> None:
    """Halfway along a straight way of length 10: noise of norm 5 is added, one of 5.1 drowns what was learnt."""
    straight = curve([0, 20], [10, 0], [0, 10], cost=2.0)
    assert predicted_rounds(straight, 10, 0.3, 100) == pytest.approx(2 * (5 + 2 * 0.09))
    assert predicted_rounds(straight, 10, 0.5, 100) == pytest.approx(2 * (5 + 2 * 0.25))
    assert predicted_rounds(straight, 10, 0.51, 100) == 20
    assert predicted_rounds(straight, 10, 2.0, 100) == straight.rounds_from(5 + 2 * 4) > 20


def test_the_curve_of_recorded_models_by_hand() -> None:
    """Four rounds that moved by 8 in all, then one by 1: 64/4 and 1 over the pace of 2 * 3 * 0.5."""
    nodes, trained = np.array([0.0, 4.0, 5.0, 6.0]), np.array([0.0, 4.0, 4.0, 5.0])
    moves, travelled = np.array([8.0, 100.0, 1.0]), np.array([0.0, 8.0, 90.0, 9.0])
    training = LocalTraining(steps=3, learning_rate=2.0, loss=SoftmaxL2(0.1, 1.0), server_learning_rate=0.5)
    found = RecoveryCurve.measured(nodes, trained, moves, travelled, 50, training)
    # Where nothing was trained, noise was added: no gain.
    assert found.excess == pytest.approx([(16 + 1) / 3, 1 / 3, 1 / 3, 0])
    assert found.noise_cost == pytest.approx(0.25)
    assert (found.rounds, found.travelled_at(6)) == (5, 9)
    for loss, cost in ((LogisticL2(0.1, 1.0), 0.125), (NetworkLoss(), 50 * (17 / 3) / 81)):
        other = RecoveryCurve.measured(nodes, trained, moves, travelled, 50, replace(training, loss=loss))
        assert other.noise_cost == pytest.approx(cost)
    nowhere = RecoveryCurve.measured(
        nodes, trained, 0 * moves, 0 * travelled, 50, replace(training, loss=NetworkLoss())
    )
    assert nowhere.noise_cost == 0.0


def test_a_quadratic_loss_gains_what_its_moves_say() -> None:
    """Gradient descent with a small step: the loss that is left, from the moves of every fifth model alone."""
    curvatures, eta = np.array([1.0, 0.3, 0.05]), 0.05
    theta = np.array([3.0, -2.0, 5.0])
    models = [theta]
    for _ in range(400):
        models.append(models[-1] * (1 - eta * curvatures))
    kept = models[::5]
    moves = np.array([np.linalg.norm(there - here) for here, there in pairwise(kept)])
    trained = np.arange(0.0, 401.0, 5.0)
    travelled = np.array([np.linalg.norm(each - theta) for each in kept])
    found = RecoveryCurve.measured(trained, trained, moves, travelled, 3, LocalTraining(1, eta, NetworkLoss()))
    losses = np.array([float(curvatures @ each**2) / 2 for each in kept])
    assert found.excess[:40] == pytest.approx((losses - losses[-1])[:40], rel=0.1)


def test_training_that_never_moved_says_nothing_about_noise() -> None:
    still = curve([0, 5], [0, 0])
    assert still.rounds_from(3.0) == 5.0


def test_an_erased_stretch_counts_its_rounds() -> None:
    """Retraining costs the rounds that training took, however few edges are left of them."""
    nodes, excess = np.array([0.0, 50.0, 100.0]), np.array([8.0, 2.0, 0.0])
    whole = RecoveryCurve(nodes, excess, np.zeros(3), 1.0)
    collapsed = RecoveryCurve(np.array([0.0, 1.0, 51.0]), excess, np.zeros(3), 1.0, trained=nodes)
    assert collapsed.rounds == whole.rounds == 100
    for left in (0.0, 1.0, 2.0, 5.0, 8.0, 20.0):
        assert collapsed.rounds_from(left) == whole.rounds_from(left)
    assert collapsed.excess_at(1.0) == whole.excess_at(50.0)
    for wrong in (nodes[:2], -nodes, np.zeros(3)):
        with pytest.raises(ValueError, match="rounds trained"):
            RecoveryCurve(nodes, excess, np.zeros(3), 1.0, trained=wrong)


def test_a_solve_counts_as_the_training_that_leads_as_far() -> None:
    """A way of length 4: a curvature of 1/16, a rate of 2/16 at a pace of 1, and ln 1000 over that rate."""
    training = LocalTraining(steps=2, learning_rate=0.5, loss=SoftmaxL2(0.001, 1.0))
    nodes, moves, travelled = np.array([0.0, 5.0]), np.array([4.0]), np.array([0.0, 4.0])
    solve = RecoveryCurve.measured(nodes, nodes, moves, travelled, 50, training, solved=np.array([0.0, 5.0]))
    assert solve.rounds == pytest.approx(math.log(1000) * 8)
    assert (solve.excess_at(0), solve.excess_at(5)) == pytest.approx((0.5, 0.0))
    assert solve.rounds_from(0.05) == pytest.approx(solve.rounds - math.log(10) * 8, rel=0.05)
    # After three rounds of training that made half of the way; training was all that was counted.
    nodes, trained = np.array([0.0, 3.0, 8.0]), np.array([0.0, 3.0, 8.0])
    moves, travelled = np.array([2.0, 2.0]), np.array([0.0, 2.0, 4.0])
    polished = RecoveryCurve.measured(
        nodes, trained, moves, travelled, 50, training, solved=np.array([0.0, 0.0, 5.0])
    )
    assert polished.rounds == pytest.approx(3 + math.log(250) * 8)
    assert polished.excess_at(0) - polished.excess_at(3) == pytest.approx(4 / 3)
    trained_only = RecoveryCurve.measured(nodes, trained, moves, travelled, 50, training, solved=np.zeros(3))
    assert trained_only.rounds == 8
