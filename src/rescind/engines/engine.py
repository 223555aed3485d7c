"""What methods and the forgetting flow ask of whoever trains; an engine knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Facts
from rescind.core.ridge import RidgeSums
from rescind.core.rounds import Answers, Replies
from rescind.core.sums import Sums, Wanted

__all__ = [
    "TOO_LONG",
    "Answers",
    "Doubt",
    "Engine",
    "Keep",
    "Replies",
    "RidgeEngine",
    "RowsEngine",
    "StagedEngine",
    "SummingEngine",
]

# The one reason for a rejection that says something about the declared training: see ``training.train``.
TOO_LONG = "its update is longer than any that the training can make"

# Says of a client and its answer why no use is to be made of it; None if nothing is wrong.
Doubt = Callable[[str, Sums], str | None]
# Keeps what a client answered.
Keep = Callable[[str, RidgeSums], None]


class Engine(Protocol):
    """Trains rounds from given parameters with given clients.

    All its randomness is that of (secret, client, model id): what a client does in a round is independent of who else
    takes part, and asking again gives the same bytes.
    """

    @property
    def facts(self) -> Facts:
        """What claims rest on: what clients execute, and how they are drawn."""

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of everybody who could take part."""

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0, which is public.

        Returns:
            the tensors by name, always the same ones.
        """

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:
        """Choose who takes part in the round that makes a model.

        Args:
            model_id: the id of the model that the round will make.
            present: those who could take part.

        Returns:
            who of those present takes part; maybe nobody.
        """

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        """Let clients train from a model.

        Args:
            model: the model that they start from.
            model_id: the id of the model that the round will make.
            names: the clients.

        Returns:
            what they sent back.
        """

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float | None:
        """Return the mean of clients' accuracies, each on its own training data.

        Args:
            model: the model to measure.
            names: the clients.

        Returns:
            the mean; None if nobody tells.
        """

    def test_accuracy(self, model: Mapping[str, Tensor]) -> float | None:
        """Return the accuracy on held-out data that belongs to no client.

        Args:
            model: the model to measure.

        Returns:
            the accuracy; None if there is no such data.
        """


class SummingEngine(Engine, Protocol):
    """An engine whose clients answer a solver's questions too, so that a head can be solved."""

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,
    ) -> Answers:
        """Let clients sum over their rows at a model.

        Args:
            model: the model to look at.
            model_id: the id of the model that the round will make.
            names: the clients.
            wanted: how much of the curvature is asked for.
            doubt: is asked once about each answer that is otherwise fit; whose answer it doubts is rejected. Clients
                that are code of the engine's own need not be doubted.

        Returns:
            what they answered, as far as it can be an honest answer.
        """


class RidgeEngine(Engine, Protocol):
    """An engine whose clients answer the one question of a ridge head."""

    def ridge_sums(
        self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str], keep: Keep | None = None
    ) -> Answers:
        """Let clients sum over their rows for a ridge head.

        Args:
            model: the model, with its body if that is part of it.
            model_id: the id of the model that the round will make.
            names: the clients.
            keep: is shown each answer that can be an honest one, as it comes; not all need be in memory together.

        Returns:
            what they answered, as far as it can be an honest answer.
        """


class RowsEngine(Engine, Protocol):
    """An engine that can ask clients whether they have named the rows that are to be forgotten."""

    @property
    def names_rows(self) -> bool:
        """Whether its clients answer that: those that train by code of their own do not, and nothing is served."""

    def ask_for_rows(self, number: int, names: Sequence[str]) -> None:
        """Ask clients whether they have named their rows, and record of those who have that they did.

        Args:
            number: the request's number.
            names: the clients.
        """


def look_around(engine: Engine) -> tuple[str, ...]:
    """Return who is there now, without waiting for anybody where the engine can tell."""
    here: tuple[str, ...] = getattr(engine, "here" if hasattr(type(engine), "here") else "clients")
    return here


class StagedEngine(SummingEngine, RidgeEngine, Protocol):
    """An engine for a network in two stages."""

    @property
    def anchors(self) -> Mapping[str, str]:
        """What people call those who could train the body, by name."""


def show_each(answered: Iterable[tuple[str, RidgeSums]], keep: Keep | None) -> Iterator[tuple[str, RidgeSums]]:
    """Yield answers as they come, each once it was shown to ``keep``."""
    for name, sums in answered:
        if keep is not None:
            keep(name, sums)
        yield name, sums
