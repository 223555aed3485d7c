from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.soundness import judge, random_case, run_path, wrong_sensitivity
from rescind.core.edges import AbsentRound, Edge, ErasedStretch, NoiseEdge, RoundEdge
from rescind.core.sensitivity import (
    SAFETY,
    client_sensitivities,
    client_terms,
    first_joined,
    group_sensitivity,
)
from rescind.core.tracker import SensitivityTracker

CLIENTS = 9


def round_of(clients: Sequence[int], /, **changes: object) -> RoundEdge:
    count = len(clients)
    values = {
        "clients": np.array(clients, dtype=np.int64),
        "weights": np.ones(count),
        "factors": np.ones(count),
        "distances": np.ones(count),
        "update_norm": float(count > 0),
        "rounding": 0.0,
        "relative_rounding": 0.0,
    }
    return RoundEdge(**{**values, **changes})  # type: ignore[arg-type]


@st.composite
def rounds(draw: st.DrawFn) -> RoundEdge:
    clients = draw(st.lists(st.integers(0, CLIENTS - 1), unique=True, max_size=CLIENTS).map(sorted))
    count = len(clients)
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    factors = numbers.uniform(0, 1.3, count) if draw(st.booleans()) else np.full(count, draw(st.floats(0, 1.5)))
    return round_of(
        clients,
        weights=numbers.uniform(0.1, 50, count),
        factors=factors,
        distances=numbers.uniform(0, 2, count),
        update_norm=float(numbers.uniform(0, 2)) if count else 0.0,
        rounding=draw(st.sampled_from([0.0, 1e-9, 0.1])) if count else 0.0,
        server_learning_rate=draw(st.sampled_from([1.0, 0.5])),
    )


edges = st.lists(
    st.one_of(
        rounds(),
        st.builds(NoiseEdge, st.just(0.1), st.sampled_from([0.0, 1e-6])),
    ),
    max_size=14,
)


def test_the_recursion_by_hand() -> None:
    """Two of three equal clients stay, rho = 1/2: Delta = 1/3 / (2/3) * distance."""
    half = {"factors": np.full(3, 0.5), "distances": np.array([2.0, 1.0, 1.0])}
    path: list[Edge] = [
        round_of([0, 1, 2], **half),
        NoiseEdge(0.1, 0.125),
        round_of([1, 2], factors=np.full(2, 0.5)),
        round_of([]),
        round_of([0, 1, 2], **half, server_learning_rate=0.5, rounding=0.25),
    ]
    expected = [0, 1, 1.125, 0.5625, 0.5625, 0.75 * 0.5625 + 0.5 * 1 + 0.25]
    assert group_sensitivity(path, [0]) == pytest.approx(expected)


def test_unequal_local_steps_weigh_by_who_remains() -> None:
    edge = round_of([0, 1, 2], weights=np.array([1.0, 1.0, 3.0]), factors=np.array([9.0, 0.4, 0.8]))
    path = [round_of([0, 1]), edge]
    remaining = (1 * 0.4 + 3 * 0.8) / 4
    assert group_sensitivity(path, [0])[-1] == pytest.approx(remaining * 1 + 1 / 4)


def test_where_all_participants_leave_the_other_world_stands_still() -> None:
    path = [round_of([0, 1, 2]), round_of([0, 1], factors=np.full(2, 0.5), update_norm=7.0)]
    first = 2.0  # both distances, over the one that remains
    assert group_sensitivity(path, [0, 1]) == pytest.approx([0, first, first + 7])


def test_nothing_is_owed_before_the_group_takes_part() -> None:
    path: list[Edge] = [round_of([1, 2], rounding=0.5), AbsentRound(2.0, 0.5), NoiseEdge(1.0, 1.0), round_of([0, 1])]
    assert group_sensitivity(path, [0])[:4].tolist() == [0, 0, 0, 0]
    assert first_joined(path, [0]) == 3
    assert first_joined(path, [5]) == 4
    assert first_joined(path, [0, 2]) == 0


