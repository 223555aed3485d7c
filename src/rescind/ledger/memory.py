"""The reference: a ledger in plain dictionaries, for tests and for experiments that keep nothing."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Clients
from rescind.core.edges import ModelId
from rescind.errors import LockedError
from rescind.ledger.commitments import KEY_BYTES, stamp
from rescind.ledger.contract import ABSENT_ROUNDS, STAMPS, Ledger, bind_secret, derive_secret
from rescind.ledger.records import Entry, RoundRecord, Span, Stretch


class MemoryLedger(Ledger):
    """A ledger that ends with its process."""

    def __init__(self) -> None:
        outside = secrets.token_bytes(KEY_BYTES)
        self._secret = secrets.token_bytes(KEY_BYTES)
        self._outside_secret = bind_secret(outside, self._secret)
        self._entries: list[Entry] = []
        self._stamps: list[bytes] = []
        self._names: dict[str, int] = {}
        self._people: dict[int, tuple[str, str | None, bytes]] = {}
        self._name_leaves: dict[int, bytes] = {}
        self._erased: set[tuple[str, int]] = set()
        self._keys: dict[int, bytes] = {}
        self._last_rounds: dict[int, int] = {}
        self._rounds: dict[ModelId, RoundRecord] = {}
        self._kept: dict[ModelId, str] = {}
        self._objects: dict[int, str] = {}
        self._stretches: dict[int, Stretch] = {}
        self._bounds: tuple[int, bytes, bytes] | None = None
        self._held = False
        self._turn = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Return all but the lock, so that a history can be copied."""
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a copied state, with a lock of its own."""
        vars(self).update(state)
        self._turn = threading.RLock()

    def close(self) -> None:
        self._held = False

    @contextmanager
    def writing(self) -> Iterator[None]:
        if self._held:
            raise LockedError("this process")
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _transaction(self) -> AbstractContextManager[None]:
        return nullcontext()

    def turn(self) -> AbstractContextManager[object]:
        return self._turn

    def entries(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        yield from [entry for entry in self._entries[after:] if not kinds or entry.kind in kinds]

    def _run_secret(self) -> bytes:
        return self._secret

    def outside_secret(self, purpose: str) -> bytes:
        return derive_secret(self._outside_secret, purpose)

    def last_entry(self) -> Entry | None:
        return self._entries[-1] if self._entries else None

    def _last_pseudonym(self) -> int:
        return max([0, *self._people, *self._name_leaves])

    def _add_clients(self, clients: Sequence[tuple[int, str, bytes]]) -> None:
        self._names |= {name: client for client, name, _ in clients}
        self._people |= {client: (name, None, nonce) for client, name, nonce in clients}
        self._keys |= {client: secrets.token_bytes(KEY_BYTES) for client, _, _ in clients}

    def _identities(
        self, clients: Collection[int] | None = None, names: Collection[str] | None = None, *, labelled: bool = False
    ) -> list[tuple[int, str, str | None, bytes]]:
        wanted: Collection[int] = self._people
        if names is not None:
            wanted = {self._names[name] for name in names if name in self._names}
        elif clients is not None:
            chosen = clients if isinstance(clients, range) else set(clients)
            wanted = [client for client in self._people if client in chosen]
        rows = [(client, *self._people[client]) for client in sorted(wanted)]
        return [row for row in rows if row[2] is not None] if labelled else rows

    def count_names(self) -> int:
        return len(self._names)

    def _erased_among(self, digests: Collection[str]) -> list[tuple[str, int]]:
        return [(digest, client) for digest, client in self._erased if digest in digests]

    def _set_labels(self, labels: Mapping[int, str]) -> None:
        for client, label in labels.items():
            name, _, nonce = self._people[client]
            self._people[client] = name, label, nonce

    def _erased_leaves(self, first: int, last: int) -> dict[int, bytes]:
        return {client: leaf for client, leaf in self._name_leaves.items() if first <= client <= last}

    def keys(self, clients: Clients) -> dict[int, bytes]:
        return {client: self._keys[client] for client in clients.tolist() if client in self._keys}

    def _add_round(self, _sequence: int, round_: RoundRecord, release: Sequence[ModelId]) -> None:
        model_id = round_.model_id
        self._last_rounds[model_id.branch] = model_id.round
        self._rounds[model_id], self._kept[model_id] = round_, round_.model
        for released in release:
            self._kept.pop(released, None)

    def _add_branch(self, number: int, model: str) -> None:
        self._last_rounds[number], self._kept[ModelId(number, 0)] = 0, model

    def last_round(self, branch: int) -> int:
        return self._last_rounds.get(branch, -1)

    def rounds(self, span: Span, wanted: Collection[int] | None = None) -> Iterator[RoundRecord]:
        inside = [model_id for model_id in sorted(self._rounds) if model_id in span]
        yield from [self._rounds[model_id] for model_id in inside if wanted is None or model_id.round in wanted]

    def absent_rounds(self, span: Span) -> NDArray[np.void]:
        rows = [(round_.model_id.round, round_.factor, round_.rounding) for round_ in self.rounds(span)]
        return np.array(rows, dtype=ABSENT_ROUNDS)

    def rounds_of(self, clients: Clients) -> list[ModelId]:
        return [
            model_id for model_id in sorted(self._rounds) if np.isin(self._rounds[model_id].clients, clients).any()
        ]

    def indexed_participants(self, span: Span) -> Iterator[tuple[ModelId, Clients]]:
        yield from ((round_.model_id, round_.clients) for round_ in self.rounds(span))

    def kept(self) -> dict[ModelId, str]:
        return dict(sorted(self._kept.items()))

    def _replace_objects(self, objects: Mapping[int, str]) -> None:
        self._objects |= objects

    def objects(self) -> dict[int, str]:
        return dict(sorted(self._objects.items()))

    def bounds_since(self) -> int | None:
        return self._bounds[0] if self._bounds else None

    def _read_bounds(self) -> tuple[int, bytes, bytes, bytes] | None:
        if self._bounds is None:
            return None
        sequence, seal, content = self._bounds
        return sequence, self._entries[sequence - 1].head, seal, content

    def _replace_bounds(self, kept: tuple[int, bytes, bytes] | None) -> None:
        self._bounds = kept

    def _drop_identities(self, leaves: Mapping[int, bytes], digests: Sequence[tuple[str, int]]) -> None:
        self._erased.update(digests)
        self._name_leaves |= leaves
        for client in leaves:
            del self._names[self._people.pop(client)[0]]

    def _drop_rounds(self, spans: Sequence[Span]) -> None:
        def stays(model_id: ModelId) -> bool:
            return not any(model_id in span for span in spans)

        self._rounds = {model_id: round_ for model_id, round_ in self._rounds.items() if stays(model_id)}
        self._kept = {model_id: model for model_id, model in self._kept.items() if stays(model_id)}

    def _replace_stretches(self, superseded: Sequence[int], stretch: Stretch | None) -> None:
        for branch in superseded:
            self._stretches.pop(branch, None)
        if stretch is not None:
            self._stretches[stretch.branch] = stretch

    def erase_objects(self, clients: Clients) -> None:
        for client in clients.tolist():
            self._objects.pop(client, None)

    def erase_keys(self, clients: Clients) -> None:
        for client in clients.tolist():
            self._keys.pop(client, None)

    def stretches(self) -> dict[int, Stretch]:
        return dict(sorted(self._stretches.items()))

    def compact(self) -> tuple[str, ...]:
        return ()

    def unstamped_entries(self) -> list[int]:
        secret, written = self.outside_secret(STAMPS), zip(self._entries, self._stamps, strict=True)
        return [entry.sequence for entry, stamped in written if stamp(secret, entry.head) != stamped]

    def erased_name_digests(self) -> list[tuple[str, int]]:
        return sorted(self._erased)

    def foreign_objects(self) -> Iterator[str]:
        yield from ()

    def _add_entry(self, entry: Entry, stamped: bytes) -> None:
        self._entries.append(entry)
        self._stamps.append(stamped)
