"""The noise of a certificate: its speed from secret bytes, and whether it is Gaussian, far tail included.

The bytes are secret, so every run draws others: a p-value below 0.001 comes up in one run of a thousand.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr
from scipy.stats import combine_pvalues, kstest

from benchmarks._measure import finish, parser, progress
from rescind.core.noise import ByteSource, fill_standard_normal
from rescind.entropy import SecretBytes

VALUES = 10**7
CHUNK = 10**6
TAIL_CHUNK = 10**4
# Leading zeros of u's exponent: they put |value| beyond 7.0, 8.0, 10.0 and 20.0.
TAILS = (39, 50, 76, 294)

# The mean and the variance of a standard normal value's first four powers.
MOMENTS = {"mean": (0.0, 1.0), "variance": (1.0, 2.0), "skewness": (0.0, 15.0), "kurtosis": (3.0, 96.0)}


class OnlyTheTail:
    """Forces the leading zeros of every exponent, so that the sampler gives its tail; good for one block."""

    def __init__(self, source: ByteSource, zeros: int) -> None:
        self._source = source
        # The eleven exponent bits of the word itself are forced first.
        self._forced = self._left = zeros - 11
        self._words_given = False

    def read(self, count: int) -> bytes:
        data = self._source.read(count)
        if not self._words_given:
            self._words_given = True
            return (np.frombuffer(data, "<u8") & ~np.uint64(0x7FF << 52)).tobytes()
        forced = min(self._left, 64)
        self._left -= forced
        word = int.from_bytes(data, "big") >> forced
        if word:
            self._left = self._forced
        return word.to_bytes(8, "big")


def tail_probabilities(source: ByteSource, zeros: int, count: int) -> NDArray[np.float64]:
    """Draw tail values and give P(|Z| > |value|) inside the tail: uniform if the tail is Gaussian."""
    values = np.empty(count)
    fill_standard_normal(values, OnlyTheTail(source, zeros))
    probabilities: NDArray[np.float64] = np.exp(log_ndtr(-np.abs(values)) + (zeros + 1) * np.log(2.0))
    return probabilities


def moment_scores(values: NDArray[np.float64]) -> dict[str, float]:
    """Return the first four moments' distances from the ideal ones, in standard errors."""
    scores = {}
    power = np.ones_like(values)
    for name, (mean, variance) in MOMENTS.items():
        power *= values
        scores[name] = float((power.mean() - mean) / np.sqrt(variance / values.size))
    return scores


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    values = np.empty(VALUES)
    fastest = float("inf")
    tail_p_values = []
    with SecretBytes() as source:
        for start in progress(range(0, VALUES, CHUNK), "draw"):
            begin = perf_counter()
            fill_standard_normal(values[start : start + CHUNK], source)
            fastest = min(fastest, perf_counter() - begin)
        for zeros in progress(TAILS, "tails"):
            chunks = range(1 if quick else 10)
            tail = np.concatenate([tail_probabilities(source, zeros, TAIL_CHUNK) for _ in chunks])
            tail_p_values.append(float(kstest(tail, "uniform").pvalue))
    scores = moment_scores(values)
    test = kstest(values, "norm")
    finish(
        {
            "values": VALUES,
            "values_per_second": CHUNK / fastest,
            "ks_statistic": float(test.statistic),
            "ks_p_value": float(test.pvalue),
            "mean_z": scores["mean"],
            "variance_z": scores["variance"],
            "skewness_z": scores["skewness"],
            "kurtosis_z": scores["kurtosis"],
            "largest": float(np.abs(values).max()),
            "tail_p_value": float(combine_pvalues(tail_p_values).pvalue),
        }
    )


if __name__ == "__main__":
    main()
