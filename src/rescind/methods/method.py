"""What a method is: a choice of where to restart and, if it cannot certify, a way of its own to go on from there.

Whether a method can certify is in its type. A ``Certifying`` one chooses among the candidates of ``rescind.core``, so
that what may be claimed is decided there, by recorded facts. A ``Heuristic`` one does something else, and whatever it
does is recorded as ``heuristic``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, ClassVar

from rescind.core.arrays import Tensor
from rescind.core.facts import Mode
from rescind.core.planning import Candidate
from rescind.core.summary import Node, Request, Summary
from rescind.engines.server import Server
from rescind.history.history import History
from rescind.ledger.records import ModelId


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """How a heuristic branch begins: with ``model``.

    ``unbounded`` says that the model or the rounds to come use what no bound covers, so that nothing is known of
    anybody from there on; it is false only for a kept model as it is, trained on as usual.
    """

    model: Mapping[str, Tensor]
    unbounded: bool


@dataclass(frozen=True, slots=True, eq=False)
class OwnRounds:
    """Rounds that are not as usual: ``server`` makes them, and ``least`` of them come before any accuracy counts."""

    server: Server
    least: int


class Method(ABC):
    """A way to forget. ``name`` is recorded with every plan."""

    name: ClassVar[str]

    @abstractmethod
    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Choose where to restart, for requests that are served together.

        Of a certifying method's candidate the node and sigma count: what they are worth is worked out anew.
        """

    def __str__(self) -> str:
        """Return the name and what the method was made with: a plan is that method's and no other's."""
        options: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        made_with = [f"{each.name}={getattr(self, each.name)!r}" for each in options]
        return f"{self.name} ({', '.join(made_with)})" if made_with else self.name


class Certifying(Method):
    """A method that restarts at a kept model with the noise that its bound asks for, and trains on as usual.

    ``public_plan`` says that it plans without looking at data.
    """

    public_plan: ClassVar[bool] = False


class Heuristic(Method):
    """A method that nothing is proven of; ``why`` says so in the plan and in every report."""

    why: ClassVar[str]

    @abstractmethod
    def node(self, summary: Summary) -> Node:
        """Choose the kept model to restart from."""

    @abstractmethod
    def begin(self, history: History, tip: ModelId, parent: ModelId, leaving: Collection[int]) -> Beginning:
        """Return the beginning of the branch that restarts at ``parent``, from what was recorded up to ``tip``."""

    def rounds(self, history: History, tip: ModelId, leaving: Collection[int]) -> OwnRounds | None:  # noqa: ARG002
        """Return the branch's own way of making rounds, if it has one.

        It is called again when a branch that was cut off goes on, and has to give the same.
        """
        return None

    def plan(self, summary: Summary, *requests: Request) -> Candidate:  # noqa: ARG002, it is the same for all
        """Restart where the method says, and claim nothing."""
        node = self.node(summary)
        return Candidate(
            node=node,
            sigma=0.0,
            mode=Mode.HEURISTIC,
            rechecked=(),
            releases_mu=0.0,
            predicted_rounds=summary.curve.rounds_from(summary.curve.excess_at(node.index)),
            obstacles=(self.why,),
        )
