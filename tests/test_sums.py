"""Sums over a client's rows: against the loss itself, their sum, and what no rows can have."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescind.core.regularity import LogisticL2, NetworkLoss, SoftmaxL2
from rescind.core.solver import gradient_rounding
from rescind.core.sums import Sums, Wanted, add_up, check_sums, flatten, head_names, unflatten
from rescind.core.training import LocalTraining
from rescind.engines import heads
from rescind.engines.heads import sum_head, train_head_on


def federation(
    classes: int, rows: int = 9, features: int = 4, seed: int = 0, scale: float = 1.0
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    model = {"head.weight": rng.normal(size=(classes, features)), "head.bias": rng.normal(size=classes)}
    return model, scale * rng.normal(size=(rows, features)), rng.integers(0, max(classes, 2), rows)


def loss_of(classes: int, l2: float = 0.1, row_norm: float = 2.0) -> SoftmaxL2 | LogisticL2:
    return LogisticL2(l2, row_norm) if classes == 1 else SoftmaxL2(l2, row_norm)


def written_out(theta: np.ndarray, rows: np.ndarray, labels: np.ndarray, classes: int) -> float:
    """The summed cross entropy of unclipped rows, for a flat head."""
    matrix = theta.reshape(classes, -1)
    logits = rows @ matrix[:, :-1].T + matrix[:, -1]
    if classes == 1:
        return float(np.log1p(np.exp(-(2 * labels - 1) * logits[:, 0])).sum())
    return float((np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(rows)), labels]).sum())


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_sums_are_the_loss_and_its_derivatives(classes: int) -> None:
    """Central differences, of the loss for the gradient and of the gradient for the Hessian."""
    model, rows, labels = federation(classes)
    loss = loss_of(classes, row_norm=100.0)
    theta = flatten(model)
    sums = sum_head(model, rows, labels, loss, Wanted.FULL)
    assert sums.rows == 9
    assert sums.loss == pytest.approx(written_out(theta, rows, labels, classes), rel=1e-12)
    assert sums.curvature is not None
    for at in range(len(theta)):
        step = np.zeros_like(theta)
        step[at] = 1e-5
        up, down = (sum_head(unflatten(theta + way * step, model), rows, labels, loss) for way in (1, -1))
        assert (up.loss - down.loss) / 2e-5 == pytest.approx(sums.gradient[at], abs=1e-8)
        np.testing.assert_allclose((up.gradient - down.gradient) / 2e-5, sums.curvature[at], atol=1e-8)


@pytest.mark.parametrize("classes", [1, 3])
def test_a_step_of_training_goes_down_the_same_gradient(classes: int) -> None:
    model, rows, labels = federation(classes, scale=3.0)
    model = {"weight": model["head.weight"], "bias": model["head.bias"]}
    loss = loss_of(classes)
    after = train_head_on(model, rows, labels, LocalTraining(1, 0.5, loss))
    sums = sum_head(model, rows, labels, loss)
    gradient = sums.gradient / sums.rows + loss.l2 * flatten(model)
    np.testing.assert_allclose(flatten(after), flatten(model) - 0.5 * gradient, atol=1e-14)


def test_features_are_summed_with_their_one_and_clipped() -> None:
    model, rows, labels = federation(3, scale=5.0)
    sums = sum_head(model, rows, labels, SoftmaxL2(0.1, 2.0), Wanted.FEATURES)
    clipped = rows * np.minimum(1, 2 / np.linalg.norm(rows, axis=1, keepdims=True))
    extended = np.column_stack([clipped, np.ones(9)])
    np.testing.assert_allclose(sums.curvature, extended.T @ extended, rtol=1e-5)
    assert sum_head(model, rows, labels, SoftmaxL2(0.1, 2.0)).curvature is None


@pytest.mark.parametrize("wanted", Wanted)
def test_blocks_change_nothing_but_rounding(wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows, labels = federation(3, rows=50)
    whole = sum_head(model, rows, labels, SoftmaxL2(0.1, 2.0), wanted)
    monkeypatch.setattr(heads, "BLOCK", 7)
    parts = sum_head(model, rows, labels, SoftmaxL2(0.1, 2.0), wanted)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-13)
    np.testing.assert_allclose(parts.gradient, whole.gradient, atol=1e-12)
    if wanted is not Wanted.GRADIENT:
        np.testing.assert_allclose(parts.curvature, whole.curvature, atol=1e-12)


def test_huge_logits_do_not_overflow() -> None:
    for classes in (1, 3):
        model, rows, labels = federation(classes)
        model = {name: 1e8 * tensor for name, tensor in model.items()}
        sums = sum_head(model, rows, labels, loss_of(classes), Wanted.FULL)
        norm = float(np.linalg.norm(flatten(model)))
        assert math.isfinite(sums.loss)
        assert check_sums(sums, loss_of(classes), classes, 4, norm, Wanted.FULL) is None


@pytest.mark.parametrize(("classes", "loss"), [(1, SoftmaxL2(0.1, 1.0)), (3, LogisticL2(0.1, 1.0))])
def test_a_loss_that_does_not_fit_the_head_is_refused(classes: int, loss: SoftmaxL2 | LogisticL2) -> None:
    model, rows, labels = federation(classes)
    with pytest.raises(ValueError, match="logits"):
        sum_head(model, rows, labels, loss)


def test_what_is_no_head_is_refused() -> None:
    model, rows, labels = federation(3)
    with pytest.raises(ValueError, match="NetworkLoss"):
        sum_head(model, rows, labels, NetworkLoss())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="features"):
        sum_head(model, rows[:, :3], labels, SoftmaxL2(0.1, 1.0))
    for wrong in (labels[:3], labels - 5, labels + 1 + labels.max()):
        with pytest.raises(ValueError, match="from 0 to 2"):
            sum_head(model, rows, wrong, SoftmaxL2(0.1, 1.0))
    with pytest.raises(ValueError, match="rows"):
        sum_head(model, rows[:0], labels[:0], SoftmaxL2(0.1, 1.0))
    for names in (["weight"], ["weight", "gain"], ["a.weight", "b.weight"], ["weight", "bias", "scale"]):
        with pytest.raises(ValueError, match="one tensor that ends in 'weight'"):
            head_names(names)
    with pytest.raises(ValueError, match="shape"):
        flatten({"weight": np.zeros((3, 4)), "bias": np.zeros(2)})
    with pytest.raises(ValueError, match="not a head of 3 classes"):
        unflatten(np.zeros(7), {"weight": np.zeros((3, 4)), "bias": np.zeros(3)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_head_is_the_same_flat_and_not(dtype: type) -> None:
    model = {name: tensor.astype(dtype) for name, tensor in federation(3)[0].items()}
    back = unflatten(flatten(model), model)
    assert {name: tensor.dtype for name, tensor in back.items()} == dict.fromkeys(model, dtype)
    for name in model:
        np.testing.assert_array_equal(back[name], model[name])
    assert flatten(model)[4] == model["head.bias"][0]


def test_sums_are_added_in_their_order() -> None:
    model, rows, labels = federation(3, rows=30)
    loss = SoftmaxL2(0.1, 2.0)
    parts = [sum_head(model, rows[at : at + 10], labels[at : at + 10], loss, Wanted.FULL) for at in (0, 10, 20)]
    total, whole = add_up(parts), sum_head(model, rows, labels, loss, Wanted.FULL)
    assert total.rows == 30
    np.testing.assert_array_equal(total.gradient, parts[0].gradient + parts[1].gradient + parts[2].gradient)
    np.testing.assert_allclose(total.curvature, whole.curvature, atol=1e-12)
    assert check_sums(total, loss, 3, 4, 10.0, Wanted.FULL) is None
    with pytest.raises(ValueError, match="no client"):
        add_up([])
    with pytest.raises(ValueError, match="different shapes"):
        add_up([parts[0], replace(parts[1], curvature=None)])


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": 0},
        {"rows": True},
        {"rows": 2.0},
        {"loss": 1},
        {"gradient": np.zeros((2, 2))},
        {"gradient": np.zeros(4, np.float32)},
        {"gradient": np.zeros(0)},
        {"curvature": np.zeros((2, 3))},
        {"curvature": np.zeros((5, 5))},
    ],
)
def test_sums_have_a_shape(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"rows|loss|gradient|curvature"):
        replace(Sums(1, 0.0, np.zeros(4)), **changes)


@settings(max_examples=150, deadline=None)
@given(
    classes=st.sampled_from([1, 2, 5]),
    rows=st.integers(1, 40),
    features=st.integers(1, 6),
    scale=st.sampled_from([0.0, 1e-200, 1e-3, 1.0, 1e3, 1e200]),
    size=st.sampled_from([0.0, 1e-300, 1.0, 30.0, 1e6, 1e12]),
    same=st.booleans(),
    wanted=st.sampled_from(list(Wanted)),
    seed=st.integers(0, 2**32),
)
def test_an_honest_answer_is_never_doubted(
    classes: int, rows: int, features: int, scale: float, size: float, same: bool, wanted: Wanted, seed: int
) -> None:
    """Rows at the norm's edge and equal rows come closest to the bounds."""
    model, inputs, labels = federation(classes, rows, features, seed, scale)
    model = {name: size * tensor for name, tensor in model.items()}
    if same:
        inputs, labels = np.repeat(inputs[:1], rows, axis=0), np.repeat(labels[:1], rows)
    loss = loss_of(classes)
    sums = sum_head(model, inputs, labels, loss, wanted)
    assert check_sums(sums, loss, classes, features, float(np.linalg.norm(flatten(model))), wanted) is None


