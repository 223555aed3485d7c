"""Subtotals of the sums that are kept, in a tree: a departure costs one path of it, and not everybody's sums.

A leaf is what one client sent; every node above adds up to eight below it, by pseudonym. The total of all is stored
nowhere. A node's file is named by whose sums it holds and sealed with the secret, so whatever is no sum of what is
kept now is not taken for one. Who leaves is never taken away from a total: of the nodes above it the other branches
are added up. The nodes themselves go with the client's own sums, and are made anew without it when they are needed.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TypeAlias, cast

import numpy as np

from rescind.checkpoints.store import CheckpointStore
from rescind.checkpoints.tensors import StoredTensor, digest
from rescind.core.ridge import RidgeSums, add_up_ridge
from rescind.errors import DamagedCheckpointError, MissingCheckpointError

_FAN_OUT = 8
_SEAL = "seal"

# Some clients' sums, and how many rows each of them has, by pseudonym.
Part: TypeAlias = tuple[Mapping[int, int], RidgeSums]
# Reads a client's sums, by pseudonym and file; None leaves the client out.
ReadOne: TypeAlias = Callable[[int, str], RidgeSums | None]


@dataclass(frozen=True, slots=True)
class Node:
    """Some clients, whose sums are in one file.

    Attributes:
        file: the name of the file; of a single client's the digest of its content.
        clients: their pseudonyms.
        below: what it is the sum of; nothing for a single client.
    """

    file: str
    clients: tuple[int, ...]
    below: tuple[Node, ...] = ()

    def walk(self) -> Iterator[Node]:
        """Return this node and all below it."""
        yield self
        for node in self.below:
            yield from node.walk()


def grow_tree(objects: Mapping[int, str]) -> tuple[Node, ...]:
    """Return the tree over clients' sums.

    Args:
        objects: the digests of their files, by pseudonym.

    Returns:
        the nodes at its top, at most eight.
    """
    level = [(client, Node(file, (client,))) for client, file in sorted(objects.items())]
    while len(level) > _FAN_OUT:
        grouped = groupby(level, lambda placed: placed[0] // _FAN_OUT)
        level = [(place, _join([node for _, node in placed])) for place, placed in grouped]
    return tuple(node for _, node in level)


def _join(below: list[Node]) -> Node:
    """Return the node over others; over a single one it is that one."""
    if len(below) == 1:
        return below[0]
    # Whatever is below a node is in its name: two clients may have sent the same.
    named = hashlib.sha256(b"rescind subtotal\0")
    for node in below:
        named.update(struct.pack(">QQ", len(node.below), node.clients[0]) + bytes.fromhex(node.file))
    clients = tuple(chain.from_iterable(node.clients for node in below))
    return Node(named.hexdigest(), clients, tuple(below))


def find_files(objects: Mapping[int, str]) -> set[str]:
    """Return the names of all files that clients' sums may be in, alone or added up.

    Args:
        objects: the digests of the clients' own files, by pseudonym.

    Returns:
        the names, of files that are there or not.
    """
    return {node.file for top in grow_tree(objects) for node in top.walk()}


class Subtotals:
    """The nodes of a tree, in the store that holds the clients' sums."""

    def __init__(self, store: CheckpointStore, secret: Callable[[], bytes]) -> None:
        self._store, self._secret = store, secret

    def read(
        self, tree: Iterable[Node], wanted: Collection[int], apart: Collection[int], leaf: ReadOne
    ) -> Iterator[Part]:
        """Read the sums of clients in as few parts as there are.

        Args:
            tree: the one over all whose sums are kept.
            wanted: whose sums are wanted, by pseudonym.
            apart: those of them who have to be read one by one.
            leaf: reads a single client's sums.

        Returns:
            parts that add up to the sums of those wanted.
        """
        inside, alone = frozenset(wanted), frozenset(apart)

        def take(node: Node) -> Iterator[Part]:
            if inside.isdisjoint(node.clients):
                return
            if not node.below:
                (client,) = node.clients
                if (sums := leaf(client, node.file)) is not None:
                    yield {client: sums.rows}, sums
            elif inside.issuperset(node.clients) and alone.isdisjoint(node.clients):
                yield self._load(node) or self._make(node, chain.from_iterable(map(take, node.below)))
            else:
                for below in node.below:
                    yield from take(below)

        return chain.from_iterable(map(take, tree))

    def is_sound(self, node: Node) -> bool:
        """Return whether a subtotal's file is not there, or holds what it should."""
        return node.file not in self._store or self._load(node) is not None

    def _load(self, node: Node) -> Part | None:
        """Read a subtotal; None if it is not there, or not what was written."""
        try:
            tensors = self._store.load_named(node.file)
        except (MissingCheckpointError, DamagedCheckpointError):
            return None
        seal = tensors.pop(_SEAL, np.zeros(0))
        if not hmac.compare_digest(seal.tobytes(), self._seal(node, tensors)):
            return None
        rows = tensors.pop("rows").tolist()
        return dict(zip(node.clients, rows, strict=True)), unpack(tensors)

    def _make(self, node: Node, parts: Iterable[Part]) -> Part:
        rows = dict[int, int]()

        def take() -> Iterator[RidgeSums]:
            for own, sums in parts:
                rows.update(own)
                yield sums

        # A node is over two clients at least.
        total = cast(RidgeSums, add_up_ridge(take()))
        tensors = {**pack(total), "rows": np.array([rows[client] for client in node.clients])}
        self._store.put_named(node.file, {**tensors, _SEAL: np.frombuffer(self._seal(node, tensors), np.uint8)})
        return rows, total

    def _seal(self, node: Node, tensors: Mapping[str, StoredTensor]) -> bytes:
        return hmac.digest(self._secret(), bytes.fromhex(node.file) + bytes.fromhex(digest(tensors)), "sha256")


def pack(sums: RidgeSums) -> dict[str, StoredTensor]:
    """Return sums as tensors, for a file."""
    return {"features": sums.features, "numbers": np.array([sums.rows, sums.bits]), "targets": sums.targets}


def unpack(tensors: Mapping[str, StoredTensor]) -> RidgeSums:
    """Return the sums that ``pack`` made tensors of."""
    rows, bits = map(int, tensors["numbers"])
    return RidgeSums(rows, bits, tensors["features"], tensors["targets"])
