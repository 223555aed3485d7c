"""Rows that a client leaves out: which ones, and what it keeps to show later that a row was among them.

The client commits to the rows under salts that it keeps, with the path of each to the root; the rows themselves are
nowhere. Whoever has a row, its salt and its path can show that the root commits to it.
"""

from __future__ import annotations

import json
import os
import secrets
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rescind.core.arrays import Tensor
from rescind.engines.complaints import Complaint
from rescind.ledger.commitments import KEY_BYTES, follow_path, merkle_paths, merkle_root, row_leaf
from rescind.private_files import open_private, warn_if_packed
from rescind.texts import is_digest

# Beside a row at least so many leaves that are none: how many rows were named is nobody's business.
_LEAST_LEAVES = 16


def to_numpy(values: Any, name: str) -> NDArray[Any]:
    """Return values as a numpy array: numpy's own as they are, torch's tensors from whatever device, lists.

    Args:
        values: the values.
        name: what to call them in an error.

    Returns:
        the array.

    Raises:
        ValueError: they are no numbers that numpy has.
    """
    moved = values
    # A tensor that requires grad, or is on a GPU, does not become an array by itself; torch is not needed for asking.
    for step in ("detach", "cpu"):
        if callable(move := getattr(moved, step, None)):
            moved = move()
    try:
        array = np.asarray(moved)
    except (TypeError, ValueError, RuntimeError) as reason:
        raise Complaint.NO_ARRAY.error(name, _describe(values)) from reason
    if array.dtype == np.object_:
        raise Complaint.NO_ARRAY.error(name, _describe(values))
    return array


def _describe(values: Any) -> str:
    return f"{type(values).__name__} of {values.dtype}" if hasattr(values, "dtype") else type(values).__name__


def find_left_out(removed: ArrayLike, rows: int) -> NDArray[np.bool_]:
    """Return which of a client's rows are left out.

    Args:
        removed: the rows' indices, or a mask over all rows; numpy's, torch's or a list.
        rows: how many rows there are.

    Returns:
        a mask over all rows.

    Raises:
        ValueError: this is no mask over so many rows, a mask of whole numbers, or an index is none of theirs.
    """
    chosen = to_numpy(removed, "removed")
    if chosen.dtype == np.bool_:
        if chosen.shape != (rows,):
            raise Complaint.MASK.error(chosen.shape, rows)
        return chosen
    if chosen.ndim != 1 or (chosen.size and not np.issubdtype(chosen.dtype, np.integer)):
        raise Complaint.NO_MASK.error()
    if chosen.size and (chosen.min() < 0 or chosen.max() >= rows):
        raise Complaint.NO_ROWS.error(chosen.min(), chosen.max(), rows - 1)
    if rows > 2 and len(chosen) == rows and chosen.max() <= 1:
        raise Complaint.WHOLE_NUMBERS.error()
    mask = np.zeros(rows, dtype=np.bool_)
    mask[chosen.astype(np.int64)] = True
    return mask


def commit_rows(
    path: str | os.PathLike[str],
    request: int,
    features: Tensor,
    labels: NDArray[np.int64],
    left_out: NDArray[np.bool_],
) -> str:
    """Return the root that commits to the rows left out for a request; salts and paths are kept in a file.

    Once the file has a request, its root stays, whatever rows there are by then.

    Args:
        path: the file, of JSON and with mode 600; made where there is none.
        request: the request's number.
        features: the client's examples, those left out among them.
        labels: their classes.
        left_out: which of them are left out.

    Returns:
        the root, in hexadecimal.

    Raises:
        ValueError: the file holds something else.
    """
    file = Path(path)
    kept = _read(file)
    if str(request) not in kept:
        warn_if_packed(file)
        indices = np.flatnonzero(left_out).tolist()
        salts = [secrets.token_bytes(KEY_BYTES) for _ in indices]
        leaves = [
            row_leaf(salt, request, encode_row(features[at], int(labels[at])))
            for salt, at in zip(salts, indices, strict=True)
        ]
        size = max(_LEAST_LEAVES, 2 ** (len(leaves) - 1).bit_length())
        leaves += [secrets.token_bytes(KEY_BYTES) for _ in range(size - len(leaves))]
        shown = zip(indices, salts, merkle_paths(leaves), strict=False)
        rows = [
            {"row": at, "place": place, "salt": salt.hex(), "path": [step.hex() for step in path]}
            for place, (at, salt, path) in enumerate(shown)
        ]
        kept[str(request)] = {"root": merkle_root(leaves).hex(), "rows": rows}
        _write(file, kept)
    return str(kept[str(request)]["root"])


def check_row(root: str, request: int, receipt: Mapping[str, Any], features: Tensor, label: int) -> bool:
    """Return whether a root commits to a row, which shows that the client named it.

    It does not show that the client leaves it out: that is the client's word.

    Args:
        root: the root, from a certificate.
        request: the request's number.
        receipt: the row's own part of the client's file: place, salt and path.
        features: the row.
        label: its class.

    Returns:
        True if it does.
    """
    try:
        leaf = row_leaf(bytes.fromhex(receipt["salt"]), request, encode_row(features, label))
        return (
            follow_path(leaf, int(receipt["place"]), [bytes.fromhex(step) for step in receipt["path"]]).hex() == root
        )
    except (KeyError, TypeError, ValueError, OverflowError, struct.error):
        return False


def encode_row(features: Tensor, label: int) -> bytes:
    """Return the bytes that stand for a row: its class and its features as float64, whatever type they have."""
    return struct.pack("<q", label) + np.ascontiguousarray(to_numpy(features, "features"), dtype="<f8").tobytes()


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        kept = json.loads(file.read_bytes())
        if all(is_digest(told["root"]) and told["rows"] is not None for told in kept.values()):
            return dict(kept)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    raise Complaint.RECEIPTS.error(file)


def _write(file: Path, kept: Mapping[str, Any]) -> None:
    """Write the file whole or not at all."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    with open(beside, "x", encoding="utf-8", opener=open_private) as new:
        json.dump(kept, new, indent=1)
        new.flush()
        os.fsync(new.fileno())
    beside.replace(file)
