"""A ridge head alone, on the features of a published body: one round makes it, and one forgets anybody."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedMedian
from threadpoolctl import threadpool_limits
from torch import nn

import rescind.flower
from rescind import Budget, History, LocalTraining, Revocable, Rounds, Solve, SquaredL2
from rescind.certificates.envelope import sign
from rescind.certificates.errors import CertificateError
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.checkpoints.tensors import digest
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.ridge import ridge_solution
from rescind.engines.heads import sum_ridge
from rescind.engines.server import NoisedAverage
from rescind.flower import PublishedBody, digest_body, extract_features, run
from rescind.history.events import RepliesRejected
from rescind.simulation import Federation, Simulation, SoftmaxHead
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, federation
from tests.builders import KEY, SIGNER, labels_of, rounds_of
from tests.recording import wrap

CLINICS = federation(6).shards
LOSS = SquaredL2(l2=0.01, row_norm=1.0)
TRAINING = LocalTraining.solved(LOSS)
BUDGET = Budget(1.0, 1e-5)


def published(seed: int = 0, width: int = 5) -> nn.Module:
    """Return a small body with BatchNorm, which in training would read a row by the others."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, width)).double()


BODY = PublishedBody("a small body", digest_body(published()))


def client_app(
    bodies: Mapping[str, nn.Module] | None = None,
    targets: Mapping[str, Tensor] | None = None,
    seen: list[str] | None = None,
    rows: Mapping[str, int] | None = None,
) -> ClientApp:
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        if seen is not None:
            seen.append(name)
        body, shard = (bodies or {}).get(name) or published(), CLINICS[name]
        count = (rows or {}).get(name)
        features = extract_features(body, torch.from_numpy(shard.features[:count]))
        told: dict[str, Any] = {"labels": shard.labels[:count]} if targets is None else {"targets": targets[name]}
        return rescind.flower.train_head(msg, context, features, body=digest_body(body), **told)

    return app


def start(
    history: History,
    clients: tuple[str, ...] = tuple(CLINICS),
    recorded: Mapping[str, Any] | None = None,
    outputs: int = CLASSES,
    save_to: Path | None = None,
    **app: Any,
) -> Any:
    grid = InProcessGrid(client_app(**app), {name: {"client-id": name} for name in clients})
    averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    arrays = ArrayRecord({"weight": Array(np.zeros((outputs, 5))), "bias": Array(np.zeros(outputs))})
    settings = {"training": TRAINING, "body": BODY} | dict(recorded or {})
    return run(wrap(averaging, history, **settings), grid, arrays, timeout=5.0, save_to=save_to)


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in CLINICS if name not in names)


@pytest.mark.parametrize("keep_sums", [True, False])
def test_one_round_makes_it_and_one_forgets_anybody(tmp_path: Path, keep_sums: bool) -> None:
    seen: list[str] = []
    with History(tmp_path / "history") as history:
        start(history, seen=seen, recorded={"keep_sums": keep_sums})
        assert (str(history.newest), sorted(seen)) == ("model 0.1", sorted(CLINICS))
        for number, gone in enumerate((("clinic-2",), ("clinic-2", "clinic-0")), 1):
            history.requests.ask([gone[-1]], BUDGET)
            seen.clear()
            start(history, clients=without(*gone), seen=seen, recorded={"keep_sums": keep_sums})
            assert sorted(seen) == ([] if keep_sums else sorted(without(*gone)))
            outcome = history.outcomes()[number - 1]
            assert (outcome.mode, history.newest.round) == (Mode.EXACT, 1)
            with History.in_memory() as never:
                start(never, clients=without(*gone))
                assert digest(history.model(history.newest)) == digest(never.model(never.newest))
            statement = build_statement(history, number)
            found = verify(sign(statement, [SIGNER]), [KEY], history=history)
            assert found.statement.predicate.training.loss == "SquaredL2"
            assert found.statement.predicate.training.steps is None
            body = found.statement.predicate.facts.body
            assert body is not None
            assert (body.name, body.digest) == (BODY.name, BODY.digest)
            named = [said.basis for said in statement.predicate.assumptions if "features" in said.what]
            assert named == ["declared by the operator", "reported by the participant"]
        assert history.integrity.verify() == []


