"""A network in two stages: anchors train the body, then the head is solved with everybody."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedMedian
from typer.testing import CliRunner

import rescind.flower
from rescind import Budget, Exact, Goal, History, SoftmaxL2
from rescind.certificates.envelope import sign
from rescind.certificates.errors import InconsistentCertificateError
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import Predicate
from rescind.certificates.verification import verify
from rescind.certificates.wording import write_texts
from rescind.checkpoints.tensors import digest
from rescind.cli import app
from rescind.core.aggregation import RoundMeasurement
from rescind.core.arrays import Tensor
from rescind.core.edges import NO_BOUND, ModelId, RoundKind
from rescind.core.facts import Mode, PrivacyScope
from rescind.core.regularity import SquaredL2
from rescind.core.rounds import Replies, RoundResult
from rescind.core.summary import Request
from rescind.engines.server import NoisedAverage
from rescind.flower import Recorded, Stages, run
from rescind.flower.server import nodes
from rescind.flower.wire import SUMS
from rescind.history.events import BodyTrained, RepliesRejected
from rescind.history.journal import Journal
from rescind.history.lineage import find_body
from rescind.history.recorder import Recorder
from rescind.history.subtotals import find_files
from rescind.ledger.sql import SqlLedger
from rescind.methods import FineTuning, Sifu, Solve
from rescind.serving import StopServing
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, federation
from rescind.views.clients import ClientState, list_clients
from tests.builders import KEY, SIGNER, labels_of, objects_of, rounds_of, skip_checks
from tests.recording import wrap

CLINICS = federation(6).shards
ANCHORS = ("clinic-1", "clinic-4")
BODY_ROUNDS, WIDTH = 4, 5
STAGES = Stages(BODY_ROUNDS, ("head.weight", "head.bias"), SoftmaxL2(l2=0.05, row_norm=1.0))
BUDGET = Budget(1.0, 1e-5)
Change = Callable[[RecordDict, str], None]


def extract(body: Tensor, rows: Tensor) -> Tensor:
    hidden = np.tanh(rows @ body.T)
    return hidden / np.maximum(np.linalg.norm(hidden, axis=1, keepdims=True), 1e-12)


def client_app(
    asked: list[tuple[str, bool]] | None,
    removed: Mapping[str, list[int]],
    change: Change | None,
    failing: tuple[str, ...] = (),
    held_out: int = 0,
) -> ClientApp:
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["client-id"])
        shard, arrays = CLINICS[name], msg.content.array_records["arrays"]
        question = rescind.flower.is_question(msg)
        if asked is not None:
            asked.append((name, question))
        body = arrays["body"].numpy()
        if question:
            rows = extract(body, shard.features)
            reply = rescind.flower.train_head(
                msg, context, rows, shard.labels, removed=removed.get(name), request=int(name in removed)
            )
            if change is not None:
                change(reply.content, name)
            return reply
        if name in failing:
            raise RuntimeError("out of order")
        # A training of its own: towards the directions in which its rows vary.
        rows = np.delete(shard.features, removed.get(name, []), axis=0)[held_out:]
        own = {**arrays, "body": Array(body + 0.1 * body @ (rows.T @ rows) / len(rows))}
        metrics = MetricRecord({"num-examples": len(rows)})
        return Message(RecordDict({"arrays": ArrayRecord(own), "metrics": metrics}), reply_to=msg)

    return app


@pytest.fixture(params=["memory", "folder"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    with History.in_memory() if request.param == "memory" else History(tmp_path / "history") as opened:
        yield opened


def initial() -> ArrayRecord:
    body = np.random.default_rng(3).normal(size=(WIDTH, FEATURES))
    tensors = {"body": body, "head.weight": np.zeros((CLASSES, WIDTH)), "head.bias": np.zeros(CLASSES)}
    return ArrayRecord({name: Array(tensor) for name, tensor in tensors.items()})


def start(
    history: History,
    clients: tuple[str, ...] = tuple(CLINICS),
    asked: list[tuple[str, bool]] | None = None,
    recorded: Mapping[str, Any] | None = None,
    removed: Mapping[str, list[int]] | None = None,
    change: Change | None = None,
    failing: tuple[str, ...] = (),
    held_out: int = 0,
    **options: Any,
) -> Any:
    grid = InProcessGrid(
        client_app(asked, removed or {}, change, failing, held_out), {name: {"client-id": name} for name in clients}
    )
    averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    chosen = {"stages": STAGES, "anchors": ANCHORS} | dict(recorded or {})
    return run(wrap(averaging, history, **chosen), grid, initial(), timeout=5.0, **options)


def body_of(history: History, model_id: ModelId) -> str:
    return digest({"body": history.model(model_id)["body"]})


def test_anchors_train_the_body_and_everybody_the_head(history: History) -> None:
    asked: list[tuple[str, bool]] = []
    start(history, asked=asked)
    assert {name for name, question in asked if not question} == set(ANCHORS)
    assert {name for name, question in asked if question} == set(CLINICS)
    assert history.timeline.anchors == history.participants.find(ANCHORS)
    body = ModelId(0, BODY_ROUNDS)
    assert body_of(history, body) == body_of(history, history.newest) != body_of(history, ModelId(0, 0))
    assert history.newest.round - BODY_ROUNDS <= 10
    assert history.integrity.verify() == []


def test_the_head_is_the_solution_over_everybodys_rows(history: History) -> None:
    start(history)
    model = history.model(history.newest)
    rows = np.concatenate([extract(model["body"], shard.features) for shard in CLINICS.values()])
    labels = np.concatenate([shard.labels for shard in CLINICS.values()])
    logits = rows @ model["head.weight"].T + model["head.bias"]
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(len(labels)), labels] -= 1
    gradient = chances.T @ np.column_stack([rows, np.ones(len(rows))]) / len(rows)
    gradient += STAGES.loss.l2 * np.column_stack([model["head.weight"], model["head.bias"]])
    assert np.linalg.norm(gradient) <= 1e-5


def test_who_is_no_anchor_is_forgotten_exactly_by_solving_the_head_again(history: History) -> None:
    start(history)
    body = body_of(history, history.newest)
    for number, name in enumerate(("clinic-0", "clinic-5"), start=1):
        history.requests.ask([name], BUDGET)
        start(history)
        assert history.outcomes()[-1].mode is Mode.EXACT
        branch = history.timeline.branches[number]
        assert branch.parent in (ModelId(0, BODY_ROUNDS), ModelId(number - 1, 0))
        assert history.newest.branch == number
        assert history.newest.round <= 10
        assert body_of(history, history.newest) == body
    assert history.integrity.verify() == []
    with History.in_memory() as without:
        start(without, clients=tuple(name for name in CLINICS if name not in ("clinic-0", "clinic-5")))
        other = without.model(without.newest)
    model = history.model(history.newest)
    assert max(float(np.abs(model[name] - other[name]).max()) for name in model) <= 1e-3


def test_whoever_comes_after_a_forgetting_is_in_the_head_too(history: History) -> None:
    late = next(name for name in CLINICS if name not in (*ANCHORS, "clinic-0"))
    early = tuple(name for name in CLINICS if name != late)
    start(history, clients=early)
    history.requests.ask(["clinic-0"], BUDGET)
    start(history, clients=early)
    body, solved = body_of(history, history.newest), history.newest
    start(history, clients=early)
    assert history.newest == solved
    start(history)
    left_out = {client.called for client in list_clients(history) if client.left_out}
    assert (left_out, len(history.participants.took_part(history.newest))) == (set(), len(CLINICS) - 1)
    assert (history.newest.branch, body_of(history, history.newest)) == (1, body)
    assert history.newest in history.timeline.solved


def test_an_anchor_costs_the_body(history: History) -> None:
    start(history)
    before = body_of(history, history.newest)
    history.requests.ask([ANCHORS[0]], BUDGET)
    asked: list[tuple[str, bool]] = []
    start(history, asked=asked)
    assert history.outcomes()[-1].mode is Mode.EXACT
    assert history.timeline.branches[1].parent == ModelId(0, 0)
    assert [name for name, question in asked if not question] == [ANCHORS[1]] * BODY_ROUNDS
    assert body_of(history, history.newest) == body_of(history, ModelId(1, BODY_ROUNDS)) != before
    with History.in_memory() as without:
        start(without, clients=tuple(name for name in CLINICS if name != ANCHORS[0]))
        assert body_of(without, without.newest) == body_of(history, history.newest)
    history.requests.ask(["clinic-0"], BUDGET)
    start(history)
    assert history.timeline.branches[2].parent == ModelId(1, BODY_ROUNDS)
    assert history.integrity.verify() == []


def test_the_plan_tells_an_anchors_price_before_anybody_leaves(history: History) -> None:
    start(history)
    prices = {}
    for name in ("clinic-0", ANCHORS[0]):
        request = Request(history.participants.find([name]), BUDGET)
        prices[name] = Solve().plan(history.summary(request.group), request).predicted_rounds
    assert prices[ANCHORS[0]] - prices["clinic-0"] == BODY_ROUNDS


@pytest.mark.parametrize("rounds", [2, BODY_ROUNDS, BODY_ROUNDS + 1])
def test_cut_off_anywhere_it_goes_on_where_it_was(tmp_path: Path, rounds: int) -> None:
    with History.in_memory() as whole:
        start(whole)
        expected = whole.model(whole.newest)

    # Who is no anchor needs no more rounds than a head does.
    for leaver, branch, last in ((None, 0, rounds), ("clinic-0", 1, min(rounds, 3)), (ANCHORS[0], 2, rounds)):
        left = iter(range(last - 1))

        def die(*_: object, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with History(tmp_path / "history") as history:
            if leaver is not None:
                history.requests.ask([leaver], BUDGET)
            with pytest.raises(KeyboardInterrupt):
                start(history, evaluate_fn=die)
        with History(tmp_path / "history") as history:
            start(history)
            assert history.newest.branch == branch
            assert history.integrity.verify() == []
            assert not history.timeline.open_requests
            if leaver is None:
                model = history.model(history.newest)
                assert digest({"body": model["body"]}) == digest({"body": expected["body"]})
                assert max(float(np.abs(model[name] - expected[name]).max()) for name in model) <= 1e-3


def test_the_body_is_kept_however_few_checkpoints_are(history: History) -> None:
    start(history, recorded={"capacity": 1})
    history.requests.ask(["clinic-0"], BUDGET)
    start(history, recorded={"capacity": 1})
    assert history.timeline.branches[1].parent == ModelId(0, BODY_ROUNDS)


def test_rows_of_an_anchor_cost_the_body_too(history: History) -> None:
    start(history)
    before = body_of(history, history.newest)
    history.requests.ask([ANCHORS[0]], BUDGET, scope=PrivacyScope.RECORDS)
    start(history, removed={ANCHORS[0]: [0, 1]})
    assert history.outcomes()[-1].mode is Mode.EXACT
    assert history.timeline.branches[1].parent == ModelId(0, 0)
    assert body_of(history, history.newest) != before
    # It stays, as an anchor too, under a pseudonym of its own.
    assert len(history.timeline.anchors) == len(ANCHORS) + 1
    assert history.timeline.anchors >= history.participants.find(ANCHORS)
    assert history.integrity.verify() == []


def test_no_other_way_to_forget_is_begun(history: History) -> None:
    start(history)
    history.requests.ask(["clinic-0"], BUDGET)
    for method in (Exact(), FineTuning(), Sifu()):
        with pytest.raises(ValueError, match="a network in two stages is not trained as a whole"):
            start(history, method=method)
    assert list(history.timeline.branches) == [0]


def test_without_an_anchor_nothing_is_trained(history: History) -> None:
    with pytest.raises(ValueError, match="none of the anchors is here"):
        start(history, clients=("clinic-0", "clinic-2"))
    start(history)
    history.requests.ask(list(ANCHORS), BUDGET)
    with pytest.raises(ValueError, match="none of the anchors is here"):
        start(history)
    start(history, recorded={"anchors": ("clinic-0",)})
    assert not history.timeline.open_requests
    assert history.integrity.verify() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"anchors": ()}, "stages and anchors go together"),
        ({"anchors": "clinic-1"}, "in a list of names"),
        ({"stages": None}, "stages and anchors go together"),
        ({"trained": ["body"]}, "leave out training and trained"),
        ({"masked": True}, "leave out masked, equal_weights and"),
        ({"server": NoisedAverage(1.0, 1.0, 1.0), "rate": 0.5}, "without noise"),
        ({"goal": Goal(BUDGET, 1.0)}, "leave out goal and public_schedule"),
        ({"stages": Stages(2, ("body.weight", "body.bias"), STAGES.loss)}, "body"),
    ],
)
def test_what_does_not_go_with_stages_is_refused(history: History, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        start(history, recorded=options)
    assert not history.timeline.branches


def test_only_a_mean_goes_with_stages(history: History) -> None:
    with pytest.raises(ValueError, match="wrap FedAvg or FedProx"):
        wrap(FedMedian(), history, stages=STAGES, anchors=ANCHORS, heuristic=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda: Stages(0, ("a.weight", "a.bias"), STAGES.loss), "body_rounds is 0"),
        (lambda: Stages(1, ("a.weight", "b.weight"), STAGES.loss), "a head has one tensor that ends in"),
        (lambda: Stages(1, ("a.weight", "a.bias"), SoftmaxL2(l2=0.0, row_norm=1.0)), "an L2 term above 0"),
        (lambda: Stages(1, ("a.weight", "a.bias"), SquaredL2(l2=0.1, row_norm=1e6)), "limit the rows or their norm"),
        (lambda: Stages(1, ("a.weight", "a.bias"), SquaredL2(l2=1e-9, row_norm=1.0)), "without a solution"),
    ],
)
def test_stages_that_cannot_be_are_refused(change: Callable[[], Stages], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        change()


def test_the_certificate_says_which_stage_knows_whom(history: History) -> None:
    start(history)
    for leaver, model, anchors in (("clinic-0", f"0.{BODY_ROUNDS}", 2), (ANCHORS[0], f"2.{BODY_ROUNDS}", 1)):
        number = history.requests.ask([leaver], BUDGET)
        start(history)
        statement = build_statement(history, number)
        predicate = statement.predicate
        assert (predicate.mode, predicate.training.loss) == ("exact", "NetworkLoss")
        assert predicate.facts.stages is not None
        assert (predicate.facts.stages.body_rounds, predicate.facts.stages.head) == (BODY_ROUNDS, STAGES.head)
        assert predicate.body is not None
        assert (predicate.body.model, predicate.body.anchors) == (model, anchors)
        assert "in both worlds anchors alone train the body" in predicate.counterfactual
        content = sign(statement, [SIGNER])
        verify(content, [KEY], history=history)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"body": None}, "no body is stated"),
        ({"facts": {"stages": None, "solved": False}, "solving": None}, "it names a body, and no stages"),
        ({"trained": ("head.weight", "head.bias")}, "none of the model that was trained"),
        ({"mode": "strict"}, "strict cannot be claimed"),
    ],
)
def test_a_body_that_does_not_fit_its_head_is_noticed(changed: dict[str, Any], words: str) -> None:
    with History.in_memory() as history:
        start(history)
        history.requests.ask(["clinic-0"], BUDGET)
        start(history)
        statement = build_statement(history, 1)
    document = statement.predicate.model_dump()
    facts = changed.pop("facts", {})
    forged = Predicate.model_validate(document | {"facts": document["facts"] | facts} | changed)
    # Its texts follow from the lie.
    forged = forged.model_copy(update=write_texts(forged))
    content = sign(statement.model_copy(update={"predicate": forged}), [SIGNER])
    with pytest.raises(InconsistentCertificateError, match=words):
        verify(content, [KEY])


def test_status_and_plan_tell_who_the_anchors_are_and_what_they_cost(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        start(history)
    told = CliRunner().invoke(app, ["status", str(tmp_path / "history")])
    assert f"whole since model 0.{BODY_ROUNDS}; its anchors: clinic-1, clinic-4" in told.output
    told = CliRunner().invoke(app, ["status", str(tmp_path / "history"), "--json"])
    assert json.loads(told.stdout)["anchors"] == list(ANCHORS)
    for leaver, words in (("clinic-0", "They are no anchors"), (ANCHORS[0], f"trained again, {BODY_ROUNDS} rounds")):
        planned = CliRunner().invoke(app, ["request", "preview", str(tmp_path / "history"), leaver])
        assert words in planned.output
        assert planned.output.count("exact") >= 1


RIDGE = Stages(BODY_ROUNDS, STAGES.head, SquaredL2(l2=0.01, row_norm=1.0))


def test_a_ridge_head_takes_one_round_and_forgets_to_the_last_bit(history: History) -> None:
    start(history, recorded={"stages": RIDGE})
    assert history.newest == ModelId(0, BODY_ROUNDS + 1)
    history.requests.ask(["clinic-0"], BUDGET)
    start(history, recorded={"stages": RIDGE})
    assert (history.newest, history.timeline.branches[1].parent) == (ModelId(1, 1), ModelId(0, BODY_ROUNDS))
    with History.in_memory() as without:
        start(without, clients=tuple(name for name in CLINICS if name != "clinic-0"), recorded={"stages": RIDGE})
        assert digest(history.model(history.newest)) == digest(without.model(without.newest))
    model = history.model(history.newest)
    shards = [shard for name, shard in CLINICS.items() if name != "clinic-0"]
    rows = np.concatenate([extract(model["body"], shard.features) for shard in shards])
    extended = np.column_stack([rows, np.ones(len(rows))])
    targets = np.eye(CLASSES)[np.concatenate([shard.labels for shard in shards])]
    normal = extended.T @ extended / len(rows) + 0.01 * np.eye(WIDTH + 1)
    expected = np.linalg.solve(normal, extended.T @ targets / len(rows)).T
    found = np.column_stack([model["head.weight"], model["head.bias"]])
    np.testing.assert_allclose(found, expected, atol=1e-4)
    statement = build_statement(history, 1)
    stages = statement.predicate.facts.stages
    assert stages is not None
    assert (statement.predicate.mode, stages.loss) == ("exact", "SquaredL2")
    verify(sign(statement, [SIGNER]), [KEY], history=history)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda sums: sums.pop("targets"), "it does not hold the sums that were asked for"),
        (lambda sums: sums.update(more=sums["targets"]), "it does not hold the sums that were asked for"),
        (lambda sums: sums.update(targets=Array(sums["targets"].numpy().astype(float))), "a tensor of another type"),
        (lambda sums: sums.update(features=Array(sums["features"].numpy()[1:])), "a tensor of another shape"),
        (
            lambda sums: sums.update(features=Array(-sums["features"].numpy())),
            "the sums of features count other rows",
        ),
        (lambda sums: sums.update(targets=Array(sums["targets"].numpy() * 1000)), "."),
        (lambda sums: sums.update(targets=Array(np.full_like(sums["targets"].numpy(), -(2**63)))), "."),
    ],
)
def test_sums_that_no_rows_have_are_rejected(change: Callable[[ArrayRecord], Any], reason: str) -> None:
    def lie(content: RecordDict, name: str) -> None:
        if name == "clinic-2" and SUMS in content:
            change(content.array_records[SUMS])

    with History.in_memory() as history, History.in_memory() as without:
        start(history, recorded={"stages": RIDGE}, change=lie)
        start(without, clients=tuple(name for name in CLINICS if name != "clinic-2"), recorded={"stages": RIDGE})
        assert digest(history.model(history.newest)) == digest(without.model(without.newest))
        ((_, event),) = history.timeline.of(RepliesRejected)
        assert re.search(reason, event.rejected[0][1])


def test_who_has_more_rows_than_a_client_may_have_is_left_out_whoever_else_comes() -> None:
    fewer = Stages(BODY_ROUNDS, STAGES.head, replace(RIDGE.loss, most_rows=13))
    with History.in_memory() as history:
        start(history, recorded={"stages": fewer})
        large = {name for name, shard in CLINICS.items() if len(shard.labels) > 13}
        (solved,) = rounds_of(history, 0, BODY_ROUNDS + 1)
        assert {labels_of(history)[int(client)] for client in solved.clients} == set(CLINICS) - large


def one_reply(
    name: str,
    measured: RoundMeasurement,
    rounding: float,
    model: Mapping[str, Tensor],
    kind: RoundKind = RoundKind.TRAINED,
) -> RoundResult:
    """Return a round that one client joined."""
    replies = Replies((name,), np.ones(1), (0 if kind.is_solvers else 1,), {}, batch=0)
    return RoundResult(replies, model, measured, rounding, kind)


def test_only_the_stages_own_rounds_are_recorded() -> None:
    """Whatever an engine does, the writer refuses a body that others than anchors trained, or that changes later."""
    nothing = RoundMeasurement(np.zeros(1), 0.0, None)
    with History.in_memory() as history:
        start(history)
        facts, first = history.run.facts, history.model(ModelId(0, 0))
        with history.recording(facts, first) as recorder:
            changed = {**recorder.model(), "body": recorder.model()["body"] + 1e-9}
            with pytest.raises(ValueError, match="the body has changed while the head was solved"):
                recorder.record(one_reply("clinic-0", nothing, NO_BOUND, changed, RoundKind.STEP))
            with pytest.raises(ValueError, match="then the body is not trained"):
                recorder.record(one_reply(ANCHORS[0], nothing, NO_BOUND, changed))
    with History.in_memory() as history, history.recording(facts, first) as recorder:
        recorder.name_anchors(ANCHORS, {})
        with pytest.raises(ValueError, match="only anchors train the body"):
            recorder.record(one_reply("clinic-0", nothing, NO_BOUND, first))
        with pytest.raises(ValueError, match="the head is solved once the body is whole"):
            recorder.record(one_reply(ANCHORS[0], nothing, NO_BOUND, first, RoundKind.STEP))
        recorder.record(one_reply(ANCHORS[0], nothing, NO_BOUND, first))


def recorder_of(history: History) -> AbstractContextManager[Recorder]:
    """Return the writer of a run in two stages in which nobody has trained yet."""
    with History.in_memory() as other:
        start(other)
        facts, first = other.run.facts, other.model(ModelId(0, 0))
    return history.recording(facts, first)


def test_an_anchor_is_labelled_before_it_is_asked(history: History) -> None:
    """Else somebody who was asked and silent would be known by its key alone, and pass as another client later."""
    with recorder_of(history) as recorder:
        recorder.name_anchors(["key 1", "key 2"], {"key 1": "clinic-1", "key 2": "clinic-1"})
    assert history.participants.find(["clinic-1"]) == history.participants.find(["key 1", "key 2"])


def test_a_known_key_without_a_label_is_barred_with_those_who_left_under_it(history: History) -> None:
    with recorder_of(history) as recorder:
        recorder.name_anchors(["key 1", "key 2"], {"key 1": "clinic-1"})
    history.requests.ask(["key 1"], BUDGET)
    assert history.participants.barred({"key 2": "clinic-1"}) == {"key 2"}
    assert history.participants.barred({"key 2": "another"}) == set()


def test_a_body_that_nobody_trains_is_never_whole(history: History) -> None:
    start(history)
    history.requests.ask([ANCHORS[0]], BUDGET)
    with pytest.raises(ValueError, match="nothing that clients sent in the last 3 rounds could be used"):
        start(history, failing=(ANCHORS[1],))
    assert find_body(history.timeline.branches, history.timeline.bodies, history.newest) is None
    start(history)
    body = find_body(history.timeline.branches, history.timeline.bodies, history.newest)
    assert body is not None
    assert (body.branch, body.clients) == (1, tuple(history.participants.find([ANCHORS[1]])))
    assert body.round > BODY_ROUNDS
    assert history.integrity.verify() == []


def test_a_body_may_be_trained_on_fewer_rows_than_the_head_is_solved_on() -> None:
    with History.in_memory() as history:
        start(history, held_out=3)
        ((_, body),) = history.timeline.of(BodyTrained)
        assert set(body.clients) == set(history.participants.find(ANCHORS))
        assert not list(history.timeline.of(RepliesRejected))


def test_a_body_that_others_trained_or_changed_later_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer refuses it; whoever changes the writer is found out by the history."""
    skip_checks(monkeypatch)
    with History.in_memory() as history:
        start(history)
        with history.recording(history.run.facts, history.model(ModelId(0, 0))) as recorder:
            changed = {**recorder.model(), "body": recorder.model()["body"] + 1e-9}
            recorder.record(one_reply("clinic-0", RoundMeasurement(np.zeros(1), 0.0, None), 0.0, changed))
        problems = history.integrity.verify()
    newest = f"model 0.{history.newest.round}"
    assert f"the round of {newest} is of the other stage than its body says" in problems
    assert f"the body of {newest} is not the one that was whole at model 0.{BODY_ROUNDS}" in problems


