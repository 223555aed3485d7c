"""From a summary of the history to a plan: the candidates to restart from, and the choice among them.

Every kept node is a candidate with the noise it needs. A node that nobody who must be forgotten has touched needs
none (``exact``): theta_0^0, which is retraining from scratch, is always among them. What a candidate may be called
follows from recorded facts, never from a wish.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rescind.core._checks import positive
from rescind.core.calibration import composed_mu
from rescind.core.edges import Floats
from rescind.core.facts import Facts, Mode, Scope
from rescind.core.noise import public_sigma, sigma_limits
from rescind.core.recovery import RecoveryCurve, predicted_rounds
from rescind.core.sensitivity import client_sensitivities, first_joined, group_sensitivity
from rescind.core.strict import release_mu, strict_sensitivity
from rescind.core.summary import Group, Node, Request, Summary

_EVERYWHERE = math.inf


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to forget: restart at ``node`` with noise ``sigma``, 0 where none is needed.

    ``rechecked`` names the earlier groups that lose their own noise at this node and are hidden by this one;
    ``releases_mu`` is the mu of all separate releases together, for the group that has seen most. ``obstacles`` say
    why a ``heuristic`` candidate is no more than that.

    Theory: 12.
    """

    node: Node
    sigma: float
    mode: Mode
    rechecked: tuple[Group, ...]
    releases_mu: float
    predicted_rounds: float
    obstacles: tuple[str, ...] = ()


def candidates(summary: Summary, request: Request) -> tuple[Candidate, ...]:
    """Give every kept node with the least public noise that hides all who have to be hidden there.

    Theory: 12.
    """
    hidden = _to_hide(summary, request, _measured(summary, request.scope))
    return tuple(_noised(summary, request, hidden, summary.curve, strict=False))


def strict_candidates(summary: Summary, request: Request) -> tuple[Candidate, ...]:
    """Give the candidates whose node and noise depend on nobody's data, ranked by public quantities only.

    Theory: 7 and 8.
    """
    facts, length = summary.facts, max(len(summary.edges), 1)
    obstacles = facts.strict_obstacles + (() if request.budget.certifiable else ("the budget is the classic one",))
    if obstacles:
        raise ValueError("no strict plan: " + "; ".join(obstacles))
    if facts.head is not None:
        public = RecoveryCurve.public(facts.training.factor(), facts.head.initial_norm + facts.head.radius, length)
    else:
        # DP-FedAvg promises no contraction: all that is public is that later nodes are further on.
        public = RecoveryCurve(np.array([0.0, length]), np.array([1.0, 0.0]))
    hidden = _to_hide(summary, request, _public(summary, request))
    return tuple(_noised(summary, request, hidden, public, strict=True))


def cheapest(found: Sequence[Candidate]) -> Candidate:
    """Choose the fewest predicted rounds; between equals the one that claims more, then the later node.

    Theory: 12.
    """
    order = list(Mode)
    return min(found, key=lambda each: (each.predicted_rounds, order.index(each.mode), -each.node.index))