HOSTILE = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 1e200, 1e30, 1e10, -1e10, -1.0])


@settings(max_examples=200, deadline=None)
@given(
    classes=st.sampled_from([1, 3]),
    wanted=st.sampled_from(list(Wanted)),
    part=st.sampled_from(["loss", "gradient", "curvature"]),
    value=HOSTILE,
    everywhere=st.booleans(),
    seed=st.integers(0, 99),
)
def test_hostile_numbers_give_a_reason_and_no_error(
    classes: int, wanted: Wanted, part: str, value: float, everywhere: bool, seed: int
) -> None:
    model, inputs, labels = federation(classes, seed=seed)
    loss = loss_of(classes)
    sums = sum_head(model, inputs, labels, loss, wanted)
    if part == "loss":
        sums = replace(sums, loss=value)
    else:
        array = sums.gradient if part == "gradient" or sums.curvature is None else sums.curvature
        array = np.full_like(array, value) if everywhere else array.copy()
        array.flat[seed % array.size] = value
        sums = replace(sums, **{"gradient" if array.ndim == 1 else "curvature": array})
    norm = float(np.linalg.norm(flatten(model)))
    reason = check_sums(sums, loss, classes, 4, norm, wanted)
    # An entry of -1 can be honest where nothing fixes the sum over classes.
    assert reason is not None or (classes == 1 and value == -1.0)


