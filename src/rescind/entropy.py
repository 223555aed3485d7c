"""Where noise gets its bytes: the operating system's secret randomness, or a seed that voids certificates.

Whoever knows the bytes can subtract the noise. So the certified path, ``secret_noise``, takes neither a
source nor a seed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from itertools import count as count_from
from types import MappingProxyType
from typing import NoReturn, final

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from rescind.core.arrays import Tensor
from rescind.core.noise import GRID, ByteSource, add_noise, is_public_sigma

# ChaCha20's block counter has 32 bits in some libraries, which then repeat the stream after 2^38 bytes.
_BYTES_PER_KEY = 2**36


class _Keystream:
    """ChaCha20 output under one key after the other, each from counter 0 and never rewound."""

    def __init__(self, next_key: Callable[[], bytes]) -> None:
        self._next_key = next_key
        self._change_key()

    def _change_key(self) -> None:
        key = bytearray(self._next_key())
        # A key is used for one stream only, so the nonce (counter and all) may start at zero.
        self._encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
        # The cipher has its own copy; without this the key would stay readable on the algorithm object.
        key[:] = bytes(len(key))
        self._left = _BYTES_PER_KEY

    def read(self, count: int) -> bytes:
        if count > _BYTES_PER_KEY:
            raise ValueError(f"at most {_BYTES_PER_KEY} bytes can be read at once, got {count}")
        if count > self._left:
            self._change_key()
        self._left -= count
        return self._encryptor.update(bytes(count))


@final
class SecretBytes:
    """Bytes that nobody can know or draw again: ChaCha20 under a key of the operating system.

    There is no seed. The key exists inside the cipher only, a fresh one follows every 2^36 bytes, and the
    object cannot be copied, stored, or used by another process: each would repeat bytes.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._stream: _Keystream | None = _Keystream(_system_key)

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes; no byte is given twice."""
        if self._stream is None:
            raise ValueError("these secret bytes are closed: make new ones")
        if os.getpid() != self._process:
            raise RuntimeError("a forked process would repeat its parent's secret bytes: make new ones in it")
        return self._stream.read(count)

    def close(self) -> None:
        """Drop the cipher and with it the key."""
        self._stream = None

    def __enter__(self) -> SecretBytes:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError("secret bytes cannot be copied or stored: the copy would repeat them")

    def __repr__(self) -> str:
        return "SecretBytes()"


@final
class ReproducibleBytesNeverCertified:
    """Bytes that a seed decides, for experiments: whoever has the seed has the noise, so no certificate."""

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise ValueError(f"seed must not be negative, got {seed}")
        keys = (hashlib.sha256(f"rescind experiment {seed} {number}".encode()) for number in count_from())
        self._stream = _Keystream(lambda: next(keys).digest())

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes of the seed's stream."""
        return self._stream.read(count)


def secret_noise(parameters: Mapping[str, Tensor], sigma: float, grid: float = GRID) -> Mapping[str, Tensor]:
    """Return tensors with noise that nobody can subtract or draw again: the only noise that a certificate may use.

    They are read-only, so that what is certified is what was drawn.

    ``sigma`` has to be on the public list: any other value could tell what it was computed from.
    """
    if not is_public_sigma(sigma):
        raise ValueError(
            f"sigma must be a power of sqrt 2, as public_sigma gives it, got {sigma!r}; an exact plan, with sigma 0, "
            "needs no noise and no call of this function"
        )
    with SecretBytes() as source:
        return _noised(parameters, sigma, grid, source)


def reproducible_noise_never_certified(
    parameters: Mapping[str, Tensor], sigma: float, grid: float = GRID, *, seed: int
) -> Mapping[str, Tensor]:
    """Return tensors with noise that a seed decides, for experiments; no certificate may use it."""
    return _noised(parameters, sigma, grid, ReproducibleBytesNeverCertified(seed))


def _noised(parameters: Mapping[str, Tensor], sigma: float, grid: float, source: ByteSource) -> Mapping[str, Tensor]:
    noised = add_noise(parameters, sigma, grid, source)
    for tensor in noised.values():
        tensor.flags.writeable = False
    return MappingProxyType(noised)


def _system_key() -> bytes:
    return os.urandom(32)
