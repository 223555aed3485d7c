"""Appendix A of the paper: with fewer samples than features no amount of fine-tuning unlearns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]


def descended(rows: Array, goals: Array, theta: Array, steps: int) -> Array:
    """Gradient descent on ||X theta - y||^2 / 2 with a step that is small enough for every direction."""
    eta = 1 / np.linalg.norm(rows, 2) ** 2
    for _ in range(steps):
        theta = theta - eta * rows.T @ (rows @ theta - goals)
    return theta


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 6))
def test_what_the_sample_left_outside_the_others_rows_stays_for_ever(seed: int, samples: int, more: int) -> None:
    rng = np.random.default_rng(seed)
    rows, goals = rng.normal(size=(samples, samples + more)), rng.normal(size=samples)
    start = np.zeros(samples + more)
    trained = descended(rows, goals, start, 2_000)
    # The part of the model that the remaining rows do not see: no gradient of theirs ever touches it.
    unseen = np.eye(samples + more) - np.linalg.pinv(rows[:-1]) @ rows[:-1]
    left = unseen @ (trained - start)
    for steps in (1, 10, 3_000):
        tuned = descended(rows[:-1], goals[:-1], trained, steps)
        np.testing.assert_allclose(unseen @ (tuned - start), left, atol=1e-9)
    again = descended(rows[:-1], goals[:-1], start, 3_000)
    np.testing.assert_allclose(unseen @ (again - start), 0, atol=1e-9)
    # So the distance to retraining is at least that part, and it tells the label of the sample that was to go.
    assert np.linalg.norm(tuned - again) >= np.linalg.norm(left) - 1e-9


def test_the_papers_formula() -> None:
    """phi - theta = A(X_-1, N~) (A(X, N) theta_0 + B(X, y, N) - theta_0), as the paper derives it for theta_0 = 0."""
    rng = np.random.default_rng(0)
    rows, goals, start = rng.normal(size=(4, 7)), rng.normal(size=4), rng.normal(size=7)
    eta, fewer, fewer_goals = 0.02, rows[:-1], goals[:-1]

    def contraction(matrix: Array, steps: int) -> Array:
        return np.linalg.matrix_power(np.eye(7) - eta * matrix.T @ matrix, steps)

    def drift(matrix: Array, labels: Array, steps: int) -> Array:
        powers = sum(contraction(matrix, step) for step in range(steps))
        return np.asarray(eta * powers @ matrix.T @ labels)

    def gradient_descent(matrix: Array, labels: Array, theta: Array, steps: int) -> Array:
        for _ in range(steps):
            theta = theta - eta * matrix.T @ (matrix @ theta - labels)
        return theta

    trained = gradient_descent(rows, goals, start, 50)
    tuned = gradient_descent(fewer, fewer_goals, trained, 80)
    again = gradient_descent(fewer, fewer_goals, start, 80)
    formula = contraction(fewer, 80) @ (contraction(rows, 50) @ start + drift(rows, goals, 50) - start)
    np.testing.assert_allclose(tuned - again, formula, rtol=1e-9)


def test_with_more_samples_than_features_it_forgets_in_the_end() -> None:
    rng = np.random.default_rng(1)
    rows, goals = rng.normal(size=(40, 5)), rng.normal(size=40)
    tuned = descended(rows[:-1], goals[:-1], descended(rows, goals, np.zeros(5), 500), 5_000)
    again = descended(rows[:-1], goals[:-1], np.zeros(5), 5_000)
    assert np.linalg.norm(tuned - again) == pytest.approx(0, abs=1e-9)