def test_a_federation_that_recorded_nothing_can_begin_now(tmp_path: Path) -> None:
    """It trained for years without a history; one round of sums later anybody can leave."""
    app, weights = client_app(), np.zeros((CLASSES, 5))

    @app.train("as_always")
    def train(msg: Message, context: Context) -> Message:
        (arrays,) = msg.content.array_records.values()
        metrics = MetricRecord({"num-examples": len(CLINICS[str(context.node_config["client-id"])].labels)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=msg)

    nodes = {name: {"client-id": name} for name in CLINICS}
    arrays = ArrayRecord({"weight": Array(weights), "bias": Array(np.zeros(CLASSES))})
    with History(tmp_path / "history") as history:
        grid = InProcessGrid(app, nodes)
        recorded = wrap(FedAvg(fraction_evaluate=0.0), history, training=TRAINING, body=BODY)
        run(recorded, grid, arrays, timeout=5.0)
        history.requests.ask(["clinic-4"], BUDGET)
        grid.gone.add("clinic-4")
        run(recorded, grid, arrays, timeout=5.0)
        assert history.outcomes()[0].mode is Mode.EXACT
        with History.in_memory() as never:
            start(never, clients=without("clinic-4"))
            assert digest(history.model(history.newest)) == digest(never.model(never.newest))


def test_a_client_with_another_body_is_rejected_by_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with History.in_memory() as history:
        start(history, bodies={"clinic-3": published(1)})
        assert "have to come from the body" in caplog.text
        assert BODY.digest not in caplog.text.replace(str(history.location), "")
        with History.in_memory() as never:
            start(never, clients=without("clinic-3"))
            assert digest(history.model(history.newest)) == digest(never.model(never.newest))


def test_who_has_too_many_rows_is_left_out_whoever_else_comes() -> None:
    """Whoever leaves decides nobody's place: not by its rows, and not by being there."""
    few = LocalTraining.solved(replace(LOSS, most_rows=13))
    large = {name for name, shard in CLINICS.items() if len(shard.labels) > 13}
    models = []
    for gone in ((), ("clinic-0",)):
        with History.in_memory() as history:
            start(history, recorded={"training": few}, clients=without(*gone))
            called = labels_of(history)
            models.append({called[int(client)] for edge in rounds_of(history) for client in edge.clients})
    assert models[0] == set(CLINICS) - large
    assert models[1] == models[0] - {"clinic-0"}


def test_rows_may_come_and_go_between_two_runs() -> None:
    """Whoever was asked before has no other place than somebody who was not: only so do both worlds agree."""
    models, late, asks = [], "clinic-5", {"keep_sums": False}
    for first_leaver in (True, False):
        with History.in_memory() as history:
            names = without(late) if first_leaver else without(late, "clinic-0")
            start(history, clients=names, recorded=asks)
            if first_leaver:
                # The late one is asked, with fewer rows than it has later.
                history.requests.ask(["clinic-0"], BUDGET)
                start(history, clients=without("clinic-0"), rows={late: 11}, recorded=asks)
            history.requests.ask(["clinic-1"], BUDGET)
            start(history, clients=without("clinic-0", "clinic-1"), recorded=asks)
            assert all(outcome.mode is Mode.EXACT for outcome in history.outcomes())
            models.append(digest(history.model(history.newest)))
    assert models[0] == models[1]


def test_the_limits_are_on_the_certificate_and_it_verifies() -> None:
    wide = LocalTraining.solved(SquaredL2(1000.0, 10000.0, 2.0, most_rows=100, most_clients=10))
    with History.in_memory() as history:
        start(history, recorded={"training": wide})
        history.requests.ask(["clinic-1"], BUDGET)
        start(history, clients=without("clinic-1"), recorded={"training": wide})
        statement = build_statement(history, 1)
        verify(sign(statement, [SIGNER]), [KEY], history=history)
    stated = statement.predicate.training.ridge
    assert stated is not None
    assert (stated.target_norm, stated.most_rows, stated.most_clients) == (2.0, 100, 10)


def test_a_run_that_does_not_end_asks_once() -> None:
    seen: list[str] = []
    turns = iter(range(4))

    def rule(*_: object) -> bool:
        if next(turns) == 3:
            raise rescind.flower.StopServing
        return True

    with History.in_memory() as history:
        start(history, seen=seen, recorded={"serve": rule})
        assert (str(history.newest), len(seen)) == ("model 0.1", len(CLINICS))


def test_too_many_clients_take_no_released_model_away(tmp_path: Path) -> None:
    small, file = LocalTraining.solved(replace(LOSS, most_clients=4)), tmp_path / "model.safetensors"
    recorded = {"training": small, "keep_sums": False}
    with History.in_memory() as history:
        start(history, clients=without("clinic-4", "clinic-5"), recorded=recorded, save_to=file)
        history.requests.ask(["clinic-0"], BUDGET)
        with pytest.raises(ValueError, match="5 clients are there"):
            start(history, recorded=recorded, save_to=file)
        assert (str(history.newest), file.exists()) == ("model 0.1", True)
        # Whoever leaves is not counted.
        start(history, clients=without("clinic-5"), recorded=recorded, save_to=file)
        assert (str(history.newest), file.exists()) == ("model 1.1", True)


def test_more_clients_than_there_is_room_for_end_the_run_in_words() -> None:
    small = LocalTraining.solved(replace(LOSS, most_clients=5))
    with History.in_memory() as history:
        with pytest.raises(ValueError, match="6 clients are there, and the sums have room for 5"):
            start(history, recorded={"training": small, "keep_sums": False})
        assert not list(history.timeline.of(RepliesRejected))


def test_where_sums_are_kept_whoever_there_is_no_room_for_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    small = LocalTraining.solved(replace(LOSS, most_clients=5))
    with History.in_memory() as history:
        start(history, clients=without("clinic-5"), recorded={"training": small})
        start(history, recorded={"training": small})
        assert len(history.sums.digests()) == 5
    assert "1 clients are not asked: the sums have room for 5" in caplog.text


def test_numbers_and_several_labels_are_targets(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(5)
    targets = {name: rng.normal(size=(len(shard.labels), 1)) for name, shard in CLINICS.items()}
    wide = replace(LOSS, target_norm=1.5)
    with History.in_memory() as history:
        start(history, recorded={"training": LocalTraining.solved(wide)}, outputs=1, targets=targets)
        model = history.model(history.newest)
    rows = np.concatenate(
        [extract_features(published(), torch.from_numpy(shard.features)) for shard in CLINICS.values()]
    )
    wanted = np.clip(np.concatenate(list(targets.values())), -1.5, 1.5)
    extended = np.column_stack([rows, np.ones(len(rows))])
    matrix = extended.T @ extended / len(rows) + wide.l2 * np.eye(6)
    golden = np.linalg.solve(matrix, extended.T @ wanted / len(rows)).ravel()
    np.testing.assert_allclose(np.append(model["weight"], model["bias"]), golden, atol=1e-3)
    longer = sum(int((np.abs(own) > 1.5).sum()) for own in targets.values())
    told = [record.args[0] for record in caplog.records if "are scaled down to it" in record.msg]  # type: ignore[index]
    assert sum(told) == longer > 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"labels": np.zeros(12, int), "targets": np.zeros((12, 3))}, "one of the two"),
        ({}, "one of the two"),
        ({"targets": np.zeros((12, 2))}, r"there have to be \(12, 3\)"),
        ({"targets": np.full((12, 3), np.nan)}, "finite"),
        ({"targets": np.full((12, 3), "x")}, "there have to be"),
        ({"labels": np.full(12, 3)}, "they have to be 0 to 2"),
    ],
)
def test_what_does_not_fit_is_said_at_the_client(told: dict[str, Any], reason: str) -> None:
    app, errors = ClientApp(), list[str]()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        try:
            return rescind.flower.train_head(msg, context, np.zeros((12, 5)), body=BODY.digest, **told)
        except ValueError as error:
            errors.append(str(error))
            raise

    with History.in_memory() as history:
        grid = InProcessGrid(app, {"clinic-0": {"client-id": "clinic-0"}})
        mean = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        arrays = ArrayRecord({"weight": Array(np.zeros((3, 5))), "bias": Array(np.zeros(3))})
        with pytest.raises(ValueError, match="nothing that clients sent"):
            run(wrap(mean, history, training=TRAINING, body=BODY), grid, arrays, timeout=5.0)
    assert errors
    with pytest.raises(ValueError, match=reason):
        raise ValueError(errors[0])


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda history: wrap(FedAvg(), history, body=BODY), "a head, by train_head"),
        (lambda history: wrap(FedAvg(), history, training=TRAINING, body="a body"), "PublishedBody"),
        (lambda history: wrap(FedAvg(), history, training=TRAINING, declared=True), "only train_head answers for it"),
        (lambda history: wrap(FedAvg(), history, training=TRAINING, masked=True), "every client's own sums"),
        (lambda history: wrap(FedAvg(), history, training=TRAINING, equal_weights=True), "every client's own sums"),
        (lambda history: wrap(FedMedian(), history, training=TRAINING), "FedMedian makes the model itself"),
        (lambda history: wrap(FedAvg(), history, training=TRAINING, rate=0.5), "everybody is asked"),
        (lambda history: wrap(FedAvg(fraction_train=0.5), history, training=TRAINING), "everybody is asked"),
        (lambda history: wrap(FedAvg(), history, training=TRAINING, batch=3), "everybody is asked"),
        (lambda _: replace(TRAINING, steps=2), "not trained"),
        (lambda _: replace(TRAINING, server_learning_rate=0.5), "not trained"),
        (lambda _: replace(TRAINING, loss=SquaredL2(1e-12, 1.0)), "without a solution"),
        (lambda _: LocalTraining.solved(LOSS, "float16"), "float32 or float64"),
        (lambda _: SquaredL2(0.1, 1e200), "at most 1e[+]100"),
        (lambda _: SquaredL2(0.1, 1.0, most_rows=10**400), "whole number"),
        (lambda _: PublishedBody(" ", BODY.digest), "call the body something"),
        (
            lambda history: wrap(
                FedAvg(),
                history,
                training=TRAINING,
                server=NoisedAverage(clip=1.0, denominator=2.0, noise_multiplier=2.0),
            ),
            "every client's own sums",
        ),
        (lambda _: LocalTraining(5, 0.1, LOSS), r"LocalTraining\.solved"),
        (lambda _: replace(TRAINING, optimizer="sgd"), r"LocalTraining\.solved"),
        (lambda _: LocalTraining.solved(SquaredL2(1e-9, 1.0)), "without a solution"),
        (lambda _: PublishedBody("", BODY.digest), "call the body something"),
        (lambda _: PublishedBody("a\nb", BODY.digest), "call the body something"),
        (lambda _: PublishedBody("a", BODY.digest.upper()), "64 hexadecimal digits"),
    ],
)
def test_what_cannot_be_is_refused_at_once(make: Callable[[History], object], reason: str) -> None:
    with History.in_memory() as history, pytest.raises(ValueError, match=reason):
        make(history)


