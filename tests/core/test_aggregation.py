"""Against exact arithmetic: rational numbers where the tensors are small, float64 and more where they are not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rescind.core.aggregation import Aggregator, RoundMeasurement

DTYPES = [np.float32, np.float64]
UNIT = {np.float32: 2.0**-24, np.float64: 2.0**-53}
# The size of the added bound, for 20 participants and updates of a hundredth of the parameters, in either type.
CLAIMED = 2e-12


def rationals(tensor):
    return [Fraction(value) for value in np.asarray(tensor, dtype=np.float64).reshape(-1).tolist()]


class Exact:
    """The same quantities in rational numbers, squared where they are norms."""

    def __init__(self, weights, rounds):
        total = sum(map(Fraction, weights))
        self.shares = [Fraction(weight) / total for weight in weights]
        rows = [[] for _ in weights]
        for previous, updated in rounds:
            base = rationals(previous)
            for row, tensor in zip(rows, updated, strict=True):
                row += [value - origin for value, origin in zip(rationals(tensor), base, strict=True)]
        self.mean = [self.combine(column) for column in zip(*rows, strict=True)]
        self.centred = [[value - mean for value, mean in zip(row, self.mean, strict=True)] for row in rows]

    def combine(self, values):
        return sum((share * value for share, value in zip(self.shares, values, strict=True)), Fraction(0))

    def squares(self):
        return [sum(value * value for value in row) for row in self.centred]

    def group_square(self, members):
        columns = zip(*(self.centred[member] for member in members), strict=True)
        shares = [self.shares[member] for member in members]
        return sum(sum(share * value for share, value in zip(shares, column, strict=True)) ** 2 for column in columns)

    def update_square(self):
        return sum(value * value for value in self.mean)


def aggregate(weights, rounds, **options) -> RoundMeasurement:
    aggregator = Aggregator(weights, **options)
    for previous, updated in rounds:
        aggregator.add(previous, updated)
    return aggregator.result()


def group_square(gram, weights, members):
    inside = np.zeros(len(weights))
    inside[members] = (np.asarray(weights) / np.sum(weights))[members]
    return float(inside @ gram @ inside)


def assert_upper_bounds(weights, rounds, groups=()):
    exact = Exact(weights, rounds)
    for gram in (False, True):
        result = aggregate(weights, rounds, gram=gram)
        for distance, square in zip(result.distances.tolist(), exact.squares(), strict=True):
            assert Fraction(distance) ** 2 >= square
        assert Fraction(result.update_norm) ** 2 >= exact.update_square()
    for members in groups:
        assert Fraction(group_square(result.gram, weights, members)) >= exact.group_square(members)


def federation(seed, dtype, participants=5, size=40, update=1e-2, common=0.0, spread=1):
    """Random parameters, a part of the update that all share, and a part of each one's own."""
    rng = np.random.default_rng(seed)
    previous = rng.standard_normal(size).astype(dtype)
    shared = common * rng.standard_normal(size)
    updated = [(previous + shared + update * rng.standard_normal(size)).astype(dtype) for _ in range(participants)]
    weights = np.exp(spread * rng.standard_normal(participants)).tolist()
    return weights, [(previous, updated)]


def measured(weights, rounds):
    """Distances, mean and centred updates in extended precision: as good as exact for what is asked of it."""
    if rounds[0][0].dtype == np.float64 and np.finfo(np.longdouble).eps > 1e-18:
        pytest.skip("this machine has no precision beyond float64")
    shares = np.asarray(weights, dtype=np.longdouble) / np.sum(np.asarray(weights, dtype=np.longdouble))
    rows = np.concatenate(
        [
            np.stack([(tensor.astype(np.longdouble) - base).reshape(-1) for tensor in updated])
            for base, updated in rounds
        ],
        axis=1,
    )
    mean = shares @ rows
    centred = rows - mean
    return np.sqrt((centred**2).sum(axis=1)), mean, centred


