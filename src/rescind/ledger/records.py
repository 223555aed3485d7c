"""What a ledger stores: frozen records, each with one layout in bytes.

Clients appear as pseudonyms only, numbers that mean nothing outside the one table of identities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Clients, Floats
from rescind.core.edges import ErasedStretch, ModelId, RoundEdge, RoundKind, solver_edge, solver_kind
from rescind.core.training import LocalTraining
from rescind.errors import BrokenHistoryError
from rescind.texts import is_digest

Steps: TypeAlias = NDArray[np.int32]

# Fixed for all machines: these bytes are committed to.
PARTICIPANT = np.dtype([("client", "<i8"), ("weight", "<f8"), ("distance", "<f8"), ("steps", "<i4")])
REMAINING = np.dtype([("client", "<i8"), ("sensitivity", "<f8"), ("largest_weight", "<f8")])


@dataclass(frozen=True, slots=True, eq=False)
class RoundRecord:
    """One aggregation and all that is needed to bound its effect: the numbers of an ``RoundEdge``.

    ``participants`` holds, sorted by pseudonym, each participant's weight (n_i), local steps (K_i) and distance
    ||d_i - omega||; ``update_norm`` is ||omega||, ``rounding`` r, ``factor`` the F that whoever was absent is
    multiplied by, ``gram`` the centred matrix in the order of the participants, ``model`` the new model's SHA-256.
    Of a solver's model they are those of ``solver_edge``: nobody made a step then, and a step's ``rounding`` is
    ``NO_BOUND``.
    ``salt`` is random and goes with the round: without it nothing opens the journal's commitment to these numbers.
    """

    model_id: ModelId
    participants: NDArray[np.void]
    update_norm: float
    rounding: float
    factor: float
    model: str
    gram: Floats | None = None
    salt: bytes = b""

    def __post_init__(self) -> None:
        if self.participants.dtype != PARTICIPANT or self.participants.ndim != 1:
            raise ValueError(f"participants have layout {self.participants.dtype}, not the ledger's")
        clients = self.participants["client"]
        if not (np.diff(clients) > 0).all():
            raise ValueError("participants have to be sorted by pseudonym, each of them once")
        if self.gram is not None and self.gram.shape != (len(clients), len(clients)):
            raise ValueError(f"gram has shape {self.gram.shape} for {len(clients)} participants")

    @property
    def clients(self) -> Clients:
        """The participants' pseudonyms."""
        return np.ascontiguousarray(self.participants["client"])

    @property
    def kind(self) -> RoundKind:
        """What made the model; whether trained rounds are noised is the run's."""
        if not len(self.participants) or self.participants["steps"].any():
            return RoundKind.TRAINED
        return solver_kind(self.rounding)

    def edge(self, training: LocalTraining) -> RoundEdge:
        """Return the round as the mathematics wants it."""
        return round_edge(self.kind, self.participants, self.update_norm, self.rounding, self.gram, training)


@dataclass(frozen=True, slots=True)
class Branch:
    """A line of training: where it starts, and what was done to the model there.

    Branch 0 starts at theta_0^0 and has no parent. A restart without noise has ``sigma`` 0. ``model`` is the SHA-256
    of the model it starts with, ``requests`` the numbers of the requests it serves, and ``hidden`` those of all
    requests whose clients its noise has to hide; ``bare`` are those whose clients nothing hides there. Where every
    round was noised (DP-FedAvg), ``participations`` has for each of the ``requests`` the largest sum over the rounds
    before the restart of |W in S|^2, W being clients that it hides together; of erased rounds the most it can be.
    ``unbounded`` is true only in histories of older versions, in which anything may have gone into such a branch.
    """

    number: int
    model: str
    parent: ModelId | None = None
    sigma: float = 0.0
    noise_rounding: float = 0.0
    unit_roundoff: float = 0.0
    requests: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    bare: tuple[int, ...] = ()
    unbounded: bool = False
    participations: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.hidden and not self.sigma:
            raise ValueError(f"branch {self.number} starts without noise, which hides nobody")


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """What is left of an erased stretch that ends at the first model of ``branch`` and began after ``origin``.

    ``remaining`` names everybody who took part before its end; whoever was forgotten has an infinite sensitivity.
    ``salt`` keeps the journal's digest of it from telling anything once it is deleted itself.
    """

    branch: int
    origin: ModelId
    remaining: NDArray[np.void]
    common_factor: bool
    salt: bytes = b""

    def edge(self, sigmas: tuple[float, ...], rounds: int) -> ErasedStretch:
        """Return the stretch as the mathematics wants it, with the noises and the number of rounds in it."""
        return ErasedStretch(
            clients=np.ascontiguousarray(self.remaining["client"]),
            sensitivities=self.remaining["sensitivity"].copy(),
            largest_weights=self.remaining["largest_weight"].copy(),
            common_factor=self.common_factor,
            sigmas=sigmas,
            rounds=rounds,
        )


