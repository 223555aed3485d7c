"""Where the data lie: a folder given, or the one that RESCIND_DATA names."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "RESCIND_DATA"


class NoFolderError(ValueError):
    """Nobody said where the data lie."""


def place(folder: str | Path | None) -> Path:
    """Return the folder of the data."""
    chosen = folder if folder is not None else os.environ.get(VARIABLE)
    if not chosen:
        raise NoFolderError(
            f"no folder of data: give one (`folder`, or --data), or set the environment variable {VARIABLE}"
        )
    return Path(chosen)


def require(path: Path, what: str, home: str, contents: str) -> Path:
    """Return the path back, or say where its file comes from and what it has to hold."""
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing. {what} is published at {home}; fetch it there and write it to this path. "
            f"It has to hold {contents}."
        )
    return path
