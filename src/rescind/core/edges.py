"""The path of models that a history keeps: their ids, and what happened between two of them as edges.

A path starts at the public first model theta_0^0. Node n is the model after n edges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Self, TypeAlias

import numpy as np

from rescind.core._checks import at_most_one, not_negative, positive
from rescind.core.arrays import Clients, Floats, Members
from rescind.core.regularity import Factor, server_factor

# Marks an empty place where clients are looked up, so no client may have it as its number.
NO_CLIENT = int(np.iinfo(np.int64).min)

# Who took part in what is no round.
NOBODY: Clients = np.empty(0, dtype=np.int64)

# A factor of 0 would make nothing of an infinite sensitivity; a larger one is safe.
SMALLEST_FACTOR = 1e-300

# The rounding term where none is proven: no noise can hide so much, and exact forgetting needs none.
NO_BOUND = 1e100
# What people are shown in place of such a number.
NOT_BOUNDED = "not bounded yet"

# The other world's models may be larger by Psi, and so may what their rounding costs: at most this share of Psi.
RELATIVE_ROUNDING = 2.0**-18


@dataclass(frozen=True, slots=True, order=True)
class ModelId:
    """A model by its name, the paper's theta_branch^round.

    Attributes:
        branch: the number of its branch.
        round: the number of its round in the branch, 0 for the model that the branch starts with.

    Paper: Section 4. Theory section 12.
    """

    branch: int
    round: int

    @classmethod
    def read(cls, name: str) -> Self:
        """Return the id that has a name.

        Args:
            name: such as "0.3".

        Returns:
            the id.

        Raises:
            ValueError: it is not such a name.

        Theory section 12.
        """
        branch, round_ = map(int, name.split("."))
        return cls(branch, round_)

    @property
    def name(self) -> str:
        """What files and certificates call it: "0.3" is the model of round 3 in branch 0."""
        return f"{self.branch}.{self.round}"

    def __str__(self) -> str:
        return f"model {self.name}"


ROOT = ModelId(0, 0)


class RoundKind(Enum):
    """What made a round's model.

    Theory sections 3, 8 and 16.
    """

    TRAINED = "the clients trained"
    NOISED = "the clients trained, and the round has noise of its own, as all rounds of such a run have"
    STEP = "a solver made a step, of which nothing is known"
    SOLVED = "a solver found the solution, at which Psi begins anew"

    @property
    def is_solvers(self) -> bool:
        """True if nobody trained, and a solver made the model from sums over the clients' rows."""
        return self in (RoundKind.STEP, RoundKind.SOLVED)


