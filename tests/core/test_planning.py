from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rescind.core.calibration import Budget, ClassicBudget, reached_delta
from rescind.core.edges import AbsentRound, Edge, ErasedStretch, NoiseEdge, RoundEdge
from rescind.core.facts import DpFedAvg, Facts, Mode, PrivacyScope, PublicHead, Sampling
from rescind.core.noise import GRID, drawn_guarantee, is_public_sigma, public_sigma, sigma_limits
from rescind.core.planning import (
    Candidate,
    assess,
    candidates,
    cheapest,
    consider,
    paper_choice,
    strict_candidates,
)
from rescind.core.recovery import RecoveryCurve, predicted_rounds
from rescind.core.regularity import Curvature, DeclaredLoss, NetworkLoss, SoftmaxL2
from rescind.core.sensitivity import client_sensitivities, group_sensitivity
from rescind.core.strict import HeadBound, release_mu, strict_sensitivity
from rescind.core.summary import DrawnNoise, Node, Obligation, Request, Summary
from rescind.core.training import LocalTraining

TRAINING = LocalTraining(steps=5, learning_rate=0.5, loss=SoftmaxL2(0.02, 1.0))
FACTS = Facts(TRAINING, Sampling.EVERYBODY, independent_randomness=True, redrawn_rounds=False, secret_noise=True)
STRICT_FACTS = replace(FACTS, public_schedule=True, public=PublicHead(0.0, parameters=40, batch=10))
NOISED_ROUNDS = DpFedAvg(
    sigma=1.0,
    clip=1.0,
    denominator=2.0,
    updates_are_clipped=True,
    weights_at_most_one=True,
    constant_denominator=True,
    noise_in_every_round=True,
)
BUDGET = Budget(10.0, 0.01)
FIRST = Request(frozenset({0}), BUDGET)


def round_of(clients: Sequence[int], distance: float = 1.0, seed: int = 0) -> RoundEdge:
    count = len(clients)
    weights = np.random.default_rng(seed).integers(5, 50, count).astype(float)
    return RoundEdge(
        clients=np.array(clients),
        weights=weights,
        factors=np.full(count, TRAINING.factor()),
        distances=np.full(count, distance),
        update_norm=1.0,
        rounding=1e-12,
    )


def summary_of(edges: Sequence[Edge], kept: Sequence[int] | None = None, **changes: object) -> Summary:
    """A history whose models approach the last one at the pace of the loss."""
    length = len(edges)
    nodes = [Node(index, 0, index) for index in (kept if kept is not None else range(length + 1))]
    powers = 0.8 ** np.arange(length + 1)
    curve = RecoveryCurve(np.arange(length + 1.0), 10 * (powers - powers[-1]), 10 * (1 - powers), 1000.0)
    # Each noise is of a branch that has the number of the node behind it.
    behind = {index: index for index in range(-1, 100)}
    values = {
        "behind_noise": behind,
        "edges": edges,
        "kept": nodes,
        "facts": FACTS,
        "curve": curve,
        "parameters": 40,
        **changes,
    }
    return Summary(**values)  # type: ignore[arg-type]


# Client 7 joins late, client 9 never.
EDGES: list[Edge] = [round_of(range(6), seed=number) for number in range(12)]
EDGES += [round_of(range(8), seed=number) for number in range(12, 20)]


def served(
    request: Request,
    mode: Mode,
    protected_from: int | None,
    spent: tuple[float, ...] | None = None,
    public_plan: bool | None = None,
) -> Obligation:
    """An earlier request as a careful history records it."""
    public = mode in (Mode.EXACT, Mode.STRICT) if public_plan is None else public_plan
    default = () if protected_from is None else (request.mu,)
    return Obligation(1, request, mode, public, protected_from, default if spent is None else spent)


def by_node(found: Sequence[Candidate]) -> dict[int, Candidate]:
    return {candidate.node.index: candidate for candidate in found}


def test_every_kept_node_gets_the_least_public_noise_that_is_enough() -> None:
    group = frozenset({0, 3})
    request = Request(group, BUDGET)
    psi = group_sensitivity(EDGES, group)
    found = by_node(candidates(summary_of(EDGES), request))
    assert set(found) == set(range(21))
    assert (found[0].mode, found[0].sigma) == (Mode.EXACT, 0.0)
    for index in range(1, 21):
        sigma = found[index].sigma
        assert found[index].mode is Mode.INSTANCE
        assert is_public_sigma(sigma)
        assert reached_delta(BUDGET.epsilon, psi[index] / sigma) <= BUDGET.delta
        assert reached_delta(BUDGET.epsilon, psi[index] / (sigma / np.sqrt(2) * 0.999)) > BUDGET.delta


def test_before_a_client_first_took_part_nothing_has_to_be_hidden() -> None:
    """Of such nodes the first and the last are enough; which these are depends on who took part."""
    found = by_node(candidates(summary_of(EDGES), Request(frozenset({7}), BUDGET)))
    assert {index for index, each in found.items() if each.mode is Mode.EXACT} == {0, 12}
    assert set(found) == {0, *range(12, 21)}


def test_a_client_that_was_never_there_is_a_mistake() -> None:
    for plan in (candidates, consider, lambda *both: paper_choice(*both, sigma=1.0)):
        with pytest.raises(ValueError, match="client 9 took part in no round"):
            plan(summary_of(EDGES), Request(frozenset({3, 9}), BUDGET))


def test_the_group_is_hidden_jointly_unless_asked_otherwise() -> None:
    group = frozenset({0, 1, 2})
    jointly = by_node(candidates(summary_of(EDGES), Request(group, BUDGET)))
    alone = by_node(candidates(summary_of(EDGES), Request(group, BUDGET, PrivacyScope.INDIVIDUAL)))
    worst = client_sensitivities(EDGES, group, [20]).max()
    assert worst / BUDGET.mu <= alone[20].sigma < jointly[20].sigma


def test_plain_words_and_sets_are_understood() -> None:
    assert Request({3, 1}, BUDGET, "sequence") == Request(frozenset({1, 3}), BUDGET, PrivacyScope.SEQUENCE)  # type: ignore[arg-type]
    assert Request([np.int64(3)], BUDGET).group == frozenset({3})  # type: ignore[arg-type]