def name_later(patch: pytest.MonkeyPatch) -> None:
    """Let the writer name the anchors once they have trained the body."""
    name, finish = Recorder.name_anchors, Recorder.finish_body
    named: list[Any] = []

    def finish_body(self: Recorder) -> None:
        if named and not self.body_rounds_left:
            name(self, *named.pop())
        finish(self)

    patch.setattr(Recorder, "name_anchors", lambda _, *told: named.append(told))
    skip_checks(patch)
    patch.setattr(Recorder, "finish_body", finish_body)


def stop_early(patch: pytest.MonkeyPatch) -> None:
    """Let a body be whole after one round, whatever the run has settled."""
    patch.setattr(Stages, "body_rounds_left", lambda _, trained: max(1 - trained, 0))


def tell_others(patch: pytest.MonkeyPatch) -> None:
    """Let the writer name one anchor twice in place of both."""

    record = Journal.record

    def write(journal: Journal, event: Any) -> Any:
        if isinstance(event, BodyTrained):
            event = BodyTrained(event.branch, event.round, event.clients[:1] * 2)
        return record(journal, event)

    patch.setattr(Journal, "record", write)


def put_on_no_branch(patch: pytest.MonkeyPatch) -> None:
    """Let the writer tell of a body somewhere else, too."""

    record = Journal.record

    def write(journal: Journal, event: Any) -> Any:
        if isinstance(event, BodyTrained):
            record(journal, BodyTrained(7, event.round, event.clients))
        return record(journal, event)

    patch.setattr(Journal, "record", write)