@given(edges, st.sets(st.integers(0, CLIENTS - 1)))
def test_a_round_without_the_group_may_be_told_by_two_numbers(path: list[Edge], group: set[int]) -> None:
    short = [
        AbsentRound(edge.factor, edge.rounding)
        if isinstance(edge, RoundEdge) and not group.intersection(edge.clients.tolist())
        else edge
        for edge in path
    ]
    assert np.array_equal(group_sensitivity(path, group), group_sensitivity(short, group))
    nodes = range(len(path) + 1)
    assert np.array_equal(client_sensitivities(path, group, nodes), client_sensitivities(short, group, nodes))


@given(edges)
def test_a_client_alone_is_a_group_of_one(path: list[Edge]) -> None:
    nodes = list(range(len(path) + 1))
    together = client_sensitivities(path, range(CLIENTS), nodes)
    for client in range(CLIENTS):
        assert together[:, client] == pytest.approx(group_sensitivity(path, [client]), rel=1e-12)
    reversed_order = client_sensitivities(path, reversed(range(CLIENTS)), nodes[-1:])
    assert np.array_equal(reversed_order[0], together[-1, ::-1])


@given(edges, st.sets(st.integers(0, CLIENTS - 1), min_size=2))
def test_a_group_is_no_more_than_its_clients_inflated(path: list[Edge], group: set[int]) -> None:
    """Without matrices the group's own bound is a sum over clients, so leaving clients out lowers it."""
    common = [
        round_of(edge.clients.tolist(), weights=edge.weights, distances=edge.distances)
        for edge in path
        if isinstance(edge, RoundEdge) and len(edge.clients)
    ]
    smaller = set(list(group)[:-1])
    if not any(set(edge.clients.tolist()) <= group for edge in common):
        assert (group_sensitivity(common, smaller) <= group_sensitivity(common, group) * (1 + 1e-12)).all()


def psi_at_all_nodes(path: Sequence[Edge], clients: Sequence[int]) -> np.ndarray:
    """Return what a tracker says of the clients at every node of a path, a row a node."""
    tracker = SensitivityTracker()
    rows = [tracker.sensitivities(np.array(clients))]
    for edge in path:
        tracker.record(edge)
        rows.append(tracker.sensitivities(np.array(clients)))
    return np.array(rows)


@settings(max_examples=200)
@given(edges, edges)
def test_the_lazy_tracker_is_the_recursion(first: list[Edge], second: list[Edge]) -> None:
    tracker = SensitivityTracker()
    path = [*first, NoiseEdge(0.1, 1e-6), *second]
    for edge in path:
        at_once = tracker.record(edge)
        if isinstance(edge, RoundEdge):
            now = [tracker.sensitivity(client) for client in edge.clients.tolist()]
            assert at_once == pytest.approx(now, rel=1e-12)
    assert tracker.last_node == len(path)
    read = client_sensitivities(path, range(CLIENTS), range(len(path) + 1))
    lazy = psi_at_all_nodes(path, range(CLIENTS))
    assert lazy == pytest.approx(read, rel=1e-9)
    # Never below: what the lazy form can't know exactly it rounds up.
    assert (lazy >= read * (1 - 1e-13)).all()
    seen = {client for edge in path if isinstance(edge, RoundEdge) for client in edge.clients.tolist()}
    assert len(tracker.state().clients) == len(seen)


def test_the_tracker_carries_many_clients() -> None:
    rng, tracker, path = np.random.default_rng(4), SensitivityTracker(), []
    for _ in range(40):
        clients = np.sort(rng.choice(10**9, 200, replace=False)) if rng.random() < 0.5 else np.arange(200) * 2**20
        path.append(round_of(clients.tolist(), factors=np.full(200, 0.9), distances=rng.random(200)))
        tracker.record(path[-1])
    seen = np.unique(np.concatenate([edge.clients for edge in path]))
    assert len(tracker.state().clients) == len(seen)
    read = client_sensitivities(path, seen, [len(path)])[0]
    assert [tracker.sensitivity(client) for client in seen.tolist()] == pytest.approx(read, rel=1e-9)
    assert tracker.sensitivity(-5) == 0.0


