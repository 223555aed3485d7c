"""The lazy form of the recursion: a round costs its participants, never the number of known clients.

A client's Psi is written down when it takes part. Between two of its rounds Psi follows the same affine map for
everybody, Psi <- F Psi + r, whose cumulated form is kept once a node and applied when a value is read.
"""

from __future__ import annotations

import math

import numpy as np

from rescind.core._client_table import ABSENT, RECORD, ClientTable, Records
from rescind.core.arrays import Clients, Floats, Members
from rescind.core.edges import Edge, ErasedStretch, RoundEdge, UnboundedEdge, sorted_group
from rescind.core.sensitivity import SAFETY, client_terms


class SensitivityTracker:
    """Psi of every client that ever took part, at every node of a growing path; truncation goes back on it.

    Theory section 4.
    """

    def __init__(self) -> None:
        self._last_node = 0
        # Per node: the sum of log F over the edges before it, rounded up and rounded down, and the Psi that rounding
        # alone would give.
        self._log_factors = np.zeros(1)
        self._low_log_factors = np.zeros(1)
        self._floors = np.zeros(1)
        # Per contribution, in the order of the path: its record, and the row of the client's one before it.
        self._records = np.empty(0, dtype=RECORD)
        self._earlier = np.empty(0, dtype=np.int64)
        self._count = 0
        self._latest = ClientTable()
        # From this node on nothing is known of anybody.
        self._unbounded_from = math.inf

    @property
    def last_node(self) -> int:
        """The node at the end of the path: the number of edges so far."""
        return self._last_node

    @property
    def stored_clients(self) -> int:
        """The number of clients about whom anything is stored."""
        return len(self._latest)

    def record(self, edge: Edge) -> Floats:
        """Append an edge and give Psi of its participants at the new node.

        Theory section 4.
        """
        if isinstance(edge, ErasedStretch):
            slots = self._latest.slots(edge.clients)
            earlier = self._latest.read(slots)["row"]
            if np.count_nonzero(earlier != ABSENT) < len(self._latest):
                raise ValueError("an erased stretch has to name everybody who took part before its end")
            self._append_node(1.0, 0.0)
            self._store(slots, edge.clients, edge.sensitivities, earlier)
            return edge.sensitivities * SAFETY
        if not isinstance(edge, RoundEdge):
            self._append_node(edge.factor, edge.rounding)
            if isinstance(edge, UnboundedEdge):
                self._unbounded_from = min(self._unbounded_from, self._last_node)
            return np.empty(0)
        factors, deltas = client_terms(edge)
        slots = self._latest.slots(edge.clients)
        latest = self._latest.read(slots)
        with np.errstate(over="ignore"):
            psi = factors * self._at_the_end(latest) + deltas + edge.rounding
        self._append_node(edge.factor, edge.rounding)
        self._store(slots, edge.clients, psi, latest["row"])
        return psi * SAFETY

    def sensitivity(self, client: int, node: int | None = None) -> float:
        """Return Psi of the client at a node, the last one unless told; 0 before it first took part.

        Theory section 4.
        """
        at = self._last_node if node is None else self._checked(node)
        if at >= self._unbounded_from:
            return math.inf
        row = int(self._latest.read(self._latest.slots(sorted_group([client])))["row"][0])
        while row != ABSENT and self._records["node"][row] > at:
            row = int(self._earlier[row])
        if row == ABSENT:
            return 0.0
        record = self._records[row : row + 1]
        return float(self._carried(record["psi"], record["node"], at)[0]) * SAFETY

    def sensitivities(self, clients: Clients) -> Floats:
        """Return Psi of each client at the last node; 0 for one that never took part.

        Theory section 4.
        """
        return self._at_the_end(self._latest.read(self._latest.slots(clients))) * SAFETY

    def knows(self, clients: Clients) -> Members:
        """Return which of the clients took part on the path.

        Theory section 4.
        """
        return np.asarray(self._latest.read(self._latest.slots(clients))["row"] != ABSENT)

    def truncate(self, node: int) -> None:
        """Go back to a node: the edges after it and their terms are dropped.

        Theory section 4.
        """
        self._last_node = self._checked(node)
        if node < self._unbounded_from:
            self._unbounded_from = math.inf
        self._count = int(np.searchsorted(self._records["node"][: self._count], node, side="right"))
        kept = self._records[: self._count][::-1]
        _, latest = np.unique(kept["client"], return_index=True)
        self._latest = ClientTable()
        self._latest.write(self._latest.slots(kept["client"][latest]), kept[latest])

    def _checked(self, node: int) -> int:
        if not 0 <= node <= self._last_node:
            raise ValueError(f"node is {node}; the path has nodes 0 to {self._last_node}")
        return node

    def _at_the_end(self, latest: Records) -> Floats:
        """Carry the clients' latest values on to the last node."""
        if self._last_node >= self._unbounded_from:
            return np.full(len(latest), np.inf)
        carried = self._carried(latest["psi"], latest["node"], self._last_node)
        return np.where(latest["row"] == ABSENT, 0.0, carried)

    def _carried(self, psi: Floats, nodes: Clients, to: int) -> Floats:
        """Carry values from their nodes on to a later one."""
        floor = self._floors[to]
        with np.errstate(invalid="ignore", over="ignore"):
            growth = np.exp(self._log_factors[to] - self._log_factors.take(nodes)) * (1 + 2.0**-50)
            # What rounding added since then. It is a difference, so the growth in it is one that is surely not too
            # large, and the error of the exponential is added.
            low_growth = np.exp(self._low_log_factors[to] - self._low_log_factors.take(nodes))
            added = np.maximum(floor - low_growth * self._floors.take(nodes), 0.0) + 1e-12 * floor
            carried = np.where(nodes < to, growth * psi + added, psi)
        # Where numbers have left float64's range nothing is known any more.
        return np.where(np.isnan(carried), np.inf, carried)

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

    def _store(self, slots: Clients, clients: Clients, psi: Floats, earlier: Clients) -> None:
        start, end = self._count, self._count + len(clients)
        self._records, self._earlier = _with_room(self._records, end), _with_room(self._earlier, end)
        added = self._records[start:end]
        added["client"], added["row"] = clients, np.arange(start, end)
        added["node"], added["psi"] = self._last_node, psi
        self._earlier[start:end] = earlier
        self._latest.write(slots, added)
        self._count = end


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