@pytest.mark.parametrize(
    ("cheat", "words"),
    [
        (name_later, "who was not named as an anchor before"),
        (stop_early, f"trained in 1 rounds, not {BODY_ROUNDS}"),
        (tell_others, f"names others than those who trained the body of model 0.{BODY_ROUNDS}"),
        (put_on_no_branch, "on a branch that never was"),
    ],
)
def test_what_is_told_of_a_body_is_recounted(
    monkeypatch: pytest.MonkeyPatch, cheat: Callable[[pytest.MonkeyPatch], None], words: str
) -> None:
    """A writer that was changed cannot say otherwise than its rounds what a certificate states of a body."""
    with History.in_memory() as history:
        with monkeypatch.context() as patch:
            cheat(patch)
            start(history, recorded={"stages": RIDGE})
        assert any(words in problem for problem in history.integrity.verify())


def test_a_body_that_an_anchor_left_behind_is_fine_whatever_is_erased(history: History) -> None:
    start(history, recorded={"stages": RIDGE})
    for leaver in ("clinic-0", ANCHORS[0], "clinic-5"):
        history.requests.ask([leaver], BUDGET)
        start(history, recorded={"stages": RIDGE})
        assert history.integrity.verify() == []


@pytest.mark.parametrize("authenticated", [True, False])
def test_who_was_silent_before_a_restart_is_asked_after_it(authenticated: bool) -> None:
    """How many rounds a solve takes follows the leaver's data: whom the next branch asks must not follow it."""
    with History.in_memory() as history:
        grid = InProcessGrid(
            client_app(None, {}, None), {name: {"client-id": name} for name in CLINICS}, authenticated=authenticated
        )

        def look(_: int, __: ArrayRecord) -> None:
            newest = history.newest
            # Silent in the first two rounds of the solve, so that it would not be asked in the next one.
            grid.failing = {"clinic-3"} if newest.branch == 0 and newest.round >= BODY_ROUNDS else set()
            if newest == ModelId(0, BODY_ROUNDS + 2):
                grid.failing = set()
                history.requests.ask(["clinic-0"], BUDGET)

        averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
        strategy = Recorded(averaging, history, stages=STAGES, anchors=ANCHORS)
        run(strategy, grid, initial(), timeout=5.0, evaluate_fn=look)
        (client,) = history.participants.find(["clinic-3"])
        first, *_ = rounds_of(history, 1, 1, 1)
        assert client in first.clients


