"""Bounds that hold for every data set: they see participation, weights and public constants, never an update.

A (``HeadBound``): an L2 head, whose local training pulls every model towards a ball of public radius.
B (``release_mu``): DP-FedAvg, where noise was added in every round already.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rescind.core._checks import not_negative, positive
from rescind.core.arrays import Clients, Floats, Members
from rescind.core.edges import (
    RELATIVE_ROUNDING,
    SMALLEST_FACTOR,
    Edge,
    ErasedStretch,
    NoiseEdge,
    RoundEdge,
    find_members,
    is_solvers,
    sorted_group,
)
from rescind.core.noise import GRID, grid_rounding
from rescind.core.regularity import Factor, LogisticL2, SoftmaxL2
from rescind.core.sensitivity import SAFETY
from rescind.core.training import UNIT_ROUNDOFF, LocalTraining

# The norm of noise exceeds sigma (sqrt d + _REACH) with a probability below NORM_MISSED.
_REACH = 9.2
NORM_MISSED = 5e-19
_MOST_STEPS = 10**7


@dataclass(frozen=True, slots=True)
class HeadBound:
    """The public constants behind strict bounds for an L2 head.

    ``decay`` is eta lambda, ``radius`` is L/lambda, ``initial_norm`` is ||theta_0^0||, ``parameters`` is d,
    ``most_steps`` the largest K_i. Rounding without a look at the model, with D the largest norm it can have:
    ``rounding_unit`` D + ``rounding_offset`` for a round, g sqrt(d) + 4 u D for noise on a ``grid`` g, u being
    ``unit_roundoff``.

    Theory section 8.
    """

    decay: float
    radius: float
    initial_norm: float
    parameters: int
    most_steps: int
    rounding_unit: float
    rounding_offset: float
    grid: float
    unit_roundoff: float

    def __post_init__(self) -> None:
        # Below this, or with more steps, the K behind a rho could no longer be told from its rounding.
        if not 1e-7 <= self.decay < 1:
            raise ValueError(f"eta lambda is {self.decay!r}; a strict bound needs at least 1e-7, and less than 1")
        if self.most_steps > _MOST_STEPS:
            raise ValueError(f"{self.most_steps} local steps; a strict bound needs at most {_MOST_STEPS}")
        positive("radius", self.radius)
        for name in ("initial_norm", "rounding_unit", "rounding_offset", "grid", "unit_roundoff"):
            not_negative(name, getattr(self, name))

    @classmethod
    def of(
        cls,
        training: LocalTraining,
        initial_norm: float,
        parameters: int,
        batch: int,
        steps: int | None = None,
        grid: float = GRID,
    ) -> HeadBound:
        """Derive the constants from the training, or say why there is no strict bound for it.

        ``steps`` is the largest K_i of any round where they differ.

        Theory section 8.
        """
        loss = training.loss
        if not isinstance(loss, SoftmaxL2 | LogisticL2) or loss.l2 <= 0:
            raise ValueError("a strict bound needs softmax or logistic regression with an L2 term above 0")
        if training.obstacles:
            raise ValueError("a strict bound needs plain FedAvg: " + " ".join(map(str, training.obstacles)))
        if training.proximal:
            raise ValueError(f"proximal is {training.proximal!r}; a strict bound needs plain FedAvg, so 0")
        limit = 2 / (loss.curvature.high + loss.curvature.low)
        if training.learning_rate > limit:
            raise ValueError(f"learning_rate is {training.learning_rate!r}; a strict bound needs at most {limit:g}")
        offset = training.rounding(0.0, parameters, batch, steps=steps)
        return cls(
            decay=training.learning_rate * loss.l2,
            radius=loss.gradient_bound / loss.l2,
            initial_norm=initial_norm,
            parameters=parameters,
            most_steps=steps or training.steps,
            # The term grows linearly with the norm.
            rounding_unit=training.rounding(1.0, parameters, batch, steps=steps) - offset,
            rounding_offset=offset,
            grid=grid,
            unit_roundoff=UNIT_ROUNDOFF[training.precision],
        )

    def pulls(self, factors: Floats) -> Floats:
        """Return 1 - rho_i, rounded up, from the K_i behind the rho_i: 1 - rho itself would cancel.

        A strict bound is false for factors that are not (1 - eta lambda)^K, so others are refused.

        Theory section 8.
        """
        logarithm = math.log1p(-self.decay)
        steps = np.rint(np.log(np.maximum(factors, SMALLEST_FACTOR)) / logarithm)
        powers = np.abs(np.exp(steps * logarithm) - factors) <= 1e-9 * factors
        if not ((steps >= 1) & (powers | (factors <= SMALLEST_FACTOR))).all():
            raise ValueError(
                "a round was trained otherwise than declared: its factors are not powers of 1 - eta lambda"
            )
        if steps.max(initial=0.0) > self.most_steps:
            raise ValueError(f"a client made more than the {self.most_steps} local steps that were declared")
        return np.asarray(-np.expm1(steps * logarithm) * (1 + 1e-12))


def strict_sensitivity(edges: Sequence[Edge], group: Iterable[int], bound: HeadBound) -> Floats:
    """Return a bound on the distance at every node that holds whatever the clients' data are.

    With D the largest norm a model can have, rho_W and rho_R the weighted means over W and the others:
    Psi <- rho_R Psi + P_W (|rho_W - rho_R| D + (2 - rho_W - rho_R) L/lambda), and where all belong to W
    Psi <- rho_W Psi + (1 - rho_W) (L/lambda + D). Rounding may carry a model out of the ball, so D grows by a round's
    own.

    Theory section 8.
    """
    leaving = sorted_group(group)
    largest = max(bound.initial_norm, bound.radius)
    psi, parted, bounded = 0.0, False, True
    nodes = [psi]
    for edge in edges:
        # Of the norm of a model that a solver may have made nothing public is known.
        bounded = bounded and not is_solvers(edge)
        if not bounded:
            nodes.append(math.inf)
            continue
        rounding = bound.rounding_unit * largest + bound.rounding_offset
        if isinstance(edge, ErasedStretch):
            psi = _past_erased(edge, leaving)
            parted = psi > 0
            rounding = 0.0
            # What is added before what multiplies: in whatever order it happened, this is no less.
            largest += edge.rounds * bound.rounding_offset
            for sigma in edge.sigmas:
                largest = _largest_after(largest, sigma, bound)
            largest *= (1 + bound.rounding_unit) ** edge.rounds
        elif isinstance(edge, NoiseEdge):
            psi *= 1 + 4 * bound.unit_roundoff
            largest = _largest_after(largest, edge.sigma, bound)
            rounding = grid_rounding(bound.parameters, largest, bound.unit_roundoff, bound.grid)
        elif isinstance(edge, RoundEdge):
            inside = find_members(edge.clients, leaving)
            parted = parted or bool(inside.any())
            psi = _through_round(edge, inside, psi, largest, bound)
            rounding *= bool(len(edge.clients))
            largest += rounding
        else:
            largest += rounding
            if edge.factor > 1 + 2 * RELATIVE_ROUNDING:
                raise ValueError(f"a round has the factor {edge.factor!r}; an L2 head's is at most 1")
            psi *= edge.factor
        psi += rounding if parted else 0.0
        nodes.append(psi)
    return np.array(nodes) * SAFETY


def _largest_after(largest: float, sigma: float, bound: HeadBound) -> float:
    """Bound the model's norm after noise, given that before it."""
    root = math.sqrt(bound.parameters)
    return (largest + sigma * (root + _REACH) + bound.grid * root) * (1 + 2 * bound.unit_roundoff)


