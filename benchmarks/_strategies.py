"""Server apps on Flower that do more than they say, and what is certified of whom they forget.

Each is judged with all checks in place, and once with the one that stops it switched off: then it has to show.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from securesystemslib.signer import CryptoSigner

import rescind.flower
from rescind import Budget, History, LocalTraining, Sampling, SoftmaxL2
from rescind.audit.replay import distance
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import Predicate
from rescind.certificates.verification import verify
from rescind.core.arrays import Tensor
from rescind.core.calibration import reached_epsilon
from rescind.core.solver import Solver, Solving, choose
from rescind.engines import solving
from rescind.engines.server import NoisedAverage
from rescind.engines.stops import Rounds
from rescind.flower import Recorded
from rescind.flower.server import engine, recorded
from rescind.flower.server import run as run_module
from rescind.forgetting import Revocable
from rescind.history.recorder import Recorder
from rescind.methods import Last
from rescind.simulation import Shard, Simulation
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, federation, simulation

BUDGET = Budget(1.0, 1e-5)
SIGNER = CryptoSigner(Ed25519PrivateKey.generate())
_FEW: Mapping[str, Any] = {"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1}


class LookAhead(FedAvg):
    """Nesterov's: clients begin where the last step would lead once more."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        now = {name: array.numpy().copy() for name, array in arrays.items()}
        last = getattr(self, "last", now)
        for name, model in now.items():
            arrays[name] = Array(model + 0.95 * (model - last[name]))
        self.last = now
        return super().configure_train(server_round, arrays, config, grid)


class Half(FedAvg):
    """Sends the model in half precision, written into the very arrays that it is given."""

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        for array in arrays.values():
            array.data = Array(array.numpy().astype(np.float16).astype(array.dtype)).data
        return super().configure_train(server_round, arrays, config, grid)


class Plateau(FedAvg):
    """Lowers the clients' learning rate where their training losses do not fall; its state is its own."""

    def __init__(self) -> None:
        super().__init__(**_FEW, train_metrics_aggr_fn=self.combine)
        self.rate, self.last = 0.5, float("inf")

    def combine(self, contents: list[RecordDict], _weighted_by: str) -> MetricRecord:
        """Return the mean loss, and lower the rate by it."""
        loss = float(np.mean([float(content["metrics"]["loss"]) for content in contents]))  # type: ignore[arg-type]
        if loss > 0.95 * self.last:
            self.rate *= 0.5
        self.last = loss
        return MetricRecord({"loss": loss})

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any) -> Any:
        config["lr"] = self.rate
        return super().configure_train(server_round, arrays, config, grid)


def head_app(shards: Mapping[str, Shard]) -> ClientApp:
    """Return clients that train a head by our helper."""
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        shard = shards[str(context.node_config["client-id"])]
        return rescind.flower.train_head(msg, context, shard.features, shard.labels)

    return app


def network_app(shards: Mapping[str, Shard], told: list[tuple[Any, Any]] | None = None) -> ClientApp:
    """Return clients that make one step of the learning rate that they are told, by code of their own."""
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        shard = shards[str(context.node_config["client-id"])]
        ((key, arrays),), (config,) = msg.content.array_records.items(), msg.content.config_records.values()
        if told is not None:
            told.append((config["server-round"], config.get("lr")))
        weight, wanted = arrays["net.w"].numpy().astype(np.float64), np.eye(CLASSES)[shard.labels]
        logits = shard.features @ weight.T
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        loss = float(-np.log(np.maximum((odds * wanted).sum(axis=1), 1e-30)).mean())
        weight -= float(config.get("lr", 0.5)) * (odds - wanted).T @ shard.features / len(wanted)  # type: ignore[arg-type]
        metrics = MetricRecord({"num-examples": len(wanted), "loss": loss})
        result = ArrayRecord({"net.w": Array(weight.astype(np.float32))})
        return Message(RecordDict({key: result, "metrics": metrics}), reply_to=msg)

    return app


