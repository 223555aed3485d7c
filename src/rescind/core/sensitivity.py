"""Psi: a bound on the distance between the model and the one that training without the group would have given.

Along every edge, Psi <- factor * Psi + Delta + r, with Delta_W = eta_s ||omega(S) - omega(S without W)||: how far
the participants in question moved the model, the update as it was against the update without them. This module is
the readable form; ``tracker`` is the lazy one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from rescind.core.arrays import Clients, Floats, Members
from rescind.core.edges import (
    SMALLEST_FACTOR,
    Edge,
    ErasedStretch,
    RoundEdge,
    find_members,
    mean_factor,
    sorted_group,
)
from rescind.core.regularity import server_factor

# Covers the rounding of the recursion itself, for any number of rounds that can be trained.
SAFETY = 1 + 1e-9

# Up to here a round keeps its Gram matrix (8 m^2 bytes); beyond, the cheap bound serves.
GRAM_LIMIT = 128


def client_deltas(round_: RoundEdge) -> Floats:
    """Return Delta_c of every participant: p_c/(1-p_c) ||d_c - omega||, times eta_s.

    Weights are taken over the participants. A client that was alone moved the model by all of omega.

    Paper: Eq. (7) and (13). Theory section 3.
    """
    if len(round_.clients) == 1:
        return np.array([round_.server_learning_rate * round_.update_norm])
    others = leave_one_out_sums(round_.weights)
    return round_.server_learning_rate * round_.weights / others * round_.distances


def group_delta(round_: RoundEdge, members: Members) -> float:
    """Return Delta_W of the marked participants, exactly where the round has its Gram matrix, else its bound.

    Exactly: P_W ||omega_W - omega_rest|| = sqrt(p_W' G p_W) / (1 - P_W). The other side, p_R' G p_R, gives the same
    number, and the single distances bound it. What is known of G only to rounding has been added to it, so each of
    the three is an upper bound: the smallest is returned.

    Theory section 3.
    """
    bound = group_delta_bound(round_, members)
    if round_.gram is None or not members.any() or members.all():
        return bound
    exact = min(_exact_numerator(round_, round_.gram, side) for side in (members, ~members))
    return min(bound, _per_remaining_weight(round_, members, exact))


def group_delta_bound(round_: RoundEdge, members: Members) -> float:
    """Bound Delta_W by the single clients: sum over c in W of (1-p_c)/(1-P_W) Delta_c.

    If everybody belongs to W the world without W does not move, and Delta_W is all of omega.

    Theory section 3.
    """
    if not members.any():
        return 0.0
    if members.all():
        return round_.server_learning_rate * round_.update_norm
    return _per_remaining_weight(round_, members, _cheap_numerator(round_, members))


def _per_remaining_weight(round_: RoundEdge, members: Members, numerator: float) -> float:
    # 1 - P_W is summed over the others: the difference would cancel where they weigh little.
    return round_.server_learning_rate * numerator / float(round_.weights[~members].sum())


def _cheap_numerator(round_: RoundEdge, members: Members) -> float:
    return float(round_.weights[members] @ round_.distances[members])


def _exact_numerator(round_: RoundEdge, gram: Floats, side: Members) -> float:
    """Return sqrt(n' G n) over one side, n the weights; a matrix that makes it negative proves nothing."""
    weights = round_.weights[side]
    square = float(weights @ gram[np.ix_(side, side)] @ weights)
    return math.sqrt(square) if square >= 0 else math.inf


def leave_one_out_sums(values: Floats) -> Floats:
    """Sum all values but one, for each, from both ends: subtracting from the total would cancel.

    Theory section 3.
    """
    before = np.concatenate(([0.0], np.cumsum(values)[:-1]))
    after = np.concatenate((np.cumsum(values[::-1])[::-1][1:], [0.0]))
    return before + after


def group_sensitivity(edges: Sequence[Edge], group: Iterable[int]) -> Floats:
    """Return Psi_W at every node of the path, for the joint removal of the group W.

    The factor is the mean of rho_i over the participants that remain. Where a round's participants all belong to
    W the world without W stands still: factor 1, Delta = ||omega||. Noise is the same in both worlds: factor 1,
    Delta 0. Rounding, of training and of the noise's grid, counts once the worlds have parted.

    Paper: Theorem 1, Eq. (9) and (15), corrected. Theory section 4.
    """
    leaving = sorted_group(group)
    psi, parted = 0.0, False
    nodes = [psi]
    for edge in edges:
        if isinstance(edge, RoundEdge):
            inside = find_members(edge.clients, leaving)
            parted = parted or bool(inside.any())
            psi = edge.factor_over(~inside) * psi + group_delta(edge, inside)
        elif isinstance(edge, ErasedStretch):
            psi = erased_group_sensitivity(edge, leaving)
            parted = bool(find_members(edge.clients, leaving).any())
        else:
            psi *= edge.factor
        psi += edge.rounding if parted else 0.0
        nodes.append(psi)
    return np.array(nodes) * SAFETY


def client_sensitivities(edges: Sequence[Edge], clients: Iterable[int], nodes: Collection[int]) -> Floats:
    """Return Psi of each client alone at the chosen nodes, as an array (nodes, clients).

    Paper: Theorem 1, Eq. (9) and (15), corrected. Theory section 4.
    """
    listed = list(clients)
    wanted = sorted_group(listed)
    order = np.searchsorted(wanted, np.array(listed, dtype=np.int64))
    if not all(0 <= node <= len(edges) for node in nodes):
        raise ValueError(f"nodes {list(nodes)!r} do not all lie on the path, which has nodes 0 to {len(edges)}")
    psi, parted = np.zeros(len(wanted)), np.zeros(len(wanted), dtype=np.bool_)
    read = {0: psi}
    for node, edge in enumerate(edges, start=1):
        if isinstance(edge, RoundEdge):
            places, inside = _places(edge.clients, wanted)
            factors, deltas = np.full(len(wanted), edge.factor), np.zeros(len(wanted))
            own_factors, own_deltas = client_terms(edge)
            factors[places], deltas[places], parted[places] = own_factors[inside], own_deltas[inside], True
            psi = factors * psi + deltas
        elif isinstance(edge, ErasedStretch):
            places, inside = _places(edge.clients, wanted)
            psi = psi.copy()
            psi[places], parted[places] = edge.sensitivities[inside], True
        else:
            psi = edge.factor * psi
        psi = psi + edge.rounding * parted
        if node in nodes:
            read[node] = psi
    return np.array([read[node][order] for node in nodes]).reshape(len(nodes), len(order)) * SAFETY


def client_terms(round_: RoundEdge) -> tuple[Floats, Floats]:
    """Return the factor and the Delta with which each participant's own Psi passes the round.

    Theory section 4.
    """
    deltas = client_deltas(round_)
    if len(round_.clients) <= 1:
        return np.ones(len(round_.clients)), deltas
    if round_.factors.min() == round_.factors.max():
        return np.full(len(deltas), round_.factor), deltas
    others = leave_one_out_sums(round_.weights)
    mean = mean_factor(leave_one_out_sums(round_.weights * round_.factors), others, len(deltas))
    factors = server_factor(np.maximum(mean, SMALLEST_FACTOR), round_.server_learning_rate)
    return round_.with_rounding(factors), deltas


def erased_group_sensitivity(edge: ErasedStretch, group: Clients) -> float:
    """Bound Psi_W at the end of an erased stretch: sum over c in W of Psi_c / (1 - sum of the largest weights).

    Exact for one client. Infinite, so that only retraining is left, where the weights may add up to 1 (somewhere
    everybody may have belonged to W) or the factors differed.

    Theory section 13.
    """
    inside = find_members(edge.clients, group)
    if inside.sum() <= 1:
        return float(edge.sensitivities[inside].sum())
    remaining = 1 - float(edge.largest_weights[inside].sum())
    # Weights that add up to 1 may come out a little below it.
    if not edge.common_factor or remaining <= 1e-9:
        return np.inf
    return float(edge.sensitivities[inside].sum()) / remaining


def first_joined(edges: Sequence[Edge], group: Iterable[int]) -> int:
    """Return the last node that nobody of the group has touched: ``len(edges)`` if the group never took part.

    Theory section 7.
    """
    leaving = sorted_group(group)
    for node, edge in enumerate(edges):
        joined = _joined(edge)
        if len(joined) and find_members(joined, leaving).any():
            return node
    return len(edges)


def never_joined(edges: Sequence[Edge], group: Iterable[int]) -> Clients:
    """Return those of the group who took part in no round of the path.

    Theory section 7.
    """
    absent = sorted_group(group)
    for edge in edges:
        joined = _joined(edge)
        if len(absent) and len(joined):
            absent = absent[~find_members(absent, np.sort(joined))]
    return absent


def _joined(edge: Edge) -> Clients:
    return edge.joined if isinstance(edge, ErasedStretch) else edge.clients


def _places(clients: Clients, wanted: Clients) -> tuple[Clients, Members]:
    """Return the places of the participants that are wanted, and which participants those are."""
    inside = find_members(clients, wanted)
    return np.searchsorted(wanted, clients[inside]), inside
