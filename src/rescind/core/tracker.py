"""The lazy form of the recursion: a round costs its participants, never the number of known clients.

A client's Psi is written down when it takes part. Between two of its rounds Psi follows the same affine map for
everybody, Psi <- F Psi + r, whose cumulated form is kept once a node and applied when a value is read.

Each client's latest contribution is in a hash table in numpy that looks up a whole round at once. A dict does the
same a client at a time, and with a million clients waits for memory at every one of them: that alone made a round
more than twice as slow as with a thousand. Here a client's record is one piece of memory, and a round asks for all
of them together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Clients, Floats, Members
from rescind.core.edges import NO_CLIENT, Edge, ErasedStretch, RoundEdge, sorted_group
from rescind.core.sensitivity import SAFETY, client_terms

Records: TypeAlias = NDArray[np.void]

ABSENT = -1
RECORD = np.dtype([("client", np.int64), ("node", np.int64), ("rounds", np.int64), ("psi", np.float64)])

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio spreads consecutive numbers


class _ClientTable:
    """Open addressing with double hashing, at most half full; clients are any integers but ``NO_CLIENT``."""

    def __init__(self) -> None:
        self._allocate(bits=10)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def slots(self, clients: Clients) -> Clients:
        """Find each client's slot, or the empty one where it belongs; room for all of them is made first."""
        bits = self._bits
        while 2 * (self._count + len(clients)) > 1 << bits:
            bits += 2
        if bits > self._bits:
            self._grow(bits)
        return self._probe(clients)

    def read(self, slots: Clients) -> Records:
        """Return the records in the slots; ``node`` is ``ABSENT`` in an empty one."""
        return self._table.take(slots)

    def records(self) -> Records:
        """Return all records, sorted by client."""
        records: Records = self._table[self._table["client"] != NO_CLIENT]
        return records.take(np.argsort(records["client"]))

    def write(self, slots: Clients, records: Records) -> None:
        """Put the records into their clients' slots; no client may appear twice."""
        while len(records):
            new = self._table["node"][slots] == ABSENT
            self._table[slots] = records
            # Two new clients may have met in one empty slot: the one that was overwritten looks for another.
            lost = self._table["client"][slots] != records["client"]
            self._count += int(new.sum() - lost.sum())
            records = records[lost]
            slots = self._probe(records["client"])

    def _probe(self, clients: Clients) -> Clients:
        hashed = clients.astype(np.uint64) * _MULTIPLIER
        slots = (hashed >> np.uint64(64 - self._bits)).astype(np.int64)
        # An odd stride visits every slot of a table whose size is a power of two.
        strides = (hashed >> np.uint64(8)).astype(np.int64) | 1
        moving = np.flatnonzero(self._taken_by_others(slots, clients))
        while len(moving):
            slots[moving] = (slots[moving] + strides[moving]) & (len(self._table) - 1)
            moving = moving[self._taken_by_others(slots[moving], clients[moving])]
        return slots

    def _taken_by_others(self, slots: Clients, clients: Clients) -> Members:
        keys = self._table["client"][slots]
        return np.asarray((keys != clients) & (keys != NO_CLIENT))

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._table = np.zeros(1 << bits, dtype=RECORD)
        self._table["client"], self._table["node"] = NO_CLIENT, ABSENT

    def _grow(self, bits: int) -> None:
        records = self._table[self._table["client"] != NO_CLIENT]
        self._allocate(bits)
        self._count = 0
        self.write(self._probe(records["client"]), records)


