"""Flower's engine on a Grid in this process; the same on real processes is in test_federation."""

from __future__ import annotations

import inspect
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
    Krum,
    Result,
    Strategy,
)
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_tensors

import rescind.flower
import rescind.flower.server.run as run_module
import rescind.history
from rescind import History, LocalTraining, SoftmaxL2
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.core.calibration import Budget
from rescind.core.edges import NO_BOUND, ModelId
from rescind.core.facts import Mode, PrivacyScope, PublicHead, Sampling, Source
from rescind.core.regularity import NetworkLoss
from rescind.engines.stops import Accuracy, Rounds
from rescind.errors import RunMismatchError
from rescind.flower import Options, Recorded
from rescind.flower.server.run import ModelFile
from rescind.flower.server.servers import raise_distances
from rescind.flower.versions import NodeInfo
from rescind.forgetting import Revocable
from rescind.history.participants import name_key
from rescind.history.requests import Requests
from rescind.ledger.commitments import LOGGED, read_heads
from rescind.ledger.records import ErasureLevel
from rescind.methods import Exact, Last, Method, Scratch, Sifu
from rescind.testing.engines import EngineConformance, MakeEngine
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, simulation
from tests import recording
from tests.builders import BUDGET, KEY, SIGNER, entries_of, labels_of, register, rounds_of
from tests.recording import (
    CLINICS,
    SEED,
    TRAINED,
    Change,
    client_app,
    fedavg,
    grid,
    initial,
    recorded,
)


def engine_of(strategy: Recorded, on: InProcessGrid) -> Any:
    return run_module._engine(strategy, on, initial(), 5.0, None, None)


class TestConformanceOfEverybody(EngineConformance):
    @pytest.fixture
    def make_engine(self, history: History) -> MakeEngine:
        return lambda: engine_of(recorded(history), grid())


class TestConformanceOfPoissonSampling(EngineConformance):
    @pytest.fixture
    def make_engine(self, history: History) -> MakeEngine:
        return lambda: engine_of(recorded(history, rate=0.6, batch=5), grid(authenticated=True))


class TestConformanceOfFixedSizes(EngineConformance):
    @pytest.fixture
    def make_engine(self, history: History) -> MakeEngine:
        return lambda: engine_of(recorded(history, fedavg(fraction_train=0.5)), grid())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_told_distance_is_raised_above_the_exact_one(dtype: Any) -> None:
    too_small = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        # A large model and small differences, where rounding counts most.
        results = (rng.normal(size=50) + 1e-5 * rng.normal(size=(7, 50))).astype(dtype)
        weights = rng.integers(1, 50, size=7).astype(np.float64)
        mean = (weights @ results.astype(np.longdouble)) / weights.sum()
        exact = np.sqrt(np.square(results.astype(np.longdouble) - mean).sum(axis=1))
        model = {"head": mean.astype(dtype)}
        told = {
            str(at): float(np.linalg.norm(each - model["head"].astype(np.float64))) for at, each in enumerate(results)
        }
        found = raise_distances(told, model)
        assert all(found[str(at)] >= distance for at, distance in enumerate(exact))
        too_small += sum(told[str(at)] < distance for at, distance in enumerate(exact))
    assert too_small > 0


def test_run_takes_what_flowers_start_takes_by_the_same_names_in_the_same_order(history: History) -> None:
    flowers = list(inspect.signature(Strategy.start).parameters)[1:]
    assert list(inspect.signature(rescind.flower.run).parameters)[1 : len(flowers) + 1] == flowers
    settings = {"train_config": ConfigRecord(), "evaluate_config": ConfigRecord(), "evaluate_fn": None}
    result = rescind.flower.run(
        recorded(history), grid=grid(), initial_arrays=initial(), num_rounds=1, timeout=60, **settings
    )
    assert history.newest == ModelId(0, 1)
    assert len(result.train_metrics_clientapp) == 1


# The same numbers as the simulator's


@pytest.mark.parametrize(
    "options", [{}, {"rate": 0.7}, {"batch": 5}, {"rate": 0.7, "batch": 4}, {"equal_weights": True}]
)
def test_a_grid_and_the_simulator_leave_the_same_history(history: History, options: dict[str, Any]) -> None:
    rescind.flower.run(recorded(history, **options), grid(), initial(), num_rounds=8)
    rate = options.get("rate")
    engine = simulation(6, sampling=Sampling.POISSON if rate else Sampling.EVERYBODY, **{"rate": None} | options)
    with History.in_memory() as other:
        Revocable(other, engine, seed=SEED).train(rescind.flower.Rounds(8))
        own, simulated = history.model(history.newest), other.model(other.newest)
        for name, tensor in simulated.items():
            np.testing.assert_allclose(own[f"head.{name}"], tensor, rtol=1e-12, atol=1e-15)
        rounds, expected = (rounds_of(each, 0, 1, 8) for each in (history, other))
        names = [each.participants.all() for each in (history, other)]
        for one, two in zip(rounds, expected, strict=True):
            distances = [
                {name: each.participants["distance"][each.clients == known[name]].tolist() for name in known}
                for each, known in zip((one, two), names, strict=True)
            ]
            assert distances[0].keys() == distances[1].keys()
            for name, own_distance in distances[0].items():
                np.testing.assert_allclose(own_distance, distances[1][name], rtol=1e-9)


def test_what_is_forgotten_on_a_grid_is_forgotten_as_in_the_simulator(history: History) -> None:
    strategy = recorded(history, level=ErasureLevel.OUTPUT)
    rescind.flower.run(strategy, grid(), initial(), num_rounds=12)
    history.requests.ask(["clinic-2"], BUDGET)
    rescind.flower.run(strategy, grid(), initial(), num_rounds=12)
    with History.in_memory() as other:
        revocable = Revocable(other, simulation(6, sampling=Sampling.EVERYBODY, rate=None), seed=SEED)
        revocable.train(rescind.flower.Rounds(12))
        other.requests.ask(["clinic-2"], BUDGET)
        revocable.forget(Sifu(), rescind.flower.Rounds(12), level=ErasureLevel.OUTPUT)
        (own,), (simulated,) = history.outcomes(), other.outcomes()
        assert own.restart is not None
        assert simulated.restart is not None
        assert own.restart.planned.candidate.node == simulated.restart.planned.candidate.node
        assert own.restart.planned.candidate.sigma == simulated.restart.planned.candidate.sigma
        assert own.model_id == simulated.model_id == ModelId(1, 12)
        for name, tensor in other.model(other.newest).items():
            np.testing.assert_allclose(history.model(history.newest)[f"head.{name}"], tensor, rtol=1e-9, atol=1e-12)


# Who takes part


def test_a_share_of_those_connected_is_no_fixed_number(history: History) -> None:
    engine = engine_of(recorded(history, fedavg(fraction_train=0.5)), grid())
    assert (engine.facts.sampling, engine.facts.sample) == (Sampling.FRACTION, 0.5)
    assert [len(engine.draw(ModelId(0, 1), engine.clients[:present])) for present in (6, 4, 2)] == [3, 2, 1]


def test_with_equal_weights_what_clients_tell_is_checked_and_weighs_nothing(history: History) -> None:
    told = iter((1000, 1000, 5, -5))

    def tell(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] == "clinic-1":
            (metrics,) = content.metric_records.values()
            metrics["num-examples"] = next(told)

    strategy = recorded(history, equal_weights=True)
    engine = engine_of(strategy, grid(tell))
    replies = engine.train(engine.start(), ModelId(0, 1), engine.clients)
    assert (replies.weights == 1).all()
    # What rounding depends on is still the largest client's.
    assert replies.batch == 1000
    # Nothing is made of what it tells, so that may change; what is no number of examples is refused as ever.
    rescind.flower.run(strategy, grid(tell), initial(), num_rounds=3)
    recorded_rounds = rounds_of(history, 0, 1, 3)
    assert [len(each.clients) for each in recorded_rounds] == [6, 6, 5]
    assert all((each.participants["weight"] == 1).all() for each in recorded_rounds)


def test_forgotten_and_waiting_clients_are_never_asked_again(history: History) -> None:
    on, strategy = grid(), recorded(history)
    rescind.flower.run(strategy, on, initial(), num_rounds=3)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    on.sent.clear()
    rescind.flower.run(strategy, on, initial(), num_rounds=3)
    trained = {name for name, kind in on.sent if kind == "train"}
    assert trained == set(CLINICS) - {"clinic-1"}
    again = grid()
    rescind.flower.run(strategy, again, initial(), num_rounds=5)
    assert {name for name, kind in again.sent if kind == "train"} == set(CLINICS) - {"clinic-1"}
    assert history.newest == ModelId(1, 5)