@dataclass(frozen=True, slots=True)
class Span:
    """Rounds of one branch, ``first`` to ``last``, both included."""

    branch: int
    first: int
    last: int

    def __contains__(self, model_id: object) -> bool:
        return (
            isinstance(model_id, ModelId)
            and model_id.branch == self.branch
            and self.first <= model_id.round <= self.last
        )


class ErasureLevel(Enum):
    """How much of a forgotten client is erased, the least first; see ``erasure``.

    Attributes:
        OUTPUT: what is no longer needed; what can still be computed is said.
        PURGE: everything up to the noised model.
    """

    OUTPUT = "output"
    PURGE = "purge"


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What will go, decided before anything goes.

    It is for the ``clients`` of all served ``requests`` that were not erased at this ``level`` yet; ``branch`` is the
    newest. ``abandoned`` are rounds and models that the path does not need; ``stretch`` those on the path that depend
    on the clients, which begin after ``origin`` and end before the branch. Of the ``superseded`` branches the remains
    of earlier stretches go. ``keys`` names the forgotten clients of whom no number is left then; ``models`` and
    ``updates``, the clients' objects by the name that deletion logs have for them, count files, whose digests would
    tell too much. ``stays`` says in words what does not go.
    """

    level: ErasureLevel
    branch: int
    requests: tuple[int, ...]
    clients: tuple[int, ...]
    abandoned: tuple[Span, ...]
    stretch: tuple[Span, ...]
    origin: ModelId | None
    superseded: tuple[int, ...]
    keys: tuple[int, ...]
    models: int
    updates: int
    stays: tuple[str, ...]

    @property
    def spans(self) -> tuple[Span, ...]:
        """All rounds and models that go."""
        return self.abandoned + self.stretch

    @property
    def rounds(self) -> int:
        """How many rounds that is."""
        return sum(span.last - span.first + 1 for span in self.spans)


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


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal: what happened when, and the head of the chain after it.

    ``body`` is a JSON object. A round's names its place, and ``root`` commits to its numbers, which can be erased
    while the root stays; so does a registration's, for names. Other entries have no root.
    """

    sequence: int
    kind: str
    time: str
    body: Mapping[str, Any]
    root: bytes
    head: bytes

    @property
    def model_id(self) -> ModelId:
        """The model that a round's entry names; a BrokenHistoryError if it names none."""
        branch, round_ = self.body.get("branch"), self.body.get("round")
        # Every round before it has an entry, too; whoever goes through them comes to an end.
        if is_number(branch) and is_number(round_) and round_ <= self.sequence:
            return ModelId(branch, round_)
        raise BrokenHistoryError(f"entry {self.sequence} ({self.kind}) cannot be read: it names no model")


def is_number(value: object) -> TypeGuard[int]:
    """Return whether a value can be the number of a branch, round, client or entry, or count them."""
    return type(value) is int and 0 <= value < 1 << 63


def round_edge(
    kind: RoundKind,
    participants: NDArray[np.void],
    update_norm: float,
    rounding: float,
    gram: Floats | None,
    training: LocalTraining,
) -> RoundEdge:
    """Return the edge of a round whose numbers are packed as a ``RoundRecord`` has them; all of them are checked."""
    clients = np.ascontiguousarray(participants["client"])
    weights, distances = participants["weight"].copy(), participants["distance"].copy()
    if kind.is_solvers:
        return solver_edge(kind, clients, weights, distances, rounding, gram)
    return RoundEdge(
        clients=clients,
        weights=weights,
        factors=_factors(participants["steps"], training),
        distances=distances,
        update_norm=update_norm,
        rounding=rounding,
        gram=gram,
        server_learning_rate=training.server_learning_rate,
    )


def _factors(steps: Steps, training: LocalTraining) -> Floats:
    """Return rho_i for every K_i; mostly there is only one."""
    if len(steps) and (steps == steps[0]).all():
        return np.full(len(steps), training.factor(int(steps[0])))
    counts, inverse = np.unique(steps, return_inverse=True)
    return np.array([training.factor(int(count)) for count in counts], dtype=np.float64)[inverse]


def pack_participants(clients: Clients, weights: Floats, distances: Floats, steps: Steps) -> NDArray[np.void]:
    """Pack the participants' numbers, which have to be sorted by pseudonym."""
    packed = np.empty(len(clients), dtype=PARTICIPANT)
    packed["client"], packed["weight"], packed["distance"], packed["steps"] = clients, weights, distances, steps
    return packed
