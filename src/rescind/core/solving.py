"""How a head is solved: the public settings that a plan and a certificate state."""

from __future__ import annotations

from dataclasses import dataclass

from rescind.core._checks import positive


@dataclass(frozen=True, slots=True)
class Solving:
    """The settings of a solve, fixed before anybody asks to be forgotten.

    Attributes:
        tolerance: the norm of the gradient at which a model counts as the solution (tau).
        most_bytes: the most that a client's answer may take; it decides which curvature is asked for.
        most_rounds: the rounds after which a solve ends in any case; those of a forgetting that was cut off count
            too.

    Raises:
        ValueError: a number is not above 0, or not a whole one where it has to be.

    Theory section 16.
    """

    tolerance: float = 1e-5
    most_bytes: int = 16_000_000
    most_rounds: int = 100

    def __post_init__(self) -> None:
        for name in ("tolerance", "most_bytes", "most_rounds"):
            positive(name, getattr(self, name))
        for name in ("most_bytes", "most_rounds"):
            if not isinstance(getattr(self, name), int):
                raise ValueError(f"{name} is {getattr(self, name)!r}; it has to be a whole number")

    def expected_rounds(self, parameters: int) -> float:
        """Return about how many rounds a head of so many parameters takes: a guess that only ranks ways to forget.

        Args:
            parameters: P.

        Returns:
            the rounds.

        Theory section 16.
        """
        full = 8 * parameters * (parameters + 3) // 2
        return 9.0 if full <= self.most_bytes else 35.0
