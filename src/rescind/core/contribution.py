"""Delta: how far the participants in question moved the model in one round.

Delta_W = eta_s ||omega(S) - omega(S without W)||, the update as it was against the update without them.
"""

from __future__ import annotations

import math

import numpy as np

from rescind.core.arrays import Floats, Members
from rescind.core.edges import RoundEdge

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
