"""A Flower Grid in one process: every message is handed to a ClientApp at once, for tests of strategies.

Beside a real federation, never instead of one: there are no processes, no network and no time-outs here.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

from rescind.flower.versions import NodeInfo

_SERVER = 1


class InProcessGrid(Grid):
    """Nodes that all run one ClientApp, each with its own node-config and its own state.

    ``nodes`` maps what people call a node to its node-config. With ``authenticated``, nodes show a public key, as
    they do where a SuperLink has checked it. ``failing`` can be filled with nodes whose messages are lost.
    """

    def __init__(self, app: ClientApp, nodes: Mapping[str, Mapping[str, Any]], *, authenticated: bool = True) -> None:
        self._app = app
        self._authenticated = authenticated
        # Far from one another and from zero, as Flower's are.
        self.ids = {name: 1_000_003 * (at + 2) for at, name in enumerate(nodes)}
        self._contexts = {
            self.ids[name]: Context(1, self.ids[name], dict(config), RecordDict(), {})
            for name, config in nodes.items()
        }
        self.failing: set[str] = set()
        self.gone: set[str] = set()
        self.sent: list[tuple[str, str]] = []
        pose_as_task()

    @staticmethod
    def key(name: str) -> bytes:
        """Return the public key that a node shows; it only looks like one."""
        return f"-----BEGIN PUBLIC KEY-----\n{name}\n-----END PUBLIC KEY-----\n".encode()

    def set_run(self, run: Any) -> None:
        """Do nothing: there is one run only."""

    @property
    def run(self) -> Any:
        """There is none."""
        raise NotImplementedError("a Grid in one process has no run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message, as Flower's older strategies do."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Return the nodes that are not gone."""
        return [node for name, node in self.ids.items() if name not in self.gone]

    def get_nodes(self) -> list[Any]:
        """Return the nodes that are not gone, with keys if they are authenticated."""
        shown = [(name, node) for name, node in self.ids.items() if name not in self.gone]
        if not self._authenticated:
            return [NodeInfo(node) for _, node in shown]
        return [NodeInfo(node, name, self.key(name)) for name, node in shown]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse: replies come at once."""
        raise NotImplementedError("use send_and_receive")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Refuse: replies come at once."""
        raise NotImplementedError("use send_and_receive")

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:  # noqa: ARG002
        """Hand each message to the app, and return the replies."""
        names = {node: name for name, node in self.ids.items()}
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            name = names[node]
            self.sent.append((name, message.metadata.message_type))
            if name in self.failing or name in self.gone:
                continue
            # As if they had travelled.
            received = copy.deepcopy(message)
            try:
                reply = self._app(received, self._contexts[node])
            except Exception as error:
                reply = Message(Error(code=2, reason=f"{type(error).__name__}: {error}"), reply_to=received)
            replies.append(copy.deepcopy(reply))
        return replies


def pose_as_task() -> None:
    """Let this process make messages as a ServerApp does: from 1.38 on Flower makes none outside of a task.

    Flower tells its own processes which task they are; where there are none, its class is found where it is used.
    """
    identity: Any = getattr(inspect.getmodule(Message), "TaskIdentity", None)
    if identity is not None:
        identity.task_id, identity.run_id, identity.node_id = 1, 1, _SERVER
