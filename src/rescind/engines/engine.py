"""What methods and the forgetting flow ask of whoever trains; an engine knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rescind.core.arrays import Floats, Tensor
from rescind.core.facts import Facts
from rescind.core.ridge import RidgeSums
from rescind.core.sums import Sums, Wanted, add_up
from rescind.ledger.records import ModelId

# The one reason for a rejection that says something about the declared training: see ``training.train``.
TOO_LONG = "its update is longer than any that the training can make"

# Says of a client and its answer why no use is to be made of it; None if nothing is wrong.
Doubt = Callable[[str, Sums], str | None]


@dataclass(frozen=True, slots=True, eq=False)
class Replies:
    """What the participants of a round sent back, in one order.

    Attributes:
        names: the participants.
        weights: the n_i.
        steps: the K_i.
        tensors: tensor by tensor, every participant's own one after its local training (a part of theta_i^{n+1}).
        batch: the largest batch that anybody used.
        rejected: of whose replies no use is made, and why; ``TOO_LONG`` if that is what the training cannot have
            made.
        silent: what people call those who were drawn and did not answer, for whoever watches.
        settings: the digest of what they were told beside the model and the round's number, empty if that is nothing.
        labels: what people call participants, where that is not their name.
    """

    names: tuple[str, ...]
    weights: Floats
    steps: tuple[int, ...]
    tensors: Mapping[str, Sequence[Tensor]]
    batch: int
    rejected: Mapping[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    settings: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What clients answered to a solver's question, in one order.

    Attributes:
        names: who answered.
        rows: how many rows each has (n_c).
        gradients: the sum of the gradients of each one's rows.
        total: the sums over all rows; None if nobody answered.
        rejected: of whose answers no use is made, and why.
        silent: what people call those who did not answer, for whoever watches.
        settings: as in ``Replies``.
        labels: as in ``Replies``.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    gradients: tuple[Floats, ...]
    total: Sums | None
    rejected: Mapping[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    settings: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def collect(
        cls,
        answered: Iterable[tuple[str, Sums]],
        rejected: Mapping[str, str],
        silent: Sequence[str] = (),
        settings: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> Answers:
        """Add up the clients' sums as they come: no curvature but the total's is held.

        Args:
            answered: who answered, with the sums.
            rejected: of whose answers no use is made, and why; it is read once all have come.
            silent: what people call those who did not answer.
            settings: as in ``Replies``.
            labels: as in ``Replies``.

        Returns:
            the answers.
        """
        names, rows, gradients = list[str](), list[int](), list[Floats]()
        total: Sums | None = None
        for name, sums in answered:
            names.append(name)
            rows.append(sums.rows)
            gradients.append(sums.gradient)
            total = sums if total is None else add_up([total, sums])
        return cls(
            names=tuple(names),
            rows=tuple(rows),
            gradients=tuple(gradients),
            total=total,
            rejected=dict(rejected),
            silent=tuple(silent),
            settings=settings,
            labels=labels or {},
        )


@dataclass(frozen=True, slots=True, eq=False)
class RidgeAnswers:
    """What clients answered to the question for a ridge head, in one order; see ``Answers``."""

    names: tuple[str, ...]
    rows: tuple[int, ...]
    total: RidgeSums | None
    rejected: Mapping[str, str] = field(default_factory=dict)
    silent: tuple[str, ...] = ()
    settings: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


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


class StagedEngine(SummingEngine, Protocol):
    """An engine for a network in two stages."""

    @property
    def anchors(self) -> Mapping[str, str]:
        """What people call those who could train the body, by name."""

    def ridge_sums(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> RidgeAnswers:
        """Let clients sum over their rows for a ridge head on a model's body.

        Args:
            model: the model, with its body.
            model_id: the id of the model that the round will make.
            names: the clients.

        Returns:
            what they answered, as far as it can be an honest answer.
        """