def test_only_kept_nodes_are_candidates() -> None:
    found = candidates(summary_of(EDGES, kept=[0, 4, 17]), Request(frozenset({2}), BUDGET))
    assert [each.node.index for each in found] == [0, 4, 17]


def test_the_papers_rule_takes_the_last_admissible_node() -> None:
    """B < 1: Psi may fall again, so the last node below the threshold is not the one before the first crossing."""
    wave = [round_of(range(6)) if number < 3 else round_of(range(1, 6)) for number in range(60)]
    psi = group_sensitivity(wave, [0])
    sigma = public_sigma(2 * float(psi[-1]) / BUDGET.mu)
    assert psi.argmax() == 3
    chosen = paper_choice(summary_of(wave), Request(frozenset({0}), BUDGET), sigma=sigma)
    assert chosen.node.index == 60
    assert chosen.sigma == sigma
    assert chosen.mode is Mode.INSTANCE
    kept = [0, 1, 2, 3, 4, 20]
    fallback = paper_choice(summary_of(wave, kept), Request(frozenset({0}), BUDGET), sigma=sigma)
    assert psi[20] > sigma * BUDGET.mu
    assert (fallback.node.index, fallback.mode, fallback.sigma) == (0, Mode.EXACT, sigma)


@pytest.mark.parametrize("sigma", [0.01, 0.1, 0.5, 2.0])
def test_the_papers_rule_against_its_definition(sigma: float) -> None:
    psi = group_sensitivity(EDGES, [4])
    threshold = sigma * BUDGET.mu
    expected = max(index for index in range(21) if psi[index] <= threshold)
    assert paper_choice(summary_of(EDGES), Request(frozenset({4}), BUDGET), sigma=sigma).node.index == expected


def sequential() -> Summary:
    """Clients 0 and 1 have left: back to node 8, noise, training without them."""
    path = [*EDGES[:8], NoiseEdge(0.5, 1e-5), *(round_of(range(2, 8), seed=number) for number in range(30, 40))]
    first = Request(frozenset({0, 1}), BUDGET)
    return summary_of(path, owed=[served(first, Mode.INSTANCE, protected_from=9, spent=(BUDGET.mu,))])


def test_forgotten_clients_are_checked_again_where_their_noise_is_gone() -> None:
    summary = sequential()
    found = by_node(candidates(summary, Request(frozenset({5}), BUDGET)))
    earlier, now = group_sensitivity(summary.edges, [0, 1]), group_sensitivity(summary.edges, [5])
    assert earlier[8] > 2 * now[8]
    for index in range(1, 9):
        assert found[index].rechecked == (frozenset({0, 1}),)
        assert found[index].sigma >= max(earlier[index], now[index]) / BUDGET.mu
        assert found[index].releases_mu == pytest.approx(np.sqrt(2) * BUDGET.mu, rel=1e-3)
    for index in range(9, 20):
        assert found[index].rechecked == ()
        assert found[index].sigma < 2 * now[index] / BUDGET.mu
        assert found[index].releases_mu == pytest.approx(BUDGET.mu, rel=1e-3)
    assert (found[0].mode, found[0].rechecked, found[0].releases_mu) == (Mode.EXACT, (), 0.0)


def test_exact_for_the_leaver_is_not_exact_if_somebody_else_lies_bare() -> None:
    """Client 6 only joined after the noise; before it, clients 0 and 1 are in the model."""
    found = by_node(candidates(sequential(), Request(frozenset({6}), BUDGET)))
    assert found[9].mode is Mode.EXACT
    assert found[8].mode is Mode.INSTANCE
    assert found[8].sigma > 0


def test_the_whole_sequence_can_be_hidden_together() -> None:
    summary = sequential()
    group = by_node(candidates(summary, Request(frozenset({5}), BUDGET)))
    together = by_node(candidates(summary, Request(frozenset({5}), BUDGET, PrivacyScope.SEQUENCE)))
    everybody = group_sensitivity(summary.edges, [0, 1, 5])
    assert everybody[19] / BUDGET.mu <= together[19].sigma
    assert together[19].sigma > group[19].sigma
    late = by_node(candidates(summary, Request(frozenset({6}), BUDGET, PrivacyScope.SEQUENCE)))
    assert late[9].mode is Mode.INSTANCE


def test_a_budget_for_several_releases_covers_them_together() -> None:
    summary = sequential()
    single = by_node(candidates(summary, Request(frozenset({5}), BUDGET)))
    request = Request(frozenset({5}), BUDGET, releases=2)
    both = by_node(candidates(summary, request))
    assert request.mu == pytest.approx(BUDGET.mu / np.sqrt(2), rel=1e-3)
    # The first release has used the whole budget, so no further one under another noise fits.
    covering = replace(summary.owed[0], request=replace(request, group=frozenset({0, 1})))
    overspent = replace(summary, owed=[covering])
    assert set(by_node(candidates(overspent, request))) == {0, *range(9, 20)}
    assert {each.node.index for each in consider(overspent, request)[1]} == set(range(1, 9))
    assert "earlier releases" in consider(overspent, request)[1][0].reason
    assert set(both) == set(range(20))
    assert both[19].sigma >= single[19].sigma
    frugal = replace(summary, owed=[replace(covering, spent=(request.mu,))])
    assert set(by_node(candidates(frugal, request))) == set(range(20))


