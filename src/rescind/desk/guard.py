"""What stands before the desk: who is let in, how often, how much is read, and what browsers are told to refuse."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

from fastapi import HTTPException, Request

from rescind.desk.logins import Login, Role, find_login, read_logins
from rescind.desk.pages import style_sources
from rescind.errors import HistoryError

COOKIE: Final = "rescind-desk"
LONGEST_BODY: Final = 64 * 1024
_SESSION = 12 * 3600.0
_MOST_KNOWN = 1000
# Of one login.
_MOST_SESSIONS = 20
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; style-src {style_sources()}; script-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # With no-referrer browsers send a form's origin as null, as if another site's page had sent it.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(eq=False)
class Allowance:
    """How often each may do something: ``burst`` times at once, then ``rate`` times a second."""

    rate: float
    burst: float
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def take(self, user: str) -> None:
        """Count one more; ``HTTPException`` 429 if that is too many."""
        now = monotonic()
        with self._lock:
            if len(self._left) > _MOST_KNOWN:
                self._left.clear()
            left, before = self._left.get(user, (self.burst, now))
            left = min(self.burst, left + (now - before) * self.rate)
            self._left[user] = (max(left - 1, 0.0), now)
        if left < 1:
            wait = {"retry-after": str(int(1 / self.rate) + 1)}
            raise HTTPException(429, "too many at once: wait a little, then try again", wait)


@dataclass(eq=False)
class Guard:
    """Tells who asks: by a token, or by the cookie of a browser that signed in with one.

    Attributes:
        file: the logins; it is read each time, so that one that is removed is out at once.
    """

    file: Path
    _sessions: dict[str, tuple[str, float]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)
    _strangers: Allowance = field(default_factory=lambda: Allowance(2.0, 60.0))
    _changes: Allowance = field(default_factory=lambda: Allowance(1.0, 30.0))

    @property
    def logins(self) -> tuple[Login, ...]:
        """The logins, as they are in the file now."""
        try:
            return read_logins(self.file)
        except (ValueError, HistoryError) as error:
            # A stranger is not told what is wrong with it.
            raise OSError(str(error)) from error

    def sign_in(self, request: Request, token: str) -> str | None:
        """Return the value of a new session's cookie; None if no login has that token."""
        check_origin(request, needed=True)
        if (login := find_login(self.logins, token)) is None:
            self.slow_down(request)
            return None
        if not login.may(Role.READ):
            raise HTTPException(403, "this token is for a program, which sends it as Authorization: Bearer")
        session = secrets.token_urlsafe(32)
        with self._lock:
            # Whoever signs in again and again ends its own sessions, and nobody else's.
            own = [one for one, (digest, _) in self._sessions.items() if digest == login.digest]
            for one in own[: 1 - _MOST_SESSIONS]:
                del self._sessions[one]
            self._sessions[session] = (login.digest, monotonic() + _SESSION)
        return session

    def sign_out(self, request: Request) -> None:
        """End the session of a browser."""
        check_origin(request, needed=True)
        with self._lock:
            self._sessions.pop(request.cookies.get(COOKIE, ""), None)

    def identify(self, request: Request) -> Login | None:
        """Return who asks, None for a stranger; ``HTTPException`` 401 for a token that is nobody's."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme:
            login = find_login(self.logins, token.strip()) if scheme.lower() == "bearer" else None
            if login is None:
                self.slow_down(request)
                raise HTTPException(401, "no login has this token", {"www-authenticate": "Bearer"})
            return login
        digest, until = self._sessions.get(request.cookies.get(COOKIE, ""), ("", 0.0))
        if until < monotonic():
            return None
        return next((login for login in self.logins if login.digest == digest), None)

    def admit(self, request: Request, right: Role) -> Login:
        """Return who asks, if they may do that; ``HTTPException`` 401, 403 or 429 otherwise."""
        if (login := self.identify(request)) is None:
            raise HTTPException(401, "give a token: Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"})
        if not login.may(right):
            raise HTTPException(403, f"the role {login.role} may not do this: it takes a login that may {right}")
        if request.method not in _SAFE:
            # Only a browser sends a cookie by itself, whoever's page made it do so.
            check_origin(request, needed=not request.headers.get("authorization"))
            self._changes.take(login.name)
        return login

    def slow_down(self, request: Request) -> None:
        """Count what a stranger asks for; ``HTTPException`` 429 if it is too much."""
        self._strangers.take("unknown" if request.client is None else request.client.host)


def check_origin(request: Request, *, needed: bool) -> None:
    """Refuse a change that another site's page asks for; ``HTTPException`` 403."""
    origin = request.headers.get("origin")
    if origin is None and not needed:
        return
    if origin is None or urlsplit(origin).netloc != request.headers.get("host"):
        raise HTTPException(403, "this was asked for by another site's page, or by a program without its token")


def bound(app: App) -> App:
    """Return an application that reads so much of a request at most, and whose answers browsers treat strictly."""

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        left = LONGEST_BODY

        async def receive_some() -> MutableMapping[str, Any]:
            nonlocal left
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HTTPException(400, "the rest of it did not come")
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, f"at most {LONGEST_BODY} bytes are read")
            return message

        async def send_strictly(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                if scope.get("scheme") == "https":
                    own.append((b"strict-transport-security", b"max-age=31536000"))
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        await app(scope, receive_some, send_strictly)

    return bounded
