"""Heads of the chain from clients' logs: by them a history is known that was rewritten or rolled back."""

from __future__ import annotations

import os
import re
from pathlib import Path

# What a client's log says before a head.
LOGGED = "the history's head was "

_HEAD = re.compile(rb"[0-9a-f]{64}(?![0-9A-Za-z])")
_LARGEST = 2**24


def read_heads(path: str | os.PathLike[str]) -> frozenset[bytes]:
    """Return the heads in a file: one a line, alone in 64 hexadecimal digits, or as a client's log tells it.

    Raises:
        ValueError: The file is too large, has no head, or has a line without one; lines that are empty do not count.
    """
    with Path(path).open("rb") as file:
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(
            f"{path} has more than {_LARGEST >> 20} MiB: keep the lines that say {LOGGED.strip()!r} only"
        )
    heads = set()
    for number, line in enumerate(content.splitlines(), start=1):
        _, logged, rest = line.rpartition(LOGGED.encode())
        match = _HEAD.match(rest) if logged else _HEAD.fullmatch(line.strip())
        if match is not None:
            heads.add(bytes.fromhex(match[0].decode()))
        elif line.strip():
            raise ValueError(
                f"line {number} of {path} has no head: a line is 64 hexadecimal digits, or of a client's log, where "
                f"it says {LOGGED.strip()!r}"
            )
    if not heads:
        raise ValueError(f"{path} has no head in it")
    return frozenset(heads)