def test_nodes_that_do_not_come_are_an_error_after_the_timeout(history: History) -> None:
    strategy = recorded(history, fedavg(min_available_nodes=9))
    with pytest.raises(TimeoutError, match="6 SuperNodes that may take part are connected"):
        rescind.flower.run(strategy, grid(), initial(), num_rounds=2, timeout=0.1)


def test_empty_and_small_rounds_are_rounds_and_are_not_drawn_again(history: History) -> None:
    strategy = recorded(history, rate=0.1)
    rescind.flower.run(strategy, grid(), initial(), num_rounds=12)
    sizes = [len(each.clients) for each in rounds_of(history, 0, 1, 12)]
    assert 0 in sizes
    assert len(sizes) == 12


def test_a_silent_client_is_absent_and_its_return_is_nothing_special(history: History) -> None:
    on, strategy = grid(), recorded(history)
    on.failing.add("clinic-3")
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    on.failing.clear()
    rescind.flower.run(strategy, on, initial(), num_rounds=4)
    assert [len(each.clients) for each in rounds_of(history, 0, 1, 4)] == [5, 5, 6, 6]


def test_all_silent_is_an_empty_round(history: History) -> None:
    on = grid(authenticated=True)
    on.failing.update(CLINICS)
    rescind.flower.run(recorded(history), on, initial(), num_rounds=2)
    assert [len(each.clients) for each in rounds_of(history, 0, 1, 2)] == [0, 0]


# Names


def test_an_authenticated_client_is_its_key_and_is_called_by_its_name(history: History) -> None:
    on = grid(authenticated=True)
    rescind.flower.run(recorded(history), on, initial(), num_rounds=2)
    keys = {name: name_key(InProcessGrid.key(name)) for name in CLINICS}
    known = history.participants.all()
    assert set(known) == set(keys.values())
    assert labels_of(history) == {known[key]: name for name, key in keys.items()}
    assert history.participants.find(["clinic-4"]) == {known[keys["clinic-4"]]}
    assert history.run.facts.sources.identity is Source.CHECKED
    # They are asked once whether they want to leave, not who they are.
    assert sum(kind == "query" for _, kind in on.sent) == len(CLINICS)


def test_who_is_not_authenticated_is_what_it_says(history: History) -> None:
    rescind.flower.run(recorded(history), grid(), initial(), num_rounds=1)
    assert set(history.participants.all()) == set(CLINICS)
    assert history.run.facts.sources.identity is Source.REPORTED


def echoing(change: Callable[[ArrayRecord, Context], ArrayRecord] | None = None, told: bool = True) -> ClientApp:
    """Return an app that trains by code of its own; ``told``: it says who it is."""
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        arrays = msg.content.array_records["arrays"]
        own = arrays if change is None else change(arrays, context)
        return Message(RecordDict({"arrays": own, "metrics": MetricRecord({"num-examples": 3})}), reply_to=msg)

    if told:

        @app.query()
        def query(msg: Message, context: Context) -> Message:
            return rescind.flower.identify(msg, context)

    return app


def test_whose_app_does_not_say_who_it_is_cannot_take_part(history: History) -> None:
    on = InProcessGrid(echoing(told=False), {"a": {}, "b": {}}, authenticated=False)
    with pytest.raises(TimeoutError, match=r"answer with rescind\.flower\.identify"):
        rescind.flower.run(recorded(history, declared=True), on, initial(), num_rounds=1, timeout=0.1)


def test_a_client_that_is_silent_when_asked_who_it_is_does_not_take_part_under_another_name(history: History) -> None:
    on, strategy = grid(), recorded(history)
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    rescind.flower.run(strategy, on, initial(), num_rounds=1)
    again = grid()
    again.failing.add("clinic-1")
    rescind.flower.run(strategy, again, initial(), num_rounds=2)
    again.failing.clear()
    rescind.flower.run(strategy, again, initial(), num_rounds=4)
    assert set(history.participants.all()) == set(CLINICS) - {"clinic-1"}


def test_an_unregistered_node_has_no_place_where_the_others_are_registered(history: History) -> None:
    class Mixed(InProcessGrid):
        def get_nodes(self) -> Any:
            return [NodeInfo(node_id=99, public_key=b"made up"), *super().get_nodes()]

    on = Mixed(client_app(), {name: {"client-id": name} for name in CLINICS})
    rescind.flower.run(recorded(history), on, initial(), num_rounds=2)
    assert history.run.facts.sources.identity is Source.CHECKED
    assert len(history.participants.all()) == 6


def test_labels_are_written_for_clients_that_are_drawn_later_too(history: History) -> None:
    on = grid(authenticated=True)
    rescind.flower.run(recorded(history, rate=0.3), on, initial(), num_rounds=15)
    assert sorted(labels_of(history)) == sorted(history.participants.all().values())
    assert len(labels_of(history)) == 6


def test_a_request_by_label_is_about_every_key_that_was_called_so(history: History) -> None:
    rescind.flower.run(recorded(history), grid(authenticated=True), initial(), num_rounds=1)
    register(history, "an old key")
    history.participants.label({"an old key": "clinic-4"})
    assert len(history.participants.find(["clinic-4"])) == 2


class Renewed(InProcessGrid):
    """A Grid on which clinic-1 has a new key under its old name."""

    @staticmethod
    def key(name: str) -> bytes:
        return InProcessGrid.key("a new key" if name == "clinic-1" else name)


OLD_KEY, NEW_KEY = (name_key(on.key("clinic-1")) for on in (InProcessGrid, Renewed))


def renewed() -> InProcessGrid:
    return Renewed(client_app(), {name: {"client-id": name} for name in CLINICS})


def trained_on(on: InProcessGrid) -> set[str]:
    return {name for name, kind in on.sent if kind == "train"}


@pytest.mark.parametrize("make", [lambda: grid(authenticated=True), renewed, grid], ids=["key", "label", "name"])
def test_who_was_forgotten_is_ignored_until_it_is_readmitted(
    history: History, caplog: pytest.LogCaptureFixture, make: Callable[[], InProcessGrid]
) -> None:
    strategy, keys = recorded(history), make is not grid
    rescind.flower.run(strategy, grid(authenticated=keys), initial(), num_rounds=2)
    (old,) = history.participants.find(["clinic-1"])
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    rescind.flower.run(strategy, grid(authenticated=keys), initial(), num_rounds=1)
    ignored = make()
    with caplog.at_level("INFO", "flwr"):
        rescind.flower.run(strategy, ignored, initial(), num_rounds=3)
    assert trained_on(ignored) == set(CLINICS) - {"clinic-1"}
    assert not {NEW_KEY, OLD_KEY, "clinic-1"} & history.participants.all().keys()
    node = ignored.ids["clinic-1"]
    assert caplog.text.count(f"a forgotten participant is connected (node {node}) and ignored") == 1
    assert (f"flwr supernode unregister {node} FEDERATION" in caplog.text) is keys
    assert "rescind request readmit HISTORY NAME" in caplog.text
    assert "clinic-1" not in caplog.text

    assert history.participants.readmit("clinic-1", "a new contract") == (old,)
    again = make()
    rescind.flower.run(strategy, again, initial(), num_rounds=4)
    assert trained_on(again) == set(CLINICS)
    (new,) = history.participants.find(["clinic-1"])
    assert new != old
    assert history.integrity.verify() == []


def test_a_new_key_under_the_name_of_somebody_who_waits_is_ignored(history: History) -> None:
    strategy = recorded(history)
    rescind.flower.run(strategy, grid(authenticated=True), initial(), num_rounds=2)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    on = renewed()
    rescind.flower.run(strategy, on, initial(), num_rounds=1)
    assert trained_on(on) == set(CLINICS) - {"clinic-1"}


def test_a_key_that_stays_is_not_barred_by_the_name_that_it_shared(history: History) -> None:
    strategy = recorded(history)
    rescind.flower.run(strategy, grid(authenticated=True), initial(), num_rounds=1)
    rescind.flower.run(strategy, renewed(), initial(), num_rounds=2)
    history.requests.ask([OLD_KEY], Budget(1.0, 1e-5))
    rescind.flower.run(strategy, renewed(), initial(), num_rounds=1)
    on = renewed()
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    assert trained_on(on) == set(CLINICS)
    assert NEW_KEY in history.participants.all()


