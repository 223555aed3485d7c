"""DP-FedAvg on Flower: the simulator's models and claims, and nothing that a client sends moves a round further."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedMedian,
    FedProx,
    Result,
)
from typer.testing import CliRunner

import rescind.flower
from rescind import Budget, History, LocalTraining, NetworkLoss, Rounds, Sampling
from rescind.audit.replay import distance
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import Predicate
from rescind.certificates.verification import verify
from rescind.cli import app as command_line
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, PrivacyScope, PublicHead, Source
from rescind.engines.server import NoisedAverage, compute_updates, norm
from rescind.errors import HistoryError, RunMismatchError
from rescind.flower import Accuracy, Recorded
from rescind.flower.wire import Instructions
from rescind.forgetting import Revocable
from rescind.history.events import RepliesRejected
from rescind.ledger.contract import Ledger
from rescind.ledger.records import ErasureLevel
from rescind.methods import Dp, Exact, Solve
from rescind.serving import choose_method
from rescind.simulation import Federation, Network, Shard, Simulation
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation, simulation
from tests.builders import BUDGET, KEY, SIGNER, rounds_of
from tests.recording import wrap

CLINICS = federation(6).shards
SEED = b"a federation for tests 0"
NOISED = NoisedAverage(clip=0.5, denominator=4.0, noise_multiplier=4.0)
SEEDED = replace(NOISED, seed=SEED)
# What reaches a client's own code is altered by it, if it is there.
Change = Callable[[RecordDict, str, ModelId], None]


def unchanged(_content: RecordDict, _name: str, _model_id: ModelId) -> None:
    pass


def head_app(change: Change = unchanged) -> ClientApp:
    """Return clients that train a head with our helper."""
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        # Noise makes the model longer than a client answers for by default.
        limits = rescind.flower.Limits(length=10.0)
        reply = rescind.flower.train_head(msg, context, CLINICS[name].features, CLINICS[name].labels, limits=limits)
        change(reply.content, name, Instructions.of(msg.content.config_records["config"]).model_id)
        return reply

    app.query()(rescind.flower.identify)

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        metrics = MetricRecord({"accuracy": 0.5, "num-examples": 3})
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    return app


def head() -> ArrayRecord:
    return ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES))), "bias": Array(np.zeros(CLASSES))})


def network(**options: Any) -> Simulation:
    """Return a simulated network, small in everything."""
    rng = np.random.default_rng(0)
    shards = {f"clinic-{at}": Shard(rng.normal(size=(5, 1, 18, 18)), rng.integers(0, 3, 5)) for at in range(5)}
    training = LocalTraining(steps=2, learning_rate=0.1, loss=NetworkLoss(), clips_updates=True)
    sampling: dict[str, Any] = {"sampling": Sampling.POISSON, "rate": 0.7, "secret": SEED}
    model = Network(channels=1, size=18, classes=3, hidden=4, width=2)
    return Simulation(Federation(shards, shards["clinic-0"], 3), model, training, **sampling | options)


def network_app() -> ClientApp:
    """Return clients that train a whole network on torch, by code that knows nothing of this project's helper."""
    app, own = ClientApp(), network(public=NOISED.facts, public_schedule=True)
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        (arrays,) = msg.content.array_records.values()
        model = {name: array.numpy() for name, array in arrays.items()}
        replies = own.train(model, ModelId(0, 1), [str(context.node_config["client-id"])])
        trained = ArrayRecord({name: Array(np.array(replies.tensors[name][0])) for name in model})
        metrics = MetricRecord({"num-examples": 5})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=msg)

    return app


def on_grid(app: ClientApp | None = None, clients: int = 6) -> InProcessGrid:
    """Return a grid without registered keys, so that names, and coins with them, are the simulator's."""
    nodes = {name: {"client-id": name} for name in list(CLINICS)[:clients]}
    return InProcessGrid(app or head_app(), nodes, authenticated=False)


