"""Files that nobody else may read, read only as far as they may be long, and durable once written."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from rescind.errors import UnsafePermissionsError


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner may read: an opener for ``open``."""
    descriptor = os.open(path, flags, 0o600)
    # The process's mask may have taken away even the owner's rights.
    os.fchmod(descriptor, 0o600)
    return descriptor


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
