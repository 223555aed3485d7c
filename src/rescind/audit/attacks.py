"""What an attack reaches, with exact intervals: telling two worlds apart, inferring membership, asking for a mark.

*Telling apart*: release two worlds many times over, and see how well anybody can tell them apart. The two worlds are
fixed models, with and without the leaving. Only the noise differs from release to release, which is all the
randomness that a guarantee speaks of. A rule to tell the worlds apart is learned from one half of the releases; how
well it does on the other half bounds epsilon and mu from below.

*Membership inference* with per-example calibration, LiRA (Carlini et al.) for forgetting: the attacker trains shadow
federations, in which it forgets a client as the operator does, and others that never had it. For every example of the
client it learns how confident the released models of either kind are. The released model that is judged is none of
those that it learned from.

*Watermark recall*: a mark is a pattern with a class of its own choosing (Sommer et al.) that only the forgotten
clients' examples carried. A model that never saw it answers with that class about as often as one that was trained
without those clients; one that remembers answers so more often.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy.special import betaincinv, ndtri
from scipy.stats import fisher_exact

from rescind.core.arrays import Floats, Tensor
from rescind.core.calibration import attack_power


@dataclass(frozen=True, slots=True)
class Rate:
    """``hits`` of ``trials``, and what the true share is at least and at most.

    Each end is wrong with a probability of at most ``risk``; the interval of Clopper and Pearson.
    """

    hits: int
    trials: int
    risk: float

    def __post_init__(self) -> None:
        if not 0 <= self.hits <= self.trials or not self.trials:
            raise ValueError(f"{self.hits} of {self.trials} is no share: there has to be at least one trial")
        if not 0 < self.risk < 0.5:
            raise ValueError(f"risk is {self.risk!r}; it has to lie between 0 and 1/2")

    @property
    def share(self) -> float:
        """The share that was seen."""
        return self.hits / self.trials

    @property
    def low(self) -> float:
        """What the true share is at least."""
        return float(betaincinv(self.hits, self.trials - self.hits + 1, self.risk)) if self.hits else 0.0

    @property
    def high(self) -> float:
        """What the true share is at most."""
        missed = self.trials - self.hits
        return float(betaincinv(self.hits + 1, missed, 1 - self.risk)) if missed else 1.0


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


@dataclass(frozen=True, slots=True)
class Power:
    """How many of the forgotten are found, and how many who never were there are wrongly accused meanwhile."""

    found: Rate
    accused: Rate

    def allowed(self, mu: float) -> float:
        """Return how many may be found under a guarantee of ``mu``, at the most that is accused wrongly."""
        return attack_power(mu, self.accused.high) if self.accused.high < 1 else 1.0


def measure_confidence(probabilities: Floats) -> Floats:
    """Return ln(p / (1 - p)) of the probabilities of the right classes: nearly Gaussian, unlike the probabilities."""
    inside = np.clip(probabilities, 1e-12, 1 - 1e-12)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def attack(
    shadows: Floats,
    shadows_without: Floats,
    releases: Floats,
    releases_without: Floats,
    *,
    rates: tuple[float, ...] = (0.001, 0.01, 0.1),
    risk: float = 0.025,
) -> dict[float, Power]:
    """Attack a client through its examples, and return what is reached at each rate of wrong accusations.

    Each array holds confidences, (released models, examples).
    ``shadows`` are the attacker's own, of worlds where the client was forgotten and of worlds ``without`` it. The
    thresholds come from one half of ``releases_without``; all rates are measured on releases that nothing was learned
    from, one score a release, so that they are independent.

    Theory section 15.
    """
    if not all(np.isfinite(values).all() for values in (shadows, shadows_without, releases, releases_without)):
        raise ValueError("a confidence is not finite: nothing can be told from it")
    scores, absent = (_scores(values, shadows, shadows_without) for values in (releases, releases_without))
    learned, tried = absent[::2], absent[1::2]
    by_rate = {}
    for rate in rates:
        threshold = np.quantile(learned, 1 - rate, method="higher")
        by_rate[rate] = Power(
            Rate(int((scores > threshold).sum()), len(scores), risk),
            Rate(int((tried > threshold).sum()), len(tried), risk),
        )
    return by_rate


def _scores(releases: Floats, shadows: Floats, shadows_without: Floats) -> Floats:
    """Return the log-likelihood ratio of each release, the examples taken as independent Gaussians."""
    return np.asarray((_log_density(releases, shadows) - _log_density(releases, shadows_without)).sum(axis=1))


def _log_density(values: Floats, shadows: Floats) -> Floats:
    # A variance of few shadows is drawn towards that of all examples together.
    own, pooled = shadows.var(axis=0), shadows.var(axis=0).mean()
    weight = len(shadows) / (len(shadows) + 16)
    variance = weight * own + (1 - weight) * pooled + 1e-12
    return np.asarray(-((values - shadows.mean(axis=0)) ** 2) / (2 * variance) - np.log(variance) / 2)


@dataclass(frozen=True, slots=True)
class Recall:
    """How often the marked examples get the mark's class: from the released model, and from one without the mark.

    ``p_value`` is how likely a difference at least as large is if the released model knows the mark no better. It is
    about these two models: noise alone makes models differ, so a small one asks for a closer look, by ``attack``.
    """

    released: Rate
    reference: Rate
    p_value: float


def measure_recall(
    hits: int, trials: int, reference_hits: int, reference_trials: int, *, risk: float = 0.025
) -> Recall:
    """Compare the released model with one that never saw the mark, by Fisher's exact test, one-sided.

    Theory section 15.
    """
    released, reference = Rate(hits, trials, risk), Rate(reference_hits, reference_trials, risk)
    table = np.array([[hits, trials - hits], [reference_hits, reference_trials - reference_hits]])
    return Recall(released, reference, float(fisher_exact(table, alternative="greater").pvalue))
