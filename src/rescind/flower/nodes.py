"""Who is who: a SuperNode is known by its registered public key, or by what it says where no keys are registered."""

from __future__ import annotations

import base64
import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid

from rescind.flower.patience import Patience
from rescind.flower.wire import EXECUTED
from rescind.ledger.contract import LONGEST_NAME
from rescind.texts import is_plain, make_plain

_LOG = logging.getLogger("flwr")
# Seconds between two looks at who is connected.
_PAUSE = 1.0
# Seconds that a client may take to say who it is.
_ANSWER = 30.0
KEYS_END_IT = "Registered keys end this (flwr supernode register)"


@dataclass(frozen=True, slots=True)
class Member:
    """A connected client: its ``name`` tells it from all others, ``label`` is what people call it."""

    name: str
    node: int
    label: str


class Nodes:
    """The clients that are connected to a Grid, by name.

    Names are keys where ``authenticated``, else what clients tell. That stays as it is, since a client with two names
    could be forgotten under one and train under the other. From the first registered key on, whoever comes without
    one stays outside, whatever names are.

    Args:
        grid: the ServerApp's.
        remaining: gives those of some names who may take part.
        known: gives the names of everybody who ever took part.
        barred: gives those of some clients, by name with what people call each, who may not come back.
        least: how many who may take part have to be connected before a round begins.
        timeout: how many seconds to wait for them.
        authenticated: whether names are keys, None if the first look is to decide that.
    """

    def __init__(
        self,
        grid: Grid,
        remaining: Callable[[Sequence[str]], list[str]],
        known: Callable[[], Sequence[str]],
        barred: Callable[[Mapping[str, str]], Set[str]],
        least: int,
        timeout: float,
        authenticated: bool | None,
    ) -> None:
        self._grid, self._remaining, self._known, self._barred = grid, remaining, known, barred
        self._least, self._timeout = least, timeout
        self._told: dict[int, str] = {}
        self._patience = Patience()
        self._warned: set[str] = set()
        self._wait(lambda: len(list(grid.get_nodes())))
        keys = any(map(is_registered, grid.get_nodes()))
        self.authenticated = self._closed = keys if authenticated is None else authenticated

    def begin_round(self) -> None:
        """Begin the next round: however often it is looked in one, who was silent is not asked again."""
        self._patience.begin_turn()

    def connected(self) -> dict[str, Member]:
        """Return who is connected and was not forgotten, sorted by name; waits until enough are who may take part."""
        members: dict[str, Member] = {}
        barred: Set[str] = frozenset()

        def enough() -> int:
            nonlocal members, barred
            members = self._members()
            barred = self._barred({name: member.label for name, member in members.items()})
            for name in sorted(barred):
                self._warn_of(members[name].node)
            ready = len(self._remaining(sorted(members.keys() - barred)))
            if len(members) >= self._least > ready:
                # Somebody has left; whoever else is known may only be late.
                could = len(self._remaining(sorted({*members, *self._known()} - barred)))
                if could < self._least:
                    raise ValueError(
                        f"{could} clients may take part, and the strategy wants {self._least}: lower its "
                        "min_available_nodes and min_train_nodes"
                    )
            return ready

        self._wait(enough)
        return {name: members[name] for name in sorted(members.keys() - barred)}

    def _wait(self, count: Callable[[], int]) -> None:
        deadline, announced = time.monotonic() + self._timeout, -1
        while (ready := count()) < self._least:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"{ready} SuperNodes that may take part are connected after {self._timeout:g} s, and the "
                    f"strategy waits for {self._least}: start more, or lower its min_available_nodes. Without a "
                    "registered key they have to answer with rescind.flower.identify in @app.query()"
                )
            if ready != announced:
                announced = ready
                _LOG.info("rescind: %d SuperNodes are connected, waiting for %d", announced, self._least)
            time.sleep(min(_PAUSE, self._timeout))
            # No round begins without those who are waited for, so they are asked again before it does.
            self._patience.begin_turn()

    def _members(self) -> dict[str, Member]:
        # The newest node last: where one that came back is still counted under its old node, the newer one is it.
        nodes = sorted(self._grid.get_nodes(), key=lambda info: info.last_activated_at)
        members: dict[str, Member] = {}
        registered = [node for node in nodes if is_registered(node)]
        if registered and not self._closed:
            self._closed = True
            self._warn("keys are registered by now: whoever has none stays outside; names stay what clients tell")
        if self.authenticated:
            names = {node.node_id: fingerprint(node.public_key) for node in registered}
        else:
            names = self._asked(registered if self._closed else nodes)
        for node in nodes:
            name = names.get(node.node_id)
            if name is None:
                self._warn(
                    f"node {node.node_id} does not take part: it has no registered key, or does not say who it is "
                    f"(rescind.flower.identify) in at most {LONGEST_NAME} characters that can be seen"
                )
                continue
            if name in members:
                self._warn(
                    f"nodes {members[name].node} and {node.node_id} say that they are the same client: the one that "
                    f"came last takes part, node {node.node_id}. {KEYS_END_IT}"
                )
            label = make_plain(node.name)[:LONGEST_NAME].strip() if self.authenticated else name
            members[name] = Member(name, node.node_id, label or name)
        return members

    def _asked(self, nodes: Sequence[NodeInfo]) -> dict[int, str]:
        """Ask those of some clients that have not said it yet who they are; return the names of all who have."""
        unknown = self._patience.asked(node.node_id for node in nodes if node.node_id not in self._told)
        messages = [Message(RecordDict({"config": ConfigRecord()}), node, MessageType.QUERY) for node in unknown]
        wait = min(_ANSWER, self._timeout)
        replies = list(self._grid.send_and_receive(messages, timeout=wait)) if messages else []
        for reply in replies:
            record = None if reply.has_error() else reply.content.config_records.get(EXECUTED)
            name = None if record is None else record.get("client-id")
            if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and is_plain(name):
                self._told[reply.metadata.src_node_id] = name
        # An error, or a name that cannot be one, is as good as silence: a stranger must not end a run by it.
        for node in self._patience.heard(unknown, self._told):
            self._warn(
                f"node {node} did not say in {wait:g} s who it is, or answered with an error: without a registered "
                "key its ClientApp needs rescind.flower.identify in @app.query(). It is asked again, ever more seldom"
            )
        return {node.node_id: self._told[node.node_id] for node in nodes if node.node_id in self._told}

    def _warn_of(self, node: int) -> None:
        """Say that a forgotten participant is there, without its name: Flower keeps the log."""
        bar = f"to bar its key: flwr supernode unregister {node} FEDERATION; " if self.authenticated else ""
        self._warn(
            f"a forgotten participant is connected (node {node}) and ignored; {bar}to readmit it: rescind readmit "
            "HISTORY NAME --reason REASON"
        )

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _LOG.warning("rescind: %s", message)


def is_registered(node: NodeInfo) -> bool:
    """Return whether the operator registered the key that a node shows: only then a node has a name.

    That it holds the key is checked by Flower in any case, but without registration it makes up a new one at
    every start.
    """
    return node.HasField("name") and bool(node.name) and bool(node.public_key)


def fingerprint(public_key: bytes) -> str:
    """Return a key's name: the SHA-256 of its PEM text, in the form that SSH shows fingerprints in."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_key.strip()).digest()).decode().rstrip("=")
