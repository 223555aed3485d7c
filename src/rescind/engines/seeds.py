"""Random numbers that depend on a secret and on words, such as a client's name and a round, and on nothing else.

What a client draws must not depend on who else takes part: a shared stream would carry a leaving client's presence to
everybody else's batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rescind.core.edges import ModelId


def toss_coin(secret: bytes, *words: str | int) -> float:
    """Return a uniform number of [0, 1) for these words."""
    return (derive_number(secret, *words) >> 203) / 2**53


def random_stream(secret: bytes, *words: str | int) -> np.random.Generator:
    """Return a stream of random numbers for these words."""
    return np.random.Generator(np.random.PCG64(derive_number(secret, *words)))


def client_seed(secret: bytes, name: str, model_id: ModelId) -> bytes:
    """Return the seed from which a client derives all its randomness in the round that makes a model."""
    return derive_number(secret, "client", name, model_id.branch, model_id.round).to_bytes(32, "big")


def choose_batches(seed: bytes, count: int, size: int, steps: int) -> NDArray[np.int64]:
    """Choose the rows of every local step, (steps, size): permutations of all rows in a row, cut into pieces."""
    generator, needed = random_stream(seed, "batches"), steps * size
    permutations = [generator.permutation(count) for _ in range(-(-needed // count))]
    return np.concatenate(permutations)[:needed].reshape(steps, size)


def draw(
    secret: bytes, model_id: ModelId, present: Sequence[str], *, rate: float | None = None, size: int | None = None
) -> list[str]:
    """Choose participants by coins that are each client's own, so that nobody's presence changes another's.

    Each takes part with probability ``rate``, or those ``size`` do whose coins are smallest; without either, all do.
    """
    if rate is None and size is None:
        return list(present)
    coins = {name: toss_coin(secret, "sampling", name, model_id.branch, model_id.round) for name in present}
    if rate is not None:
        return [name for name in present if coins[name] < rate]
    chosen = set(sorted(present, key=lambda name: (coins[name], name))[:size])
    return [name for name in present if name in chosen]


def derive_number(secret: bytes, *words: str | int) -> int:
    """Return an integer below 2^256 for these words."""
    # Lengths first, so that no two lists of words have the same bytes.
    parts = [str(word).encode() for word in words]
    data = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    digest = hashlib.blake2b(data, digest_size=32, key=hashlib.sha256(secret).digest()).digest()
    return int.from_bytes(digest, "big")