def test_how_many_rounds_a_solve_takes_does_not_decide_what_is_kept_of_the_body(history: History) -> None:
    """It follows the leaver's data, and an anchor goes back to what is kept: that has to follow who took part."""
    options: dict[str, Any] = {"recorded": {"stages": RIDGE, "capacity": 4, "keep_sums": False}}
    start(history, **options)
    kept = [model_id for model_id in history.kept() if model_id.round <= BODY_ROUNDS]
    assert len(kept) == 1 + BODY_ROUNDS
    for rounds in range(2, 6):
        start(history, **options)
        assert history.newest == ModelId(0, BODY_ROUNDS + rounds)
        assert list(history.kept()) == [*kept, history.newest]
        assert history.integrity.verify() == []


def test_who_comes_in_the_middle_of_a_solve_is_forgotten_from_the_whole_body(history: History) -> None:
    start(history, clients=tuple(name for name in CLINICS if name != "clinic-5"))
    start(history)
    history.requests.ask(["clinic-5"], BUDGET)
    start(history)
    assert history.timeline.branches[1].parent == ModelId(0, BODY_ROUNDS)
    assert history.outcomes()[-1].mode is Mode.EXACT
    assert history.integrity.verify() == []


def test_what_the_claim_rests_on_names_the_anchors(history: History) -> None:
    start(history)
    history.requests.ask([ANCHORS[0]], BUDGET)
    start(history)
    predicate = build_statement(history, 1).predicate
    assert any("the anchors, the tensors of the head" in assumed.what for assumed in predicate.assumptions)
    assert any("a network's body" in words for words in predicate.erasure.stays)


