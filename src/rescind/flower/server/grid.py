"""A Grid that knows only some of the nodes, where whoever may not take part is not there; and waiting on one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import NoReturn

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

_WRITES = (
    "a strategy writes messages, and rescind.flower.run sends them: what it sends by itself would not be recorded"
)
# The share of a time limit that an answer may take without being late.
PROMPT = 0.25
# Seconds between two looks for late answers.
_PAUSE = 1.0


def exchange(grid: Grid, messages: Iterable[Message], timeout: float) -> tuple[list[Message], set[int]]:
    """Send messages and wait for the replies, ``timeout`` seconds at most.

    Returns:
        the replies, and the nodes whose replies took more than the share ``PROMPT`` of the time.
    """
    sent, begun = list(messages), time.monotonic()
    if not sent:
        return [], set()
    replies = list(grid.send_and_receive(sent, timeout=PROMPT * timeout))
    late = list[Message]()
    # A Grid in one process gives messages no ids: who has not answered will not.
    waiting = {message.metadata.message_id for message in sent} - {""}
    waiting -= {reply.metadata.reply_to_message_id for reply in replies}
    while waiting and (left := begun + timeout - time.monotonic()) > 0:
        time.sleep(min(_PAUSE, left))
        came = list(grid.pull_messages(waiting))
        waiting -= {reply.metadata.reply_to_message_id for reply in came}
        late += came
    return [*replies, *late], {reply.metadata.src_node_id for reply in late}


class FilteredGrid(Grid):
    """Shows a strategy exactly the ``allowed`` nodes of another Grid, in their order, and sends nothing."""

    def __init__(self, grid: Grid, allowed: Sequence[int]) -> None:
        self._grid, self._allowed = grid, tuple(allowed)

    def set_run(self, run: Run) -> None:
        """Set the other Grid's run."""
        self._grid.set_run(run)

    @property
    def run(self) -> Run:
        """The other Grid's run."""
        return self._grid.run

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Make a message, as Flower's older strategies do."""
        self.check([dst_node_id])
        return self._grid.create_message(content, message_type, dst_node_id, group_id, ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the allowed nodes."""
        return list(self._allowed)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the allowed nodes that are connected."""
        return [node for node in self._grid.get_nodes() if node.node_id in self._allowed]

    def push_messages(self, messages: Iterable[Message]) -> NoReturn:  # noqa: ARG002
        """Refuse: what a strategy sends by itself is recorded nowhere."""
        raise ValueError(_WRITES)

    def pull_messages(self, message_ids: Iterable[str]) -> NoReturn:  # noqa: ARG002
        """Refuse, as nothing was sent."""
        raise ValueError(_WRITES)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> NoReturn:  # noqa: ARG002
        """Refuse, as ``push_messages`` does."""
        raise ValueError(_WRITES)

    def check(self, nodes: Iterable[int]) -> None:
        """Refuse messages to any others than the allowed nodes."""
        barred = sorted(set(nodes).difference(self._allowed))
        if barred:
            raise ValueError(f"node {barred[0]} may not take part: it was not drawn, or it was forgotten")