@given(edges, st.lists(st.integers(-3, CLIENTS + 3)))
def test_the_tracker_gives_many_clients_at_once(path: list[Edge], asked: list[int]) -> None:
    tracker = SensitivityTracker()
    for edge in path:
        tracker.record(edge)
    stored = len(tracker.state().clients)
    together = tracker.sensitivities(np.array(asked, dtype=np.int64))
    assert together.tolist() == [tracker.sensitivity(client) for client in asked]
    assert len(tracker.state().clients) == stored


@given(edges, edges)
def test_a_tracker_goes_on_from_its_state_bit_for_bit(first: list[Edge], second: list[Edge]) -> None:
    tracker = SensitivityTracker()
    for edge in first:
        tracker.record(edge)
    resumed = SensitivityTracker.resume(tracker.state())
    for edge in second:
        assert tracker.record(edge).tolist() == resumed.record(edge).tolist()
    assert tracker.last_node == resumed.last_node
    one, other = tracker.state(), resumed.state()
    for field in fields(one):
        assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field.name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"floors": np.zeros(0), "log_factors": np.zeros(0), "low_log_factors": np.zeros(0)}, "at least one"),
        ({"log_factors": np.zeros(3)}, "as floors"),
        ({"floors": np.zeros((2, 1))}, "as floors"),
        ({"psi": np.zeros(3)}, "a node, rounds and a Psi"),
        ({"clients": np.array([[1, 2]])}, "a node, rounds and a Psi"),
        ({"psi": np.array([0.5, np.nan])}, "float64"),
        ({"floors": np.zeros(2, dtype=np.float32)}, "float64"),
        ({"psi": np.array([0.5, -0.5])}, "below it"),
        ({"floors": np.array([1.0, 1.0])}, "begins with 0"),
        ({"clients": np.array([2, 2])}, "each of them once"),
        ({"clients": np.array([-(2**63), 2])}, "each of them once"),
        ({"rounds": np.array([1, 2])}, "more often"),
        ({"rounds": np.array([1, -1])}, "more often"),
        ({"nodes": np.array([1, 2])}, "nodes 0 to 1"),
        ({"nodes": np.array([0, 1]), "rounds": np.array([0, 1])}, "nodes 0 to 1"),
    ],
)
def test_a_state_that_no_tracker_has_is_refused(changes: dict[str, object], message: str) -> None:
    tracker = SensitivityTracker()
    tracker.record(round_of([1, 2]))
    with pytest.raises(ValueError, match=message):
        replace(tracker.state(), **changes)


def test_an_erased_stretch_names_everybody() -> None:
    tracker = SensitivityTracker()
    tracker.record(round_of([1, 2]))
    with pytest.raises(ValueError, match="name everybody"):
        tracker.record(ErasedStretch(np.array([1]), np.ones(1), np.ones(1), common_factor=True))


def test_after_an_erased_stretch_psi_goes_on_from_what_was_kept() -> None:
    kept = ErasedStretch(
        np.array([1, 2, 3]), np.array([1.0, 2.0, 4.0]), np.array([0.25, 0.25, 0.5]), common_factor=True
    )
    path: list[Edge] = [kept, NoiseEdge(0.5, 0.25), round_of([1, 2], factors=np.full(2, 0.5))]
    assert group_sensitivity(path, [2])[1:] == pytest.approx([2.0, 2.25, 0.5 * 2.25 + 1.0])
    assert group_sensitivity(path, [1, 2])[1] == pytest.approx((1 + 2) / 0.5)
    assert group_sensitivity(path, [9]).tolist() == [0, 0, 0, 0]
    assert np.isinf(group_sensitivity(path, [1, 2, 3])[1])
    unequal = ErasedStretch(kept.clients, kept.sensitivities, kept.largest_weights, common_factor=False)
    assert np.isinf(group_sensitivity([unequal], [1, 2])[1])
    assert group_sensitivity([unequal], [1])[1] == pytest.approx(1.0)
    assert first_joined(path, [3]) == 0
    tracker = SensitivityTracker()
    for edge in path:
        tracker.record(edge)
    for client in (1, 2, 3, 9):
        assert tracker.sensitivity(client) == pytest.approx(group_sensitivity(path, [client])[-1])


