"""Gaussian noise that a certificate may rest on, as a pure transform of random bytes.

The guarantee is about the noise as it was really drawn, so the sampler has no short cut in the tail, the
standard deviation comes from a public list, and the sum lies on a grid that was fixed before training.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from rescind.core.arrays import Tensor
from rescind.core.calibration import attack_power

# Coarse on purpose: the noise's own float64 rounding, about 2^-50 sigma, has to vanish inside one step.
GRID = 2.0**-20

# Values per block: small enough that the few arrays in use stay in a core's cache. A seed's noise depends
# on it, because a block's words are read before the bytes that continue its rare exponents.
_BLOCK = 2**15

# A word (little-endian), from its top: a sign bit, eleven bits of the geometric exponent, 52 bits of the
# mantissa. Exponent bits that go on are read from the top of big-endian 8-byte words.
_SIGN = 1 << 63
_MANTISSA = (1 << 52) - 1
_EXPONENT_BITS = 11
# Leading zeros are counted up to here, where u reaches the smallest normal float64, 2^-1022.
_MOST_ZEROS = 1020

_SQRT_HALF = math.sqrt(2.0) / 2
# Beyond it e^epsilon times any probability that is not accounted for would exceed 1.
_LARGEST_EXPONENT = 40.0
# Of larger parameters float64 could not hold the sum finely enough beside the grid.
_MOST_STEPS = 2.0**48


class ByteSource(Protocol):
    """A source of bytes that are uniform and independent, and never the same ones twice.

    Theory section 10.
    """

    def read(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        ...


def fill_standard_normal(out: NDArray[np.float64], source: ByteSource) -> None:
    """Fill a one-dimensional array with independent standard normal values.

    A value is the sign bit times -Phi^-1(u), where u is a uniform number of (0, 1/2) rounded down to 53
    significant bits: a geometric exponent and a 52-bit mantissa. u is never 0 and never 1/2, relatively
    less than 2^-52 below the number it stands for, and reaches |value| = 37.5; what lies beyond has
    probability 2^-1021.

    Theory section 10.
    """
    for start in range(0, out.size, _BLOCK):
        _fill_block(out[start : start + _BLOCK], source)


def public_sigma(sigma: float) -> float:
    """Round a standard deviation up to the public list, the powers of sqrt 2.

    The list holds 2^(k/2) for every integer k, rounded to float64. The float64 next to sqrt 2 lies above
    it, so a member is never below the power it stands for.

    Theory section 10.
    """
    if not _is_normal(sigma):
        raise ValueError(f"sigma must be a positive, finite number of float64's normal range, got {sigma!r}")
    fraction, exponent = math.frexp(sigma)
    if fraction == 0.5:
        return float(sigma)
    return math.ldexp(_SQRT_HALF if fraction <= _SQRT_HALF else 1.0, exponent)


def is_public_sigma(sigma: float) -> bool:
    """Return whether a standard deviation is on the public list.

    Theory section 10.
    """
    return _is_normal(sigma) and math.frexp(sigma)[0] in (0.5, _SQRT_HALF)


def sigma_limits(grid: float = GRID) -> tuple[float, float]:
    """Return the smallest and the largest sigma that may be used on a grid; both are on the public list.

    Below 2^4 steps the rounding would be felt beside the noise: use the smallest sigma instead, as more
    noise never protects less. Above 2^26 steps float64's own rounding of the noise would be felt on the
    grid: a coarser grid has to be fixed before training.

    Theory section 10.
    """
    if not (2.0**-100 <= grid <= 2.0**50 and math.frexp(grid)[0] == 0.5):
        raise ValueError(f"grid must be a power of two from 2^-100 to 2^50, got {grid!r}")
    return grid * 2**4, grid * 2**26


def drawn_guarantee(
    epsilon: float, delta: float, sigma: float, parameters: int, releases: int = 1, grid: float = GRID
) -> tuple[float, float]:
    """Return the (epsilon, delta) of the noise as it is drawn, where ideal noise would give these.

    The difference is what float64 leaves of the sampler's last bits on the grid, for ``parameters`` (d) values and
    for ``releases`` models under separate noise.

    Theory section 10.
    """
    shift, missed = _closeness(sigma, parameters, releases, grid)
    if epsilon + shift > _LARGEST_EXPONENT:
        return epsilon + 2 * shift, 1.0
    return epsilon + 2 * shift, min(1.0, math.exp(shift) * delta + (1 + math.exp(epsilon + shift)) * missed)


def real_attack_power(
    mu: float, false_positive_rate: float, sigma: float, parameters: int, releases: int = 1, grid: float = GRID
) -> float:
    """Return the most that any attack reaches against the noise as it is drawn: e^a T(e^a FPR + delta_1) + delta_1.

    T is what it reaches against ideal noise, ``attack_power``; the others are those of ``really_reached``.

    Theory section 10.
    """
    shift, missed = _closeness(sigma, parameters, releases, grid)
    if shift > _LARGEST_EXPONENT:
        return 1.0
    accused = math.exp(shift) * false_positive_rate * (1 + 2.0**-50) + missed
    if accused >= 1:
        return 1.0
    return min(1.0, (math.exp(shift) * attack_power(mu, accused) + missed) * (1 + 2.0**-50))


def grid_rounding(parameters: int, norm: float, unit_roundoff: float, grid: float = GRID) -> float:
    """Return what rounding may add to the distance of two worlds that get the same noise: g sqrt(d) + 4 u ||theta||.

    ``norm`` is that of the noised model; the second term is the sum's own rounding and the cast to a type with this
    ``unit_roundoff`` (u), in both worlds.

    Theory section 4.
    """
    return grid * math.sqrt(parameters) + 4 * unit_roundoff * norm


def add_noise(parameters: Mapping[str, Tensor], sigma: float, grid: float, source: ByteSource) -> dict[str, Tensor]:
    """Add N(0, sigma^2) to every parameter, round to multiples of ``grid``, cast to the parameter's type.

    The tensors are new and in the mapping's order; the noise is drawn in the order of the sorted names.
    ``grid`` is a public constant fixed before training: one that follows sigma or the data tells them.

    Theory section 10.
    """
    _check_fit(sigma, grid)
    for name, tensor in parameters.items():
        if not isinstance(tensor, np.ndarray) or tensor.dtype not in (np.float32, np.float64):
            kind = getattr(tensor, "dtype", type(tensor).__name__)
            raise ValueError(f"parameter {name!r} must be an array of float32 or float64, not {kind}")
    noised = {name: _noised(name, parameters[name], sigma, grid, source) for name in sorted(parameters)}
    return {name: noised[name] for name in parameters}


def _closeness(sigma: float, parameters: int, releases: int, grid: float) -> tuple[float, float]:
    """Return (a, delta_1): how close the laws of real and of ideal noise are, in both directions."""
    _check_fit(sigma, grid)
    steps = sigma / grid
    shift = releases * (2.0**-47 * (9 * math.sqrt(parameters) + 432) * steps + parameters * 2.0**-94 * steps**2)
    return shift, releases * (3e-18 + 2e-23 * parameters)


def _check_fit(sigma: float, grid: float) -> None:
    smallest, largest = sigma_limits(grid)
    if not smallest <= sigma <= largest:
        raise ValueError(f"on grid {grid!r} sigma must be from {smallest!r} to {largest!r}, got {sigma!r}")


def _noised(name: str, tensor: Tensor, sigma: float, grid: float, source: ByteSource) -> Tensor:
    # The copy becomes the output, block by block, so that no second copy in float64 is ever held.
    noised = np.array(tensor, order="C")
    flat = noised.reshape(-1)
    scratch = np.empty(min(_BLOCK, flat.size))
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        if not (np.abs(part) <= _MOST_STEPS * grid).all():
            raise ValueError(f"parameter {name!r} has a value that is not finite or exceeds {_MOST_STEPS * grid:g}")
        values = scratch[: part.size]
        fill_standard_normal(values, source)
        values *= sigma
        values += part
        # Both scalings are exact, as the grid is a power of two.
        values /= grid
        np.rint(values, out=values)
        values *= grid
        part[:] = values
    return noised


def _fill_block(out: NDArray[np.float64], source: ByteSource) -> None:
    words = np.frombuffer(_read(source, 8 * out.size), "<u8")
    # The shifted words are below 2^12: "clip" only spares the bounds check.
    np.take(_SCALES, (words >> 52).view(np.int64), out=out, mode="clip")
    for position in np.flatnonzero(out == 0.0):
        out[position] = _scale(_continued_zeros(source))
    bits = out.view(np.uint64)
    bits |= words & _MANTISSA
    scipy.special.ndtri(out, out=out)
    bits ^= words & _SIGN


def _continued_zeros(source: ByteSource) -> int:
    """Count the leading zeros of an exponent whose bits in the word were all zero."""
    zeros = _EXPONENT_BITS
    while zeros < _MOST_ZEROS:
        word = int.from_bytes(_read(source, 8), "big")
        zeros += 64 - word.bit_length()
        if word:
            break
    return min(zeros, _MOST_ZEROS)


def _scale(zeros: int) -> float:
    """Return the lower end of the binade in (0, 1/2) that a count of leading zeros selects."""
    return math.ldexp(1.0, -2 - zeros)


def _scales() -> NDArray[np.float64]:
    """Tabulate the lower end of u's binade by a word's top 12 bits; 0 where the word does not tell."""
    exponents = [bits % 2**_EXPONENT_BITS for bits in range(2 ** (1 + _EXPONENT_BITS))]
    return np.array([_scale(_EXPONENT_BITS - bits.bit_length()) if bits else 0.0 for bits in exponents])


def _read(source: ByteSource, count: int) -> bytes:
    data = source.read(count)
    if len(data) != count:
        raise ValueError(f"the source gave {len(data)} bytes instead of {count}")
    return data


def _is_normal(value: float) -> bool:
    return sys.float_info.min <= value <= 2.0**1023


_SCALES = _scales()
