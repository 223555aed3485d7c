import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import get_epsilon_gaussian, get_sigma_gaussian
from hypothesis import given
from hypothesis import strategies as st

from rescind.core.calibration import (
    Budget,
    ClassicBudget,
    attack_power,
    composed_mu,
    largest_mu,
    log_delta,
    reached_delta,
    reached_epsilon,
    sensitivity_threshold,
    smallest_sigma,
)

EPSILONS = [1e-3, 3e-3, 0.01, 0.1, 0.5, 1, 2, 3, 5, 10, 20, 50, 100, 200, 400, 800]
DELTAS = [1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.3, 0.5]
budgets = st.builds(
    Budget,
    st.floats(math.log(1e-3), math.log(800)).map(math.exp).map(lambda e: min(max(e, 1e-3), 800.0)),
    st.floats(math.log(1e-12), math.log(0.5)).map(math.exp).map(lambda d: min(max(d, 1e-12), 0.5)),
)


def exact_log_delta(epsilon: float, shift: float, sigma: float = 1.0) -> mpmath.mpf:
    """The definition, in 80 digits."""
    with mpmath.workdps(80):
        epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(shift) / mpmath.mpf(sigma)
        return mpmath.log(
            mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)
        )


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_sigma_agrees_with_dp_accounting(epsilon: float, delta: float) -> None:
    oracle = get_sigma_gaussian(epsilon, delta)
    ours = smallest_sigma(1.0, Budget(epsilon, delta).mu)
    assert -1e-9 <= ours / oracle - 1 <= 1e-6


@pytest.mark.parametrize("mu", np.geomspace(1e-3, 45, 14))
@pytest.mark.parametrize("delta", DELTAS)
def test_epsilon_agrees_with_dp_accounting(mu: float, delta: float) -> None:
    oracle = get_epsilon_gaussian(1 / mu, delta)
    assert reached_epsilon(mu, delta) == pytest.approx(oracle, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_delta_is_an_upper_bound_that_is_tight(epsilon: float, delta: float) -> None:
    mu = largest_mu(epsilon, delta)
    exact = exact_log_delta(epsilon, mu)
    assert exact <= log_delta(epsilon, mu) <= exact + mpmath.mpf("1e-9")
    assert exact <= mpmath.log(mpmath.mpf(delta))


@pytest.mark.parametrize(
    ("epsilon", "at_a_hundredth", "at_a_hundred_thousandth"),
    # dp_accounting 0.6.0 gives the same digits.
    [
        (0.1, 9.542, 30.75),
        (0.5, 3.147, 7.032),
        (1, 1.878, 3.731),
        (2, 1.116, 1.994),
        (5, 0.5694, 0.8919),
        (10, 0.3501, 0.4999),
        (20, 0.2207, 0.2900),
    ],
)
def test_table_of_noise(epsilon: float, at_a_hundredth: float, at_a_hundred_thousandth: float) -> None:
    for delta, sigma in ((1e-2, at_a_hundredth), (1e-5, at_a_hundred_thousandth)):
        assert f"{smallest_sigma(1.0, Budget(epsilon, delta).mu):.4g}" == f"{sigma:.4g}"


@given(budgets)
def test_inverses_meet(budget: Budget) -> None:
    mu = budget.mu
    assert reached_delta(budget.epsilon, mu) <= budget.delta * (1 + 1e-9)
    assert reached_delta(budget.epsilon, mu) == pytest.approx(budget.delta, rel=1e-6)
    assert reached_epsilon(mu, budget.delta) == pytest.approx(budget.epsilon, rel=1e-6)


@given(budgets, st.floats(1e-6, 1e6))
def test_noise_and_threshold_round_towards_privacy(budget: Budget, sensitivity: float) -> None:
    sigma = smallest_sigma(sensitivity, budget.mu)
    threshold = sensitivity_threshold(sigma, budget.mu)
    for hidden in (sensitivity, threshold):
        assert exact_log_delta(budget.epsilon, hidden, sigma) <= mpmath.log(mpmath.mpf(budget.delta))
    assert threshold == pytest.approx(sensitivity, rel=1e-9)


@given(budgets)
def test_a_smaller_budget_needs_more_noise(budget: Budget) -> None:
    tighter = Budget(max(1e-3, budget.epsilon / 2), max(1e-12, budget.delta / 2))
    assert smallest_sigma(1.0, tighter.mu) >= smallest_sigma(1.0, budget.mu) * (1 - 1e-12)


def test_delta_without_epsilon_is_the_total_variation() -> None:
    assert reached_delta(0.0, 1.0) == pytest.approx(math.erf(1 / (2 * math.sqrt(2))), rel=1e-12)
    assert reached_epsilon(0.01, 0.1) == 0.0
    assert log_delta(1.0, 0.0) == -math.inf
    assert log_delta(1.0, 1e-200) == -math.inf
    assert reached_delta(1.0, 1e200) == 1.0


def test_nothing_to_hide_needs_no_noise() -> None:
    assert smallest_sigma(0.0, Budget(1.0, 1e-5).mu) == 0.0


def test_attack_power_of_the_papers_budget() -> None:
    mu = Budget(10, 0.01).mu
    assert mu == pytest.approx(2.856, abs=5e-4)
    assert attack_power(mu, 1e-3) == pytest.approx(0.41, abs=5e-3)
    assert attack_power(0.0, 0.01) == pytest.approx(0.01)
    # Phi(Phi^-1(0.05) + 1), 30 digits of mpmath
    exact = mpmath.ncdf(mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf("0.05") - 1) + 1)
    assert float(exact) <= attack_power(1.0, 0.05) <= float(exact) * (1 + 1e-10)


