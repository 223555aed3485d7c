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