@given(st.integers(0, 2**32 - 1))
def test_an_erased_stretch_bounds_every_group(seed: int) -> None:
    """What is kept of a stretch must never promise less than the stretch itself did."""
    rng = np.random.default_rng(seed)
    path = []
    for _ in range(5):
        clients = np.sort(rng.choice(6, rng.integers(1, 7), replace=False))
        weights = rng.integers(1, 9, len(clients)).astype(float)
        factors = np.full(len(clients), rng.uniform(0.2, 1.5))
        path.append(round_of(clients.tolist(), weights=weights, factors=factors, distances=rng.random(len(clients))))
    largest = np.zeros(6)
    for edge in path:
        largest[edge.clients] = np.maximum(largest[edge.clients], edge.weights / edge.weights.sum())
    psi = client_sensitivities(path, range(6), [5])[0] / SAFETY
    kept = ErasedStretch(np.arange(6), psi, largest, common_factor=True)
    group = np.flatnonzero(rng.random(6) < 0.5)
    assert group_sensitivity([kept], group)[-1] >= group_sensitivity(path, group)[-1] * (1 - 1e-9)


def test_weights_that_add_up_to_one_leave_nothing_behind() -> None:
    """Six sixths come out a little below 1: then too everybody may have belonged to the group."""
    everybody = ErasedStretch(np.arange(6), np.zeros(6), np.full(6, 1 / 6), common_factor=True)
    assert 1 - everybody.largest_weights.sum() > 0
    assert np.isinf(group_sensitivity([everybody], range(6))[1])


def test_what_is_infinite_stays_infinite() -> None:
    gone = ErasedStretch(np.array([1, 2]), np.array([np.inf, 1.0]), np.array([0.1, 0.1]), common_factor=True)
    path = [gone, round_of([2, 3, 4], factors=np.zeros(3)), round_of([2], factors=np.zeros(1))]
    assert np.isinf(group_sensitivity(path, [1])[1:]).all()
    assert np.isinf(group_sensitivity(path, [1, 2])[1:]).all()
    assert np.isinf(client_sensitivities(path, [1], [1, 2, 3])).all()
    assert client_sensitivities(path, [1, 2], [0]).tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(("factor", "before", "after"), [(1.01, 2500, 2500), (1.1, 260, 1000), (1.05, 480, 480)])
def test_a_late_joiner_is_not_forgotten_by_rounding(factor: float, before: int, after: int) -> None:
    """With F > 1 the rounding term of a long past is huge beside a late joiner's own Psi."""
    early = round_of([1, 2], factors=np.full(2, factor), rounding=1e-14)
    late = round_of([0, 1, 2], factors=np.full(3, factor), rounding=1e-14)
    path = [early] * before + [late] + [early] * after
    tracker = SensitivityTracker()
    for edge in path:
        tracker.record(edge)
    assert tracker.sensitivity(0) >= group_sensitivity(path, [0])[-1] * (1 - 1e-12)


def test_client_terms_of_small_rounds() -> None:
    assert [len(values) for values in client_terms(round_of([]))] == [0, 0]
    factors, deltas = client_terms(round_of([4], factors=np.array([0.5]), update_norm=3.0))
    assert (factors[0], deltas[0]) == (1.0, 3.0)


