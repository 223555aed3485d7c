"""Which checkpoints to keep, decided round by round while training is recorded.

When a client leaves, training goes back to the last kept node n with Psi(n, c) <= Psi*. Where noise hides the client
the rule knows nothing of privacy: planning evaluates Psi at whatever is kept, so a bad choice costs rounds and never
a promise.

An exact restart is another matter. Its node must not depend on the leaver's data, so what is still there to choose
from must not either. Where Psi decides what is kept, half of the capacity is therefore set aside for nodes that stay
by their branch and round alone (``exact_rounds``), and exact restarts take no others. Without a Psi* what is kept
follows from who took part, and every kept node will do.

The best last node of a client is the one before its Psi passed Psi* for the last time. Where training contracts
(B < 1) Psi dips below Psi* and rises again, so nodes before that one need not serve the client, and it is not enough
to count such nodes. The rule therefore looks at Psi itself, at every kept node, for a sample of the clients.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescind.core._checks import not_negative
from rescind.core.arrays import Clients, Floats, Members
from rescind.core.edges import ROOT, ModelId, find_members
from rescind.history.lineage import branch_exits
from rescind.history.run import Run
from rescind.ledger.records import Branch

# What a dropped node costs: the rounds that clients would lose, weighted. The weights were tried on histories like
# those of ``python -m benchmarks.retention``; what is lost at Psi* hardly changes if one is halved or doubled.
_THRESHOLDS = (1.0, 0.1, 0.1)  # at Psi*; at half and twice as much, for a request with another sigma or for a group
_RESTING = 0.5  # the newest node serves the client again today, but Psi will pass Psi* as it did before
_FIRST_ROUND = 0.05  # without a Psi*: back to before a client's first round, which allows forgetting without noise
_ANYWHERE = 0.1  # all clients together, spread evenly over the path: what nobody foresaw

_MULTIPLIER = np.uint64(0xB504F333F9DE6485)  # the odd number next to 2^63 sqrt 2; any large odd one does


@dataclass(frozen=True, slots=True, eq=False)
class RetentionState:
    """All that ``Retention`` knows: the kept ``nodes``, and the sample.

    Of each of the sample's ``clients``, in their order, ``firsts`` has the node before its first round, and ``psi`` a
    row with its Psi at every kept node.
    """

    nodes: NDArray[np.int64]
    clients: Clients
    firsts: NDArray[np.int64]
    psi: Floats

    def __post_init__(self) -> None:
        if self.nodes.ndim != 1 or self.nodes[:1].tolist() != [0] or not (np.diff(self.nodes) > 0).all():
            raise ValueError("what is kept begins with node 0, and goes on in order")
        marks = _scrambled(self.clients)
        if self.clients.ndim != 1 or not (marks[1:] > marks[:-1]).all():
            raise ValueError("the sample's clients have an order, and each is in it once")
        if self.firsts.shape != self.clients.shape or self.psi.shape != (len(self.clients), len(self.nodes)):
            raise ValueError(
                f"the sample needs a first node, and a Psi a node, of each of {self.clients.size} clients"
            )
        if self.psi.dtype != np.float64 or not (self.psi >= 0).all():
            raise ValueError("the sample's Psi are float64 numbers, and none is below 0")
        if len(self.firsts) and not 0 <= self.firsts.min() <= self.firsts.max() < self.nodes[-1]:
            raise ValueError(f"the sample has first nodes that are not before node {self.nodes[-1]}")


class Retention:
    """The kept nodes of a growing path: node 0, the newest one, and at most ``capacity`` between them.

    ``threshold`` is Psi*; without one (no noise will ever be planned) only first rounds and even spacing count, and
    what is kept depends on who took part and on nobody's data. The ``sample`` is made of the clients whose scrambled
    numbers are smallest, so it depends on who took part and on nothing else, and up to that many clients it is all
    of them. A round costs its participants and the sample, however many clients are known.

    The state is a function of the path and of what is kept. A history that is opened again replays its rounds with
    ``stored``, the nodes whose checkpoints exist, and goes on as if it had never been closed: up to the last of these
    nodes nothing else is kept and nothing of them is given up.
    """

    def __init__(
        self, capacity: int = 32, threshold: float | None = None, sample: int = 512, stored: Iterable[int] = ()
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

    def resume(self, state: RetentionState) -> None:
        """Go on from a state, which kept all of the ``stored`` nodes up to its last one; those it kept beside go."""
        last, kept = int(state.nodes[-1]), set(state.nodes.tolist())
        if len(state.clients) > self._sample or not {node for node in self._stored if node <= last} <= kept:
            raise ValueError("the state is of another history: the sample is too large, or a kept node is missing")
        stay = [at for at, node in enumerate(state.nodes.tolist()) if node in self._stored or node in (0, last)]
        self._nodes, self._columns, self._free = state.nodes[stay].tolist(), list(range(len(stay))), []
        self._clients, self._firsts = state.clients.copy(), state.firsts.copy()
        self._marks, self._psi = _scrambled(self._clients), state.psi[:, stay]

    def state(self) -> RetentionState:
        """Return all that is known."""
        nodes = np.array(self._nodes, dtype=np.int64)
        return RetentionState(nodes, self._clients.copy(), self._firsts.copy(), self._psi[:, self._columns])

    @property
    def kept(self) -> tuple[int, ...]:
        """The nodes whose checkpoints are to be kept, in the order of the path."""
        return tuple(self._nodes)

    def observe(
        self,
        node: int,
        clients: Clients,
        sensitivities: Callable[[Clients], Floats],
        set_aside: Collection[int] = (),
        *,
        replaces: bool = False,
    ) -> tuple[int, ...]:
        """Take in the edge that led to ``node`` and give the nodes whose checkpoints may be deleted now.

        ``clients`` took part in it (nobody does in a noise edge); ``sensitivities`` gives Psi at the new node, as
        ``SensitivityTracker.sensitivities`` does. Nodes that are ``set_aside``, at most half of the capacity, stay.
        ``replaces``: the node takes the place of the one before it, and no other one has to go.
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
            if replaces:
                dropped.append(self._drop(len(self._nodes) - 2))
            while len(self._nodes) > self._capacity + 2:
                dropped.append(self._drop(self._cheapest(set_aside)))
        return tuple(dropped)

    def _meet(self, clients: Clients, first: int) -> None:
        """Take into the sample the participants that belong there and are not in it yet."""
        marks = _scrambled(clients)
        if len(self._marks) >= self._sample:
            near = marks < self._marks[self._sample - 1]
            clients, marks = clients[near], marks[near]
        new = np.flatnonzero(~find_members(marks, self._marks))
        new = new[np.argsort(marks[new])]
        positions = np.searchsorted(self._marks, marks[new])
        belong = positions + np.arange(len(new)) < self._sample
        new, positions = new[belong], positions[belong]
        if not len(new):
            return
        # Whoever has a larger mark than all others makes room.
        self._marks = np.insert(self._marks, positions, marks[new])[: self._sample]
        self._clients = np.insert(self._clients, positions, clients[new])[: self._sample]
        self._firsts = np.insert(self._firsts, positions, first)[: self._sample]
        self._psi = np.insert(self._psi, positions, 0.0, axis=0)[: self._sample]

    def _drop(self, position: int) -> int:
        self._free.append(self._columns.pop(position))
        return self._nodes.pop(position)

    def _cheapest(self, set_aside: Collection[int]) -> int:
        """Return the position of the node without which the clients would lose the fewest rounds."""
        nodes, psi = np.array(self._nodes), self._psi[:, self._columns]
        gaps, following = np.diff(nodes)[:-1], np.diff(nodes)[1:].astype(np.float64)
        # The newest node moves on, so the one before it will have a stretch of the usual length to serve.
        following[-1] = nodes[-1] / self._capacity
        loss = gaps * (_ANYWHERE * max(len(psi), 1) / nodes[-1] * following)
        stays = np.array([node in set_aside for node in self._nodes])
        if len(self._thresholds):
            serves = (psi <= self._thresholds[:, None, None]).reshape(-1, len(nodes))
            # Before its first round a client is offered nothing but what is set aside.
            offered = np.tile(stays | (nodes > self._firsts[:, None]), (len(_THRESHOLDS), 1))
            lost, choices = _rounds_lost(serves, offered, np.repeat(_THRESHOLDS, len(psi)), nodes)
            loss += lost[1:-1]
            # Nobody loses a round at Psi* as long as that takes no more than half of the capacity.
            needed = np.bincount(choices[: len(psi)], minlength=len(nodes))[1:-1] > 0
            if needed.sum() <= self._capacity / 2:
                loss[needed] = np.inf
        else:
            before = np.searchsorted(nodes, self._firsts, side="right") - 1
            loss += gaps * _FIRST_ROUND * np.bincount(before, minlength=len(nodes))[1:-1]
        loss[stays[1:-1]] = np.inf
        return int(loss.argmin()) + 1