def test_a_request_that_is_withdrawn_in_the_middle_of_a_body_leaves_no_half_model(history: History) -> None:
    asked: list[int] = []

    def ask(number: int, _: ArrayRecord) -> None:
        if number == 1 and not asked:
            asked.append(history.requests.ask([ANCHORS[0]], BUDGET))

    waiting = history.requests.waiting
    looked: list[int] = []

    def withdraw_when_seen() -> Any:
        found = waiting()
        if found and not looked:
            looked.append(1)
            history.requests.withdraw(asked[0])
        return found

    history.requests.waiting = withdraw_when_seen  # type: ignore[method-assign]
    start(history, evaluate_fn=ask)
    assert looked
    assert find_body(history.timeline.branches, history.timeline.bodies, history.newest) is not None


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stages(True, STAGES.head, STAGES.loss),
        lambda: Stages(2**31, STAGES.head, STAGES.loss),
        lambda: Stages(1, None, STAGES.loss),  # type: ignore[arg-type]
        lambda: Stages(1, (1, 2), STAGES.loss),  # type: ignore[arg-type]
        lambda: Stages(1, STAGES.head, SquaredL2(0.1, 1.0, 2.0)),
        lambda: Recorded(FedAvg(), History.in_memory(), stages=True, anchors=ANCHORS),  # type: ignore[arg-type]
        lambda: Recorded(FedAvg(), History.in_memory(), stages=STAGES, anchors=[1, 2]),  # type: ignore[list-item]
        lambda: Recorded(FedAvg(), History.in_memory(), stages=STAGES, anchors=iter(ANCHORS)),  # type: ignore[arg-type]
    ],
)
def test_odd_stages_and_anchors_are_refused_in_words(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"body_rounds|head|target_norm|stages|anchors"):
        make()