# Upper bounds


@st.composite
def small_rounds(draw):
    dtype = draw(st.sampled_from(DTYPES))
    largest = draw(st.sampled_from([1.0, 1e-30, 1e30]))
    width = 8 * np.dtype(dtype).itemsize
    limit = float(np.float32(largest))
    elements = st.floats(-limit, limit, width=width, allow_subnormal=True)
    participants = draw(st.integers(1, 4))
    shapes = draw(st.lists(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3), min_size=1, max_size=2))
    rounds = []
    for shape in shapes:
        tensors = [draw(hnp.arrays(dtype, shape, elements=elements)) for _ in range(participants + 1)]
        rounds.append((tensors[0], tensors[1:]))
    weights = draw(
        st.lists(st.integers(1, 10**7) | st.floats(1e-7, 1.0), min_size=participants, max_size=participants)
    )
    groups = draw(
        st.lists(st.lists(st.integers(0, participants - 1), min_size=1, unique=True), min_size=1, max_size=3)
    )
    return weights, rounds, groups


@settings(max_examples=200, deadline=None)
@given(small_rounds())
def test_results_are_upper_bounds_whatever_is_sent(case):
    assert_upper_bounds(*case)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    dtype=st.sampled_from(DTYPES),
    update=st.sampled_from([1e-7, 1e-3, 1.0, 1e3]),
    common=st.sampled_from([0.0, 1.0, 1e4]),
    spread=st.sampled_from([0, 1, 6]),
)
def test_results_are_upper_bounds_for_likely_rounds(seed, dtype, update, common, spread):
    weights, rounds = federation(seed, dtype, update=update, common=common, spread=spread)
    rng = np.random.default_rng(seed)
    groups = [rng.permutation(5)[:count].tolist() for count in (1, 2, 3, 4, 5)]
    assert_upper_bounds(weights, rounds, groups)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(15))
