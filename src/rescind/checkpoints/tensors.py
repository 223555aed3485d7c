"""Named tensors as a safetensors file, piece by piece and with one spelling only.

Equal tensors give equal bytes, so a model's SHA-256 is its name. The reader assumes that the file was made to
harm: every claim of the header is checked against the file's size before anything is allocated for it.

Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rescind.errors import DamagedCheckpointError
from rescind.private_files import name_when_full

StoredTensor: TypeAlias = NDArray[Any]

# A piece stays in a core's cache between being copied and being hashed.
_PIECE = 2**20
# A hundred thousand tensors. The format allows ten times as much, which as JSON would fill the memory.
_LONGEST_HEADER = 10_000_000
_MOST_DIMENSIONS = 64

_CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}
# The format's place for remarks; a tensor of this name would not be one any more.
_REMARKS = "__metadata__"


class SeekableFile(Protocol):
    """The part of a binary file that reading needs."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill the buffer, or a part of it, and tell how much."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position and tell it."""
        ...


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    end: int


def layout(tensors: Mapping[str, StoredTensor], remarks: Mapping[str, str] | None = None) -> bytes:
    """Return the file's beginning, up to the first tensor's bytes.

    Names are sorted by code point and data follows data without a gap; spaces fill the header up to 8 bytes. A file
    with ``remarks`` has other bytes than its model's digest is taken of.
    """
    for name, tensor in tensors.items():
        _check(name, tensor)
    header: dict[str, Any] = {_REMARKS: dict(remarks)} if remarks else {}
    start = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        end = start + tensor.nbytes
        header[name] = {"dtype": _CODES[tensor.dtype.name], "shape": list(tensor.shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST_HEADER:
        raise ValueError(
            f"{len(tensors)} tensors need a header of {len(text)} bytes, and at most {_LONGEST_HEADER} are read"
        )
    return len(text).to_bytes(8, "little") + text


def chunks(tensors: Mapping[str, StoredTensor], remarks: Mapping[str, str] | None = None) -> Iterator[memoryview]:
    """Return the file's bytes in order and in small pieces; only a piece is ever copied, and only where it has to be.

    A piece may be a view of a tensor: use it before asking for the next one.
    """
    header = memoryview(layout(tensors, remarks))
    for start in range(0, len(header), _PIECE):
        yield header[start : start + _PIECE]
    for name in sorted(tensors):
        tensor = np.asarray(tensors[name])
        # The flat iterator of an array in another order copies the slice alone.
        flat = tensor.reshape(-1) if tensor.flags.c_contiguous else tensor.flat
        step = _PIECE // tensor.itemsize
        for start in range(0, tensor.size, step):
            piece = np.ascontiguousarray(flat[start : start + step], tensor.dtype.newbyteorder("<"))
            yield piece.view(np.uint8).data


def save(
    tensors: Mapping[str, StoredTensor], path: str | os.PathLike[str], remarks: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a file, in the place of one that may be there: a reader sees the old one or the new one."""
    target = Path(path)
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with name_when_full(target), unfinished.open("wb") as file:
            for chunk in chunks(tensors, remarks):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def digest(tensors: Mapping[str, StoredTensor]) -> str:
    """Return the SHA-256 of the file that these tensors make without remarks, as 64 hexadecimal digits."""
    hasher = hashlib.sha256()
    for chunk in chunks(tensors):
        hasher.update(chunk)
    return hasher.hexdigest()


def read(
    file: SeekableFile, observe: Callable[[memoryview], object] = lambda _piece: None
) -> Iterator[tuple[str, StoredTensor]]:
    """Return a file's tensors one at a time, in the order in which they are stored.

    ``observe`` sees every byte of the file once and in order, so a hash can be taken on the way. Files of other
    writers are read too, whatever order their tensors have.
    """
    header, size = _header(file, observe)
    for entry in _entries(header, size):
        # Without a name of its own here, a tensor is gone as soon as the caller lets go of it.
        yield entry.name, _tensor(file, entry, observe)


def read_remarks(file: SeekableFile) -> dict[str, str]:
    """Return what a file's writer remarked in its header: texts of any kind, which nothing vouches for."""
    header, _ = _header(file, lambda _piece: None)
    return _remarks(header)


