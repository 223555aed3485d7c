import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescind.core.recovery import RecoveryCurve, predicted_rounds, shrinkage

CURVE = RecoveryCurve(np.arange(41.0), 10 * (0.8 ** np.arange(41.0) - 0.8**40))


def test_without_noise_the_rest_of_training_is_predicted() -> None:
    for node in (0, 7, 25, 40):
        assert predicted_rounds(CURVE, node, 0.0, 100) == pytest.approx(40 - node, abs=1e-9)


@given(st.floats(0, 40), st.floats(1e-4, 10), st.floats(1, 3))
def test_more_noise_is_never_predicted_to_be_much_cheaper(node: float, sigma: float, more: float) -> None:
    """Shrinking starts at a threshold, where it may save a little at once; otherwise noise costs rounds."""
    before, after = (predicted_rounds(CURVE, node, level, 100) for level in (sigma, sigma * more))
    assert after >= before - 0.25 * CURVE.rounds


@given(st.floats(0, 40), st.floats(0, 100))
def test_shrinking_keeps_the_worst_case_near_scratch(node: float, sigma: float) -> None:
    assert predicted_rounds(CURVE, node, sigma, 10_000) <= CURVE.rounds * 1.1


def test_distances_beyond_the_start_are_extrapolated() -> None:
    near = CURVE.rounds_from(CURVE.distances[0])
    assert near == CURVE.rounds
    assert CURVE.rounds_from(10 * CURVE.distances[0]) > near + 5
    flat = RecoveryCurve(np.array([0.0, 10.0]), np.array([1.0, 1.0]))
    assert np.isfinite(flat.rounds_from(100.0))


def test_training_that_steps_back_counts_from_the_last_time() -> None:
    detour = RecoveryCurve(np.arange(5.0), np.array([4.0, 1.0, 3.0, 1.0, 0.0]))
    assert detour.rounds_from(2.0) == pytest.approx(1.5)


def test_a_public_curve_needs_no_history() -> None:
    curve = RecoveryCurve.public(contraction=0.9, radius=5.0, rounds=30)
    assert curve.rounds == 30
    assert curve.distance(10) == pytest.approx(5 * 0.9**10)


def test_shrinkage_uses_the_noised_node_alone() -> None:
    assert shrinkage(10.0, 0.0, 100) == 1.0
    assert shrinkage(10.0, 0.1, 100) == 1.0  # the noise is a hundredth of the square: left alone
    assert shrinkage(10.0, 0.9, 100) == pytest.approx(1 - 0.81)
    assert shrinkage(10.0, 2.0, 100) == 0.0
    assert shrinkage(0.0, 2.0, 100) == 0.0
    with pytest.raises(ValueError, match="sigma is -1"):
        shrinkage(1.0, -1, 100)


@pytest.mark.parametrize(
    ("nodes", "distances"),
    [([0.0], [1.0]), ([0.0, 0.0], [1.0, 0.0]), ([0.0, 1.0], [1.0, -1.0]), ([0.0, 1.0], [1.0])],
)
def test_a_curve_that_is_none_is_refused(nodes: list[float], distances: list[float]) -> None:
    with pytest.raises(ValueError, match="recovery curve"):
        RecoveryCurve(np.array(nodes), np.array(distances))


def test_the_first_half_tells_how_far_beyond_the_start_costs() -> None:
    steady = RecoveryCurve.public(contraction=0.9, radius=5.0, rounds=30)
    for rounds in (1.0, 7.5):
        assert steady.rounds_from(5.0 / 0.9**rounds) == pytest.approx(30 + rounds)
    arrived = RecoveryCurve(np.array([0.0, 5.0, 10.0]), np.array([1.0, 0.0, 0.0]))
    assert 10 < arrived.rounds_from(100.0) < 11


@pytest.mark.parametrize(("distance", "rounds"), [(0.0, 0.0), (1.5, 0.5), (3.5, 2.5), (4.5, 4.5), (5.0, 5.0)])
def test_only_the_last_time_that_training_was_as_far_away_counts(distance: float, rounds: float) -> None:
    detour = RecoveryCurve(np.arange(6.0), np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0]))
    assert detour.rounds_from(distance) == pytest.approx(rounds)


def test_where_a_curve_starts_to_count_does_not_matter() -> None:
    later = RecoveryCurve(CURVE.nodes + 100, CURVE.distances)
    assert later.rounds == CURVE.rounds
    for node, sigma in ((0.0, 0.0), (7.0, 0.1), (25.0, 3.0)):
        assert predicted_rounds(later, node + 100, sigma, 100) == pytest.approx(
            predicted_rounds(CURVE, node, sigma, 100)
        )
    assert later.rounds_from(1000.0) == pytest.approx(CURVE.rounds_from(1000.0))


def test_a_node_is_shrunk_only_where_the_noise_outweighs_what_was_learnt() -> None:
    assert shrinkage(10.0, 0.5, 100) == 1.0
    assert shrinkage(10.0, 1.0, 50) == 1.0
    assert shrinkage(10.0, 0.75, 100) == pytest.approx(1 - 0.75**2)
    assert shrinkage(0.0, 0.0, 100) == 1.0
    with pytest.raises(ValueError, match="noised_distance is -1"):
        shrinkage(-1, 1.0, 100)


def test_the_prediction_by_hand() -> None:
    """Halfway along a straight way of length 10: noise of norm 12 leaves 13, of which 25/169 is kept."""
    straight = RecoveryCurve(np.array([0.0, 20.0]), np.array([10.0, 0.0]))
    assert predicted_rounds(straight, 10, 0.3, 100) == pytest.approx(2 * np.hypot(5, 3))
    kept = 25 / 169
    expected = np.hypot((1 - kept) * 10 + kept * 5, kept * 12)
    assert predicted_rounds(straight, 10, 1.2, 100) == pytest.approx(2 * expected)
    # A node further away than the start has learnt nothing that is worth keeping under noise.
    back = RecoveryCurve(np.array([0.0, 10.0, 20.0]), np.array([1.0, 4.0, 0.0]))
    assert predicted_rounds(back, 10, 0.1, 100) == pytest.approx(2.5)


def test_training_that_never_moved_says_nothing_about_noise() -> None:
    still = RecoveryCurve(np.array([0.0, 5.0]), np.zeros(2))
    assert still.rounds_from(3.0) == 5.0


def test_an_erased_stretch_counts_its_rounds() -> None:
    """Retraining costs the rounds that training took, however few edges are left of them."""
    nodes, distances = np.array([0.0, 50.0, 100.0]), np.array([8.0, 2.0, 0.0])
    whole = RecoveryCurve(nodes, distances)
    collapsed = RecoveryCurve(np.array([0.0, 1.0, 51.0]), distances, trained=nodes)
    assert collapsed.rounds == whole.rounds == 100
    for distance in (0.0, 1.0, 2.0, 5.0, 8.0, 20.0):
        assert collapsed.rounds_from(distance) == whole.rounds_from(distance)
    assert collapsed.distance(1.0) == whole.distance(50.0)
    for wrong in (nodes[:2], -nodes, np.zeros(3)):
        with pytest.raises(ValueError, match="rounds trained"):
            RecoveryCurve(nodes, distances, trained=wrong)
