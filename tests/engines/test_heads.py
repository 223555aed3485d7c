"""What a client executes for a head, against the simulator and against the loss itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescind.core.edges import ModelId
from rescind.core.regularity import LogisticL2, NetworkLoss, SoftmaxL2
from rescind.core.training import LocalTraining
from rescind.engines.heads import clip_rows, train_head_on
from rescind.engines.seeds import choose_batches, client_seed
from rescind.simulation import Federation, LogisticHead, Shard, Simulation, SoftmaxHead


def shards(classes: int, seed: int = 0) -> dict[str, Shard]:
    rng = np.random.default_rng(seed)
    return {
        f"clinic-{at}": Shard(3 * rng.normal(size=(7 + 4 * at, 5)), rng.integers(0, classes, 7 + 4 * at))
        for at in range(4)
    }


@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize("loss", [SoftmaxL2(0.03, 1.5), LogisticL2(0.03, 1.5)])
def test_a_client_computes_what_the_simulator_does(loss: SoftmaxL2 | LogisticL2, batch: int | None) -> None:
    classes, head = (3, SoftmaxHead(5, 3)) if isinstance(loss, SoftmaxL2) else (2, LogisticHead(5))
    data, training = shards(classes), LocalTraining(6, 0.8, loss)
    engine = Simulation(Federation(data, data["clinic-0"], classes), head, training, batch=batch, secret=b"s")
    rng = np.random.default_rng(3)
    model = {name: rng.normal(size=tensor.shape) for name, tensor in engine.start().items()}
    model_id = ModelId(2, 7)
    replies = engine.train(model, model_id, engine.clients)
    for at, name in enumerate(engine.clients):
        shard, chosen = data[name], None
        if batch is not None:
            count = len(shard.labels)
            chosen = choose_batches(client_seed(b"s", name, model_id), count, min(batch, count), training.steps)
        own = train_head_on(model, shard.features, shard.labels, training, chosen)
        for key, tensor in own.items():
            np.testing.assert_allclose(np.asarray(replies.tensors[key])[at], tensor, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("loss", [SoftmaxL2(0.2, 10.0), LogisticL2(0.2, 10.0)])
def test_a_step_goes_down_the_gradient_of_the_loss(loss: SoftmaxL2 | LogisticL2) -> None:
    """Central differences of the loss, written out: mean cross entropy and (lambda/2) ||theta||^2."""
    rng = np.random.default_rng(1)
    classes = 3 if isinstance(loss, SoftmaxL2) else 1
    rows, labels = rng.normal(size=(9, 4)), rng.integers(0, max(classes, 2), 9)
    model = {"bias": rng.normal(size=classes), "weight": rng.normal(size=(classes, 4))}

    def value(bias: np.ndarray, weight: np.ndarray) -> float:
        logits = rows @ weight.T + bias
        if classes == 1:
            signs = 2 * labels - 1
            data = np.log1p(np.exp(-signs * logits[:, 0])).mean()
        else:
            data = (np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(9), labels]).mean()
        return float(data + 0.1 * ((bias**2).sum() + (weight**2).sum()))

    after = train_head_on(model, rows, labels, LocalTraining(1, 0.5, loss))
    for name in model:
        for at in np.ndindex(*model[name].shape):
            moved = []
            for step in (1e-6, -1e-6):
                shifted = {key: tensor.copy() for key, tensor in model.items()}
                shifted[name][at] += step
                moved.append(value(**shifted))
            slope = (moved[0] - moved[1]) / 2e-6
            assert after[name][at] == pytest.approx(model[name][at] - 0.5 * slope, abs=1e-7)


@given(st.floats(0.01, 100), st.integers(0, 1000))
def test_no_row_is_longer_than_it_may_be(row_norm: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dtype in (np.float32, np.float64):
        rows = (rng.normal(size=(20, 7)) * 10.0 ** rng.uniform(-3, 3, (20, 1))).astype(dtype)
        rows[0] = 0
        found = clip_rows(rows, row_norm)
        assert found.dtype == dtype
        assert (np.linalg.norm(found.astype(np.float64), axis=1) <= row_norm).all()
        short = np.linalg.norm(rows.astype(np.float64), axis=1) < row_norm * 0.999
        assert (found[short] == rows[short]).all()


def test_other_losses_are_refused() -> None:
    model = {"bias": np.zeros(2), "weight": np.zeros((2, 3))}
    with pytest.raises(ValueError, match="trained by SoftmaxL2 or LogisticL2"):
        train_head_on(model, np.zeros((1, 3)), np.zeros(1, dtype=np.int64), LocalTraining(1, 0.1, NetworkLoss()))


def test_logits_far_out_do_not_overflow() -> None:
    for classes in (1, 2):
        model = {"bias": np.zeros(classes), "weight": np.full((classes, 1), 1e6) * np.arange(1, classes + 1)[:, None]}
        rows, labels = np.array([[900.0], [-900.0]]), np.array([0, 1])
        loss = LogisticL2(0.0, 1000.0) if classes == 1 else SoftmaxL2(0.0, 1000.0)
        after = train_head_on(model, rows, labels, LocalTraining(1, 0.1, loss))
        assert all(np.isfinite(tensor).all() for tensor in after.values())


def in_extended_precision(model, rows, labels, training, chosen):
    """The same steps in 64-bit mantissas: exact, for what float64's rounding is measured against."""
    loss, wide = training.loss, np.longdouble
    weight, bias = model["weight"].astype(wide), model["bias"].astype(wide)
    clipped = clip_rows(rows.astype(np.float64), loss.row_norm).astype(wide)
    rate, l2, prox = wide(training.learning_rate), wide(loss.l2), wide(training.proximal)
    start = weight, bias
    for step in range(training.steps):
        at = slice(None) if chosen is None else chosen[step]
        logits = clipped[at] @ weight.T + bias
        if isinstance(loss, LogisticL2):
            with np.errstate(over="ignore"):
                residuals = 1 / (1 + np.exp(-logits)) - labels[at][:, np.newaxis]
        else:
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            residuals = powers / powers.sum(axis=1, keepdims=True) - np.eye(len(bias))[labels[at]]
        slope = residuals.T @ clipped[at] / len(residuals), residuals.sum(axis=0) / len(residuals)
        weight = weight - rate * (slope[0] + l2 * weight + prox * (weight - start[0]))
        bias = bias - rate * (slope[1] + l2 * bias + prox * (bias - start[1]))
    return {"weight": weight, "bias": bias}


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="this machine has no precision beyond float64")
@pytest.mark.parametrize("precision", ["float32", "float64"])
@given(
    seed=st.integers(0, 2**32 - 1),
    steps=st.integers(1, 40),
    rate=st.sampled_from([0.01, 0.5, 1.0, 2.2, 7.0]),
    norm=st.sampled_from([0.0, 1.0, 1e3]),
    proximal=st.sampled_from([0.0, 0.3]),
    batch=st.sampled_from([None, 3]),
    logistic=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_client_rounds_no_more_than_its_term(precision, seed, steps, rate, norm, proximal, batch, logistic) -> None:
    rng = np.random.default_rng(seed)
    loss = (LogisticL2 if logistic else SoftmaxL2)(float(rng.choice([0.0, 0.01, 0.3])), 1.5)
    training = LocalTraining(steps, rate / loss.curvature.high, loss, proximal=proximal, precision=precision)
    classes, count = 1 if logistic else 4, int(rng.integers(3, 20))
    shapes = {"bias": (classes,), "weight": (classes, 6)}
    model = {name: (norm * rng.normal(size=shape)).astype(precision) for name, shape in shapes.items()}
    rows, labels = 3 * rng.normal(size=(count, 6)), rng.integers(0, max(classes, 2), count)
    chosen = None if batch is None else rng.integers(0, count, (steps, batch))
    own = train_head_on(model, rows, labels, training, chosen)
    exact = in_extended_precision(model, rows, labels, training, chosen)

    def length(tensors) -> float:
        return float(np.sqrt(sum(np.square(tensor.astype(np.longdouble)).sum() for tensor in tensors)))

    largest = max(length(model.values()), length(own.values()))
    term = training.rounding(largest, sum(tensor.size for tensor in own.values()), batch or count)
    # A client of one world: a quarter of the casts and half of the steps.
    assert length([own[name] - exact[name] for name in own]) <= term / 2