def on_grid(app: ClientApp, names: Any) -> InProcessGrid:
    """Return a Grid on which clients say who they are."""
    return InProcessGrid(app, {name: {"client-id": name} for name in names}, authenticated=False)


def network() -> ArrayRecord:
    """Return where a network's training begins."""
    return ArrayRecord({"net.w": Array(np.zeros((CLASSES, FEATURES), np.float32))})


def head(kind: type[np.floating[Any]] = np.float64) -> ArrayRecord:
    """Return where a head's training begins."""
    return ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES), kind)), "bias": Array(np.zeros(CLASSES, kind))})


def certify(history: History, number: int = 1) -> Predicate:
    """Return what is certified of a request, once it verifies with the history."""
    content = sign(build_statement(history, number), [SIGNER])
    verified = verify(content, [SIGNER.public_key], history=history)
    return verified.statement.predicate


@dataclass(frozen=True, slots=True)
class Told:
    """Whether a server app was refused, and whether what was certified of it is false."""

    name: str
    refused: bool
    false: bool


class Case(Protocol):
    """Runs a server app, and says whether what is certified of it is false."""

    def __call__(self) -> bool: ...


def _sends_another_model(
    strategy: type[FedAvg], training: LocalTraining, rounds: int, shards: dict[str, Shard]
) -> bool:
    """Hide the last client by noise, and compare with the world without it."""
    leaver, kind = list(shards)[-1], np.float32 if training.precision == "float32" else np.float64

    def world(names: list[str]) -> tuple[History, Callable[..., Any]]:
        history, grid = History.in_memory(), on_grid(head_app(shards), names)

        def run(most: int, **options: Any) -> None:
            chosen = Recorded(strategy(**_FEW), history, training=training)
            rescind.flower.run(chosen, grid, head(kind), most, **options)

        run(rounds)
        return history, run

    history, run = world(list(shards))
    other, _ = world([name for name in shards if name != leaver])
    apart = distance(_wide(history.model(history.newest)), _wide(other.model(other.newest)))
    history.requests.ask([leaver], BUDGET)
    run(1, method=Last())
    said = certify(history)
    if said.guarantee is None or said.noise is None:
        return False
    return reached_epsilon(apart / said.noise.sigma, BUDGET.delta) > said.guarantee.epsilon


def _wide(model: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.astype(np.float64) for name, tensor in model.items()}


def look_ahead() -> bool:
    """Judge a strategy that looks ahead."""
    shards = dict(federation(4, 1).shards)
    own = shards["clinic-3"]
    shards["clinic-3"] = Shard(np.abs(own.features), np.zeros_like(own.labels))
    training = LocalTraining(steps=1, learning_rate=0.2, loss=SoftmaxL2(l2=0.001, row_norm=1.0))
    return _sends_another_model(LookAhead, training, 40, shards)