def test_an_earlier_promise_is_kept_on_its_own_terms() -> None:
    """A generous later request must not thin out what a stricter earlier one was promised."""
    tight = Budget(1.0, 1e-5)
    summary = sequential()
    first = Request(frozenset({0, 1}), tight)
    strict_first = replace(summary, owed=[served(first, Mode.INSTANCE, 9, (tight.mu,))])
    psi = group_sensitivity(summary.edges, [0, 1])
    for scope in (PrivacyScope.INDIVIDUAL, PrivacyScope.GROUP, PrivacyScope.SEQUENCE):
        found = by_node(candidates(strict_first, Request(frozenset({5}), BUDGET, scope)))
        for index in range(1, 9):
            assert found[index].sigma >= psi[index] / tight.mu
    # Two requests that were promised joint cover of everybody so far keep it, too.
    second = served(Request(frozenset({2}), tight, PrivacyScope.SEQUENCE), Mode.INSTANCE, 15, (tight.mu,))
    twice = [*summary.edges[:14], NoiseEdge(0.5, 1e-5), *summary.edges[14:]]
    both = summary_of(twice, owed=[*strict_first.owed, second])
    together = group_sensitivity(twice, [0, 1, 2])
    found = by_node(candidates(both, Request(frozenset({5}), BUDGET)))
    assert found[12].sigma >= together[12] / tight.mu
    assert frozenset({0, 1, 2}) in found[12].rechecked
    classic = replace(summary, owed=[served(replace(first, budget=ClassicBudget(10, 0.01)), Mode.HEURISTIC, 9)])
    assert by_node(candidates(classic, Request(frozenset({5}), BUDGET)))[8].mode is Mode.HEURISTIC
    assert by_node(candidates(classic, Request(frozenset({5}), BUDGET)))[9].mode is Mode.INSTANCE


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(FACTS, training=replace(TRAINING, momentum=0.9)), "local momentum is 0.9"),
        (replace(FACTS, training=replace(TRAINING, loss=NetworkLoss())), "no proven curvature"),
        (replace(FACTS, independent_randomness=False), "seed it by"),
        (replace(FACTS, redrawn_rounds=True), "drawn again"),
        (replace(FACTS, secret_noise=False), "reproducible"),
    ],
)
def test_what_is_not_proven_is_heuristic_but_exact_stays_exact(facts: Facts, reason: str) -> None:
    found = by_node(candidates(summary_of(EDGES, facts=facts), Request(frozenset({7}), BUDGET)))
    assert all(found[index].mode is Mode.HEURISTIC for index in range(13, 21))
    assert reason in found[20].obstacles[0]
    assert (found[0].mode, found[0].obstacles) == (Mode.EXACT, ())
    # A round that was drawn again may have been drawn again because of the client: only the start is beyond doubt.
    assert set(found) == {0, *range(13, 21)} if facts.redrawn_rounds else found[12].mode is Mode.EXACT


def test_the_classic_formula_is_never_more_than_heuristic() -> None:
    request = Request(frozenset({0}), ClassicBudget(10.0, 0.01), PrivacyScope.INDIVIDUAL)
    chosen = paper_choice(summary_of(EDGES), request, sigma=1.0)
    assert chosen.mode is Mode.HEURISTIC
    assert "classic" in chosen.obstacles[0]
    with pytest.raises(ValueError, match="classic"):
        strict_candidates(summary_of(EDGES, facts=STRICT_FACTS), request)


def test_strict_candidates_do_not_depend_on_any_update() -> None:
    request = Request(frozenset({0, 3}), BUDGET)
    summary = summary_of(EDGES, facts=STRICT_FACTS)
    found = strict_candidates(summary, request)
    louder = [replace(edge, distances=edge.distances * 50, update_norm=9.0) for edge in EDGES]  # type: ignore[type-var]
    other_curve = RecoveryCurve(np.array([0.0, 20.0]), np.array([99.0, 0.0]), np.zeros(2), 1.0)
    assert strict_candidates(summary_of(louder, facts=STRICT_FACTS, curve=other_curve), request) == found
    assert {each.mode for each in found[1:]} == {Mode.STRICT}
    assert found[0].mode is Mode.EXACT
    psi = strict_sensitivity(EDGES, request.group, STRICT_FACTS.head_bound())
    for each in found[1:]:
        assert each.sigma >= psi[each.node.index] / BUDGET.mu
    alone = strict_candidates(summary, replace(request, scope=PrivacyScope.INDIVIDUAL))
    assert alone[-1].sigma < found[-1].sigma