@pytest.mark.parametrize(
    "build",
    [
        lambda: AbsentRound(0.0, 0.0),
        lambda: AbsentRound(1.0, -1.0),
        lambda: NoiseEdge(0.0, 0.0),
        lambda: NoiseEdge(1.0, np.nan),
        lambda: ErasedStretch(np.array([1]), np.array([-1.0]), np.ones(1), common_factor=True),
        lambda: ErasedStretch(np.array([1]), np.array([np.nan]), np.ones(1), common_factor=True),
        lambda: ErasedStretch(np.array([1, 1]), np.ones(2), np.ones(2), common_factor=True),
    ],
)
def test_an_impossible_edge_is_refused(build: Callable[[], Edge]) -> None:
    with pytest.raises(ValueError, match=r"has to|twice"):
        build()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": np.array([1.0, 0.0])}, "weights have to be above 0"),
        ({"weights": np.array([1e300, 1e-30])}, "weights have to be above 0"),
        ({"weights": np.ones(3)}, r"weights has shape \(3,\); 2 clients"),
        ({"distances": np.array([np.nan, 1.0])}, r"distances holds .*nan"),
        ({"factors": np.array([-1.0, 1.0])}, r"factors holds .*-1"),
        ({"factors": np.array([1.6e308, 1.7e308])}, "factor is (inf|nan)"),
        ({"gram": np.full((2, 2), np.nan)}, "gram has to be finite"),
        ({"gram": -np.ones((2, 2))}, "diagonal of at least 0"),
        ({"clients": np.array([1, 1])}, "twice"),
        ({"gram": np.ones((3, 3))}, r"gram has shape \(3, 3\)"),
        ({"rounding": -1.0}, "rounding is"),
        ({"clients": np.array([1, 2], dtype=np.uint64)}, "uint64"),
        ({"clients": np.array([1, np.iinfo(np.int64).min])}, "smallest int64"),
        ({"update_norm": np.inf}, "update_norm is inf"),
    ],
)
def test_an_impossible_round_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        round_of([1, 2], **changes)


def test_ids_and_nodes_that_are_none_are_refused() -> None:
    tracker = SensitivityTracker()
    tracker.record(round_of([4, 5]))
    for call in (
        lambda: tracker.sensitivity(4.9),  # type: ignore[arg-type]
        lambda: group_sensitivity([round_of([4, 5])], ["4"]),  # type: ignore[list-item]
        lambda: client_sensitivities([round_of([4, 5])], [4.0], [0]),  # type: ignore[list-item]
    ):
        with pytest.raises(ValueError, match="is not an integer"):
            call()
    with pytest.raises(ValueError, match=r"nodes \[2\] do not all lie on the path"):
        client_sensitivities([round_of([4, 5])], [4], [2])


def test_an_empty_round_moves_nothing() -> None:
    with pytest.raises(ValueError, match="nobody joined"):
        round_of([], rounding=1e-3)


@pytest.mark.parametrize("index", range(12))
def test_the_theorem_on_random_federations(index: int) -> None:
    """A few of the federations that ``python -m benchmarks.soundness`` runs by the thousand."""
    outcome = judge(random_case(seed=99, index=index))
    assert outcome.violations == 0
    assert outcome.worst_ratio <= 1
    assert outcome.tight_error <= 1e-9


@pytest.mark.parametrize("index", range(6))
def test_the_measurements_own_recursion_has_no_mistake_unless_told(index: int) -> None:
    case = random_case(seed=98, index=index)
    path = run_path(case, case.federation)
    for group in case.requests:
        unspoilt = wrong_sensitivity(path, group, case.federation, None)
        assert np.array_equal(unspoilt, group_sensitivity(path.edges, group))


def test_psi_pays_for_its_own_roundings() -> None:
    """A third is rounded down in float64; what is given out must not be."""
    path = [round_of([0, 1, 2, 3])]
    tracker = SensitivityTracker()
    for psi in (
        group_sensitivity(path, [0])[-1],
        client_sensitivities(path, [0], [1])[0, 0],
        tracker.record(path[0])[0],
        tracker.sensitivity(0),
    ):
        assert Fraction(1, 3) <= Fraction(float(psi)) <= Fraction(1, 3) * (1 + Fraction(2, 10**9))


