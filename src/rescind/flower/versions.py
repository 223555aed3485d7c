"""What Flower's versions differ in, and what takes the place of what an older one lacks.

The package imports what Flower documents (``flwr.app``, ``flwr.clientapp``, ``flwr.serverapp``) and nothing else: its
other modules move from one version to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from flwr.serverapp import Grid


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a Grid shows of a node; its fields are called as Flower's are.

    ``name`` is the one that its key is registered under, ``last_activated_at`` when it was started last; either is
    empty where Flower does not say it, and ``public_key`` is, too.
    """

    node_id: int
    name: str = ""
    public_key: bytes = b""
    last_activated_at: str = ""

    @property
    def registered(self) -> bool:
        """Whether the operator registered the key that the node shows: only then the node has a name.

        That it holds the key is checked by Flower in any case, but without registration it makes up a new one at
        every start.
        """
        return bool(self.name) and bool(self.public_key)


def list_nodes(grid: Grid) -> list[NodeInfo]:
    """Return the nodes that are connected, with the keys that they show.

    Before 1.38 a Grid gives their numbers only. Then no key can be read, registered or not, and clients are called
    what they say.
    """
    show = getattr(grid, "get_nodes", None)
    if show is None:
        return [NodeInfo(node) for node in grid.get_node_ids()]
    return [NodeInfo(info.node_id, info.name, info.public_key, info.last_activated_at) for info in show()]