def _header(file: SeekableFile, observe: Callable[[memoryview], object]) -> tuple[dict[str, Any], int]:
    """Return a file's header, and how many bytes follow it."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size < 8:
        raise DamagedCheckpointError(f"the file has {size} bytes, too few for a header")
    length = int.from_bytes(_filled(file, 8, observe), "little")
    if length > min(_LONGEST_HEADER, size - 8):
        raise DamagedCheckpointError(
            f"the header claims {length} bytes, in a file of {size}; at most {_LONGEST_HEADER} are read"
        )
    text = _filled(file, length, observe)
    if not text.startswith(b"{"):
        raise DamagedCheckpointError("the header does not begin with a brace")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_without_duplicates)
        "".join(header).encode()
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"the header is not JSON in UTF-8: {error}") from error
    return header, size - 8 - length


def _remarks(header: Mapping[str, Any]) -> dict[str, str]:
    remarks = header.get(_REMARKS, {})
    if not isinstance(remarks, dict) or not all(isinstance(value, str) for value in remarks.values()):
        raise DamagedCheckpointError(f"{_REMARKS} of the header is not a table of strings")
    return remarks


def _check(name: str, tensor: StoredTensor) -> None:
    if not isinstance(name, str) or name == _REMARKS:
        raise ValueError(f"a tensor's name must be a string other than {_REMARKS}, got {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"the tensor name {name!r} has no UTF-8 form: rename it") from error
    if not isinstance(tensor, np.ndarray) or tensor.dtype.name not in _CODES:
        kind = (
            f"of type {tensor.dtype}" if isinstance(tensor, np.ndarray) else f"no array but a {type(tensor).__name__}"
        )
        raise ValueError(f"tensor {name!r} is {kind}: make it a numpy array of one of {', '.join(_CODES)}")
    if tensor.dtype == np.bool_ and tensor.view(np.uint8).max(initial=0) > 1:
        raise ValueError(f"tensor {name!r} is bool over bytes that are neither 0 nor 1: convert with astype(bool)")


def _entries(header: Mapping[str, Any], size: int) -> list[_Entry]:
    """Read a header whose tensors have to fill exactly ``size`` bytes."""
    _remarks(header)
    claims = ((name, claim) for name, claim in header.items() if name != _REMARKS)
    entries = sorted((_entry(*item) for item in claims), key=lambda entry: (entry.start, entry.end))
    position = 0
    for entry in entries:
        if entry.start != position:
            raise DamagedCheckpointError(f"the tensors overlap or leave a gap at byte {position} of the data")
        position = entry.end
    if position > size:
        raise DamagedCheckpointError(f"the file is truncated: {size} of {position} bytes of data are left")
    if position < size:
        raise DamagedCheckpointError(f"the file goes on for {size - position} bytes after the last tensor")
    return entries


def _entry(name: str, claims: Any) -> _Entry:
    shown = repr(name[:100])
    if not isinstance(claims, dict) or claims.keys() != {"dtype", "shape", "data_offsets"}:
        raise DamagedCheckpointError(f"tensor {shown} needs dtype, shape and data_offsets, and nothing else")
    code, shape, offsets = claims["dtype"], claims["shape"], claims["data_offsets"]
    if not isinstance(code, str) or code not in _DTYPES:
        raise DamagedCheckpointError(f"tensor {shown} has a dtype other than {', '.join(_DTYPES)}")
    if not _are_counts(shape) or len(shape) > _MOST_DIMENSIONS:
        raise DamagedCheckpointError(f"the shape of tensor {shown} is not a list of at most 64 counts")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise DamagedCheckpointError(f"the data_offsets of tensor {shown} are not two counts")
    start, end = offsets
    if end - start != math.prod(shape) * _DTYPES[code].itemsize:
        raise DamagedCheckpointError(f"the data_offsets of tensor {shown} do not match its shape {shape}")
    return _Entry(name, _DTYPES[code], tuple(shape), start, end)


def _are_counts(values: Any) -> bool:
    # True and False are integers to Python, but not to JSON.
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise DamagedCheckpointError("the header has a name twice")
    return table


def _tensor(file: SeekableFile, entry: _Entry, observe: Callable[[memoryview], object]) -> StoredTensor:
    try:
        tensor = np.empty(entry.shape, entry.dtype)
    except ValueError as error:
        raise DamagedCheckpointError(f"no array can have the shape {list(entry.shape)}: {error}") from error
    flat = tensor.reshape(-1).view(np.uint8)
    _fill(file, flat.data, observe)
    if tensor.dtype == np.bool_ and flat.max(initial=0) > 1:
        raise DamagedCheckpointError("a tensor of type BOOL holds bytes that are neither 0 nor 1")
    return tensor


def _filled(file: SeekableFile, count: int, observe: Callable[[memoryview], object]) -> bytearray:
    buffer = bytearray(count)
    _fill(file, memoryview(buffer), observe)
    return buffer


def _fill(file: SeekableFile, view: memoryview, observe: Callable[[memoryview], object]) -> None:
    done = 0
    while done < len(view):
        count = file.readinto(view[done : done + _PIECE])
        if not count:
            raise DamagedCheckpointError("the file ends before its last tensor does")
        observe(view[done : done + count])
        done += count
