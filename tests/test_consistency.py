"""One client's answers within a solve: honest ones are never doubted, and lies that would hold it up are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescind.core.consistency import Earlier
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.sums import Sums, Wanted, check_sums, unflatten
from rescind.engines.heads import sum_head

Head = SoftmaxL2 | LogisticL2
FEATURES = 4


def head_loss(classes: int, l2: float = 0.1, row_norm: float = 2.0) -> Head:
    return LogisticL2(l2, row_norm) if classes == 1 else SoftmaxL2(l2, row_norm)


def ask(theta: np.ndarray, rows: np.ndarray, labels: np.ndarray, loss: Head, wanted: Wanted) -> Sums:
    classes = len(theta) // (rows.shape[1] + 1)
    like = {"weight": np.zeros((classes, rows.shape[1])), "bias": np.zeros(classes)}
    return sum_head(unflatten(theta, like), rows, labels, loss, wanted)


def doubts(path: Sequence[np.ndarray], answers: Sequence[Sums], loss: Head, wanted: Wanted) -> list[str | None]:
    """What is said of each answer, if all of them are remembered."""
    earlier, said = Earlier(), []
    for theta, sums in zip(path, answers, strict=True):
        earlier = earlier.before(theta)
        assert earlier.hessian is None
        said.append(earlier.doubt(theta, sums, loss))
        earlier = earlier.and_then(theta, sums, wanted)
    return said


def client(
    kind: str, classes: int, rows: int, row_norm: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    inputs = rng.normal(size=(rows, FEATURES))
    labels = rng.integers(0, max(classes, 2), rows)
    match kind:
        case "long":
            inputs *= 1e6
        case "short":
            inputs *= 1e-9
        case "one row":
            inputs[:], labels[:] = inputs[0] * row_norm, labels[0]
        case "one class":
            inputs, labels = inputs * row_norm, np.zeros_like(labels)
        case "opposite":
            inputs[::2] *= -1e3
        case _:
            inputs *= row_norm
    return inputs, labels


def walk(kind: str, theta: np.ndarray, apart: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Six models: anywhere, on a line, closer and closer, or back to where they began."""
    direction = rng.normal(size=theta.shape)
    path = [theta]
    for at in range(5):
        other = rng.normal(size=theta.shape)
        move = {
            "anywhere": apart * other,
            "line": apart * direction * rng.choice([-1, 0.5, 1]),
            "closer": apart * 0.01**at * other,
            "back": apart * direction * (-1) ** at,
        }[kind]
        path.append(path[-1] + move)
    return path


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    classes=st.sampled_from([1, 2, 3, 10]),
    kind=st.sampled_from(["random", "long", "short", "one row", "one class", "opposite"]),
    way=st.sampled_from(["anywhere", "line", "closer", "back"]),
    rows=st.integers(1, 40),
    row_norm=st.sampled_from([1e-3, 1.0, 30.0, 1e4]),
    l2=st.sampled_from([1e-12, 1e-5, 0.01, 10.0]),
    size=st.sampled_from([0.0, 1e-6, 1.0, 30.0, 1e4]),
    apart=st.sampled_from([0.0, 1e-14, 1e-9, 1e-4, 1e-2, 0.3, 1.0, 100.0, 1e5]),
    wanted=st.sampled_from(Wanted),
    single=st.booleans(),
)
def test_no_honest_answer_is_ever_doubted(
    seed: int,
    classes: int,
    kind: str,
    way: str,
    rows: int,
    row_norm: float,
    l2: float,
    size: float,
    apart: float,
    wanted: Wanted,
    single: bool,
) -> None:
    rng = np.random.default_rng(seed)
    loss, mine = head_loss(classes, l2, row_norm), client(kind, classes, rows, row_norm, rng)
    path = walk(way, size * rng.normal(size=classes * (FEATURES + 1)), apart, rng)
    if single:
        path = [theta.astype(np.float32).astype(np.float64) for theta in path]
    answers = [ask(theta, *mine, loss, wanted) for theta in path]
    assert doubts(path, answers, loss, wanted) == [None] * len(path)


def test_blocks_of_many_rows_are_not_doubted() -> None:
    rng, loss = np.random.default_rng(0), head_loss(3, 1e-6)
    mine = client("random", 3, 20_000, 2.0, rng)
    path = walk("closer", rng.normal(size=3 * (FEATURES + 1)), 1.0, rng)
    answers = [ask(theta, *mine, loss, Wanted.FULL) for theta in path]
    assert doubts(path, answers, loss, Wanted.FULL) == [None] * len(path)


@pytest.mark.parametrize("classes", [1, 3])
def test_other_rows_within_a_solve_are_found(classes: int) -> None:
    loss = head_loss(classes)
    for seed in range(40):
        rng = np.random.default_rng(seed)
        mine, others = (client("random", classes, 30, 2.0, rng) for _ in range(2))
        theta = rng.normal(size=classes * (FEATURES + 1))
        path = [theta, theta + 0.01]
        answers = [ask(path[0], *mine, loss, Wanted.GRADIENT), ask(path[1], *others, loss, Wanted.GRADIENT)]
        assert doubts(path, answers, loss, Wanted.GRADIENT)[1] == "no rows have both this answer and the one before"