def test_a_group_that_nearly_cancels_is_not_underestimated(dtype, seed):
    rng = np.random.default_rng(seed)
    previous, update = rng.standard_normal((2, 40)).astype(dtype)
    noise = np.finfo(dtype).eps * rng.standard_normal((4, 40)).astype(dtype)
    updated = [
        previous + sign * scale * update + part
        for sign, scale, part in zip((1, -1, 1, -1), (1, 1, 3, 3), noise, strict=True)
    ]
    updated = [tensor.astype(dtype) for tensor in updated]
    assert_upper_bounds([1, 1, 1, 1], [(previous, updated)], [[0, 1], [2, 3], [0, 3], [0, 1, 2, 3]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_updates_alike_but_for_their_last_bits(dtype):
    for seed in range(12):
        weights, rounds = federation(seed, dtype, size=200, update=UNIT[dtype], common=1.0)
        assert_upper_bounds(weights, rounds, [[0, 1], [2]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_differences_that_the_subtraction_rounds_away(dtype):
    previous = np.full(10, -1e4, dtype)
    updated = [np.ones(10, dtype), np.full(10, 1 + np.finfo(dtype).eps, dtype)]
    assert (updated[0] - previous == updated[1] - previous).all()
    assert_upper_bounds([1, 1], [(previous, updated)], [[0], [1]])


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-21), (np.float64, 1e-162), (np.float64, 1e-300)])
def test_updates_whose_squares_underflow(dtype, scale):
    weights, [(previous, updated)] = federation(0, dtype, update=1.0)
    rounds = [(previous * dtype(scale), [tensor * dtype(scale) for tensor in updated])]
    assert_upper_bounds(weights, rounds, [[0], [1, 2], [0, 1, 2, 3, 4]])


# Tight bounds


def proven(weights, rounds, exact, mean):
    """The bound as the theory has it, relative to the distances: of their squares, and of what they miss."""
    participants, shares = len(weights), np.asarray(weights) / np.sum(weights)
    length = 1024 * 1024 // (8 * (participants + 2)) // 128 * 128
    additions = length + -(-mean.size // length) + 1
    common = shares @ exact + np.linalg.norm((rounds[0][0] + mean).astype(np.float64))
    squares = (additions + 1) * 2.0**-53
    missed = 2 * 2.0**-53 + (participants + 4) * 2.0**-53 * common / exact
    return squares, missed.astype(np.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gram", [False, True])
def test_the_added_bound_is_as_small_as_claimed(dtype, gram):
    weights, rounds = federation(1, dtype, participants=20, size=30_000)
    exact, mean, _ = measured(weights, rounds)
    result = aggregate(weights, rounds, gram=gram)
    assert np.all(result.distances >= exact)
    assert np.all(result.distances <= exact * (1 + CLAIMED))
    norm = np.sqrt((mean**2).sum())
    assert norm <= result.update_norm <= norm * (1 + 2 * CLAIMED)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("update", "common"), [(1.0, 0.0), (1e-3, 1.0)])
def test_the_added_bound_is_the_proven_one(dtype, update, common):
    """Either side of it: a term forgotten or counted twice would show."""
    weights, rounds = federation(2, dtype, participants=20, size=30_000, update=update, common=common)
    exact, mean, _ = measured(weights, rounds)
    squares, missed = proven(weights, rounds, exact, mean)
    bound = squares / 2 + missed + 2 * 16 * 2.0**-53
    gap = (aggregate(weights, rounds).distances / exact - 1).astype(np.float64)
    assert np.all(gap >= 0.9 * bound)
    assert np.all(gap <= 1.1 * bound)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_matrix_is_raised_as_proven(dtype):
    weights, rounds = federation(3, dtype, participants=20, size=30_000)
    exact, mean, centred = measured(weights, rounds)
    squares, missed = proven(weights, rounds, exact, mean)
    bound = squares + 2 * missed.mean() + 144 * 2.0**-53
    gram = aggregate(weights, rounds, gram=True).gram
    lift = ((gram - centred @ centred.T) / np.outer(exact, exact)).astype(np.float64)
    assert np.array_equal(gram, gram.T)
    assert lift.min() >= 0.9 * bound
    assert lift.max() <= 1.1 * bound
    assert bound <= 2 * CLAIMED


def test_the_matrix_and_the_weights_cancel():
    weights, rounds = federation(4, np.float64, participants=20, size=500)
    gram = aggregate(weights, rounds, gram=True).gram
    shares = np.asarray(weights) / np.sum(weights)
    assert np.abs(gram @ shares).max() < 1e-12 * np.abs(gram).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("power", range(-30, 31, 10))
def test_every_scale(dtype, power):
    weights, [(previous, updated)] = federation(5, np.float64, participants=6, size=300)
    scale = 10.0**power
    scaled = [(tensor * scale).astype(dtype) for tensor in (previous, *updated)]
    rounds = [(scaled[0], scaled[1:])]
    exact, _, _ = measured(weights, rounds)
    distances = aggregate(weights, rounds).distances
    assert np.all(distances >= exact)
    assert np.all(distances <= exact * (1 + CLAIMED))
    assert_upper_bounds(weights, [(scaled[0][:20], [tensor[:20] for tensor in scaled[1:]])], [[0, 1, 2]])


def test_float32_values_whose_squares_overflow():
    largest = np.finfo(np.float32).max
    previous = np.array([-largest, 1.0, largest], dtype=np.float32)
    updated = [np.array([largest, 2.0, largest], dtype=np.float32), -previous]
    aggregator = Aggregator([1, 1])
    new = aggregator.add(previous, updated)
    assert new.tolist() == [largest, 0.5, 0.0]
    exact, _, _ = measured([1, 1], [(previous, updated)])
    assert np.all(aggregator.result().distances >= exact)
    np.testing.assert_allclose(aggregator.result().distances, exact.astype(np.float64), rtol=1e-13)


# The mean


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_new_tensor(dtype, rate):
    weights, [(previous, updated)] = federation(6, dtype, participants=20, size=30_000, common=0.1)
    new = Aggregator(weights, server_learning_rate=rate).add(previous, updated)
    _, mean, _ = measured(weights, [(previous, updated)])
    assert new.dtype == dtype
    assert new.shape == previous.shape
    np.testing.assert_allclose(
        new.astype(np.float64), (previous + rate * mean).astype(np.float64), rtol=0, atol=8 * UNIT[dtype]
    )


def test_the_learning_rate_leaves_the_measurements_alone():
    weights, rounds = federation(7, np.float32)
    slow = aggregate(weights, rounds, server_learning_rate=0.1)
    assert np.array_equal(slow.distances, aggregate(weights, rounds).distances)


def test_weights_are_shares():
    weights, rounds = federation(8, np.float64)
    once = aggregate(weights, rounds, gram=True)
    for scale in (2.0**-40, 2.0**40):
        again = aggregate([scale * weight for weight in weights], rounds, gram=True)
        assert np.array_equal(again.gram, once.gram)
    aggregate([1e308] * 5, rounds)


def test_a_participant_of_next_to_no_weight():
    _, [(previous, updated)] = federation(9, np.float32, participants=2)
    assert_upper_bounds([1.0, 1e-7], [(previous, updated)], [[0], [1], [0, 1]])
    distances = aggregate([1.0, 1e-7], [(previous, updated)]).distances
    # Of two, each one's distance is the other's share of the way between them.
    between = np.linalg.norm(updated[0].astype(np.float64) - updated[1])
    assert distances[1] == pytest.approx(between, rel=1e-5)
    assert distances[0] < 1e-5 * distances[1]


# Shapes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gram", [False, True])
def test_tensors_in_pieces_and_layouts(dtype, gram):
    weights, [(previous, updated)] = federation(10, dtype, participants=3, size=3600)
    whole = Aggregator(weights, gram=gram)
    new = whole.add(previous, updated)
    split = Aggregator(weights, gram=gram)
    cuts = [slice(0, 1), slice(1, 1), slice(1, 1201), slice(1201, 1800), slice(1800, 3600)]
    shapes = [(), (0, 3), (30, 40), (599,), (2, 30, 30)]
    for cut, shape in zip(cuts, shapes, strict=True):
        tensors = [tensor[cut].reshape(shape) for tensor in (previous, *updated)]
        tensors[1] = np.asfortranarray(tensors[1]) if shape else tensors[1]
        if len(shape) == 2:
            tensors[2] = np.repeat(tensors[2], 2, axis=1)[:, ::2]
        part = split.add(tensors[0], tensors[1:])
        assert part.shape == shape
        assert np.array_equal(part.reshape(-1), new[cut])
    one, several = whole.result(), split.result()
    np.testing.assert_allclose(several.distances, one.distances, rtol=CLAIMED)
    assert several.update_norm == pytest.approx(one.update_norm, rel=CLAIMED)
    if gram:
        np.testing.assert_allclose(several.gram, one.gram, atol=CLAIMED * one.distances.max() ** 2)


def test_both_precisions_in_one_round():
    weights, single = federation(11, np.float32)
    _, double = federation(12, np.float64)
    assert_upper_bounds(weights, single + double, [[0, 1], [4]])
    assert_upper_bounds(weights, double + single, [[0, 1], [4]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_participant_is_the_mean(dtype):
    previous, updated = np.array([1.0, 2.0], dtype), np.array([4.0, 6.0], dtype)
    aggregator = Aggregator([7], gram=True)
    assert aggregator.add(previous, [updated]).tolist() == [4.0, 6.0]
    result = aggregator.result()
    assert result.distances.tolist() == [0.0]
    assert result.gram.tolist() == [[0.0]]
    assert 5.0 <= result.update_norm <= 5.0 * (1 + CLAIMED)


def test_identical_updates_are_at_rounding_distance():
    rng = np.random.default_rng(13)
    previous, update = rng.standard_normal((2, 1000)).astype(np.float32)
    result = aggregate([1, 2, 3], [(previous, [previous + update] * 3)], gram=True)
    assert np.all(result.distances <= 1e-13 * np.linalg.norm(update))
    assert np.all(aggregate([1, 2], [(previous, [previous] * 2)]).distances < 1e-13)


def test_nothing_added():
    result = aggregate([1, 2], [], gram=True)
    assert np.all(result.distances < 1e-150)
    assert result.update_norm < 1e-150


# Hostile participants


@pytest.mark.parametrize("gram", [False, True])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [(dtype, value) for dtype in DTYPES for value in (np.nan, np.inf, -np.inf)] + [(np.float64, 1e200)],
)
def test_a_bad_value_is_traced_to_its_participant(dtype, value, gram):
    weights, [(previous, updated)] = federation(14, dtype, participants=20, size=30_000)
    aggregator = Aggregator(weights, gram=gram)
    aggregator.add(previous, updated)
    before = aggregator.result()
    bad = [tensor.copy() for tensor in updated]
    bad[13][23_456] = value
    with pytest.raises(ValueError, match="participant 13: a value that is not finite or is beyond"):
        aggregator.add(previous, bad)
    after = aggregator.result()
    assert np.array_equal(before.distances, after.distances)
    assert before.update_norm == after.update_norm
    bad_previous = previous.copy()
    bad_previous[0] = value
    with pytest.raises(ValueError, match="previous tensor: a value"):
        aggregator.add(bad_previous, updated)


@pytest.mark.parametrize(
    ("replacement", "message"),
    [
        (np.zeros(4, dtype=np.float64), "participant 1: dtype float64, must be float32"),
        (np.zeros(4, dtype=">f4"), "participant 1: dtype >f4, must be float32"),
        (np.zeros(4, dtype=np.int32), "participant 1: dtype int32, must be float32"),
        (np.zeros((2, 2), dtype=np.float32), r"participant 1: shape \(2, 2\), must be \(4,\)"),
        (np.zeros(1, dtype=np.float32), r"participant 1: shape \(1,\), must be \(4,\)"),
        (np.zeros((), dtype=np.float32), r"participant 1: shape \(\), must be \(4,\)"),
    ],
)
def test_a_tensor_of_the_wrong_kind_is_refused(replacement, message):
    good = np.zeros(4, dtype=np.float32)
    with pytest.raises(ValueError, match=message):
        Aggregator([1, 1, 1]).add(good, [good, replacement, good])


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.complex64, ">f8", object])
def test_a_previous_tensor_of_the_wrong_kind_is_refused(dtype):
    with pytest.raises(ValueError, match="previous tensor: dtype"):
        Aggregator([1]).add(np.zeros(2, dtype), [np.zeros(2, dtype)])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_one_tensor_per_participant(count):
    good = np.zeros(4)
    with pytest.raises(ValueError, match=f"{count} tensors for 2 participants"):
        Aggregator([1, 1]).add(good, [good] * count)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([], "at least one number"),
        (3.0, "at least one number"),
        ([1, 0], "participant 1: weight 0"),
        ([-1, 2], "participant 0: weight -1"),
        ([1, np.nan], "participant 1: weight nan"),
        ([np.inf, 1], "participant 0: weight inf"),
        ([1, 1e-40], "participant 1: weight too small"),
    ],
)
def test_weights_are_positive_numbers(weights, message):
    with pytest.raises(ValueError, match=message):
        Aggregator(weights)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1.5, np.nan])
def test_the_learning_rate_is_a_step_towards_the_mean(rate):
    with pytest.raises(ValueError, match="server_learning_rate"):
        Aggregator([1], server_learning_rate=rate)
