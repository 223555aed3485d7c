"""A Grid that knows only some of the nodes: whoever may not take part is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NoReturn

from flwr.app import Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.run import Run

_WRITES = (
    "a strategy writes messages, and rescind.flower.run sends them: what it sends by itself would not be recorded"
)


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