@dataclass(frozen=True, slots=True, eq=False)
class TrackerState:
    """All that a tracker knows at the end of its path.

    Per node, the first included: ``log_factors`` and ``low_log_factors``, the sums of log F over the edges before it,
    rounded up and rounded down, and ``floors``, the Psi that rounding alone would give. Per client that took part,
    sorted: ``clients``, the node after its last round in ``nodes``, its Psi there in ``psi``, and the number of its
    rounds, without erased ones, in ``rounds``.

    Theory section 4.
    """

    log_factors: Floats
    low_log_factors: Floats
    floors: Floats
    clients: Clients
    nodes: Clients
    rounds: Clients
    psi: Floats

    def __post_init__(self) -> None:
        per_node, per_client = (
            (self.log_factors, self.low_log_factors, self.floors),
            (self.nodes, self.rounds, self.psi),
        )
        last = len(self.floors) - 1
        if last < 0 or any(values.shape != (last + 1,) for values in per_node):
            raise ValueError("a tracker's state needs as many sums of log F, both ways, as floors, and at least one")
        if self.clients.ndim != 1 or any(values.shape != self.clients.shape for values in per_client):
            raise ValueError(
                f"a tracker's state needs a node, rounds and a Psi for each of {self.clients.size} clients"
            )
        if any(values.dtype != np.float64 or np.isnan(values).any() for values in (*per_node, self.psi)):
            raise ValueError("a tracker's state is made of float64 numbers")
        if any(values[0] for values in per_node) or min(self.floors.min(), self.psi.min(initial=0.0)) < 0:
            raise ValueError("a tracker's state begins with 0, and neither floors nor Psi are below it")
        if not (self.clients[1:] > self.clients[:-1]).all() or NO_CLIENT in self.clients[:1]:
            raise ValueError("a tracker's state has its clients sorted, each of them once")
        if not (self.rounds >= 0).all() or not (self.rounds <= self.nodes).all():
            raise ValueError("nobody took part more often than there were rounds")
        if self.nodes.min(initial=1) < 1 or self.nodes.max(initial=0) > last:
            raise ValueError(f"a tracker's state has nodes 0 to {last}, and clients who took part before one of them")


