"""The sampler bit for bit and as a distribution, the public list of sigma, and noise on the grid.

The statistical tests draw from fixed seeds, so they cannot flake; each would fail for one seed in a
million if the sampler were ideal.
"""

import math
import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from scipy.stats import chisquare, kstest, norm

from benchmarks.noise import moment_scores, tail_probabilities
from rescind.core.calibration import attack_power
from rescind.core.noise import (
    GRID,
    add_noise,
    drawn_guarantee,
    fill_standard_normal,
    grid_rounding,
    is_public_sigma,
    public_sigma,
    real_attack_power,
    sigma_limits,
)
from rescind.entropy import ReproducibleBytesNeverCertified

LEVEL = 1e-6
SCORE = float(norm.isf(LEVEL / 2))
SIGMA = 2.0**-3
FULL_MANTISSA = 2**52 - 1


class Canned:
    """Gives prepared bytes and nothing else, and knows how many were read."""

    def __init__(self, data):
        self.data = data
        self.used = 0

    def read(self, count):
        assert self.used + count <= len(self.data)
        self.used += count
        return self.data[self.used - count : self.used]


class Recorded:
    """Passes bytes on and keeps what it gave."""

    def __init__(self, source):
        self.source = source
        self.given = []

    def read(self, count):
        self.given.append(self.source.read(count))
        return self.given[-1]


def word(exponent_bits, mantissa, sign=0):
    return (sign << 63 | exponent_bits << 52 | mantissa).to_bytes(8, "little")