def test_a_certificate_about_a_ridge_head_claims_nothing_else() -> None:
    with History.in_memory() as history:
        start(history)
        history.requests.ask(["clinic-1"], BUDGET)
        start(history, clients=without("clinic-1"))
        statement = build_statement(history, 1)
    predicate = statement.predicate
    for change in (
        {"steps": 3, "learning_rate": 0.1},
        {"curvature": (0.01, 2.01)},
        {"l2": None},
        {"l2": 1e-12},
        {"gradient_bound": 1.0},
    ):
        training = predicate.training.model_copy(update=change)
        forged = statement.model_copy(update={"predicate": predicate.model_copy(update={"training": training})})
        with pytest.raises(CertificateError):
            verify(sign(forged, [SIGNER]), [KEY])


def test_the_simulator_solves_it_too() -> None:
    def model(*gone: str) -> Mapping[str, Tensor]:
        small = federation(6)
        left = {name: shard for name, shard in small.shards.items() if name not in gone}
        engine = Simulation(
            Federation(left, small.test, CLASSES), SoftmaxHead(FEATURES, CLASSES), TRAINING, secret=b"for tests"
        )
        with History.in_memory() as history:
            revocable = Revocable(history, engine)
            assert str(revocable.solve()) == "model 0.1"
            if not gone:
                history.requests.ask(["clinic-5"], BUDGET)
                (outcome,) = revocable.forget(Solve(), Rounds(1))
                assert (outcome.mode, outcome.rounds) == (Mode.EXACT, 1)
            return history.model(history.newest)

    assert digest(model()) == digest(model("clinic-5"))


