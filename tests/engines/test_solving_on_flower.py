"""Solving on Flower: the same model as in the simulator, and nothing that a client sends is believed unchecked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import Budget, History, Sampling
from rescind.audit.replay import distance
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.flower import run
from rescind.flower.wire import EXECUTED, LOSS, SUMS
from rescind.forgetting import Revocable
from rescind.history.events import RepliesRejected
from rescind.methods import Sifu, Solve
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation, simulation
from tests.recording import wrap

CLINICS = federation(6).shards
SEED = b"a seed for tests"
Change = Callable[[RecordDict, str], None]


def client_app(change: Change | None = None) -> ClientApp:
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        shard = CLINICS[name]
        reply = rescind.flower.train_head(msg, context, shard.features, shard.labels)
        if change is not None and SUMS in reply.content:
            change(reply.content, name)
        return reply

    return app


def start(
    history: History, change: Change | None = None, recorded: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Run the clinics on a grid in this process; ``change`` alters what they answer to a solver."""
    nodes = {name: {"client-id": name} for name in CLINICS}
    arrays = ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES))), "bias": Array(np.zeros(CLASSES))})
    averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    grid = InProcessGrid(client_app(change), nodes)
    strategy = wrap(averaging, history, training=TRAINING, seed=SEED, **(recorded or {}))
    return run(strategy, grid, arrays, timeout=5.0, **options)


def test_the_solution_is_the_simulators(history: History) -> None:
    start(history, solve=True)
    with History.in_memory() as other:
        newest = Revocable(other, simulation(6, sampling=Sampling.EVERYBODY, rate=None), seed=SEED).solve()
        apart = distance(history.model(history.newest), other.model(newest))
    assert history.newest == newest
    assert apart <= 1e-9


def test_who_changes_its_rows_within_a_solve_is_rejected_from_there_on(history: History) -> None:
    asked: list[str] = []

    def change(content: RecordDict, name: str) -> None:
        asked.append(name)
        if name == "clinic-1" and asked.count(name) > 1:
            gradient = content[SUMS]["gradient"].numpy()
            content[SUMS]["gradient"] = Array(-gradient)

    start(history, change, solve=True)
    (client,) = history.participants.find(["clinic-1"])
    events = [dict(event.rejected) for _, event in history.timeline.of(RepliesRejected)]
    assert events
    assert all("no rows have both" in event[client] for event in events)


def test_who_asks_is_forgotten_exactly_and_the_solution_is_not_trained_away(history: History) -> None:
    start(history, num_rounds=3)
    history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    start(history, num_rounds=30, method=Solve())
    (outcome,) = history.outcomes()
    assert outcome.mode is Mode.EXACT
    assert history.newest == ModelId(1, outcome.rounds)
    assert outcome.rounds < 10
    start(history, num_rounds=30, method=Solve())
    assert history.newest == ModelId(1, outcome.rounds)


HINT = "method=Solve() would forget exactly in about 9 rounds; the server then sees sums over each client's rows"


def hints(
    history: History, caplog: pytest.LogCaptureFixture, recorded: Mapping[str, Any] | None = None, **options: Any
) -> int:
    """Return how often the log tells of solving while two clients are forgotten, one after the other."""
    start(history, num_rounds=2, recorded=recorded)
    for name in ("clinic-1", "clinic-2"):
        history.requests.ask([name], Budget(1.0, 1e-5))
    with caplog.at_level("INFO", "flwr"):
        start(history, num_rounds=2, recorded=recorded, **options)
    assert len(history.outcomes()) == 2
    return caplog.text.count("Solve()")


def test_whoever_chose_no_method_is_told_once_that_the_head_can_be_solved(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    assert hints(history, caplog) == 1
    assert HINT in caplog.text


@pytest.mark.parametrize("options", [{"method": Sifu()}, {"method": Solve()}, {"solve": True}])
def test_whoever_chose_is_told_nothing(
    history: History, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    assert hints(history, caplog, **options) == 0


@pytest.mark.parametrize("recorded", [{"declared": True}, {"equal_weights": True}])
def test_nothing_is_told_of_a_head_that_cannot_be_solved(
    history: History, caplog: pytest.LogCaptureFixture, recorded: dict[str, Any]
) -> None:
    assert hints(history, caplog, recorded) == 0


def _sums(content: RecordDict, **arrays: Any) -> None:
    changed = {name: Array(each) for name, each in arrays.items()}
    content[SUMS] = ArrayRecord({**content.array_records[SUMS], **changed})


def _number(content: RecordDict, **numbers: Any) -> None:
    content["metrics"] = MetricRecord({**content.metric_records["metrics"], **numbers})


PARAMETERS = CLASSES * (FEATURES + 1)
HALF = PARAMETERS * (PARAMETERS + 1) // 2
PICKLED = Array("float64", (1,), "pickle", b"\x80\x04.")
LIES: dict[str, Callable[[RecordDict], Any]] = {
    "a long gradient": lambda content: _sums(content, gradient=np.full(PARAMETERS, 1e6)),
    "not a number": lambda content: _sums(content, gradient=np.full(PARAMETERS, np.nan)),
    "infinite": lambda content: _sums(content, curvature=np.full(HALF, np.inf)),
    "huge": lambda content: _sums(content, gradient=np.full(PARAMETERS, 1e308)),
    "another type": lambda content: _sums(content, gradient=np.zeros(PARAMETERS, dtype=np.float32)),
    "another length": lambda content: _sums(content, gradient=np.zeros(PARAMETERS + 1)),
    "a negative curvature": lambda content: _sums(content, curvature=np.full(HALF, -1.0)),
    "no curvature": lambda content: content.update({SUMS: ArrayRecord({"gradient": Array(np.zeros(PARAMETERS))})}),
    "one more array": lambda content: _sums(content, more=np.zeros(2)),
    "no arrays": lambda content: content.pop(SUMS),
    "pickled": lambda content: content.update({SUMS: ArrayRecord({"gradient": PICKLED, "curvature": PICKLED})}),
    "a negative loss": lambda content: _number(content, **{LOSS: -1.0}),
    "an infinite loss": lambda content: _number(content, **{LOSS: float("inf")}),
    "a loss that no float holds": lambda content: _number(content, **{LOSS: 10**400}),
    "a list of losses": lambda content: _number(content, **{LOSS: [1.0, 2.0]}),
    "half a row": lambda content: _number(content, **{"num-examples": 12.5}),
    "no rows": lambda content: _number(content, **{"num-examples": 0}),
    "very many rows": lambda content: _number(content, **{"num-examples": 10**15}),
    "another digest": lambda content: content.update({EXECUTED: ConfigRecord({"digest": "0" * 64})}),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_answer_that_cannot_be_is_rejected_and_the_others_are_solved(history: History, lie: str) -> None:
    def change(content: RecordDict, name: str) -> None:
        if name == "clinic-4":
            LIES[lie](content)

    start(history, change, solve=True)
    rounds = history.lineage().edges
    assert all(len(edge.clients) == 5 for edge in rounds)  # type: ignore[union-attr]
    rejections = [event for _, event in history.timeline.of(RepliesRejected)]
    assert len(rejections) == len(rounds)
    with History.in_memory() as other:
        honest = simulation(6, sampling=Sampling.EVERYBODY, rate=None)

        class Without:
            """Everybody but the liar."""

            clients = tuple(name for name in honest.clients if name != "clinic-4")

            def __getattr__(self, name: str) -> object:
                return getattr(honest, name)

        newest = Revocable(other, Without(), seed=SEED).solve()  # type: ignore[arg-type]
        assert distance(history.model(history.newest), other.model(newest)) <= 1e-9
