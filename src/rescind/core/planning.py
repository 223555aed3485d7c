"""From a summary of the history to a plan: the candidates to restart from, and the choice among them.

Every kept node that somebody who must be forgotten has touched is a candidate with the noise it needs. Of those that
nobody of them has touched, which need none (``exact``), two are: theta_0^0, which is retraining from scratch, and the
last one that is kept whatever the data are. What a candidate may be called follows from recorded facts, never from a
wish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rescind.core._checks import positive
from rescind.core.arrays import Floats
from rescind.core.calibration import composed_mu, smallest_sigma
from rescind.core.edges import NO_BOUND, NOT_BOUNDED
from rescind.core.facts import REPRODUCIBLE, DpFedAvg, Mode, PrivacyScope
from rescind.core.noise import is_public_sigma, public_sigma, sigma_limits
from rescind.core.recovery import RecoveryCurve, predicted_rounds
from rescind.core.sensitivity import client_sensitivities, first_joined, group_sensitivity, never_joined
from rescind.core.solver import Solving
from rescind.core.strict import NORM_MISSED, release_mu, strict_sensitivity
from rescind.core.summary import DrawnNoise, Group, Node, Request, Summary

_NOT_EXACT = (
    "a restart without noise is exact from the first model, or from the last one before the group of those that are "
    "kept whatever the data are"
)

# Of a solver's step, for instance, nothing is known.
_UNKNOWN = NO_BOUND / 1e10


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to forget: restart at ``node`` with noise ``sigma``, 0 where none is added.

    ``rechecked`` names the earlier groups that lose their own noise at this node and are hidden by this one, within
    what was promised to them; ``releases_mu`` is the mu of all separate releases together, for the group that has
    seen most. ``obstacles`` say why a ``heuristic`` candidate is no more than that; ``declared`` what the bound takes
    on the operator's word. ``weakened`` names earlier groups whose ``strict`` claim does not extend to the new
    release, because this plan looked at data: for it, theirs is ``instance`` too. ``solving``: from there on the
    head is solved, not trained, and how.

    Theory section 12.
    """

    node: Node
    sigma: float
    mode: Mode
    rechecked: tuple[Group, ...]
    releases_mu: float
    predicted_rounds: float
    obstacles: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()
    weakened: tuple[Group, ...] = ()
    solving: Solving | None = None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A kept node that can't be restarted from within the budget, and why.

    Theory section 12.
    """

    node: Node
    reason: str


def candidates(summary: Summary, *requests: Request) -> tuple[Candidate, ...]:
    """Return every kept node with the least public noise that hides all who have to be hidden there.

    Several requests can be served together; each keeps its own promise. Of the nodes that need none only theta_0^0
    and the last eligible one are given: which one it is depends on who took part, not on anybody's data.

    Theory section 12.
    """
    offered, _ = consider(summary, *requests)
    return offered


def consider(summary: Summary, *requests: Request) -> tuple[tuple[Candidate, ...], tuple[LeftOut, ...]]:
    """Return the ``candidates``, and the other kept nodes at which noise might hide the group, each with why not.

    Theory section 12.
    """
    considered = [*_considered(summary, _owed(summary, requests, _measured), summary.curve, strict=False)]
    return (
        tuple(candidate for candidate in considered if isinstance(candidate, Candidate)),
        tuple(omitted for omitted in considered if isinstance(omitted, LeftOut)),
    )


def strict_candidates(summary: Summary, *requests: Request) -> tuple[Candidate, ...]:
    """Return the candidates whose node and noise depend on nobody's data, ranked by public quantities only.

    Where training ended by a rule that looks at data they are ``instance``, and with noise that can be drawn again
    ``heuristic``, for experiments; any other obstacle is an error.

    Theory sections 7 and 8.
    """
    _check_strict(summary, requests)
    considered = _considered(summary, _owed(summary, requests, _public), _public_curve(summary), strict=True)
    return tuple(candidate for candidate in considered if isinstance(candidate, Candidate))


def cheapest(offered: Sequence[Candidate]) -> Candidate:
    """Choose the last exact candidate, or the noised one of the fewest predicted rounds if that saves a tenth.

    The prediction is a guess; that nothing is left of the client is not. It looks at data, so it decides whether the
    restart is exact and never which of the exact ones it is.

    Theory sections 7 and 12.
    """
    if not offered:
        raise ValueError("there is no candidate to choose from")
    exact = [candidate for candidate in offered if candidate.mode is Mode.EXACT]
    noised = [candidate for candidate in offered if candidate.mode is not Mode.EXACT]
    fewest = min((candidate.predicted_rounds for candidate in noised), default=math.inf)
    if exact:
        last = max(exact, key=lambda one: one.node.index)
        if not noised or last.predicted_rounds <= 1.1 * fewest:
            return last
    order = list(Mode)
    return min(noised, key=lambda one: (one.predicted_rounds, order.index(one.mode), -one.node.index))


def paper_choice(summary: Summary, *requests: Request, sigma: float) -> Candidate:
    """Choose as the paper does: a fixed ``sigma``, the last kept node whose sensitivity is at most Psi*.

    The noise is added there even where nobody has to be hidden.

    Paper: Algorithm 2, Algorithm 3, Eq. (11), (12) and (18). Theory section 12.
    """
    positive("sigma", sigma)
    owed = _owed(summary, requests, _measured)
    # theta_0^0 is untouched, so there always is one.
    position = max(
        at
        for at, node in enumerate(summary.kept)
        if _needed(node, at, owed) <= sigma
        and _within_releases(node, owed)
        # A node that nobody touched is offered only if it is there whatever the data are.
        and (node.eligible or any(debt.at(node) for debt in owed))
    )
    obstacles = _noise_obstacles(summary, summary.kept[position], owed, sigma)
    return _candidate(summary, owed, position, sigma, summary.curve, obstacles, strict=False)


def assess(summary: Summary, *requests: Request, node: Node, sigma: float, strict: bool = False) -> Candidate:
    """Return what may be claimed of a restart at ``node`` with noise ``sigma``; refuse noise that is too small.

    Whoever chose them, what they are worth follows from the facts.

    Theory section 12.
    """
    if strict:
        _check_strict(summary, requests)
    owed = _owed(summary, requests, _public if strict else _measured)
    position = list(summary.kept).index(node)
    noise_obstacles: tuple[str, ...] = ()
    if any(debt.at(node) for debt in owed):
        needed = _needed(node, position, owed)
        if not needed <= sigma:
            raise ValueError(f"noise of {sigma:g} does not hide the group there: it takes at least {needed:g}")
        noise_obstacles = _noise_obstacles(summary, node, owed, sigma)
        if not _within_releases(node, owed):
            raise ValueError("earlier releases have used up the budget that has to cover several")
        if strict and noise_obstacles:
            raise ValueError("no strict plan: " + "; ".join(noise_obstacles))
    curve = _public_curve(summary) if strict else summary.curve
    return _candidate(summary, owed, position, sigma, curve, noise_obstacles, strict=strict)


def _check_strict(summary: Summary, requests: Sequence[Request]) -> None:
    """Refuse a strict plan, whoever made it, where the facts or an earlier plan do not carry one."""
    obstacles = summary.facts.strict_plan_obstacles
    obstacles += _classic_budgets([*requests, *(earlier.request for earlier in summary.owed)])
    if not all(earlier.public_plan for earlier in summary.owed):
        obstacles += ("an earlier request was served by a plan that looked at data",)
    if obstacles:
        raise ValueError("no strict plan: " + "; ".join(obstacles))


@dataclass(frozen=True, slots=True, eq=False)
class _Debt:
    """A group that some request promised to hide, and its sensitivity at each kept node before ``until``."""

    group: Group
    request: Request
    until: float
    spent: tuple[float, ...]
    sensitivities: Floats
    untouched_until: int

    def at(self, node: Node) -> bool:
        return self.untouched_until < node.index < self.until

    @property
    def releases_mu(self) -> float:
        return composed_mu((*self.spent, self.request.mu))


def _owed(
    summary: Summary, requests: Sequence[Request], bound: Callable[[Summary, Request, Group], Floats]
) -> list[_Debt]:
    """List every promise: each request's group, and everybody up to it where the request asked for that."""
    promises: list[tuple[Request, Mode | None, float | None, tuple[float, ...]]] = [
        *((owed.request, owed.mode, summary.protected_from(owed), owed.spent) for owed in summary.owed),
        *((request, None, math.inf, ()) for request in requests),
    ]
    if not requests:
        raise ValueError("a plan is made for one request or more")
    absent = never_joined(summary.edges, {client for request in requests for client in request.group})
    # Where rounds were drawn again, whoever was there may have had a part in it without being recorded.
    if len(absent) and not summary.facts.redrawn_rounds:
        raise ValueError(f"client {absent[0]} took part in no round on this path: there is nothing of it to forget")
    owed, everybody = [], frozenset[int]()
    for promise, mode, until, spent in promises:
        everybody |= promise.group
        if until is None:
            continue
        groups = {promise.group, everybody} if promise.scope is PrivacyScope.SEQUENCE else {promise.group}
        for group in sorted(groups, key=len):
            # What was promised whatever the data are is not re-checked by looking at them.
            rule = _strictly if mode is Mode.STRICT else bound
            # No noise that is calibrated to clients hides rows of one that stays.
            rule = _never if promise.scope is PrivacyScope.RECORDS else rule
            if (rule, promise, group) not in summary.bounds:
                computed = rule(summary, promise, group)
                computed.flags.writeable = False
                summary.bounds[rule, promise, group] = computed
            bounds = summary.bounds[rule, promise, group]
            owed.append(_Debt(group, promise, until, spent, bounds, first_joined(summary.edges, group)))
    return owed


