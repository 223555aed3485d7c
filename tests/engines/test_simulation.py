from dataclasses import replace

import numpy as np
import pytest
import torch

from rescind import History
from rescind.core.edges import ModelId
from rescind.core.facts import PublicHead, Sampling, Source
from rescind.core.regularity import Curvature, DeclaredLoss, LogisticL2, NetworkLoss, SoftmaxL2
from rescind.core.training import LocalTraining
from rescind.engines.seeds import client_seed, random_stream, toss_coin
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.simulation import Federation, Network, Shard, Simulation, SoftmaxHead
from rescind.simulation.trainers import Loop, fast
from rescind.testing.engines import EngineConformance, relative_difference, train
from tests.builders import entries_of, rounds_of

HEAD = LocalTraining(4, 0.3, SoftmaxL2(l2=0.05, row_norm=2.0))
NETWORK = LocalTraining(2, 0.05, NetworkLoss())
CLASSES = 3
NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shard(count, inputs, seed, dtype=np.float64):
    """Make examples whose classes can be learned: each class has a mean of its own."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    means = np.random.default_rng(99).standard_normal((CLASSES, *inputs))
    return Shard((means[labels] + rng.standard_normal((count, *inputs))).astype(dtype), labels)


def federation(counts, inputs):
    shards = {
        name: shard(count, inputs, index) for index, (name, count) in enumerate(zip(NAMES, counts, strict=True))
    }
    return Federation(shards, shard(40, inputs, 50), CLASSES)


def head(counts=(9, 12, 5, 16, 7), features=20, training=HEAD, **options):
    options = {"secret": b"s", **options}
    return Simulation(federation(counts, (features,)), SoftmaxHead(features, CLASSES), training, **options)


def network(counts=(6, 9, 5, 7, 8), training=NETWORK, **options):
    options = {"secret": b"s", **options}
    return Simulation(federation(counts, (1, 18, 18)), Network(1, 18, CLASSES, hidden=8), training, **options)


SETTINGS = {
    "full batch": lambda **options: head(**options),
    "more examples than features": lambda **options: head((30, 33, 21, 40, 64), features=6, **options),
    "both": lambda **options: head((30, 12, 5, 20, 14), features=15, **options),
    "the same number of examples": lambda **options: head((10,) * 5, **options),
    "single examples": lambda **options: head((1, 2, 1, 3, 1), **options),
    "batches": lambda **options: head((30, 12, 5, 20, 14), batch=8, **options),
    "batches of one": lambda **options: head(batch=1, **options),
    "batches larger than any shard": lambda **options: head(batch=100, **options),
}


class TestFullBatch(EngineConformance):
    @pytest.fixture
    def make_engine(self):
        return head


class TestMiniBatchAndPoisson(EngineConformance):
    @pytest.fixture
    def make_engine(self):
        training = replace(HEAD, precision="float32", server_learning_rate=0.5)
        return lambda: head(training=training, sampling=Sampling.POISSON, rate=0.5, batch=4)


class TestNetworkAndFixedSize(EngineConformance):
    @pytest.fixture
    def make_engine(self):
        training = replace(NETWORK, precision="float32")
        return lambda: network(training=training, sampling=Sampling.FIXED_SIZE, size=2, batch=4)


class TestLoop(EngineConformance):
    @pytest.fixture
    def make_engine(self):
        return lambda: head(trainer=Loop, batch=4)


# The fast trainers against the loop


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-5), ("float64", 1e-10)])
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_fast_head_agrees_with_the_loop_after_50_rounds(setting, precision, tolerance):
    training = replace(HEAD, precision=precision)
    slow, quick = (train(SETTINGS[setting](training=training, trainer=each), 50) for each in (Loop, fast))
    assert relative_difference(slow, quick) <= tolerance


@pytest.mark.parametrize("loss", [SoftmaxL2(0.0, 2.0), SoftmaxL2(4.0, 2.0)])
def test_the_fast_head_agrees_with_the_loop_for_any_l2_term(loss):
    slow, quick = (train(head(training=replace(HEAD, loss=loss), trainer=each), 10) for each in (Loop, fast))
    assert relative_difference(slow, quick) <= 1e-10


@pytest.mark.parametrize("batch", [None, 8])
def test_many_participants_are_trained_in_portions(batch, monkeypatch):
    monkeypatch.setattr("rescind.simulation.trainers._TOGETHER", 2)
    slow, quick = (train(head((10, 9, 12, 3, 10), batch=batch, trainer=each), 5) for each in (Loop, fast))
    assert relative_difference(slow, quick) <= 1e-10


# In float64: in float32 one ReLU or maximum that falls to the other side at a tie sets two networks apart.
@pytest.mark.parametrize("batch", [None, 4])
def test_the_fast_network_agrees_with_the_loop_after_50_rounds(batch):
    slow, quick = (train(network(trainer=each, batch=batch), 50) for each in (Loop, fast))
    assert relative_difference(slow, quick) <= 1e-10


@pytest.mark.parametrize("make", [head, network])
def test_momentum_begins_anew_in_every_round(make):
    training = replace(NETWORK if make is network else HEAD, momentum=0.9)
    slow, quick = (train(make(training=training, trainer=each, batch=4), 5) for each in (Loop, fast))
    assert relative_difference(slow, quick) <= 1e-10
    without = train(make(training=replace(training, momentum=0.0), batch=4), 5)
    assert relative_difference(slow, without) > 1e-3
    once = replace(training, steps=1)
    one, other = (train(make(training=each, batch=4), 5) for each in (once, replace(once, momentum=0.0)))
    assert relative_difference(one, other) <= 1e-15


@pytest.mark.parametrize(("name", "limit"), [("_TOGETHER", 2), ("_NUMBERS", 100_000), ("_NUMBERS", 1)])
def test_many_networks_are_trained_in_portions(name, limit, monkeypatch):
    monkeypatch.setattr(f"rescind.simulation.trainers.{name}", limit)
    slow, quick = (train(network((6, 9, 6, 6, 9), trainer=each), 5) for each in (Loop, fast))
    assert relative_difference(slow, quick) <= 1e-10


@pytest.mark.parametrize("size", [18, 19, 21, 24, 32])
def test_the_fast_network_agrees_with_the_loop_on_images_of_any_size(size):
    data = federation((6, 9, 5, 7, 8), (3, size, size))
    slow, quick = (
        train(Simulation(data, Network(3, size, CLASSES), NETWORK, batch=4, secret=b"s", trainer=each), 2)
        for each in (Loop, fast)
    )
    assert relative_difference(slow, quick) <= 1e-10


@pytest.mark.parametrize("make", [head, network])
def test_two_runs_are_equal_to_the_last_bit(make):
    def run():
        training = replace(HEAD if make is head else NETWORK, precision="float32")
        return train(make(training=training, batch=4, sampling=Sampling.POISSON, rate=0.6), 10)

    one, other = run(), run()
    assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_another_secret_gives_other_batches():
    one, other = (train(head(batch=4, secret=secret), 1) for secret in (b"s", b"t"))
    assert relative_difference(one, other) > 1e-6


def test_training_learns():
    for engine in (head(), network()):
        before, model = engine.test_accuracy(engine.start()), train(engine, 40)
        assert engine.test_accuracy(model) > before + 0.3
        assert engine.accuracy(model, engine.clients) > 0.7


def test_nothing_of_torchs_global_state_changes():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    train(network(batch=4), 1)
    train(head(batch=4), 1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()


# What is executed


@pytest.mark.parametrize("trainer", [Loop, fast])
def test_one_step_is_the_gradient_of_the_mean_cross_entropy_with_l2_on_all_parameters(trainer):
    loss = SoftmaxL2(l2=0.2, row_norm=100.0)
    engine = head(training=LocalTraining(1, 0.5, loss), trainer=trainer)
    model = {name: np.random.default_rng(3).standard_normal(each.shape) for name, each in engine.start().items()}
    replies = engine.train(model, ModelId(0, 1), ["b"])
    own = shard(12, (20,), 1)

    def value(parameters):
        logits = own.features @ parameters["weight"].T + parameters["bias"]
        entropy = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(12), own.labels]
        return entropy.mean() + 0.1 * sum((each**2).sum() for each in parameters.values())

    for name, tensor in model.items():
        for index in np.ndindex(tensor.shape):
            shifted = [{key: each.copy() for key, each in model.items()} for _ in range(2)]
            shifted[0][name][index] += 1e-5
            shifted[1][name][index] -= 1e-5
            slope = (value(shifted[0]) - value(shifted[1])) / 2e-5
            assert replies.tensors[name][0][index] == pytest.approx(tensor[index] - 0.5 * slope, abs=1e-8)


@pytest.mark.parametrize("trainer", [Loop, fast])
def test_batches_are_permutations_cut_into_pieces(trainer):
    engine = head((5, 12, 5, 16, 7), training=replace(HEAD, steps=3), batch=4, trainer=trainer)
    model, model_id = engine.start(), ModelId(2, 9)
    generator = random_stream(client_seed(b"s", "a", model_id), "batches")
    order = np.concatenate([generator.permutation(5) for _ in range(3)])
    own = shard(5, (20,), 0)
    features = own.features * np.minimum(1, 2 / np.linalg.norm(own.features, axis=1, keepdims=True))
    weight, bias = np.zeros((CLASSES, 20)), np.zeros(CLASSES)
    for step in range(3):
        rows = order[4 * step : 4 * step + 4]
        odds = np.exp(features[rows] @ weight.T + bias)
        residuals = odds / odds.sum(axis=1, keepdims=True) - np.eye(CLASSES)[own.labels[rows]]
        weight, bias = (
            weight - 0.3 * (residuals.T @ features[rows] / 4 + 0.05 * weight),
            bias - 0.3 * (residuals.mean(axis=0) + 0.05 * bias),
        )
    replies = engine.train(model, model_id, ["c", "a"])
    # Rows are clipped a millionth below the norm asked for.
    np.testing.assert_allclose(replies.tensors["weight"][1], weight, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(replies.tensors["bias"][1], bias, rtol=1e-5, atol=1e-7)
    assert replies.batch == 4


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_no_row_is_longer_than_the_loss_says(precision):
    engine = head(training=replace(HEAD, loss=SoftmaxL2(0.1, 1.5), precision=precision))
    for rows in (engine._examples.features, engine._test.features):
        norms = np.linalg.norm(rows.numpy().astype(np.float64), axis=1)
        assert norms.max() <= 1.5
        # They were all longer.
        assert norms.min() >= 1.5 * (1 - 2e-6)


def test_short_rows_stay_as_they_are():
    engine = head(training=replace(HEAD, loss=SoftmaxL2(0.1, 1e3)))
    assert np.array_equal(engine._examples.features.numpy()[:9], shard(9, (20,), 0).features)


def test_replies_say_how_many_examples_and_steps():
    engine = head((9, 12, 5, 16, 7), batch=6)
    replies = engine.train(engine.start(), ModelId(0, 1), ["c", "e"])
    assert replies.weights.tolist() == [5.0, 7.0]
    assert replies.steps == (4, 4)
    assert replies.batch == 6
    assert engine.train(engine.start(), ModelId(0, 1), ["c"]).batch == 5
    assert head().train(engine.start(), ModelId(0, 1), ["d", "a"]).batch == 16


def test_a_client_takes_part_by_its_own_coin():
    model_id = ModelId(3, 8)
    coins = {name: toss_coin(b"s", "sampling", name, 3, 8) for name in NAMES}
    poisson = head(sampling=Sampling.POISSON, rate=0.5)
    assert poisson.draw(model_id, NAMES) == [name for name in NAMES if coins[name] < 0.5]
    fixed = head(sampling=Sampling.FIXED_SIZE, size=2)
    assert set(fixed.draw(model_id, NAMES)) == set(sorted(NAMES, key=coins.get)[:2])
    assert fixed.draw(model_id, ["e"]) == ["e"]
    assert head(sampling=Sampling.POISSON, rate=1.0).draw(model_id, NAMES) == list(NAMES)


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (Network(3, 32, 10), 122_570),
        (Network(3, 32, 100, hidden=256), 344_420),
        (Network(1, 28, 10), 93_322),
        # 3x3: 80 + 1,168 + 2,320; 144 x 32 + 32; 32 x 10 + 10.
        (Network(1, 28, 10, hidden=32, width=8), 8_538),
        (SoftmaxHead(784, 10), 7_850),
    ],
)
def test_models_have_as_many_parameters_as_they_should(model, parameters):
    start = model.start()
    assert sum(tensor.numel() for tensor in start.values()) == parameters
    assert {name: each.shape for name, each in model.module().named_parameters()} == {
        name: each.shape for name, each in start.items()
    }


def test_the_networks_start_is_uniform_within_one_over_the_root_of_the_fan_in():
    start = Network(3, 32, 10).start()
    for layer, fan_in in (("convolution_1", 27), ("convolution_2", 288), ("hidden", 1024)):
        scaled = start[f"{layer}.weight"] * fan_in**0.5
        assert 0.98 < scaled.abs().max() <= 1
        assert scaled.var() == pytest.approx(1 / 3, rel=0.15)
        assert (start[f"{layer}.bias"] * fan_in**0.5).abs().max() <= 1
    assert not any(tensor.any() for tensor in SoftmaxHead(4, 3).start().values())


# What is refused


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": "adam"}, "adam"),
        ({"proximal": 0.1}, "proximal"),
        ({"weight_decay": 0.1}, "weight_decay"),
        ({"clips_gradients": True}, "clips_gradients"),
        ({"constant_learning_rate": False}, "learning rate"),
        ({"server_optimizer": "adam"}, "server's optimizer"),
        ({"server_momentum": 0.5}, "server_momentum"),
        ({"untrained_buffers": ("running_mean",)}, "running_mean"),
        ({"precision": "bfloat16"}, "bfloat16"),
        ({"loss": LogisticL2(0.1, 1.0)}, "LogisticL2"),
    ],
)
def test_a_training_that_is_not_executed_is_refused(change, words):
    with pytest.raises(ValueError, match=words):
        head(training=replace(HEAD, **change))


def test_a_network_has_no_loss_of_a_head():
    with pytest.raises(ValueError, match="SoftmaxL2"):
        network(training=replace(NETWORK, loss=HEAD.loss))


@pytest.mark.parametrize("make", [head, network])
def test_what_is_declared_of_a_loss_changes_no_number_and_is_declared(make):
    losses = NetworkLoss(), DeclaredLoss(Curvature(-1, 1))
    unknown, declared = (make(training=replace(NETWORK, loss=loss), batch=4) for loss in losses)
    assert relative_difference(train(unknown, 5), train(declared, 5)) == 0
    assert declared.facts.sources.training is Source.DECLARED
    assert not declared.facts.training_obstacles
    assert declared.facts.training.factor() > 1
    # Nobody has worked out how torch rounds it.
    coarse = make(training=replace(NETWORK, loss=DeclaredLoss(Curvature(-1, 1)), precision="float32"))
    assert any("rounding" in obstacle for obstacle in coarse.facts.training_obstacles)


def test_clipping_of_updates_is_the_servers():
    assert head(training=replace(HEAD, clips_updates=True)).facts.training.clips_updates


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": 0.5}, "rate"),
        ({"size": 2}, "size"),
        ({"sampling": Sampling.POISSON}, "rate"),
        ({"sampling": Sampling.POISSON, "rate": 0.0}, "rate"),
        ({"sampling": Sampling.POISSON, "rate": float("nan")}, "rate"),
        ({"sampling": Sampling.FRACTION}, "Flower"),
        ({"sampling": Sampling.FIXED_SIZE}, "size"),
        ({"sampling": Sampling.FIXED_SIZE, "size": 0}, "size"),
        ({"sampling": Sampling.FIXED_SIZE, "size": 2, "rate": 0.5}, "rate"),
        ({"sampling": "everybody"}, "sampling"),
        ({"batch": 0}, "batch"),
        ({"batch": 2.5}, "batch"),
        ({"secret": b""}, "secret"),
        ({"secret": "words"}, "secret"),
        ({"public": PublicHead(0.0, 62, 16)}, "parameters"),
        ({"public": PublicHead(0.0, 63, 15)}, "batch"),
        ({"public": PublicHead(0.0, 63, 16, steps=3)}, "steps"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        head(**options)


def test_public_constants_that_fit_are_recorded():
    public = PublicHead(0.0, 63, 16)
    facts = head(public=public, public_schedule=True).facts
    assert facts.public == public
    assert facts.strict_obstacles == ()
    assert facts.obstacles == ()
    assert network().facts.obstacles != ()


def test_a_model_for_other_data_is_refused():
    data = federation((3,) * 5, (20,))
    with pytest.raises(ValueError, match="shape"):
        Simulation(data, SoftmaxHead(19, CLASSES), HEAD, secret=b"s")
    with pytest.raises(ValueError, match="4"):
        Simulation(data, SoftmaxHead(20, 4), HEAD, secret=b"s")
    with pytest.raises(ValueError, match="18"):
        Network(1, 17, 3)
    with pytest.raises(ValueError, match="width is 0"):
        Network(1, 18, 3, width=0)


@pytest.mark.parametrize("make", [head, network])
def test_what_a_model_says_of_any_examples(make):
    engine = make()
    model = train(engine, 3)
    inputs = (20,) if make is head else (1, 18, 18)
    asked = shard(40, inputs, 50)
    said = engine.logits(model, asked)
    assert said.shape == (40, CLASSES)
    # The same examples are the federation's test data.
    assert np.mean(said.argmax(axis=1) == asked.labels) == engine.test_accuracy(model)


def test_rows_that_are_asked_about_are_clipped_as_those_trained_on():
    engine = head()
    model, asked = train(engine, 2), shard(6, (20,), 7)
    longer = Shard(1e6 * asked.features, asked.labels)
    norms = np.linalg.norm(asked.features, axis=1, keepdims=True)
    unit = Shard(asked.features / norms * HEAD.loss.row_norm, asked.labels)
    np.testing.assert_allclose(engine.logits(model, longer), engine.logits(model, unit), rtol=1e-6)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda model: model.pop("bias"),
        lambda model: model.update(extra=np.zeros(3)),
        lambda model: model.update(bias=np.zeros(3, dtype=np.float32)),
        lambda model: model.update(bias=np.zeros(4)),
        lambda model: model.update(bias=np.zeros((3, 1))),
    ],
)
def test_a_model_of_another_kind_is_refused(spoil):
    engine = head()
    model = engine.start()
    spoil(model)
    for asked in (
        lambda: engine.train(model, ModelId(0, 1), NAMES),
        lambda: engine.train(model, ModelId(0, 1), []),
        lambda: engine.accuracy(model, NAMES),
        lambda: engine.test_accuracy(model),
    ):
        with pytest.raises(ValueError, match=r"bias|extra"):
            asked()


def test_a_client_named_twice_is_refused():
    engine = head()
    with pytest.raises(ValueError, match="'b'"):
        engine.train(engine.start(), ModelId(0, 1), ["b", "a", "b"])


def test_the_accuracy_of_nobody_is_refused():
    engine = head()
    with pytest.raises(ValueError, match="nobody"):
        engine.accuracy(engine.start(), [])


GOOD = shard(4, (3,), 0)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Shard(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)), "no examples"),
        (Shard(np.zeros((2, 3)), np.array([0, 3])), "outside 0 to 2"),
        (Shard(np.zeros((2, 3)), np.array([0, -1])), "outside 0 to 2"),
        (Shard(np.array([[1.0, np.nan, 0.0]]), np.array([0])), "not finite"),
        (Shard(np.array([[1.0, np.inf, 0.0]]), np.array([0])), "not finite"),
        (Shard(np.zeros((2, 4)), np.array([0, 1])), "shape"),
        (Shard(np.zeros((2, 1, 3, 3)), np.array([0, 1])), "shape"),
        (Shard(np.zeros(2), np.array([0, 1])), "shape"),
        (Shard(np.zeros((2, 3)), np.array([0, 1, 2])), "labels"),
        (Shard(np.zeros((2, 3)), np.array([[0], [1]])), "labels"),
        (Shard(np.zeros((2, 3)), np.array([0.0, 1.0])), "labels"),
        (Shard(np.zeros((2, 3)), np.array([0, 1], dtype=np.int32)), "labels"),
        (Shard(np.zeros((2, 3)), [0, 1]), "labels"),
        (Shard(np.zeros((2, 3), dtype=np.uint8), np.array([0, 1])), "uint8"),
        (Shard(np.array([["a", "b", "c"]], dtype=object), np.array([0])), "object"),
        (Shard([[1.0, 2.0, 3.0]], np.array([0])), "list"),
    ],
)
def test_a_shard_that_cannot_be_trained_on_is_refused_by_name(bad, words):
    with pytest.raises(ValueError, match="client 'bad'") as refusal:
        Federation({"good": GOOD, "bad": bad}, GOOD, CLASSES)
    assert words in str(refusal.value)


def test_a_federation_has_clients_with_names_and_classes():
    with pytest.raises(ValueError, match="no client"):
        Federation({}, GOOD, CLASSES)
    with pytest.raises(ValueError, match="name"):
        Federation({"": GOOD}, GOOD, CLASSES)
    with pytest.raises(ValueError, match="classes"):
        Federation({"a": GOOD}, GOOD, 1)
    with pytest.raises(ValueError, match="test data"):
        Federation({"a": GOOD}, Shard(np.zeros((0, 3)), np.zeros(0, dtype=np.int64)), CLASSES)


def test_features_that_the_precision_cannot_hold_are_refused_by_name():
    large, small = (Shard(np.full((1, 1, 18, 18), value), np.array([0])) for value in (1e300, 1.0))
    training = replace(NETWORK, precision="float32")
    with pytest.raises(ValueError, match="client 'large'"):
        Simulation(Federation({"large": large}, small, CLASSES), Network(1, 18, CLASSES), training, secret=b"s")


def test_a_head_of_float32_is_trained_in_float64_and_cast_once():
    """Its results are those of float64, rounded: one rounding away, however many steps there are."""
    for batch, steps in ((None, 40), (4, 40)):
        options = {"batch": batch, "secret": b"s"}
        data = federation((9, 12, 5, 16, 7), (30,))
        single, double = (
            Simulation(data, SoftmaxHead(30, CLASSES), replace(HEAD, steps=steps, precision=each), **options)
            for each in ("float32", "float64")
        )
        model = train(single, 2)
        wide = {name: tensor.astype(np.float64) for name, tensor in model.items()}
        one, other = (
            engine.train(start, ModelId(0, 3), engine.clients).tensors
            for engine, start in ((single, model), (double, wide))
        )
        for name in model:
            for got, exact in zip(one[name], other[name], strict=True):
                assert got.dtype == np.float32
                assert np.array_equal(got, exact.astype(np.float32))


def test_nobodys_numbers_depend_on_who_else_there_is() -> None:
    """Bitwise: the largest client's size used to decide the padding of everybody."""
    rng = np.random.default_rng(0)
    shards = {
        f"client-{at}": Shard(rng.normal(size=(count, 40)), rng.integers(0, 3, count))
        for at, count in enumerate((9, 17, 30, 33))
    }
    head = LocalTraining(4, 0.7, SoftmaxL2(0.01, 1.0), precision="float32")
    with_all, without = (
        Simulation(Federation(chosen, shards["client-0"], 3), SoftmaxHead(40, 3), head, secret=b"s")
        for chosen in (shards, {name: shards[name] for name in list(shards)[:3]})
    )
    names = list(shards)[:3]
    one, other = (engine.train(engine.start(), ModelId(0, 1), names) for engine in (with_all, without))
    for name in one.tensors:
        assert np.asarray(one.tensors[name]).tobytes() == np.asarray(other.tensors[name]).tobytes()