def public_schedule(node: int, capacity: int) -> tuple[int, ...]:
    """Return the nodes that are kept once training stands at ``node``: a function of public numbers alone.

    All nodes while there is room; then multiples of a power of two, whose odd multiples give way one by one, the
    oldest first, to the even multiples that come. What is kept later is kept now, or newer.

    Theory sections 7 and 8.
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


def exact_shares(known: Mapping[int, Branch], capacity: int) -> dict[int, int]:
    """Return how many models of each branch are set aside for exact restarts: half of the capacity on any line.

    Branch 0 has half of the capacity, any other a quarter, and each restart behind a branch halves its share again.
    Where several lines left a branch the longest one counts, so that a share never grows: what was given up is gone.

    Theory section 7.
    """
    behind = dict.fromkeys(known, 0)
    for number in sorted(known, reverse=True):
        parent = known[number].parent
        if parent is not None:
            behind[parent.branch] = max(behind[parent.branch], behind[number] + 1)
    return {number: capacity >> (behind[number] + (2 if number else 1)) for number in known}


def exact_rounds(branch: int, last: int, share: int) -> frozenset[int]:
    """Return the rounds of a branch whose models are set aside once its last round is ``last``.

    They are those of the public schedule, without the last itself; the model that a later branch starts with is one
    of its share. What is set aside after more rounds, or with a smaller share, is set aside now, or not older than
    ``last``.

    Theory section 7.
    """
    room = share - 1 if branch else share
    if room < 0:
        return frozenset()
    return frozenset({0, *(public_schedule(last, room)[1:-1] if room else ())})


def exact_places(
    kept: Iterable[ModelId], known: Mapping[int, Branch], last_round: Callable[[int], int], capacity: int
) -> frozenset[ModelId]:
    """Return those of the kept models that are set aside for exact restarts."""
    shares, model_ids = exact_shares(known, capacity), list(kept)
    branches = {model_id.branch for model_id in model_ids}
    rounds = {branch: exact_rounds(branch, last_round(branch), shares[branch]) for branch in branches}
    return frozenset(model_id for model_id in model_ids if model_id.round in rounds[model_id.branch])


def surely_kept(
    known: Mapping[int, Branch], tip: ModelId, last_round: Callable[[int], int], run: Run, solves: Collection[int]
) -> set[ModelId]:
    """Return models on the line to ``tip`` that no rule of retention ever gives up; only an erasure may.

    ``solves`` are the branches in which a head was solved: a solve leaves its last model only.
    Which others are there depends on who took part, and maybe on their Psi, in rounds that may be erased.
    """
    line = branch_exits(known, tip)
    surely = {ROOT, tip}
    if run.goal is not None and not run.facts.public_schedule:
        on_line = (ModelId(leg.branch, number) for leg in line for number in range(leg.round + 1))
        surely |= exact_places(on_line, known, last_round, run.capacity)
    # As long as there was room for all, nothing of the newest branch had to go. In a public schedule the newest model
    # may be one of those that there is room for.
    room = run.capacity + (1 if run.facts.public_schedule else 2)
    if sum(leg.round + 1 for leg in line) <= room and tip.branch not in solves:
        surely |= {ModelId(tip.branch, number) for number in range(tip.round + 1)}
    return surely


def _rounds_lost(
    serves: Members, offered: Members, weights: Floats, nodes: NDArray[np.int64]
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the rounds that would be lost without each node, and the position of everybody's first choice.

    ``serves`` holds a row for each client: the nodes at which its Psi is small enough, of which it can go back to
    those that are ``offered``. Without its first choice it loses the way to its second one. Where Psi fell and the
    newest node serves again, that will not last, and the second choice counts as well.
    """
    again = serves[:, -1] & ~serves.all(axis=1)
    serves, rows, last = serves & offered, np.arange(len(serves)), len(nodes) - 1
    choices = []
    for _ in range(3):
        serves[:, 0] = True
        choices.append(last - serves[:, ::-1].argmax(axis=1))
        serves[rows, choices[-1]] = False
    first, second, third = choices
    now, later = nodes[first] - nodes[second], again * (nodes[second] - nodes[third])
    positions, rounds = np.concatenate([first, second]), np.concatenate([now, _RESTING * later])
    lost = np.bincount(positions, weights=np.tile(weights, 2) * rounds, minlength=len(nodes))
    return np.asarray(lost, dtype=np.float64), first


def _scrambled(clients: Clients) -> NDArray[np.int64]:
    """Return every client a mark of its own, in an order that has nothing to do with when it came."""
    marks = clients.astype(np.uint64) * _MULTIPLIER
    return ((marks ^ (marks >> np.uint64(32))) * _MULTIPLIER).view(np.int64)
