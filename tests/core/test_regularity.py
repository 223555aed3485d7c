import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.federations import Logistic, Softmax
from rescind.core.edges import NO_BOUND
from rescind.core.regularity import (
    Curvature,
    DeclaredLoss,
    LogisticL2,
    NetworkLoss,
    SoftmaxL2,
    expansion,
    local_factor,
    server_factor,
    step_factor,
)
from rescind.core.training import LocalTraining

rates = st.floats(1e-3, 5)
seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize(
    ("curvature", "rate", "expected"),
    [
        (Curvature(-2, 2), 0.5, 2.0),  # smooth: 1 + eta beta
        (Curvature(0, 2), 1.0, 1.0),  # convex, eta = 2/beta
        (Curvature(0, 2), 1.5, 2.0),  # convex beyond 2/beta: eta beta - 1
        (Curvature(0.5, 2), 0.5, 0.75),  # strongly convex: 1 - eta mu
        (Curvature(0.5, 2), 0.9, 0.8),  # and eta beta - 1 beyond 2/(beta+mu)
    ],
)
def test_expansion_of_one_step(curvature: Curvature, rate: float, expected: float) -> None:
    assert expected <= expansion(curvature, rate) <= expected * (1 + 1e-14)


@given(st.floats(0.01, 1), st.floats(1, 20), st.floats(0.05, 1))
def test_the_papers_factor_is_weaker(strong: float, smooth: float, share: float) -> None:
    rate = share * 2 / (smooth + strong)
    assert expansion(Curvature(strong, smooth), rate) <= 1 - rate * smooth * strong / (smooth + strong) + 1e-12


@given(seeds, rates, st.integers(0, 6), st.sampled_from([0.0, 0.1, 1.0]))
def test_no_quadratic_expands_more(seed: int, rate: float, steps: int, proximal: float) -> None:
    """K steps on a quadratic are a matrix; its norm, with the anchor moving along, is what rho bounds."""
    rng = np.random.default_rng(seed)
    low, high = sorted(rng.uniform(-1, 3, 2))
    curvature = Curvature(low, max(high, 1e-3))
    basis, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    hessian = basis * rng.uniform(curvature.low, curvature.high, 4) @ basis.T
    moved = np.eye(4)
    for _ in range(steps):
        moved = moved - rate * (hessian @ moved + proximal * (moved - np.eye(4)))
    assert np.linalg.norm(moved, 2) <= local_factor(curvature, rate, steps, proximal) * (1 + 1e-9)


def test_fedprox_keeps_one_for_convex_losses_up_to_its_rate() -> None:
    convex = Curvature(0.0, 2.0)
    assert local_factor(convex, 2 / (2 + 2 * 0.5), 7, proximal=0.5) == 1.0
    assert local_factor(convex, 0.8, 7, proximal=0.5) > 1.0
    # With strong convexity the anchor holds the model back: worse than plain FedAvg.
    strong = Curvature(0.1, 2.0)
    assert local_factor(strong, 0.5, 5, proximal=0.5) > local_factor(strong, 0.5, 5)


def test_server_learning_rate() -> None:
    assert server_factor(0.5, 1.0) == 0.5
    for rho, rate, expected in ((0.5, 0.5, 0.75), (1.0, 0.3, 1.0), (1e-12, 0.999, 0.001 + 0.999e-12)):
        assert expected <= server_factor(rho, rate) <= expected * (1 + 1e-14)
    assert server_factor(1e-17, 1.0) == 1e-17


def test_a_factor_that_cancels_is_not_rounded_to_nothing() -> None:
    """1 - 0.1 * 10 is not 0: a tenth is not a float64."""
    exact = abs(1 - Fraction(0.1) * 10)
    assert exact > 0
    assert local_factor(Curvature(10.0, 10.0), 0.1, 1) >= exact


@given(seeds, st.floats(0.1, 4), st.integers(2, 5))
def test_constants_of_the_heads(seed: int, row_norm: float, classes: int) -> None:
    """beta, mu and L against the Hessian and the gradient of single samples."""
    rng = np.random.default_rng(seed)
    row = rng.normal(size=3)
    row *= row_norm / np.linalg.norm(row)
    features, l2 = np.append(row, 1.0), 0.05
    logits = rng.normal(size=classes) * rng.choice([0.1, 1, 10])
    shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    outer = np.outer(features, features)
    hessians = {
        SoftmaxL2(l2, row_norm): np.kron(np.diag(shares) - np.outer(shares, shares), outer),
        LogisticL2(l2, row_norm): shares[0] * (1 - shares[0]) * outer,
    }
    for loss, hessian in hessians.items():
        eigenvalues = np.linalg.eigvalsh(hessian) + l2
        assert loss.curvature.low - 1e-12 <= eigenvalues.min()
        assert eigenvalues.max() <= loss.curvature.high + 1e-12
    theta = rng.normal(size=4 * classes) * 10
    label = np.eye(classes)[[rng.integers(classes)]]
    softmax = Softmax(features[None], label, 0.0).gradient(theta, slice(None))
    logistic = Logistic(features[None], label[:, :1], 0.0).gradient(theta[:4], slice(None))
    assert np.linalg.norm(softmax) <= SoftmaxL2(l2, row_norm).gradient_bound
    assert np.linalg.norm(logistic) <= LogisticL2(l2, row_norm).gradient_bound


