from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescind.core.aggregation import Aggregator
from rescind.core.edges import RoundEdge
from rescind.core.sensitivity import (
    client_deltas,
    group_delta,
    group_delta_bound,
    leave_one_out_sums,
)

seeds = st.integers(0, 2**32 - 1)


def random_round(
    seed: int, count: int, rate: float = 1.0, weights: np.ndarray | None = None
) -> tuple[RoundEdge, np.ndarray]:
    """A round as the server records it, and the updates behind it."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(1, 100, count).astype(float) if weights is None else weights
    # The first model is 0, so that what is recorded and the updates are the same numbers.
    updates = rng.normal(size=(count, 6)) + rng.choice([0, 10]) * rng.normal(size=6)
    aggregator = Aggregator(chosen, gram=True, server_learning_rate=rate)
    aggregator.add(np.zeros(6), list(updates))
    measured = aggregator.result()
    recorded = RoundEdge(
        clients=np.arange(count),
        weights=chosen,
        factors=np.ones(count),
        distances=measured.distances,
        update_norm=measured.update_norm,
        rounding=0.0,
        gram=measured.gram,
        server_learning_rate=rate,
    )
    return recorded, updates


def direct_delta(round_: RoundEdge, updates: np.ndarray, inside: np.ndarray) -> float:
    """The definition: the update with everybody against the update without the group."""
    everybody = np.average(updates, axis=0, weights=round_.weights)
    others = np.zeros(updates.shape[1])
    if not inside.all():
        others = np.average(updates[~inside], axis=0, weights=round_.weights[~inside])
    return round_.server_learning_rate * float(np.linalg.norm(everybody - others))


@given(seeds, st.integers(1, 12), st.sampled_from([1.0, 0.4]))
def test_deltas_are_the_definition(seed: int, count: int, rate: float) -> None:
    round_, updates = random_round(seed, count, rate)
    deltas = client_deltas(round_)
    for client in range(count):
        inside = np.arange(count) == client
        direct = direct_delta(round_, updates, inside)
        assert deltas[client] == pytest.approx(direct, rel=1e-9)
        # The definition is a difference of two means, and rounded itself.
        assert deltas[client] >= direct * (1 - 1e-12) - 1e-14 * np.abs(updates).max()
        assert group_delta(round_, inside) == pytest.approx(direct, rel=1e-9)


@given(seeds, st.integers(1, 12), st.sampled_from([1.0, 0.4]), st.data())
def test_a_group_is_exact_with_the_matrix_and_bounded_without(
    seed: int, count: int, rate: float, data: st.DataObject
) -> None:
    round_, updates = random_round(seed, count, rate)
    inside = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    direct = direct_delta(round_, updates, inside)
    scale = float(np.abs(round_.distances).max())
    assert group_delta(round_, inside) == pytest.approx(direct, rel=1e-9, abs=1e-6 * scale)
    assert group_delta(round_, inside) >= direct * (1 - 1e-12)
    assert group_delta_bound(round_, inside) >= direct * (1 - 1e-12)
    assert group_delta_bound(round_, inside) >= group_delta(round_, inside)


def test_the_bound_is_the_sum_over_single_clients() -> None:
    round_, _ = random_round(1, 5)
    inside = np.array([True, True, False, False, True])
    shares = round_.weights / round_.weights.sum()
    terms = (1 - shares) / (1 - shares[inside].sum()) * client_deltas(round_)
    assert group_delta_bound(round_, inside) == pytest.approx(terms[inside].sum())


def test_a_remainder_that_weighs_nothing_is_seen_from_its_own_side() -> None:
    """With p_R = 1e-7 the leavers' side of the matrix alone is wrong in the fourth digit."""
    round_, updates = random_round(3, 4, weights=np.array([3.0, 5.0, 2.0, 1e-6]))
    inside = np.array([True, True, True, False])
    direct = direct_delta(round_, updates, inside)
    assert group_delta(round_, inside) == pytest.approx(direct, rel=1e-8)
    assert group_delta(round_, inside) >= direct * (1 - 1e-12)


def test_a_client_that_was_alone_moved_the_model_by_all() -> None:
    round_, updates = random_round(5, 1, rate=0.5)
    everything = 0.5 * np.linalg.norm(updates[0])
    assert client_deltas(round_)[0] == pytest.approx(everything)
    assert group_delta(round_, np.array([True])) == pytest.approx(everything)


def test_a_delta_follows_from_a_client_s_own_distance() -> None:
    round_, updates = random_round(7, 6)
    mean = np.average(updates, axis=0, weights=round_.weights)
    distance = float(np.linalg.norm(mean - updates[0]))
    own = round_.weights[0] / round_.weights[1:].sum() * distance
    assert own == pytest.approx(client_deltas(round_)[0])


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=20))
def test_leaving_one_out_does_not_cancel(values: list[float]) -> None:
    sums = leave_one_out_sums(np.array(values))
    for index, total in enumerate(sums):
        assert total == pytest.approx(sum(values[:index] + values[index + 1 :]), rel=1e-12)


def test_a_matrix_that_is_none_is_not_believed() -> None:
    round_, _ = random_round(9, 3)
    impossible = replace(round_, gram=np.eye(3) - 5 * (1 - np.eye(3)))
    inside = np.array([True, True, False])
    assert group_delta(impossible, inside) > 0
    assert group_delta(impossible, inside) <= group_delta_bound(round_, inside)


def test_leavers_that_weigh_nothing_are_seen_from_their_own_side() -> None:
    """With p_W = 3e-7 the remaining side of the matrix alone, and the single distances, are too large."""
    round_, updates = random_round(3, 4, weights=np.array([3.0, 5.0, 1e-6, 2e-6]))
    inside = np.array([False, False, True, True])
    direct = direct_delta(round_, updates, inside)
    assert group_delta_bound(round_, inside) > direct * 1.01
    assert group_delta(round_, inside) == pytest.approx(direct, rel=1e-6)
    assert group_delta(round_, inside) >= direct * (1 - 1e-12)


def test_the_weight_that_remains_does_not_cancel() -> None:
    round_, _ = random_round(3, 4, weights=np.array([0.1, 0.2, 0.7, 1e-13]))
    inside = np.array([True, True, True, False])
    expected = np.array([0.1, 0.2, 0.7]) @ round_.distances[:3] / 1e-13
    assert group_delta_bound(round_, inside) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e170, 1e300])
def test_weights_count_in_any_unit(scale: float) -> None:
    usual, _ = random_round(11, 4, weights=np.array([3.0, 1.0, 4.0, 1.5]))
    scaled = replace(usual, weights=np.array([3.0, 1.0, 4.0, 1.5]) * scale)
    inside = np.array([True, False, True, False])
    assert group_delta(scaled, inside) == pytest.approx(group_delta(usual, inside), rel=1e-12)
    assert client_deltas(scaled) == pytest.approx(client_deltas(usual), rel=1e-12)