class SensitivityTracker:
    """Psi of every client that ever took part, at the last node of a growing path.

    It keeps a record a client and three numbers a node, however many contributions there were.

    Theory section 4.
    """

    def __init__(self) -> None:
        self._last_node = 0
        # Per node: the sum of log F over the edges before it, rounded up and rounded down, and the Psi that rounding
        # alone would give.
        self._log_factors = np.zeros(1)
        self._low_log_factors = np.zeros(1)
        self._floors = np.zeros(1)
        # Per client: its last contribution.
        self._latest = _ClientTable()

    @classmethod
    def resume(cls, state: TrackerState) -> Self:
        """Return a tracker that goes on from a state."""
        tracker = cls()
        tracker._last_node = len(state.floors) - 1
        tracker._log_factors = state.log_factors.copy()
        tracker._low_log_factors = state.low_log_factors.copy()
        tracker._floors = state.floors.copy()
        records = _pack_records(state.clients, state.nodes, state.rounds, state.psi)
        tracker._latest.write(tracker._latest.slots(state.clients), records)
        return tracker

    def state(self) -> TrackerState:
        """Return all that is known at the last node."""
        nodes, latest = slice(self._last_node + 1), self._latest.records()
        return TrackerState(
            log_factors=self._log_factors[nodes].copy(),
            low_log_factors=self._low_log_factors[nodes].copy(),
            floors=self._floors[nodes].copy(),
            clients=np.ascontiguousarray(latest["client"]),
            nodes=np.ascontiguousarray(latest["node"]),
            rounds=np.ascontiguousarray(latest["rounds"]),
            psi=np.ascontiguousarray(latest["psi"]),
        )

    @property
    def last_node(self) -> int:
        """The node at the end of the path: the number of edges so far."""
        return self._last_node

    def record(self, edge: Edge) -> Floats:
        """Append an edge and give Psi of its participants at the new node.

        Theory section 4.
        """
        if isinstance(edge, ErasedStretch):
            slots = self._latest.slots(edge.clients)
            latest = self._latest.read(slots)
            if np.count_nonzero(latest["node"] != ABSENT) < len(self._latest):
                raise ValueError("an erased stretch has to name everybody who took part before its end")
            self._append_node(1.0, 0.0)
            self._store(slots, edge.clients, edge.sensitivities, latest["rounds"])
            return edge.sensitivities * SAFETY
        if not isinstance(edge, RoundEdge):
            self._append_node(edge.factor, edge.rounding)
            return np.empty(0)
        factors, deltas = client_terms(edge)
        slots = self._latest.slots(edge.clients)
        latest = self._latest.read(slots)
        with np.errstate(over="ignore", invalid="ignore"):
            psi = factors * self._at_the_end(latest) + deltas + edge.rounding
        # Nothing times infinity: what is not known stays so.
        psi = np.where(np.isnan(psi), np.inf, psi)
        self._append_node(edge.factor, edge.rounding)
        self._store(slots, edge.clients, psi, latest["rounds"] + 1)
        return psi * SAFETY

    def sensitivity(self, client: int) -> float:
        """Return Psi of the client at the last node; 0 if it never took part.

        Theory section 4.
        """
        return float(self.sensitivities(sorted_group([client]))[0])

    def sensitivities(self, clients: Clients) -> Floats:
        """Return Psi of each client at the last node; 0 for one that never took part.

        Theory section 4.
        """
        return self._at_the_end(self._latest.read(self._latest.slots(clients))) * SAFETY

    def knows(self, clients: Clients) -> Members:
        """Return which of the clients took part on the path.

        Theory section 4.
        """
        return np.asarray(self._latest.read(self._latest.slots(clients))["node"] != ABSENT)

    def _at_the_end(self, latest: Records) -> Floats:
        """Carry the clients' latest values on to the last node."""
        psi, nodes, to = latest["psi"], latest["node"], self._last_node
        floor = self._floors[to]
        with np.errstate(invalid="ignore", over="ignore"):
            growth = np.exp(self._log_factors[to] - self._log_factors.take(nodes)) * (1 + 2.0**-50)
            # What rounding added since then. It is a difference, so the growth in it is one that is surely not too
            # large, and the error of the exponential is added.
            low_growth = np.exp(self._low_log_factors[to] - self._low_log_factors.take(nodes))
            added = np.maximum(floor - low_growth * self._floors.take(nodes), 0.0) + 1e-12 * floor
            carried = np.where(nodes < to, growth * psi + added, psi)
        # Where numbers have left float64's range nothing is known any more.
        carried = np.where(np.isnan(carried), np.inf, carried)
        return np.where(nodes == ABSENT, 0.0, carried)

    def _append_node(self, factor: float, rounding: float) -> None:
        here, new = self._last_node, self._last_node + 1
        log_factor = math.log(factor)
        self._log_factors = _with_room(self._log_factors, new + 1)
        self._low_log_factors = _with_room(self._low_log_factors, new + 1)
        self._floors = _with_room(self._floors, new + 1)
        self._log_factors[new] = _added(float(self._log_factors[here]), log_factor, math.inf)
        self._low_log_factors[new] = _added(float(self._low_log_factors[here]), log_factor, -math.inf)
        self._floors[new] = factor * float(self._floors[here]) + rounding
        self._last_node = new

    def _store(self, slots: Clients, clients: Clients, psi: Floats, rounds: Clients) -> None:
        self._latest.write(slots, _pack_records(clients, self._last_node, rounds, psi))


def _pack_records(clients: Clients, nodes: Clients | int, rounds: Clients, psi: Floats) -> Records:
    records = np.empty(len(clients), dtype=RECORD)
    records["client"], records["node"], records["rounds"], records["psi"] = clients, nodes, rounds, psi
    return records


def _added(total: float, log_factor: float, towards: float) -> float:
    """Add a logarithm, rounded in one direction; a factor of exactly 1 leaves the total as it is."""
    if not log_factor:
        return total
    return math.nextafter(total + math.nextafter(log_factor, towards), towards)


def _with_room(values: np.ndarray, size: int) -> np.ndarray:
    """Double the array when it is full, so that appending stays cheap on average."""
    if size <= len(values):
        return values
    grown = np.empty(max(size, 2 * len(values), 1024), dtype=values.dtype)
    grown[: len(values)] = values
    return grown
