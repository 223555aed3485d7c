"""Ridge heads: the solution against least squares, and bit by bit whatever the order of replies and who left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescind.core.arrays import fill_symmetric, take_half
from rescind.core.regularity import NetworkLoss, SquaredL2
from rescind.core.ridge import (
    RidgeSums,
    add_up_ridge,
    check_ridge_loss,
    check_ridge_sums,
    choose_l2,
    fixed_point_bits,
    quantise,
    ridge_solution,
    ridge_sums,
)
from rescind.core.training import LocalTraining
from rescind.engines.heads import sum_ridge

LOSS = SquaredL2(0.01, 2.0, 1.0)
# Theory section 16: Y / sqrt(lambda), whatever the rows.
LONGEST_SOLUTION = LOSS.target_norm / np.sqrt(LOSS.l2)
Part = tuple[np.ndarray, np.ndarray]


def parts_of(seed: int, clients: int = 4, features: int = 5, outputs: int = 3) -> list[Part]:
    rng = np.random.default_rng(seed)
    return [
        (2 * rng.normal(size=(size, features)), np.eye(outputs)[rng.integers(0, outputs, size)])
        for size in rng.integers(1, 60, clients)
    ]


def answers(parts: list[Part]) -> list[RidgeSums]:
    return [sum_ridge(rows, targets, LOSS) for rows, targets in parts]


def with_room(loss: SquaredL2, rows: int) -> SquaredL2:
    """Return a loss whose sums have room for so many rows, in one client."""
    return replace(loss, most_rows=rows, most_clients=1)


def test_the_solution_is_that_of_least_squares() -> None:
    """numpy's least squares, on the rows and sqrt(lambda N) times the identity below them."""
    parts = parts_of(0)
    rows, targets = (np.concatenate(both) for both in zip(*parts, strict=True))
    rows = rows * np.minimum(1, 2 / np.linalg.norm(rows, axis=1, keepdims=True))
    extended = np.column_stack([rows, np.ones(len(rows))])
    below = np.vstack([extended, np.sqrt(LOSS.l2 * len(rows)) * np.eye(6)])
    golden = np.linalg.lstsq(below, np.vstack([targets, np.zeros((6, 3))]))[0].T
    theta = ridge_solution(add_up_ridge(answers(parts)), LOSS.l2)
    np.testing.assert_allclose(theta.reshape(3, 6), golden, atol=1e-3)
    assert np.linalg.norm(theta) <= LONGEST_SOLUTION


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), clients=st.integers(2, 7), data=st.data())
def test_without_a_client_it_is_the_model_that_never_saw_it_bit_by_bit(
    seed: int, clients: int, data: st.DataObject
) -> None:
    parts = parts_of(seed, clients)
    everybody = answers(parts)
    leaver = data.draw(st.integers(0, clients - 1))
    order = data.draw(st.permutations([client for client in range(clients) if client != leaver]))
    without = ridge_solution(add_up_ridge([everybody[client] for client in sorted(order)]), LOSS.l2)
    shuffled = ridge_solution(add_up_ridge([everybody[client] for client in order]), LOSS.l2)
    assert without.tobytes() == shuffled.tobytes()
    total, gone = add_up_ridge(everybody), everybody[leaver]
    left = RidgeSums(total.rows - gone.rows, total.bits, total.features - gone.features, total.targets - gone.targets)
    assert ridge_solution(left, LOSS.l2).tobytes() == without.tobytes()
    rows, targets = (np.concatenate(both) for both in zip(*(parts[client] for client in order), strict=True))
    turned = np.random.default_rng(seed).permutation(len(rows))
    together = sum_ridge(rows[turned], targets[turned], LOSS)
    assert ridge_solution(together, LOSS.l2).tobytes() == without.tobytes()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), most_rows=st.sampled_from([1000, 10**4, 10**7, 10**9]))
def test_the_sums_are_those_of_whole_numbers_without_rounding(seed: int, most_rows: int) -> None:
    loss = with_room(LOSS, most_rows)
    bits = fixed_point_bits(loss)
    rng = np.random.default_rng(seed)
    rows, targets = rng.normal(size=(700, 3)), rng.normal(size=(700, 2))
    sums = sum_ridge(rows, targets, loss)
    longest = np.linalg.norm(rows, axis=1, keepdims=True)
    margin = 1 - 2.0**-20
    rows = np.where(longest > 2 * (1 - 2.0**-21), rows * (2 * margin / longest), rows)
    whole = [[int(number) for number in row] for row in quantise(np.column_stack([rows, np.ones(700)]), bits)]
    exact = [[sum(row[one] * row[other] for row in whole) for other in range(4)] for one in range(4)]
    assert sums.features.tolist() == [exact[one][other] for one in range(4) for other in range(one, 4)]
    assert exact[3][3] == 700 * 4**bits