def _measured(summary: Summary, request: Request, group: Group) -> Floats:
    """Return the measured sensitivity at the kept nodes."""
    kept = [node.index for node in summary.kept]
    if request.scope is PrivacyScope.INDIVIDUAL:
        return np.asarray(client_sensitivities(summary.edges, group, kept).max(axis=1))
    return group_sensitivity(summary.edges, group)[kept]


def _strictly(summary: Summary, request: Request, group: Group) -> Floats:
    """Return the sensitivity that re-checks a strict promise; infinite where the facts carry none."""
    if summary.facts.strict_obstacles:
        return _never(summary, request, group)
    return _public(summary, request, group)


def _never(summary: Summary, _request: Request, _group: Group) -> Floats:
    """Return an infinite sensitivity at every kept node."""
    return np.full(len(summary.kept), np.inf)


def _public(summary: Summary, request: Request, group: Group) -> Floats:
    """Return the strict bound; for DP-FedAvg 0 where the rounds have noise enough, else infinite."""
    facts, kept = summary.facts, [node.index for node in summary.kept]
    if request.scope is PrivacyScope.INDIVIDUAL and len(group) > 1:
        return np.asarray(np.max([_public(summary, request, frozenset({client})) for client in group], axis=0))
    if isinstance(facts.public, DpFedAvg):
        shift = release_mu(summary.edges, group, facts.public.noise_multiplier)[kept]
        return np.where(shift <= request.mu, 0.0, np.inf)
    return strict_sensitivity(summary.edges, group, facts.head_bound())[kept]


