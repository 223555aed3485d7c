"""Solving for a head: against scipy's own minimiser, from any start, and how many rounds it takes."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.optimize
import scipy.special
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.data import heart
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.searches import Bound, NewtonSearch, newton_step
from rescind.core.solver import Solver, advance, begin, choose
from rescind.core.sums import Sums, Wanted, add_up, flatten, unflatten
from rescind.engines.heads import clip_rows, sum_head

Head = SoftmaxL2 | LogisticL2
Part = tuple[np.ndarray, np.ndarray]


def like(classes: int, features: int, dtype: type = np.float64) -> dict[str, np.ndarray]:
    return {"weight": np.zeros((classes, features), dtype), "bias": np.zeros(classes, dtype)}


def clients(kind: str, classes: int, seed: int, features: int = 5, rows: int = 40) -> list[Part]:
    """Three clients: labels at random, separable, or one class each."""
    rng = np.random.default_rng(seed)
    outputs = max(classes, 2)
    truth = rng.normal(size=(outputs, features))
    parts = []
    for at in range(3):
        inputs = 2 * rng.normal(size=(rows + at, features))
        labels = {
            "random": rng.integers(0, outputs, len(inputs)),
            "separable": (inputs @ truth.T).argmax(axis=1),
            "one class": np.full(len(inputs), at % outputs),
        }[kind]
        parts.append((inputs, labels))
    return parts


def ask(theta: np.ndarray, parts: Sequence[Part], loss: Head, classes: int, wanted: Wanted) -> Sums:
    model = unflatten(theta, like(classes, parts[0][0].shape[1]))
    return add_up([sum_head(model, rows, labels, loss, wanted) for rows, labels in parts])


def solve(
    parts: Sequence[Part], loss: Head, classes: int, wanted: Wanted, start: np.ndarray | None = None, most: int = 200
) -> tuple[np.ndarray, list[float]]:
    features = parts[0][0].shape[1]
    theta = np.zeros(classes * (features + 1)) if start is None else start
    state, norms = begin(Solver(loss, classes, features, wanted)), []
    for _ in range(most):
        state, step = advance(state, theta, ask(theta, parts, loss, classes, state.wanted))
        norms.append(step.gradient_norm)
        if step.solved:
            np.testing.assert_array_equal(step.theta, theta)
            return theta, norms
        theta = step.theta
    raise AssertionError(f"not solved: {norms[-5:]}")


def by_scipy(parts: Sequence[Part], loss: Head, classes: int) -> np.ndarray:
    """The minimiser of the loss as it is written down, by the BFGS of scipy.optimize."""
    inputs = np.concatenate([clip_rows(rows, loss.row_norm) for rows, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    targets = labels[:, None] if classes == 1 else np.eye(classes)[labels]
    extended = np.column_stack([inputs, np.ones(len(inputs))])

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        logits = extended @ theta.reshape(classes, -1).T
        if classes == 1:
            losses = np.logaddexp(0, logits) - targets * logits
            chances = scipy.special.expit(logits)
        else:
            losses = scipy.special.logsumexp(logits, axis=1) - (targets * logits).sum(axis=1)
            chances = scipy.special.softmax(logits, axis=1)
        gradient = ((chances - targets).T @ extended).reshape(-1) / len(inputs) + loss.l2 * theta
        return float(losses.mean() + loss.l2 / 2 * theta @ theta), gradient

    start = np.zeros(classes * extended.shape[1])
    found = scipy.optimize.minimize(value, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    assert np.linalg.norm(value(found.x)[1]) < 1e-7
    return np.asarray(found.x)


@pytest.mark.parametrize("wanted", Wanted)
@pytest.mark.parametrize("kind", ["random", "separable", "one class"])
@pytest.mark.parametrize("loss", [SoftmaxL2(0.01, 2.0), LogisticL2(0.01, 2.0)])
def test_the_solution_is_scipys(loss: Head, kind: str, wanted: Wanted) -> None:
    classes = 3 if isinstance(loss, SoftmaxL2) else 1
    parts = clients(kind, classes, seed=1)
    theta, norms = solve(parts, loss, classes, wanted)
    distance = float(np.linalg.norm(theta - by_scipy(parts, loss, classes)))
    assert distance <= norms[-1] / loss.l2 + 1e-5
    assert len(norms) <= {Wanted.FULL: 8, Wanted.FEATURES: 25, Wanted.GRADIENT: 50}[wanted]


@pytest.mark.parametrize("leaver", [None, *heart.HOSPITALS])
def test_hospitals_are_solved_for_in_five_rounds_whoever_leaves(leaver: str | None) -> None:
    if not os.environ.get("RESCIND_DATA"):
        pytest.skip("RESCIND_DATA names no folder with the data sets")
    hospitals = heart.load(None)
    patients = zip(hospitals.names, hospitals.rows, hospitals.labels, strict=True)
    parts = [(rows, labels) for name, rows, labels in patients if name != leaver]
    _, norms = solve(parts, LogisticL2(0.01, 2.5), 1, Wanted.FULL)
    assert len(norms) <= 5


@settings(max_examples=60, deadline=None)
@given(
    classes=st.sampled_from([1, 2, 4]),
    kind=st.sampled_from(["random", "separable", "one class"]),
    l2=st.sampled_from([1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0]),
    row_norm=st.sampled_from([0.5, 1.0, 8.0]),
    scale=st.sampled_from([0.0, 0.3, 5.0, 1e4]),
    seed=st.integers(0, 2**32),
)
@example(classes=2, kind="separable", l2=1e-5, row_norm=8.0, scale=5.0, seed=316095)
def test_newton_arrives_from_everywhere(
    classes: int, kind: str, l2: float, row_norm: float, scale: float, seed: int
) -> None:
    loss: Head = LogisticL2(l2, row_norm) if classes == 1 else SoftmaxL2(l2, row_norm)
    parts = clients(kind, classes, seed, features=3, rows=12)
    start = scale * np.random.default_rng(seed).normal(size=classes * 4)
    _, norms = solve(parts, loss, classes, Wanted.FULL, start)
    # Mostly at most 16. Judged by the gradient alone, the example took 81.
    assert len(norms) <= 25


@settings(max_examples=40, deadline=None)
@given(
    classes=st.sampled_from([1, 2, 4]),
    kind=st.sampled_from(["random", "separable", "one class"]),
    l2=st.sampled_from([1e-3, 1e-2, 0.1, 1.0]),
    wanted=st.sampled_from([Wanted.FEATURES, Wanted.GRADIENT]),
    scale=st.sampled_from([0.0, 0.3, 1e4]),
    seed=st.integers(0, 2**32),
)
def test_gradients_arrive_from_everywhere(
    classes: int, kind: str, l2: float, wanted: Wanted, scale: float, seed: int
) -> None:
    loss: Head = LogisticL2(l2, 2.0) if classes == 1 else SoftmaxL2(l2, 2.0)
    parts = clients(kind, classes, seed, features=3, rows=12)
    solve(parts, loss, classes, wanted, scale * np.random.default_rng(seed).normal(size=classes * 4))


@settings(max_examples=60, deadline=None)
@given(
    classes=st.sampled_from([1, 3]),
    l2=st.sampled_from([1e-3, 1e-2, 0.3]),
    scale=st.floats(0, 20),
    seed=st.integers(0, 2**32),
)
def test_no_model_is_further_from_the_solution_than_its_gradient_says(
    classes: int, l2: float, scale: float, seed: int
) -> None:
    """S1: ||theta - theta*|| <= ||grad F(theta)|| / lambda."""
    loss: Head = LogisticL2(l2, 2.0) if classes == 1 else SoftmaxL2(l2, 2.0)
    parts = clients("random", classes, seed, features=3, rows=10)
    solution, norms = solve(parts, loss, classes, Wanted.FULL)
    theta = scale * np.random.default_rng(seed + 1).normal(size=len(solution))
    sums = ask(theta, parts, loss, classes, Wanted.GRADIENT)
    norm = float(np.linalg.norm(sums.gradient / sums.rows + l2 * theta))
    assert np.linalg.norm(theta - solution) <= (norm + norms[-1]) / l2 * (1 + 1e-9)


@pytest.mark.parametrize("wanted", Wanted)
def test_models_in_float32_are_solved_where_they_were_asked_about(wanted: Wanted) -> None:
    loss, parts, model = SoftmaxL2(0.01, 2.0), clients("random", 3, 2), like(3, 5, np.float32)
    state, theta = begin(Solver(loss, 3, 5, wanted)), flatten(model)
    for _ in range(60):
        theta = flatten(unflatten(theta, model))
        state, step = advance(state, theta, ask(theta, parts, loss, 3, state.wanted))
        if step.solved:
            break
        theta = step.theta
    assert step.solved
    np.testing.assert_array_equal(step.theta, step.theta.astype(np.float32))


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("wanted", Wanted)
def test_nothing_of_those_who_left_is_left_in_the_state(wanted: Wanted, told: bool) -> None:
    """After a change the state is what it would be had the solve begun at this model; it is told, or seen in N."""
    loss, parts = SoftmaxL2(0.01, 2.0), clients("random", 3, 3)
    others = parts[1:] if not told else [parts[0], parts[1], (parts[2][0][::-1] + 0.5, parts[2][1])]
    state, theta = begin(Solver(loss, 3, 5, wanted)), np.zeros(18)
    for _ in range(4):
        state, step = advance(state, theta, ask(theta, parts, loss, 3, state.wanted))
        theta = step.theta
    sums = ask(theta, others, loss, 3, state.wanted)
    state, step = advance(state, theta, sums, fresh=told)
    anew, same = advance(begin(Solver(loss, 3, 5, wanted)), theta, sums)
    np.testing.assert_array_equal(step.theta, same.theta)
    assert state.wanted is anew.wanted is wanted
    for _ in range(60):
        theta = step.theta
        state, step = advance(state, theta, ask(theta, others, loss, 3, state.wanted))
        if step.solved:
            return
    raise AssertionError("not solved")


@pytest.mark.parametrize("wanted", Wanted)
def test_the_last_step_is_better_than_what_was_looked_at_where_rounds_are_used_up(wanted: Wanted) -> None:
    """So a solve without rounds left ends with it, unseen: the best model seen is on average twice as far off."""
    unseen, seen = [], []
    for seed in range(12):
        loss, parts = SoftmaxL2(10.0 ** -(3 + seed % 3), (1.0, 4.0)[seed % 2]), clients("separable", 3, seed)
        state, theta = begin(Solver(loss, 3, 5, wanted)), np.zeros(18)
        values = []
        for _ in range(40):
            sums = ask(theta, parts, loss, 3, state.wanted)
            values.append(sums.loss / sums.rows + loss.l2 / 2 * float(theta @ theta))
            state, step = advance(state, theta, sums)
            if step.solved:
                break
            theta = step.theta
        for most in range(2, len(values)):
            unseen.append(values[most] - values[-1])
            seen.append(min(values[:most]) - values[-1])
    assert 1.4 * np.mean(unseen) < np.mean(seen)


def test_a_start_worse_than_zero_is_left_for_zero() -> None:
    loss, parts = SoftmaxL2(0.01, 2.0), clients("random", 3, 4)
    start = np.full(18, 50.0) * np.random.default_rng(0).normal(size=18)
    _, step = advance(begin(Solver(loss, 3, 5, Wanted.FULL)), start, ask(start, parts, loss, 3, Wanted.FULL))
    assert not step.theta.any()
    assert not step.solved


def test_a_newton_step_that_lengthens_the_gradient_is_made_shorter() -> None:
    """On sqrt(1 + x^2), whose Newton step from 2 goes to -8, and the second from there far away."""

    def derivatives(at: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return float(np.sqrt(1 + at[0] ** 2)), at / np.sqrt(1 + at**2), np.diag((1 + at**2) ** -1.5)

    search: NewtonSearch | None = None
    theta = np.array([2.0])
    for _ in range(15):
        search = newton_step(search, theta, *derivatives(theta), steepest=1.0, spread=1.5)
        theta = search.target
    assert abs(theta[0]) < 1e-6


def test_a_matrix_that_is_no_hessian_leads_to_a_gradient_step() -> None:
    search = newton_step(None, np.array([2.0]), 1.0, np.array([1.0]), np.array([[-1.0]]), steepest=4.0, spread=1.0)
    assert search.certain
    assert search.target == pytest.approx([1.75])


@pytest.mark.parametrize("classes", [1, 4])
def test_the_bound_is_above_every_hessian_and_a_safe_step_shortens_the_gradient(classes: int) -> None:
    loss: Head = LogisticL2(0.01, 2.0) if classes == 1 else SoftmaxL2(0.01, 2.0)
    parts = clients("random", classes, 5)
    rng = np.random.default_rng(6)
    features = ask(np.zeros(classes * 6), parts, loss, classes, Wanted.FEATURES)
    assert features.curvature is not None
    for bound in (
        Bound.of_features(features.curvature / features.rows, classes, loss.l2),
        Bound.of_rows(np.sqrt(5.0), 6, classes, loss.l2),
    ):
        inverse = np.array([bound.solve(column, bound.largest) for column in np.eye(classes * 6)])
        matrix = np.linalg.inv(inverse)
        for scale in (0.0, 0.5, 5.0):
            theta = scale * rng.normal(size=classes * 6)
            sums = ask(theta, parts, loss, classes, Wanted.FULL)
            assert sums.curvature is not None
            hessian = sums.curvature / sums.rows + loss.l2 * np.eye(len(theta))
            assert np.linalg.eigvalsh(matrix - hessian).min() > -1e-10
            gradient = sums.gradient / sums.rows + loss.l2 * theta
            after = theta - bound.solve(gradient, bound.largest)
            again = ask(after, parts, loss, classes, Wanted.GRADIENT)
            assert bound.norm(again.gradient / again.rows + loss.l2 * after) < bound.norm(gradient)


def test_the_fitted_height_gives_the_step_its_length() -> None:
    rng = np.random.default_rng(7)
    factor = rng.normal(size=(6, 6))
    bound = Bound.of_features(factor @ factor.T, 3, 0.01)
    change = rng.normal(size=18)
    step = bound.solve(change, 0.03)
    assert bound.fit(step, change) == pytest.approx(0.03, rel=1e-6)


@pytest.mark.parametrize(
    ("most_bytes", "wanted"),
    [
        (8 * (15 + 120), Wanted.FULL),
        (8 * (15 + 120) - 1, Wanted.FEATURES),
        (8 * (15 + 15), Wanted.FEATURES),
        (8 * (15 + 15) - 1, Wanted.GRADIENT),
    ],
)
def test_the_curvature_follows_from_the_size_of_a_message(most_bytes: int, wanted: Wanted) -> None:
    assert choose(classes=3, features=4, most_bytes=most_bytes) is wanted


def test_what_cannot_be_solved_is_refused() -> None:
    with pytest.raises(ValueError, match="l2 is 0"):
        Solver(SoftmaxL2(0.0, 1.0), 3, 4, Wanted.FULL)
    with pytest.raises(ValueError, match="tolerance"):
        Solver(SoftmaxL2(0.1, 1.0), 3, 4, Wanted.FULL, tolerance=0.0)
    for loss, classes in ((SoftmaxL2(0.1, 1.0), 1), (LogisticL2(0.1, 1.0), 2)):
        with pytest.raises(ValueError, match="do not fit"):
            Solver(loss, classes, 4, Wanted.FULL)
    state = begin(Solver(SoftmaxL2(0.1, 1.0), 3, 4, Wanted.FULL))
    with pytest.raises(ValueError, match="not finite"):
        advance(state, np.zeros(15), Sums(1, 1.0, np.full(15, np.nan)))
    with pytest.raises(ValueError, match="no Hessian"):
        advance(state, np.zeros(15), Sums(1, 1.0, np.ones(15)))