def test_rounding_counts_from_an_erased_stretch_on_for_those_who_were_in_it() -> None:
    kept = ErasedStretch(np.array([1, 2]), np.array([1.0, 2.0]), np.array([0.25, 0.25]), common_factor=True)
    path: list[Edge] = [kept, AbsentRound(0.5, 0.125)]
    for client, expected in ((1, [0, 1, 0.625]), (2, [0, 2, 1.125]), (9, [0, 0, 0])):
        assert group_sensitivity(path, [client]) == pytest.approx(expected)
    read = client_sensitivities(path, [1, 2, 9], [0, 1, 2])
    assert read == pytest.approx(np.array([[0, 0, 0], [1, 2, 0], [0.625, 1.125, 0]]))
    tracker = SensitivityTracker()
    assert tracker.record(kept) == pytest.approx(np.array([1.0, 2.0]) * SAFETY, rel=1e-12)
    assert psi_at_all_nodes(path, [1, 2, 9])[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("factor", "since"), [(1.0, 1e-9 / 3), (1.0, 1e-9 / 7), (1.0, 1e-10), (1.0, 3e-11), (1.01, 1e-3)]
)
def test_the_tracker_never_falls_below_the_recursion_for_a_client_that_joins_late(
    factor: float, since: float
) -> None:
    """What rounding has added since then is a small difference of two large numbers."""
    early = round_of([1, 2], factors=np.full(2, factor), rounding=1e-3)
    late = round_of([0, 1, 2], factors=np.full(3, factor), distances=np.zeros(3), rounding=since)
    path = [*[early] * 2500, late, *[replace(early, rounding=since)] * 2500]
    nodes = range(2500, len(path) + 1, 100)
    read = client_sensitivities(path, [0], nodes)[:, 0]
    lazy = psi_at_all_nodes(path, [0])[list(nodes), 0]
    assert (lazy >= read * (1 - 1e-13)).all()


@pytest.mark.parametrize("factor", [0.95, 0.99, 0.999, 1.001, 1.01, 1.05])
def test_the_tracker_rounds_long_products_up(factor: float) -> None:
    tracker = SensitivityTracker()
    tracker.record(round_of([0, 1]))
    exact = Fraction(1)
    for _ in range(400):
        tracker.record(AbsentRound(factor, 0.0))
        exact *= Fraction(factor)
        assert Fraction(tracker.sensitivity(0) / SAFETY) >= exact * (1 - Fraction(1, 2**51))


def test_the_tracker_takes_a_round_that_is_larger_than_all_before() -> None:
    tracker, path = SensitivityTracker(), []
    for count in (3, 5000, 40_000):
        path.append(round_of(range(count), distances=np.linspace(0, 1, count)))
        tracker.record(path[-1])
        assert len(tracker.state().clients) == count
    some = [0, 2, 3, 4999, 5000, 39_999]
    read = client_sensitivities(path, some, [3])[0]
    assert [tracker.sensitivity(client) for client in some] == pytest.approx(read, rel=1e-9)


def test_an_empty_round_has_no_update() -> None:
    with pytest.raises(ValueError, match="nobody joined"):
        round_of([], update_norm=1.0)


@given(st.integers(0, 2**32 - 1), st.integers(2, 40))
def test_mean_factors_are_rounded_up(seed: int, count: int) -> None:
    numbers = np.random.default_rng(seed)
    weights, factors = numbers.uniform(0.1, 50, count), numbers.uniform(0.2, 1.3, count)
    edge = round_of(range(count), weights=weights, factors=factors)
    parts = [Fraction(weight) * Fraction(factor) for weight, factor in zip(weights, factors, strict=True)]
    total = sum(Fraction(weight) for weight in weights)
    assert Fraction(edge.factor) * total >= sum(parts)
    for own, weight, part in zip(client_terms(edge)[0], weights, parts, strict=True):
        assert Fraction(own) * (total - Fraction(weight)) >= sum(parts) - part