def continued(zeros):
    """Return the bytes that end an exponent with this many zeros after the word's own eleven."""
    return bytes(8 * (zeros // 64)) + (1 << 63 - zeros % 64).to_bytes(8, "big")


def draw(data, count=1):
    source = Canned(data)
    values = np.empty(count)
    fill_standard_normal(values, source)
    assert source.used == len(data)
    return values


def exact_normal(probability):
    """Return Phi^-1 to 50 digits by Newton's method in the logarithm; the probability is an mpf."""
    value = mpmath.mpf(float(ndtri(float(probability))))
    for _ in range(4):
        reached = mpmath.ncdf(value)
        value -= mpmath.log(reached / probability) * reached / mpmath.npdf(value)
    return value


@pytest.fixture(scope="module")
def values():
    drawn = np.empty(2 * 10**6)
    fill_standard_normal(drawn, ReproducibleBytesNeverCertified(1))
    return drawn


# Bit for bit.


@pytest.mark.parametrize("mantissa", [0, 1, 0x5A5A5A5A5A5A5, 2**51, FULL_MANTISSA])
@pytest.mark.parametrize("zeros", [0, 1, 2, 5, 10, 11, 12, 40, 74, 75, 139, 600, 1019, 1020])
def test_a_value_is_the_exact_inverse_of_its_bits(zeros, mantissa):
    exponent_bits, tail = (2 ** (10 - zeros), b"") if zeros < 11 else (0, continued(zeros - 11))
    value = draw(word(exponent_bits, mantissa) + tail)[0]
    with mpmath.workdps(60):
        probability = (1 + mpmath.mpf(mantissa) / 2**52) * mpmath.mpf(2) ** (-2 - zeros)
        assert 0 < probability < 0.5
        assert abs(value / exact_normal(probability) - 1) < 1e-15
    assert draw(word(exponent_bits, mantissa, sign=1) + tail)[0] == -value > 0


def test_only_the_leading_one_of_the_exponent_bits_counts():
    assert draw(word(0b00010000000, 77)) == draw(word(0b00011111111, 77)) == draw(word(0b00010110101, 77))
    first, second = (word(0, 77) + bits.to_bytes(8, "big") for bits in (2**40, 2**41 - 1))
    assert draw(first) == draw(second)


def test_the_exponent_ends_where_float64_does():
    # 11 + 16 * 64 zeros pass the last binade: no further byte is read, and the value is finite.
    cut = draw(word(0, 0) + bytes(8 * 16))[0]
    assert cut == ndtri(2.0**-1022)
    assert -37.6 < cut < -37.5


def test_the_smallest_value_is_not_zero():
    smallest = draw(word(2**10, FULL_MANTISSA))[0]
    assert -1e-15 < smallest < 0


def test_continued_exponents_reach_their_own_values():
    words = [word(2**10, 5), word(0, 6), word(2**10, 7), word(0, 8)]
    values = draw(b"".join(words) + continued(3) + continued(70), count=4)
    alone = [
        draw(words[0]),
        draw(words[1] + continued(3)),
        draw(words[2]),
        draw(words[3] + continued(70)),
    ]
    assert values.tolist() == np.concatenate(alone).tolist()


def test_every_value_takes_its_own_bytes_whatever_the_length():
    count = 2**16 + 3
    source = Recorded(ReproducibleBytesNeverCertified(2))
    values = np.empty(count)
    fill_standard_normal(values, source)
    words = [data for data in source.given if len(data) > 8]
    extra = [data for data in source.given if len(data) == 8]
    assert sum(map(len, words)) == 8 * count
    exponents = np.frombuffer(b"".join(words), "<u8") >> 52 & 0x7FF
    assert len(extra) == np.count_nonzero(exponents == 0) > 0
    assert np.unique(values).size == count


def test_a_source_that_gives_too_little_is_refused():
    class Short:
        def read(self, count):
            return bytes(count - 1)

    with pytest.raises(ValueError, match="gave 79 bytes instead of 80"):
        fill_standard_normal(np.empty(10), Short())


# As a distribution.


def test_the_moments_are_gaussian(values):
    assert np.isfinite(values).all()
    for name, score in moment_scores(values).items():
        assert abs(score) < SCORE, name


def test_the_distribution_is_gaussian(values):
    assert kstest(values, "norm").pvalue > LEVEL


def test_every_binade_has_its_share(values):
    # |value| between the quantiles of 2^-(e+1) and 2^-(e+2) is the exponent e; the last bin is the rest.
    edges = [0.0, *(-ndtri(2.0 ** -np.arange(2, 17))), np.inf]
    counts, _ = np.histogram(np.abs(values), edges)
    shares = 2.0 ** -np.arange(1, 17)
    assert chisquare(counts, values.size * np.append(shares[:15], 2.0**-15)).pvalue > LEVEL


def test_neighbours_and_signs_are_independent(values):
    for lag in (1, 2, 2**14, 2**15):
        product = values[:-lag] * values[lag:]
        assert abs(product.sum()) / math.sqrt(product.size) < SCORE
    sign_and_size = np.sign(values) * (np.abs(values) - math.sqrt(2 / math.pi))
    assert abs(sign_and_size.sum()) / math.sqrt((1 - 2 / math.pi) * values.size) < SCORE


@pytest.mark.parametrize(("zeros", "beyond"), [(39, 7.0), (50, 8.0), (76, 10.0), (294, 20.0)])
def test_the_tail_is_gaussian(zeros, beyond):
    probabilities = tail_probabilities(ReproducibleBytesNeverCertified(zeros), zeros, 20000)
    with mpmath.workdps(30):
        assert exact_normal(mpmath.mpf(2) ** (-1 - zeros)) < -beyond
    assert kstest(probabilities, "uniform").pvalue > LEVEL


# The public list.


@pytest.mark.parametrize("k", [-2000, -41, -40, -3, -2, -1, 0, 1, 2, 3, 7, 600, 2001, 2046])
def test_a_member_is_the_float_at_or_above_its_power(k):
    member = public_sigma(2.0 ** (k // 2)) if k % 2 == 0 else public_sigma(math.ldexp(1.25, k // 2))
    power = Fraction(2) ** k
    assert Fraction(member) ** 2 >= power
    if k % 2:
        assert Fraction(math.nextafter(member, 0)) ** 2 < power
    else:
        assert Fraction(member) ** 2 == power
    assert is_public_sigma(member)
    assert public_sigma(member) == member
    assert not is_public_sigma(math.nextafter(member, 0))
    assert public_sigma(math.nextafter(member, 0)) == member
    if k < 2046:
        above = public_sigma(math.nextafter(member, math.inf))
        assert math.isclose(above, member * math.sqrt(2), rel_tol=1e-15)


@given(st.floats(min_value=2.0**-1022, max_value=2.0**1023))
def test_rounding_goes_up_by_less_than_one_member(sigma):
    member = public_sigma(sigma)
    assert is_public_sigma(member)
    assert sigma <= member < sigma * math.sqrt(2) * (1 + 1e-15)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 1.7e308])
def test_sigmas_outside_the_list_are_refused(sigma):
    with pytest.raises(ValueError, match="got "):
        public_sigma(sigma)
    assert not is_public_sigma(sigma)


def test_the_limits_are_on_the_list():
    assert sigma_limits() == (2.0**-16, 2.0**6)
    assert all(map(is_public_sigma, sigma_limits(2.0**-7)))


# On the grid.


def noise_only(seed, count, sigma=SIGMA, dtype=np.float64):
    source = ReproducibleBytesNeverCertified(seed)
    return add_noise({"a": np.zeros(count, dtype)}, sigma, GRID, source)["a"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sigma", [2.0**-16, public_sigma(0.3), 2.0**6])
def test_the_sum_is_rounded_once_to_the_grid(sigma, dtype):
    parameters = np.random.default_rng(3).normal(scale=4.0, size=500).astype(dtype)
    noised = add_noise({"a": parameters}, sigma, GRID, ReproducibleBytesNeverCertified(4))["a"]
    noise = np.empty(500)
    fill_standard_normal(noise, ReproducibleBytesNeverCertified(4))
    for parameter, value, result in zip(parameters.tolist(), noise.tolist(), noised, strict=True):
        steps = round(Fraction(parameter + sigma * value) / Fraction(GRID))
        assert result == dtype(steps * GRID)
        assert (Fraction(float(result)) / Fraction(GRID)).denominator == 1


def test_the_grid_does_not_follow_sigma():
    odd = {sigma: np.count_nonzero(noise_only(5, 1000, sigma) / GRID % 2) for sigma in (2.0**-10, 1.0)}
    # 500 +- 4.9 standard deviations of a fair coin thrown 1000 times.
    assert all(abs(count - 500) < SCORE * math.sqrt(250) for count in odd.values())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_added_noise_has_the_stated_deviation(dtype):
    noised = noise_only(6, 10**6, dtype=dtype)
    assert noised.dtype == dtype
    scores = moment_scores(noised.astype(np.float64) / SIGMA)
    assert max(map(abs, scores.values())) < SCORE


def test_tensors_and_calls_get_noise_of_their_own():
    count = 10**5
    source = Recorded(ReproducibleBytesNeverCertified(7))
    zeros = {"a": np.zeros(count), "b": np.zeros(count)}
    first = add_noise(zeros, SIGMA, GRID, source)
    second = add_noise(zeros, SIGMA, GRID, source)
    drawn = [first["a"], first["b"], second["a"], second["b"]]
    for index, one in enumerate(drawn):
        for other in drawn[:index]:
            assert abs(one @ other) / SIGMA**2 / math.sqrt(count) < SCORE
    whole = ReproducibleBytesNeverCertified(7).read(sum(map(len, source.given)))
    assert b"".join(source.given) == whole


def test_inputs_stay_and_names_shapes_and_order_are_kept():
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    parameters = {"z": base.T[::2], "scalar": np.array(1.5), "empty": np.empty((0, 3)), "a": base}
    before = {name: tensor.copy() for name, tensor in parameters.items()}
    for tensor in parameters.values():
        tensor.flags.writeable = False
    noised = add_noise(parameters, SIGMA, GRID, ReproducibleBytesNeverCertified(8))
    assert list(noised) == list(parameters)
    for name, tensor in noised.items():
        assert np.array_equal(parameters[name], before[name])
        assert (tensor.shape, tensor.dtype) == (before[name].shape, before[name].dtype)
        assert not np.shares_memory(tensor, parameters[name])
        assert tensor.size == 0 or 0 < np.abs(tensor - before[name]).max() < 8 * SIGMA


def test_the_order_of_the_mapping_does_not_matter():
    one, two = np.ones(3), np.full(4, 2.0)
    forth = add_noise({"a": one, "b": two}, SIGMA, GRID, ReproducibleBytesNeverCertified(9))
    back = add_noise({"b": two, "a": one}, SIGMA, GRID, ReproducibleBytesNeverCertified(9))
    assert all(np.array_equal(forth[name], back[name]) for name in "ab")


def test_the_largest_parameters_lie_on_the_grid_too():
    largest = 2.0**48 * GRID
    noised = add_noise({"a": np.full(1000, largest)}, SIGMA, GRID, ReproducibleBytesNeverCertified(10))["a"]
    assert np.array_equal(noised, np.rint(noised / GRID) * GRID)
    assert np.std(noised - largest) == pytest.approx(SIGMA, rel=0.2)
    with pytest.raises(ValueError, match="exceeds"):
        add_noise({"a": np.array([np.nextafter(largest, np.inf)])}, SIGMA, GRID, ReproducibleBytesNeverCertified(10))


def test_the_memory_is_the_output_and_a_few_blocks():
    parameters = {"a": np.zeros((2048, 1024), np.float32).T}
    tracemalloc.start()
    noised = add_noise(parameters, SIGMA, GRID, ReproducibleBytesNeverCertified(11))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak - noised["a"].nbytes < 8 * 8 * 2**15


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [
        (np.zeros(3, np.float16), "float16"),
        (np.zeros(3, np.int64), "int64"),
        (np.zeros(3, np.complex128), "complex128"),
        (np.zeros(3, np.dtype(np.float64).newbyteorder()), "f8"),
        ([0.0, 1.0], "list"),
        (np.array([0.0, np.nan]), "not finite"),
        (np.array([np.inf], np.float32), "not finite"),
        (np.array([0.0, -1e31]), "exceeds"),
    ],
)
def test_unfit_parameters_are_refused(tensor, reason):
    with pytest.raises(ValueError, match=f"parameter 'weight'.*{reason}"):
        add_noise({"weight": tensor}, SIGMA, GRID, ReproducibleBytesNeverCertified(12))


@pytest.mark.parametrize(
    ("sigma", "grid", "reason"),
    [
        (0.0, GRID, "on grid .* sigma must be from"),
        (math.nan, GRID, "on grid .* sigma must be from"),
        (2.0**-17, GRID, "on grid .* sigma must be from"),
        (public_sigma(65.0), GRID, "on grid .* sigma must be from"),
        (1.0, 1e-6, "grid must be a power of two"),
        (1.0, 0.0, "grid must be a power of two"),
        (1.0, -(2.0**-20), "grid must be a power of two"),
        (1.0, math.nan, "grid must be a power of two"),
        (1.0, math.inf, "grid must be a power of two"),
        (1.0, 2.0**-101, "grid must be a power of two"),
    ],
)
def test_unfit_constants_are_refused(sigma, grid, reason):
    source = Recorded(ReproducibleBytesNeverCertified(13))
    with pytest.raises(ValueError, match=reason):
        add_noise({"a": np.zeros(3)}, sigma, grid, source)
    assert source.given == []


def test_what_floating_point_costs():
    """The sizes in docs/theory.md, and the formula's parts by hand."""
    for sigma, parameters, extra in ((1.0, 10**3, 1.1e-5), (1.0, 10**6, 1.4e-4), (64.0, 10**8, 8.6e-2)):
        epsilon, _ = drawn_guarantee(10.0, 1e-5, sigma, parameters)
        assert epsilon - 10 == pytest.approx(extra, rel=0.05)
    epsilon, delta = drawn_guarantee(1.0, 1e-5, 1.0, 10**6)
    assert delta == pytest.approx(1e-5, rel=1e-3)
    assert delta > 1e-5
    # With nothing to hide, all that is left is the probability that is not accounted for.
    assert drawn_guarantee(0.0, 0.0, 2.0**-10, 10)[1] == pytest.approx(6e-18, rel=1e-3)
    with pytest.raises(ValueError, match="sigma must be from"):
        drawn_guarantee(1.0, 1e-5, 1e-9, 10)


def test_no_attack_on_the_noise_as_drawn_does_better_than_its_bound():
    """Laws that are (a, delta_1)-close to normal ones, as far off as that allows, attacked in the best way."""
    mu, rate, sigma, parameters, releases = 1.0, 0.01, 64.0, 10**6, 10
    bound = real_attack_power(mu, rate, sigma, parameters, releases)
    shift = (drawn_guarantee(0.0, 0.0, sigma, parameters, releases)[0]) / 2
    missed = releases * (3e-18 + 2e-23 * parameters)
    assert shift == pytest.approx(0.045, rel=0.05)
    # The likely outputs are e^a likelier in one world, the accused ones e^a less likely in the other.
    threshold = norm.isf(min(1.0, rate * math.exp(shift)))
    reached = min(1.0, math.exp(shift) * norm.sf(threshold - mu))
    assert attack_power(mu, rate) < reached
    assert reached + missed <= bound <= (reached + missed) * (1 + 1e-9)
    for few, many in ((1, 2), (2, 1000)):
        assert real_attack_power(mu, rate, 1.0, 100, few) < real_attack_power(mu, rate, 1.0, 100, many)
    assert attack_power(mu, rate) < real_attack_power(mu, rate, 2.0**-16, 1) < attack_power(mu, rate) * (1 + 1e-9)
    assert real_attack_power(mu, 0.99, 64.0, 10**8, 100) == real_attack_power(mu, rate, 64.0, 10**12, 10) == 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("apart", [1e-7, 1e-5, 1e-3])
def test_the_grid_parts_two_worlds_by_no_more_than_its_term(dtype, apart):
    """Each world's sum is rounded on its own; without the term a later leaver's distance would be too small."""
    rng = np.random.default_rng(14)
    theta, shift = rng.normal(size=(2, 5000))
    shift *= apart / np.linalg.norm(shift)
    worlds = [(theta + part).astype(dtype) for part in (0.0, shift)]
    before = np.linalg.norm(worlds[0].astype(float) - worlds[1])
    noised = [add_noise({"a": world}, 2.0**-6, GRID, ReproducibleBytesNeverCertified(15))["a"] for world in worlds]
    after = np.linalg.norm(noised[0].astype(float) - noised[1])
    term = grid_rounding(5000, float(np.linalg.norm(noised[0])), float(np.finfo(dtype).eps) / 2)
    assert after <= before + term
    assert apart > 1e-6 or after > before