def test_who_has_too_many_rows_is_left_out_in_the_simulator() -> None:
    small = federation(6)
    few = LocalTraining.solved(replace(LOSS, most_rows=13))
    engine = Simulation(small, SoftmaxHead(FEATURES, CLASSES), few, secret=b"for tests")
    answers = engine.ridge_sums(engine.start(), ModelId(0, 1), list(small.shards))
    large = {name for name, shard in small.shards.items() if len(shard.labels) > 13}
    assert (set(answers.names), set(answers.rejected)) == (set(small.shards) - large, large)


def test_the_solution_has_the_same_bits_however_many_threads_there_are() -> None:
    rng = np.random.default_rng(2)
    rows, targets = rng.normal(size=(900, 400)), np.eye(10)[rng.integers(0, 10, 900)]
    sums = sum_ridge(rows, targets, LOSS)
    models = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            models.append(ridge_solution(sums, LOSS.l2).tobytes())
    assert models[0] == models[1]


# Features


def images(count: int) -> torch.Tensor:
    return torch.randn(count, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_a_row_has_the_features_that_it_has_alone() -> None:
    body, rows = published(), images(40)
    whole = extract_features(body, rows)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1.0, rtol=1e-6)
    order = torch.randperm(40)
    np.testing.assert_array_equal(extract_features(body, rows[order]), whole[order.numpy()])
    np.testing.assert_array_equal(extract_features(body, rows[:1]), whole[:1])
    # In batches of one shape the last bits may differ, and nothing else.
    np.testing.assert_allclose(extract_features(body, rows, batch=32), whole, rtol=0, atol=1e-6)


