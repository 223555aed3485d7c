"""What ``rescind doctor`` looks at."""

from __future__ import annotations

import os
import platform
import shutil
import stat
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from rescind import __version__
from rescind.certificates.envelope import fingerprint
from rescind.certificates.errors import UnusableKeyError
from rescind.certificates.keys import is_public, is_slow, load_public_key, read_key
from rescind.cli.exposure import judge_exposure, try_superlink
from rescind.cli.shared import open_history
from rescind.errors import HistoryError
from rescind.history.tampering import UNREADABLE
from rescind.texts import make_plain
from rescind.views.health import ALONE, Finding, examine_history

_EXTRAS = {
    "torch": "the simulator",
    "flwr": "Flower",
    "psycopg": "PostgreSQL",
    "s3fs": "models in S3",
    "matplotlib": "pictures in reports",
    "fastapi": "the desk",
    "rfc3161-client": "time stamps",
}
_LITTLE = 1 << 30


def examine(
    location: str | None,
    keys: Sequence[Path],
    databases: Sequence[Path] = (),
    superlink: str | None = None,
    root_certificates: Path | None = None,
) -> Iterator[Finding]:
    """Look at this machine, at keys, at Flower's databases; at a SuperLink's port and a history if they are given."""
    yield Finding("rescind", "fine", f"{__version__} on Python {platform.python_version()}")
    for package, use in _EXTRAS.items():
        try:
            yield Finding(package, "fine", version(package))
        except PackageNotFoundError:
            yield Finding(package, "note", f"not installed; it is for {use}")
    if "RESCIND_PASSPHRASE" in os.environ:
        yield Finding(
            "passphrase", "note", "it is in RESCIND_PASSPHRASE, which every process that you start can read"
        )
    yield _umask()
    for key in keys:
        yield _key(key)
    yield from (_flower(database, "repair") for database in databases)
    yield from _flowers_own()
    if superlink is not None:
        yield _superlink(superlink, root_certificates)
    if location is not None:
        yield from _history(location)


def _key(path: Path) -> Finding:
    name = f"key {path}"
    if not path.is_file():
        return Finding(name, "repair", "there is no such file")
    try:
        content = read_key(path)
    except UnusableKeyError as refused:
        return Finding(name, "repair", str(refused))
    if is_public(content):
        return _public(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return Finding(name, "repair", f"others can read it (mode {mode:o}): run chmod 600 on it")
    if b"ENCRYPTED" not in content:
        return Finding(name, "repair", "it is not encrypted, or is no private key: make one with rescind key new")
    if not is_slow(content):
        return Finding(
            name,
            "note",
            "encrypted, and its passphrase can be guessed quickly: make another one with rescind key new, and sign "
            "with that from now on",
        )
    return Finding(name, "fine", f"encrypted, {ALONE}")


def _public(path: Path) -> Finding:
    try:
        known = fingerprint(load_public_key(path))
    except UnusableKeyError as refused:
        return Finding(f"key {path}", "repair", str(refused))
    return Finding(f"key {path}", "note", f"it is a public key, to be handed out: fingerprint {known}")


def _umask() -> Finding:
    # It can be read only by setting it.
    umask = os.umask(0o077)
    os.umask(umask)
    if umask & 0o077 == 0o077:
        return Finding("umask", "fine", f"{umask:03o}: what you write is readable by you alone")
    return Finding(
        "umask",
        "note",
        f"{umask:03o}: others can read what programs write that do not see to it themselves, such as Flower's "
        "database and logs: say umask 077 before you start a SuperLink or a SuperNode",
    )


def _flowers_own() -> Iterator[Finding]:
    """Look at the databases of SuperLinks that Flower has made by itself; simulations are run there, mostly."""
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    try:
        for folder in sorted(home.iterdir()):
            if (folder / "state.db").exists():
                yield _flower(folder / "state.db", "note")
    except FileNotFoundError:
        return
    except OSError as unreadable:
        file, reason = unreadable.filename, unreadable.strerror
        detail = f"{file} cannot be looked at ({reason}): let its owner run rescind doctor"
        yield Finding(f"Flower's folder {home}", "note", detail)


def _flower(path: Path, otherwise: Literal["note", "repair"]) -> Finding:
    """Look at a database of Flower's, which holds messages and logs, with the files that SQLite writes beside it."""
    name = f"Flower's database {path}"
    try:
        if not path.is_file():
            return Finding(name, "repair", "there is no such file")
    except OSError as unreadable:
        return Finding(name, otherwise, f"it cannot be looked at: {unreadable.strerror}")
    # A folder that can be entered and not read does not tell what else is in it.
    files = sorted({path, *path.parent.glob(f"{path.name}*")})
    # Nobody gets through a folder that is its owner's alone.
    private = not path.resolve().parent.stat().st_mode & 0o077
    if not private and any(file.stat().st_mode & 0o077 for file in files):
        names = " ".join(file.name for file in files)
        return Finding(
            name, otherwise, f"others can read it: run chmod 600 on {names}, and umask 077 before it is made"
        )
    return Finding(name, "fine", ALONE)


def _superlink(address: str, root_certificates: Path | None) -> Finding:
    name = f"SuperLink {make_plain(address)}"
    try:
        exposure = try_superlink(address, root_certificates)
    except ValueError as wrong:
        return Finding(name, "repair", str(wrong))
    except OSError as unreachable:
        reason = make_plain(str(unreachable))
        return Finding(name, "repair", f"nothing was shown, because nobody answers as it should: {reason:.300}")
    return Finding(name, *judge_exposure(exposure))


def _history(location: str) -> Iterator[Finding]:
    try:
        history = open_history(location)
    except (HistoryError, OSError, ValueError) as problem:
        yield Finding("history", "repair", str(problem))
        return
    with history:
        try:
            yield from examine_history(history)
        except UNREADABLE as broken:
            yield Finding("history", "repair", f"it cannot be read to its end: {broken}")
        if Path(location).is_dir():
            yield _disk(Path(location))


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    if free < _LITTLE:
        return Finding(
            "disk", "repair", f"{free / 1e6:.0f} MB are free: a round that cannot be written stops training"
        )
    return Finding("disk", "fine", f"{free / 1e9:.0f} GB are free")
