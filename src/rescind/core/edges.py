"""The path of models that a history keeps, as edges: what happened between two models, and nothing else.

A path starts at the public first model theta_0^0. Node n is the model after n edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rescind.core._checks import at_most_one, not_negative
from rescind.core.regularity import server_factor

Floats: TypeAlias = NDArray[np.float64]
Clients: TypeAlias = NDArray[np.int64]
Members: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Aggregation:
    """One round: the participants S and what each did, in one order.

    ``weights`` are proportional to the paper's n_i (any positive scale); ``factors`` are the rho_i = B^(K_i);
    ``distances`` are ||d_i - omega||, or upper bounds; ``update_norm`` is ||omega||; ``gram`` is the centred matrix
    <d_i - omega, d_j - omega>, raised such that no group's quadratic form is below the true one. Updates are those
    before the server's learning rate (eta_s). ``rounding`` is r. A round that nobody joined has no client.

    Paper: Eq. (FedAvg_server_aggregation). Theory: 3.
    """

    clients: Clients
    weights: Floats
    factors: Floats
    distances: Floats
    update_norm: float
    gram: Floats | None = None
    rounding: float = 0.0
    server_learning_rate: float = 1.0
    factor: float = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.clients)
        for name in ("weights", "factors", "distances"):
            values = getattr(self, name)
            if values.shape != (count,) or not np.isfinite(values).all() or (values < 0).any():
                raise ValueError(f"{name} has to hold a finite number of at least 0 for each of {count} clients")
        if not (self.weights > 0).all():
            raise ValueError("weights have to be above 0: a client without examples does not take part")
        if count > 1 and len(np.unique(self.clients)) != count:
            raise ValueError("a client appears twice in one round")
        if self.gram is not None and self.gram.shape != (count, count):
            raise ValueError(f"gram has shape {self.gram.shape}; {count} participants need ({count}, {count})")
        not_negative("update_norm", self.update_norm)
        not_negative("rounding", self.rounding)
        if not count and (self.rounding or self.update_norm):
            raise ValueError("a round that nobody joined moves nothing: update_norm and rounding have to be 0")
        at_most_one("server_learning_rate", self.server_learning_rate)
        object.__setattr__(self, "factor", self.factor_over(np.ones(count, dtype=np.bool_)))

    def factor_over(self, selected: Members) -> float:
        """Give the round's factor when only the selected participants train; 1 where there are none."""
        if not selected.any():
            return 1.0
        weights, factors = self.weights[selected], self.factors[selected]
        # A mean of equal factors is that factor, free of rounding.
        common = factors[0] == factors.max() == factors.min()
        mean = float(factors[0]) if common else float(weights @ factors / weights.sum())
        return server_factor(mean, self.server_learning_rate)


@dataclass(frozen=True, slots=True)
class Untouched:
    """A round that nobody of the group in question joined: its factor F and its rounding term are enough.

    Theory: 4.
    """

    factor: float
    rounding: float = 0.0


@dataclass(frozen=True, slots=True)
class Noise:
    """Gaussian noise ``sigma`` of norm ``norm`` (||nu||), the same vector in both worlds.

    Theory: 4.
    """

    sigma: float
    norm: float
    factor = 1.0
    rounding = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Erased:
    """A stretch of the path that was erased: of each remaining client only its Psi at the end is known.

    ``largest_weights`` holds each client's largest p_c in the stretch; ``common_factor`` says whether all
    clients had the same rho in each of its rounds, without which nothing can be said of a group.

    Theory: 13.
    """

    clients: Clients
    sensitivities: Floats
    largest_weights: Floats
    common_factor: bool
    rounding = 0.0


def sorted_group(group: Iterable[int]) -> Clients:
    """Give the group as the sorted array that ``members`` takes.

    Theory: 1.
    """
    return np.unique(np.fromiter(group, dtype=np.int64))


def members(clients: Clients, group: Clients) -> Members:
    """Mark the clients that belong to a sorted group, in time that hardly depends on the group's size.

    Theory: 1.
    """
    if not len(group):
        return np.zeros(len(clients), dtype=np.bool_)
    return np.equal(group[np.minimum(np.searchsorted(group, clients), len(group) - 1)], clients)


Edge: TypeAlias = Aggregation | Untouched | Noise | Erased