@pytest.mark.parametrize("away", [False, True])
def test_no_line_of_the_log_has_a_nodes_number_beside_a_requests(
    history: History, caplog: pytest.LogCaptureFixture, away: bool
) -> None:
    """Flower keeps the log: who reads both knows who left, and when."""
    strategy, on = recorded(history), grid(authenticated=True)
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    # It has not named the rows, so that it fails.
    history.requests.ask(["clinic-2"], Budget(1.0, 1e-5), scope=PrivacyScope.RECORDS)
    on.gone.update({"clinic-1"} if away else ())
    with caplog.at_level("DEBUG", "flwr"):
        for rounds in (2, 3):
            rescind.flower.run(strategy, on, initial(), num_rounds=rounds)
    assert not {"clinic-1", "clinic-2"} & {*re.findall(r"clinic-\d", caplog.text)}
    numbers = {str(node) for node in on.ids.values()}
    assert any(number in line for line in caplog.messages for number in numbers)
    assert any("request 1 is served" in line for line in caplog.messages)
    told = [line for line in caplog.messages if "request" in line and any(number in line for number in numbers)]
    # What a complaint leaves out is the number.
    assert all(re.search(r"request \d", line) is None for line in told), told
    assert "flwr supernode unregister NUMBER FEDERATION" in caplog.text


# Hostile replies

HOSTILE: dict[str, tuple[str, Callable[[RecordDict], None]]] = {}


def hostile(reason: str) -> Callable[[Callable[[RecordDict], None]], Callable[[RecordDict], None]]:
    def add(change: Callable[[RecordDict], None]) -> Callable[[RecordDict], None]:
        HOSTILE[change.__name__] = (reason, change)
        return change

    return add


def weight(content: RecordDict) -> Any:
    return content.array_records["arrays"]["head.weight"].numpy()


def put(content: RecordDict, tensor: Any, name: str = "head.weight") -> None:
    content.array_records["arrays"][name] = Array(np.asarray(tensor))


@hostile("not finite")
def nan(content: RecordDict) -> None:
    put(content, np.full((CLASSES, FEATURES), np.nan))


@hostile("not finite")
def one_infinity(content: RecordDict) -> None:
    tensor = weight(content).copy()
    tensor[1, 2] = -np.inf
    put(content, tensor)


@hostile("another shape")
def transposed(content: RecordDict) -> None:
    put(content, weight(content).T.copy())


@hostile("another shape")
def flat(content: RecordDict) -> None:
    put(content, weight(content).reshape(-1))


@hostile("another type")
def single_precision(content: RecordDict) -> None:
    put(content, weight(content).astype(np.float32))


@hostile("another type")
def strings(content: RecordDict) -> None:
    put(content, np.full((CLASSES, FEATURES), "a"))


def put_header(content: RecordDict, text: str) -> None:
    """Put an array whose header is a text of the client's own, before the bytes that it should have."""
    data = weight(content).tobytes()
    line = text.encode() + b"\n"
    file = b"\x93NUMPY\x01\x00" + len(line).to_bytes(2, "little") + line + data
    content.array_records["arrays"]["head.weight"] = Array("float64", (CLASSES, FEATURES), "numpy.ndarray", file)


HEADERS = {
    "negative": "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, -6), }",
    "astronomical": "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 1000000000000000000000000000000), }",
    "seventy_dimensions": "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1, " * 70 + "), }",
    "subarray": "{'descr': ('<f8', (6,)), 'fortran_order': False, 'shape': (3,), }",
    "empty_strings": "{'descr': '|S0', 'fortran_order': False, 'shape': (3, 6), }",
    "unclosed": "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 6",
    "unhashable": "{[]: 1}",
    "deep": "-" * 3500 + "1",
    "no_type": "{'descr': (), 'fortran_order': False, 'shape': (3, 6), }",
    "big_endian": "{'descr': '>f8', 'fortran_order': False, 'shape': (3, 6), }",
    "object": "{'descr': '|O', 'fortran_order': False, 'shape': (3, 6), }",
}
for kind, text in HEADERS.items():
    HOSTILE[f"header_{kind}"] = ("a tensor", lambda content, text=text: put_header(content, text))


@hostile("too large")
def too_large(content: RecordDict) -> None:
    put(content, np.full((CLASSES, FEATURES), 1e200))


@hostile("longer than any")
def sums_that_overflow(content: RecordDict) -> None:
    put(content, np.full((CLASSES, FEATURES), 1e134))
    put(content, np.full(CLASSES, 1e134), "head.bias")


@hostile("not a number of examples")
def next_to_nothing(content: RecordDict) -> None:
    content.metric_records["metrics"]["num-examples"] = 1e-300


@hostile("not a number of examples")
def astronomically_many(content: RecordDict) -> None:
    content.metric_records["metrics"]["num-examples"] = 2**53 - 1


@hostile("numpy's format")
def garbage(content: RecordDict) -> None:
    content.array_records["arrays"]["head.weight"] = Array("float64", (CLASSES, FEATURES), "numpy.ndarray", b"hello")


@hostile("fewer bytes")
def truncated(content: RecordDict) -> None:
    data = content.array_records["arrays"]["head.weight"].data[:-8]
    content.array_records["arrays"]["head.weight"] = Array("float64", (CLASSES, FEATURES), "numpy.ndarray", data)


@hostile("missing")
def no_bias(content: RecordDict) -> None:
    del content.array_records["arrays"]["head.bias"]


@hostile("does not have")
def one_more(content: RecordDict) -> None:
    put(content, np.zeros(3), "trojan")


@hostile("not trained was changed")
def frozen_changed(content: RecordDict) -> None:
    put(content, np.arange(5, dtype=np.float32) + 1, "body")


@hostile("differs from the one that it had at first")
def thousandfold(content: RecordDict) -> None:
    content.metric_records["metrics"]["num-examples"] = 14_000


@hostile("not a number of examples")
def negative(content: RecordDict) -> None:
    content.metric_records["metrics"]["num-examples"] = -3


@hostile("not a number of examples")
def no_number(content: RecordDict) -> None:
    content.metric_records["metrics"]["num-examples"] = float("nan")


@hostile("no number")
def a_list(content: RecordDict) -> None:
    content.metric_records["metrics"]["num-examples"] = [1, 2]


@hostile("no number")
def no_weight(content: RecordDict) -> None:
    del content.metric_records["metrics"]["num-examples"]


@hostile("one record of metrics")
def two_metrics(content: RecordDict) -> None:
    content["more"] = MetricRecord({"num-examples": 3})


@hostile("one record of arrays")
def two_arrays(content: RecordDict) -> None:
    content["more"] = ArrayRecord()


@hostile("our helper")
def another_digest(content: RecordDict) -> None:
    content["rescind"] = ConfigRecord({"digest": "0" * 64})


@hostile("our helper")
def no_digest(content: RecordDict) -> None:
    del content["rescind"]


@hostile("longer than any")
def far_away(content: RecordDict) -> None:
    put(content, weight(content) + 40.0)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_reply_is_rejected_recorded_and_changes_nothing(history: History, kind: str) -> None:
    reason, change = HOSTILE[kind]
    hostile_now = False

    def by_one(content: RecordDict, context: Context) -> None:
        if hostile_now and context.node_config["client-id"] == "clinic-2":
            change(content)

    on, strategy = grid(by_one), recorded(history)
    rescind.flower.run(strategy, on, initial(), num_rounds=1)
    hostile_now = True
    rescind.flower.run(strategy, on, initial(), num_rounds=3)
    rounds = rounds_of(history, 0, 1, 3)
    assert [len(each.clients) for each in rounds] == [6, 5, 5]
    entries = entries_of(history, "rejection")
    pseudonym = history.participants.all()["clinic-2"]
    assert [entry.model_id for entry in entries] == [ModelId(0, 2), ModelId(0, 3)]
    for entry in entries:
        ((client, told),) = entry.body["rejected"]
        assert client == pseudonym
        assert reason in told
    with History.in_memory() as without:
        quiet = grid()
        rescind.flower.run(recorded(without), quiet, initial(), num_rounds=1)
        quiet.failing.add("clinic-2")
        rescind.flower.run(recorded(without), quiet, initial(), num_rounds=3)
        for name, tensor in without.model(without.newest).items():
            np.testing.assert_array_equal(history.model(history.newest)[name], tensor)
    assert history.integrity.verify() == []