def _through_round(edge: RoundEdge, inside: Members, psi: float, largest: float, bound: HeadBound) -> float:
    # Of every round, as the largest norm rests on all of them.
    pulls = bound.pulls(edge.factors)
    if not inside.any():
        return edge.factor * psi
    weighted = edge.server_learning_rate * edge.weights * pulls
    leaving = float(weighted[inside].sum() / edge.weights[inside].sum())
    if inside.all():
        return edge.factor_over(inside) * psi + leaving * (bound.radius + largest)
    remaining = float(weighted[~inside].sum() / edge.weights[~inside].sum())
    # Each is known to 2e-12 of itself, which the difference must not hide.
    apart = abs(leaving - remaining) + 2e-12 * (leaving + remaining)
    share = float(edge.weights[inside].sum() / edge.weights.sum())
    return edge.factor_over(~inside) * psi + share * (apart * largest + (leaving + remaining) * bound.radius)


def release_mu(edges: Sequence[Edge], group: Iterable[int], noise_multiplier: float) -> Floats:
    """Return mu_W at every node of a DP-FedAvg path: mu_W^2 = sum over rounds of |W in S|^2 / z^2.

    ``noise_multiplier`` is z: every update was clipped to C and weighed at most 1, their sum got fresh noise of
    standard deviation z C in every round, and the denominator was a constant. No further noise is needed at a node
    whose mu is within the budget.

    Theory section 8.
    """
    return np.asarray(participation_mu(participations(edges, group), noise_multiplier))


def participations(edges: Sequence[Edge], group: Iterable[int]) -> Floats:
    """Return at every node the sum over the rounds before it of |W in S|^2; of erased rounds the most it can be.

    Theory section 8.
    """
    leaving = sorted_group(group)
    return np.cumsum([0.0, *(_squares_of(edge, leaving) for edge in edges)])


def participation_mu(squares: Factor, noise_multiplier: float) -> Factor:
    """Return mu_W = sqrt(sum of |W in S|^2) / z, rounded up.

    Theory section 8.
    """
    positive("noise_multiplier", noise_multiplier)
    root: Factor = squares**0.5
    return root * (SAFETY / noise_multiplier)


def _squares_of(edge: Edge, leaving: Clients) -> float:
    if isinstance(edge, ErasedStretch):
        # Nobody is in a round twice, so whoever is named took part in each of the rounds at most.
        joined, rounds = float(find_members(edge.joined, leaving).sum()), edge.rounds or math.inf
        return rounds * joined**2 if joined else 0.0
    if not isinstance(edge, RoundEdge):
        return 0.0
    joined = float(find_members(edge.clients, leaving).sum())
    # A solver's sums have no noise.
    return math.inf if edge.kind.is_solvers and joined else joined**2


def _past_erased(edge: ErasedStretch, leaving: Clients) -> float:
    """Nothing public is left of an erased stretch: for whoever took part only a node before it remains."""
    return math.inf if find_members(edge.clients, leaving).any() else 0.0