@dataclass(frozen=True, slots=True, eq=False)
class RoundEdge:
    """One round: the participants S and what each did, in one order.

    ``weights`` are proportional to the paper's n_i (any positive scale); ``factors`` are the rho_i = B^(K_i);
    ``distances`` are ||d_i - omega||, or upper bounds; ``update_norm`` is ||omega||; ``gram`` is the centred matrix
    ``<d_i - omega, d_j - omega>``, raised such that no group's quadratic form is below the true one. Updates are
    those before the server's learning rate (eta_s). ``rounding`` is r, ``relative_rounding`` the share of Psi that
    comes on top of it. A round that nobody joined has no client. Of a solver's ``kind``: see ``solver_edge``. Whether
    rounds are noised is the run's: here they are trained.

    Paper: Eq. (5). Theory sections 3 and 16.
    """

    clients: Clients
    weights: Floats
    factors: Floats
    distances: Floats
    update_norm: float
    rounding: float
    gram: Floats | None = None
    server_learning_rate: float = 1.0
    relative_rounding: float = RELATIVE_ROUNDING
    kind: RoundKind = RoundKind.TRAINED
    factor: float = field(init=False)

    def __post_init__(self) -> None:
        _check_clients(self.clients)
        count = len(self.clients)
        for name in ("weights", "factors", "distances"):
            values = getattr(self, name)
            if values.shape != (count,):
                raise ValueError(f"{name} has shape {values.shape}; {count} clients need one number each")
            wrong = ~(np.isfinite(values) & (values >= 0))
            if wrong.any():
                raise ValueError(f"{name} holds {values[wrong][0]!r}; it has to be finite and at least 0")
        # So that no scale of theirs lets a product overflow or vanish.
        object.__setattr__(self, "weights", self.weights / self.weights.max(initial=np.finfo(np.float64).tiny))
        if not (self.weights > 0).all():
            raise ValueError("weights have to be above 0: a client without examples does not take part")
        if self.gram is not None and self.gram.shape != (count, count):
            raise ValueError(f"gram has shape {self.gram.shape}; {count} participants need ({count}, {count})")
        if self.gram is not None and not (np.isfinite(self.gram).all() and (np.diagonal(self.gram) >= 0).all()):
            raise ValueError("gram has to be finite, with a diagonal of at least 0: these are squared distances")
        not_negative("update_norm", self.update_norm)
        not_negative("rounding", self.rounding)
        not_negative("relative_rounding", self.relative_rounding)
        if not count and (self.rounding or self.update_norm):
            raise ValueError("a round that nobody joined moves nothing: update_norm and rounding have to be 0")
        at_most_one("server_learning_rate", self.server_learning_rate)
        with np.errstate(over="ignore", invalid="ignore"):
            object.__setattr__(self, "factor", self.factor_over(np.ones(count, dtype=np.bool_)))
        # Else it would be recorded, and nobody who was absent could be planned for any more.
        positive("factor", self.factor)

    def factor_over(self, selected: Members) -> float:
        """Return the round's factor when only the selected participants train; 1 where there are none.

        Theory sections 4 and 5.
        """
        if not selected.any():
            return 1.0
        weights, factors = self.weights[selected], self.factors[selected]
        # A mean of equal factors is that factor, free of rounding.
        common = factors[0] == factors.max() == factors.min()
        mean = (
            float(factors[0]) if common else mean_factor(float(weights @ factors), float(weights.sum()), len(weights))
        )
        return float(self.with_rounding(server_factor(max(mean, SMALLEST_FACTOR), self.server_learning_rate)))

    def with_rounding(self, factor: Factor) -> Factor:
        """Return a factor raised by the share of Psi that rounding may add.

        Theory section 5.
        """
        raised: Factor = factor + np.maximum(factor, 1.0) * self.relative_rounding
        return raised


def solver_kind(rounding: float) -> RoundKind:
    """Return what a solver's model is by what comes on top of its distances: a solution has a bound, a step has none.

    Theory section 16.
    """
    return RoundKind.SOLVED if rounding < NO_BOUND else RoundKind.STEP


def solver_edge(
    kind: RoundKind,
    clients: Clients,
    weights: Floats,
    distances: Floats,
    rounding: float,
    gram: Floats | None = None,
) -> RoundEdge:
    """Return one model of a solver: a step, of which nothing is known, or a solution, at which Psi begins anew.

    For a step ``rounding`` is ``NO_BOUND``. For a solution it is 2 (tau + r)/lambda, and
    ``distances`` and ``gram`` are those of the clients' mean gradients from the mean of all, over lambda: without W
    that mean is Delta_W further from 0, and so the solution without W is at most Delta_W + ``rounding`` away.

    Theory section 16.
    """
    return RoundEdge(
        clients=clients,
        weights=weights,
        factors=np.full(len(clients), SMALLEST_FACTOR if kind is RoundKind.SOLVED else 1.0),
        distances=distances,
        # Without everybody there is nothing that could be solved.
        update_norm=NO_BOUND if len(clients) else 0.0,
        rounding=rounding,
        gram=gram,
        relative_rounding=0.0,
        kind=kind,
    )


def is_solvers(edge: Edge) -> bool:
    """Return whether a round is a solver's, also where nobody of a group joined it.

    Theory section 16.
    """
    return isinstance(edge, RoundEdge | AbsentRound) and edge.kind.is_solvers


@dataclass(frozen=True, slots=True)
class AbsentRound:
    """A round that nobody of the group in question joined: its factor F and its rounding term are enough.

    Theory section 4.
    """

    factor: float
    rounding: float
    clients = NOBODY

    def __post_init__(self) -> None:
        # A history has thousands of them: what is wrong is looked for only if something is.
        if not (0.0 < self.factor < math.inf and 0.0 <= self.rounding < math.inf):
            positive("factor", self.factor)
            not_negative("rounding", self.rounding)

    @property
    def kind(self) -> RoundKind:
        """What made the model, as far as these numbers tell: a training without a bound counts as a solver's step."""
        # No training has such a factor.
        if self.factor <= SMALLEST_FACTOR:
            return RoundKind.SOLVED
        return RoundKind.STEP if self.rounding >= NO_BOUND else RoundKind.TRAINED


