"""The modes of a claim, and the recorded facts that decide it: ``planning.assess`` does, and then what came since."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum

from rescind.core._checks import positive, within
from rescind.core.arrays import Tensor
from rescind.core.noise import GRID
from rescind.core.regularity import LogisticL2, Loss, SoftmaxL2, SquaredL2
from rescind.core.ridge import check_ridge_loss
from rescind.core.strict import HeadBound
from rescind.core.sums import head_names
from rescind.core.training import LocalTraining

REPRODUCIBLE = "the noise is reproducible: draw it from the operating system's generator"
OTHER_SETTINGS = (
    "clients were told other settings in some rounds than in others, and nothing shows that these did not follow "
    "somebody's data: give all of them beforehand, as train_config"
)
NOT_AVERAGED = (
    "the server recorded models that are not the weighted mean of their rounds' replies, as the training says they "
    "are: what else went into them is bounded by nothing"
)

_DIGEST = re.compile("[0-9a-f]{64}")
# Of smaller updates the squares behind a norm would vanish, and nothing would be clipped; larger ones have no use.
_SIZES = (1e-30, 1e30)


@dataclass(frozen=True, slots=True)
class Stages:
    """Some clients, the anchors, train the body; then it stays as it is, and the head is solved with all clients.

    Whoever is no anchor is forgotten exactly by solving the head once more. An anchor costs the body, too.

    Attributes:
        body_rounds: how many rounds the anchors train.
        head: the names of the head's two tensors, which end in ``weight`` and ``bias``; all others are the body's.
        loss: what the head is solved for, with an L2 term above 0; ``SquaredL2`` (ridge) takes one round.

    Raises:
        ValueError: ``body_rounds`` is below 1, ``head`` does not name a head, or the loss cannot be solved for.

    Theory section 17.
    """

    body_rounds: int
    head: tuple[str, str]
    loss: SoftmaxL2 | LogisticL2 | SquaredL2

    def __post_init__(self) -> None:
        if isinstance(self.body_rounds, bool) or not isinstance(self.body_rounds, int):
            raise ValueError(f"body_rounds is {self.body_rounds!r}; it has to be a whole number")
        if not 1 <= self.body_rounds < 2**31:
            raise ValueError(f"body_rounds is {self.body_rounds!r}; the anchors train one round or more")
        if not isinstance(self.head, tuple | list) or not all(isinstance(name, str) for name in self.head):
            raise ValueError(f"head is {self.head!r}; give the names of its two tensors")
        # In one order, so that the same stages are equal.
        object.__setattr__(self, "head", head_names(self.head))
        if not isinstance(self.loss, SoftmaxL2 | LogisticL2 | SquaredL2) or not self.loss.l2 > 0:
            raise ValueError("a head is solved for SoftmaxL2, LogisticL2 or SquaredL2 with an L2 term above 0")
        if isinstance(self.loss, SquaredL2) and self.loss.target_norm != 1:
            raise ValueError("the targets are classes, of norm 1: leave target_norm as it is")
        if isinstance(self.loss, SquaredL2):
            # Else it would be noticed only once the anchors have trained the body.
            check_ridge_loss(self.loss)

    def body_rounds_left(self, trained: int) -> int:
        """Return how many rounds a body still needs.

        Args:
            trained: how many it has.

        Returns:
            the rounds; 0 once it is whole.

        Theory section 17.
        """
        return max(self.body_rounds - trained, 0)


@dataclass(frozen=True, slots=True)
class PublishedBody:
    """A published network that makes features of a client's rows, the same at every client and never trained.

    Attributes:
        name: what people call it.
        digest: the SHA-256 of its weights, 64 hexadecimal digits: ``rescind.flower.digest_body(module)``.

    Raises:
        ValueError: it has no name, or ``digest`` is none.

    Theory section 16.
    """

    name: str
    digest: str

    def __post_init__(self) -> None:
        shown = isinstance(self.name, str) and self.name.isprintable() and self.name.strip()
        if not shown or len(self.name) > 256:
            raise ValueError(f"name is {self.name!r}; call the body something, in 256 characters at most")
        if not isinstance(self.digest, str) or not _DIGEST.fullmatch(self.digest):
            raise ValueError(f"digest is {self.digest!r}; it has to be 64 hexadecimal digits, in small letters")


class Mode(Enum):
    """What may be claimed of a forgetting, the strongest first.

    Theory section 7.
    """

    EXACT = "exact"
    STRICT = "strict"
    INSTANCE = "instance"
    HEURISTIC = "heuristic"


class PrivacyScope(Enum):
    """Whose removal is hidden: each client's alone, each request's group, or all forgotten so far together.

    ``RECORDS``: the clients stay, and some of their rows go. It takes a restart from before their first rounds.

    Paper: Eq. (16) is the first. Theory sections 11 and 16.
    """

    INDIVIDUAL = "individual"
    GROUP = "group"
    SEQUENCE = "sequence"
    RECORDS = "records"


class Sampling(Enum):
    """How participants are chosen, and with it which counterfactual a claim is about.

    Theory section 6.
    """

    EVERYBODY = "everybody takes part: the world without the group trains with the others"
    POISSON = "each client by its own coin: the world without the group tosses the others' coins alike"
    FIXED_SIZE = "a fixed number of clients: in the world without the group its places stay empty"
    FRACTION = (
        "a share of those connected: how many were drawn followed who was connected, the group among them; in the "
        "world without the group as many are drawn and its places stay empty"
    )


class Source(Enum):
    """On whose word something is known.

    Theory section 7.
    """

    CHECKED = "checked by the server"
    EXECUTED = "executed by our helper"
    REPORTED = "reported by the client"
    DECLARED = "declared by the operator"


@dataclass(frozen=True, slots=True)
class Sources:
    """On whose word the facts are known.

    Attributes:
        training: what clients execute.
        identity: who they are.
        distances: how far each is from the mean.
        reachable: who could take part in a round, and that this did not depend on the forgotten clients.
        server: that the server's own code carries nothing from one line of training to another.

    Theory section 7.
    """

    training: Source = Source.DECLARED
    identity: Source = Source.DECLARED
    distances: Source = Source.CHECKED
    reachable: Source = Source.DECLARED
    server: Source = Source.DECLARED


@dataclass(frozen=True, slots=True)
class PublicHead:
    """What a strict bound for an L2 head needs beside the training: all of it public.

    Attributes:
        initial_norm: ||theta_0^0||.
        parameters: d.
        batch: the most examples of a local step.
        steps: the largest K_i, where they differ.
        grid: the noise's grid.

    Theory section 8.
    """

    initial_norm: float
    parameters: int
    batch: int
    steps: int | None = None
    grid: float = GRID


@dataclass(frozen=True, slots=True)
class DpFedAvg:
    """Training in which every round is noised; the last four attributes are its conditions.

    Attributes:
        sigma: the noise on the mean.
        clip: the longest update (C).
        denominator: what the sum of the updates is divided by.
        updates_are_clipped: whether every update is clipped over all its tensors.
        weights_at_most_one: whether every update weighs at most 1.
        constant_denominator: whether the denominator is a constant, and does not depend on who took part.
        noise_in_every_round: whether there is fresh noise in every round, empty and repeated ones too.

    Raises:
        ValueError: ``sigma``, ``clip`` or ``denominator`` is not a finite number above 0, or one of the last two is
            below 1e-30 or above 1e30.

    Theory section 8.
    """

    sigma: float
    clip: float
    denominator: float
    updates_are_clipped: bool
    weights_at_most_one: bool
    constant_denominator: bool
    noise_in_every_round: bool

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        for name in ("clip", "denominator"):
            within(name, getattr(self, name), _SIZES, "floating point could not tell how long an update is")

    @property
    def noise_multiplier(self) -> float:
        """The noise on the sum in units of the longest update (z)."""
        # A little less than the noise has pays for the rounding of the clipped updates and of their sum.
        return self.sigma * self.denominator / self.clip * (1 - 1e-4)

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Which condition is not met."""
        conditions = (
            (self.updates_are_clipped, "DP-FedAvg has to clip every update over all its tensors"),
            (self.weights_at_most_one, "DP-FedAvg has to weigh every update at most 1"),
            (self.constant_denominator, "DP-FedAvg has to divide by a constant, not by who took part"),
            (
                self.noise_in_every_round,
                "DP-FedAvg has to add fresh noise in every round, empty and repeated ones too",
            ),
        )
        return tuple(reason for met, reason in conditions if not met)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was recorded of the training, as far as a claim depends on it.

    Attributes:
        training: what clients and server execute in a round.
        sampling: how participants are chosen.
        independent_randomness: every client's batches, dropout and augmentation are seeded by (secret, client,
            round).
        redrawn_rounds: a round was drawn again because too few replied.
        secret_noise: noise comes from the operating system's generator.
        public_schedule: kept nodes were placed without looking at data.
        public: what one of the two strict bounds rests on, if any.
        public_rounds: no training ended by a rule that looks at data, such as an accuracy.
        sample: the rate of Poisson sampling, or the size or the fraction of other samples; None for everybody.
        batch: the examples of a local step, where these are not all.
        frozen: the SHA-256 of tensors that belong to the model, are public and are never trained, if there are any.
        sources: on whose word all this is known.
        doubts: what was seen since to contradict the declared training, and the operator has not answered.
        averages: no recorded model was seen to be anything else than the mean that the training says.
        fixed_settings: all that clients were told beside the models was fixed before the first round.
        equal_weights: every participant weighs the same, whatever number of examples it has.
        solved: somewhere the head was solved, not trained.
        stages: how the model is trained in two stages, if it is.
        body: the published body that the rows' features come from, if one is named; it is no part of the model.
        keeps_sums: the server keeps the sums that each client sent for a ridge head, until the client leaves.

    Raises:
        ValueError: a fact that is true or false is not a bool, ``sampling`` is no ``Sampling``, or ``sample`` does
            not go with it.

    Theory sections 6 and 7.
    """

    training: LocalTraining
    sampling: Sampling
    independent_randomness: bool
    redrawn_rounds: bool
    secret_noise: bool
    public_schedule: bool = False
    public: PublicHead | DpFedAvg | None = None
    public_rounds: bool = True
    sample: float | None = None
    batch: int | None = None
    frozen: str = ""
    sources: Sources = Sources()
    doubts: tuple[str, ...] = ()
    averages: bool = True
    fixed_settings: bool = True
    equal_weights: bool = False
    solved: bool = False
    stages: Stages | None = None
    body: PublishedBody | None = None
    keeps_sums: bool = False

    def __post_init__(self) -> None:
        # A string such as "no" would count as true.
        for name in (field.name for field in fields(self) if field.type == "bool"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it has to be True or False")
        if not isinstance(self.sampling, Sampling):
            raise ValueError(f"sampling is {self.sampling!r}; it has to be one of {', '.join(map(str, Sampling))}")
        if self.training.is_solved and not (self.sampling is Sampling.EVERYBODY and self.batch is None):
            raise ValueError(
                "for a ridge head everybody is asked, about all rows: leave out rate, size, fraction_train and batch"
            )
        if self.keeps_sums and not isinstance(self.head_loss, SquaredL2):
            raise ValueError("only a ridge head follows from sums that can be kept: leave out keeps_sums")
        if isinstance(self.head_loss, SquaredL2) and self.head_loss.l2_choices and not self.keeps_sums:
            raise ValueError("an L2 term is chosen from sums that are kept: leave out l2_choices, or keep the sums")
        # No certificate of such a run would ever verify.
        if (self.sample is None) is not (self.sampling is Sampling.EVERYBODY):
            raise ValueError(
                f"sample is {self.sample!r} for {self.sampling}; give the rate of Sampling.POISSON, the size of "
                "Sampling.FIXED_SIZE or the fraction of Sampling.FRACTION, and None for Sampling.EVERYBODY"
            )

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why a guarantee with noise is not proven; empty means that it is."""
        noised_rounds = ("the rounds are DP-FedAvg's: their own noise is what hides, and nothing else is proven",)
        return (
            self.training_obstacles
            + self._broken_rules
            + self.contradictions
            + (noised_rounds if isinstance(self.public, DpFedAvg) else ())
        )

    @property
    def strict_obstacles(self) -> tuple[str, ...]:
        """Why nothing can be said that holds for every data set; empty means that it can."""
        obstacles = self._broken_rules + self.contradictions
        if not self.public_schedule:
            obstacles += ("kept nodes are not placed by a public schedule: say public_schedule=True from the start",)
        if isinstance(self.public, DpFedAvg):
            return obstacles + self.public.obstacles
        if self.public is None:
            return (
                *obstacles,
                "neither an L2 head's constants (public=PublicHead(...)) nor those of DP-FedAvg are recorded",
            )
        try:
            self.head_bound()
        except ValueError as refusal:
            return (*obstacles, str(refusal))
        return obstacles + self._unknown_rounding

    @property
    def strict_plan_obstacles(self) -> tuple[str, ...]:
        """Why there is no strict plan; one is made, for experiments, where only the noise can be drawn again."""
        return tuple(obstacle for obstacle in self.strict_obstacles if obstacle != REPRODUCIBLE)

    @property
    def contradictions(self) -> tuple[str, ...]:
        """What was recorded against the run's own declarations; DP-FedAvg rests on fixed settings, not on training.

        Its noise hides what clients do in the rounds that are counted, and nothing that outlives a line of training.
        """
        others = () if self.averages else (NOT_AVERAGED,)
        if isinstance(self.public, DpFedAvg):
            return others + (() if self.fixed_settings else (OTHER_SETTINGS,))
        return self.doubts + others

    def head_bound(self) -> HeadBound:
        """Derive the constants of the strict bound from the training, so that they can't be another training's.

        Returns:
            the constants.

        Raises:
            ValueError: no public constants of an L2 head are recorded, or there is no strict bound for this training.
        """
        if not isinstance(self.public, PublicHead):
            raise ValueError("no public constants of an L2 head are recorded")
        head = self.public
        return HeadBound.of(self.training, head.initial_norm, head.parameters, head.batch, head.steps, head.grid)

    @property
    def only_solved(self) -> bool:
        """True if the head is solved and never trained: in two stages, or as a ridge head alone."""
        return self.stages is not None or self.training.is_solved

    @property
    def head_loss(self) -> Loss:
        """What a head is solved for, if it is."""
        return self.stages.loss if self.stages else self.training.loss

    @property
    def rows_are_named(self) -> bool:
        """Whether clients name the rows that are to be forgotten: training code of their own does not."""
        return self.sources.training is not Source.DECLARED or self.stages is not None

    @property
    def solving_obstacles(self) -> tuple[str, ...]:
        """Why the model cannot be solved; empty means that it can."""
        loss = self.head_loss
        rules = (
            (
                isinstance(loss, SoftmaxL2 | LogisticL2 | SquaredL2) and loss.l2 > 0,
                "only a softmax, logistic or ridge head with an L2 term above 0 can be solved",
            ),
            (
                not isinstance(self.public, DpFedAvg),
                "a solver's sums have no noise, and DP-FedAvg's claims need some in every round",
            ),
            (
                self.stages is not None or self.sources.training is not Source.DECLARED,
                "what clients execute is declared, and only our helper answers a solver's questions: use train_head",
            ),
            (
                self.sources.distances is not Source.REPORTED,
                "updates are masked, and a solver sees each client's sums",
            ),
            (not self.equal_weights, "clients weigh the same, and a solver weighs every row the same"),
        )
        return tuple(reason for met, reason in rules if not met)

    @property
    def training_obstacles(self) -> tuple[str, ...]:
        """What of the training the theorem does not cover, given who executes it."""
        return tuple(str(obstacle) for obstacle in self.training.obstacles) + self._unknown_rounding

    @property
    def _unknown_rounding(self) -> tuple[str, ...]:
        # Code of the clients' own rounds in every operation: in float32 by more than what noise hides.
        if self.training.precision != "float32" or self.sources.training is not Source.DECLARED:
            return ()
        return (
            "clients train in float32 by code of their own, and what its rounding adds is not known: use train_head, "
            "which computes in float64 and casts once, or train in float64",
        )

    @property
    def _broken_rules(self) -> tuple[str, ...]:
        rules = (
            (
                self.independent_randomness,
                "the clients' randomness depends on who else takes part: seed it by (secret, client, round)",
            ),
            (not self.redrawn_rounds, "rounds were drawn again when too few replied: accept small and empty rounds"),
            (self.secret_noise, REPRODUCIBLE),
        )
        return tuple(reason for kept, reason in rules if not kept)


def find_head(model: Mapping[str, Tensor], facts: Facts) -> dict[str, Tensor]:
    """Return what of a model is solved: all of it, or the head of a network in two stages.

    Theory section 16.
    """
    return {name: model[name] for name in (facts.stages.head if facts.stages else model)}
