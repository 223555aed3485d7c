"""What planning sees: a frozen summary of the history, and the request that it has to serve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from rescind.core._checks import positive
from rescind.core.arrays import Floats
from rescind.core.calibration import DELTA_RANGE, EPSILON_RANGE, Budget, ClassicBudget, reached_epsilon
from rescind.core.edges import Edge, ErasedStretch, ModelId, NoiseEdge, RoundEdge, find_members, sorted_group
from rescind.core.facts import DpFedAvg, Facts, Mode, PrivacyScope, PublicHead
from rescind.core.noise import GRID, drawn_guarantee, real_attack_power
from rescind.core.recovery import RecoveryCurve
from rescind.core.sensitivity import first_joined

# The share of a budget that is kept back for what floating point does to the noise.
RESERVE = 1e-3

Group: TypeAlias = frozenset[int]


@dataclass(frozen=True, slots=True)
class Node:
    """A kept model, ``index`` edges after theta_0^0 on the path: the paper's theta_branch^round.

    ``eligible`` for an exact restart is a node that was kept without a look at anybody's data; theta_0^0 always is.

    Paper: Section 4. Theory sections 7 and 12.
    """

    index: int
    branch: int
    round: int
    eligible: bool = field(default=True, compare=False)

    @property
    def model_id(self) -> ModelId:
        """The model's id."""
        return ModelId(self.branch, self.round)


@dataclass(frozen=True, slots=True)
class DrawnNoise:
    """Noise as it was drawn, on so many ``parameters`` (d).

    ``missed`` is the probability that a bound behind it does not hold; ``draws`` counts the noises of a release.

    Theory section 10.
    """

    sigma: float
    parameters: int
    grid: float = GRID
    missed: float = 0.0
    draws: int = 1

    def guarantee(self, epsilon: float, delta: float, releases: int) -> tuple[float, float]:
        """Return the (epsilon, delta) of so many releases, where ideal noise would give these.

        Theory section 10.
        """
        reached, really = drawn_guarantee(
            epsilon, delta, self.sigma, self.parameters, self.draws * releases, self.grid
        )
        return reached, really + self.missed


@dataclass(frozen=True, slots=True)
class Request:
    """Whom to forget, within which budget, how jointly, and how many separate releases the budget must cover.

    With ``releases`` = 1 the guarantee speaks of the newest model alone. With more, each release gets mu*/sqrt of
    that number, and a candidate whose releases together exceed mu* is left out.

    Paper: W_u of Algorithm 3. Theory section 11.
    """

    group: Group
    budget: Budget | ClassicBudget
    scope: PrivacyScope = PrivacyScope.GROUP
    releases: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "scope", PrivacyScope(self.scope))
        object.__setattr__(self, "group", frozenset(sorted_group(self.group).tolist()))
        if not isinstance(self.budget, Budget | ClassicBudget):
            raise ValueError(f"budget is {self.budget!r}; it has to be a Budget(epsilon, delta)")
        if not self.group:
            raise ValueError("a request has to name at least one client")
        if self.releases < 1:
            raise ValueError(f"releases is {self.releases!r}; the budget covers at least one")

    @property
    def ideal(self) -> Budget | ClassicBudget:
        """The budget for noise without rounding: a thousandth is kept back for what floating point does to it."""
        if isinstance(self.budget, ClassicBudget):
            return self.budget
        epsilon, delta = (1 - RESERVE) * self.budget.epsilon, (1 - RESERVE) * self.budget.delta
        return Budget(max(epsilon, EPSILON_RANGE[0]), max(delta, DELTA_RANGE[0]))

    @property
    def mu(self) -> float:
        """The shift that one release may show, rounded down so that all of them together stay within mu*."""
        return self.ideal.mu / math.sqrt(self.releases) * (1 - 1e-12 * (self.releases > 1))

    def holds(self, noise: DrawnNoise) -> bool:
        """Return whether noise that was calibrated by ``mu`` keeps the budget as it is really drawn.

        Theory section 10.
        """
        reached, delta = noise.guarantee(self.ideal.epsilon, self.ideal.delta, self.releases)
        return reached <= self.budget.epsilon and delta <= self.budget.delta

    def epsilon_at(self, delta: float, noise: DrawnNoise) -> float | None:
        """Return the epsilon that the same noise has at another ``delta``, as it is really drawn, rounded up.

        None where what floating point does to the noise takes more of that delta than is kept back.

        Theory section 10.
        """
        kept = (1 - RESERVE) * delta
        epsilon, reached = noise.guarantee(reached_epsilon(self.ideal.mu, kept), kept, self.releases)
        return math.nextafter(epsilon, math.inf) if reached <= delta else None

    def power_at(self, false_positive_rate: float, noise: DrawnNoise) -> float:
        """Return the most that an attack on all releases reaches at a false positive rate, rounded up.

        Theory section 10.
        """
        draws = noise.draws * self.releases
        power = real_attack_power(
            self.ideal.mu, false_positive_rate, noise.sigma, noise.parameters, draws, noise.grid
        )
        return min(1.0, math.nextafter(power + noise.missed, math.inf))