def paper_choice(summary: Summary, request: Request, sigma: float) -> Candidate:
    """Choose as the paper does: a fixed ``sigma``, the last kept node whose sensitivity is at most Psi*.

    Paper: Algorithm 2, Algorithm 3, Eq. (psi_star), (T_IFU) and (n_u+1). Theory: 12.
    """
    positive("sigma", sigma)
    threshold = math.nextafter(sigma * request.mu, 0.0)
    hidden = _to_hide(summary, request, _measured(summary, request.scope))
    # theta_0^0 is untouched, so there always is one.
    position = max(at for at in range(len(summary.kept)) if _needed(summary, hidden, at) <= threshold)
    return _candidate(summary, request, hidden, position, sigma, summary.curve, strict=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Hidden:
    """A group that has to be hidden at the nodes before ``until``, with its Psi at the kept nodes."""

    group: Group
    until: float
    spent: tuple[float, ...]
    sensitivities: Floats
    untouched: int

    def at(self, node: Node) -> bool:
        return self.untouched < node.index < self.until


def _to_hide(summary: Summary, request: Request, bound: Callable[[Group], Floats]) -> list[_Hidden]:
    wanted: list[tuple[Group, float, tuple[float, ...]]] = [(request.group, _EVERYWHERE, ())]
    wanted += [
        (earlier.group, earlier.protected_from, earlier.spent)
        for earlier in summary.forgotten
        if earlier.protected_from is not None
    ]
    if request.scope is Scope.SEQUENCE:
        everybody = request.group.union(*(earlier.group for earlier in summary.forgotten))
        wanted.append((everybody, _EVERYWHERE, ()))
    return [
        _Hidden(group, until, spent, bound(group), first_joined(summary.edges, group))
        for group, until, spent in wanted
    ]


def _measured(summary: Summary, scope: Scope) -> Callable[[Group], Floats]:
    kept = [node.index for node in summary.kept]
    if scope is Scope.INDIVIDUAL:
        return lambda group: client_sensitivities(summary.edges, group, kept).max(axis=1)
    return lambda group: group_sensitivity(summary.edges, group)[kept]


def _public(summary: Summary, request: Request) -> Callable[[Group], Floats]:
    """Give the strict bound; for DP-FedAvg 0 where the noise in the model is enough, and infinite elsewhere."""
    facts, kept = summary.facts, [node.index for node in summary.kept]

    def jointly(group: Group) -> Floats:
        if facts.head is not None:
            return strict_sensitivity(summary.edges, group, facts.head)[kept]
        assert facts.noise_multiplier is not None  # noqa: S101 - a fact that strict_obstacles asks for
        shift = release_mu(summary.edges, group, facts.noise_multiplier)[kept]
        return np.where(shift <= request.mu, 0.0, np.inf)

    def alone(group: Group) -> Floats:
        return np.asarray(np.max([jointly(frozenset({client})) for client in group], axis=0))

    return alone if request.scope is Scope.INDIVIDUAL else jointly


def _needed(summary: Summary, hidden: list[_Hidden], position: int) -> float:
    node = summary.kept[position]
    return max((float(each.sensitivities[position]) for each in hidden if each.at(node)), default=0.0)


def _noised(
    summary: Summary, request: Request, hidden: list[_Hidden], curve: RecoveryCurve, *, strict: bool
) -> Iterator[Candidate]:
    smallest, largest = sigma_limits()
    for position in range(len(summary.kept)):
        needed = _needed(summary, hidden, position)
        if needed > largest * request.mu:
            continue
        sigma = max(smallest, public_sigma(math.nextafter(needed / request.mu, math.inf))) if needed else 0.0
        found = _candidate(summary, request, hidden, position, sigma, curve, strict=strict)
        if request.releases == 1 or found.releases_mu <= request.budget.mu:
            yield found


def _candidate(
    summary: Summary,
    request: Request,
    hidden: list[_Hidden],
    position: int,
    sigma: float,
    curve: RecoveryCurve,
    *,
    strict: bool,
) -> Candidate:
    node = summary.kept[position]
    touched = [each for each in hidden if each.at(node)]
    mode, obstacles = _mode(summary.facts, request, strict) if touched else (Mode.EXACT, ())
    noise = sigma if touched else 0.0
    return Candidate(
        node=node,
        sigma=noise,
        mode=mode,
        rechecked=tuple(each.group for each in touched if each.until < _EVERYWHERE),
        releases_mu=max((composed_mu((*each.spent, request.mu)) for each in touched), default=0.0),
        predicted_rounds=predicted_rounds(curve, node.index, noise, summary.parameters),
        obstacles=obstacles,
    )


def _mode(facts: Facts, request: Request, strict: bool) -> tuple[Mode, tuple[str, ...]]:
    if strict:
        return Mode.STRICT, ()
    obstacles = facts.obstacles
    if not request.budget.certifiable:
        obstacles += ("the classic formula calibrates the noise: use the exact one",)
    return (Mode.HEURISTIC, obstacles) if obstacles else (Mode.INSTANCE, ())
