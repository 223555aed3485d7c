"""Files that nobody else may read, read only as far as they may be long, and durable once written."""

from __future__ import annotations

import errno
import logging
import os
import shlex
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rescind.errors import UnsafePermissionsError

# Without a handler of somebody else's, what is logged here goes to standard error.
_LOG = logging.getLogger("rescind")


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: an opener for ``open``."""
    descriptor = os.open(path, flags, 0o600)
    # The process's mask may have taken away even the owner's rights.
    os.fchmod(descriptor, 0o600)
    return descriptor


def full_disk(path: str | os.PathLike[str], code: int = errno.ENOSPC) -> OSError:
    """Return the error about a file that cannot be written, because the disk or a quota is full."""
    return OSError(code, f"{os.strerror(code)}; free some, and do the same again", os.fspath(path))


@contextmanager
def name_when_full(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in an error about a full disk: while one is written, the system does not say which it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise full_disk(path, error.errno) from error


def warn_if_packed(path: str | os.PathLike[str]) -> None:
    """Warn of a private file in the folder of a Flower app: `flwr run` packs such folders, and sends them to all.

    Whether the app leaves the file out is not looked at: what Flower packs is Flower's to change.
    """
    file = Path(path).resolve()
    if any(map(_is_app, file.parents)):
        _LOG.warning(
            "rescind: %r is private, and lies in the folder of a Flower app: flwr run may send it to every "
            "participant. Keep it elsewhere",
            str(file),
        )


def _is_app(folder: Path) -> bool:
    """Return whether a folder's project says that it is a Flower app."""
    try:
        return isinstance(tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["tool"]["flwr"]["app"], dict)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def replace_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, in place of one that may be there: whole, or not at all."""
    new = path.with_name(path.name + ".new")
    with name_when_full(path), open(new, "w", encoding="utf-8", opener=open_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync(path.parent)


def read_bounded(path: Path, most: int) -> bytes:
    """Return a file's content; of one that is longer than ``most`` one byte more, by which that can be told."""
    with path.open("rb") as file:
        return file.read(most + 1)


def check_private(path: Path) -> None:
    """Refuse a file or a folder that other users can read, write or enter."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        right = "700" if path.is_dir() else "600"
        raise UnsafePermissionsError(
            f"{path} is open to other users (mode {mode:o}): run chmod {right} {shlex.quote(str(path))}"
        )


def sync(folder: Path) -> None:
    """Make what was created, renamed or deleted in a folder outlive the machine."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