def cast() -> bool:
    """Judge a strategy that sends models in half precision to clients that are nearly alike."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, FEATURES))
    own = Shard(rows, (rows @ rng.normal(size=(FEATURES, CLASSES))).argmax(axis=1))
    shards = {
        f"clinic-{at}": Shard(
            own.features + 1e-4 * np.random.default_rng(at).normal(size=own.features.shape), own.labels
        )
        for at in (*range(7), *range(8, 30), 7)
    }
    training = LocalTraining(3, 1.0, SoftmaxL2(l2=0.05, row_norm=1.0), precision="float32")
    return _sends_another_model(Half, training, 16, shards)


def _released(variant: int, strategy: FedAvg, steer: Callable[[Tensor, ConfigRecord], None]) -> tuple[Any, str]:
    """Return the restart and the released model of a client that comes after round 3 and asks after round 6."""
    shards, leaver = dict(federation(6).shards), "clinic-5"
    own, asked, config = shards[leaver], list[int](), ConfigRecord({"lr": 0.5})
    shards[leaver] = Shard(own.features * (1 + 2 * bool(variant)), (own.labels + variant) % CLASSES)
    grid = on_grid(network_app(shards), shards)
    grid.gone.add(leaver)
    with History.in_memory() as history:

        def evaluate_fn(server_round: int, arrays: ArrayRecord) -> None:
            steer(arrays["net.w"].numpy().astype(np.float64), config)
            if server_round == 3:
                grid.gone.discard(leaver)
            if server_round == 6 and not asked:
                asked.append(history.requests.ask([leaver], BUDGET))

        rescind.flower.run(
            Recorded(strategy, history), grid, network(), 10, evaluate_fn=evaluate_fn, train_config=config
        )
        said = certify(history)
        constants = [
            (branch.parent, history.newest_of(number)) for number, branch in history.timeline.branches.items()
        ]
        return (said.mode, constants), str(history.digest_of(history.newest))


def _differs(make: Callable[[int], tuple[Any, str]]) -> bool:
    """Return whether what is exact differs where only the leaver's data do, under the same constants."""
    (first, model), *others = (make(variant) for variant in (0, 1, 2))
    return first[0] == "exact" and any(same == first and other != model for same, other in others)


def state() -> bool:
    """Judge a strategy that lowers the learning rate by its own state."""
    return _differs(lambda variant: _released(variant, Plateau(), lambda *_: None))


def settings() -> bool:
    """Judge a server app that lowers the learning rate in its settings, by its own evaluation."""
    test = federation(6).test

    def make(variant: int) -> tuple[Any, str]:
        best = [float("inf")]

        def steer(weight: Tensor, config: ConfigRecord) -> None:
            logits = test.features @ weight.T
            loss = float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), test.labels]))
            if loss > 0.99 * best[0]:
                config["lr"] = float(config["lr"]) * 0.3  # type: ignore[arg-type]
            best[0] = min(best[0], loss)

        return _released(variant, FedAvg(**_FEW), steer)

    return _differs(make)


def metrics() -> bool:
    """Judge DP-FedAvg whose learning rate follows what clients tell without noise, and see whether it is strict."""
    shards, leaver, rates = dict(federation(40).shards), "clinic-5", set[Any]()
    own = shards[leaver]
    shards[leaver] = Shard(own.features * 40, (own.labels + 1) % CLASSES)
    server = NoisedAverage(clip=1.0, denominator=40.0, noise_multiplier=8.0)
    modes = set[str]()
    for names in (list(shards), [name for name in shards if name != leaver]):
        told = list[tuple[Any, Any]]()
        grid = on_grid(network_app(shards, told), names)
        with History.in_memory() as history:
            strategy = FedAvg(**_FEW)
            rate, write = [1.0], FedAvg.configure_train

            def combine(contents: list[RecordDict], _weighted_by: str, rate: list[float] = rate) -> MetricRecord:
                worst = max(float(content["metrics"]["loss"]) for content in contents)  # type: ignore[arg-type]
                rate[0] = 0.01 if worst > 4 else rate[0]
                return MetricRecord({"loss": worst})

            def configure_train(
                server_round: int,
                arrays: ArrayRecord,
                config: ConfigRecord,
                grid: Any,
                rate: list[float] = rate,
                strategy: FedAvg = strategy,
                write: Callable[..., Any] = write,
            ) -> Any:
                config["lr"] = rate[0]
                return write(strategy, server_round, arrays, config, grid)

            # On the instance and behind the wrapper's back: its class is Flower's own.
            chosen = Recorded(strategy, history, server=server)
            strategy.configure_train = configure_train  # type: ignore[method-assign]
            strategy.train_metrics_aggr_fn = combine
            rescind.flower.run(chosen, grid, network(), 4)
            if leaver in names:
                history.requests.ask([leaver], Budget(8.0, 1e-3))
                rescind.flower.run(chosen, grid, network(), 6)
                modes.add(build_statement(history, 1).predicate.mode)
            else:
                rescind.flower.run(chosen, grid, network(), 6)
            rates.add(told[-1][1])
    return modes == {"strict"} and len(rates) > 1


