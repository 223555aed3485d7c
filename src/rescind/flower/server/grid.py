"""A Grid as it is used here: which nodes a strategy sees, who is asked, how long answers take, and how nodes fail."""

from __future__ import annotations

import builtins
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from flwr.app import Error, Message
from flwr.serverapp import Grid

from rescind.engines.complaints import recognise

# The share of a time limit that an answer may take without being late.
PROMPT = 0.25
# Seconds between two looks for late answers.
_PAUSE = 1.0
# No more silences are counted: however often a node was silent, it is asked again 2^5 turns later.
_MOST_SILENCES = 6
# An error's text is looked at so far; no message of ours is longer.
_MOST_TEXT = 20_000
_TYPE = re.compile(r"(?:<class ')?(\w+)(?:'>)?:")
# Flower's numbers of errors, as far as they say more than an error's text.
_BY_CODE = {
    1: "its ClientApp could not be loaded",
    7: "it could not use the app",
    8: "the process of its ClientApp ended",
}
# Flower's own words for a ClientApp without a function for what it is asked.
_UNREGISTERED = {
    f"No {kind} function registered": f"its ClientApp has no @app.{kind}()" for kind in ("query", "train", "evaluate")
}


# Is told which nodes are waited for, and how many were asked.
Notify: TypeAlias = Callable[[Sequence[int], int], None]


def exchange(
    grid: Grid, messages: Iterable[Message], timeout: float, notify: Notify = lambda *_: None
) -> tuple[list[Message], set[int]]:
    """Send messages and wait for the replies, ``timeout`` seconds at most; say once for whom, if it takes long.

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
    if waiting:
        notify(
            [message.metadata.dst_node_id for message in sent if message.metadata.message_id in waiting], len(sent)
        )
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

    @property
    def run(self) -> Any:
        """The other Grid's run."""
        return self._grid.run

    def get_node_ids(self) -> Iterable[int]:
        """Return the allowed nodes."""
        return list(self._allowed)

    def get_nodes(self) -> list[Any]:
        """Return the allowed nodes that are connected."""
        return [node for node in self._grid.get_nodes() if node.node_id in self._allowed]

    def create_message(self, *about: Any, **settings: Any) -> Message:
        """Make a message, as Flower's older strategies do."""
        return self._grid.create_message(*about, **settings)

    def push_messages(self, *_: object, **__: object) -> NoReturn:
        """Refuse: what a strategy sends by itself is recorded nowhere."""
        raise ValueError(
            "a strategy writes messages, and rescind.flower.run sends them: what it sends by itself would not be "
            "recorded"
        )

    set_run = pull_messages = send_and_receive = push_messages


class Backoff:
    """Which nodes are asked in a turn: a round, or a look at who is connected while too few are.

    After the k-th silence a node is asked again 2^(k-1) turns later; an answer takes one silence back, so that
    answering now and then does not help. That follows from its own answers and
    from nothing else: whether a node is asked must not depend on any other one. One that is not asked is absent, just
    as if it had not answered.
    """

    def __init__(self) -> None:
        self._turn = 0
        self._silences: dict[int, int] = {}
        self._due: dict[int, int] = {}

    def begin_turn(self) -> None:
        """Begin the next turn."""
        self._turn += 1

    def asked(self, nodes: Iterable[int]) -> list[int]:
        """Return those of the nodes that are asked in this turn."""
        return [node for node in nodes if self._due.get(node, 0) <= self._turn]

    def note_replies(self, asked: Sequence[int], answered: Iterable[int]) -> dict[int, int]:
        """Note who answered in good time of those asked; return how many turns later each other is asked again."""
        heard = set(answered)
        for node in heard & self._silences.keys():
            self._silences[node] = max(self._silences[node] - 1, 0)
        silent = [node for node in asked if node not in heard]
        for node in silent:
            self._silences[node] = min(self._silences.get(node, 0) + 1, _MOST_SILENCES)
            self._due[node] = self._turn + 2 ** (self._silences[node] - 1)
        return {node: self._due[node] - self._turn for node in silent}


def describe(error: Error) -> str:
    """Return what kind of error it is, in words of our own: the client's may hold what it has of its patients."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    text = (error.reason or "")[:_MOST_TEXT]
    for words, meaning in _UNREGISTERED.items():
        if words in text:
            return meaning
    written = _TYPE.match(text)
    kind = getattr(builtins, written[1], None) if written else None
    name = kind.__name__ if isinstance(kind, type) and issubclass(kind, Exception) else f"error code {error.code}"
    complaint = recognise(text)
    return f'{name}, "{complaint.shown}"' if complaint else name