def test_nothing_gets_longer() -> None:
    values = np.array([0.3, -0.3, 1e-9, -1.0])
    np.testing.assert_array_equal(quantise(values, 4), [4, -4, 0, -16])


def test_the_scale_leaves_room_for_every_sum() -> None:
    for most_rows in (1, 1000, 10**6, 10**9):
        bits = fixed_point_bits(with_room(LOSS, most_rows))
        assert bits == fixed_point_bits(replace(LOSS, most_rows=1, most_clients=most_rows))
        assert most_rows * 4**bits * 5 < 2**63
        assert 256 * 4**bits * 5 <= 2**53
    assert fixed_point_bits(with_room(LOSS, 10**6)) == 20
    with pytest.raises(ValueError, match="limit the rows"):
        fixed_point_bits(with_room(LOSS, 2**60))
    for wrong in (0, 1.5, True, 2**63):
        for name in ("most_rows", "most_clients"):
            with pytest.raises(ValueError, match=name):
                replace(LOSS, **{name: wrong})


def test_the_loss_knows_its_constants() -> None:
    """Against the Hessian and the gradient of the longest row and target."""
    loss = SquaredL2(0.5, 2.0, 3.0)
    assert loss.curvature.low == 0.5
    assert loss.curvature.high == pytest.approx(5.5)
    assert loss.gradient_bound is None
    for wrong in ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0, np.inf)):
        with pytest.raises(ValueError, match="above 0"):
            SquaredL2(*wrong)


def test_squared_error_is_not_trained() -> None:
    with pytest.raises(ValueError, match="solved for"):
        LocalTraining(5, 0.1, LOSS)
    assert LocalTraining(5, 0.1, NetworkLoss()).steps == 5


def test_what_does_not_fit_is_refused() -> None:
    rows, targets = np.ones((3, 2)), np.ones((3, 1))
    with pytest.raises(ValueError, match="each row needs its target"):
        ridge_sums(rows, targets[:2], LOSS, 18)
    with pytest.raises(ValueError, match="too many"):
        ridge_sums(rows, targets, LOSS, 31)
    with pytest.raises(ValueError, match="a row is longer"):
        ridge_sums(3 * rows, targets, LOSS, 18)
    with pytest.raises(ValueError, match="a target is longer"):
        ridge_sums(rows, np.full((3, 1), np.nan), LOSS, 18)
    good = ridge_sums(rows, targets, LOSS, 18)
    assert add_up_ridge([]) is None
    with pytest.raises(ValueError, match="different scales"):
        add_up_ridge([good, ridge_sums(rows, targets, LOSS, 17)])
    large = RidgeSums(3, 18, np.full(6, 2**62), good.targets)
    with pytest.raises(ValueError, match="64 bits"):
        add_up_ridge([large, large])
    with pytest.raises(ValueError, match="negative direction"):
        ridge_solution(RidgeSums(3, 18, -good.features, good.targets), LOSS.l2)
    with pytest.raises(ValueError, match="l2"):
        ridge_solution(good, 0.0)
    with pytest.raises(ValueError, match="rows"):
        RidgeSums(0, 18, good.features, good.targets)
    with pytest.raises(ValueError, match="int64"):
        RidgeSums(3, 18, np.zeros(6), good.targets)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 dimensions"):
        RidgeSums(3, 18, np.zeros((3, 3), np.int64), good.targets)
    with pytest.raises(ValueError, match="do not fit"):
        RidgeSums(3, 18, good.features, good.targets[:, :2])


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 30), st.integers(1, 5)),
    spread=st.sampled_from([0.0, 1e-9, 0.1, 1.0, 1e6]),
    norms=st.tuples(st.sampled_from([1e-3, 1.0, 30.0]), st.sampled_from([1e-3, 1.0, 30.0])),
    most_rows=st.sampled_from([200, 10**6, 10**9]),
)
def test_an_honest_answer_is_never_doubted(
    seed: int, sizes: tuple[int, int, int], spread: float, norms: tuple[float, float], most_rows: int
) -> None:
    """Few rows and many, all alike or 0, with targets that they explain or not: alone, and added up."""
    rng = np.random.default_rng(seed)
    count, features, outputs = sizes
    loss = with_room(SquaredL2(0.1, *norms), most_rows)
    matrix = rng.normal(size=(features, outputs))
    parts = []
    for size in (count, 1, 3):
        rows = rng.normal(size=features) + spread * rng.normal(size=(size, features))
        rows *= rng.integers(0, 2, features) * norms[0]
        targets = rows @ matrix if seed % 2 else 100 * rng.normal(size=(size, outputs))
        parts.append(sum_ridge(rows, targets, loss))
    for answer in (*parts, add_up_ridge(parts)):
        assert check_ridge_sums(answer, loss, outputs, features) is None


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(1, 2**70),
    bits=st.sampled_from([18, 18, 18, -5, 400]),
    square=st.integers(-(2**63), -1),
    numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=6, max_size=6),
)
def test_hostile_numbers_give_a_reason_and_no_error(rows: int, bits: int, square: int, numbers: list[int]) -> None:
    one, two, three, *rest = numbers
    features = np.array([one, two, three, square, one, rows * 4**18 % 2**62])
    assert check_ridge_sums(RidgeSums(rows, bits, features, np.array([rest])), LOSS, 1, 2) is not None