def _public_curve(summary: Summary) -> RecoveryCurve:
    """Return the approach to the last model that public quantities tell."""
    facts, length = summary.facts, max(len(summary.edges), 1)
    if isinstance(facts.public, DpFedAvg):
        # DP-FedAvg promises no contraction: all that is public is that later nodes are further on.
        return RecoveryCurve(np.array([0.0, length]), np.array([1.0, 0.0]), np.zeros(2), 0.0)
    head = facts.head_bound()
    return RecoveryCurve.public(facts.training.factor(), head.initial_norm + head.radius, length, summary.parameters)


def _needed(node: Node, position: int, owed: list[_Debt]) -> float:
    """Return the noise that every promise asks for at a node; a bound that is not a number counts as infinite."""
    bounds = [(float(debt.sensitivities[position]), debt.request) for debt in owed if debt.at(node)]
    if not all(math.isfinite(bound) for bound, _ in bounds):
        return math.inf
    # What a promise asks for takes a second to compute, the first time.
    if (longest := max((bound for bound, _ in bounds), default=0.0)) >= _UNKNOWN:
        return longest
    return max((smallest_sigma(bound, request.mu) for bound, request in bounds), default=0.0)


def _within_releases(node: Node, owed: list[_Debt]) -> bool:
    """Return whether the releases so far and this one stay within the budgets that have to cover several."""
    several = [debt for debt in owed if debt.at(node) and debt.request.releases > 1]
    return all(debt.releases_mu <= debt.request.ideal.mu for debt in several)


def _considered(
    summary: Summary, owed: list[_Debt], curve: RecoveryCurve, *, strict: bool
) -> Iterator[Candidate | LeftOut]:
    smallest, largest = sigma_limits(summary.grid)
    noised_already = strict and isinstance(summary.facts.public, DpFedAvg)
    last_exact = _last_exact(summary, owed)
    for position, node in enumerate(summary.kept):
        if not any(debt.at(node) for debt in owed):
            if position in (0, last_exact):
                yield _candidate(summary, owed, position, 0.0, curve, strict=strict)
            continue
        needed = _needed(node, position, owed)
        if needed > largest:
            yield LeftOut(node, _too_much(needed, largest, [debt.request for debt in owed if debt.at(node)]))
            continue
        sigma = 0.0 if noised_already else public_sigma(max(needed, smallest))
        reasons = _noise_obstacles(summary, node, owed, sigma)
        if not _within_releases(node, owed):
            reasons += ("earlier releases have used up the budget that has to cover several",)
        if reasons:
            yield LeftOut(node, "; ".join(reasons))
        else:
            yield _candidate(summary, owed, position, sigma, curve, strict=strict)


