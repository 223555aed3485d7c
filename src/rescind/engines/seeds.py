"""Random numbers that depend on a secret and on words, such as a client's name and a round, and on nothing else.

What a client draws must not depend on who else takes part: a shared stream would carry a leaving client's presence to
everybody else's batches.
"""

from __future__ import annotations

import hashlib

import numpy as np


def coin(secret: bytes, *words: str | int) -> float:
    """Give a uniform number of [0, 1) for these words."""
    return (number(secret, *words) >> 203) / 2**53


def stream(secret: bytes, *words: str | int) -> np.random.Generator:
    """Give a stream of random numbers for these words."""
    return np.random.Generator(np.random.PCG64(number(secret, *words)))


def round_seed(secret: bytes, branch: int, round_: int) -> bytes:
    """Give what a round's participants derive their own randomness from, each with its name."""
    return number(secret, "round", branch, round_).to_bytes(32, "big")


def number(secret: bytes, *words: str | int) -> int:
    """Give an integer below 2^256 for these words."""
    # Lengths first, so that no two lists of words have the same bytes.
    parts = [str(word).encode() for word in words]
    data = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    digest = hashlib.blake2b(data, digest_size=32, key=hashlib.sha256(secret).digest()).digest()
    return int.from_bytes(digest, "big")