def lies() -> list[tuple[str, Sums, Wanted]]:
    model, rows, labels = federation(3)
    loss = SoftmaxL2(0.1, 2.0)
    full, features, plain = (sum_head(model, rows, labels, loss, wanted) for wanted in reversed(Wanted))
    assert full.curvature is not None
    assert features.curvature is not None
    # All curvature in one direction: within the trace (9 rows, R'^2 = 5: 30), above the largest eigenvalue (22.5).
    spread, row = np.array([[1, -1, 0], [-1, 1, 0], [0, 0, 0]]) / 2, np.diag([1.0, 0, 0, 0, 0])
    one_sided = full.curvature.copy()
    one_sided[0, 1] *= 1.1
    tilted = plain.gradient.copy()
    tilted[0] += 1e-3
    return [
        ("gradient is longer", replace(plain, gradient=100 * plain.gradient), Wanted.GRADIENT),
        ("sum to 0 over the classes", replace(plain, gradient=tilted), Wanted.GRADIENT),
        ("such a loss", replace(plain, loss=-1e-9), Wanted.GRADIENT),
        ("such a loss", replace(plain, loss=1e4), Wanted.GRADIENT),
        ("not symmetric", replace(full, curvature=one_sided), Wanted.FULL),
        ("negative direction", replace(full, curvature=-full.curvature), Wanted.FULL),
        ("curvature does not sum", replace(full, curvature=full.curvature + 1e-3 * np.eye(15)), Wanted.FULL),
        ("curvature is larger", replace(full, curvature=100 * full.curvature), Wanted.FULL),
        ("curvature is larger", replace(full, curvature=25.0 * np.kron(spread, row)), Wanted.FULL),
        ("other rows", replace(features, curvature=0.9 * features.curvature), Wanted.FEATURES),
        ("curvature is larger", replace(features, curvature=100 * features.curvature), Wanted.FEATURES),
        ("not the shape", plain, Wanted.FULL),
        ("not the shape", full, Wanted.GRADIENT),
        ("numbers, not", Sums(9, 1.0, np.zeros(3)), Wanted.GRADIENT),
        ("absurdly many", replace(plain, rows=10**400), Wanted.GRADIENT),
        ("1000 are believed", replace(plain, rows=1001), Wanted.GRADIENT),
    ]


