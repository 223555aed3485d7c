"""Who is who: a SuperNode is known by its public key where Flower authenticates it, else by what it says."""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from rescind.engines.flower.wire import EXECUTED

_LOG = logging.getLogger("flwr")
# Seconds between two looks at who is connected.
_PAUSE = 1.0
# Seconds that a client may take to say who it is.
_ANSWER = 60.0


@dataclass(frozen=True, slots=True)
class Member:
    """A connected client: its ``name`` tells it from all others, ``label`` is what people call it."""

    name: str
    node: int
    label: str


class Nodes:
    """The clients that are connected to a Grid, by name."""

    def __init__(self, grid: Grid, least: int, timeout: float) -> None:
        self._grid, self._least, self._timeout = grid, least, timeout
        self._asked: dict[int, str] = {}
        self.authenticated = all(map(is_authenticated, self._gathered()))

    def connected(self) -> dict[str, Member]:
        """Give who is connected now, sorted by name; waits until there are as many as the strategy wants.

        Where a client that came back is still counted under its old node too, the newer node is the one.
        """
        nodes = self._gathered()
        names = self._names(nodes)
        found = {
            names[node.node_id]: Member(names[node.node_id], node.node_id, node.name or names[node.node_id])
            for node in sorted(nodes, key=lambda each: each.last_activated_at)
        }
        return {name: found[name] for name in sorted(found)}

    def _gathered(self) -> list[NodeInfo]:
        deadline, said = time.monotonic() + self._timeout, -1
        while len(nodes := list(self._grid.get_nodes())) < self._least:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"{len(nodes)} SuperNodes are connected after {self._timeout:g} s, and the strategy waits for "
                    f"{self._least}: start more, or lower its min_available_nodes"
                )
            if len(nodes) != said:
                said = len(nodes)
                _LOG.info("rescind: %d SuperNodes are connected, waiting for %d", said, self._least)
            time.sleep(min(_PAUSE, self._timeout))
        return nodes

    def _names(self, nodes: Iterable[NodeInfo]) -> Mapping[int, str]:
        if self.authenticated:
            # Whoever is not authenticated has no place in a federation where the others are.
            return {node.node_id: fingerprint(node.public_key) for node in nodes if is_authenticated(node)}
        unknown = [node.node_id for node in nodes if node.node_id not in self._asked]
        if unknown:
            self._asked |= {node: f"node-{node}" for node in unknown} | self._answers(unknown)
        return self._asked

    def _answers(self, nodes: Iterable[int]) -> dict[int, str]:
        """Ask clients who they are; whose app does not tell is known by its node, for as long as it has that."""
        messages = [Message(RecordDict({"config": ConfigRecord()}), node, MessageType.QUERY) for node in nodes]
        found = {}
        for reply in self._grid.send_and_receive(messages, timeout=min(_ANSWER, self._timeout)):
            told = None if reply.has_error() else reply.content.config_records.get(EXECUTED)
            name = None if told is None else told.get("client-id")
            if isinstance(name, str) and 0 < len(name) <= 256 and name.isprintable():
                found[reply.metadata.src_node_id] = name
        return found


def is_authenticated(node: NodeInfo) -> bool:
    """Tell whether the operator registered the key that a node shows: only then a node has a name.

    That it holds the key is checked by Flower in any case, but without registration it makes up a new one at
    every start.
    """
    return node.HasField("name") and bool(node.name) and bool(node.public_key)


def fingerprint(public_key: bytes) -> str:
    """Give a key's name: the SHA-256 of its PEM text, in the form that SSH shows fingerprints in."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_key.strip()).digest()).decode().rstrip("=")
