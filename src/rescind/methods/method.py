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
    """How a heuristic branch begins.

    Attributes:
        model: the model that it begins with.
        unbounded: whether the model or the rounds to come use what no bound covers, so that nothing is known of
            anybody from there on; it is false only for a kept model as it is, trained on as usual.
    """

    model: Mapping[str, Tensor]
    unbounded: bool


@dataclass(frozen=True, slots=True, eq=False)
class OwnRounds:
    """Rounds that are not as usual.

    Attributes:
        server: what makes them.
        least: how many of them come before any accuracy counts.
    """

    server: Server
    least: int


class Method(ABC):
    """A way to forget.

    Attributes:
        name: recorded with every plan.
    """

    name: ClassVar[str]

    @abstractmethod
    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        """Choose where to restart, for requests that are served together.

        Of a certifying method's candidate the node and sigma count: what they are worth is worked out anew.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together.

        Returns:
            where to restart, and with which noise.

        Raises:
            ValueError: the method has no plan for these requests.
        """

    def __str__(self) -> str:
        """Return the name and what the method was made with: a plan is that method's and no other's."""
        options: tuple[Field[Any], ...] = fields(self) if is_dataclass(self) else ()
        made_with = [f"{option.name}={getattr(self, option.name)!r}" for option in options]
        return f"{self.name} ({', '.join(made_with)})" if made_with else self.name


class Certifying(Method):
    """A method that restarts at a kept model with the noise that its bound asks for, and trains on or solves.

    Attributes:
        public_plan: whether it plans without looking at data.
    """

    public_plan: ClassVar[bool] = False


class Heuristic(Method):
    """A method that nothing is proven of.

    Attributes:
        why: why nothing is proven; the plan and every report say it.
    """

    why: ClassVar[str]

    @abstractmethod
    def node(self, summary: Summary) -> Node:
        """Choose the kept model to restart from.

        Args:
            summary: what planning sees of the history.

        Returns:
            the node of that model.
        """

    @abstractmethod
    def begin(self, history: History, tip: ModelId, parent: ModelId, leaving: Collection[int]) -> Beginning:
        """Return the beginning of the branch that restarts at a model.

        Args:
            history: the history.
            tip: the newest model, before the restart; what was recorded up to there may be used.
            parent: the model to restart from.
            leaving: the pseudonyms of those who leave.

        Returns:
            the model that the branch begins with, and whether a bound covers what comes.
        """

    def rounds(self, history: History, tip: ModelId, leaving: Collection[int]) -> OwnRounds | None:  # noqa: ARG002
        """Return the branch's own way of making rounds, if it has one.

        It is called again when a branch that was cut off goes on, and has to give the same.

        Args:
            history: the history.
            tip: the newest model, before the restart.
            leaving: the pseudonyms of those who leave.

        Returns:
            the rounds; None if they are as usual.
        """
        return None

    def plan(self, summary: Summary, *requests: Request) -> Candidate:  # noqa: ARG002, it is the same for all
        """Restart where the method says, and claim nothing.

        Args:
            summary: what planning sees of the history.
            *requests: the requests to serve together; the plan is the same for all.

        Returns:
            a restart without noise, called ``heuristic``.
        """
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
