"""A time-stamp authority is asked over HTTP (RFC 3161, section 3.4)."""

from __future__ import annotations

from threading import Thread
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rescind.certificates.time_stamps import LONGEST_STAMP

_SECONDS = 20.0
_TYPES = {"Content-Type": "application/timestamp-query", "Accept": "application/timestamp-reply"}


class _StayHere(HTTPRedirectHandler):
    """Follows no redirection: it could lead to a file, or to a machine inside."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


def ask(url: str, query: bytes) -> bytes:
    """Send a query to an authority, and return its reply; of one that is too long so much that it is refused.

    Raises:
        ValueError: the address is none.
        OSError: it cannot be reached, does not answer in time, or answers with an error.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError(f"{url!a:.80} is no address of an authority: it begins with https:// or http://")
    answers: list[bytes | Exception] = []

    def fetch() -> None:
        try:
            with build_opener(_StayHere).open(Request(url, query, _TYPES), timeout=_SECONDS) as reply:  # noqa: S310
                answers.append(reply.read(LONGEST_STAMP + 1))
        except HTTPError as refusal:
            refusal.close()
            answers.append(refusal)
        except Exception as error:
            answers.append(error)

    # Each byte may be in time, and the whole take for ever.
    fetching = Thread(target=fetch, daemon=True)
    fetching.start()
    fetching.join(_SECONDS)
    answer = answers[0] if answers else TimeoutError(f"it took more than {_SECONDS:g} seconds")
    if isinstance(answer, Exception):
        raise OSError(f"{url} gave no time stamp: {answer}. Try again later, or another authority") from answer
    return answer