@dataclass(frozen=True, slots=True)
class NoiseEdge:
    """Gaussian noise ``sigma``, the same vector in both worlds; ``rounding`` is what its grid may add between them.

    ``unit_roundoff`` (u) is the model's type's, float32's unless told: the other world's model may be larger by Psi,
    and so may what its cast costs.

    Theory section 4.
    """

    sigma: float
    rounding: float
    unit_roundoff: float = 2.0**-24
    clients = NOBODY

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        not_negative("rounding", self.rounding)
        not_negative("unit_roundoff", self.unit_roundoff)

    @property
    def factor(self) -> float:
        """1, and the share of Psi that rounding may add."""
        return 1 + 4 * self.unit_roundoff


@dataclass(frozen=True, slots=True, eq=False)
class ErasedStretch:
    """A stretch of the path, erased with its noise: of each remaining client only its Psi at the end is known.

    ``clients`` names everybody who took part before its end. Whoever was forgotten has an infinite sensitivity: its
    number is gone, and only a node before its first round is left for it. ``largest_weights`` holds each client's
    largest p_c in any round before the end, and of whoever was forgotten 1, or 0 if it took part before the stretch
    only; ``common_factor`` says whether all clients had the same rho in each of these rounds, without which nothing
    can be said of a group. ``sigmas`` are those of the noises in the stretch, and ``rounds`` the number of its
    rounds: both are public.

    Theory section 13.
    """

    clients: Clients
    sensitivities: Floats
    largest_weights: Floats
    common_factor: bool
    sigmas: tuple[float, ...] = ()
    rounds: int = 0
    rounding = 0.0

    def __post_init__(self) -> None:
        _check_clients(self.clients)
        for name in ("sensitivities", "largest_weights"):
            values = getattr(self, name)
            if values.shape != self.clients.shape or not (values >= 0).all():
                raise ValueError(f"{name} has to hold a number of at least 0 for each of {len(self.clients)} clients")
        for sigma in self.sigmas:
            positive("sigma", sigma)

    @property
    def joined(self) -> Clients:
        """Those who took part, but for whoever was forgotten and had left before the stretch began."""
        return self.clients[self.largest_weights > 0]


def sorted_group(group: Iterable[int]) -> Clients:
    """Return the group as the sorted array that ``members`` takes.

    Theory section 1.
    """
    clients = list(group)
    for client in clients:
        if isinstance(client, bool | np.bool_) or not isinstance(client, int | np.integer):
            raise ValueError(f"client {client!r} is not an integer: map names to numbers first, as the history does")
    return np.unique(np.array(clients, dtype=np.int64))


def find_members(clients: Clients, group: Clients) -> Members:
    """Mark the clients that belong to a sorted group, in time that hardly depends on the group's size.

    Theory section 1.
    """
    if not len(group):
        return np.zeros(len(clients), dtype=np.bool_)
    return np.equal(group[np.minimum(np.searchsorted(group, clients), len(group) - 1)], clients)


def mean_factor(weighted: Factor, weights: Factor, count: int) -> Factor:
    """Divide a weighted sum of ``count`` factors by the sum of their weights, rounded up.

    Theory section 4.
    """
    return weighted / weights * (1 + count * 2.0**-51)


def _check_clients(clients: Clients) -> None:
    if clients.dtype != np.int64 or clients.ndim != 1:
        raise ValueError(f"clients are a row of int64, not {clients.dtype} in {clients.ndim} dimensions")
    # Those of a history are sorted, which is seen at once.
    if not (np.diff(clients) > 0).all() and len(np.unique(clients)) != len(clients):
        raise ValueError("a client appears twice in one round")
    if len(clients) and clients.min() == NO_CLIENT:
        raise ValueError("the smallest int64 is not a client: it marks an empty place")


Edge: TypeAlias = RoundEdge | AbsentRound | NoiseEdge | ErasedStretch