def _solvable() -> Simulation:
    return simulation(40, 3, sampling=Sampling.EVERYBODY, rate=None, secret_noise=True)


def limit() -> bool:
    """Judge a solve that its limit ends: what hides a client there has to cover the solution without it."""
    made, solved, leaver = _solvable(), _solvable(), "clinic-5"
    with History.in_memory() as history, History.in_memory() as other:
        revocable = Revocable(history, made, scored=False)
        revocable.solve(Solving(most_rounds=2, most_bytes=100))
        without = type("Without", (), {"clients": tuple(name for name in solved.clients if name != leaver)})
        without.__getattr__ = lambda _, name: getattr(solved, name)  # type: ignore[attr-defined]
        Revocable(other, without(), scored=False).solve()
        apart = distance(history.model(history.newest), other.model(other.newest))
        number = history.requests.ask([leaver], BUDGET)
        try:
            revocable.forget(Last(), Rounds(0))
        except ValueError:
            # No noise hides anybody where nothing is known.
            return False
        said = certify(history, number)
        if said.guarantee is None or said.noise is None:
            return False
        return reached_epsilon(apart / said.noise.sigma, BUDGET.delta) > said.guarantee.epsilon


@contextmanager
def _lending() -> Iterator[None]:
    """Send what the strategy made of the model, as if nobody compared."""
    with patch.object(engine, "copy_record", lambda record: record), patch.object(engine, "is_same_record", _yes):
        yield


def _yes(*_: Any) -> bool:
    return True


@contextmanager
def _remembering() -> Iterator[None]:
    """Let one strategy write the messages of all branches."""
    with (
        patch.object(engine, "lift_limits", lambda own: own),
        patch("rescind.flower.server.run.copy.deepcopy", lambda value: value),
        patch.object(run_module, "_copy_config", lambda _, record: record),
    ):
        yield


@contextmanager
def _living() -> Iterator[None]:
    """Read the settings anew in every round."""
    with patch.object(run_module, "_fix_schedule", lambda config: [config or ConfigRecord()]):
        yield


@contextmanager
def _unrecorded() -> Iterator[None]:
    """Refuse no function for metrics, and record nothing of what clients are told."""
    with (
        patch.object(Recorder, "record_settings", lambda *_: None),
        patch.object(recorded, "_refuse_with_noise", lambda *_: None),
    ):
        yield


@contextmanager
def _believing() -> Iterator[None]:
    """Take the end of a solve for its solution."""
    real = solving._record

    def record(recorder: Any, answers: Any, model: Any, known: Any) -> None:
        loss = _solvable().facts.head_loss
        assumed = Solver(loss, CLASSES, FEATURES, choose(CLASSES, FEATURES, 100), 1e-5)  # type: ignore[arg-type]
        known = known or solving.measure_solution(answers.rows, answers.gradients, assumed)
        real(recorder, answers, model, known)

    with patch.object(solving, "_record", record):
        yield


CASES: Mapping[str, tuple[Case, Callable[[], Any]]] = {
    "looks ahead": (look_ahead, _lending),
    "casts": (cast, _lending),
    "keeps state": (state, _remembering),
    "changes its settings": (settings, _living),
    "steers by metrics": (metrics, _unrecorded),
    "ends a solve by its limit": (limit, _believing),
}


def judge_server_app(task: tuple[str, bool]) -> Told:
    """Run a server app; with the check that stops it switched off if ``task`` says so."""
    name, unchecked = task
    logging.getLogger("flwr").setLevel(logging.ERROR)
    case, switch_off = CASES[name]
    try:
        if not unchecked:
            return Told(name, refused=False, false=case())
        with switch_off():
            return Told(name, refused=False, false=case())
    except ValueError:
        return Told(name, refused=True, false=False)