def test_constants_of_the_heads_are_reached() -> None:
    assert SoftmaxL2(0.01, 3.0).curvature.high == pytest.approx(5.01)
    assert LogisticL2(0.01, 3.0).curvature.high == pytest.approx(2.51)
    assert SoftmaxL2(0.0, 3.0).gradient_bound == pytest.approx(math.sqrt(20))
    assert LogisticL2(0.0, 3.0).gradient_bound == pytest.approx(math.sqrt(10))


def plain(**changes: object) -> LocalTraining:
    return LocalTraining(**{"steps": 5, "learning_rate": 0.1, "loss": SoftmaxL2(0.01, 1.0), **changes})  # type: ignore[arg-type]


def test_plain_training_is_covered() -> None:
    assert plain().obstacles == ()
    assert plain().factor() == pytest.approx((1 - 0.1 * 0.01) ** 5)
    assert plain().factor(steps=1) == pytest.approx(1 - 0.1 * 0.01)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"momentum": 0.9}, "local momentum is 0.9"),
        ({"optimizer": "Adam"}, "the local optimizer is Adam"),
        ({"server_optimizer": "FedAdam"}, "the server's optimizer is FedAdam"),
        ({"server_momentum": 0.5}, "server momentum is 0.5"),
        ({"clips_updates": True}, "whole client updates are clipped"),
        ({"clips_gradients": True}, "gradients are clipped"),
        ({"weight_decay": 0.01}, "weight decay of 0.01"),
        ({"constant_learning_rate": False}, "the learning rate changes"),
        ({"untrained_buffers": ("bn1.running_mean",)}, "bn1.running_mean"),
        ({"precision": "bfloat16"}, "the precision is bfloat16"),
        ({"loss": NetworkLoss()}, "no proven curvature"),
    ],
)
def test_what_the_theorem_does_not_cover_is_named(changes: dict[str, object], named: str) -> None:
    (obstacle,) = plain(**changes).obstacles
    assert named in str(obstacle)
    assert obstacle.why
    assert obstacle.instead


def test_an_unproven_loss_is_treated_as_if_the_factor_were_one() -> None:
    assert plain(loss=NetworkLoss()).factor() == 1.0