def test_a_matrix_that_is_not_square_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gram has shape \(2, 3\)"):
        round_of([1, 2], gram=np.ones((2, 3)))


def test_what_is_infinite_stays_infinite_for_a_client_among_others_without_a_factor() -> None:
    gone = ErasedStretch(np.array([1]), np.array([np.inf]), np.array([0.1]), common_factor=True)
    path: list[Edge] = [gone, round_of([1, 2, 3], factors=np.array([0.5, 0.0, 0.0]))]
    assert np.isinf(client_sensitivities(path, [1], [1, 2])).all()


def test_clients_may_have_any_number_but_the_smallest() -> None:
    clients = [-(2**63) + 1, -1, 0, 1, 2**63 - 1]
    tracker = SensitivityTracker()
    for _ in range(2):
        tracker.record(round_of(clients))
    assert len(tracker.state().clients) == 5
    expected = group_sensitivity([round_of(clients)] * 2, [-1])[-1]
    assert [tracker.sensitivity(client) for client in clients] == pytest.approx([expected] * 5)
    tracker.record(round_of(range(10, 3010)))
    assert len(tracker.state().clients) == 3005
    assert [tracker.sensitivity(client) for client in clients] == pytest.approx([expected] * 5)


def test_arrays_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="in 2 dimensions"):
        ErasedStretch(np.array([[1, 2]]), np.ones((1, 2)), np.ones((1, 2)), common_factor=True)
    for sensitivities, weights in ((np.ones(1), np.ones(2)), (np.ones(2), np.ones(3))):
        with pytest.raises(ValueError, match="for each of 2 clients"):
            ErasedStretch(np.array([1, 2]), sensitivities, weights, common_factor=True)


def test_beyond_float64_the_tracker_says_that_nothing_is_known() -> None:
    gone = ErasedStretch(np.array([1]), np.array([np.inf]), np.array([0.1]), common_factor=True)
    tracker = SensitivityTracker()
    for edge in [gone, *[AbsentRound(0.5, 0.0)] * 1100]:
        tracker.record(edge)
    assert tracker.sensitivity(1) == np.inf
    tracker = SensitivityTracker()
    early, late = (
        round_of(clients, factors=np.full(len(clients), 1.2), rounding=1e-9) for clients in ([2, 3], [1, 2])
    )
    for edge in [*[early] * 4500, late, *[early] * 5]:
        tracker.record(edge)
    assert tracker.sensitivity(1) == np.inf


def test_casting_the_larger_world_is_paid_for() -> None:
    """The other world's model may be larger by Psi, and a cast to float32 rounds in proportion."""
    path: list[Edge] = [round_of([0, 1]), NoiseEdge(1.0, 0.0)]
    psi = group_sensitivity(path, [0])
    assert psi[2] == pytest.approx(psi[1] * (1 + 2.0**-22), rel=1e-12)
    double = group_sensitivity([path[0], NoiseEdge(1.0, 0.0, unit_roundoff=2.0**-53)], [0])
    assert double[2] == pytest.approx(psi[1], rel=1e-12)


def test_a_stretch_in_the_middle_of_a_path_starts_psi_anew() -> None:
    """What lies before it serves only the nodes before it; the tracker reads the same numbers."""
    before = [round_of([1, 2], factors=np.full(2, 0.5)), round_of([2, 3], factors=np.full(2, 0.5))]
    stretch = ErasedStretch(np.array([1, 2, 3]), np.array([0.3, np.inf, 0.7]), np.full(3, 0.5), common_factor=True)
    path: list[Edge] = [*before, stretch, round_of([1, 3], factors=np.full(2, 0.5))]
    lazy = psi_at_all_nodes(path, [0, 1, 2, 3])
    for client in (1, 2, 3):
        whole = group_sensitivity(path, [client])
        assert whole[:3] == pytest.approx(group_sensitivity(before, [client]))
        assert whole[3:] == pytest.approx(group_sensitivity([stretch, path[-1]], [client])[1:])
        assert lazy[:, client] == pytest.approx(whole)