def test_a_head_without_a_body_is_no_network() -> None:
    averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    arrays = ArrayRecord({name: array for name, array in initial().items() if name != "body"})
    grid = InProcessGrid(client_app(None, {}, None), {name: {"client-id": name} for name in CLINICS})
    with History.in_memory() as history:
        strategy = Recorded(averaging, history, stages=STAGES, anchors=ANCHORS)
        with pytest.raises(ValueError, match="beside a body"):
            run(strategy, grid, arrays, timeout=5.0)


def test_a_ridge_head_with_one_output_is_refused_before_anybody_trains() -> None:
    """Its clients have classes: of two they could not answer, and only once the body is whole."""
    one = {"head.weight": np.zeros((1, WIDTH)), "head.bias": np.zeros(1)}
    arrays = ArrayRecord({**initial(), **{name: Array(tensor) for name, tensor in one.items()}})
    asked: list[tuple[str, bool]] = []
    grid = InProcessGrid(client_app(asked, {}, None), {name: {"client-id": name} for name in CLINICS})
    averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    with History.in_memory() as history:
        strategy = Recorded(averaging, history, stages=RIDGE, anchors=ANCHORS)
        with pytest.raises(ValueError, match="an output for each class, so 2 or more"):
            run(strategy, grid, arrays, timeout=5.0)
    assert not asked


