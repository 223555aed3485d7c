"""How a server makes the next model: who is asked to train, and what becomes of the replies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np

from rescind.core._checks import positive
from rescind.core.aggregation import Aggregator, RoundMeasurement
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId, RoundKind
from rescind.core.facts import DpFedAvg, PublicHead
from rescind.core.noise import GRID, public_sigma, sigma_limits
from rescind.core.rounds import Replies, RoundResult
from rescind.core.sensitivity import GRAM_LIMIT
from rescind.engines.engine import Engine
from rescind.engines.seeds import derive_number
from rescind.entropy import reproducible_noise_never_certified, secret_noise

# How much of a clipped update rounding beside a model may add to it; twice that is accounted for.
_ROUNDED = 5e-5


class Server(Protocol):
    """Makes a model out of the one before it; ``facts`` are DP-FedAvg's if that is what it does.

    It keeps nothing from one branch to the next: that could hold what a restart is to forget. A model that it has
    returned is not changed any more: it is being written while the next round is trained.
    """

    @property
    def facts(self) -> DpFedAvg | None:
        """What a strict claim rests on, if the server's noise is what hides."""

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        """Ask clients to train, and combine what they reply.

        Args:
            engine: who trains.
            model: the model before the round.
            model_id: the id of the model that the round will make.
            present: those who could take part.

        Returns:
            the round.
        """


@dataclass(frozen=True, slots=True)
class Average:
    """FedAvg: the engine draws the participants, the new model is their weighted mean.

    Paper: Eq. (5). Theory section 3.
    """

    facts: ClassVar[None] = None

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        """Train a round of FedAvg.

        Args:
            engine: who draws the participants, and trains.
            model: the model before the round.
            model_id: the id of the model that the round will make.
            present: those who could take part.

        Returns:
            the round.
        """
        replies = engine.train(model, model_id, engine.draw(model_id, present))
        return average(model, replies, engine.facts.training.server_learning_rate)


@dataclass(frozen=True, slots=True)
class NoisedAverage:
    """DP-FedAvg: updates clipped, summed, noised, divided by a constant.

    The noise on the mean is the next member of the public list above ``noise_multiplier`` C / ``denominator``. It is
    drawn in every round, also where nobody took part.

    Attributes:
        clip: the norm to which updates are clipped (C).
        denominator: what the sum is divided by.
        noise_multiplier: the least noise on the sum, in units of ``clip``.
        seed: makes the noise reproducible, for experiments: then nothing may be claimed.

    Raises:
        ValueError: a number is not finite or not above 0, ``clip`` or ``denominator`` is below 1e-30 or above 1e30,
            or the noise on the mean is smaller or larger than any of the public list.

    Theory section 8.
    """

    clip: float
    denominator: float
    noise_multiplier: float
    seed: bytes | None = None

    def __post_init__(self) -> None:
        for name in ("clip", "denominator", "noise_multiplier"):
            positive(name, getattr(self, name))
        # The facts have limits of their own.
        sigma, (smallest, largest) = self.facts.sigma, sigma_limits()
        if not smallest <= sigma <= largest:
            raise ValueError(f"the mean would get noise of {sigma:g}; it has to be from {smallest:g} to {largest:g}")

    @property
    def sigma(self) -> float:
        """The noise on the mean."""
        return public_sigma(self.noise_multiplier * self.clip / self.denominator)

    @property
    def facts(self) -> DpFedAvg:
        """What a strict claim rests on; z is the one that the noise really has."""
        return DpFedAvg(
            sigma=self.sigma,
            clip=self.clip,
            denominator=self.denominator,
            updates_are_clipped=True,
            weights_at_most_one=True,
            constant_denominator=True,
            noise_in_every_round=True,
        )

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        """Train a round of DP-FedAvg.

        Args:
            engine: who draws the participants, and trains.
            model: the model before the round.
            model_id: the id of the model that the round will make.
            present: those who could take part.

        Returns:
            the round, with the clipped updates as its replies.

        Raises:
            ValueError: the engine's facts are those of another server, or contradict ``seed``, or the model is so
                large that rounding its sum with the updates could show a client.
        """
        check_server(engine, self)
        if (self.seed is None) != engine.facts.secret_noise:
            raise ValueError("the rounds' noise is reproducible and the facts call it secret, or the other way round")
        self._check_size(model)
        replies = engine.train(model, model_id, engine.draw(model_id, present))
        updates = [_clip(update, self.clip) for update in compute_updates(model, replies).values()]
        # In float64 whatever the model's type is, so that a sum differs by no more than one update without a client.
        moved = {name: sum((update[name] for update in updates), np.zeros(())) / self.denominator for name in model}
        # Sums of numbers without a dimension are no arrays any more.
        mean = {name: np.asarray(tensor.astype(np.float64) + moved[name]) for name, tensor in model.items()}
        noised = draw_noise(mean, self.sigma, self.seed, "round", model_id.branch, model_id.round)
        clipped = replace(
            replies,
            weights=np.ones(len(updates)),
            tensors={
                name: [np.asarray(tensor + update[name], tensor.dtype) for update in updates]
                for name, tensor in model.items()
            },
        )
        new = {name: noised[name].astype(tensor.dtype) for name, tensor in model.items()}
        return replace(average(model, clipped, 1.0), model=new, kind=RoundKind.NOISED)

    def _check_size(self, model: Mapping[str, Tensor]) -> None:
        """Refuse a model beside whose rounding one client's clipped update would not be the most that it moves."""
        step, length = self.clip / self.denominator, norm(model)
        # In each of two worlds the sum is rounded by half a unit in its last place.
        largest = _ROUNDED * step / 2.0**-52
        if not length <= largest:
            raise ValueError(
                f"the model has a norm of {length:.3g}, and beside updates of {step:.3g} rounding is accounted for "
                f"up to {largest:.3g}: begin a new history with a smaller model or denominator, or a larger clip"
            )


