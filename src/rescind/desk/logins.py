"""Who may do what at the desk: named logins, each with a role and a token of which only the digest is kept."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from rescind.certificates.envelope import read_json
from rescind.certificates.predicate import Digest, Part, Words
from rescind.ledger.contract import LONGEST_NAME, is_name
from rescind.private_files import check_private, open_private, read_bounded, replace_private
from rescind.texts import make_plain

_LONGEST = 1 << 20
_BYTES = 32


class Role(StrEnum):
    """What a login may do; ``RIGHTS`` says which of the others it includes."""

    WATCH = "watch"
    READ = "read"
    ASK = "ask"
    APPROVE = "approve"
    OPERATE = "operate"


# Whoever operates does not approve, and the other way round: that takes two logins.
RIGHTS: Final = {
    Role.WATCH: frozenset({Role.WATCH}),
    Role.READ: frozenset({Role.WATCH, Role.READ}),
    Role.ASK: frozenset({Role.ASK}),
    Role.APPROVE: frozenset({Role.WATCH, Role.READ, Role.APPROVE}),
    Role.OPERATE: frozenset({Role.WATCH, Role.READ, Role.ASK, Role.OPERATE}),
}
DUTIES: Final = {
    Role.WATCH: "read metrics: counts and times, nobody's name",
    Role.READ: "see what the pages show",
    Role.ASK: "hand in requests that participants signed",
    Role.APPROVE: "read, approve and refuse",
    Role.OPERATE: "read, hand in, extend and withdraw",
}


class Login(Part):
    """Somebody, or a program, that may use the desk. ``digest`` is the SHA-256 of its token."""

    name: Words
    role: Annotated[Role, Field(strict=False)]
    digest: Digest
    since: Words

    def may(self, right: Role) -> bool:
        """Return whether its role includes a right."""
        return right in RIGHTS[self.role]


def read_logins(path: Path) -> tuple[Login, ...]:
    """Return the logins of a file; none where there is no file.

    Raises:
        ValueError: the file holds something else.
        UnsafePermissionsError: others can read it.
    """
    if not path.exists():
        return ()
    check_private(path)
    try:
        logins: tuple[Login, ...] = read_json(tuple[Login, ...], read_bounded(path, _LONGEST), _LONGEST)
    except ValueError as error:
        raise ValueError(f"{path} holds no logins, as rescind desk token writes them") from error
    return logins


def add_login(path: Path, name: str, role: Role) -> str:
    """Add a login to a file, which is made where there is none.

    Args:
        path: the file of logins.
        name: what it is called; the journal says so for good of whatever it does.
        role: what it may do.

    Returns:
        its token, which is kept nowhere.

    Raises:
        ValueError: another login is called so, or it is no name.
    """
    if not is_name(name):
        raise ValueError(
            f"{make_plain(name)!r:.80} is no name for a login: give up to {LONGEST_NAME} visible characters"
        )
    token, now = secrets.token_urlsafe(_BYTES), datetime.now(UTC).isoformat(timespec="seconds")
    with _change(path) as logins:
        if any(login.name == name for login in logins):
            raise ValueError(f"{name} has a token already: remove it first (--remove), or choose another name")
        logins.append(Login(name=name, role=role, digest=_digest(token), since=now))
    return token


def remove_login(path: Path, name: str) -> None:
    """Remove a login from a file: its token and its sessions end at once.

    Raises:
        ValueError: no login is called so.
    """
    with _change(path) as logins:
        if not any(login.name == name for login in logins):
            raise ValueError(f"no login is called {make_plain(name)!r:.80}")
        logins[:] = [login for login in logins if login.name != name]


def find_login(logins: Sequence[Login], token: str) -> Login | None:
    """Return the login that a token belongs to."""
    digest = _digest(token)
    return next((login for login in logins if hmac.compare_digest(login.digest, digest)), None)


def _digest(token: str) -> str:
    # 256 random bits: nobody guesses them, however fast a digest is computed.
    return hashlib.sha256(b"rescind desk " + token.encode(errors="surrogatepass")).hexdigest()


@contextmanager
def _change(path: Path) -> Iterator[list[Login]]:
    """Return the logins of a file, and write what became of them; whoever changes them at once waits."""
    with open(path.with_name(path.name + ".lock"), "a", opener=open_private) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        logins = list(read_logins(path))
        yield logins
        replace_private(path, json.dumps([login.model_dump(mode="json") for login in logins], indent=1))
