"""Random numbers that depend on a secret and on words, such as a client's name and a round, and on nothing else.

What a client draws must not depend on who else takes part: a shared stream would carry a leaving client's presence to
everybody else's batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescind.history.records import Place


def coin(secret: bytes, *words: str | int) -> float:
    """Give a uniform number of [0, 1) for these words."""
    return (number(secret, *words) >> 203) / 2**53


def stream(secret: bytes, *words: str | int) -> np.random.Generator:
    """Give a stream of random numbers for these words."""
    return np.random.Generator(np.random.PCG64(number(secret, *words)))


def client_seed(secret: bytes, name: str, place: Place) -> bytes:
    """Give what a client derives its randomness in the round that makes the model at a place from."""
    return number(secret, "client", name, place.branch, place.round).to_bytes(32, "big")


def batches(seed: bytes, count: int, size: int, steps: int) -> NDArray[np.int64]:
    """Choose the rows of every local step, (steps, size): permutations of all rows in a row, cut into pieces."""
    generator, needed = stream(seed, "batches"), steps * size
    permutations = [generator.permutation(count) for _ in range(-(-needed // count))]
    return np.concatenate(permutations)[:needed].reshape(steps, size)


def drawn(
    secret: bytes, place: Place, present: Sequence[str], *, rate: float | None = None, size: int | None = None
) -> list[str]:
    """Choose participants by coins that are each client's own, so that nobody's presence changes another's.

    Each takes part with probability ``rate``, or those ``size`` do whose coins are smallest; without either, all do.
    """
    if rate is None and size is None:
        return list(present)
    coins = {name: coin(secret, "sampling", name, place.branch, place.round) for name in present}
    if rate is not None:
        return [name for name in present if coins[name] < rate]
    chosen = set(sorted(present, key=lambda name: (coins[name], name))[:size])
    return [name for name in present if name in chosen]


def number(secret: bytes, *words: str | int) -> int:
    """Give an integer below 2^256 for these words."""
    # Lengths first, so that no two lists of words have the same bytes.
    parts = [str(word).encode() for word in words]
    data = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    digest = hashlib.blake2b(data, digest_size=32, key=hashlib.sha256(secret).digest()).digest()
    return int.from_bytes(digest, "big")