def fedavg(**options: Any) -> FedAvg:
    return FedAvg(**({"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1} | options))


def recorded(history: History, strategy: Any = None, **options: Any) -> Recorded:
    chosen = {"training": TRAINING, "server": NOISED, "rate": 0.7} | options
    return wrap(strategy or fedavg(), history, **chosen)


def start(history: History, num_rounds: int, grid: InProcessGrid | None = None, **options: Any) -> Result:
    own = {name: options.pop(name) for name in ("method", "solve", "until") if name in options}
    return rescind.flower.run(
        recorded(history, **options), grid or on_grid(), head(), num_rounds=num_rounds, timeout=5.0, **own
    )


def certified(history: History, number: int) -> Predicate:
    """Sign what became of a request, verify it against the history, and return what it says."""
    content = sign(build_statement(history, number), [SIGNER])
    verified = verify(content, [KEY], history=history)
    return verified.statement.predicate


# The simulator's models and claims


@pytest.mark.parametrize("kind", ["a head by our helper", "a network by code of its own"])
def test_a_grid_and_the_simulator_make_the_same_noised_rounds_and_claims(history: History, kind: str) -> None:
    noised: dict[str, Any] = {"public": SEEDED.facts, "public_schedule": True, "equal_weights": True}
    if kind == "a head by our helper":
        training, arrays, app = TRAINING, head(), head_app()
        engine = simulation(6, training=replace(TRAINING, clips_updates=True), **noised)
    else:
        training, app = LocalTraining.own_code("float64"), network_app()
        engine = network(secret_noise=False, **noised)
        arrays = ArrayRecord({name: Array(tensor) for name, tensor in engine.start().items()})
    grid = on_grid(app, len(engine.clients))
    strategy = recorded(history, training=training, seed=SEED, server=SEEDED, level=ErasureLevel.OUTPUT)

    def go(rounds: int) -> None:
        rescind.flower.run(strategy, grid, arrays, num_rounds=rounds)

    go(5)
    history.requests.ask(["clinic-2"], BUDGET)
    go(4)
    with History.in_memory() as other:
        federation = Revocable(other, engine, SEEDED, seed=SEED)
        federation.train(Rounds(5))
        other.requests.ask(["clinic-2"], BUDGET)
        (simulated,) = federation.forget(Dp(), Rounds(4), level=ErasureLevel.OUTPUT)
        (own,) = history.outcomes()
        for model_id in (ModelId(0, 5), ModelId(1, 4)):
            assert distance(history.model(model_id), other.model(model_id)) <= 1e-12
        assert own.restart is not None
        assert simulated.restart is not None
        # Who executes the training is another's word; nothing else that a claim rests on differs.
        facts, expected = history.facts, other.facts
        assert replace(facts, sources=expected.sources, training=expected.training) == expected
        assert (facts.training == expected.training) is (training is TRAINING)
        assert facts.training.clips_updates
        assert own.restart.planned.candidate == simulated.restart.planned.candidate
        assert own.restart.planned.public_plan
        assert own.restart.branch.participations == simulated.restart.branch.participations
        for branch in (0, 1):
            names = [{number: name for name, number in each.participants.all().items()} for each in (history, other)]
            took_part = [
                [{known.get(client) for client in each.clients.tolist()} for each in rounds_of(kept, branch)]
                for kept, known in zip((history, other), names, strict=True)
            ]
            assert took_part[0] == took_part[1]


def test_a_network_that_clients_train_by_code_of_their_own_is_forgotten_strictly(tmp_path: Path) -> None:
    engine = network(public=NOISED.facts, public_schedule=True)
    arrays = ArrayRecord({name: Array(tensor) for name, tensor in engine.start().items()})
    path = tmp_path / "model.safetensors"
    with History(tmp_path / "history") as history:
        strategy = Recorded(fedavg(), history, server=NOISED, rate=0.7)
        grid = on_grid(network_app(), 5)
        rescind.flower.run(strategy, grid, arrays, num_rounds=4, save_to=path)
        number = history.requests.ask(["clinic-1"], BUDGET)
        took_part = sum(history.participants.all()["clinic-1"] in each.clients for each in rounds_of(history))
        assert took_part
        rescind.flower.run(strategy, grid, arrays, num_rounds=0, save_to=path)
        said = certified(history, number)
        assert (said.mode, said.model) == ("strict", "1.0")
        assert said.rounds is not None
        assert (said.rounds.rounds, said.rounds.participations) == (4, took_part)
        z = NOISED.sigma * NOISED.denominator / NOISED.clip * (1 - 1e-4)
        assert said.rounds.mu == pytest.approx(math.sqrt(took_part) / z, rel=1e-6)
        assert said.rounds.mu <= BUDGET.mu
        assert history.facts.sources.training is Source.DECLARED
        # It holds of what is trained on from there, too.
        rescind.flower.run(strategy, grid, arrays, num_rounds=2, save_to=path)
        assert certified(history, number).model == "1.2"
        assert history.integrity.verify() == []


# What is refused


class Own(NoisedAverage):
    """Says that it is DP-FedAvg, and may do anything."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"masked": True}, "has to see every update"),
        ({"strategy": FedAdam(fraction_evaluate=0.0), "heuristic": True}, "FedAdam makes the model itself"),
        ({"strategy": FedMedian(fraction_evaluate=0.0), "heuristic": True}, "wrap FedAvg or FedProx"),
        (
            {"strategy": DifferentialPrivacyServerSideFixedClipping(fedavg(), 1.0, 1.0, 4), "heuristic": True},
            "wrap FedAvg or FedProx",
        ),
        ({"strategy": fedavg(fraction_train=0.5), "rate": None}, "give rate= in its place"),
        ({"strategy": fedavg(fraction_train=0.5)}, "give rate= in its place"),
        ({"public": PublicHead(initial_norm=0.0, parameters=21, batch=15)}, "leave it out beside server="),
        ({"training": replace(TRAINING, server_learning_rate=0.5)}, "enlarge the denominator"),
        ({"seed": SEED}, "give both the same one"),
        ({"server": SEEDED}, "give both the same one"),
        ({"server": NOISED.facts}, "give a rescind.engines.server.NoisedAverage"),
        ({"server": Own(0.5, 4.0, 4.0)}, "give a rescind.engines.server.NoisedAverage"),
        ({"training": replace(TRAINING, momentum=0.9)}, "train_head executes plain SGD only"),
    ],
)
def test_what_dp_fedavg_does_not_cover_is_refused(history: History, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        recorded(history, **options)


def test_what_clients_execute_does_not_matter_where_every_round_is_noised(history: History) -> None:
    strategies = [
        recorded(history, training=replace(TRAINING, momentum=0.9), declared=True),
        recorded(history, training=replace(TRAINING, clips_updates=True)),
        recorded(history, FedProx(proximal_mu=0.1), training=LocalTraining.own_code("float32")),
        recorded(history, rate=None),
    ]
    assert [each.facts("", authenticated=True).strict_obstacles for each in strategies] == [()] * 4


@pytest.mark.parametrize("how", [{"solve": True}, {"method": Solve()}])
def test_a_head_is_not_solved_where_every_round_is_noised(history: History, how: dict[str, Any]) -> None:
    start(history, 2, rate=None)
    history.requests.ask(["clinic-1"], BUDGET)
    with pytest.raises(ValueError, match="a solver's sums have no noise"):
        start(history, 2, rate=None, **how)
    assert history.newest == ModelId(0, 2)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"server": None}, {}, "facts.public None, not DpFedAvg"),
        ({}, {"server": None}, "not None"),
        ({}, {"server": replace(NOISED, clip=0.25)}, r"facts.public.clip 0.5, not 0.25"),
        ({}, {"server": replace(NOISED, noise_multiplier=2.0)}, "facts.public.sigma"),
        ({}, {"server": replace(NOISED, denominator=8.0)}, "facts.public.denominator"),
        ({}, {"rate": 0.5}, "with a chance of 0.7, not each client in a round with a chance of 0.5"),
        ({}, {"server": SEEDED, "seed": SEED}, "facts.secret_noise"),
    ],
)
def test_a_history_goes_on_with_the_noise_that_it_began_with(
    history: History, before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    start(history, 1, **before)
    with pytest.raises(RunMismatchError, match=words + ".*start a new history"):
        start(history, 2, **after)
    assert history.newest == ModelId(0, 1)


# What clients send


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, float]]:
    """Return how long the updates are that go into each round's sum, by name, as the rounds are made."""
    lengths: list[Mapping[str, float]] = []
    make = NoisedAverage.round

    def watched(self: NoisedAverage, engine: Any, model: Any, *rest: Any) -> Any:
        made = make(self, engine, model, *rest)
        lengths.append({name: norm(update) for name, update in compute_updates(model, made.replies).items()})
        return made

    monkeypatch.setattr(NoisedAverage, "round", watched)
    return lengths


@pytest.mark.parametrize("size", [1.0, 1e6, 1e100, 1e134])
def test_however_long_an_update_is_it_moves_the_sum_by_the_clip_at_most(
    history: History, updates: list[Mapping[str, float]], size: float
) -> None:
    def enlarge(content: RecordDict, name: str, _: ModelId) -> None:
        if name == "clinic-1":
            content.array_records["arrays"]["weight"] = Array(np.full((CLASSES, FEATURES), -size))

    start(history, 2, on_grid(head_app(enlarge)), rate=None)
    assert [len(each) for each in updates] == [6, 6]
    assert all(length <= NOISED.clip * (1 + 1e-9) for each in updates for length in each.values())
    assert all(each["clinic-1"] == pytest.approx(NOISED.clip) for each in updates)
    assert all(np.abs(tensor).max() < 100 for tensor in history.model(history.newest).values())


def test_what_is_no_number_is_rejected_and_is_in_no_sum(history: History, updates: list[Mapping[str, float]]) -> None:
    def spoil(content: RecordDict, name: str, _: ModelId) -> None:
        spoilt = {"clinic-1": np.nan, "clinic-2": np.inf, "clinic-3": 1e200}.get(name)
        if spoilt is not None:
            content.array_records["arrays"]["bias"] = Array(np.full(CLASSES, spoilt))

    start(history, 2, on_grid(head_app(spoil)), rate=None)
    assert [set(each) for each in updates] == [{"clinic-0", "clinic-4", "clinic-5"}] * 2
    rejected = [event for _, event in history.timeline.of(RepliesRejected)]
    assert [len(event.rejected) for event in rejected] == [3, 3]
    # They are in no sum, so that nothing has to hide them.
    history.requests.ask(["clinic-1"], BUDGET)
    start(history, 2, rate=None)
    (outcome,) = history.outcomes()
    assert (outcome.mode, outcome.restart) == (Mode.EXACT, None)


def test_a_weight_is_one_whatever_a_client_tells_and_however_often_it_changes_that(history: History) -> None:
    def lie(content: RecordDict, name: str, model_id: ModelId) -> None:
        if name == "clinic-1":
            content.metric_records["metrics"]["num-examples"] = 10 ** (model_id.round + 2)

    for rounds in (2, 3):
        start(history, rounds, on_grid(head_app(lie)), rate=None)
    own = history.participants.all()["clinic-1"]
    assert [own in each.clients for each in rounds_of(history)] == [True] * 3
    # Also after a run that began anew: what was recorded of the others is not held against what they tell.
    assert [len(each.clients) for each in rounds_of(history)] == [6] * 3
    assert all((each.participants["weight"] == 1).all() for each in rounds_of(history))
    assert history.facts.equal_weights


class Twice(InProcessGrid):
    """Hands over every reply twice, the second time with other numbers."""

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        replies = list(super().send_and_receive(messages, timeout=timeout))
        again = list(super().send_and_receive(messages, timeout=timeout))
        for reply in again:
            for arrays in reply.content.array_records.values():
                arrays["bias"] = Array(arrays["bias"].numpy() + 7.0)
        return [*replies, *again]


def test_who_answers_twice_is_in_the_sum_once(history: History, updates: list[Mapping[str, float]]) -> None:
    grid = Twice(head_app(), {name: {"client-id": name} for name in CLINICS}, authenticated=False)
    start(history, 1, grid, rate=None)
    assert [len(each.clients) for each in rounds_of(history)] == [6]
    with History.in_memory() as other:
        start(other, 1, rate=None)
    assert updates[0] == updates[1]


# Noise in every round


@pytest.mark.parametrize("why", ["nobody is drawn", "everybody is silent", "everybody is rejected"])
def test_a_round_without_replies_is_noised_and_recorded(history: History, why: str) -> None:
    def spoil(content: RecordDict, _name: str, _model_id: ModelId) -> None:
        del content.array_records["arrays"]["bias"]

    app = head_app(spoil if why == "everybody is rejected" else unchanged)
    grid = InProcessGrid(app, {name: {"client-id": name} for name in CLINICS})
    grid.failing = set(CLINICS) if why == "everybody is silent" else set()
    quiet = replace(NOISED, denominator=400.0)
    start(history, 2, grid, rate=1e-12 if why == "nobody is drawn" else None, server=quiet)
    first, second = (history.model(ModelId(0, at)) for at in (1, 2))
    assert [len(each.clients) for each in rounds_of(history)] == [0, 0]
    # The start is zero, so that a model is its noise.
    drawn = np.concatenate([first["weight"].ravel(), (second["weight"] - first["weight"]).ravel()])
    assert quiet.sigma / 2 < np.std(drawn) < 2 * quiet.sigma
    assert np.abs(drawn).min() > 0


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("when", ["before it is recorded", "while it is recorded"])
def test_a_round_that_breaks_off_leaves_nothing_and_is_made_again_with_fresh_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    made: list[np.ndarray] = []
    seen: list[np.ndarray] = []
    make = NoisedAverage.round

    def watched(self: NoisedAverage, *arguments: Any) -> Any:
        result = make(self, *arguments)
        made.append(result.model["weight"].copy())
        if when == "before it is recorded" and len(made) == 3:
            raise KilledError
        return result

    def evaluate(_round: int, arrays: ArrayRecord) -> None:
        seen.append(arrays["weight"].numpy().copy())

    monkeypatch.setattr(NoisedAverage, "round", watched)
    path = tmp_path / "model.safetensors"

    def go(rounds: int) -> None:
        with History(tmp_path / "history") as history:
            strategy = recorded(history, rate=None)
            rescind.flower.run(strategy, on_grid(), head(), num_rounds=rounds, evaluate_fn=evaluate, save_to=path)

    commit = Ledger.commit_round

    def broken(self: Any, *arguments: Any, **options: Any) -> Any:
        if when == "while it is recorded" and len(made) == 3:
            raise KilledError
        return commit(self, *arguments, **options)

    monkeypatch.setattr(Ledger, "commit_round", broken)
    with pytest.raises(KilledError):
        go(4)
    assert not path.exists()
    monkeypatch.setattr(Ledger, "commit_round", commit)
    assert len(seen) == 2
    go(4)
    # Five were made, and the third was seen by nobody: neither evaluated, nor saved, nor recorded.
    assert len(made) == 5
    assert len(seen) == 4
    np.testing.assert_array_equal(seen, [made[at] for at in (0, 1, 3, 4)])
    assert np.abs(made[2] - made[3]).min() > 0
    # Whoever had both would have two noises on one sum.
    stored = b"".join(file.read_bytes() for file in (tmp_path / "history").rglob("*") if file.is_file())
    assert made[4].tobytes() in stored
    assert made[2].tobytes() not in stored
    with History(tmp_path / "history") as history:
        np.testing.assert_array_equal(history.model(ModelId(0, 4))["weight"], made[4])
        number = history.requests.ask(["clinic-1"], BUDGET)
        rescind.flower.run(recorded(history, rate=None), on_grid(), head(), num_rounds=0)
        said = certified(history, number)
        assert said.rounds is not None
        assert (said.mode, said.rounds.rounds, said.rounds.participations) == ("strict", 4, 4)


# Requests


def test_two_requests_in_a_row_are_both_hidden_by_the_noise_of_the_rounds(history: History) -> None:
    loud: dict[str, Any] = {"rate": None, "server": replace(NOISED, noise_multiplier=16.0)}
    loud["level"] = ErasureLevel.OUTPUT
    start(history, 3, **loud)
    first = history.requests.ask(["clinic-1"], BUDGET)
    start(history, 2, **loud)
    second = history.requests.ask(["clinic-2", "clinic-3"], BUDGET)
    third = history.requests.ask(["clinic-4"], BUDGET, scope=PrivacyScope.SEQUENCE)
    start(history, 1, **loud)
    found = [certified(history, number) for number in (first, second, third)]
    assert [each.mode for each in found] == ["strict"] * 3
    # One in three rounds; two in five; four in three and three in two. Who waits is not asked any more.
    assert [each.rounds and each.rounds.participations for each in found] == [3, 5 * 2**2, 3 * 4**2 + 2 * 3**2]
    assert history.integrity.verify() == []


def test_after_a_purge_the_next_one_counts_as_if_it_had_taken_part_in_each_erased_round(history: History) -> None:
    for name in ("clinic-1", "clinic-2"):
        start(history, 2, rate=None)
        number = history.requests.ask([name], BUDGET)
        newest = history.newest
    start(history, 1, rate=None)
    assert [outcome.mode for outcome in history.outcomes()] == [Mode.STRICT, Mode.STRICT]
    assert history.timeline.branches[2].parent == newest
    noised = certified(history, number).rounds
    assert noised is not None
    assert noised.rounds == noised.participations


def test_whom_the_noise_does_not_hide_is_forgotten_from_further_back(history: History) -> None:
    start(history, 6, rate=None)
    history.requests.ask(["clinic-1", "clinic-2", "clinic-3"], Budget(1.0, 1e-5))
    start(history, 1, rate=None)
    (outcome,) = history.outcomes()
    assert outcome.restart is not None
    assert outcome.restart.branch.parent == ModelId(0, 0)
    assert outcome.mode is Mode.EXACT


def test_who_took_part_in_no_round_is_not_known(history: History) -> None:
    with pytest.raises(HistoryError):
        history.requests.ask(["clinic-1"], BUDGET)
    start(history, 0)
    with pytest.raises(HistoryError, match="clinic-1"):
        history.requests.ask(["clinic-1"], BUDGET)


def test_rounds_that_an_accuracy_ended_make_it_an_instance(history: History) -> None:
    start(history, 3, rate=None, until=Accuracy(0.4, most=3))
    number = history.requests.ask(["clinic-1"], BUDGET)
    start(history, 0, rate=None)
    assert certified(history, number).mode == "instance"


def test_the_noise_serves_by_default_until_a_plan_has_looked_at_data(history: History) -> None:
    engine = simulation(6, training=replace(TRAINING, clips_updates=True), public=SEEDED.facts, public_schedule=True)
    federation = Revocable(history, engine, SEEDED, seed=SEED)
    assert choose_method(federation) == Dp()
    federation.train(Rounds(3))
    history.requests.ask(["clinic-1"], BUDGET)
    federation.forget(Exact(), Rounds(2))
    # No strict plan follows it, and a run that nobody looks at has to be able to go on.
    assert choose_method(federation) == Exact()
    history.requests.ask(["clinic-2"], BUDGET)
    with pytest.raises(ValueError, match="no strict plan"):
        federation.forget(Dp(), Rounds(2))
    federation.forget(choose_method(federation), Rounds(2))


def test_nobody_is_advised_to_give_up_a_strict_claim(history: History, caplog: pytest.LogCaptureFixture) -> None:
    start(history, 2, rate=None)
    history.requests.ask(["clinic-1"], BUDGET)
    with caplog.at_level("INFO", "flwr"):
        start(history, 1, rate=None)
    assert "request 1 is served (strict): back to model 0.2, 1 round since" in caplog.text
    assert "until=Accuracy" not in caplog.text
    assert "Solve()" not in caplog.text


def test_the_command_line_plans_as_a_run_does(tmp_path: Path) -> None:
    def planned() -> str:
        words = ["request", "preview", str(tmp_path / "history"), "clinic-2", "--epsilon", "8", "--delta", "0.01"]
        done = CliRunner().invoke(command_line, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    with History(tmp_path / "history") as history:
        start(history, 3, rate=None)
        told = planned()
        assert "The noise of the rounds up to model 0.3 hides them" in told
        assert "never saw them" not in told
        history.requests.ask(["clinic-1"], BUDGET)
        start(history, 1, rate=None, method=Exact())
        # By then no plan is strict any more, and it is said why.
        assert "With noise nothing is proven here" in planned()


# What floating point can hide


@pytest.mark.parametrize("size", [1e-200, 1e-31, 1e31, 1e200])
def test_a_clip_of_which_no_norm_is_known_is_refused(size: float) -> None:
    """The squares of updates of 1e-170 vanish: they would not be clipped to 1e-200, and move the mean by 1e30."""
    with pytest.raises(ValueError, match="could not tell how long an update is"):
        NoisedAverage(clip=size, denominator=size, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="could not tell how long an update is"):
        replace(NOISED.facts, clip=size)


def test_a_model_whose_rounding_shows_a_client_is_refused(history: History) -> None:
    fine = NoisedAverage(clip=1.0, denominator=100 * 2.0**16, noise_multiplier=100.0)
    large = ArrayRecord({name: Array(array.numpy() + 2.0**27.5) for name, array in head().items()})
    grid = on_grid()
    with pytest.raises(ValueError, match="rounding is accounted for up to"):
        rescind.flower.run(recorded(history, server=fine), grid, large, num_rounds=1, timeout=5.0)
    assert history.newest == ModelId(0, 0)
    assert not [kind for _, kind in grid.sent if kind == "train"]


@pytest.mark.parametrize("share", [0.99, 50.0])
def test_beside_the_largest_model_a_client_moves_the_mean_by_no_more_than_is_accounted_for(share: float) -> None:
    """The others' sum lies next to a rounding boundary in every coordinate, and the leaver's pushes it over."""
    server = NoisedAverage(clip=1.0, denominator=2.0**16, noise_multiplier=1.0)
    coordinates, step = 4096, server.clip / server.denominator
    largest = 5e-5 * step * 2.0**52 / math.sqrt(coordinates)
    model = np.full(coordinates, share * largest)
    unit, own = np.spacing(model), np.random.default_rng(0).uniform(size=coordinates)
    own *= step / np.linalg.norm(own)
    others = (0.5001 - own / unit % 1) * unit
    moved = float(np.linalg.norm((model + (others + own)) - (model + others)))
    accounted = server.sigma / server.facts.noise_multiplier
    assert (moved <= accounted) is (share < 1)
    tensors = {"weight": model}
    if share < 1:
        server._check_size(tensors)
    else:
        with pytest.raises(ValueError, match="rounding is accounted for up to"):
            server._check_size(tensors)


@pytest.mark.parametrize("shape", [(), (0,), (1, 1, 1)])
@pytest.mark.parametrize("server", [NOISED, None])
def test_a_network_may_have_a_number_without_a_dimension(
    history: History, server: NoisedAverage | None, shape: tuple[int, ...]
) -> None:
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        arrays = {name: array.numpy() for name, array in msg.content.array_records["arrays"].items()}
        own = {name: Array(np.asarray(tensor + 1, tensor.dtype)) for name, tensor in arrays.items()}
        content = RecordDict({"arrays": ArrayRecord(own), "metrics": MetricRecord({"num-examples": 1})})
        return Message(content, reply_to=msg)

    start_with = ArrayRecord({"scale": Array(np.ones(shape, np.float32)), "body": Array(np.ones(3, np.float32))})
    strategy = wrap(fedavg(), history, server=server)
    rescind.flower.run(strategy, on_grid(app), start_with, num_rounds=2, timeout=5.0)
    assert history.model(history.newest)["scale"].shape == shape
    assert history.integrity.verify() == []
