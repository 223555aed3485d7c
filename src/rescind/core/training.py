"""What the clients and the server execute in a round, and what of it the theorem does not cover."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

from rescind.core._checks import at_most_one, not_negative, positive
from rescind.core.edges import NO_BOUND, RELATIVE_ROUNDING, SMALLEST_FACTOR
from rescind.core.regularity import (
    Curvature,
    DeclaredLoss,
    LogisticL2,
    Loss,
    NetworkLoss,
    SoftmaxL2,
    SquaredL2,
    local_factor,
    step_factor,
)
from rescind.core.ridge import check_ridge_loss

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}
# Above this eta (beta + mu_prox) the analysis of a step does not hold; such steps diverge anyway.
_SHARPEST = 8.0


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something in the training that the theorem does not cover.

    Attributes:
        what: what it is.
        why: why the theorem does not cover it.
        instead: what to do instead.

    Theory section 2.
    """

    what: str
    why: str
    instead: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.instead}."


# The optimizer of clients that train as they like, and of a head that nobody trains.
OWN_CODE = "the clients' own"
SOLVER = "a solver"


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """What every client executes in a round, and what the server does with the results.

    The fields from ``optimizer`` on describe what the theorem may not cover; ``obstacles`` says in words what it does
    not.

    Attributes:
        steps: the number of local steps (K). A client may make another number; the round's record then says so.
        learning_rate: the clients' learning rate (eta).
        loss: what the clients minimise.
        proximal: FedProx's term (mu_prox).
        server_learning_rate: what the server scales the mean update by (eta_s), above 0 and at most 1.
        optimizer: the clients' optimizer. What it does with ``steps`` and ``learning_rate`` is known of SGD only.
        momentum: the clients' momentum.
        server_optimizer: how the server makes the new model.
        server_momentum: the server's momentum.
        weight_decay: a weight decay beside the loss's own L2 term.
        clips_gradients: whether clients clip gradients.
        clips_updates: whether whole client updates are clipped.
        constant_learning_rate: whether the learning rate stays the same.
        untrained_buffers: tensors that change without a gradient.
        precision: the type of the model's numbers.

    Raises:
        ValueError: a number is out of its range, or the loss is one that is solved for and not trained.

    Theory section 2.
    """

    steps: int
    learning_rate: float
    loss: Loss
    proximal: float = 0.0
    server_learning_rate: float = 1.0
    optimizer: str = "sgd"
    momentum: float = 0.0
    server_optimizer: str = "average"
    server_momentum: float = 0.0
    weight_decay: float = 0.0
    clips_gradients: bool = False
    clips_updates: bool = False
    constant_learning_rate: bool = True
    untrained_buffers: tuple[str, ...] = ()
    precision: str = "float64"

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"steps is {self.steps!r}; a client makes one local step or more")
        if isinstance(self.loss, SquaredL2) is not (self.optimizer == SOLVER):
            raise ValueError(
                "SquaredL2 is solved for in one round and not trained, as nothing bounds its gradients: give "
                "LocalTraining.solved(SquaredL2(...)), and another loss is trained"
            )
        if isinstance(self.loss, SquaredL2):
            self._check_solved(self.loss)
        positive("learning_rate", self.learning_rate)
        at_most_one("server_learning_rate", self.server_learning_rate)
        for name in ("proximal", "momentum", "server_momentum", "weight_decay"):
            not_negative(name, getattr(self, name))

    @classmethod
    def own_code(cls, precision: str) -> Self:
        """Return the training of a network by code of the clients' own, of which nothing is stated.

        Args:
            precision: the type of the model's numbers.

        Returns:
            the training; its steps and its learning rate stand for nothing.
        """
        return cls(1, 1.0, NetworkLoss(), optimizer=OWN_CODE, precision=precision)

    @classmethod
    def solved(cls, loss: SquaredL2, precision: str = "float64") -> Self:
        """Return what stands for the training of a ridge head, which is solved for in one round and never trained.

        Args:
            loss: what it is solved for, with the limits of rows and clients.
            precision: the type of the model's numbers.

        Returns:
            the training; its steps and its learning rate stand for nothing.

        Raises:
            ValueError: no scale fits the loss, or its L2 term is so small that a client could leave the head without
                a solution.
        """
        return cls(1, 1.0, loss, optimizer=SOLVER, precision=precision)

    def _check_solved(self, loss: SquaredL2) -> None:
        """Refuse what would say of a ridge head that it is trained somehow, or can't be solved."""
        check_ridge_loss(loss)
        stand_ins = {"steps": 1, "learning_rate": 1.0, "optimizer": SOLVER, "loss": loss, "precision": self.precision}
        others = (field for field in fields(self) if field.name not in stand_ins)
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        if stated != stand_ins | {field.name: field.default for field in others}:
            raise ValueError("a ridge head is not trained: give LocalTraining.solved(SquaredL2(...)) as it is")
        if self.precision not in UNIT_ROUNDOFF:
            raise ValueError(f"the precision is {self.precision!r}: use float32 or float64")

    @property
    def has_steps(self) -> bool:
        """True if its steps and its learning rate are those of clients, and do not stand for nothing."""
        return self.optimizer not in (OWN_CODE, SOLVER)

    @property
    def is_solved(self) -> bool:
        """True if the model is a ridge head, which nobody trains."""
        return self.optimizer == SOLVER

    def factor(self, steps: int | None = None) -> float:
        """Return rho_i, the factor of a client's local steps; eta_s enters with the round.

        Args:
            steps: the client's number of local steps (K_i), where it differs.

        Returns:
            the factor by which its steps can drive two models apart; 1 for a loss without a curvature.

        Raises:
            ValueError: ``steps`` is negative.
        """
        curvature = self.loss.curvature
        if curvature is None:
            return 1.0
        return local_factor(curvature, self.learning_rate, self.steps if steps is None else steps, self.proximal)

    def rounding(
        self,
        largest_norm: float,
        parameters: int,
        batch: int,
        gradient_bound: float | None = None,
        steps: int | None = None,
    ) -> float:
        """Return r, what floating point may add to the distance of two worlds in a round.

        Two casts in each world, of a client's result and of the mean, the mean's float64, and K float64 steps:
        (4 u + 2^-31) X + 2 kappa (X + reach + eta L), kappa = K max(1, B)^(K-1) (2 + 20 q) (d + batch + 64) 2^-53,
        q = eta (beta + mu_prox). Proven for what ``train_head`` and the simulator execute, given an accurate exp.

        Args:
            largest_norm: X, at least the norm of the model before the round and of every participant's result.
            parameters: d.
            batch: the most examples that anybody used in a step.
            gradient_bound: L, where the loss does not say.
            steps: the round's largest K_i, where they differ.

        Returns:
            r; ``NO_BOUND`` where the steps are too large or too many for it to be small.

        Raises:
            ValueError: there is no gradient bound, no rounding term is known for the precision, or a number is out of
                its range.

        Theory section 5.
        """
        bound = self.loss.gradient_bound if gradient_bound is None else gradient_bound
        if bound is None:
            raise ValueError("this loss has no gradient bound L: give one as gradient_bound")
        if self.precision not in UNIT_ROUNDOFF:
            raise ValueError(f"no rounding term is known for {self.precision!r}: use float32 or float64")
        not_negative("largest_norm", largest_norm)
        not_negative("batch", batch)
        positive("parameters", parameters)
        count, casts = steps or self.steps, self._casts
        local = self._entry_error(count) * (parameters + batch + 64)
        slope = 1 + self._reach(1.0, 0.0, count)
        if local * slope + casts > RELATIVE_ROUNDING:
            return NO_BOUND
        away = largest_norm + self._reach(largest_norm, bound, count)
        total = casts * largest_norm + 2 * local * (away + self.learning_rate * bound)
        # What is below the range of normal numbers is rounded to their spacing, not relative to itself.
        # The last factor pays for the casts of what the steps' own rounding added, and for this evaluation.
        return (total + math.sqrt(parameters) * 2.0**-120) * (1 + 2.0**-20)

    def most_examples(self, parameters: int) -> float:
        """Return the most examples that a step may use such that ``rounding`` has a bound.

        Args:
            parameters: d.

        Returns:
            the number of examples; infinity where no number of them has a bound, and whoever has many takes nothing
                from the others.

        Theory section 5.
        """
        error, slope = self._entry_error(self.steps), 1 + self._reach(1.0, 0.0, self.steps)
        if self.obstacles or math.isinf(error * slope):
            return math.inf
        # Rounded down, so that ``rounding`` agrees.
        most = (RELATIVE_ROUNDING - self._casts) / (error * slope) * (1 - 1e-9) - parameters - 64
        return math.floor(most) if most >= 1 else math.inf

    @property
    def _casts(self) -> float:
        """The part of a norm that the casts of both worlds can move."""
        return 4 * UNIT_ROUNDOFF[self.precision] + 2.0**-31

    def _entry_error(self, steps: int) -> float:
        """Return K max(1, B)^(K-1) (2 + 20 q) 2^-53, kappa for one entry of a sum; infinity for steps too large."""
        # Of a loss without a curvature nothing is proven anyway; B = 1, as elsewhere.
        curvature = self.loss.curvature or Curvature(0.0, 2 / self.learning_rate)
        sharpness = self.learning_rate * (curvature.high + self.proximal)
        amplified = (steps - 1) * math.log(max(1.0, step_factor(curvature, self.learning_rate, self.proximal)))
        if sharpness > _SHARPEST or amplified > 100:
            return math.inf
        return steps * (2 + 20 * sharpness) * 2.0**-53 * math.exp(amplified)

    def longest_update(self, parameter_norm: float, steps: int | None = None) -> float | None:
        """Return a bound of ||theta_i - theta^n|| of whoever executes this training.

        The result's cast is allowed for. Of a declared loss it is eta K (L + mu ||theta^n||), mu being its
        ``curvature.low`` if that is positive, and 1 % more for the rounding of the clients' own code.

        Args:
            parameter_norm: ||theta^n||.
            steps: K_i, where it differs.

        Returns:
            the bound; None if nothing bounds the update.

        Theory section 2.
        """
        loss, count = self.loss, self.steps if steps is None else steps
        if self.obstacles or loss.gradient_bound is None or loss.curvature is None:
            return None
        if isinstance(loss, SoftmaxL2 | LogisticL2):
            longest = self._reach(parameter_norm, loss.gradient_bound, count) * (1 + 1e-6)
        else:
            # L of a declared loss may count the whole gradient, which no L2 term makes shorter.
            longest = self._reach(parameter_norm, loss.gradient_bound, count, least_scale=1.0) * 1.01
        return longest + 2 * UNIT_ROUNDOFF[self.precision] * (parameter_norm + longest)

    def head_reach(self, parameter_norm: float) -> tuple[float, float] | None:
        """Return (c, R) with ||theta_i - c theta^n|| <= R for whoever executes this training.

        The L2 term pulls every result towards 0 by the same part, whatever the data, and the losses' gradients lead
        away from there by no more than R. The result's cast is allowed for.

        Args:
            parameter_norm: ||theta^n||.

        Returns:
            c and R; None but for the two heads.

        Theory section 2.
        """
        loss = self.loss
        if self.obstacles or not isinstance(loss, SoftmaxL2 | LogisticL2):
            return None
        strength = loss.l2 + self.proximal
        scale = 1 - self.learning_rate * strength
        if abs(scale) > 1 or not strength:
            return None
        pulled = loss.l2 / strength * (1 - scale**self.steps)
        radius = self.learning_rate * loss.gradient_bound * _powers(abs(scale), self.steps) * (1 + 1e-6)
        rounding = 2 * UNIT_ROUNDOFF[self.precision] + 2.0**-40
        return 1 - pulled, radius + rounding * (parameter_norm * (abs(1 - pulled) + 1) + radius)

    def _reach(self, norm: float, gradient_bound: float, steps: int, least_scale: float = 0.0) -> float:
        """Bound how far ``steps`` local steps lead away from a model of this norm.

        A step adds at most eta (L + lambda ||theta^n||) to an update and scales what it has by 1 - eta (lambda + mu).
        """
        curvature = self.loss.curvature
        l2 = 0.0 if curvature is None else max(curvature.low, 0.0)
        scale, added = (
            abs(1 - self.learning_rate * (l2 + self.proximal)),
            self.learning_rate * (gradient_bound + l2 * norm),
        )
        return added * _powers(max(scale, least_scale), steps)

    @property
    def declared(self) -> tuple[str, ...]:
        """What the bound takes on the operator's word, where the loss is not one whose curvature is proven here."""
        if not isinstance(self.loss, DeclaredLoss):
            return ()
        return (f"the loss's curvature lies in [{self.loss.curvature.low:g}, {self.loss.curvature.high:g}]",)

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """What in this training the theorem does not cover; empty means that it applies."""
        return tuple(_obstacles(self))