def lie(features: object = None, targets: object = None, rows: int = 30, bits: int = 18) -> RidgeSums:
    """An honest answer of 30 rows, with something else in its place."""
    rng = np.random.default_rng(3)
    good = sum_ridge(rng.normal(size=(30, 2)), np.eye(2)[rng.integers(0, 2, 30)], LOSS)
    one, other = fill_symmetric(good.features, 3), good.targets.copy()
    for array, change in ((one, features), (other, targets)):
        if change is not None:
            change(array)  # type: ignore[operator]
    return RidgeSums(rows, bits, take_half(one), other)


def put(value: int, *places: tuple[int, int]) -> object:
    def change(array: np.ndarray) -> None:
        for place in places:
            array[place] = value

    return change


def negative_direction(array: np.ndarray) -> None:
    """No two columns contradict each other, all three do."""
    array[:] = 30 * 4**18 * np.array([[100, -80, -80], [-80, 100, -80], [-80, -80, 100]]) // 100


def unexplained(array: np.ndarray) -> None:
    """Each sum is possible by itself; all of them would need longer targets."""
    array[:] = 30 * 4**18 * 7 // 10


@pytest.mark.parametrize(
    ("reason", "sums"),
    [
        ("31 rows; 30 are believed", lie(rows=31)),
        ("absurdly many rows", lie(rows=2**70)),
        ("the scale of 18 bits", lie(bits=17)),
        ("not the shape", RidgeSums(30, 18, np.zeros(3, np.int64), np.zeros((2, 2), np.int64))),
        ("not the shape", RidgeSums(30, 18, np.zeros(6, np.int64), np.zeros((3, 3), np.int64))),
        ("count other rows", lie(rows=29)),
        ("count other rows", lie(features=put(30 * 4**18 + 1, (2, 2)))),
        ("not those of so many rows", lie(features=put(-1, (0, 0)))),
        ("not those of so many rows", lie(features=put(121 * 4**18, (0, 0)))),
        ("not those of so many rows", lie(features=put(2**63 - 1, (0, 0), (1, 1)))),
        ("larger than its columns allow", lie(features=put(100 * 4**18, (0, 1), (1, 0)))),
        ("larger than its columns allow", lie(features=put(0, (0, 0)))),
        ("larger than its columns allow", lie(features=put(-(2**63), (0, 2), (2, 0)))),
        ("larger than any of so many rows", lie(targets=put(31 * 4**18, (0, 2)))),
        ("larger than any of so many rows", lie(targets=put(-(2**63), (1, 0)))),
        ("negative direction", lie(features=negative_direction)),
        ("no targets have such sums", lie(targets=unexplained)),
    ],
)
def test_what_no_rows_can_have_is_found(reason: str, sums: RidgeSums) -> None:
    assert reason in str(check_ridge_sums(sums, replace(LOSS, most_rows=30, most_clients=2**24 // 30), 2, 2))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_targets_are_doubted_where_nothing_can_have_them(seed: int) -> None:
    """Just below the limit they pass, and the solution is no longer than honest clients could make it."""
    honest = lie()
    direction = np.random.default_rng(seed).normal(size=(2, 3))
    explained = np.trace(direction @ np.linalg.solve(honest.matrix, direction.T))
    longest = direction * np.sqrt(30 * 4**18 * LOSS.target_norm**2 / explained)
    below, above = (RidgeSums(30, 18, honest.features, (part * longest).astype(np.int64)) for part in (0.999, 1.001))
    assert check_ridge_sums(below, LOSS, 2, 2) is None
    assert check_ridge_sums(above, LOSS, 2, 2) is not None
    assert np.linalg.norm(ridge_solution(below, LOSS.l2)) <= LONGEST_SOLUTION


def test_no_answer_that_is_believed_leaves_a_head_without_a_solution() -> None:
    """Rows whose features add up to 0, and in that direction a sum below 0, as far as rounding might carry it."""
    loss, features, rows = SquaredL2(1e-9, 1.0), 3, 2**20
    loss = with_room(loss, rows)
    bits = fixed_point_bits(loss)
    flat = np.full((features, features), -0.5) + 1.5 * np.eye(features)
    matrix = np.zeros((features + 1, features + 1))
    matrix[:-1, :-1] = flat / np.trace(flat)
    matrix[-1, -1] = 1.0
    matrix[:-1, :-1] -= 0.9 * 2.0**-26 * np.trace(matrix) / features
    whole = np.rint(matrix * rows * 4.0**bits).astype(np.int64)
    sums = RidgeSums(rows, bits, take_half(whole), np.zeros((2, features + 1), np.int64))
    assert check_ridge_sums(sums, loss, 2, features) is None
    with pytest.raises(ValueError, match="negative direction"):
        ridge_solution(sums, loss.l2)
    with pytest.raises(ValueError, match="a ridge head needs at least 6e-08"):
        check_ridge_loss(loss)
    check_ridge_loss(SquaredL2(6e-8, 1.0))
    assert np.isfinite(ridge_solution(sums, 6e-8)).all()


CHOICES = (1e-4, 1e-2, 1.0)


def chosen_by_rows(parts: list[Part]) -> float:
    """Return the L2 term that leaves the least squared error on rows left out, computed from the rows themselves."""
    clipped = [(rows * np.minimum(1, 2 / np.linalg.norm(rows, axis=1, keepdims=True)), own) for rows, own in parts]

    def error(l2: float) -> float:
        total = 0.0
        for at, (rows, targets) in enumerate(clipped):
            rest, wanted = (
                np.concatenate(both)
                for both in zip(*(part for other, part in enumerate(clipped) if other != at), strict=True)
            )
            extended = np.column_stack([rest, np.ones(len(rest))])
            head = np.linalg.solve(
                extended.T @ extended / len(rest) + l2 * np.eye(6), extended.T @ wanted / len(rest)
            )
            total += float(np.square(np.column_stack([rows, np.ones(len(rows))]) @ head - targets).sum())
        return total

    return min(CHOICES, key=error)


def test_the_l2_term_is_chosen_as_by_leaving_rows_out() -> None:
    loss, found = replace(LOSS, l2_choices=CHOICES), set[float]()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        # Rows that tell more, or less, of what they are to be.
        told, parts = rng.choice([0, 1, 20]), parts_of(seed, clients=5)
        taught = [
            (rows, np.eye(3)[(rows[:, :3] * told + rng.normal(size=(len(rows), 3))).argmax(axis=1)])
            for rows, _ in parts
        ]
        l2 = choose_l2([sum_ridge(*part, loss) for part in taught], loss)
        assert l2 == chosen_by_rows(taught)
        found.add(l2)
    assert len(found) > 1


def test_the_declared_l2_term_is_taken_where_nothing_can_be_chosen() -> None:
    loss = replace(LOSS, l2_choices=CHOICES)
    one, two = parts_of(1, clients=2)
    sums = [sum_ridge(*part, loss) for part in (one, two)]
    assert choose_l2(sums, LOSS) == choose_l2(sums[:1], loss) == choose_l2([], loss) == LOSS.l2
    # Of one class all rows are in one fold.
    alone = two[0], np.eye(3)[np.zeros(len(two[0]), int)]
    assert choose_l2([sums[0], sum_ridge(*alone, loss)], loss) == LOSS.l2
    assert choose_l2(sums, loss) in CHOICES


def test_every_l2_term_to_choose_from_has_to_be_allowed() -> None:
    with pytest.raises(ValueError, match="needs at least"):
        check_ridge_loss(replace(LOSS, l2_choices=(1e-9, 1.0)))
    for unfit in ((0.0,), (float("nan"),), (1e300,)):
        with pytest.raises(ValueError, match="l2_choices"):
            replace(LOSS, l2_choices=unfit)
    with pytest.raises(ValueError, match="give a tuple"):
        replace(LOSS, l2_choices=[1.0])  # type: ignore[arg-type]
    assert replace(LOSS, l2_choices=CHOICES).curvature.low == 1e-4
