"""Why no noise is offered for networks: the numbers of theory section 17, and a mechanism that meets its bound."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from rescind.core.calibration import Budget
from rescind.core.summary import Request


def find_mu(budget: Budget) -> float:
    return Request(frozenset({1}), budget).ideal.mu


def kept(chance: float, mu: float) -> float:
    """Return the least chance from the public start, by statement 17.2."""
    return float(norm.cdf(norm.ppf(chance) - mu))


@pytest.mark.parametrize(("epsilon", "percent"), [(1.0, 91), (5.0, 70)])
def test_what_works_from_the_trained_model_works_from_the_public_one(epsilon: float, percent: int) -> None:
    assert math.floor(100 * kept(0.95, find_mu(Budget(epsilon, 1e-5)))) == percent


def test_the_noise_is_hundreds_of_times_the_signal() -> None:
    mu = find_mu(Budget(1.0, 1e-5))
    assert round(mu, 3) == 0.268
    for rounds in (1, 10, 1000):
        start, update = 3.0, 0.5
        sigma = 2 * (start + rounds * update) / (mu * math.sqrt(rounds))
        assert round(sigma * math.sqrt(rounds * 1e4) / (start + rounds * update)) == 747


@given(st.floats(0.05, 3.0), st.floats(0.01, 0.99), st.floats(-3.0, 3.0))
def test_a_gaussian_mechanism_meets_the_bound_and_none_is_below(mu: float, chance: float, goal: float) -> None:
    """Noised, a start at mu is N(mu, 1) and the public one N(0, 1); a goal is a half line or a stretch."""
    half_line = norm.ppf(1 - chance, loc=mu)
    assert norm.sf(half_line) == pytest.approx(kept(chance, mu), abs=1e-9)
    stretch = (min(goal, half_line), max(goal, half_line))
    from_trained = norm.cdf(stretch[1], loc=mu) - norm.cdf(stretch[0], loc=mu)
    from_public = norm.cdf(stretch[1]) - norm.cdf(stretch[0])
    if from_trained > 1e-9:
        assert from_public >= kept(from_trained, mu) - 1e-9
