"""What may be claimed, and the recorded facts from which code decides it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from rescind.core.strict import HeadBound
from rescind.core.training import LocalTraining


class Mode(Enum):
    """What may be claimed of a forgetting, the strongest first.

    Theory: 7.
    """

    EXACT = "exact"
    STRICT = "strict"
    INSTANCE = "instance"
    HEURISTIC = "heuristic"


class Scope(Enum):
    """Whose removal is hidden: each client's alone, each request's group, or all forgotten so far together.

    Paper: Eq. (def_Psi_extended_set) is the first. Theory: 11.
    """

    INDIVIDUAL = "individual"
    GROUP = "group"
    SEQUENCE = "sequence"


@dataclass(frozen=True, slots=True)
class Facts:
    """What was recorded of the training, as far as a claim depends on it.

    ``independent_randomness``: every client's batches, dropout and augmentation are seeded by (secret, client,
    round). ``redrawn_rounds``: a round was drawn again because too few replied. ``secret_noise``: noise comes from
    the operating system's generator. ``public_schedule``: kept nodes were placed without looking at data.
    ``head`` and ``noise_multiplier`` (z) are the constants of the two strict bounds.

    Theory: 6 and 7.
    """

    training: LocalTraining
    independent_randomness: bool
    redrawn_rounds: bool
    secret_noise: bool
    public_schedule: bool = False
    head: HeadBound | None = None
    noise_multiplier: float | None = None

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why a guarantee with noise is not proven; empty means that it is."""
        return tuple(str(obstacle) for obstacle in self.training.obstacles) + self._broken_rules

    @property
    def strict_obstacles(self) -> tuple[str, ...]:
        """Why nothing can be said that holds for every data set; empty means that it can."""
        found = self._broken_rules
        if not self.public_schedule:
            found += ("kept nodes were not placed by a public schedule",)
        if self.noise_multiplier is None:
            found += tuple(str(obstacle) for obstacle in self.training.obstacles)
            if self.head is None:
                found += ("neither an L2 head's constants nor DP-FedAvg's noise multiplier are recorded",)
        return found

    @property
    def _broken_rules(self) -> tuple[str, ...]:
        rules = (
            (
                self.independent_randomness,
                "the clients' randomness depends on who else takes part: seed it by (secret, client, round)",
            ),
            (not self.redrawn_rounds, "rounds were drawn again when too few replied: accept small and empty rounds"),
            (self.secret_noise, "the noise is reproducible: draw it from the operating system's generator"),
        )
        return tuple(reason for kept, reason in rules if not kept)
