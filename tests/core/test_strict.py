from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.federations import Federation, Path, Sampling, Softmax, retrained_without, train, with_noise
from benchmarks.soundness import distances
from rescind.core.edges import AbsentRound, Edge, ErasedStretch, NoiseEdge, RoundEdge
from rescind.core.regularity import Curvature, DeclaredLoss, SoftmaxL2
from rescind.core.sensitivity import SAFETY
from rescind.core.strict import HeadBound, participations, release_mu, strict_sensitivity
from rescind.core.training import LocalTraining

BARE = HeadBound(
    decay=0.1,
    radius=10.0,
    initial_norm=0.0,
    parameters=16,
    most_steps=10_000,
    rounding_unit=0.0,
    rounding_offset=0.0,
    grid=0.0,
    unit_roundoff=0.0,
)


def public_round(clients: list[int], weights: list[float], factors: list[float]) -> RoundEdge:
    """What a strict bound may see of a round; distances are there, and must not be looked at."""
    count = len(clients)
    poison = np.full(count, 1e9)
    return RoundEdge(
        clients=np.array(clients, dtype=np.int64),
        weights=np.array(weights),
        factors=np.array(factors),
        distances=poison,
        update_norm=1e9 if count else 0.0,
        rounding=0.0,
        relative_rounding=0.0,
    )


def random_head(seed: int, steps: list[int], rate: float, l2: float) -> Federation:
    """Clients of one class each, as different as the bound has to allow for."""
    rng = np.random.default_rng(seed)
    loss = SoftmaxL2(l2, row_norm=1.0)
    objectives = []
    for client in range(len(steps)):
        size = int(rng.integers(1, 20))
        rows = rng.normal(size=(size, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        labels = np.eye(3)[np.full(size, client % 3)]
        objectives.append(Softmax(np.hstack([rows, np.ones((size, 1))]), labels, l2))
    limit = 2 / (loss.curvature.high + loss.curvature.low)
    training = LocalTraining(steps=max(steps), learning_rate=rate * limit, loss=loss)
    start = rng.normal(size=12) * rng.choice([0, 1, 30])
    return Federation(objectives, steps, training, Sampling(rate=0.6), start, seed)


@settings(max_examples=40)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 6), min_size=2, max_size=6),
    st.floats(0.05, 1),
    st.sampled_from([0.01, 0.1, 0.5]),
)
def test_no_head_moves_further_than_the_strict_bound(seed: int, steps: list[int], rate: float, l2: float) -> None:
    federation = random_head(seed, steps, rate, l2)
    present = frozenset(range(len(steps)))
    path = train(federation, Path((federation.start,)), present, 6, 0)
    path = with_noise(federation, path.truncated(4), 0.5, 6)
    path = train(federation, path, present, 4, 10)
    bound = HeadBound.of(federation.training, float(np.linalg.norm(federation.start)), 12, 20)
    for group in (frozenset({0}), frozenset({0, 1})):
        alpha = distances(path.models, retrained_without(federation, path, group))
        assert (alpha <= strict_sensitivity(path.edges, group, bound)).all()


def test_equal_steps_give_the_short_formula() -> None:
    rho = 0.9**2
    edge = public_round([0, 1, 2], [1.0, 1.0, 2.0], [rho] * 3)
    psi = strict_sensitivity([edge, edge], [0], BARE)
    once = (1 - rho) * 2 * 10.0 * 0.25
    assert psi == pytest.approx([0, once, rho * once + once])


def test_unequal_steps_noise_and_standstill() -> None:
    bound = replace(BARE, initial_norm=15.0, grid=0.125, unit_roundoff=1e-3)
    psi = strict_sensitivity(
        [
            public_round([0, 1], [1.0, 3.0], [0.9**3, 0.9]),
            NoiseEdge(0.5, 1e9),
            public_round([0], [5.0], [0.9]),
            public_round([], [], []),
            AbsentRound(0.5, 1e9),
        ],
        [0],
        bound,
    )
    first = 0.25 * ((0.9 - 0.9**3) * 15 + (1 - 0.9**3 + 0.1) * 10)
    # What noise can do to a norm is taken from its law: the noise that was drawn is somebody's secret.
    largest = (15.0 + 0.5 * (4 + 9.2) + 0.125 * 4) * 1.002
    second = 1.004 * first + 0.125 * 4 + 4e-3 * largest
    third = 0.9 * second + 0.1 * (10 + largest)
    assert psi == pytest.approx([0, first, second, third, third, third / 2])