def _too_much(needed: float, largest: float, hidden: Sequence[Request]) -> str:
    """Say why no noise is large enough."""
    if any(request.scope is PrivacyScope.RECORDS for request in hidden):
        return "no noise hides rows of a client that stays"
    if needed >= _UNKNOWN:
        return f"how far they moved it is {NOT_BOUNDED}"
    return f"it would take noise of {needed:.3g}, above the largest that the grid allows, {largest:g}"


def _noise_obstacles(summary: Summary, node: Node, owed: list[_Debt], sigma: float) -> tuple[str, ...]:
    """Say why noise of this size, as it is really drawn, would not keep the promises."""
    smallest, largest = sigma_limits(summary.grid)
    draws = 1
    if not sigma and isinstance(summary.facts.public, DpFedAvg):
        sigma, draws = summary.facts.public.sigma, node.index or 1
    if not is_public_sigma(sigma):
        return (f"sigma {sigma:g} is not on the public list of powers of sqrt 2",)
    if not smallest <= sigma <= largest:
        return (f"sigma {sigma:g} does not fit the grid: it has to lie between {smallest:g} and {largest:g}",)
    exact = [debt.request for debt in owed if debt.at(node) and debt.request.budget.certifiable]
    # A strict bound takes a public norm for the noise of every earlier edge.
    missed = NORM_MISSED * summary.noise_edges
    noise = DrawnNoise(sigma, summary.parameters, summary.grid, missed, draws)
    if not all(request.holds(noise) for request in exact):
        return (
            "floating point takes more than its thousandth of the budget: epsilon or the number of parameters is "
            "too large, or delta too small, for noise on this grid",
        )
    return ()


def _last_exact(summary: Summary, owed: list[_Debt]) -> int:
    """Return the position of the last eligible node that nobody touched: theta_0^0 where rounds were drawn again.

    A round drawn again may have been so because of the group, which then had a part in all nodes behind it.
    """
    return max(
        at
        for at, node in enumerate(summary.kept)
        if node.index == 0
        or (node.eligible and not summary.facts.redrawn_rounds and not any(debt.at(node) for debt in owed))
    )


def _candidate(
    summary: Summary,
    owed: list[_Debt],
    position: int,
    sigma: float,
    curve: RecoveryCurve,
    noise_obstacles: tuple[str, ...] = (),
    *,
    strict: bool,
) -> Candidate:
    node = summary.kept[position]
    hidden = [debt for debt in owed if debt.at(node)]
    obstacles: tuple[str, ...] = ()
    if not hidden:
        if position not in (0, _last_exact(summary, owed)):
            obstacles = (*(summary.facts.obstacles if summary.facts.redrawn_rounds else ()), _NOT_EXACT)
    elif strict:
        obstacles = () if summary.facts.secret_noise else (REPRODUCIBLE,)
    else:
        obstacles = summary.facts.obstacles + _classic_budgets([debt.request for debt in hidden]) + noise_obstacles
    # A number of rounds that data decided is one more constant that only an instance takes as given.
    whatever_the_data = strict and summary.facts.public_rounds
    proven = Mode.EXACT if not hidden else Mode.STRICT if whatever_the_data else Mode.INSTANCE
    return Candidate(
        node=node,
        sigma=sigma,
        mode=Mode.HEURISTIC if obstacles else proven,
        rechecked=tuple(debt.group for debt in hidden if debt.until < math.inf),
        releases_mu=max((debt.releases_mu for debt in hidden), default=0.0),
        predicted_rounds=predicted_rounds(curve, node.index, sigma, summary.parameters),
        obstacles=obstacles,
        declared=summary.facts.training.declared if hidden and not strict else (),
        weakened=()
        if strict
        else tuple(earlier.request.group for earlier in summary.owed if earlier.mode is Mode.STRICT),
    )


def _classic_budgets(requests: Sequence[Request]) -> tuple[str, ...]:
    if all(request.budget.certifiable for request in requests):
        return ()
    return ("the classic formula calibrates the noise: use the exact one",)