def test_where_half_of_the_clients_train_otherwise_the_declaration_is_doubted(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    liars: set[str] = set()

    def by_some(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] in liars:
            far_away(content)

    on, strategy = grid(by_some), recorded(history, seed=None, declared=True, level=ErasureLevel.OUTPUT)
    last: dict[str, Any] = {"method": Last()}
    liars.add("clinic-5")
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    assert history.facts == history.run.facts
    liars.update(["clinic-3", "clinic-4"])
    rescind.flower.run(strategy, on, initial(), num_rounds=4)
    (doubt,) = history.facts.doubts
    assert "since model 0.3: 3 of 6 replies" in doubt
    assert sum(doubt in record.getMessage() for record in caplog.records if record.levelname == "WARNING") == 1
    liars.clear()
    history.requests.ask(["clinic-0"], BUDGET)
    rescind.flower.run(strategy, on, initial(), num_rounds=1, **last)
    # Where nobody says how to forget it is done so that it can be certified.
    history.requests.ask(["clinic-1"], BUDGET)
    rescind.flower.run(strategy, on, initial(), num_rounds=2)
    history.lift_doubts("three clinics trained by an old app")
    history.requests.ask(["clinic-2"], BUDGET)
    rescind.flower.run(strategy, on, initial(), num_rounds=1, **last)
    modes = [outcome.restart.planned and outcome.restart.planned.candidate.mode for outcome in history.outcomes()]
    assert modes == [Mode.HEURISTIC, Mode.EXACT, Mode.INSTANCE]


def test_what_was_begun_goes_on_by_its_own_method_though_it_is_doubted_since(history: History) -> None:
    liars: set[str] = set()

    def by_some(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] in liars:
            far_away(content)

    on, strategy = grid(by_some), recorded(history)
    rescind.flower.run(strategy, on, initial(), num_rounds=12)
    history.requests.ask(["clinic-2"], BUDGET)
    liars.update(["clinic-3", "clinic-4", "clinic-5"])

    def die(round_: int, arrays: ArrayRecord) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rescind.flower.run(strategy, on, initial(), num_rounds=3, evaluate_fn=die)
    assert history.facts.doubts
    rescind.flower.run(strategy, on, initial(), num_rounds=3)
    (outcome,) = history.outcomes()
    assert outcome.restart is not None
    assert outcome.restart.planned.method == str(Sifu())


def test_an_array_in_the_other_order_is_the_same_array(history: History) -> None:
    def reorder(content: RecordDict, context: Context) -> None:
        put(content, np.asfortranarray(weight(content)))

    rescind.flower.run(recorded(history), grid(reorder), initial(), num_rounds=2)
    with History.in_memory() as other:
        rescind.flower.run(recorded(other), grid(), initial(), num_rounds=2)
        np.testing.assert_array_equal(
            history.model(history.newest)["head.weight"], other.model(other.newest)["head.weight"]
        )


def test_metrics_that_cannot_be_combined_do_not_end_the_training(history: History) -> None:
    def odd(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] == "clinic-1":
            content.metric_records["metrics"]["loss"] = [1.0, 2.0]
        else:
            content.metric_records["metrics"]["loss"] = 1.0

    rescind.flower.run(recorded(history), grid(odd), initial(), num_rounds=2)
    assert history.newest == ModelId(0, 2)


# Going on


def test_a_run_goes_on_where_the_history_stands_and_num_rounds_is_the_total(history: History) -> None:
    strategy = recorded(history)
    rescind.flower.run(strategy, grid(), initial(), num_rounds=3)
    on = grid()
    result = rescind.flower.run(strategy, on, initial(), num_rounds=5)
    assert len([1 for _, kind in on.sent if kind == "train"]) == 2 * 6
    assert sorted(result.train_metrics_clientapp) == [4, 5]
    with History.in_memory() as other:
        rescind.flower.run(recorded(other), grid(), initial(), num_rounds=5)
        for name, tensor in other.model(other.newest).items():
            np.testing.assert_array_equal(history.model(history.newest)[name], tensor)
            np.testing.assert_array_equal(result.arrays[name].numpy(), tensor)
    assert result.arrays["body"].data == initial()["body"].data


def test_after_an_exact_forgetting_strategy_and_clients_are_told_how_many_rounds_lie_behind(history: History) -> None:
    """A learning rate that falls with server-round must not begin anew on the last rounds of a training."""
    told: list[int] = []

    class Telling(FedAvg):
        def configure_train(self, server_round: int, *rest: Any) -> Any:
            told.append(server_round)
            return super().configure_train(server_round, *rest)

    strategy = recorded(history, Telling(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1))
    rescind.flower.run(strategy, grid(clients=5), initial(), num_rounds=4)
    rescind.flower.run(strategy, grid(), initial(), num_rounds=6)
    history.requests.ask([list(CLINICS)[5]], BUDGET)
    evaluated: list[int] = []
    result = rescind.flower.run(
        strategy,
        grid(),
        initial(),
        num_rounds=6,
        method=Exact(),
        evaluate_fn=lambda server_round, _: evaluated.append(server_round),
    )
    assert history.newest == ModelId(1, 2)
    assert told == [1, 2, 3, 4, 5, 6, 5, 6]
    assert evaluated == sorted(result.train_metrics_clientapp) == [5, 6]
    # After noise, and by a rule about a branch, they are the branch's.
    history.requests.ask([next(iter(CLINICS))], BUDGET)
    rescind.flower.run(strategy, grid(), initial(), num_rounds=2, method=Last())
    rescind.flower.run(strategy, grid(), initial(), until=Rounds(3))
    assert told[8:] == [1, 2, 3]


def started_at(seed: int) -> ArrayRecord:
    arrays, rng = initial(), np.random.default_rng(seed)
    return ArrayRecord(
        {name: Array(rng.normal(size=array.shape)) if name in TRAINED else array for name, array in arrays.items()}
    )


def test_after_a_random_start_the_first_one_is_gone_back_to(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    rescind.flower.run(recorded(history), grid(), started_at(1), num_rounds=2)
    rescind.flower.run(recorded(history), grid(), started_at(1), num_rounds=3)
    assert "model 0.0" not in caplog.text
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    with caplog.at_level("INFO", "flwr"):
        result = rescind.flower.run(recorded(history), grid(), started_at(2), num_rounds=2, method=Exact())
    assert caplog.text.count("the history's own, model 0.0, are used") == 1
    assert result.arrays["body"].data == initial()["body"].data
    on = grid()
    on.gone.add("clinic-1")
    with History.in_memory() as other:
        alone = rescind.flower.run(recorded(other), on, started_at(1), num_rounds=2)
    for name in TRAINED:
        np.testing.assert_array_equal(result.arrays[name].numpy(), alone.arrays[name].numpy())


def test_strict_constants_are_held_against_the_start_that_is_used(history: History) -> None:
    public = PublicHead(0.0, CLASSES * (FEATURES + 1), 100)
    rescind.flower.run(recorded(history, public=public), grid(), initial(), num_rounds=1)
    rescind.flower.run(recorded(history, public=public), grid(), started_at(2), num_rounds=2)
    assert history.newest == ModelId(0, 2)


OTHER_ARRAYS = {
    "frozen": ({"body": np.arange(5, dtype=np.float32) + 1}, r"not trained \(body\) are not those.*fixed seed"),
    "shape": ({"head.weight": np.zeros((CLASSES, FEATURES + 1))}, "'head.weight' is float64 .*, and was float64"),
    "more": ({"layer.weight": np.zeros(3)}, r"\('layer.weight' is new\): make them the same"),
}


@pytest.mark.parametrize("kind", OTHER_ARRAYS)
def test_other_frozen_tensors_or_shapes_are_refused(history: History, kind: str) -> None:
    rescind.flower.run(recorded(history), grid(), initial(), num_rounds=1)
    changed, (tensors, words) = initial(), OTHER_ARRAYS[kind]
    for name, tensor in tensors.items():
        changed[name] = Array(tensor)
    trained = [name for name in changed if name != "body"]
    # Of a head another tensor is told before by its loss.
    training = LocalTraining(steps=1, learning_rate=0.1, loss=NetworkLoss(), precision="float64")
    options = {"training": training, "trained": trained} if kind == "more" else {}
    with pytest.raises(RunMismatchError, match=words):
        rescind.flower.run(recorded(history, **options), grid(), changed, num_rounds=2)


def test_a_partition_that_may_give_away_the_rows_of_who_left_is_warned_of(
    history: History, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_place = {f"client-{at}": shard for at, shard in enumerate(CLINICS.values())}
    monkeypatch.setattr(recording, "CLINICS", by_place)
    with caplog.at_level("INFO", "flwr"):
        rescind.flower.run(recorded(history), grid(clients=3), initial(), num_rounds=1)
        rescind.flower.run(recorded(history), grid(clients=4), initial(), num_rounds=2)
        assert (
            "rescind: clients that are new to this history: 1; clients of it that are not there: 0\n" in caplog.text
        )
        history.requests.ask(["client-1"], BUDGET)
        rescind.flower.run(recorded(history), grid(), initial(), num_rounds=2, method=Exact())
        warned = [entry.message for entry in caplog.records if "client's rows follow from" in entry.message]
        assert len(warned) == 1
        assert warned[0].startswith(
            "rescind: clients that are new to this history: 2; clients of it that are not there: 0. Where a"
        )
        caplog.clear()
        rescind.flower.run(recorded(history), grid(), initial(), num_rounds=3)
    assert "new to this history" not in caplog.text


def test_fewer_rounds_than_the_history_has_are_told(history: History, caplog: pytest.LogCaptureFixture) -> None:
    rescind.flower.run(recorded(history), grid(), initial(), num_rounds=2)
    rescind.flower.run(recorded(history), grid(), initial(), num_rounds=2)
    assert "rounds behind it" not in caplog.text
    rescind.flower.run(recorded(history), grid(), initial(), num_rounds=1)
    assert "model 0.2 has 2 rounds behind it, and num_rounds is 1: it is not trained on" in caplog.text


def test_another_sampling_is_told_in_words(history: History) -> None:
    rescind.flower.run(recorded(history), grid(), initial(), num_rounds=1)
    words = r"everybody in every round, not each client in a round with a chance of 0.3: go on with"
    with pytest.raises(RunMismatchError, match=words):
        rescind.flower.run(recorded(history, rate=0.3), grid(), initial(), num_rounds=2)


def test_a_damaged_start_is_named_if_it_is_needed(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        rescind.flower.run(recorded(history), grid(), started_at(1), num_rounds=1)
        (file,) = (tmp_path / "history").rglob(f"{history.kept()[ModelId(0, 0)]}*")
        file.write_bytes(file.read_bytes()[:-1] + b"x")
        with pytest.raises(RunMismatchError, match=r"its own cannot be used: .*Restore it from a backup"):
            rescind.flower.run(recorded(history), grid(), started_at(2), num_rounds=2)


def test_of_a_relative_path_it_is_said_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    with History("own") as history:
        rescind.flower.run(recorded(history), grid(), initial(), num_rounds=1, save_to=tmp_path / "model")
    assert caplog.text.count("is relative") == 1
    assert f"the path own is relative, and is {tmp_path / 'own'} here" in caplog.text


@pytest.mark.parametrize(
    ("method", "until", "times"), [(Last(), None, 1), (Last(), Accuracy(0.01, most=2), 0), (Scratch(), None, 0)]
)
def test_whoever_chose_no_rule_is_told_once_that_one_pays_after_noise(
    history: History, caplog: pytest.LogCaptureFixture, method: Method, until: Accuracy | None, times: int
) -> None:
    rescind.flower.run(recorded(history), grid(), initial(), num_rounds=2)
    for name in ("clinic-1", "clinic-2"):
        history.requests.ask([name], Budget(1.0, 1e-5))
    with caplog.at_level("INFO", "flwr"):
        rescind.flower.run(recorded(history), grid(), initial(), num_rounds=2, until=until, method=method)
    assert caplog.text.count("until=Accuracy(..) ends it") == times


def test_training_can_end_by_an_accuracy_and_clients_evaluate(history: History) -> None:
    strategy = recorded(history, fedavg(fraction_evaluate=0.5, min_evaluate_nodes=2))
    seen: list[int] = []

    def central(round_: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append(round_)
        return MetricRecord({"accuracy": 0.25})

    until = Accuracy(0.6, least=2, most=50)
    result = rescind.flower.run(strategy, grid(), initial(), until=until, evaluate_fn=central)
    rounds = history.newest.round
    assert 2 <= rounds < 50
    assert seen == list(range(1, rounds + 1))
    assert 0.3 <= result.evaluate_metrics_clientapp[rounds]["accuracy"] <= 1
    assert result.evaluate_metrics_serverapp[rounds]["accuracy"] == 0.25


def test_the_model_is_saved_as_safetensors(history: History, tmp_path: Any) -> None:
    result = rescind.flower.run(recorded(history), grid(), initial(), num_rounds=2, save_to=tmp_path / "model")
    loaded = load_file(tmp_path / "model")
    assert sorted(loaded) == ["body", "head.bias", "head.weight"]
    np.testing.assert_array_equal(loaded["head.weight"], result.arrays["head.weight"].numpy())
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


# What is covered, and what is not


@pytest.mark.parametrize(
    "strategy",
    [
        FedAdam(),
        FedMedian(),
        Krum(),
        DifferentialPrivacyServerSideFixedClipping(fedavg(), 1.0, 1.0, 4),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_the_theorem_does_not_cover_is_refused_or_recorded_as_heuristic(history: History, strategy: Any) -> None:
    name = type(strategy).__name__
    with pytest.raises(ValueError, match=f"server's optimizer is Flower's {name}.*heuristic=True"):
        recorded(history, strategy)
    inner = strategy.strategy if hasattr(strategy, "strategy") else strategy
    inner.fraction_evaluate, inner.min_available_nodes = 0.0, 2
    chosen = recorded(history, strategy, heuristic=True, declared=True)
    on = grid()
    on.gone.add("clinic-5")
    rescind.flower.run(chosen, on, initial(), num_rounds=2)
    on.gone.clear()
    rescind.flower.run(chosen, on, initial(), num_rounds=4)
    assert any(name in each for each in history.run.facts.obstacles)
    # Who joined late is forgotten exactly.
    history.requests.ask(["clinic-5"], Budget(1.0, 1e-5))
    rescind.flower.run(chosen, on, initial(), num_rounds=2)
    (outcome,) = history.outcomes()
    assert outcome.mode is Mode.EXACT
    assert outcome.restart is not None
    assert (outcome.restart.planned.candidate.node.round, outcome.restart.planned.candidate.sigma) == (2, 0.0)


def test_a_strategy_that_aggregates_otherwise_is_seen_whatever_its_name(history: History) -> None:
    class Mine(FedAvg):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            return super().aggregate_train(server_round, replies)

    with pytest.raises(ValueError, match="Mine"):
        recorded(history, Mine())


def test_fedprox_pulls_towards_the_model_that_was_sent(history: History) -> None:
    training = replace(TRAINING, proximal=0.5, steps=2)
    with pytest.raises(ValueError, match=r"proximal_mu 0\.1"):
        recorded(history, FedProx(proximal_mu=0.1), training=training)
    with pytest.raises(ValueError, match="wrap FedProx"):
        recorded(history, training=training)
    strategy = FedProx(proximal_mu=0.5, fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1)
    rescind.flower.run(recorded(history, strategy, training=training), grid(clients=1), initial(), num_rounds=1)
    shard = CLINICS["clinic-0"]
    rows = shard.features / np.maximum(1, np.linalg.norm(shard.features, axis=1, keepdims=True))
    theta = np.zeros((CLASSES, FEATURES + 1))
    ones = np.hstack([rows, np.ones((len(rows), 1))])
    for _ in range(2):
        odds = np.exp(ones @ theta.T)
        residuals = odds / odds.sum(axis=1, keepdims=True) - np.eye(CLASSES)[shard.labels]
        theta = theta - 1.0 * (residuals.T @ ones / len(ones) + 0.02 * theta + 0.5 * (theta - 0))
    np.testing.assert_allclose(history.model(history.newest)["head.weight"], theta[:, :-1], rtol=1e-5)


def test_networks_can_be_recorded_without_any_helper(history: History) -> None:
    def move(arrays: ArrayRecord, context: Context) -> ArrayRecord:
        return ArrayRecord({name: Array(array.numpy() + context.node_id / 1e8) for name, array in arrays.items()})

    on = InProcessGrid(echoing(move), {"a": {}, "b": {}, "c": {}})
    arrays = ArrayRecord({"conv": Array(np.zeros((3, 3), np.float32))})
    training = LocalTraining(5, 0.1, NetworkLoss(), precision="float32")
    strategy = Recorded(fedavg(), history, training=training)
    rescind.flower.run(strategy, on, arrays, num_rounds=3)
    history.requests.ask(["b"], Budget(1.0, 1e-5))
    rescind.flower.run(strategy, on, arrays, num_rounds=3)
    (outcome,) = history.outcomes()
    assert outcome.mode is Mode.EXACT
    with pytest.raises(RunMismatchError):
        rescind.flower.run(
            replace(strategy, options=Options(batch=3), training=replace(training, steps=6)), on, arrays, num_rounds=4
        )


def test_of_a_networks_training_nothing_need_be_stated(history: History) -> None:
    """Counters such as BatchNorm's come back changed, and stay what they were."""

    def move(arrays: ArrayRecord, context: Context) -> ArrayRecord:
        learned = {
            name: Array(arrays[name].numpy() + context.node_id / 1e8) for name in ("conv", "norm.running_mean")
        }
        return ArrayRecord({**learned, "norm.num_batches_tracked": Array(np.array(context.node_id % 97))})

    on = InProcessGrid(echoing(move), {"a": {}, "b": {}, "c": {}})
    tensors = {"conv": np.zeros((3, 3)), "norm.running_mean": np.zeros(3), "norm.num_batches_tracked": np.array(5)}
    arrays = ArrayRecord({name: Array(tensor) for name, tensor in tensors.items()})
    strategy = Recorded(FedProx(proximal_mu=0.3, fraction_evaluate=0.0), history)
    rescind.flower.run(strategy, on, arrays, num_rounds=2)
    history.requests.ask(["b"], Budget(1.0, 1e-5))
    result = rescind.flower.run(strategy, on, arrays, num_rounds=3)
    training = history.run.facts.training
    assert (training.precision, training.proximal) == ("float64", 0.3)
    assert history.model(history.newest).keys() == {"conv", "norm.running_mean"}
    assert int(result.arrays["norm.num_batches_tracked"].numpy()) == 5
    assert float(result.arrays["conv"].numpy().max()) > 0
    statement = build_statement(history, 1)
    assert (statement.predicate.mode, statement.predicate.model) == ("exact", "1.3")
    stated = statement.predicate.training
    assert (stated.loss, stated.steps, stated.learning_rate) == ("NetworkLoss", None, None)
    content = sign(statement, [SIGNER])
    verify(content, [KEY], history=history)


def test_the_saved_file_is_loaded_into_a_module_as_the_page_says(history: History, tmp_path: Path) -> None:
    def make() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))

    def move(arrays: ArrayRecord, context: Context) -> ArrayRecord:
        moved = np.float32(context.node_id / 1e8)
        return ArrayRecord({**arrays, "2.bias": Array(arrays["2.bias"].numpy() + moved)})

    on = InProcessGrid(echoing(move), {"a": {}, "b": {}})
    strategy = Recorded(FedAvg(fraction_evaluate=0.0), history, trained=["2.weight", "2.bias"])
    begun = make()
    result = rescind.flower.run(
        strategy, on, ArrayRecord(begun.state_dict()), num_rounds=1, save_to=tmp_path / "model.safetensors"
    )
    net = make()
    net.load_state_dict(load_tensors(tmp_path / "model.safetensors"))
    expected = result.arrays.to_torch_state_dict()
    assert net.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in net.state_dict().items())
    assert not torch.equal(net[2].bias, begun[2].bias)


@pytest.mark.parametrize(
    ("tensor", "trained", "words"),
    [
        (np.zeros(2, np.float16), None, "the trained tensors are float16: convert"),
        (np.zeros(2, np.int8), None, "'odd' is int8.* name the tensors that are trained"),
        (np.zeros(99, np.float16), ["conv"], None),
        (np.array(3.0), None, None),
    ],
)
def test_what_a_network_can_be_made_of_is_told_before_anything_is_recorded(
    history: History, tensor: NDArray[Any], trained: list[str] | None, words: str | None
) -> None:
    on = InProcessGrid(echoing(), {"a": {}, "b": {}})
    arrays = ArrayRecord({"odd": Array(tensor), "conv": Array(np.zeros(3, tensor.dtype if words else np.float64))})
    strategy = Recorded(fedavg(), history, trained=trained)
    if words is None:
        rescind.flower.run(strategy, on, arrays, num_rounds=1)
        assert len(rounds_of(history, 0, 1, 1)[0].participants) == 2
        return
    with pytest.raises(ValueError, match=words):
        rescind.flower.run(strategy, on, arrays, num_rounds=1)
    assert not history.timeline.branches


@pytest.mark.parametrize("declared", [False, True])
def test_a_network_is_not_trained_as_a_head_on_anybodys_word(history: History, declared: bool) -> None:
    shapes = {"conv1.weight": (6, 3, 5, 5), "conv1.bias": (6,), "fc.weight": (10, 84), "fc.bias": (10,)}
    arrays = ArrayRecord({name: Array(np.zeros(shape)) for name, shape in shapes.items()})
    on = InProcessGrid(echoing(), {"a": {}, "b": {}})
    strategy = recorded(history, trained=None, declared=declared)
    with pytest.raises(ValueError, match=r"SoftmaxL2 is .*conv1\.bias.* 1 more.*NetworkLoss\(\).*exactly"):
        rescind.flower.run(strategy, on, arrays, num_rounds=1)
    network = LocalTraining(3, 1.0, rescind.NetworkLoss())
    rescind.flower.run(recorded(history, trained=None, training=network), on, arrays, num_rounds=1)
    # A head of it, the rest being frozen, is what the loss is about.
    with History.in_memory() as other:
        head = recorded(other, trained=["fc.weight", "fc.bias"], declared=declared)
        rescind.flower.run(head, on, arrays, num_rounds=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trained": ["head.wight"]}, "head.wight"),
        ({"training": replace(TRAINING, precision="float32")}, "float32"),
        ({"rate": 1.5}, "rate is 1.5"),
        ({"training": LocalTraining(3, 1.0, SoftmaxL2(0.02, 1.0), momentum=0.9)}, "momentum"),
        ({"training": LocalTraining(3, 1.0, SoftmaxL2(0.02, 1.0), momentum=0.9), "heuristic": True}, "declared=True"),
        ({"strategy": FedAvg(fraction_train=0.5), "rate": 0.5}, "not both"),
        ({"strategy": FedAdam(), "heuristic": True, "declared": True, "equal_weights": True}, "weighs its replies"),
    ],
)
def test_what_cannot_be_is_refused_in_words(history: History, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rescind.flower.run(recorded(history, **options), grid(), initial(), num_rounds=1)


def test_no_strategy_can_wrap_a_recorded_one(history: History) -> None:
    wrapper = DifferentialPrivacyServerSideFixedClipping(recorded(history), 1.0, 1.0, 4)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"rescind\.flower\.run"):
        wrapper.start(grid(), initial(), num_rounds=1)


# What clients see


def test_clients_witness_the_head_of_the_chain(history: History) -> None:
    seen: list[bytes] = []

    def keep(content: RecordDict, context: Context) -> None:
        (told,) = context.state.config_records["rescind.witnessed"].values()
        seen.append(bytes.fromhex(str(told)))

    rescind.flower.run(recorded(history), grid(keep), initial(), num_rounds=3)
    assert len(set(seen)) == 3
    assert history.integrity.verify(seen) == []
    assert history.integrity.verify([b"\0" * 32]) != []


def test_the_head_that_a_client_logs_was_committed_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Another process finds it while the round is still under way; and the log is what ``verify --witness`` reads."""

    def look(content: RecordDict, context: Context) -> None:
        (told,) = context.state.config_records["rescind.witnessed"].values()
        with History(tmp_path / "history", create=False) as elsewhere:
            committed = [entry.head.hex() for entry in entries_of(elsewhere)]
        assert told in committed

    with History(tmp_path / "history") as history, caplog.at_level(logging.INFO):
        rescind.flower.run(recorded(history), grid(look), initial(), num_rounds=3)
        assert history.newest == ModelId(0, 3)
        log = [record.getMessage() for record in caplog.records if LOGGED in record.getMessage()]
        (tmp_path / "log").write_text("".join(f"2026-11-16 INFO: {line}\n" for line in log))
        heads = read_heads(tmp_path / "log")
        # While a round is written the next one's clients are told of the one before.
        assert len(heads) >= 2
        assert history.integrity.verify(heads) == []


def test_clients_whose_updates_are_masked_tell_their_distances(history: History) -> None:
    """Masks that cancel in the mean: the server sees none of the updates, and records the same distances."""
    names = ["clinic-0", "clinic-4"]
    assert len(CLINICS["clinic-0"].labels) == len(CLINICS["clinic-4"].labels)
    nodes = {name: {"client-id": name} for name in names}

    def mask(content: RecordDict, context: Context) -> None:
        noise = np.random.default_rng(5).normal(size=(CLASSES, FEATURES))
        put(content, weight(content) + (noise if context.node_config["client-id"] == names[0] else -noise))

    on = InProcessGrid(client_app(mask), nodes)
    rescind.flower.run(recorded(history, masked=True), on, initial(), num_rounds=3)
    assert history.run.facts.sources.distances is Source.REPORTED
    with History.in_memory() as plain:
        rescind.flower.run(recorded(plain), InProcessGrid(client_app(), nodes), initial(), num_rounds=3)
        for one, two in zip(*(rounds_of(each, 0, 1, 3) for each in (history, plain)), strict=True):
            np.testing.assert_allclose(one.participants["distance"], two.participants["distance"], rtol=1e-8)
            np.testing.assert_allclose(one.update_norm, two.update_norm, rtol=1e-9)


def test_a_client_that_does_not_tell_its_distance_counts_as_far_away(history: History) -> None:
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        shard = CLINICS[str(context.node_config["client-id"])]
        return rescind.flower.train_head(msg, context, shard.features, shard.labels)

    nodes = {name: {"client-id": name} for name in list(CLINICS)[:2]}
    rescind.flower.run(recorded(history, masked=True), InProcessGrid(app, nodes), initial(), num_rounds=1)
    (round_,) = rounds_of(history, 0, 1, 1)
    longest = TRAINING.longest_update(0.0)
    assert longest is not None
    np.testing.assert_allclose(round_.participants["distance"], longest + round_.update_norm)
    # Nothing bounds a network's update: no noise can hide so much, and exact forgetting needs none.
    network = LocalTraining(5, 0.1, NetworkLoss())
    on = InProcessGrid(echoing(), {"a": {}, "b": {}})
    with History.in_memory() as other:
        rescind.flower.run(recorded(other, training=network, masked=True), on, initial(), num_rounds=1)
        (round_,) = rounds_of(other, 0, 1, 1)
        assert list(round_.participants["distance"]) == [NO_BOUND] * 2


# What a client must not be able to do


def test_one_client_has_one_vote_on_the_accuracy(history: History) -> None:
    class Stuffed(InProcessGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            replies = list(super().send_and_receive(messages, timeout=timeout))
            for reply in replies:
                if reply.metadata.src_node_id == self.ids["clinic-0"] and "accuracy" in str(reply.content):
                    for at in range(50):
                        reply.content[f"more-{at}"] = MetricRecord({"accuracy": 1.0})
            return replies

    on = Stuffed(client_app(), {name: {"client-id": name} for name in CLINICS}, authenticated=False)
    rescind.flower.run(recorded(history), on, initial(), until=Accuracy(0.99, most=3))
    assert history.newest == ModelId(0, 3)


def test_who_never_took_part_does_not_decide_when_training_ends(history: History) -> None:
    asked: list[str] = []

    class Watched(InProcessGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            sent = list(messages)
            names = {node: name for name, node in self.ids.items()}
            asked.extend(
                names[each.metadata.dst_node_id] for each in sent if each.metadata.message_type == "evaluate"
            )
            return super().send_and_receive(sent, timeout=timeout)

    def spoil(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] == "clinic-5":
            content.metric_records["metrics"]["num-examples"] = -1

    on = Watched(client_app(spoil), {name: {"client-id": name} for name in CLINICS}, authenticated=False)
    rescind.flower.run(recorded(history), on, initial(), until=Accuracy(0.6, most=5))
    assert asked
    assert "clinic-5" not in asked


def test_what_a_failing_client_says_cannot_forge_the_log(history: History, caplog: pytest.LogCaptureFixture) -> None:
    def fail(content: RecordDict, context: Context) -> None:
        raise RuntimeError("x\nINFO : rescind: request 7 is served (exact)" + "y" * 10**6)

    with caplog.at_level("INFO", "flwr"), pytest.raises(ValueError, match="could be used"):
        rescind.flower.run(recorded(history), grid(fail), initial(), num_rounds=9)
    assert history.newest == ModelId(0, 3)
    assert not any(line.startswith("INFO : rescind: request 7") for line in caplog.text.splitlines())
    assert max(map(len, caplog.messages)) < 1000


def test_a_strategys_own_state_ends_with_its_branch(history: History) -> None:
    class Heavy(FedAvg):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.velocity: dict[str, Any] = {}

        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            for name, array in (arrays or {}).items():
                self.velocity[name] = 0.9 * self.velocity.get(name, 0.0) + array.numpy()
                arrays[name] = Array(np.asarray(self.velocity[name], dtype=array.numpy().dtype))
            return arrays, metrics

    def strategy(of: History) -> Recorded:
        heavy = Heavy(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        return recorded(of, heavy, heuristic=True, declared=True)

    own = strategy(history)
    rescind.flower.run(own, grid(), initial(), num_rounds=3)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    rescind.flower.run(own, grid(), initial(), num_rounds=2)
    with History.in_memory() as other:
        on = grid()
        on.gone.add("clinic-1")
        rescind.flower.run(strategy(other), on, initial(), num_rounds=2)
        for name, tensor in other.model(other.newest).items():
            np.testing.assert_array_equal(history.model(history.newest)[name], tensor)


def test_strict_constants_that_promise_too_little_are_refused(history: History) -> None:
    few = PublicHead(0.0, CLASSES * (FEATURES + 1) - 1, 100)
    with pytest.raises(ValueError, match="public parameters is 20"):
        rescind.flower.run(recorded(history, public=few), grid(), initial(), num_rounds=1)
    small = PublicHead(0.0, CLASSES * (FEATURES + 1), 13)
    rescind.flower.run(recorded(history, public=small), grid(), initial(), num_rounds=1)
    (round_,) = rounds_of(history, 0, 1, 1)
    assert round_.participants["weight"].max() <= 13


@pytest.mark.parametrize("changed", [{"rate": 0.9}, {"rate": 0.5, "batch": 4}])
def test_how_participants_and_batches_are_drawn_stays_the_same(history: History, changed: dict[str, Any]) -> None:
    rescind.flower.run(recorded(history, rate=0.5), grid(), initial(), num_rounds=1)
    with pytest.raises(RunMismatchError):
        rescind.flower.run(recorded(history, **changed), grid(), initial(), num_rounds=2)


def test_a_client_that_is_away_is_waited_for_though_a_forgotten_one_is_there(history: History) -> None:
    strategy = recorded(history, fedavg(min_available_nodes=5))
    rescind.flower.run(strategy, grid(), initial(), num_rounds=2)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    rescind.flower.run(strategy, grid(), initial(), num_rounds=1)
    on = grid()
    on.gone.add("clinic-3")
    with pytest.raises(TimeoutError, match="4 SuperNodes that may take part are connected"):
        rescind.flower.run(strategy, on, initial(), num_rounds=2, timeout=0.2)


def test_the_saved_model_is_gone_while_somebody_is_being_forgotten(history: History, tmp_path: Any) -> None:
    strategy, path = recorded(history), tmp_path / "model"
    rescind.flower.run(strategy, grid(), initial(), num_rounds=2, save_to=path)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))

    def die(content: RecordDict, context: Context) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rescind.flower.run(strategy, grid(die), initial(), num_rounds=2, save_to=path)
    assert not path.exists()
    rescind.flower.run(strategy, grid(), initial(), num_rounds=2, save_to=path)
    assert path.exists()


# Who asks while a run is under way


@dataclass
class Asking:
    """A run in which clinic 1 asks at some point, and what came out of the run after that."""

    history: History
    path: Path
    number: int = 0
    evaluated: list[ModelId] = field(default_factory=list)
    files: list[bool] = field(default_factory=list)

    def ask(self) -> None:
        self.number = self.history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
        self.evaluated.clear()

    def on_reply(self, at: ModelId) -> Change:
        """Let it ask while a round's replies come in."""

        def change(content: RecordDict, context: Context) -> None:
            newest = self.history.newest
            here = ModelId(newest.branch, newest.round + 1)
            if here == at and not self.number and context.node_config["client-id"] == "clinic-0":
                self.ask()
            if self.number and here > at:
                self.files.append(self.path.exists())

        return change

    def evaluate(self, round_: int, arrays: ArrayRecord) -> MetricRecord:
        newest = self.history.newest
        assert newest.round == round_
        np.testing.assert_array_equal(arrays["head.weight"].numpy(), self.history.model(newest)["head.weight"])
        self.evaluated.append(newest)
        return MetricRecord({"accuracy": 0.25})

    def run(self, on: InProcessGrid, **options: Any) -> Result:
        options = {"evaluate_fn": self.evaluate, "save_to": self.path} | options
        return rescind.flower.run(recorded(self.history), on, initial(), **options)


@pytest.fixture
def asking(history: History, tmp_path: Path) -> Asking:
    return Asking(history, tmp_path / "model")


def check_forgotten(asking: Asking, result: Result, branch: int, rounds: int) -> None:
    """Nothing but what was trained since the restart may have come out of the run."""
    (outcome,) = asking.history.outcomes()
    assert outcome.asked.number == asking.number
    assert asking.history.newest == outcome.model_id == ModelId(branch, rounds)
    assert asking.evaluated == [ModelId(branch, at) for at in range(1, rounds + 1)]
    assert sorted(result.evaluate_metrics_serverapp) == sorted(result.train_metrics_clientapp)
    assert sorted(result.train_metrics_clientapp) == list(range(1, rounds + 1))
    assert not any(asking.files)
    for name, tensor in asking.history.model(ModelId(branch, rounds)).items():
        np.testing.assert_array_equal(result.arrays[name].numpy(), tensor)
        np.testing.assert_array_equal(load_file(asking.path)[name], tensor)


def test_who_asks_while_a_run_trains_is_forgotten_in_the_same_run(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    asking.run(grid(), num_rounds=2)
    on = grid(asking.on_reply(ModelId(0, 4)))
    with caplog.at_level("INFO", "flwr"):
        result = asking.run(on, num_rounds=6, method=Scratch())
    assert asking.history.newest_of(0).round == 4
    check_forgotten(asking, result, branch=1, rounds=6)
    assert asking.files
    assert f"request {asking.number} is planned (exact)" in caplog.text


def test_who_asks_in_the_last_round_of_a_run_is_forgotten_in_the_same_run(asking: Asking) -> None:
    result = asking.run(grid(asking.on_reply(ModelId(0, 3))), num_rounds=3)
    check_forgotten(asking, result, branch=1, rounds=3)


def test_who_asks_in_the_very_last_moment_is_forgotten_in_the_same_run(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = ModelFile.put

    def slow(*arguments: Any) -> None:
        put(*arguments)
        if not asking.number:
            asking.ask()

    monkeypatch.setattr(ModelFile, "put", slow)
    result = asking.run(grid(), num_rounds=3)
    check_forgotten(asking, result, branch=1, rounds=3)


def test_who_asks_between_forgetting_and_training_is_forgotten_in_the_same_run(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking.run(grid(), num_rounds=2)
    train = Revocable.train

    def late(self: Revocable, until: Any) -> ModelId:
        if not asking.number:
            asking.ask()
        return train(self, until)

    monkeypatch.setattr(Revocable, "train", late)
    result = asking.run(grid(asking.on_reply(ModelId(0, 2))), num_rounds=3)
    check_forgotten(asking, result, branch=1, rounds=3)


def test_who_asks_while_clients_evaluate_is_not_in_what_the_server_evaluates(asking: Asking) -> None:
    asked: list[ModelId] = []

    class Evaluating(InProcessGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            sent = list(messages)
            if any(each.metadata.message_type == "evaluate" for each in sent):
                asked.append(asking.history.newest)
                if asking.history.newest == ModelId(0, 2):
                    asking.ask()
            return super().send_and_receive(sent, timeout=timeout)

    on = Evaluating(client_app(), {name: {"client-id": name} for name in CLINICS}, authenticated=False)
    strategy = recorded(asking.history, fedavg(fraction_evaluate=1.0, min_evaluate_nodes=1))
    result = rescind.flower.run(strategy, on, initial(), 3, evaluate_fn=asking.evaluate, save_to=asking.path)
    check_forgotten(asking, result, branch=1, rounds=3)
    assert asked == [ModelId(0, 1), ModelId(0, 2), ModelId(1, 1), ModelId(1, 2), ModelId(1, 3)]
    assert sorted(result.evaluate_metrics_clientapp) == [1, 2, 3]


def test_who_asks_while_somebody_else_is_being_forgotten_is_forgotten_in_the_same_run(asking: Asking) -> None:
    asking.run(grid(), num_rounds=2)
    first = asking.history.requests.ask(["clinic-2"], BUDGET)
    result = asking.run(grid(asking.on_reply(ModelId(1, 2))), num_rounds=3, method=Last())
    assert [each.asked.number for each in asking.history.outcomes()] == [first, asking.number]
    # The first one's branch knows who asked, and so it is finished and not looked at.
    assert asking.evaluated == [ModelId(2, 1), ModelId(2, 2), ModelId(2, 3)]
    assert asking.history.newest_of(1).round == 3
    assert sorted(result.evaluate_metrics_serverapp) == [1, 2, 3]
    assert asking.files
    assert not any(asking.files)
    np.testing.assert_array_equal(
        load_file(asking.path)["head.weight"], asking.history.model(ModelId(2, 3))["head.weight"]
    )


def test_a_request_about_clients_whom_the_model_does_not_know_interrupts_no_run(asking: Asking) -> None:
    """The stranger was heard of, and never took part."""
    asking.run(grid(), num_rounds=2)
    register(asking.history, "stranger")

    def ask(content: RecordDict, context: Context) -> None:
        if asking.history.newest == ModelId(0, 2) and not asking.number:
            asking.number = asking.history.requests.ask(["stranger"], Budget(1.0, 1e-5))

    asking.evaluated.clear()
    result = asking.run(grid(ask), num_rounds=5)
    assert asking.evaluated == [ModelId(0, 3), ModelId(0, 4), ModelId(0, 5)]
    assert sorted(result.evaluate_metrics_serverapp) == [3, 4, 5]
    (outcome,) = asking.history.outcomes()
    assert (outcome.asked.number, outcome.restart) == (asking.number, None)
    assert asking.path.exists()


def test_a_model_that_was_saved_before_a_run_broke_off_is_removed_by_the_run_that_goes_on(asking: Asking) -> None:
    """The run that broke off saved to no file, so the old one was still there."""
    asking.run(grid(), num_rounds=2)
    asking.ask()

    def die(content: RecordDict, context: Context) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asking.run(grid(die), num_rounds=2, save_to=None)
    assert asking.path.exists()
    result = asking.run(grid(asking.on_reply(ModelId(1, 0))), num_rounds=2)
    assert asking.files
    check_forgotten(asking, result, branch=1, rounds=2)


def test_a_client_loads_nothing_that_it_does_not_need() -> None:
    heavy = {"sqlalchemy", "torch", "scipy.optimize", "scipy.special", "scipy.linalg"}
    code = f"""
import sys, rescind.flower
servers = [name for name in sys.modules if name.startswith(("rescind.flower.server", "rescind.engines.stops"))]
sys.exit(bool({heavy} & sys.modules.keys() or servers))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert rescind.flower.run is run_module.run
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        rescind.flower.walk  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        rescind.history.walk  # noqa: B018


def test_an_accuracy_that_ends_no_training_is_not_logged_as_if_it_did(
    history: History, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recording, "accuracy", lambda *_: 0.76999)
    rescind.flower.run(recorded(history), grid(), initial(), until=Accuracy(0.77, most=2))
    assert "have a mean accuracy of 76.9%" in caplog.text
    assert "77.0" not in caplog.text


def test_what_people_call_a_client_is_written_with_its_first_round(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that arrives meanwhile holds the model back, and the client may be gone in the next round."""
    asked: list[int] = []

    def ask(_: RecordDict, context: Context) -> None:
        if not asked and str(context.node_config["client-id"]) == "clinic-2":
            asked.append(history.requests.ask(["clinic-3"], Budget(1.0, 1e-5)))

    first = grid(authenticated=True)
    first.gone.add("clinic-1")
    rescind.flower.run(recorded(history), first, initial(), num_rounds=1)
    joining = grid(ask, authenticated=True)
    seen: list[str] = []

    record_plan = Requests.record_plan

    def die(*given: Any) -> None:
        record_plan(*given)
        seen.append("a plan")
        raise KeyboardInterrupt

    monkeypatch.setattr(Requests, "record_plan", die)
    with pytest.raises(KeyboardInterrupt):
        rescind.flower.run(recorded(history), joining, initial(), num_rounds=2)
    assert asked
    assert seen
    assert history.participants.find(["clinic-1"]) == history.participants.find([OLD_KEY])