def test_a_strict_bound_never_looks_at_updates() -> None:
    edge = public_round([0, 1], [1.0, 3.0], [0.9**2, 0.9])
    changed = replace(edge, distances=np.zeros(2), update_norm=0.0, rounding=7.0)
    assert np.array_equal(strict_sensitivity([edge], [0], BARE), strict_sensitivity([changed], [0], BARE))


def test_a_factor_of_ten_thousand_steps_takes_nothing_from_the_pull() -> None:
    training = LocalTraining(steps=10_000, learning_rate=0.5, loss=SoftmaxL2(1e-6, 1.0))
    bound = replace(HeadBound.of(training, 0.0, parameters=40, batch=10), rounding_unit=0.0, rounding_offset=0.0)
    alone = strict_sensitivity([public_round([0], [1.0], [training.factor()])], [0], bound)[-1]
    with mpmath.workdps(60):
        missing = 1 - (1 - mpmath.mpf(0.5) * mpmath.mpf(1e-6)) ** 10_000
        assert mpmath.mpf(alone / SAFETY) >= missing * 2 * bound.radius


def test_the_mean_factor_of_a_large_round_takes_nothing_from_the_pull() -> None:
    """A mean over many participants is rounded up by more the more they are; 1 - rho must not shrink with it."""
    training = LocalTraining(steps=2, learning_rate=0.5, loss=SoftmaxL2(1e-6, 1.0))
    count = 20_000
    factors = [training.factor(1), training.factor(2)] * (count // 2)
    edge = public_round(list(range(count)), [1.0] * count, factors)
    bound = replace(HeadBound.of(training, 0.0, parameters=40, batch=10), rounding_unit=0.0, rounding_offset=0.0)
    with mpmath.workdps(60):
        step = 1 - mpmath.mpf(0.5) * mpmath.mpf(1e-6)
        missing = 1 - (step + step**2) / 2
        everybody = strict_sensitivity([edge], range(count), bound)[-1] / SAFETY
        assert mpmath.mpf(everybody) >= missing * 2 * bound.radius
        half = strict_sensitivity([edge], range(count // 2), bound)[-1] / SAFETY
        assert mpmath.mpf(half) >= missing * bound.radius


@pytest.mark.parametrize("factor", [1.0, 0.95, 0.9**2 * 1.001, 1e-200, 1.2])
def test_factors_of_another_training_are_refused(factor: float) -> None:
    """A factor that is merely an upper bound would make the strict bound too small."""
    with pytest.raises(ValueError, match="not powers of 1 - eta lambda"):
        strict_sensitivity([public_round([0, 1], [1.0, 1.0], [0.9, factor])], [0], BARE)


def test_rounding_counts_once_the_worlds_have_parted() -> None:
    bound = replace(BARE, rounding_unit=1e-3, rounding_offset=2e-3)
    calm, joined = (public_round(clients, [1.0, 1.0], [0.9, 0.9]) for clients in ([1, 2], [0, 1]))
    # Rounding may carry models out of the ball, so its radius grows by each round's own.
    largest = [10.0]
    for _ in range(2):
        largest.append(1.001 * largest[-1] + 2e-3)
    once = 0.5 * 0.2 * 10 + 1e-3 * largest[1] + 2e-3
    again = 0.9 * once + 1e-3 * largest[2] + 2e-3
    assert strict_sensitivity([calm, joined, calm], [0], bound) == pytest.approx([0, 0, once, again])
    bare = strict_sensitivity([calm, NoiseEdge(1.0, 5.0), calm], [0], replace(bound, grid=1.0))
    assert bare.tolist() == [0, 0, 0, 0]


def test_every_round_has_to_be_the_declared_training() -> None:
    """The largest norm rests on all rounds, also on those that the group did not join."""
    mine = public_round([0, 3], [1.0, 1.0], [0.9, 0.9])
    for strange in (public_round([3, 4], [1.0, 1.0], [1.0, 1.0]), AbsentRound(1.3, 0.0)):
        with pytest.raises(ValueError, match=r"not powers|at most 1"):
            strict_sensitivity([strange, mine], [0], BARE)
    with pytest.raises(ValueError, match="more than the 4 local steps"):
        strict_sensitivity([public_round([0, 3], [1.0, 1.0], [0.9, 0.9**5])], [0], replace(BARE, most_steps=4))


def test_steps_so_many_that_nothing_is_left_pull_all_the_way() -> None:
    gone = strict_sensitivity([public_round([0], [1.0], [0.0])], [0], BARE)
    assert gone[1] == pytest.approx(2 * 10.0)


@given(st.integers(1, 400), st.integers(0, 2**32 - 1))
def test_noise_stays_within_its_public_norm(parameters: int, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=parameters)
    largest = strict_sensitivity(
        [NoiseEdge(1.0, 0.0), public_round([0], [1.0], [0.9])], [0], replace(BARE, parameters=parameters)
    )
    allowed = largest[2] / 0.1 - 2 * 10.0
    assert np.linalg.norm(noise) <= allowed


def test_the_constants_come_from_the_training() -> None:
    training = LocalTraining(steps=4, learning_rate=0.5, loss=SoftmaxL2(0.1, 1.0))
    bound = HeadBound.of(training, 3.0, parameters=100, batch=10)
    assert bound.radius == pytest.approx(2.0 / 0.1)
    assert bound.rounding_unit * 5.0 + bound.rounding_offset == pytest.approx(training.rounding(5.0, 100, 10))
    assert bound.decay == pytest.approx(0.05)
    assert (bound.parameters, bound.grid, bound.unit_roundoff) == (100, 2.0**-20, 2.0**-53)
    single = HeadBound.of(replace(training, precision="float32"), 3.0, 100, 10, steps=8, grid=2.0**-10)
    assert (single.grid, single.unit_roundoff) == (2.0**-10, 2.0**-24)
    # Two casts in each world are nearly all of it.
    assert single.rounding_unit == pytest.approx(4 * 2.0**-24, rel=0.01)
    assert bound.rounding_unit < 1e-9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": DeclaredLoss(Curvature(0.1, 1.0))}, "softmax or logistic"),
        ({"loss": SoftmaxL2(0.0, 1.0)}, "L2 term above 0"),
        ({"momentum": 0.9}, "local momentum is 0.9"),
        ({"proximal": 0.1}, r"proximal is 0\.1"),
        ({"loss": SoftmaxL2(1e-9, 1.0)}, r"eta lambda is 5e-10"),
        ({"learning_rate": 2.0}, r"learning_rate is 2\.0; a strict bound needs at most 1\.6"),
    ],
)
def test_no_constants_where_the_proof_does_not_reach(changes: dict[str, object], message: str) -> None:
    values = {"steps": 4, "learning_rate": 0.5, "loss": SoftmaxL2(0.1, 1.0), **changes}
    with pytest.raises(ValueError, match=message):
        HeadBound.of(LocalTraining(**values), 0.0, 10, 10)  # type: ignore[arg-type]


def test_releases_of_dp_fedavg_add_up() -> None:
    path: list[Edge] = [
        public_round([0, 1, 2], [1.0] * 3, [1.0] * 3),
        public_round([1, 2], [1.0] * 2, [1.0] * 2),
        public_round([0, 1], [1.0] * 2, [1.0] * 2),
        AbsentRound(1.0, 0.0),
    ]
    assert release_mu(path, [0], 2.0) / SAFETY == pytest.approx([0, 0.5, 0.5, np.sqrt(2) / 2, np.sqrt(2) / 2])
    together = [0, 2, 1, 2, 0]
    assert release_mu(path, [0, 1], 2.0) / SAFETY == pytest.approx(np.sqrt(np.cumsum(np.square(together))) / 2)


def test_nothing_is_known_of_a_heads_distance_past_an_erased_stretch() -> None:
    path: list[Edge] = [
        ErasedStretch(np.array([0]), np.ones(1), np.ones(1), common_factor=True, rounds=3),
        AbsentRound(0.5, 0.0),
    ]
    assert strict_sensitivity(path, [0], BARE).tolist() == [0, np.inf, np.inf]
    assert strict_sensitivity(path, [1], BARE).tolist() == [0, 0, 0]


def test_whoever_took_part_in_erased_rounds_counts_as_if_it_had_in_each() -> None:
    first, alone = public_round([0, 4], [1.0] * 2, [1.0] * 2), public_round([1], [1.0], [1.0])
    # 3 left before the stretch began, and is named all the same.
    named, weights = np.array([0, 1, 3]), np.array([0.5, 1.0, 0.0])
    stretch = ErasedStretch(named, np.ones(3), weights, common_factor=True, rounds=5)
    path: list[Edge] = [first, stretch, alone]
    for group, squares in (([0], [0, 1, 6, 6]), ([0, 1], [0, 1, 21, 22]), ([3], [0] * 4), ([4], [0, 1, 1, 1])):
        assert participations(path, group).tolist() == squares
    # Nobody took part in no rounds: how many there were is not known.
    unknown = replace(stretch, rounds=0)
    assert participations([unknown], [0]).tolist() == [0, np.inf]


def test_a_leaver_with_another_number_of_steps_round_by_round() -> None:
    """Only the others' factor carries on what was there before; theirs and the leaver's make the pull."""
    edge = public_round([0, 1], [1.0, 3.0], [0.9**3, 0.9])
    once = 0.25 * ((0.9 - 0.9**3) * 10 + (1 - 0.9**3 + 0.1) * 10)
    psi = strict_sensitivity([edge, edge], [0], BARE)
    assert psi == pytest.approx([0, once, 0.9 * once + once])


def test_rounding_follows_the_largest_model_and_skips_what_computes_nothing() -> None:
    bare = replace(BARE, initial_norm=15.0)
    bound = replace(bare, rounding_unit=1e-3, rounding_offset=2e-3)
    joined = public_round([0, 1], [1.0, 1.0], [0.9, 0.9])
    path: list[Edge] = [joined, NoiseEdge(0.5, 1e9), public_round([], [], []), AbsentRound(1.0, 1e9), joined]
    first = 1e-3 * (15 + 2)
    noised = 15 + first + 0.5 * (4 + 9.2)
    untouched = 1e-3 * (noised + 2)
    last = 1e-3 * (noised + untouched + 2)
    added = [0, first, first, first, first + untouched, 0.9 * (first + untouched) + last]
    assert strict_sensitivity(path, [0], bound) - strict_sensitivity(path, [0], bare) == pytest.approx(added)


def test_the_ball_grows_by_the_rounding_of_erased_rounds_too() -> None:
    bound = replace(BARE, rounding_unit=1e-3, rounding_offset=2e-3)
    stranger, alone = np.array([7]), public_round([0], [1.0], [0.9])
    erased = ErasedStretch(stranger, np.ones(1), np.ones(1), common_factor=True, rounds=3)
    rounds = [public_round([7], [1.0], [0.9])] * 3
    assert strict_sensitivity([erased, alone], [0], bound)[-1] >= strict_sensitivity([*rounds, alone], [0], bound)[-1]


@pytest.mark.parametrize("steps", [1, 100, 1000])
def test_a_factor_that_was_rounded_up_takes_nothing_from_the_pull(steps: int) -> None:
    """The true 1 - rho, in fractions: with a weak L2 term it is small, and what rounding took from it shows."""
    training = LocalTraining(steps=steps, learning_rate=0.5, loss=SoftmaxL2(1e-6, 1.0))
    with mpmath.workdps(60):
        missing = 1 - (1 - mpmath.mpf(0.5) * mpmath.mpf(1e-6)) ** steps
        bound = replace(BARE, decay=0.5 * 1e-6)
        alone = strict_sensitivity([public_round([0], [1.0], [training.factor()])], [0], bound)[-1]
        assert mpmath.mpf(alone) >= missing * 20
        shared = public_round([0, 1], [1.0, 1.0], [training.factor()] * 2)
        assert mpmath.mpf(strict_sensitivity([shared], [0], bound)[-1]) >= missing * 10


def test_strict_bounds_pay_for_their_own_roundings() -> None:
    third = public_round([0, 1, 2], [1.0] * 3, [0.9] * 3)
    assert strict_sensitivity([third], [0], BARE)[-1] == pytest.approx(2 / 3 * SAFETY, rel=2e-10)
    assert release_mu([third], [0], 3.0)[-1] == pytest.approx(SAFETY / 3, rel=1e-12)


def test_the_rounding_constants_are_those_of_the_training() -> None:
    for precision in ("float32", "float64"):
        training = LocalTraining(steps=4, learning_rate=0.5, loss=SoftmaxL2(0.1, 1.0), precision=precision)
        for steps in (None, 7):
            bound = HeadBound.of(training, 3.0, parameters=100, batch=10, steps=steps)
            for norm in (0.0, 5.0):
                exact = training.rounding(norm, 100, 10, steps=steps)
                assert bound.rounding_unit * norm + bound.rounding_offset == pytest.approx(exact, rel=1e-9, abs=0)


def test_the_largest_learning_rate_of_the_proof_is_allowed() -> None:
    loss = SoftmaxL2(0.1, 1.0)
    limit = 2 / (loss.curvature.high + loss.curvature.low)
    assert HeadBound.of(LocalTraining(4, limit, loss), 0.0, 10, 10).radius > 0
    with pytest.raises(ValueError, match="learning_rate is"):
        HeadBound.of(LocalTraining(4, np.nextafter(limit, 2.0), loss), 0.0, 10, 10)


def test_impossible_public_constants_are_refused() -> None:
    for name in ("radius", "initial_norm", "rounding_unit", "rounding_offset", "grid", "unit_roundoff"):
        with pytest.raises(ValueError, match=f"{name} is"):
            replace(BARE, **{name: -1.0})
        with pytest.raises(ValueError, match=f"{name} is"):
            replace(BARE, **{name: np.nan})
    for multiplier in (0.0, -2.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="noise_multiplier is"):
            release_mu([], [0], multiplier)


def test_the_servers_rate_scales_factor_and_pull() -> None:
    edge = replace(public_round([0, 1], [1.0, 3.0], [0.9**3, 0.9]), server_learning_rate=0.5)
    once = 0.5 * 0.25 * ((0.9 - 0.9**3) * 10 + (1 - 0.9**3 + 0.1) * 10)
    assert strict_sensitivity([edge, edge], [0], BARE) == pytest.approx([0, once, 0.95 * once + once])


def test_noise_in_an_erased_stretch_still_counts_towards_the_largest_norm() -> None:
    """What a later round may pull at is as large as if the noise were an edge of its own."""
    alone = public_round([5], [1.0], [0.9])
    before = public_round([1, 2], [1.0, 1.0], [0.9, 0.9])
    stretch = ErasedStretch(np.array([1, 2]), np.ones(2), np.full(2, 0.5), common_factor=True, sigmas=(2.0, 0.5))
    kept = strict_sensitivity([before, NoiseEdge(2.0, 0.0), before, NoiseEdge(0.5, 0.0), alone], [5], BARE)[-1]
    assert strict_sensitivity([before, stretch, alone], [5], BARE)[-1] == pytest.approx(kept)
    assert kept > strict_sensitivity([before, alone], [5], BARE)[-1]
