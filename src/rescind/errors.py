"""What can go wrong with a history: one class per kind of failure, each message with the next step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ONLY_SOLVED = (
    "a network in two stages is not trained as a whole, nor is a ridge head: use solve(), and Solve() to forget"
)
ROWS_NEED = "rows of a client that stays are forgotten from before its first round only, by Exact() or Solve()"


class HistoryError(Exception):
    """The base of all errors of a history."""


class NoHistoryError(HistoryError):
    """The location holds something else, or nothing."""


class IncompleteHistoryError(HistoryError):
    """The location holds part of a history: its creation or a copy of it was cut off."""


class SchemaVersionError(HistoryError):
    """The history was written with another schema."""


class UnsafePermissionsError(HistoryError):
    """Others can read or write what is private."""


class MissingSecretError(HistoryError):
    """The secret file of a history is not at hand."""


class WrongSecretError(MissingSecretError):
    """The file that is named as a history's secret does not fit the history."""


class LockedError(HistoryError):
    """Another process is writing to this run."""

    def __init__(self, holder: str) -> None:
        super().__init__(
            f"this run is being written by {holder}; wait until it ends, or stop it. A SuperLink that was killed "
            "leaves its app running: `pgrep -af flwr-` finds it, and `kill` with its number ends it"
        )
        self.holder = holder


class StalePlanError(HistoryError, ValueError):
    """A plan was made for a history that has changed since, or never made."""


class ClosedRequestError(HistoryError, ValueError):
    """A request is not open, or not any more: it was served, taken back or refused, or never made."""


class PendingRequestError(HistoryError, ValueError):
    """The newest model knows somebody who waits to be forgotten: nothing is trained on from it."""


class NoSumsError(ValueError):
    """Nobody has sent sums that could be used."""


class AskedClientError(HistoryError):
    """A client has to be asked, and none can be from here."""


class StillReadError(HistoryError):
    """Erased values cannot be overwritten while another process reads."""


class ForgottenClientError(HistoryError):
    """A client that was forgotten came back under its name."""

    def __init__(self, names: Sequence[str]) -> None:
        listed = ", ".join(repr(name) for name in names)
        super().__init__(f"{listed} asked to be forgotten and was: leave it out of the round")
        self.names = tuple(names)


class UnknownClientError(HistoryError):
    """No client of that name ever took part."""


class RunMismatchError(HistoryError):
    """The training that wants to go on is not the one that was recorded."""


class BrokenHistoryError(HistoryError):
    """What is recorded contradicts its own chain."""


def refuse_changes(problems: Iterable[str], danger: str = "") -> None:
    """Raise a BrokenHistoryError with the first problem of a ledger, if it has one.

    ``danger`` says at the end of its message what would happen otherwise.
    """
    for problem in problems:
        raise BrokenHistoryError(
            f"{problem}: somebody changed the ledger. Nothing was done; look at it with rescind doctor, and restore "
            f"it from a backup{danger}"
        )


class DamagedCheckpointError(HistoryError):
    """A stored model is not what its name says."""


class MissingCheckpointError(HistoryError):
    """A model is not in the store."""


class RegistryError(HistoryError):
    """A model registry cannot be reached, refuses, or answers with something that cannot be used."""