def test_dp_fedavg_needs_no_further_noise_where_it_has_enough() -> None:
    facts = replace(STRICT_FACTS, public=NOISED_ROUNDS, training=replace(TRAINING, optimizer="adam"))
    request = Request(frozenset({0}), Budget(5.0, 1e-3))
    found = by_node(strict_candidates(summary_of(EDGES, facts=facts), request))
    mu = release_mu(EDGES, [0], 2.0)
    admissible = {index for index in range(21) if mu[index] <= request.mu}
    assert set(found) == admissible
    assert 0 < len(admissible) < 21
    assert {each.sigma for each in found.values()} == {0.0}
    assert found[1].mode is Mode.STRICT
    assert cheapest(list(found.values())).node.index == max(admissible)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(STRICT_FACTS, public_schedule=False), "public schedule"),
        (replace(STRICT_FACTS, public=None), "neither an L2 head"),
        (replace(STRICT_FACTS, training=replace(TRAINING, proximal=0.1)), "proximal is 0.1"),
        (
            replace(STRICT_FACTS, training=replace(TRAINING, loss=DeclaredLoss(Curvature(0.1, 1)))),
            "softmax or logistic",
        ),
        (replace(STRICT_FACTS, public=replace(NOISED_ROUNDS, updates_are_clipped=False)), "clip every update"),
        (replace(STRICT_FACTS, public=replace(NOISED_ROUNDS, weights_at_most_one=False)), "at most 1"),
        (replace(STRICT_FACTS, public=replace(NOISED_ROUNDS, constant_denominator=False)), "by a constant"),
        (replace(STRICT_FACTS, public=replace(NOISED_ROUNDS, noise_in_every_round=False)), "in every round"),
        (replace(STRICT_FACTS, redrawn_rounds=True), "drawn again"),
        (replace(STRICT_FACTS, training=replace(TRAINING, momentum=0.5)), "momentum"),
    ],
)
def test_no_strict_plan_without_its_facts(facts: Facts, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        strict_candidates(summary_of(EDGES, facts=facts), Request(frozenset({0}), BUDGET))


def test_after_a_purge_a_client_goes_back_to_the_noised_node_or_to_the_start() -> None:
    kept = ErasedStretch(
        np.array([2, 3, 4]), np.array([0.1, 0.2, 0.3]), np.array([0.4, 0.4, 0.4]), common_factor=True
    )
    summary = summary_of([kept, NoiseEdge(0.5, 1e-5), AbsentRound(0.9, 0.0), AbsentRound(0.9, 0.0)], kept=[0, 2, 4])
    found = by_node(candidates(summary, Request(frozenset({3}), BUDGET)))
    assert (found[0].mode, found[2].mode) == (Mode.EXACT, Mode.INSTANCE)
    assert found[2].sigma >= 0.2 / BUDGET.mu
    everybody = by_node(candidates(summary, Request(frozenset({2, 3, 4}), BUDGET)))
    assert set(everybody) == {0}


def test_nobody_who_was_erased_counts_as_never_seen() -> None:
    """Client 0 was forgotten in the erased stretch: its number is gone, but it was there."""
    erased = ErasedStretch(np.arange(4), np.array([np.inf, 0.1, 0.2, 0.3]), np.full(4, 0.25), common_factor=True)
    path = [erased, *(round_of([1, 2, 3, 9], seed=number) for number in range(3))]
    earlier = served(Request(frozenset({0}), BUDGET), Mode.INSTANCE, protected_from=1)
    summary = summary_of(path, owed=[earlier])
    together = candidates(summary, Request(frozenset({9}), BUDGET, PrivacyScope.SEQUENCE))
    assert [each.node.index for each in together] == [0]
    back = summary_of([erased, round_of([0, 1, 2])], owed=[earlier])
    assert [each.node.index for each in candidates(back, Request(frozenset({0}), BUDGET))] == [0]
    alone = by_node(candidates(summary, Request(frozenset({9}), BUDGET)))
    assert (alone[1].mode, alone[2].mode) == (Mode.EXACT, Mode.INSTANCE)
    unnamed = replace(erased, clients=np.array([5, 1, 2, 3]))
    with pytest.raises(ValueError, match="nobody of an earlier request took part before its noise"):
        summary_of([unnamed, *path[1:]], owed=[earlier])


def test_a_strict_plan_follows_strict_plans_only() -> None:
    path = [*EDGES[:8], NoiseEdge(0.5, 1e-5), *(round_of(range(2, 8), seed=number) for number in range(30, 34))]
    request = Request(frozenset({5}), BUDGET)
    first = served(Request(frozenset({0, 1}), BUDGET), Mode.STRICT, 9, (BUDGET.mu,))
    summary = summary_of(path, facts=STRICT_FACTS, owed=[first])
    assert strict_candidates(summary, request)[-1].mode is Mode.STRICT
    looked = summary_of(path, facts=STRICT_FACTS, owed=[replace(first, mode=Mode.INSTANCE, public_plan=False)])
    # An exact restart may have been preferred for what the data showed, too.
    never = Obligation(1, Request(frozenset({7}), BUDGET), Mode.EXACT, public_plan=False, branch=None)
    for history in (looked, replace(summary, owed=[never])):
        with pytest.raises(ValueError, match="looked at data"):
            strict_candidates(history, request)
    assert by_node(candidates(summary, request))[12].weakened == (frozenset({0, 1}),)
    assert strict_candidates(summary, request)[-1].weakened == candidates(looked, request)[-1].weakened == ()
    # Where the facts no longer carry a strict bound, a strict promise can't be kept before its noise.
    lost = replace(summary, facts=replace(STRICT_FACTS, public=None))
    assert set(by_node(candidates(lost, request))) == {0, *range(9, 14)}
    # What was promised whatever the data are is checked again by the strict bound, also in an ordinary plan.
    strict_psi = strict_sensitivity(path, [0, 1], STRICT_FACTS.head_bound())
    measured = by_node(candidates(looked, request))
    for index, each in by_node(candidates(summary, request)).items():
        if 0 < index < 9:
            assert each.sigma >= strict_psi[index] / BUDGET.mu
            assert each.sigma > measured[index].sigma


def test_the_papers_rule_claims_no_more_than_the_planner() -> None:
    summary, request = sequential(), Request(frozenset({5}), BUDGET)
    off_the_list = paper_choice(summary, request, sigma=0.9)
    assert off_the_list.mode is Mode.HEURISTIC
    assert "public list" in off_the_list.obstacles[0]
    assert "does not fit the grid" in paper_choice(summary, request, sigma=128.0).obstacles[0]
    covering = replace(summary.owed[0], request=replace(request, group=frozenset({0, 1}), releases=2))
    spent = replace(summary, owed=[replace(covering, spent=(1.9, 1.9))])
    assert paper_choice(summary, request, sigma=2.0).node.index == 19
    early = replace(summary, kept=summary.kept[:9])
    assert paper_choice(early, request, sigma=2.0).node.index == 8
    assert paper_choice(replace(spent, kept=summary.kept[:9]), request, sigma=2.0).node.index == 0


def test_where_psi_is_nothing_a_touched_node_still_gets_noise() -> None:
    """Otherwise it would pass for a node that was never touched, and never be checked again."""
    edge = round_of(range(3), distance=0.0)
    silent = [replace(edge, rounding=0.0)]
    found = candidates(summary_of(silent), Request(frozenset({0}), BUDGET))
    assert (found[1].mode, found[1].sigma) == (Mode.INSTANCE, sigma_limits()[0])
    faint = [round_of(range(3)), AbsentRound(1e-155, 0.0), AbsentRound(1e-155, 0.0)]
    assert candidates(summary_of(faint), Request(frozenset({0}), BUDGET))[-1].sigma == sigma_limits()[0]


def test_noise_is_never_finer_than_the_grid_allows() -> None:
    tiny = [round_of(range(6), distance=1e-9)]
    found = candidates(summary_of(tiny), Request(frozenset({0}), BUDGET))
    assert found[1].sigma == sigma_limits()[0]
    coarse = candidates(summary_of(tiny, grid=2.0**-10), Request(frozenset({0}), BUDGET))
    assert coarse[1].sigma == sigma_limits(2.0**-10)[0]
    huge = [round_of(range(6), distance=1e9)]
    assert [each.node.index for each in candidates(summary_of(huge), FIRST)] == [0]
    assert "above the largest" in consider(summary_of(huge), FIRST)[1][0].reason


def test_the_cheapest_is_scratch_when_the_noise_drowns_the_model() -> None:
    loud = [round_of(range(6), distance=30.0, seed=number) for number in range(20)]
    found = candidates(summary_of(loud), Request(frozenset({0}), Budget(0.1, 1e-6)))
    assert cheapest(found).mode is Mode.EXACT
    calm = [round_of(range(6), distance=1e-3, seed=number) for number in range(20)]
    late = cheapest(candidates(summary_of(calm), Request(frozenset({0}), BUDGET)))
    assert late.node.index == 20
    assert late.predicted_rounds < 5


def test_exact_is_worth_a_tenth_more_rounds() -> None:
    noised = Candidate(Node(5, 0, 5), 1.0, Mode.INSTANCE, (), 1.0, predicted_rounds=20.0)
    exact = Candidate(Node(0, 0, 0), 0.0, Mode.EXACT, (), 0.0, predicted_rounds=21.9)
    assert cheapest([noised, exact]) is exact
    assert cheapest([noised, replace(exact, predicted_rounds=22.1)]) is noised
    assert cheapest([exact, replace(exact, node=Node(3, 0, 3))]).node.index == 3


def test_a_guess_never_decides_which_exact_node_it_is() -> None:
    """Predictions look at data: they may say exact or noised, and nothing else."""
    start = Candidate(Node(0, 0, 0), 0.0, Mode.EXACT, (), 0.0, predicted_rounds=1.0)
    late = replace(start, node=Node(3, 0, 3), predicted_rounds=50.0)
    noised = Candidate(Node(5, 0, 5), 1.0, Mode.INSTANCE, (), 1.0, predicted_rounds=48.0)
    assert cheapest([start, late]) is late
    assert cheapest([start, late, noised]) is late
    assert cheapest([start, late, replace(noised, predicted_rounds=40.0)]).mode is Mode.INSTANCE


def test_a_node_that_data_kept_is_no_exact_restart() -> None:
    """Client 7 joins in round 13; of the nodes before it only 4 and 9 are there whatever the data are."""
    request = Request(frozenset({7}), BUDGET)
    nodes = [Node(index, 0, index, eligible=index in (0, 4, 9)) for index in (0, 2, 4, 7, 9, 11, 15, 20)]
    summary = replace(summary_of(EDGES), kept=nodes)
    found = by_node(candidates(summary, request))
    assert set(found) == {0, 9, 15, 20}
    assert [found[index].mode for index in (0, 9, 15)] == [Mode.EXACT, Mode.EXACT, Mode.INSTANCE]
    assert consider(summary, request)[1] == ()
    assert paper_choice(summary, request, sigma=public_sigma(2.0**-10)).node.index == 9
    for node in nodes[1:6]:
        worth = assess(summary, request, node=node, sigma=0.0)
        assert (worth.mode is Mode.EXACT) == (node.index == 9)
        assert bool(worth.obstacles) == (node.index != 9)
    with pytest.raises(ValueError, match="theta_0\\^0 is public"):
        replace(summary, kept=[Node(0, 0, 0, eligible=False)])
    with pytest.raises(ValueError, match="no candidate"):
        cheapest([])


def test_what_the_operator_declares_is_said() -> None:
    loss = DeclaredLoss(Curvature(0.02, 1.02), gradient_bound=1.0)
    facts = replace(FACTS, training=replace(TRAINING, loss=loss))
    found = candidates(summary_of(EDGES, facts=facts), FIRST)
    assert found[1].mode is Mode.INSTANCE
    assert found[1].declared == ("the loss's curvature lies in [0.02, 1.02]",)
    assert found[0].declared == ()
    assert candidates(summary_of(EDGES), FIRST)[1].declared == ()


def test_impossible_plans_are_refused() -> None:
    for call, message in (
        (lambda: Request(frozenset(), BUDGET), "at least one client"),
        (lambda: Request(frozenset({4.9}), BUDGET), r"client 4\.9 is not an integer"),  # type: ignore[arg-type]
        (lambda: Request(frozenset({"hospital-4"}), BUDGET), "map names to numbers"),  # type: ignore[arg-type]
        (lambda: Request(frozenset({True}), BUDGET), "client True is not an integer"),
        (lambda: Request(frozenset({1}), (10, 0.01)), r"budget is \(10, 0\.01\)"),  # type: ignore[arg-type]
        (lambda: Request(frozenset({1}), BUDGET, "everybody"), "'everybody' is not a valid PrivacyScope"),  # type: ignore[arg-type]
        (lambda: summary_of(EDGES, parameters=0), "parameters is 0"),
        (lambda: summary_of(EDGES, facts=STRICT_FACTS, parameters=41), "another number of parameters"),
        (lambda: summary_of(EDGES, facts=STRICT_FACTS, grid=2.0**-10), "another grid"),
        (lambda: summary_of(EDGES, owed=[served(FIRST, Mode.INSTANCE, None)]), "served as instance has to name"),
        (lambda: replace(sequential(), owed=[served(FIRST, Mode.INSTANCE, 9, ())]), "has spent some mu"),
        (
            lambda: summary_of([replace(EDGES[0], server_learning_rate=0.5)]),
            r"server learning rate 0\.5, the training 1",
        ),
        (lambda: replace(FACTS, redrawn_rounds="no"), "redrawn_rounds is 'no'; it has to be True or False"),
        (lambda: replace(FACTS, sampling="whatever"), "sampling is 'whatever'"),
        (
            lambda: replace(FACTS, sampling=Sampling.POISSON),
            r"sample is None for Sampling\.POISSON; give the rate of Sampling\.POISSON",
        ),
        (lambda: replace(FACTS, sampling=Sampling.FIXED_SIZE), "sample is None .* the size of"),
        (lambda: replace(FACTS, sampling=Sampling.FRACTION), "sample is None .* the fraction of"),
        (lambda: replace(FACTS, sample=0.5), r"sample is 0\.5 .* None for Sampling\.EVERYBODY"),
        (lambda: Request(frozenset({1}), BUDGET, releases=0), "releases is 0"),
        (lambda: summary_of(EDGES, kept=[1, 2]), "theta_0"),
        (lambda: summary_of(EDGES, kept=[0, 2, 2]), "theta_0"),
        (lambda: summary_of(EDGES, kept=[0, 99]), "theta_0"),
        (
            lambda: summary_of([*EDGES, ErasedStretch(np.arange(1), np.ones(1), np.ones(1), common_factor=True)]),
            "everybody",
        ),
        (lambda: summary_of(EDGES, owed=[served(FIRST, Mode.INSTANCE, 5)]), "no noise lies before node 5"),
        (lambda: summary_of(EDGES, owed=[served(FIRST, Mode.INSTANCE, 0)]), "no noise lies before node 0"),
        (lambda: paper_choice(summary_of(EDGES), Request(frozenset({0}), BUDGET), sigma=0.0), "sigma is 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_budget_holds_for_the_noise_as_it_is_really_drawn() -> None:
    request = Request(frozenset({0, 3}), BUDGET)
    psi = group_sensitivity(EDGES, request.group)
    for each in candidates(summary_of(EDGES, parameters=10**6), request)[1:]:
        ideal = reached_delta(request.ideal.epsilon, psi[each.node.index] / each.sigma)
        epsilon, delta = drawn_guarantee(request.ideal.epsilon, ideal, each.sigma, 10**6)
        assert epsilon <= BUDGET.epsilon
        assert delta <= BUDGET.delta
    # So many parameters under so much noise that float64's last bits are felt: only retraining is left.
    crowded = summary_of(EDGES, parameters=10**13)
    assert [each.node.index for each in candidates(crowded, request)] == [0]
    assert [each.node.index for each in consider(crowded, request)[1]] == list(range(1, 21))
    assert all("floating point takes more" in each.reason for each in consider(crowded, request)[1])
    assert consider(summary_of(EDGES), request)[1] == ()
    assert request.holds(DrawnNoise(1.0, 10**6))
    assert not request.holds(DrawnNoise(1.0, 10**13))
    assert not replace(request, releases=100).holds(DrawnNoise(1.0, 10**8))


def dp_fedavg(noise_multiplier: float) -> Facts:
    return replace(STRICT_FACTS, public=replace(NOISED_ROUNDS, denominator=noise_multiplier))


def parts_of(group: frozenset[int], scope: PrivacyScope) -> list[frozenset[int]]:
    return [frozenset({client}) for client in group] if scope is PrivacyScope.INDIVIDUAL else [group]


def test_thinning_the_kept_nodes_changes_none_of_their_noise() -> None:
    kept = [0, 4, 17]
    for facts, find in (
        (FACTS, candidates),
        (STRICT_FACTS, strict_candidates),
        (dp_fedavg(1.0), strict_candidates),
    ):
        for scope in PrivacyScope:
            request = Request(frozenset({2, 7}), BUDGET, scope)
            everywhere = by_node(find(summary_of(EDGES, facts=facts), request))
            thinned = by_node(find(summary_of(EDGES, kept=kept, facts=facts), request))
            assert thinned == {index: everywhere[index] for index in kept if index in everywhere}


@pytest.mark.parametrize("scope", [PrivacyScope.INDIVIDUAL, PrivacyScope.GROUP])
def test_every_release_gets_its_share_of_the_budget(scope: PrivacyScope) -> None:
    group, releases = frozenset({0, 3}), 9
    request = Request(group, BUDGET, scope, releases)
    alone = client_sensitivities(EDGES, group, range(21)).max(axis=1)
    psi = alone if scope is PrivacyScope.INDIVIDUAL else group_sensitivity(EDGES, group)
    for each in candidates(summary_of(EDGES), request)[1:]:
        assert each.sigma >= np.sqrt(releases) * psi[each.node.index] / BUDGET.mu
    bounds = [strict_sensitivity(EDGES, part, STRICT_FACTS.head_bound()) for part in parts_of(group, scope)]
    strict = strict_candidates(summary_of(EDGES, facts=STRICT_FACTS), request)
    assert len(strict) > 1
    for each in strict[1:]:
        assert each.sigma >= np.sqrt(releases) * np.max(bounds, axis=0)[each.node.index] / BUDGET.mu
    noised = [release_mu(EDGES, part, 4.0) for part in parts_of(group, scope)]
    enough = np.sqrt(releases) * np.max(noised, axis=0) <= BUDGET.mu
    found = by_node(strict_candidates(summary_of(EDGES, facts=dp_fedavg(4.0)), request))
    assert 1 < len(found) < 21
    assert all(enough[index] for index in found)


def test_each_client_alone_means_the_one_who_moved_the_model_most() -> None:
    """Client 0 took part in all rounds, client 7 in few, and client 0 is far from the others."""
    loud = [replace(edge, distances=np.where(edge.clients == 0, 5.0, 0.1)) for edge in EDGES]  # type: ignore[type-var]
    request = Request(frozenset({0, 7}), BUDGET, PrivacyScope.INDIVIDUAL)
    only = replace(request, group=frozenset({0}))
    for facts, find in (
        (FACTS, candidates),
        (STRICT_FACTS, strict_candidates),
        (dp_fedavg(2.0), strict_candidates),
    ):
        summary = summary_of(loud, facts=facts)
        both, worst = by_node(find(summary, request)), by_node(find(summary, only))
        assert {index: each.sigma for index, each in both.items()} == {i: each.sigma for i, each in worst.items()}


def test_an_earlier_request_without_noise_is_not_checked_again_but_stays_in_the_sequence() -> None:
    before = served(Request(frozenset({0, 1}), BUDGET), Mode.EXACT, protected_from=None)
    summary = summary_of(EDGES, owed=[before])
    for scope in (PrivacyScope.INDIVIDUAL, PrivacyScope.GROUP):
        request = Request(frozenset({5}), BUDGET, scope)
        assert candidates(summary, request) == candidates(summary_of(EDGES), request)
    together = group_sensitivity(EDGES, [0, 1, 5])
    for each in candidates(summary, Request(frozenset({5}), BUDGET, PrivacyScope.SEQUENCE))[1:]:
        assert each.sigma >= together[each.node.index] / BUDGET.mu
        assert each.rechecked == ()


def test_a_sequence_hides_the_newest_group_on_its_own_too() -> None:
    """Clients 0 and 5 pull in opposite directions, so that together they have hardly moved the model."""
    pulls = np.array([1.0, -1.0, 0.0])
    opposed = replace(round_of([0, 5, 6]), weights=np.ones(3), distances=np.abs(pulls), gram=np.outer(pulls, pulls))
    path: list[Edge] = [*[opposed] * 4, NoiseEdge(0.5, 0.0)]
    psi, together = group_sensitivity(path, [5]), group_sensitivity(path, [0, 5])
    assert psi[5] > 100 * together[5]
    summary = summary_of(path, owed=[served(FIRST, Mode.INSTANCE, protected_from=5)])
    found = by_node(candidates(summary, Request(frozenset({5}), BUDGET, PrivacyScope.SEQUENCE)))
    assert found[5].sigma >= psi[5] / BUDGET.mu


def test_the_papers_rule_rounds_what_a_node_needs_up() -> None:
    request = Request(frozenset({4}), BUDGET)
    quotient = float(group_sensitivity(EDGES, request.group)[20]) / request.mu
    summary = summary_of(EDGES, kept=[0, 20])
    assert paper_choice(summary, request, sigma=quotient).node.index == 0
    assert paper_choice(summary, request, sigma=np.nextafter(quotient, np.inf)).node.index == 20


def test_noise_counts_in_the_predicted_rounds() -> None:
    summary, request = summary_of(EDGES, parameters=1000), Request(frozenset({0}), BUDGET)
    found = candidates(summary, request)
    for each in found:
        assert each.predicted_rounds == predicted_rounds(summary.curve, each.node.index, each.sigma, 1000)
    assert found[20].sigma > 0
    assert found[20].predicted_rounds > 1
    facts = replace(STRICT_FACTS, public=PublicHead(150.0, parameters=1000, batch=10))
    head, strict = facts.head_bound(), strict_candidates(replace(summary, facts=facts), request)
    assert len(strict) == 21
    public = RecoveryCurve.public(TRAINING.factor(), head.initial_norm + head.radius, len(EDGES), 1000)
    for each in strict:
        assert each.predicted_rounds == predicted_rounds(public, each.node.index, each.sigma, 1000)


def test_between_equals_the_stronger_claim_and_then_the_later_node_is_taken() -> None:
    def candidate(index: int, mode: Mode, rounds: float = 3.0) -> Candidate:
        return Candidate(Node(index, 0, index), 0.5, mode, (), 0.0, rounds)

    exact, later = candidate(1, Mode.EXACT), candidate(2, Mode.EXACT)
    instance, sooner = candidate(9, Mode.INSTANCE), candidate(5, Mode.HEURISTIC, rounds=2.0)
    assert cheapest([instance, exact]) is exact
    assert cheapest([exact, later, instance]) is later
    assert cheapest([exact, sooner]) is sooner


def test_a_classic_promise_of_long_ago_leaves_no_strict_plan() -> None:
    classic = Request(frozenset({1}), ClassicBudget(10.0, 0.01))
    summary = summary_of(EDGES, facts=STRICT_FACTS, owed=[served(classic, Mode.EXACT, protected_from=None)])
    with pytest.raises(ValueError, match="classic"):
        strict_candidates(summary, Request(frozenset({0}), BUDGET))


@pytest.mark.parametrize("kept", [[], [0, 4, 2], [0, 21]])
def test_kept_nodes_that_are_none_are_refused(kept: list[int]) -> None:
    with pytest.raises(ValueError, match="theta_0"):
        summary_of(EDGES, kept=kept)


def test_releases_are_summed_up_within_what_is_left_after_the_reserve() -> None:
    summary = sequential()
    request = Request(frozenset({5}), BUDGET, releases=2)
    earlier = replace(request, group=frozenset({0, 1}))
    for total, fits in ((request.ideal.mu * (1 - 1e-6), True), (request.ideal.mu * (1 + 1e-6), False)):
        spent = (float(np.sqrt(total**2 - request.mu**2)),)
        found = candidates(replace(summary, owed=[served(earlier, Mode.INSTANCE, 9, spent)]), request)
        assert (8 in by_node(found)) is fits


def test_what_floating_point_takes_is_held_against_both_halves_of_the_budget() -> None:
    group = frozenset({0})
    # A small epsilon has little to give away; beside a large one, what is not accounted for weighs e^epsilon.
    assert Request(group, Budget(0.01, 0.1)).holds(DrawnNoise(1e-3, 1000))
    assert not Request(group, Budget(0.01, 0.1)).holds(DrawnNoise(64.0, 1000))
    assert Request(group, Budget(30.0, 0.1)).holds(DrawnNoise(1.0, 1000))
    assert not Request(group, Budget(30.0, 1e-12)).holds(DrawnNoise(1.0, 1000))


def test_the_smallest_budgets_leave_only_exact_nodes() -> None:
    quiet = [round_of(range(6), distance=1e-7)]
    for smallest in (Budget(1e-3, 0.1), Budget(1.0, 1e-12)):
        found = candidates(summary_of(quiet), Request(frozenset({0}), smallest))
        assert [each.mode for each in found] == [Mode.EXACT]


def test_the_classic_formula_decides_with_its_own_threshold() -> None:
    budget = ClassicBudget(10.0, 0.01)
    request = Request(frozenset({4}), budget)
    assert request.mu == budget.mu
    psi = group_sensitivity(EDGES, [4])
    for sigma in (0.1, 0.3, 0.5):
        expected = max(index for index in range(21) if psi[index] <= sigma * budget.mu)
        assert paper_choice(summary_of(EDGES), request, sigma=sigma).node.index == expected


def test_a_plan_that_looks_at_data_adds_noise_whatever_the_rounds_had() -> None:
    request = Request(frozenset({0, 3}), BUDGET)
    found, plain = (
        candidates(summary_of(EDGES, facts=dp_fedavg(2.0)), request),
        candidates(summary_of(EDGES), request),
    )
    assert [(each.node, each.sigma) for each in found] == [(each.node, each.sigma) for each in plain]
    # Clipped updates over a constant are no mean: the bound that asked for the noise does not hold for them.
    assert {each.mode for each in found if each.sigma} == {Mode.HEURISTIC}


def test_an_untouched_node_is_not_exact_where_rounds_were_drawn_again() -> None:
    redrawn = summary_of(EDGES, facts=replace(FACTS, redrawn_rounds=True))
    redrawn = replace(redrawn, kept=redrawn.kept[:13])
    chosen = paper_choice(redrawn, Request(frozenset({7}), BUDGET), sigma=1.0)
    assert (chosen.node.index, chosen.mode, chosen.sigma) == (12, Mode.HEURISTIC, 1.0)
    assert "drawn again" in chosen.obstacles[0]


@pytest.mark.parametrize(
    ("grid", "sigma"), [(GRID, 2.0**-17), (GRID, 2.0**7), (2.0**-10, 2.0**-8), (2.0**-30, 2.0**-3)]
)
def test_the_papers_noise_has_to_fit_the_grid(grid: float, sigma: float) -> None:
    quiet = [round_of(range(6), distance=1e-9)]
    chosen = paper_choice(summary_of(quiet, grid=grid), FIRST, sigma=sigma)
    assert (chosen.node.index, chosen.mode) == (1, Mode.HEURISTIC)
    assert "does not fit the grid" in chosen.obstacles[0]


def test_a_coarser_grid_leaves_room_for_more_parameters() -> None:
    assert not FIRST.holds(DrawnNoise(1.0, 10**12))
    assert FIRST.holds(DrawnNoise(1.0, 10**12, 2.0**-8))
    assert len(candidates(summary_of(EDGES, parameters=10**12), FIRST)) == 1
    assert len(candidates(summary_of(EDGES, parameters=10**12, grid=2.0**-8), FIRST)) == 21


def test_behind_its_noise_an_earlier_request_asks_for_nothing() -> None:
    """No noise keeps the smallest budget as it is drawn, so before its own noise only the start is left."""
    summary = sequential()
    smallest = Request(frozenset({0, 1}), Budget(1e-3, 0.1))
    found = candidates(replace(summary, owed=[served(smallest, Mode.INSTANCE, 9)]), Request(frozenset({5}), BUDGET))
    assert [each.node.index for each in found] == [0, *range(9, 20)]


def test_what_protects_an_earlier_request_is_noise_on_the_path() -> None:
    path: list[Edge] = [*EDGES[:3], NoiseEdge(0.5, 0.0)]
    for behind in (0, -1, 3, 5, 99):
        with pytest.raises(ValueError, match=f"no noise lies before node {behind}"):
            summary_of(path, owed=[served(FIRST, Mode.INSTANCE, behind)])
    stretch = ErasedStretch(np.array([2, 3]), np.ones(2), np.full(2, 0.4), common_factor=True)
    with pytest.raises(ValueError, match="name everybody"):
        summary_of([EDGES[0], stretch, EDGES[1]])
    # Who was forgotten after the stretch need not be named in it.
    later = summary_of([stretch, EDGES[0], NoiseEdge(0.5, 0.0)], owed=[served(FIRST, Mode.INSTANCE, 3)])
    assert len(later.owed) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"public_schedule": False}, "public schedule"),
        ({"redrawn_rounds": True}, "drawn again"),
        ({"independent_randomness": False}, "seed it by"),
    ],
)
def test_dp_fedavg_has_to_keep_the_rules_too(changes: dict[str, bool], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        strict_candidates(summary_of(EDGES, facts=replace(dp_fedavg(2.0), **changes)), FIRST)


def test_the_noise_of_every_round_pays_for_its_own_rounding() -> None:
    """2^26 steps of the grid: 20 draws on 10^6 parameters take more than a thousandth of the budget."""
    loud = replace(dp_fedavg(20.0), public=replace(NOISED_ROUNDS, clip=64.0, denominator=20.0, sigma=64.0))
    wide = {"facts": loud, "parameters": 10**6}
    assert [each.node.index for each in strict_candidates(summary_of(EDGES, **wide), FIRST)] == [0]
    quiet = replace(loud, public=replace(NOISED_ROUNDS, clip=2.0**-10, denominator=20.0, sigma=2.0**-10))
    assert len(strict_candidates(summary_of(EDGES, facts=quiet, parameters=10**6), FIRST)) > 5


def test_the_heads_bound_has_all_its_public_constants() -> None:
    facts = replace(STRICT_FACTS, public=PublicHead(3.0, parameters=40, batch=10, steps=9, grid=2.0**-10))
    assert facts.head_bound() == HeadBound.of(TRAINING, 3.0, 40, 10, steps=9, grid=2.0**-10)


def test_what_a_choice_is_worth_follows_from_the_facts() -> None:
    summary = summary_of(EDGES)
    for each in candidates(summary, FIRST):
        assert assess(summary, FIRST, node=each.node, sigma=each.sigma) == each
        if each.sigma:
            with pytest.raises(ValueError, match="does not hide the group there"):
                assess(summary, FIRST, node=each.node, sigma=each.sigma / 2)
        else:
            # Noise that nobody needs is none of anybody's that leaves.
            noised = assess(summary, FIRST, node=each.node, sigma=1.0)
            assert noised == replace(each, sigma=1.0, predicted_rounds=noised.predicted_rounds)
            assert noised.predicted_rounds > each.predicted_rounds
    strict = replace(summary, facts=STRICT_FACTS)
    for each in strict_candidates(strict, FIRST):
        assert assess(strict, FIRST, node=each.node, sigma=each.sigma, strict=True) == each
    with pytest.raises(ValueError, match="no strict plan: sigma 63 is not on the public list"):
        assess(strict, FIRST, node=strict.kept[-1], sigma=63.0, strict=True)
    spent = replace(FIRST, releases=2)
    paper = paper_choice(summary, FIRST, sigma=0.9)
    assert assess(summary, FIRST, node=paper.node, sigma=0.9) == paper
    assert assess(summary, spent, node=summary.kept[0], sigma=0.0).mode is Mode.EXACT


def test_thinning_a_list_that_a_summary_was_made_of_changes_no_noise() -> None:
    """The noise is found once, by the places of the kept nodes: in a shorter list these would be other nodes."""
    kept = [Node(index, 0, index) for index in range(21)]
    seen = replace(summary_of(EDGES), kept=kept)
    found = by_node(candidates(seen, FIRST))
    del kept[1:18]
    assert found[1].sigma < found[18].sigma
    with pytest.raises(ValueError, match="does not hide the group there"):
        assess(seen, FIRST, node=Node(18, 0, 18), sigma=found[1].sigma)
