"""Who asked to be forgotten, and what shows that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rescind.texts import is_digest


class Asker(Enum):
    """Who handed in a request; NODE is in older journals only, from before nodes had to hand over signed requests."""

    OPERATOR = "the operator"
    NODE = "the client's own node"
    KEY = "the client's own key"


@dataclass(frozen=True, slots=True)
class Sender:
    """Who handed in a request, and a digest by which it is known again.

    Of a signed request ``proof`` is the SHA-256 of what was signed, which has a random number in it, so that it does
    not tell whose it is.
    """

    asker: Asker = Asker.OPERATOR
    proof: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.asker, Asker) or not isinstance(self.proof, str):
            raise ValueError("a sender is an Asker and a text")
        if not (is_digest(self.proof) if self.asker is not Asker.OPERATOR else self.proof == ""):
            raise ValueError(f"{self.proof!r:.80} is no proof that {self.asker.value} asked")


OPERATOR = Sender()
