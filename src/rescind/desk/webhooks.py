"""What the desk tells another system of requests: signed messages without names, each until it has arrived.

Headers and signature are those of standardwebhooks.com, so that its libraries check them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from time import time
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field

from rescind.certificates.envelope import read_json
from rescind.certificates.predicate import Part, Run
from rescind.desk.board import Board, RequestShown
from rescind.private_files import check_private, open_private, read_bounded, replace_private
from rescind.texts import make_plain

_LOG = logging.getLogger("rescind")
_TIMEOUT = 10.0
_FIRST_WAIT, _LONGEST_WAIT, _GIVE_UP = 5.0, 3600.0, 3 * 86400.0
_LONGEST = 1 << 24
LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_DUE_IN: Final = (7, 2)


class Message(Part):
    """A message that is to arrive; ``kind`` and ``request`` name it, and it is sent once."""

    id: str
    kind: str
    body: str
    tries: int
    next: float
    since: float


class Sent(Part):
    """What an outbox keeps in its file: of which run, what was sent or is not to be, and what is to arrive."""

    run: Run
    known: Annotated[tuple[str, ...], Field(strict=False)]
    waiting: tuple[Message, ...]


def list_happenings(request: RequestShown) -> Iterator[str]:
    """Say what there is to tell of a request, as it stands."""
    yield "new"
    if request.plan is not None:
        yield "planned"
    if request.waits_for_approval_since is not None:
        yield "waiting"
    if request.state.startswith("served"):
        yield "served"
    elif not request.unfinished:
        yield request.state
    else:
        yield from (f"due in {days} days" for days in _DUE_IN if 0 <= request.days_left <= days)
        if request.overdue:
            yield "overdue"


def sign_message(secret: bytes, identifier: str, moment: int, body: bytes) -> str:
    """Return the signature of a message, as standardwebhooks.com has it."""
    signed = f"{identifier}.{moment}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()


def read_secret(path: Path) -> bytes:
    """Return the secret of a file, which is made where there is none: ``whsec_`` and 32 bytes in base64.

    Raises:
        ValueError: the file holds something else.
        UnsafePermissionsError: others can read it.
    """
    if not path.exists():
        with open(path, "x", encoding="ascii", opener=open_private) as file:
            file.write(f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}\n")
    check_private(path)
    content = read_bounded(path, 1000).decode("ascii", "replace").strip()
    try:
        secret = base64.b64decode(content.removeprefix("whsec_"), validate=True)
    except ValueError:
        secret = b""
    if not 24 <= len(secret) <= 64:
        raise ValueError(
            f"{path} holds no webhook secret: whsec_ and 24 to 64 bytes in base64; delete it for a new one"
        )
    return secret


def check_url(url: str) -> str:
    """Return an address that messages may go to; ``ValueError`` if it is none, or others could read them there."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(f"{make_plain(url)!r:.200} is no address for a webhook: give https://HOST/PATH")
    if parts.scheme == "http" and parts.hostname not in LOCAL:
        raise ValueError(f"the webhook {make_plain(url)!r:.200} is not encrypted: give an https:// address")
    return url


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(eq=False)
class Outbox:
    """Messages on their way to one address, kept in a file so that none is lost or sent twice.

    Attributes:
        url: where they go, see ``check_url``.
        secret: what they are signed with.
        file: where it keeps what was sent.
    """

    url: str
    secret: bytes
    file: Path
    _sent: Sent | None = None
    _lock: Lock = field(default_factory=Lock)
    _woken: Event = field(default_factory=Event)
    _ended: bool = False

    def start(self) -> None:
        """Send in a thread of its own."""
        Thread(target=self._go_on, name="webhooks", daemon=True).start()

    def stop(self) -> None:
        """End the thread; what did not arrive stays in the file."""
        self._ended = True
        self._woken.set()

    def note(self, board: Board) -> None:
        """Put on the way what is new on a board; of requests that were closed before the first start nothing is."""
        with self._lock:
            sent = self._load(board)
            known, waiting = set(sent.known), list(sent.waiting)
            for request in board.requests:
                for happening in list_happenings(request):
                    name = f"{request.request} {happening}"
                    if name not in known:
                        known.add(name)
                        waiting.append(_write(board.overview.run, request, happening))
            if len(known) > len(sent.known) or not self.file.exists():
                self._keep(Sent(run=sent.run, known=tuple(sorted(known)), waiting=tuple(waiting)))
                self._woken.set()

    def deliver(self, now: float) -> float:
        """Send what is due, and return in how many seconds to look again."""
        waiting = self._sent.waiting if self._sent else ()
        tried = {message.id: self._send(message, now) for message in waiting if message.next <= now}
        with self._lock:
            # A board may have been noted meanwhile.
            if tried and self._sent is not None:
                left = [tried.get(message.id, message) for message in self._sent.waiting]
                kept = tuple(message for message in left if message is not None)
                self._keep(Sent(run=self._sent.run, known=self._sent.known, waiting=kept))
            soonest = min((message.next for message in (self._sent.waiting if self._sent else ())), default=None)
        return _LONGEST_WAIT if soonest is None else max(0.1, soonest - now)

    def _send(self, message: Message, now: float) -> Message | None:
        """Send a message; return it as it is tried next, or None if it arrived or is given up."""
        body, moment = message.body.encode(), int(now)
        headers = {
            "content-type": "application/json",
            "webhook-id": message.id,
            "webhook-timestamp": str(moment),
            "webhook-signature": sign_message(self.secret, message.id, moment, body),
        }
        request = urllib.request.Request(self.url, body, headers, method="POST")  # noqa: S310 - check_url
        try:
            # What is not encrypted stays on this machine, whatever proxy the environment names.
            direct = [urllib.request.ProxyHandler({})] if self.url.startswith("http:") else []
            with urllib.request.build_opener(_NoRedirects, *direct).open(request, timeout=_TIMEOUT) as answer:
                answer.read(1)
            return None
        except Exception as error:
            # Whatever was answered, it may not have arrived.
            why = make_plain(str(error))[:200]
        if now - message.since > _GIVE_UP:
            _LOG.error("rescind: the webhook for %r is given up after three days: %s", message.kind, why)
            return None
        wait = min(_FIRST_WAIT * 2.0 ** min(message.tries, 20), _LONGEST_WAIT)
        _LOG.warning("rescind: the webhook for %r did not arrive, again in %d s: %s", message.kind, wait, why)
        return message.model_copy(update={"tries": message.tries + 1, "next": now + wait})

    def _load(self, board: Board) -> Sent:
        if self._sent is None and self.file.exists():
            check_private(self.file)
            try:
                self._sent = read_json(Sent, read_bounded(self.file, _LONGEST), _LONGEST)
            except ValueError as error:
                raise ValueError(f"{self.file} holds no messages to a webhook: restore or delete it") from error
        if self._sent is None or self._sent.run != board.overview.run:
            closed = [request for request in board.requests if not request.unfinished]
            known = {f"{request.request} {one}" for request in closed for one in list_happenings(request)}
            self._sent = Sent(run=board.overview.run, known=tuple(sorted(known)), waiting=())
        return self._sent

    def _keep(self, sent: Sent) -> None:
        # First, so that nothing is sent again as long as it cannot be written.
        self._sent = sent
        replace_private(self.file, sent.model_dump_json(indent=1))

    def _go_on(self) -> None:
        while not self._ended:
            try:
                wait = self.deliver(time())
            except OSError as error:
                _LOG.warning("rescind: what was sent to the webhook is not written down: %s", error)
                wait = _FIRST_WAIT
            self._woken.wait(wait)
            self._woken.clear()


def _write(run: str, request: RequestShown, happening: str) -> Message:
    data = {
        "run": run,
        "request": request.request,
        "state": request.state,
        "asked": request.asked,
        "deadline": request.deadline,
        "days_left": request.days_left,
    }
    kind = "request." + happening.replace(" ", "_")
    now = time()
    return Message(
        id=f"msg_{secrets.token_hex(16)}",
        kind=kind,
        body=json.dumps({"type": kind, "timestamp": int(now), "data": data}, sort_keys=True),
        tries=0,
        next=now,
        since=now,
    )
