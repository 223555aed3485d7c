"""What can go wrong with a history: one class per kind of failure, each message with the next step."""

from __future__ import annotations

from collections.abc import Sequence


class HistoryError(Exception):
    """The base of all errors of a history."""


class NotAHistory(HistoryError):
    """The location holds something else, or nothing."""


class HalfMadeHistory(HistoryError):
    """The location holds part of a history: its creation or a copy of it was cut off."""


class VersionMismatch(HistoryError):
    """The history was written with another schema."""


class UnsafePermissions(HistoryError):
    """Others can read or write what is private."""


class MissingSecret(HistoryError):
    """The secret file of a history is not there, or is not its own."""


class HeldByAnother(HistoryError):
    """Another process is writing to this run."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"this run is being written by {holder}; wait until it ends, or stop it")
        self.holder = holder


class StalePlan(HistoryError, ValueError):
    """A plan was made for a history that has changed since, or never made."""


class ForgetFirst(HistoryError, ValueError):
    """The newest model knows somebody who waits to be forgotten: nothing is trained on from it."""


class StillRead(HistoryError):
    """Erased values cannot be overwritten while another process reads."""


class ForgottenClient(HistoryError):
    """A client that was forgotten came back under its name."""

    def __init__(self, names: Sequence[str]) -> None:
        listed = ", ".join(repr(name) for name in names)
        super().__init__(f"{listed} asked to be forgotten and was: leave it out of the round")
        self.names = tuple(names)


class UnknownClient(HistoryError):
    """No client of that name ever took part."""


class DifferentRun(HistoryError):
    """The training that wants to go on is not the one that was recorded."""


class BrokenHistory(HistoryError):
    """What is recorded contradicts its own chain."""


class DamagedCheckpoint(HistoryError):
    """A stored model is not what its name says."""


class MissingCheckpoint(HistoryError):
    """A model is not in the store."""