def _powers(scale: float, steps: int) -> float:
    """Return 1 + scale + ... + scale^(K-1), rounded up; infinity beyond float64's range."""
    logarithm = math.log(max(scale, SMALLEST_FACTOR))
    if steps * logarithm > 700:
        return math.inf
    return (math.expm1(steps * logarithm) / math.expm1(logarithm) if logarithm else steps) * (1 + 1e-9)


def _obstacles(training: LocalTraining) -> Iterator[Obstacle]:
    if training.loss.curvature is None:
        yield Obstacle(
            "the loss has no proven curvature",
            "B = 1 is an assumption, and measurements have refuted it for neural networks",
            "Train an L2 softmax head on a public, frozen feature extractor",
        )
    if training.optimizer.lower() != "sgd":
        yield Obstacle(
            f"the local optimizer is {training.optimizer}",
            "its steps depend on earlier gradients or their size, so the curvature does not bound them",
            "Use plain SGD; its weight decay is the L2 term",
        )
    if training.momentum:
        yield Obstacle(
            f"local momentum is {training.momentum:g}",
            "a step repeats part of the earlier ones, so B^K no longer bounds K steps",
            "Set it to 0",
        )
    if training.server_optimizer.lower() != "average":
        yield Obstacle(
            f"the server's optimizer is {training.server_optimizer}",
            "the new model is no longer the weighted mean whose distance is bounded",
            "Use FedAvg, with a server learning rate if wanted",
        )
    if training.server_momentum:
        yield Obstacle(
            f"server momentum is {training.server_momentum:g}",
            "a round repeats part of the earlier ones, the leaving client's among them",
            "Set it to 0",
        )
    if training.weight_decay:
        yield Obstacle(
            f"the optimizer adds a weight decay of {training.weight_decay:g}",
            "it changes the curvature, and the loss that was declared does not have it",
            "Make it the loss's own L2 term",
        )
    if not training.constant_learning_rate:
        yield Obstacle(
            "the learning rate changes",
            "B was computed for one learning rate, and a smaller one can have a larger B",
            "Keep it constant",
        )
    if training.clips_gradients:
        yield Obstacle(
            "gradients are clipped",
            "clipping turns the step: two models can drift apart, by 1.26 in one step on a convex loss",
            "Clip the feature rows instead, which bounds the gradients too",
        )
    if training.clips_updates:
        yield Obstacle(
            "whole client updates are clipped",
            "clipping an update can drive two models apart, by up to 1.41 on convex losses",
            "Clip the feature rows on each client instead",
        )
    if training.untrained_buffers:
        yield Obstacle(
            f"tensors change without a gradient ({', '.join(training.untrained_buffers)})",
            "running statistics such as BatchNorm's, and integer counters, follow no gradient step",
            "Freeze them, or use a normalisation without buffers",
        )
    if training.precision not in UNIT_ROUNDOFF:
        yield Obstacle(
            f"the precision is {training.precision}",
            "the rounding term is known for float32 and float64 only",
            "Train the certified head in float64, without TF32 or bf16",
        )
