"""Tamper-evident and erasable at once: salted commitments, a Merkle root a round, a chain over all entries.

A participant's numbers enter the root of its round under a salt that its own key and the round's random salt give,
what the server computed under the round's; a name is committed to under a nonce that lies beside it. Once salt or
nonce is deleted the root tells nothing about what went with it, and the chain of roots still verifies.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rescind.core.edges import ModelId
from rescind.ledger.records import Entry, RoundRecord, Stretch

KEY_BYTES = 32

# The head before the first entry.
NO_HEAD = hashlib.sha256(b"rescind history, schema 1").digest()

# What a client's log says before a head.
LOGGED = "the history's head was "

_HEAD_IN_HEX = re.compile(rb"[0-9a-f]{64}(?![0-9A-Za-z])")
_LARGEST_LOG = 2**24

# One prefix per kind of input, so that nothing passes for something else.
_LEAF, _INNER, _HEADER, _ENTRY, _SALT, _STRETCH, _NAME, _LABEL, _ROW, _OBJECT = (
    bytes([number]) for number in range(10)
)


def canonical(body: Mapping[str, Any]) -> bytes:
    """Return the bytes that stand for a document: JSON with sorted keys and without spaces."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def round_root(round_: RoundRecord, keys: Mapping[int, bytes]) -> bytes:
    """Commit to a round: a leaf for what the server computed, and one for each participant."""
    return merkle_root([_header(round_), *leaves(round_, keys)])


def leaves(round_: RoundRecord, keys: Mapping[int, bytes]) -> list[bytes]:
    """Return each participant's salted commitment, in the round's order."""
    where, rows = round_.salt + _place(round_.model_id), memoryview(round_.participants.tobytes())
    size, clients = round_.participants.dtype.itemsize, round_.clients.tolist()
    return [
        hashlib.sha256(_LEAF + salt(keys[client], where) + rows[at * size : (at + 1) * size]).digest()
        for at, client in enumerate(clients)
    ]


def stretch_digest(stretch: Stretch) -> str:
    """Commit to what is left of an erased stretch."""
    parts = (
        _framed(stretch.salt),
        _place(stretch.origin),
        bytes([stretch.common_factor]),
        stretch.remaining.tobytes(),
    )
    return hashlib.sha256(_STRETCH + struct.pack(">Q", stretch.branch) + b"".join(parts)).hexdigest()


def name_leaf(nonce: bytes, client: int, name: str) -> bytes:
    """Commit to a client's name, under the nonce that is erased with it."""
    return hashlib.sha256(_NAME + _framed(nonce) + struct.pack(">Q", client) + name.encode()).digest()


def label_leaf(nonce: bytes, client: int, label: str) -> bytes:
    """Commit to what people call a client, under the nonce of its name."""
    return hashlib.sha256(_LABEL + _framed(nonce) + struct.pack(">Q", client) + label.encode()).digest()


def object_leaf(key: bytes, client: int, digest: str) -> bytes:
    """Commit to a client's object, under the key that is erased with the client."""
    return hmac.digest(key, _OBJECT + struct.pack(">Q", client) + bytes.fromhex(digest), "sha256")


def row_leaf(nonce: bytes, request: int, row: bytes) -> bytes:
    """Commit to a row that a client leaves out for a request, under a nonce that the client keeps."""
    return hashlib.sha256(_ROW + _framed(nonce) + struct.pack(">Q", request) + row).digest()


def salt(key: bytes, where: bytes) -> bytes:
    """Derive the salt of one contribution, so that one can be opened without opening others."""
    return hmac.digest(key, _SALT + where, "sha256")


def merkle_root(level: Sequence[bytes]) -> bytes:
    """Return the root over the leaves; the last one of an odd level goes up as it is."""
    while len(level) > 1:
        paired = [_inner(left, right) for left, right in zip(level[::2], level[1::2], strict=False)]
        level = paired if len(level) % 2 == 0 else [*paired, level[-1]]
    return level[0]


def merkle_paths(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """Return what leads from each leaf to the root, of leaves whose number is a power of two."""
    paths: list[list[bytes]] = [[] for _ in leaves]
    level, height = leaves, 0
    while len(level) > 1:
        for place, path in enumerate(paths):
            path.append(level[place >> height ^ 1])
        level, height = [_inner(*pair) for pair in zip(level[::2], level[1::2], strict=True)], height + 1
    return paths


def follow_path(leaf: bytes, place: int, path: Sequence[bytes]) -> bytes:
    """Return the root that a leaf at a place leads to."""
    for beside in path:
        leaf, place = _inner(beside, leaf) if place % 2 else _inner(leaf, beside), place // 2
    return leaf


def next_entry(previous: Entry | None, kind: str, time: str, body: Mapping[str, Any], root: bytes = b"") -> Entry:
    """Make the entry that follows, chained to all that came before it; ``root`` is a round's."""
    sequence, head = (previous.sequence + 1, previous.head) if previous else (1, NO_HEAD)
    parts = (kind.encode(), time.encode(), canonical(body), root)
    text = head + struct.pack(">Q", sequence) + b"".join(_framed(part) for part in parts)
    return Entry(sequence, kind, time, dict(body), root, hashlib.sha256(_ENTRY + text).digest())


def stamp(secret: bytes, head: bytes) -> bytes:
    """Return what shows that an entry with this head was written by somebody who had the secret."""
    return hmac.digest(secret, head, "sha256")


def broken_links(entries: Iterable[Entry]) -> list[int]:
    """Return the sequence numbers of the entries that do not follow from those before them."""
    broken: list[int] = []
    previous: Entry | None = None
    for entry in entries:
        expected = next_entry(previous, entry.kind, entry.time, entry.body, entry.root)
        if (entry.sequence, entry.head) != (expected.sequence, expected.head):
            broken.append(entry.sequence)
        previous = entry
    return broken


def read_heads(path: str | os.PathLike[str]) -> frozenset[bytes]:
    """Return the heads of the chain in a file: one a line, in 64 hexadecimal digits, or as a client's log tells it.

    By heads that clients were handed a history is known that was rewritten or rolled back.

    Raises:
        ValueError: The file is too large, has no head, or has a line without one; lines that are empty do not count.
    """
    with Path(path).open("rb") as file:
        content = file.read(_LARGEST_LOG + 1)
    if len(content) > _LARGEST_LOG:
        raise ValueError(
            f"{path} has more than {_LARGEST_LOG >> 20} MiB: keep the lines that say {LOGGED.strip()!r} only"
        )
    heads = set()
    for number, line in enumerate(content.splitlines(), start=1):
        _, logged, rest = line.rpartition(LOGGED.encode())
        match = _HEAD_IN_HEX.match(rest) if logged else _HEAD_IN_HEX.fullmatch(line.strip())
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


def _inner(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_INNER + left + right).digest()


def _header(round_: RoundRecord) -> bytes:
    gram = b"" if round_.gram is None else round_.gram.astype("<f8").tobytes()
    numbers = struct.pack("<ddd", round_.update_norm, round_.rounding, round_.factor)
    committed = numbers + bytes.fromhex(round_.model) + hashlib.sha256(gram).digest()
    return hashlib.sha256(_HEADER + round_.salt + _place(round_.model_id) + committed).digest()


def _place(model_id: ModelId) -> bytes:
    return struct.pack(">QQ", model_id.branch, model_id.round)


def _framed(text: bytes) -> bytes:
    return struct.pack(">Q", len(text)) + text