@pytest.mark.parametrize(
    ("reason", "sums", "wanted"), lies(), ids=lambda part: part if isinstance(part, str) else None
)
def test_what_no_rows_can_have_is_found(reason: str, sums: Sums, wanted: Wanted) -> None:
    assert reason in str(check_sums(sums, SoftmaxL2(0.1, 2.0), 3, 4, 5.0, wanted, most_rows=1000))


@pytest.mark.parametrize("classes", [1, 2, 6])
@pytest.mark.parametrize("size", [0.0, 0.1, 3.0, 200.0])
def test_the_gradient_is_as_close_to_the_true_one_as_the_rounding_term_says(classes: int, size: float) -> None:
    """mpmath's arithmetic with 50 digits, on the rows that ``sum_head`` has clipped."""
    loss = loss_of(classes, l2=0.03)
    worst = 0.0
    for seed in range(3):
        model, rows, labels = federation(classes, rows=12, seed=seed, scale=2.0)
        model = {name: size * tensor for name, tensor in model.items()}
        theta = flatten(model)
        sums = add_up([sum_head(model, rows[at : at + 4], labels[at : at + 4], loss) for at in (0, 4, 8)])
        computed = sums.gradient / sums.rows + loss.l2 * theta
        clipped = heads.clip_rows(rows, loss.row_norm)
        bound = gradient_rounding(loss, 4, 3, classes, 4, float(np.linalg.norm(theta)))
        distance = exact_distance(computed, theta.reshape(classes, -1), clipped, labels, loss.l2)
        assert distance <= bound < 1e-9
        worst = max(worst, distance)
    assert worst > 0


def exact_distance(computed: np.ndarray, theta: np.ndarray, rows: np.ndarray, labels: np.ndarray, l2: float) -> float:
    with mpmath.workdps(50):
        classes, width = theta.shape
        exact = mpmath.matrix(classes, width)
        for row, label in zip(rows, labels, strict=True):
            extended = [*map(mpmath.mpf, row), mpmath.mpf(1)]
            logits = [mpmath.fdot(map(mpmath.mpf, own), extended) for own in theta]
            if classes == 1:
                residuals = [1 / (1 + mpmath.exp(-logits[0])) - int(label)]
            else:
                total = mpmath.fsum(map(mpmath.exp, logits))
                residuals = [mpmath.exp(logit) / total - int(at == label) for at, logit in enumerate(logits)]
            for at, residual in enumerate(residuals):
                for column in range(width):
                    exact[at, column] += residual * extended[column] / len(rows)
        differences = [
            exact[at, column]
            + mpmath.mpf(l2) * mpmath.mpf(theta[at, column])
            - mpmath.mpf(computed[at * width + column])
            for at in range(classes)
            for column in range(width)
        ]
        return float(mpmath.sqrt(mpmath.fsum(difference**2 for difference in differences)))


def test_rounding_is_small_and_grows_with_the_numbers() -> None:
    loss = SoftmaxL2(0.001, 1.0)
    assert gradient_rounding(loss, 10**8, 100, 10, 100, 10.0) < 1e-11
    least = gradient_rounding(loss, 100, 10, 10, 100, 1.0)
    assert least < gradient_rounding(loss, 100, 10, 10, 100, 2.0)
    assert least < gradient_rounding(loss, 10**8, 10, 10, 100, 1.0)
    for wrong in ((0, 1, 3, 4, 1.0), (1, 0, 3, 4, 1.0), (1, 1, 3, 4, math.nan), (2**60, 1, 3, 4, 1.0)):
        with pytest.raises(ValueError, match=r"most_rows|clients|theta_norm|proven"):
            gradient_rounding(loss, *wrong)
