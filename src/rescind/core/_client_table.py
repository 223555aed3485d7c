"""Each client's latest contribution: a hash table in numpy that looks up a whole round at once.

A dict does the same a client at a time, and with a million clients waits for memory at every one of them: that alone
made a round more than twice as slow as with a thousand. Here a client's record is one piece of memory, and a round
asks for all of them together.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Clients, Members
from rescind.core.edges import NO_CLIENT

Records: TypeAlias = NDArray[np.void]

ABSENT = -1
RECORD = np.dtype([("client", np.int64), ("node", np.int64), ("rounds", np.int64), ("psi", np.float64)])

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio spreads consecutive numbers


class ClientTable:
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
