"""Membership inference with per-example calibration: was the client ever there, before it was forgotten.

LiRA (Carlini et al.) for forgetting: the attacker trains shadow federations, in which it forgets a client as the
operator does, and others that never had it. For every example of the client it learns how confident the released
models of either kind are. The released model that is judged is none of those that it learned from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rescind.audit.intervals import Rate
from rescind.core.arrays import Floats
from rescind.core.calibration import attack_power


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