@dataclass(frozen=True, slots=True)
class Obligation:
    """What is owed to an earlier request, which was served in some mode: ``branch`` is the one whose noise hides it.

    ``public_plan`` says whether it was planned without looking at data (by ``strict_candidates``). ``branch`` is
    ``None`` if nobody whom it hides had touched the node it restarted from, if every round was noised anyway
    (DP-FedAvg), or if nothing hides it (``heuristic``), and only then. ``spent`` holds the mu that each separate
    release since then was calibrated to. What was promised then, its budget and its scope, is owed until the client
    takes part again.

    Paper: Eq. (40). Theory section 11.
    """

    number: int
    request: Request
    mode: Mode
    public_plan: bool
    branch: int | None
    spent: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """All that planning sees of a history: the path H(u), what is kept of it, what is owed, the facts.

    ``parameters`` is d, ``head_parameters`` how many of them a solver would find; ``curve`` is the measured approach
    to the last model, over the path's nodes; ``owed`` is for the earlier requests, in the order in which they were
    served; ``behind_noise`` gives the first node behind the noise of a branch; ``grid`` is the noise's.
    ``noise_edges`` counts the noises on the path, once: it is asked for at every kept node. ``bounds`` remembers the
    sensitivities behind each promise: a plan is made and then assessed, and Psi along a long path is computed once.

    Paper: Eq. (19). Theory section 12.
    """

    edges: Sequence[Edge]
    kept: Sequence[Node]
    facts: Facts
    curve: RecoveryCurve
    parameters: int
    owed: Sequence[Obligation] = ()
    behind_noise: Mapping[int, int] = field(default_factory=dict)
    grid: float = GRID
    head_parameters: int | None = None
    noise_edges: int = field(init=False)
    bounds: dict[tuple[object, ...], Floats] = field(init=False, default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        # What is remembered belongs to these, so they must not change under it.
        for name in ("edges", "kept", "owed"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        object.__setattr__(self, "noise_edges", sum(map(_noises, self.edges)))
        indices = [node.index for node in self.kept]
        if indices != sorted(set(indices)) or not indices or indices[0] != 0 or indices[-1] > len(self.edges):
            raise ValueError("kept nodes have to start with theta_0^0, increase, and lie on the path")
        if not self.kept[0].eligible:
            raise ValueError("theta_0^0 is public: an exact restart may always take it")
        positive("parameters", self.parameters)
        public = self.facts.public
        if isinstance(public, PublicHead) and (public.parameters, public.grid) != (self.parameters, self.grid):
            raise ValueError("the recorded facts of the head have another number of parameters or another grid")
        for edge in self.edges:
            self._check_training(edge)
        _check_stretches(self.edges)
        everybody = frozenset[int]()
        for earlier in self.owed:
            everybody |= earlier.request.group
            self._check_protection(earlier, everybody)

    def protected_from(self, earlier: Obligation) -> int | None:
        """Return the first node behind the noise that hides an earlier request, if noise does."""
        return None if earlier.branch is None else self.behind_noise[earlier.branch]

    def _check_training(self, edge: Edge) -> None:
        rate = self.facts.training.server_learning_rate
        if isinstance(edge, RoundEdge) and not edge.kind.is_solvers and edge.server_learning_rate != rate:
            raise ValueError(f"a round has server learning rate {edge.server_learning_rate:g}, the training {rate:g}")

    def _check_protection(self, earlier: Obligation, everybody: Group) -> None:
        behind = self.protected_from(earlier)
        noised_rounds = isinstance(self.facts.public, DpFedAvg)
        if behind is None:
            if earlier.mode not in (Mode.EXACT, Mode.HEURISTIC) and not noised_rounds:
                raise ValueError(f"a request that was served as {earlier.mode.value} has to name its noise")
            return
        if not (1 <= behind <= len(self.edges) and isinstance(self.edges[behind - 1], NoiseEdge | ErasedStretch)):
            raise ValueError(f"no noise lies before node {behind}, which is to protect an earlier request")
        hidden = everybody if earlier.request.scope is PrivacyScope.SEQUENCE else earlier.request.group
        if first_joined(self.edges, hidden) >= behind:
            raise ValueError(f"nobody of an earlier request took part before its noise at node {behind}")
        if not earlier.spent:
            raise ValueError("an earlier request that was served with noise has spent some mu: say how much")


def _noises(edge: Edge) -> int:
    return len(edge.sigmas) if isinstance(edge, ErasedStretch) else isinstance(edge, NoiseEdge)


def _check_stretches(edges: Sequence[Edge]) -> None:
    """Check who is named: a stretch gives Psi anew, so whoever is not in it would count as never seen."""
    named = [np.sort(edge.clients) for edge in edges if isinstance(edge, ErasedStretch)]
    for edge in edges if named else ():
        if isinstance(edge, ErasedStretch):
            named.pop(0)
        if len(edge.clients) and not all(find_members(edge.clients, all_).all() for all_ in named):
            raise ValueError("an erased stretch has to name everybody who took part before its end")
