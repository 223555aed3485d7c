"""What clients answer with when they fail, in words of our own."""

from __future__ import annotations

import builtins
import logging
import re

from flwr.app import Error
from flwr.common.constant import ErrorCode

from rescind.engines.complaints import recognise

_LOG = logging.getLogger("flwr")
# An error's text is looked at so far; no message of ours is longer.
_MOST_TEXT = 20_000
_TYPE = re.compile(r"(?:<class ')?(\w+)(?:'>)?:")
_BY_CODE = {
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: "its ClientApp could not be loaded",
    ErrorCode.INVALID_FAB: "it could not use the app",
    ErrorCode.CLIENT_APP_CRASHED: "the process of its ClientApp ended",
}
# Flower's own words for a ClientApp without a function for what it is asked.
_UNREGISTERED = {
    f"No {kind} function registered": f"its ClientApp has no @app.{kind}()" for kind in ("query", "train", "evaluate")
}


def describe(error: Error) -> str:
    """Return what kind of error it is, in words of our own: the client's may hold what it has of its patients."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    text = (error.reason or "")[:_MOST_TEXT]
    for words, meaning in _UNREGISTERED.items():
        if words in text:
            return meaning
    written = _TYPE.match(text)
    kind = getattr(builtins, written[1], None) if written else None
    name = kind.__name__ if isinstance(kind, type) and issubclass(kind, Exception) else f"error code {error.code}"
    complaint = recognise(text)
    return f'{name}, "{complaint.shown}"' if complaint else name


class Failures:
    """Shows the first failure of each kind in a run."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def show(self, node: int, error: Error) -> str:
        """Show a failure if it is the first of its kind, and return its kind."""
        kind = describe(error)
        if kind not in self._shown:
            self._shown.add(kind)
            _LOG.warning(
                "rescind: node %d failed: %s. Its SuperNode's log says more; others of this kind are only counted",
                *(node, kind),
            )
        return kind
