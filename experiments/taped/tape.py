"""A tape of a simulated federation: what each participant sent, in memory, and the methods that go back by it.

Nothing of it is recorded or certified. A method with rounds of its own, or with a model that is not a kept one, is
tried here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from rescind.core.arrays import Floats, Tensor
from rescind.core.edges import ModelId
from rescind.engines.server import Average, Server, compute_updates
from rescind.engines.stops import Stop
from rescind.engines.training import Watch, ignore
from rescind.simulation import Simulation

Model = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class TapedRound:
    """What was sent in a round: each participant's name, weight and update."""

    names: tuple[str, ...]
    weights: Floats
    updates: tuple[Model, ...]

    def without(self, gone: Collection[str]) -> TapedRound:
        """Return the round as far as its participants remain."""
        stay = [at for at, name in enumerate(self.names) if name not in gone]
        return TapedRound(
            tuple(self.names[at] for at in stay), self.weights[stay], tuple(self.updates[at] for at in stay)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tape:
    """A branch of training as far as it has come.

    Attributes:
        model: its newest model.
        interval: in every so many rounds, from the first on, what participants sent is kept; 1 keeps all.
        branch: its number.
        round: how many rounds it has.
        rounds: those that are kept, in order.
        here: who took part in it.
        joined: who took part in this branch or one before, in the order of their first rounds.
    """

    model: Model
    interval: int = 1
    branch: int = 0
    round: int = 0
    rounds: tuple[TapedRound, ...] = ()
    here: frozenset[str] = frozenset()
    joined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Beginning:
    """How a branch begins, and goes on.

    Attributes:
        model: the model that it begins with.
        server: what makes its rounds.
        least: how many of them come before any accuracy counts.
    """

    model: Model
    server: Server = field(default_factory=Average)
    least: int = 0


class TapeMethod(ABC):
    """A method that begins anew from theta_0^0, by what the remaining clients once sent.

    Attributes:
        name: what rows and figures call it.
        why: why nothing is proven of it.
    """

    name: ClassVar[str]
    why: ClassVar[str]

    @abstractmethod
    def begin(self, start: Model, rounds: Sequence[TapedRound], branch: int) -> Beginning:
        """Return how a branch begins.

        Args:
            start: theta_0^0.
            rounds: the kept rounds before the restart, without those who left.
            branch: the number of the branch.

        Returns:
            the model to begin with, and what makes the rounds.
        """


class DivergedError(ValueError):
    """A round's replies cannot be averaged, such as weights that are no numbers; ``round`` is the one before it."""

    def __init__(self, round_: int) -> None:
        super().__init__(f"the training diverged after round {round_}")
        self.round = round_


def train(
    engine: Simulation,
    tape: Tape,
    present: Sequence[str],
    until: Stop,
    beginning: Beginning | None = None,
    watch: Watch = ignore,
) -> Tape:
    """Train a branch to its end, as the product would.

    Args:
        engine: who trains.
        tape: the branch so far.
        present: those who could take part.
        until: the rule by which the branch ends.
        beginning: how the branch began, if not as usual.
        watch: is shown every model.

    Returns:
        the branch at its end.

    Raises:
        DivergedError: replies cannot be averaged.
    """
    how = beginning or Beginning(tape.model)

    def accuracy() -> float:
        names = [name for name in present if name in tape.here]
        return engine.accuracy(tape.model, names) if names else -1.0

    while tape.round < until.most and not (tape.round >= how.least and until.reached(tape.round, accuracy)):
        model_id = ModelId(tape.branch, tape.round + 1)
        try:
            made = how.server.round(engine, tape.model, model_id, present)
        except ValueError as error:
            raise DivergedError(tape.round) from error
        names, rounds = made.replies.names, tape.rounds
        joined = tuple(dict.fromkeys((*tape.joined, *names)))
        if tape.round % tape.interval == 0 and names:
            updates, weights = (
                compute_updates(tape.model, made.replies),
                dict(zip(names, made.replies.weights, strict=True)),
            )
            # Always in the same order: a sum's last digits depend on it.
            order = sorted(names, key=joined.index)
            taken = TapedRound(
                tuple(order), np.array([weights[name] for name in order]), tuple(updates[name] for name in order)
            )
            rounds = (*rounds, taken)
        tape = replace(
            tape,
            model=made.model,
            round=model_id.round,
            rounds=rounds,
            here=tape.here | set(names),
            joined=joined,
        )
        watch(model_id, made.model)
    return tape


def forget(
    engine: Simulation,
    tape: Tape,
    method: TapeMethod,
    gone: Collection[str],
    until: Stop,
    watch: Watch = ignore,
) -> Tape:
    """Begin a branch without those who left, and train it to its end.

    Args:
        engine: who trains.
        tape: the branch before.
        method: how.
        gone: everybody who has left by now.
        until: the rule by which the new branch ends.
        watch: is shown every model of it.

    Returns:
        the new branch at its end.

    Raises:
        DivergedError: replies cannot be averaged.
    """
    rounds = [left for left in (round_.without(gone) for round_ in tape.rounds) if left.names]
    beginning = method.begin(engine.start(), rounds, tape.branch + 1)
    begun = Tape(beginning.model, tape.interval, tape.branch + 1, joined=tape.joined)
    return train(engine, begun, [name for name in engine.clients if name not in gone], until, beginning, watch)
