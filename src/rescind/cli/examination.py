"""What ``rescind doctor`` looks at."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rescind import __version__
from rescind.certificates.envelope import fingerprint
from rescind.certificates.errors import UnusableKey
from rescind.certificates.keys import is_public, key_content, public_key
from rescind.certificates.sealing import is_slow
from rescind.cli.shared import history_at
from rescind.core.facts import NOT_AVERAGED
from rescind.history.clocks import set_back, still_to_come, times
from rescind.history.doubts import not_means, standing_doubts
from rescind.history.errors import HeldByAnother, HistoryError
from rescind.history.history import UNREADABLE, History
from rescind.history.ledger import RETURNING

_EXTRAS = {
    "torch": "the simulator",
    "flwr": "Flower",
    "psycopg": "PostgreSQL",
    "s3fs": "models in S3",
    "matplotlib": "pictures in reports",
}
_LITTLE = 1 << 30


@dataclass(frozen=True, slots=True)
class Examined:
    """One thing that was looked at: fine, worth knowing (``note``), or to be repaired."""

    what: str
    verdict: Literal["fine", "note", "repair"]
    detail: str


def examined(location: str | None, keys: Sequence[Path], databases: Sequence[Path] = ()) -> Iterator[Examined]:
    """Look at this machine, at keys, at Flower's databases, and at a history if one is given."""
    yield Examined("rescind", "fine", f"{__version__} on Python {platform.python_version()}")
    for package, use in _EXTRAS.items():
        try:
            yield Examined(package, "fine", version(package))
        except PackageNotFoundError:
            yield Examined(package, "note", f"not installed; it is for {use}")
    if "RESCIND_PASSPHRASE" in os.environ:
        yield Examined(
            "passphrase", "note", "it is in RESCIND_PASSPHRASE, which every process that you start can read"
        )
    yield _umask()
    for key in keys:
        yield _key(key)
    yield from (_flower(database, "repair") for database in databases)
    yield from _flowers_own()
    if location is not None:
        yield from _history(location)


def _key(path: Path) -> Examined:
    what = f"key {path}"
    if not path.is_file():
        return Examined(what, "repair", "there is no such file")
    try:
        content = key_content(path)
    except UnusableKey as refused:
        return Examined(what, "repair", str(refused))
    if is_public(content):
        return _public(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Examined(what, "repair", f"others can read it (mode {mode:o}): run chmod 600 on it")
    if b"ENCRYPTED" not in content:
        return Examined(what, "repair", "it is not encrypted, or is no private key: make one with rescind keys new")
    if not is_slow(content):
        return Examined(
            what,
            "note",
            "encrypted, and its passphrase can be guessed quickly: make another one with rescind keys new, and sign "
            "with that from now on",
        )
    return Examined(what, "fine", "encrypted, readable by you alone")


def _public(path: Path) -> Examined:
    try:
        known = fingerprint(public_key(path))
    except UnusableKey as refused:
        return Examined(f"key {path}", "repair", str(refused))
    return Examined(f"key {path}", "note", f"it is a public key, to be handed out: fingerprint {known}")


def _umask() -> Examined:
    # It can be read only by setting it.
    umask = os.umask(0o077)
    os.umask(umask)
    if umask & 0o077 == 0o077:
        return Examined("umask", "fine", f"{umask:03o}: what you write is readable by you alone")
    return Examined(
        "umask",
        "note",
        f"{umask:03o}: others can read what programs write that do not see to it themselves, such as Flower's "
        "database and logs: say umask 077 before you start a SuperLink or a SuperNode",
    )


def _flowers_own() -> Iterator[Examined]:
    """Look at the databases of SuperLinks that Flower has made by itself; simulations are run there, mostly."""
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    try:
        for folder in sorted(home.iterdir()):
            if (folder / "state.db").exists():
                yield _flower(folder / "state.db", "note")
    except FileNotFoundError:
        return
    except OSError as unreadable:
        said = f"{unreadable.filename} cannot be looked at ({unreadable.strerror}): let its owner run rescind doctor"
        yield Examined(f"Flower's folder {home}", "note", said)


def _flower(path: Path, otherwise: Literal["note", "repair"]) -> Examined:
    """Look at a database of Flower's, which holds messages and logs, with the files that SQLite writes beside it."""
    what = f"Flower's database {path}"
    try:
        if not path.is_file():
            return Examined(what, "repair", "there is no such file")
    except OSError as unreadable:
        return Examined(what, otherwise, f"it cannot be looked at: {unreadable.strerror}")
    # A folder that can be entered and not read does not tell what else is in it.
    files = sorted({path, *path.parent.glob(f"{path.name}*")})
    # Nobody gets through a folder that is its owner's alone.
    private = not path.resolve().parent.stat().st_mode & 0o077
    if not private and any(each.stat().st_mode & 0o077 for each in files):
        names = " ".join(each.name for each in files)
        return Examined(
            what, otherwise, f"others can read it: run chmod 600 on {names}, and umask 077 before it is made"
        )
    return Examined(what, "fine", "readable by you alone")


def _history(location: str) -> Iterator[Examined]:
    try:
        history = history_at(location)
    except (HistoryError, OSError, ValueError) as problem:
        yield Examined("history", "repair", str(problem))
        return
    with history:
        try:
            yield from _recorded(history)
        except UNREADABLE as broken:
            yield Examined("history", "repair", f"it cannot be read to its end: {broken}")
        if Path(location).is_dir():
            yield _disk(Path(location))


def _recorded(history: History) -> Iterator[Examined]:
    yield Examined("history", "fine", f"run {history.ledger.identifier()} opens")
    yield _secret(history)
    yield _lock(history)
    told = times(history.ledger)
    yield from _clock(told)
    broken = history.verify() if told else []
    yield from (Examined("chain", "repair", each) for each in broken)
    if not broken:
        yield Examined("chain", "fine", "unbroken")
        yield Examined("models", "fine", f"all {len(history.ledger.kept())} that are kept can be read")
    yield from (Examined("server", "note", each) for each in history.ledger.copies())
    yield from _declarations(history)


def _clock(found: list[tuple[datetime, int]]) -> Iterator[Examined]:
    ahead, back = list(still_to_come(found, datetime.now(UTC))), list(set_back(found))
    yield from (Examined("clock", "repair", f"{each}: set it") for each in ahead)
    yield from (Examined("clock", "note", each) for each in back)
    if not ahead and not back:
        yield Examined("clock", "fine", "no entry is from the future, none earlier than one before it")


def _declarations(history: History) -> Iterator[Examined]:
    against = [*map(str, standing_doubts(history.ledger)), *([NOT_AVERAGED] if not_means(history.ledger) else [])]
    yield from (Examined("declarations", "note", each) for each in against)
    if not against:
        yield Examined("declarations", "fine", "nothing that was recorded contradicts them")


def _secret(history: History) -> Examined:
    try:
        history.ledger.outside_secret(RETURNING)
    except HistoryError as problem:
        return Examined("secret", "repair", str(problem))
    return Examined("secret", "fine", f"{history.ledger.secret_file}, readable by you alone")


def _lock(history: History) -> Examined:
    try:
        with history.ledger.writing():
            return Examined("lock", "fine", "nobody is writing")
    except HeldByAnother as held:
        return Examined("lock", "note", str(held))


def _disk(folder: Path) -> Examined:
    free = shutil.disk_usage(folder).free
    if free < _LITTLE:
        return Examined(
            "disk", "repair", f"{free / 1e6:.0f} MB are free: a round that cannot be written stops training"
        )
    return Examined("disk", "fine", f"{free / 1e9:.0f} GB are free")