def check_server(engine: Engine, server: Server) -> None:
    """Refuse a server that does not do what the engine's facts say, or says what nobody can check.

    Args:
        engine: the engine.
        server: the server.

    Raises:
        ValueError: it is refused.
    """
    if server.facts is not None and type(server) is not NoisedAverage:
        raise ValueError(
            f"{type(server).__name__} says that its rounds are DP-FedAvg's, and nothing can check that it clips and "
            "noises: only rescind.engines.server.NoisedAverage itself may say so"
        )
    stated = engine.facts.public if isinstance(engine.facts.public, DpFedAvg) else None
    if server.facts != stated:
        raise ValueError(
            "the engine's facts are those of another server: give it this server's facts as `public`, or the server "
            "that its facts are about"
        )


def check_public(head: PublicHead, start: Mapping[str, Tensor], steps: int, batch: int | None) -> None:
    """Refuse constants that promise less than what is executed, as a strict bound would rest on them.

    Args:
        head: the constants.
        start: theta_0^0.
        steps: the number of local steps.
        batch: the largest that anybody can use, None where that is checked reply by reply.

    Raises:
        ValueError: a constant is too small.
    """
    executed = {
        "initial_norm": norm(start),
        "parameters": sum(tensor.size for tensor in start.values()),
        "batch": batch,
        "steps": steps,
    }
    for name, value in executed.items():
        stated = getattr(head, name)
        if None not in (stated, value) and stated < value:
            raise ValueError(f"public {name} is {stated!r}, but here it is {value!r}: state at least that")


def draw_noise(
    model: Mapping[str, Tensor], sigma: float, seed: bytes | None, *words: str | int, grid: float = GRID
) -> Mapping[str, Tensor]:
    """Add noise that nobody can draw again, or, with a seed, reproducible noise that is never certified.

    Args:
        model: the tensors to add noise to.
        sigma: the standard deviation of the noise.
        seed: for experiments, what the noise is derived from; None draws it from the operating system's generator.
        *words: what else reproducible noise is derived from.
        grid: the grid on which the sum lies.

    Returns:
        the noised tensors.
    """
    if seed is None:
        return secret_noise(model, sigma, grid)
    return reproducible_noise_never_certified(model, sigma, grid, seed=derive_number(seed, "noise", *words))


def average(model: Mapping[str, Tensor], replies: Replies, server_learning_rate: float) -> RoundResult:
    """Return the weighted mean of the replies, tensor by tensor, and how far each is from it.

    Args:
        model: the model before the round.
        replies: what the participants sent back.
        server_learning_rate: what the mean update is scaled by (eta_s).

    Returns:
        the round; without replies the model stays as it is.
    """
    if not replies.names:
        return RoundResult(replies, dict(model), RoundMeasurement(np.empty(0), 0.0, None))
    matrix = len(replies.names) <= GRAM_LIMIT
    mean = Aggregator(replies.weights, gram=matrix, server_learning_rate=server_learning_rate)
    new = {name: mean.add(tensor, replies.tensors[name]) for name, tensor in model.items()}
    return RoundResult(replies, new, mean.result())


def compute_updates(model: Mapping[str, Tensor], replies: Replies) -> dict[str, dict[str, Tensor]]:
    """Return each participant's update d_i.

    Args:
        model: the model before the round.
        replies: what the participants sent back.

    Returns:
        the updates by name.
    """
    return {
        client: {name: np.asarray(replies.tensors[name][at] - tensor) for name, tensor in model.items()}
        for at, client in enumerate(replies.names)
    }


def norm(tensors: Mapping[str, Tensor]) -> float:
    """Return the Euclidean norm over all tensors."""
    return math.sqrt(sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in tensors.values()))


def _clip(update: Mapping[str, Tensor], clip: float) -> dict[str, Tensor]:
    """Scale an update, over all its tensors, to a norm of at most ``clip``."""
    scale = clip / max(norm(update), clip)
    return {name: scale * tensor.astype(np.float64) for name, tensor in update.items()}
