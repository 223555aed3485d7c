"""Whoever does not answer in good time is asked less often: one that hangs for ever costs a few waits, not all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# No more silences are counted: however often a node was silent, it is asked again 2^5 turns later.
_MOST_SILENCES = 6


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
