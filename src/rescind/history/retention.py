"""Which checkpoints to keep, decided round by round while training is recorded.

When a client leaves, training goes back to the last kept node n with Psi(n, c) <= Psi*. The rule knows nothing of
privacy: planning evaluates Psi at whatever is kept, so a bad choice costs rounds and never a promise.

The best last node of a client is the one before its Psi passed Psi* for the last time. Where training contracts
(B < 1) Psi dips below Psi* and rises again, so nodes before that one need not serve the client, and it is not enough
to count such nodes. The rule therefore looks at Psi itself, at every kept node, for a sample of the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from rescind.core._checks import not_negative
from rescind.core.edges import Clients, Floats, Members, members

# What a dropped node costs: the rounds that clients would lose, weighted. The weights were tried on histories like
# those of ``python -m benchmarks.retention``; what is lost at Psi* hardly changes if one is halved or doubled.
_THRESHOLDS = (1.0, 0.1, 0.1)  # at Psi*; at half and twice as much, for a request with another sigma or for a group
_RESTING = 0.5  # the newest node serves the client again today, but Psi will pass Psi* as it did before
_FIRST_ROUND = 0.05  # back to before a client's first round, which allows forgetting without noise
_ANYWHERE = 0.1  # all clients together, spread evenly over the path: what nobody foresaw

_MULTIPLIER = np.uint64(0xB504F333F9DE6485)  # the odd number next to 2^63 sqrt 2; any large odd one does


class Retention:
    """The kept nodes of a growing path: node 0, the newest one, and at most ``capacity`` between them.

    ``threshold`` is Psi*; without one (no noise will ever be planned) only first rounds and even spacing count. The
    ``sample`` is made of the clients whose scrambled numbers are smallest, so it depends on who took part and on
    nothing else, and up to that many clients it is all of them. A round costs its participants and the sample,
    however many clients are known.

    The state is a function of the path and of what is kept. A history that is opened again replays its rounds with
    ``stored``, the nodes whose checkpoints exist, and goes on as if it had never been closed: up to the last of these
    nodes nothing else is kept and nothing of them is given up.
    """

    def __init__(
        self,
        capacity: int = 32,
        threshold: float | None = None,
        sample: int = 512,
        stored: Iterable[int] = (),
    ) -> None:
        for name, value in (("capacity", capacity), ("sample", sample)):
            if value < 1:
                raise ValueError(f"{name} is {value!r}; it has to be at least 1")
        if threshold is not None:
            not_negative("threshold", threshold)
        self._capacity, self._sample = capacity, sample
        self._thresholds = np.array([] if threshold is None else [threshold, threshold / 2, threshold * 2])
        self._stored = frozenset(stored)
        self._nodes = [0]
        # Each node's column in the table; columns of nodes that are gone are used again.
        self._columns, self._free = [0], list[int]()
        # The sample, sorted by mark.
        self._marks = np.empty(0, dtype=np.int64)
        self._clients = np.empty(0, dtype=np.int64)
        self._firsts = np.empty(0, dtype=np.int64)
        self._psi = np.empty((0, 1))

    @property
    def kept(self) -> tuple[int, ...]:
        """The nodes whose checkpoints are to be kept, in the order of the path."""
        return tuple(self._nodes)

    def observe(self, node: int, clients: Clients, sensitivities: Callable[[Clients], Floats]) -> tuple[int, ...]:
        """Take in the edge that led to ``node`` and give the nodes whose checkpoints may be deleted now.

        ``clients`` took part in it (nobody does in a noise edge); ``sensitivities`` gives Psi at the new node, as
        ``SensitivityTracker.sensitivities`` does.
        """
        if node != self._nodes[-1] + 1:
            raise ValueError(f"node is {node}; after node {self._nodes[-1]} comes node {self._nodes[-1] + 1}")
        self._meet(clients, node - 1)
        if not self._free:
            self._free.append(self._psi.shape[1])
            self._psi = np.hstack([self._psi, np.zeros((len(self._psi), 1))])
        self._nodes.append(node)
        self._columns.append(self._free.pop())
        self._psi[:, self._columns[-1]] = sensitivities(self._clients)
        dropped = []
        if node <= max(self._stored, default=0):
            if node - 1 not in self._stored and node > 1:
                dropped.append(self._drop(len(self._nodes) - 2))
        else:
            while len(self._nodes) > self._capacity + 2:
                dropped.append(self._drop(self._cheapest()))
        return tuple(dropped)

    def _meet(self, clients: Clients, first: int) -> None:
        """Take into the sample the participants that belong there and are not in it yet."""
        marks = _scrambled(clients)
        if len(self._marks) >= self._sample:
            near = marks < self._marks[self._sample - 1]
            clients, marks = clients[near], marks[near]
        new = np.flatnonzero(~members(marks, self._marks))
        new = new[np.argsort(marks[new])]
        places = np.searchsorted(self._marks, marks[new])
        belong = places + np.arange(len(new)) < self._sample
        new, places = new[belong], places[belong]
        if not len(new):
            return
        # Whoever has a larger mark than all others makes room.
        self._marks = np.insert(self._marks, places, marks[new])[: self._sample]
        self._clients = np.insert(self._clients, places, clients[new])[: self._sample]
        self._firsts = np.insert(self._firsts, places, first)[: self._sample]
        self._psi = np.insert(self._psi, places, 0.0, axis=0)[: self._sample]

    def _drop(self, position: int) -> int:
        self._free.append(self._columns.pop(position))
        return self._nodes.pop(position)

    def _cheapest(self) -> int:
        """Give the position of the node without which the clients would lose the fewest rounds."""
        nodes, psi = np.array(self._nodes), self._psi[:, self._columns]
        gaps, following = np.diff(nodes)[:-1], np.diff(nodes)[1:].astype(np.float64)
        # The newest node moves on, so the one before it will have a stretch of the usual length to serve.
        following[-1] = nodes[-1] / self._capacity
        before = np.searchsorted(nodes, self._firsts, side="right") - 1
        firsts = np.bincount(before, minlength=len(nodes))[1:-1]
        clients = max(len(psi), 1)
        loss = gaps * (_FIRST_ROUND * firsts + _ANYWHERE * clients / nodes[-1] * following)
        serves = (psi <= self._thresholds[:, None, None]).reshape(-1, len(nodes))
        weights = np.repeat(_THRESHOLDS[: len(self._thresholds)], len(psi))
        lost, choices = _rounds_lost(serves, weights, nodes)
        loss += lost[1:-1]
        # Nobody loses a round at Psi* as long as that takes no more than half of the capacity.
        needed = np.bincount(choices[: len(psi)], minlength=len(nodes))[1:-1] > 0
        if needed.sum() <= self._capacity / 2:
            loss[needed] = np.inf
        return int(loss.argmin()) + 1


def public_schedule(node: int, capacity: int) -> tuple[int, ...]:
    """Give the nodes that are kept once training stands at ``node``: a function of public numbers alone.

    All nodes while there is room; then multiples of a power of two, whose odd multiples give way one by one, the
    oldest first, to the even multiples that come. What is kept later is kept now, or newer.

    Theory: 7 and 8.
    """
    if node < 0 or capacity < 1:
        raise ValueError(f"node is {node!r} and capacity {capacity!r}; they have to be at least 0 and at least 1")
    stride = 1
    while node >= 2 * capacity * stride:
        stride *= 2
    even = range(2 * stride, node + 1, 2 * stride)
    odd = range(stride, min(node, capacity * stride) + 1, 2 * stride)
    left = max(capacity - len(even), 0)
    return tuple(sorted({0, *even, *odd[max(len(odd) - left, 0) :], node}))


def _rounds_lost(serves: Members, weights: Floats, nodes: NDArray[np.int64]) -> tuple[Floats, NDArray[np.int64]]:
    """Give the rounds that would be lost without each node, and the position of everybody's first choice.

    ``serves`` holds a row for each client: the nodes it could go back to. Without its first choice it loses the way
    to its second one. Where Psi fell and the newest node serves again, that will not last, and the second choice
    counts as well.
    """
    again = serves[:, -1] & ~serves.all(axis=1)
    serves, rows, last = serves.copy(), np.arange(len(serves)), len(nodes) - 1
    choices = []
    for _ in range(3):
        serves[:, 0] = True
        choices.append(last - serves[:, ::-1].argmax(axis=1))
        serves[rows, choices[-1]] = False
    first, second, third = choices
    now, later = nodes[first] - nodes[second], again * (nodes[second] - nodes[third])
    places, rounds = np.concatenate([first, second]), np.concatenate([now, _RESTING * later])
    lost = np.bincount(places, weights=np.tile(weights, 2) * rounds, minlength=len(nodes))
    return np.asarray(lost, dtype=np.float64), first


def _scrambled(clients: Clients) -> NDArray[np.int64]:
    """Give every client a mark of its own, in an order that has nothing to do with when it came."""
    marks = clients.astype(np.uint64) * _MULTIPLIER
    return ((marks ^ (marks >> np.uint64(32))) * _MULTIPLIER).view(np.int64)