def test_releases_compose_as_squares() -> None:
    assert composed_mu((3.0, 4.0)) == pytest.approx(5.0)
    assert composed_mu((3.0, 4.0)) >= 5.0
    assert composed_mu(()) == 0.0


def test_classic_knows_where_it_is_wrong() -> None:
    paper = ClassicBudget(10, 0.01)
    assert paper.reached_delta == pytest.approx(0.0406, abs=5e-5)
    assert not paper.holds
    assert not paper.certifiable
    # The largest epsilon for which the formula's noise is enough, to two digits behind the point.
    for delta, last in ((1e-2, 6.77), (1e-5, 8.42)):
        assert ClassicBudget(last - 0.01, delta).holds
        assert not ClassicBudget(last + 0.01, delta).holds


def test_classic_wastes_noise_where_it_holds() -> None:
    for epsilon, waste in ((0.1, 3.26), (1.0, 1.65)):
        assert Budget(epsilon, 0.01).mu / ClassicBudget(epsilon, 0.01).mu == pytest.approx(waste, rel=0.01)


@pytest.mark.parametrize(
    ("epsilon", "delta", "named"),
    [(0, 0.1, "0"), (801, 0.1, "801"), (1, 0, "0"), (1, 0.6, "0.6"), (math.nan, 0.1, "nan"), (1, math.nan, "nan")],
)
def test_a_budget_out_of_range_names_the_value(epsilon: float, delta: float, named: str) -> None:
    with pytest.raises(ValueError, match=f"is {named}; it has to lie in"):
        Budget(epsilon, delta)


@pytest.mark.parametrize("mu", [-1.0, math.inf, math.nan])
def test_a_mu_that_is_none_is_refused(mu: float) -> None:
    for call in (lambda: log_delta(1.0, mu), lambda: reached_epsilon(mu, 0.1), lambda: attack_power(mu, 0.1)):
        with pytest.raises(ValueError, match="mu is"):
            call()


def test_a_false_positive_rate_is_a_probability() -> None:
    with pytest.raises(ValueError, match=r"false_positive_rate is 1\.5"):
        attack_power(1.0, 1.5)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_inverses_keep_the_inequality_they_stand_for(epsilon: float, delta: float) -> None:
    mu = largest_mu(epsilon, delta)
    assert log_delta(epsilon, mu) <= math.log(delta)
    assert log_delta(reached_epsilon(mu, delta), mu) <= math.log(delta)


@given(budgets, st.floats(1e-6, 1e6))
def test_noise_is_rounded_up_and_the_threshold_down(budget: Budget, value: float) -> None:
    mu = Fraction(budget.mu)
    assert Fraction(smallest_sigma(value, budget.mu)) * mu >= Fraction(value)
    assert Fraction(sensitivity_threshold(value, budget.mu)) <= Fraction(value) * mu


@given(st.lists(st.floats(1e-3, 50), min_size=1, max_size=20))
def test_releases_together_are_rounded_up(shifts: list[float]) -> None:
    assert Fraction(composed_mu(tuple(shifts))) ** 2 >= sum(Fraction(shift) ** 2 for shift in shifts)


@pytest.mark.parametrize("mu", [0.0, 0.01, 0.5, 1.0, 2.856, 6.0])
@pytest.mark.parametrize("rate", [1e-9, 1e-4, 0.01, 0.05, 0.5, 0.99])
def test_attack_power_is_rounded_up(mu: float, rate: float) -> None:
    with mpmath.workdps(40):
        exact = mpmath.ncdf(mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1) + mpmath.mpf(mu))
        assert exact <= mpmath.mpf(attack_power(mu, rate)) <= exact * (1 + mpmath.mpf("1e-11"))


def test_probabilities_stay_below_one() -> None:
    assert attack_power(60.0, 0.5) == 1.0
    for mu in (20.0, 80.0, 1e6):
        assert log_delta(0.1, mu) <= 0.0
        assert reached_delta(0.1, mu) <= 1.0


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.5, math.nan])
def test_a_certain_rate_is_none(rate: float) -> None:
    with pytest.raises(ValueError, match="false_positive_rate is"):
        attack_power(1.0, rate)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_numbers_that_measure_nothing_are_refused(value: float) -> None:
    budget = Budget(1.0, 1e-5)
    for call, named in (
        (lambda: smallest_sigma(value, budget.mu), "sensitivity is"),
        (lambda: smallest_sigma(1.0, value), "mu is"),
        (lambda: sensitivity_threshold(value, budget.mu), "sigma is"),
        (lambda: sensitivity_threshold(1.0, value), "mu is"),
        (lambda: composed_mu((1.0, value)), "mu is"),
        (lambda: log_delta(value, 1.0), "epsilon is"),
        (lambda: reached_epsilon(1.0, value), "delta is"),
        (lambda: ClassicBudget(value, 0.1), "epsilon is"),
        (lambda: ClassicBudget(1.0, value), "delta is"),
    ):
        with pytest.raises(ValueError, match=named):
            call()
