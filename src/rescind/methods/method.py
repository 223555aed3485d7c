"""What a method is: a choice of where to restart, and with which noise.

Whether a method can certify is in its type. A ``Certifying`` one chooses among the candidates of ``rescind.core``, so
that what may be claimed is decided there, by recorded facts. A ``Heuristic`` one chooses a kept model by a rule of
its own, and is recorded as ``heuristic``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import Field, fields, is_dataclass
from typing import Any, ClassVar

from rescind.core.facts import Facts, Mode
from rescind.core.planning import Candidate
from rescind.core.solver import Solving
from rescind.core.summary import Node, Request, Summary
from rescind.errors import ONLY_SOLVED


class Method(ABC):
    """A way to forget.

    Attributes:
        name: recorded with every plan.
    """

    name: ClassVar[str]

    def obstacles(self, facts: Facts) -> tuple[str, ...]:
        """Return why no request of such a run can be served in this way; it is asked before the run trains.

        Args:
            facts: what is known of the training.

        Returns:
            the reasons; none if requests can be served.
        """
        return (ONLY_SOLVED,) if facts.only_solved else ()

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


def check_method(method: object, facts: Facts) -> None:
    """Refuse a method that can serve no request of such a run.

    Args:
        method: how to forget.
        facts: what is known of the training.

    Raises:
        ValueError: it is no method, no dataclass, or cannot serve.
    """
    if not isinstance(method, Method):
        raise ValueError(f"{method!r} is no method: give one such as Sifu()")
    if reasons := method.obstacles(facts):
        raise ValueError(f"nobody can be forgotten by {method.name} here: {'; '.join(reasons)}")
    if not is_dataclass(method):
        raise ValueError(f"{type(method).__name__} has to be a dataclass: its fields tell one plan from another")


class Certifying(Method):
    """A method that restarts at a kept model with the noise that its bound asks for, and trains on or solves.

    Attributes:
        public_plan: whether it plans without looking at data.
    """

    public_plan: ClassVar[bool] = False

    @property
    def solving(self) -> Solving | None:
        """How it solves the head; None where it trains on."""
        return None


class Heuristic(Method):
    """A method that trains on from a kept model, and that nothing is proven of.

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
