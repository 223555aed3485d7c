"""The repeated-noise audit: release two worlds many times over, and see how well anybody can tell them apart.

The two worlds are fixed models, with and without the leaving. Only the noise differs from release to release, which
is all the randomness that a guarantee speaks of. A rule to tell the worlds apart is learned from one half of the
releases; how well it does on the other half bounds epsilon and mu from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import ndtri

from rescind.audit.intervals import Rate
from rescind.core.arrays import Floats, Tensor

Model: TypeAlias = Mapping[str, Tensor]
# How strongly the learned covariance is drawn to a multiple of the identity: from as it is to not at all.
_SHRUNK = (0.01, 0.1, 0.5, 1.0)
# Of more parameters the covariance is not looked at: it would not fit, and nothing would be learned of it.
_LARGE = 4000


@dataclass(frozen=True, slots=True)
class LowerBound:
    """What the two worlds are told apart by at least: ``accused`` of the releases with, and of those without.

    Whatever was released, each of ``mu`` and ``epsilon`` is below the true one, except with the probability that was
    allowed. ``mu`` uses that the certificate's own claim is about Gaussian noise, and is the sharper one; ``epsilon``
    uses the definition alone.
    """

    accused_with: Rate
    accused_without: Rate
    delta: float

    @property
    def mu(self) -> float:
        """What mu is at least."""
        low, high = self.accused_with.low, self.accused_without.high
        return max(0.0, float(ndtri(low) - ndtri(high))) if low > 0 and high < 1 else 0.0

    @property
    def epsilon(self) -> float:
        """What epsilon is at least, at this delta."""
        low, high = self.accused_with.low, self.accused_without.high
        shares = ((low, high), (1 - high, 1 - low))
        return max([0.0, *(math.log((more - self.delta) / less) for more, less in shares if more > self.delta)])


def tell_apart(
    release: Callable[[Model], Model],
    release_without: Callable[[Model], Model],
    model: Model,
    model_without: Model,
    *,
    delta: float,
    releases: int = 1000,
    risk: float = 0.05,
) -> LowerBound:
    """Release both worlds ``releases`` times each, and bound from below how well they can be told apart.

    ``release`` makes of the model to restart from what is given away: noise, and a short retraining without the
    leaving; ``release_without`` does so in the world that never saw them, and is the same thing if all is well. Of
    several audits that have to hold together, each gets its part of ``risk``.

    Theory section 15.
    """
    if releases < 20:
        raise ValueError(f"releases is {releases}; fewer than 20 tell nothing")
    seen = np.array([_flat(release(model)) for _ in range(releases)])
    other = np.array([_flat(release_without(model_without)) for _ in range(releases)])
    if not (np.isfinite(seen).all() and np.isfinite(other).all()):
        raise ValueError("a release has numbers that are not finite: nothing can be told from it")
    half = releases // 2
    towards = _flat(model) - _flat(model_without)
    rules = ((_best_rule(way, seen[:half], other[:half]), way) for way in _ways(towards, seen[:half], other[:half]))
    (_, threshold), way = max(rules, key=lambda rule: rule[0][0])
    # Learned from the one half, tried once on the other: the intervals are exact.
    return LowerBound(
        Rate(int((seen[half:] @ way > threshold).sum()), releases - half, risk / 2),
        Rate(int((other[half:] @ way > threshold).sum()), releases - half, risk / 2),
        delta,
    )


def _ways(towards: Floats, seen: Floats, other: Floats) -> Iterator[Floats]:
    """Return directions to look along: to the other world, between the means, and the same where it is narrow."""
    between = seen.mean(axis=0) - other.mean(axis=0)
    yield towards
    yield between
    if len(between) > _LARGE:
        return
    centred = np.concatenate([seen - seen.mean(axis=0), other - other.mean(axis=0)])
    covariance = centred.T @ centred / len(centred)
    spread = np.trace(covariance) / len(covariance)
    if spread > 0:
        for share in _SHRUNK:
            shrunk = (1 - share) * covariance + share * spread * np.eye(len(covariance))
            yield np.asarray(np.linalg.solve(shrunk, between))


def _best_rule(way: Floats, seen: Floats, other: Floats) -> tuple[float, float]:
    """Return the threshold along a way that tells most, and how much."""
    with_, without = np.sort(seen @ way), np.sort(other @ way)
    places = np.unique(np.concatenate([with_, without]))
    thresholds = np.concatenate([(places[1:] + places[:-1]) / 2, places[:1]])
    # A share of 0 or 1 among so few is none of all; this much is added to each side.
    accused = (len(with_) - np.searchsorted(with_, thresholds, side="right") + 0.5) / (len(with_) + 1)
    wrongly = (len(without) - np.searchsorted(without, thresholds, side="right") + 0.5) / (len(without) + 1)
    told = ndtri(accused) - ndtri(wrongly)
    # Where both shares are nearly 0 or 1, few releases decide: those in the middle are better known.
    noise = np.sqrt(_variance(accused, len(with_)) + _variance(wrongly, len(without)))
    best = int(np.argmax(told - 2 * noise))
    return float((told - 2 * noise)[best]), float(thresholds[best])


def _variance(share: Floats, trials: int) -> Floats:
    """Return the variance of ndtri of a share that was measured."""
    density = np.exp(-(ndtri(share) ** 2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(share * (1 - share) / trials / density**2)


def _flat(model: Model) -> Floats:
    return np.concatenate([np.asarray(model[name], dtype=np.float64).ravel() for name in sorted(model)])
