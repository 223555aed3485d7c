"""Single records on Flower: a client names its rows itself, and does not take part until it has."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import Budget, History, Sampling
from rescind.audit.replay import distance
from rescind.certificates.issue import build_statement
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope
from rescind.core.summary import Request
from rescind.engines.rows import check_row, commit_rows, find_left_out
from rescind.errors import PendingRequestError
from rescind.flower import run
from rescind.flower.server import nodes
from rescind.flower.wire import EXECUTED
from rescind.forgetting import Revocable
from rescind.history.events import RepliesRejected, RequestFiled, RowsNamed
from rescind.ledger.records import OPERATOR
from rescind.methods import Solve
from rescind.serving import StopServing
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation
from rescind.views.overview import read_gauges
from rescind.views.requests import open_requests
from tests.recording import wrap

CLINICS = federation(6).shards
SEED = b"a seed for tests"
BUDGET = Budget(1.0, 1e-5)
RECORDS = PrivacyScope.RECORDS


def start_app(history: History, app: ClientApp, least: int = 1, **settings: Any) -> Any:
    """Run an app for the clinics on a grid in this process; the strategy waits for ``least`` of them."""
    clinics = {name: {"client-id": name} for name in CLINICS}
    arrays = ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES))), "bias": Array(np.zeros(CLASSES))})
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=least, min_available_nodes=least)
    rule = {"serve": settings.pop("serve")} if "serve" in settings else {}
    recorded = wrap(strategy, history, training=TRAINING, seed=SEED, **rule)
    return run(recorded, InProcessGrid(app, clinics), arrays, timeout=5.0, **settings)


def start(history: History, options: dict[str, Any] | None = None, root: Any = None, **settings: Any) -> Any:
    """Run the clinics on a grid in this process; clinic-2 calls the helper with ``options``; ``root`` is its lie."""
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        shard = CLINICS[name]
        own = (options or {}) if name == "clinic-2" else {}
        reply = rescind.flower.train_head(msg, context, shard.features, shard.labels, **own)
        if root is not None and name == "clinic-2":
            reply.content[EXECUTED]["removed"] = root
        return reply

    return start_app(history, app, **settings)


def name_of(history: History, label: str) -> str:
    (client,) = history.participants.find([label])
    return history.participants.names([client])[0]


def without(removed: int) -> Simulation:
    shards = dict(CLINICS)
    rows = shards["clinic-2"]
    shards["clinic-2"] = Shard(rows.features[removed:], rows.labels[removed:])
    whole = Federation(shards, federation(6).test, CLASSES)
    return Simulation(whole, SoftmaxHead(FEATURES, CLASSES), TRAINING, secret=b"x", sampling=Sampling.EVERYBODY)


@pytest.mark.parametrize("settings", [{"solve": True}, {"method": Solve(), "num_rounds": 3}])
def test_a_row_is_forgotten_and_the_clinic_stays(
    history: History, tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    start(history, **settings)
    before = history.newest
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    file = tmp_path / "receipts.json"
    start(history, {"removed": [0, 1], "request": 1, "receipts": file}, **settings)
    with History.in_memory() as other:
        newest = Revocable(other, without(2), seed=None).solve()
        assert distance(history.model(history.newest), other.model(newest)) <= 1e-9
    assert history.newest.branch == before.branch + 1
    assert "unregister" not in caplog.text
    assert history.integrity.verify() == []
    statement = build_statement(history, 1).predicate
    assert (statement.mode, statement.scope, len(statement.rows)) == ("exact", "records", 1)
    # The clinic can show which rows it named, and no others.
    kept = json.loads(file.read_bytes())["1"]
    assert file.stat().st_mode & 0o777 == 0o600
    rows = CLINICS["clinic-2"]
    (named,) = statement.rows
    assert named.root == kept["root"]
    for receipt in kept["rows"]:
        at = receipt["row"]
        assert check_row(named.root, 1, receipt, rows.features[at], int(rows.labels[at]))
        assert not check_row(named.root, 2, receipt, rows.features[at], int(rows.labels[at]))
        assert not check_row(named.root, 1, receipt, rows.features[at + 2], int(rows.labels[at + 2]))


def test_a_request_waits_until_its_rows_are_named_and_the_clinic_stays(
    history: History, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "model.safetensors"
    start(history, num_rounds=2, save_to=file)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    with pytest.raises(PendingRequestError, match="request 1 waits until its clients have named the rows"):
        start(history, num_rounds=2, save_to=file)
    assert list(history.outcomes()) == []
    assert history.newest == ModelId(0, 2)
    assert not file.exists()
    assert "clinic-2" not in caplog.text
    (waiting,) = open_requests(history, datetime.now(UTC))
    assert waiting.unnamed
    assert read_gauges(history, datetime.now(UTC)).unnamed_requests == 1
    # That it deleted them is as good.
    start(history, {"removed": [], "request": 1}, num_rounds=2, save_to=file)
    (outcome,) = history.outcomes()
    assert outcome.mode.value == "exact"
    assert {len(edge.clients) for edge in history.lineage().edges} == {6}
    assert build_statement(history, 1).predicate.rows == ()
    assert history.integrity.verify() == []
    assert file.exists()


def test_whoever_is_asked_for_its_rows_is_asked_for_nothing_else(history: History) -> None:
    start(history, num_rounds=1)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    app, seen = ClientApp(), list[tuple[str, dict[str, Any]]]()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        shard = CLINICS[name]
        reply = rescind.flower.train_head(msg, context, shard.features, shard.labels, removed=[0], request=1)
        seen.append((name, {key: dict(record) for key, record in reply.content.items()}))
        return reply

    start_app(history, app, num_rounds=1)
    name, content = seen[0]
    assert name == "clinic-2"
    assert set(content.pop(EXECUTED)) == {"digest"}
    assert not any(content.values())


@pytest.mark.parametrize("kind", ["error", "bad"])
def test_who_does_not_name_its_rows_is_asked_ever_more_seldom(
    kind: str, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_IDLE", 0.01)
    start(history, num_rounds=1)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    app, turns, asked = ClientApp(), 0, list[int]()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        asked.append(turns)
        if kind == "error":
            raise ValueError("no rows are named here")
        return Message(RecordDict({EXECUTED: ConfigRecord({"digest": [1.0], "removed": b"x"})}), reply_to=msg)

    def rule(*_: object) -> bool:
        nonlocal turns
        turns += 1
        if turns > 20:
            raise StopServing
        return True

    with pytest.raises(PendingRequestError):
        start_app(history, app, serve=rule)
    assert 2 <= len(asked) <= 6


def test_who_asks_while_it_runs_keeps_its_label(history: History) -> None:
    app, asked = ClientApp(), []
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        if not asked and history.timeline.branches and history.newest.round == 1:
            asked.append(history.requests.ask(["clinic-2", "clinic-3"], BUDGET, scope=RECORDS))
        own = {"removed": [0], "request": 1} if asked and name in ("clinic-2", "clinic-3") else {}
        shard = CLINICS[name]
        return rescind.flower.train_head(msg, context, shard.features, shard.labels, **own)

    start_app(history, app, num_rounds=3)
    assert len(history.participants.find(["clinic-2", "clinic-3"])) == 2
    old = history.timeline.requests[0].request.group
    assert not old & history.participants.find(["clinic-2", "clinic-3"])
    assert history.participants.describe([old]) == [["clinic-2", "clinic-3"]]
    # Which of the two each was is not kept.
    assert "forgotten" in history.participants.describe([[min(old)]])[0][0]


@pytest.mark.parametrize("stale", [[0], np.zeros(len(CLINICS["clinic-2"].labels), dtype=bool)])
def test_a_list_from_before_the_request_is_no_answer(history: History, stale: Any) -> None:
    """The clinic has left rows out before, and does not know of the next request yet."""
    start(history, num_rounds=1)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    start(history, {"removed": stale, "request": 1}, num_rounds=1)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    with pytest.raises(PendingRequestError, match="request 2 waits until"):
        start(history, {"removed": stale, "request": 1}, num_rounds=1)
    start(history, {"removed": [0, 1], "request": 2}, num_rounds=2)
    assert [len(edge.clients) for edge in history.lineage().edges] == [6, 6]


@pytest.mark.parametrize("settings", [{"solve": True}, {"num_rounds": 2}])
def test_a_strategy_that_waits_for_everybody_waits_for_who_comes_back(
    history: History, settings: dict[str, Any]
) -> None:
    start(history, least=6, **settings)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    start(history, {"removed": [0], "request": 1}, least=6, **settings)
    assert {len(edge.clients) for edge in history.lineage().edges} == {6}


def test_rows_that_go_without_a_request_are_a_contradiction(history: History) -> None:
    """Its weight is another one then; the next run serves nothing, as nobody asked."""
    start(history, num_rounds=2)
    start(history, {"removed": [0]}, num_rounds=4)
    rejections = [event for _, event in history.timeline.of(RepliesRejected)]
    assert len(rejections) == 2
    assert "differs from the one that it had at first" in rejections[0].rejected[0][1]


@pytest.mark.parametrize("root", ["", "x" * 64, "A" * 64, 3, [1.0], b"0" * 64, "0" * 63])
def test_a_root_that_is_none_is_rejected(history: History, root: Any, caplog: pytest.LogCaptureFixture) -> None:
    start(history, num_rounds=1)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    with pytest.raises(PendingRequestError, match="waits until its clients have named the rows"):
        start(history, {"removed": [0], "request": 1}, root, num_rounds=2)
    assert "is no digest" in caplog.text
    assert not list(history.timeline.of(RowsNamed))


def test_the_first_root_stays(history: History, tmp_path: Path) -> None:
    start(history, num_rounds=1)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    start(history, {"removed": [0], "request": 1, "receipts": tmp_path / "first"}, num_rounds=1)
    start(history, {"removed": [0], "request": 1, "receipts": tmp_path / "second"}, num_rounds=3)
    roots = [json.loads((tmp_path / name).read_bytes())["1"]["root"] for name in ("first", "second")]
    assert roots[0] != roots[1]
    assert [event.root for _, event in history.timeline.of(RowsNamed)] == roots[:1]
    with pytest.raises(ValueError, match="not about rows of"):
        history.requests.name_rows(name_of(history, "clinic-1"), 1, roots[0])


# The rows themselves


@pytest.mark.parametrize("removed", [[5], [-1], [True], [[0]], [0.5], np.ones(4, dtype=bool), "ab", [0, 1, 0, 0, 1]])
def test_rows_that_are_none_are_refused(removed: Any) -> None:
    with pytest.raises(ValueError, match="removed"):
        find_left_out(removed, 5)


def test_a_mask_and_indices_name_the_same() -> None:
    mask = np.array([True, False, True])
    assert find_left_out(mask, 3).tolist() == find_left_out([2, 0, 2], 3).tolist() == mask.tolist()
    assert not find_left_out([], 3).any()


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 40])
def test_every_named_row_can_be_shown(tmp_path: Path, count: int) -> None:
    features, labels = np.random.default_rng(count).normal(size=(50, 3)), np.arange(50)
    mask = np.arange(50) < count
    root = commit_rows(tmp_path / "file", 7, features, labels, mask)
    kept = json.loads((tmp_path / "file").read_bytes())["7"]["rows"]
    assert [receipt["row"] for receipt in kept] == list(range(count))
    assert len({len(receipt["path"]) for receipt in kept}) <= 1
    assert all(check_row(root, 7, receipt, features[at], at) for at, receipt in enumerate(kept))
    assert not any(check_row(root, 7, receipt, features[at], at + 1) for at, receipt in enumerate(kept))
    assert not check_row(root, 7, {"salt": "zz"}, features[0], 0)
    # What is there stays, and others have their own.
    assert commit_rows(tmp_path / "file", 7, features, labels, ~mask) == root
    assert commit_rows(tmp_path / "file", 8, features, labels, mask) != root


@pytest.mark.parametrize("changed", [{"place": np.inf}, {"place": None}, {"path": 3}, {"path": ["zz"]}, {"salt": []}])
def test_a_receipt_that_is_none_shows_nothing(tmp_path: Path, changed: dict[str, Any]) -> None:
    root = commit_rows(tmp_path / "file", 1, np.zeros((2, 3)), np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool))
    (receipt, _) = json.loads((tmp_path / "file").read_bytes())["1"]["rows"]
    assert check_row(root, 1, receipt, np.zeros(3), 0)
    assert not check_row(root, 1, receipt | changed, np.zeros(3), 0)
    assert not check_row(root, 1, receipt, np.zeros(3), 2**70)


@pytest.mark.parametrize(
    "content", ["[" * 100_000, '{"1": {"root": "' + "AB" * 32 + '", "rows": []}}', "[]", '{"1": 2}']
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    with pytest.raises(ValueError, match="no file of rows"):
        commit_rows(tmp_path / "file", 1, np.zeros((1, 1)), np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool))


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}x")
    with pytest.raises(ValueError, match="no file of rows"):
        commit_rows(tmp_path / "file", 1, np.zeros((1, 1)), np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool))
    (tmp_path / "file").write_text('{"1": {"root": "ab"}}')
    with pytest.raises(ValueError, match="no file of rows"):
        commit_rows(tmp_path / "file", 1, np.zeros((1, 1)), np.zeros(1, dtype=np.int64), np.ones(1, dtype=bool))


@pytest.mark.parametrize("settings", [{}, {"training": TRAINING, "declared": True}], ids=["own code", "declared"])
def test_clients_that_train_by_code_of_their_own_name_no_rows_and_nothing_is_certified_of_any(
    settings: dict[str, Any], history: History
) -> None:
    """Nothing would show that they leave some out: a request is refused, and one that was there waits."""
    app, trained = ClientApp(), list[str]()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        trained.append(str(context.node_config["client-id"]))
        content = {"arrays": msg.content["arrays"], "metrics": MetricRecord({"num-examples": 10})}
        return Message(RecordDict(content), reply_to=msg)

    def go_on(num_rounds: int) -> None:
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        on = InProcessGrid(app, {name: {"client-id": name} for name in CLINICS})
        arrays = ArrayRecord({"weight": Array(np.zeros((CLASSES, FEATURES))), "bias": Array(np.zeros(CLASSES))})
        run(wrap(strategy, history, seed=SEED, **settings), on, arrays, timeout=5.0, num_rounds=num_rounds)

    go_on(1)
    with pytest.raises(ValueError, match="forget all of the client, and readmit it without the rows"):
        history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    # As it was recorded before.
    request = Request(history.participants.find(["clinic-2"]), BUDGET, RECORDS)
    own = (history.participants.blind(*history.participants.names(request.group)),)
    history.journal.record(RequestFiled(request, "2030-01-01T00:00:00+00:00", own, OPERATOR))
    trained.clear()
    with pytest.raises(PendingRequestError, match="trains by code of its own, which names none"):
        go_on(2)
    assert trained == []
    assert list(history.outcomes()) == []
