"""Whom a history knows: for whom it is worth waiting, and for whom it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from rescind.core.facts import PrivacyScope
from rescind.flower.server.wishes import Answer, NodeWish, answer_wish
from rescind.history.history import History


@dataclass(frozen=True, slots=True)
class Roster:
    """Everybody who took part in what a history has, and who of them stays."""

    history: History

    def stay(self, names: Sequence[str]) -> list[str]:
        """Return who takes part now or, once rows of theirs are forgotten, again: it is worth waiting for them."""
        return self.history.participants.remaining(names, back=True)

    def known(self) -> dict[str, str]:
        """Return what people call everybody who took part and stays, by name."""
        pseudonyms = self.history.participants.all()
        staying = self.stay(sorted(pseudonyms))
        called = self.history.participants.describe([[pseudonyms[name]] for name in staying])
        return {name: label for name, (label,) in zip(staying, called, strict=True)}

    def barred(self, labels: Mapping[str, str]) -> Set[str]:
        """Return who of some was forgotten and not readmitted, by name with what people call each."""
        return self.history.participants.barred(labels)

    def answer(self, label: str, wish: NodeWish) -> Answer:
        """Record what a client wishes, and return what it is told."""
        return answer_wish(self.history, label, wish)

    def left(self) -> int:
        """Return how many have left, or asked to."""
        requests = [filed.request for filed in self.history.timeline.requests if not filed.dropped]
        for_good = (request.group for request in requests if request.scope is not PrivacyScope.RECORDS)
        return len(frozenset[int]().union(*for_good))