def test_the_loop_and_the_fast_path_leave_the_same_history() -> None:
    """Fifty recorded rounds: the same journal, participants and weights; numbers and models to 1e-10."""
    rng = np.random.default_rng(1)
    shards = {
        f"client-{at}": Shard(rng.normal(size=(8 + 5 * at, 12)), rng.integers(0, 3, 8 + 5 * at)) for at in range(5)
    }
    histories = []
    for trainer in (Loop, fast):
        engine = Simulation(
            Federation(shards, shards["client-0"], 3),
            SoftmaxHead(12, 3),
            LocalTraining(3, 0.7, SoftmaxL2(0.01, 1.0)),
            sampling=Sampling.POISSON,
            rate=0.6,
            batch=6,
            secret=b"the same",
            trainer=trainer,
        )
        history = History.in_memory()
        Revocable(history, engine).train(Rounds(50))
        histories.append(history)
    one, other = ([entry.kind for entry in entries_of(history)] for history in histories)
    assert one == other
    for here, there in zip(*(rounds_of(history, 0, 1, 50) for history in histories), strict=True):
        assert here.clients.tolist() == there.clients.tolist()
        for field in ("weight", "steps"):
            assert (here.participants[field] == there.participants[field]).all()
        np.testing.assert_allclose(here.participants["distance"], there.participants["distance"], rtol=1e-9)
    assert list(histories[0].kept()) == list(histories[1].kept())
    models = [history.model(history.newest) for history in histories]
    for name in models[0]:
        np.testing.assert_allclose(models[0][name], models[1][name], rtol=1e-10, atol=1e-12)
    for history in histories:
        history.close()


def test_what_is_sampled_and_weighed_is_in_the_facts() -> None:
    facts = head(sampling=Sampling.FIXED_SIZE, size=2, batch=4, equal_weights=True).facts
    assert (facts.sampling, facts.sample, facts.batch, facts.equal_weights) == (Sampling.FIXED_SIZE, 2, 4, True)
    assert head(sampling=Sampling.POISSON, rate=0.5).facts.sample == 0.5
    assert head().facts.sample is None


def test_equal_weights_are_equal_whatever_the_counts() -> None:
    engine, other = head(equal_weights=True), head()
    model_id = ModelId(0, 1)
    equal, counted = (each.train(each.start(), model_id, each.clients) for each in (engine, other))
    assert (equal.weights == 1).all()
    assert len(set(counted.weights)) > 1
    assert equal.batch == counted.batch