@pytest.mark.parametrize("classes", [1, 3])
def test_the_gradient_grows_no_faster_than_the_steepest_parabola(classes: int) -> None:
    loss, zero = head_loss(classes), np.zeros(classes * (FEATURES + 1))
    step = zero.copy()
    step[0] = 1.0
    beta = (2.0**2 + 1) / (4 if classes == 1 else 2)
    low, steep = Sums(10, 1.0, zero), Sums(10, 1.0 + 10 * beta / 2, 10 * beta * step)

    def said(later: Sums) -> str | None:
        return doubts([zero, step], [low, later], loss, Wanted.GRADIENT)[1]

    assert said(steep) is None
    assert said(replace(steep, loss=1.0 + 10 * beta / 2 - 1e-6)) is not None
    assert said(replace(steep, gradient=10.0001 * beta * step)) is not None
    assert said(replace(steep, rows=11)) == "it tells of another number of rows than before"


@pytest.mark.parametrize("classes", [1, 3])
def test_a_gradient_is_where_the_hessian_before_said(classes: int) -> None:
    """A lie far below the tolerance of a solve is seen once steps are short, and the loss is fitted to it."""
    loss, rng = head_loss(classes, 0.01), np.random.default_rng(1)
    mine = client("random", classes, 50, 2.0, rng)
    theta = rng.normal(size=classes * (FEATURES + 1))
    path = [theta, theta + 1e-4 * rng.normal(size=theta.shape)]
    first, second = (ask(at, *mine, loss, Wanted.FULL) for at in path)
    lie = rng.normal(size=(classes, FEATURES + 1))
    lie -= lie.mean(axis=0) if classes > 1 else 0
    lie = 50 * 1e-6 * (lie / np.linalg.norm(lie)).reshape(-1)
    lie *= np.sign(lie @ (path[1] - path[0]))
    gradient = second.gradient + lie
    value = first.loss + float((first.gradient + gradient) @ (path[1] - path[0])) / 2
    lied = replace(second, gradient=gradient, loss=value)
    length = float(np.linalg.norm(path[1]))
    assert check_sums(lied, loss, classes, FEATURES, length, Wanted.FULL) is None
    assert doubts(path, [first, lied], loss, Wanted.FULL)[1] is not None
    assert doubts(path, [first, second], loss, Wanted.FULL)[1] is None
    # Without the Hessian of the answer before, two answers do not show it.
    plain = [replace(sums, curvature=None) for sums in (first, lied)]
    assert doubts(path, plain, loss, Wanted.GRADIENT)[1] is None


def test_no_smaller_bound_would_do() -> None:
    """A row of the greatest length with an unlikely label comes as near to the bound as one likes."""
    loss = LogisticL2(1e-9, 1.0)
    rows, labels = np.array([[1.0, 0.0, 0.0, 0.0]]), np.array([1])
    direction = np.array([1.0, 0.0, 0.0, 0.0, 1.0])
    path = [-3 * direction, -2.9 * direction]
    first, second = (ask(theta, rows, labels, loss, Wanted.FULL) for theta in path)
    assert first.curvature is not None
    foreseen = first.gradient + first.curvature @ (path[1] - path[0])
    further = replace(second, gradient=foreseen + 1.4 * (second.gradient - foreseen))
    assert doubts(path, [first, second], loss, Wanted.FULL)[1] is None
    assert doubts(path, [first, further], loss, Wanted.FULL)[1] is not None


def test_a_gradient_that_turns_is_no_gradient() -> None:
    """A rotating field is monotone, so that any two answers may be of a convex loss; three show that it is none."""
    loss = SoftmaxL2(0.01, 1.0)
    rows, width = 20, FEATURES + 1
    one, other = np.zeros(2 * width), np.zeros(2 * width)
    one[[0, width]], other[[1, width + 1]] = (0.5**0.5, -(0.5**0.5)), (0.5**0.5, -(0.5**0.5))

    def field(theta: np.ndarray, turn: float) -> np.ndarray:
        along, across = theta @ one, theta @ other
        return np.asarray(rows * 0.1 * ((along - turn * across) * one + (across + turn * along) * other))

    def said(turn: float) -> str | None:
        path = [np.zeros(2 * width), 1e-2 * one, 1e-2 * other]
        gradients = [field(theta, turn) for theta in path]
        values = [rows * 0.6]
        for at in (1, 2):
            step = path[at] - path[at - 1]
            values.append(values[-1] + float((gradients[at] + gradients[at - 1]) @ step) / 2)
        answers = [Sums(rows, value, gradient) for value, gradient in zip(values, gradients, strict=True)]
        *_, last = doubts(path, answers, loss, Wanted.GRADIENT)
        return last

    assert said(0.0) is None
    assert said(0.5) is not None


def test_a_hessian_is_held_for_one_round_and_features_are_not() -> None:
    rng, loss = np.random.default_rng(2), LogisticL2(0.01, 1.0)
    mine, theta = client("random", 1, 20, 1.0, rng), rng.normal(size=FEATURES + 1)
    for wanted in Wanted:
        earlier = Earlier().and_then(theta, ask(theta, *mine, loss, wanted), wanted)
        assert (earlier.hessian is not None) == (wanted is Wanted.FULL)
        assert all(sums.curvature is None for _, sums in earlier.answers)
        after = earlier.before(theta + 1)
        assert after.hessian is None
        if wanted is Wanted.FULL:
            hessian = ask(theta, *mine, loss, wanted).curvature
            assert hessian is not None
            np.testing.assert_allclose(after.change, hessian @ np.ones(FEATURES + 1), rtol=1e-12)