def test_rounding_term() -> None:
    single = plain(precision="float32").rounding(2.0, parameters=100, batch=10)
    # Two casts in each world, and little else.
    assert 4 * 2.0**-24 * 2.0 < single < 4 * 2.0**-24 * 2.0 * 1.01
    assert plain().rounding(2.0, 100, 10) < 0.01 * single
    with pytest.raises(ValueError, match="gradient_bound"):
        plain(loss=DeclaredLoss(Curvature(0, 1))).rounding(1.0, 1, 1)
    with pytest.raises(ValueError, match="bfloat16"):
        plain(precision="bfloat16").rounding(1.0, 1, 1)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": -1.0}, r"learning_rate is -1\.0"),
        ({"momentum": -0.1}, "momentum"),
        ({"server_learning_rate": 1.5}, r"server_learning_rate is 1\.5; it has to be above 0 and at most 1"),
    ],
)
def test_impossible_training_is_refused(changes: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        plain(**changes)


def test_impossible_constants_are_refused() -> None:
    for call in (
        lambda: Curvature(2.0, 1.0),
        lambda: Curvature(-1.0, 0.0),
        lambda: SoftmaxL2(-0.1, 1.0),
        lambda: SoftmaxL2(0.1, math.inf),
        lambda: server_factor(1.0, 0.0),
        lambda: local_factor(Curvature(0, 1), 0.0, 1),
    ):
        with pytest.raises(ValueError, match="is"):
            call()


@given(st.floats(1e-3, 1e3), st.floats(1e-9, 1e3))
def test_constants_of_the_heads_are_rounded_up(row_norm: float, l2: float) -> None:
    square = Fraction(row_norm) ** 2 + 1
    for loss, curvature, residual in ((SoftmaxL2, Fraction(1, 2), 2), (LogisticL2, Fraction(1, 4), 1)):
        head = loss(l2, row_norm)
        assert Fraction(head.curvature.high) >= square * curvature + Fraction(l2)
        assert Fraction(head.gradient_bound) ** 2 >= square * residual


@given(st.floats(-1, 3), st.floats(0, 3), st.floats(1e-3, 1), st.integers(1, 6), st.sampled_from([0.0, 0.3]))
def test_factors_are_rounded_up(low: float, width: float, rate: float, steps: int, proximal: float) -> None:
    curvature = Curvature(low, max(low + width, 1e-3))
    pull = Fraction(rate) * Fraction(proximal)
    step = max(abs(1 - pull - Fraction(rate) * Fraction(end)) for end in (curvature.low, curvature.high))
    exact = step**steps + pull * sum(step**power for power in range(steps))
    assert Fraction(local_factor(curvature, rate, steps, proximal)) >= (1 if curvature.low == 0.0 else exact)


@given(st.floats(0, 3), st.floats(1e-3, 1))
def test_the_servers_rate_rounds_up(factor: float, rate: float) -> None:
    assert Fraction(server_factor(factor, rate)) >= 1 - Fraction(rate) + Fraction(rate) * Fraction(factor)


def test_the_proximal_term_enters_the_factor() -> None:
    loss = SoftmaxL2(0.01, 1.0)
    assert plain(proximal=0.5).factor() == local_factor(loss.curvature, 0.1, 5, 0.5)
    assert plain(proximal=0.5).factor(steps=2) == local_factor(loss.curvature, 0.1, 2, 0.5)
    assert plain(proximal=0.5).factor() > plain().factor()


def test_names_are_read_without_regard_to_case() -> None:
    assert plain(optimizer="SGD", server_optimizer="Average").obstacles == ()


@pytest.mark.parametrize("name", ["proximal", "momentum", "server_momentum", "weight_decay"])
def test_a_term_below_nothing_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is -0\.1"):
        plain(**{name: -0.1})


def test_rounding_terms_of_both_precisions() -> None:
    for precision, unit in (("float32", 2.0**-24), ("float64", 2.0**-53)):
        training, loss = plain(precision=precision), SoftmaxL2(0.01, 1.0)
        for steps, gradient_bound in ((None, None), (10, None), (10, 0.0), (None, 7.0)):
            count, bound = steps or 5, loss.gradient_bound if gradient_bound is None else gradient_bound
            kappa = count * (2 + 20 * 0.1 * loss.curvature.high) * (100 + 10 + 64) * 2.0**-53
            # Of K steps, each adds at most eta (L + lambda ||theta||), and lambda pulls back what was there.
            reach = 0.1 * (bound + 0.01 * 2.0) * sum((1 - 0.1 * 0.01) ** step for step in range(count))
            expected = (4 * unit + 2.0**-31) * 2.0 + 2 * kappa * (2.0 + reach + 0.1 * bound)
            expected *= 1 + 2.0**-20
            found = training.rounding(2.0, 100, 10, gradient_bound, steps)
            assert found == pytest.approx(expected, rel=1e-8, abs=0)


@pytest.mark.parametrize(
    "changes",
    [{"learning_rate": 9.0}, {"learning_rate": 2.5, "steps": 200}, {"steps": 10**9}],
)
def test_steps_that_are_too_large_or_too_many_have_no_rounding_term(changes: dict[str, object]) -> None:
    """Then no noise is enough, rather than too little of it, and nothing fails."""
    assert plain(**changes).rounding(1.0, 100, 10) == NO_BOUND


@pytest.mark.parametrize(
    "build",
    [
        lambda: Curvature(-math.inf, 1.0),
        lambda: Curvature(0.0, math.inf),
        lambda: Curvature(math.nan, 1.0),
        lambda: Curvature(0.0, math.nan),
        lambda: local_factor(Curvature(0.1, 1.0), 0.1, -1),
        lambda: local_factor(Curvature(0.1, 1.0), 0.1, 1, proximal=-0.1),
    ],
)
def test_numbers_that_bound_nothing_are_refused(build: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="is"):
        build()


@pytest.mark.parametrize(
    ("curvature", "rate", "proximal"),
    [
        (Curvature(0.5, 2.0), 0.1, 0.5),
        (Curvature(-1e-4, 2.0), 0.1, 0.01),
        (Curvature(1e-9, 2.0), 1e-4, 1e-6),
    ],
)
def test_many_proximal_steps_go_on_where_single_ones_end(curvature: Curvature, rate: float, proximal: float) -> None:
    """Up to ten thousand steps are made one by one; more are doubled, and still rounded up."""
    c, pull = step_factor(curvature, rate, proximal), rate * proximal
    for steps in (10_001, 12_345, 40_000):
        exact = 1.0
        for _ in range(steps):
            exact = c * exact + pull
        found = local_factor(curvature, rate, steps, proximal)
        assert found == pytest.approx(exact, rel=1e-9)
        assert found >= exact * (1 - 1e-12)
    power = Fraction(c) ** 10_001
    many = local_factor(curvature, rate, 10_001, proximal)
    assert Fraction(many) >= power + Fraction(pull) * (power - 1) / (Fraction(c) - 1)


def test_billions_of_proximal_steps_are_computed_at_once() -> None:
    strong = local_factor(Curvature(0.5, 2.0), 0.1, 2**31, proximal=0.5)
    assert strong == pytest.approx(0.5 / (0.5 + 0.5), rel=1e-6)
    assert math.isinf(local_factor(Curvature(-1.0, 2.0), 0.1, 2**31, proximal=0.5))


def test_a_factor_beyond_float64_is_infinite() -> None:
    assert local_factor(Curvature(0.02, 1.0), 1e308, 5) == math.inf
    assert SoftmaxL2(l2=0.1, row_norm=1e150).curvature.high == pytest.approx(0.5e300)
    with pytest.raises(ValueError, match="is not an interval"):
        _ = SoftmaxL2(l2=0.1, row_norm=1e200).curvature