def test_a_cache_keeps_these_rows_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body, rows, cache = published(), images(12), tmp_path / "features"
    made = list[int]()
    forward = nn.Sequential.forward
    monkeypatch.setattr(nn.Sequential, "forward", lambda self, x: (made.append(len(x)), forward(self, x))[1])
    whole = extract_features(body, rows, cache=cache)
    assert (len(made), cache.stat().st_mode & 0o777) == (13, 0o600)
    np.testing.assert_array_equal(extract_features(body, rows, cache=cache), whole)
    assert len(made) == 13
    # A patient's row goes, and its features with it.
    np.testing.assert_array_equal(extract_features(body, rows[1:], cache=cache), whole[1:])
    assert len(made) == 13
    assert whole[0].tobytes() not in cache.read_bytes()
    extract_features(body, rows, cache=cache)
    assert len(made) == 15
    # Another body, or a damaged file: made anew.
    extract_features(published(1), rows, cache=cache)
    assert len(made) == 28
    cache.write_bytes(cache.read_bytes()[:-5])
    extract_features(published(1), rows, cache=cache)
    assert len(made) == 41
    assert sorted(path.name for path in tmp_path.iterdir()) == ["features"]


def test_a_cache_is_of_a_network_and_not_of_its_weights_alone(tmp_path: Path) -> None:
    rows, cache = images(4), tmp_path / "features"
    weights = published().state_dict()
    for activation in (nn.Tanh(), nn.ReLU()):
        body = nn.Sequential(nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), activation, nn.Linear(8, 5)).double()
        body.load_state_dict(weights)
        assert digest_body(body) == BODY.digest
        np.testing.assert_array_equal(extract_features(body, rows, cache=cache), extract_features(body, rows))


class Mixing(nn.Module):
    """What no row should go through: it depends on the other rows, or on chance."""

    def __init__(self, by_chance: bool) -> None:
        super().__init__()
        self.by_chance = by_chance

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.dropout(rows, 0.5, True) if self.by_chance else rows - rows.mean(axis=0)


@pytest.mark.parametrize(("by_chance", "batch"), [(True, 1), (True, 8), (False, 8)])
def test_a_body_that_reads_a_row_by_others_or_by_chance_is_refused(by_chance: bool, batch: int) -> None:
    with pytest.raises(ValueError, match="another vector for the same row"):
        extract_features(Mixing(by_chance), images(20), batch=batch)


def test_rows_and_weights_of_any_type_have_a_digest(tmp_path: Path) -> None:
    half = published().to(torch.bfloat16)
    assert digest_body(half) != BODY.digest
    rows = images(3)
    made = extract_features(half, rows.to(torch.bfloat16), cache=tmp_path / "features")
    np.testing.assert_allclose(made, extract_features(published(), rows), atol=0.05)
    np.testing.assert_array_equal(extract_features(published(), rows.numpy()), extract_features(published(), rows))


def test_a_body_is_known_by_its_weights() -> None:
    assert digest_body(published()) == BODY.digest
    other = published()
    with torch.no_grad():
        other[1].running_mean[0] += 1e-9
    assert digest_body(other) != BODY.digest


@pytest.mark.parametrize("body", [nn.Flatten(0), nn.Unflatten(1, (2, 3)), nn.Threshold(100.0, float("nan"))])
def test_a_body_that_gives_no_vectors_is_refused(body: nn.Module) -> None:
    with pytest.raises(ValueError, match="one finite vector for each"):
        extract_features(body, images(3))
    for rows, batch in ((images(0), 1), (images(3), 0)):
        with pytest.raises(ValueError, match="at least"):
            extract_features(published(), rows, batch=batch)