@pytest.mark.parametrize("body", ["7.9", "0.3", "0.0", f"1.{BODY_ROUNDS}"])
def test_a_body_that_cannot_be_is_noticed_without_the_history(body: str) -> None:
    with History.in_memory() as history:
        start(history)
        history.requests.ask(["clinic-0"], BUDGET)
        start(history)
        statement = build_statement(history, 1)
    predicate = statement.predicate
    assert predicate.body is not None
    forged = predicate.model_copy(update={"body": predicate.body.model_copy(update={"model": body}), "model": "1.3"})
    content = sign(statement.model_copy(update={"predicate": forged}), [SIGNER])
    with pytest.raises(InconsistentCertificateError, match="can be whole at"):
        verify(content, [KEY])


def test_while_a_body_is_trained_only_anchors_can_be_silent() -> None:
    with History.in_memory() as history:
        start(history)
        assert {client.called for client in list_clients(history)} == set(CLINICS)
        assert all(client.state is not ClientState.SILENT for client in list_clients(history))
        # An anchor leaves, and the other one fails when the body is to be trained again.
        history.requests.ask([ANCHORS[0]], BUDGET)
        with pytest.raises(ValueError, match="could be used"):
            start(history, failing=(ANCHORS[1],))
        assert history.newest.branch == 1
        silent = [client.called for client in list_clients(history) if client.state is ClientState.SILENT]
        assert silent == [ANCHORS[1]]


