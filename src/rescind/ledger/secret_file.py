"""The secret that keys what stays of erased names: a file of its own, beside the ledger and never in it.

Names are short and can be guessed. Whoever has the ledger and not this file can test no guess.
"""

from __future__ import annotations

import os
import re
import secrets
import tempfile
from contextlib import suppress
from glob import escape
from pathlib import Path

from rescind.errors import HistoryError, MissingSecretError, WrongSecretError
from rescind.ledger.commitments import KEY_BYTES
from rescind.private_files import check_private, sync, warn_if_packed

_CONTENT = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}\n?")
_HOW = "name it with History(..., secret=...), on the command line with RESCIND_SECRET"


def make_secret(path: Path | None) -> bytes:
    """Return the secret of a new history: that of the file if there is one already, else a new one.

    Raises:
        HistoryError: no file is named, or it cannot be made.
    """
    if path is None:
        raise HistoryError(
            f"a history on PostgreSQL needs a file for its secret, which must not lie in the database: {_HOW}"
        )
    if not path.exists():
        try:
            _write(path, secrets.token_bytes(KEY_BYTES))
        except OSError as error:
            raise HistoryError(
                f"{path}, the secret file of the new history, cannot be made ({error.strerror}): choose another "
                f"place, and {_HOW}"
            ) from error
        warn_if_packed(path)
    _drop_other_names(path)
    return read_secret(path)


def read_secret(path: Path | None) -> bytes:
    """Return the secret that a file holds, which nobody else may be able to read.

    Raises:
        MissingSecretError: there is no such file.
        WrongSecretError: it holds something else.
        UnsafePermissionsError: others can read it.
    """
    if path is None:
        raise MissingSecretError(f"the secret file of this history is not named: {_HOW}")
    if not path.is_file():
        raise MissingSecretError(
            f"{path}, the secret file of this history, is missing: a forgotten client that comes back would not be "
            f"recognised, and no receipt can be given. Put it back from its backup; if it lies elsewhere, {_HOW}"
        )
    check_private(path)
    with path.open("rb") as file:
        content = file.read(2 * KEY_BYTES + 2).decode(errors="replace")
    if not _CONTENT.fullmatch(content):
        raise WrongSecretError(f"{path} is no secret file: put the right one back from its backup, or {_HOW}")
    return bytes.fromhex(content)


def secret_mismatch(path: Path | None) -> WrongSecretError:
    """Return the error about a file that does not fit the history."""
    return WrongSecretError(
        f"{path} is the secret file of another history, or somebody changed this one: put the right file there, or "
        f"{_HOW}. If it is the right one, restore the history from a backup"
    )


def _write(path: Path, secret: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all; one that another process made first stays."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{secret.hex()}\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(name, path)
    except FileExistsError:
        return
    finally:
        Path(name).unlink(missing_ok=True)
    sync(path.parent)


def _drop_other_names(path: Path) -> None:
    """Delete the temporary name of a secret file, which stays where its writer was killed before it could."""
    for other in path.parent.glob(f".{escape(path.name)}.*"):
        # Of two that are written at once only one becomes this file. Its writer may be deleting the name just now.
        with suppress(FileNotFoundError):
            if other.samefile(path):
                other.unlink()