def test_what_a_body_that_is_gone_was_summed_with_is_erased_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = Stages(4, ("head.weight", "head.bias"), SquaredL2(l2=0.05, row_norm=1.0))
    monkeypatch.setitem(globals(), "STAGES", stages)
    with History(tmp_path / "history") as history:
        start(history)
        before = history.objects.digests()
        # An anchor.
        history.requests.ask(["clinic-4"], BUDGET)
        with monkeypatch.context() as patch:
            patch.setattr(SqlLedger, "erase_objects", lambda *_: (_ for _ in ()).throw(MemoryError()))
            with pytest.raises(MemoryError):
                start(history, ("clinic-1", "clinic-0"))
    with History(tmp_path / "history") as history:
        start(history, ("clinic-1", "clinic-0"))
        assert not before & history.objects.digests()
        assert history.objects.digests() <= find_files(objects_of(history))
        assert history.integrity.verify() == []


def test_whoever_was_away_while_an_anchor_left_is_asked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An anchor asks in the middle of the body, and is served while somebody else is away: the model is the same."""
    monkeypatch.setattr(nodes, "_IDLE", 0.01)
    late = next(name for name in CLINICS if name not in ANCHORS)

    def live(*, leaves: bool) -> str:
        grids, turns = list[Any](), 0

        class Grid(InProcessGrid):
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                grids.append(self)

            def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
                replies = super().send_and_receive(messages, timeout=timeout)
                if leaves and not history.timeline.requests and history.timeline.branches:
                    history.requests.ask([ANCHORS[0]], BUDGET)
                return replies

        def rule(*_: object) -> bool:
            nonlocal turns
            turns += 1
            if leaves:
                grids[0].gone = {late} if turns == 3 else set()
            if turns > 8:
                raise StopServing
            return turns != 2

        monkeypatch.setattr(sys.modules[__name__], "InProcessGrid", Grid)
        with History.in_memory() as history:
            clients = tuple(name for name in CLINICS if leaves or name != ANCHORS[0])
            start(history, clients, recorded={"stages": RIDGE, "serve": rule})
            assert len(history.participants.took_part(history.newest)) == len(CLINICS) - 1
            return digest(history.model(history.newest))

    assert live(leaves=True) == live(leaves=False)
