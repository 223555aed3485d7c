"""What is recorded against a run's declarations: replies that nobody can have made, servers that do not average."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import rescind
from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.cli import app
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import DpFedAvg, Mode, PublicHead
from rescind.core.rounds import RoundResult
from rescind.engines.engine import TOO_LONG, Engine, Replies
from rescind.engines.server import Average, NoisedAverage, average
from rescind.engines.stops import Rounds
from rescind.engines.training import is_same_mean
from rescind.forgetting import Revocable
from rescind.history.outcomes import outcome_of
from rescind.ledger.records import ErasureLevel
from rescind.methods import Exact, Last, Scratch
from rescind.testing.small import TRAINING
from rescind.views.overview import overview
from tests.builders import BUDGET, KEY, SIGNER, entries_of, everybody, rounds_of


def honest(clients: int = 6, **options: Any) -> Any:
    return everybody(clients, **options)


class Lying:
    """An engine some of whose clients send what the training cannot have made, in one round or in all."""

    def __init__(self, liars: int, clients: int = 6, at: ModelId | None = None, reason: str = TOO_LONG) -> None:
        self.engine, self.liars, self.at, self.reason = honest(clients), liars, at, reason

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        liars = set(self.clients[-self.liars :]) if self.at in (None, model_id) else set()
        found: Replies = self.engine.train(model, model_id, [name for name in names if name not in liars])
        return replace(found, rejected={name: self.reason for name in names if name in liars})


def planned(history: History, engine: Engine, server: Any = None) -> Mode:
    """Train if nothing is trained yet, ask for clinic-0 if nobody did, and plan to hide it by noise."""
    federation = Revocable(history, engine, server or Average())
    number = next((filed.number for filed in history.timeline.requests), None)
    if number is None:
        federation.train(Rounds(4))
        number = history.requests.ask(["clinic-0"], BUDGET)
    return federation.plan(Last(), number).candidate.mode


# Replies that the training cannot have made


@pytest.mark.parametrize(("clients", "liars"), [(2, 2), (4, 2), (5, 3), (6, 6)])
def test_where_half_of_a_round_contradicts_the_training_nothing_with_noise_is_proven(
    history: History, clients: int, liars: int
) -> None:
    engine = Lying(liars, clients, at=ModelId(0, 2))
    assert planned(history, engine) is Mode.HEURISTIC  # type: ignore[arg-type]
    (doubt,) = history.timeline.standing_doubts
    assert (doubt.model_id, f"{liars} of {clients} replies" in doubt.reason) == (ModelId(0, 2), True)
    assert history.facts.doubts == (str(doubt),)
    assert "rescind doubts HISTORY --lift" in str(doubt)
    assert overview(history).claimable.mode is Mode.HEURISTIC
    history.lift_doubts("clinics had an old version; it was replaced")
    assert planned(history, engine) is Mode.INSTANCE  # type: ignore[arg-type]
    assert history.facts.doubts == ()
    assert history.integrity.verify() == []


@pytest.mark.parametrize(("clients", "liars"), [(2, 1), (3, 1), (10, 1), (5, 2), (10, 4)])
def test_one_liar_and_any_minority_take_nothing_from_the_others(history: History, clients: int, liars: int) -> None:
    assert planned(history, Lying(liars, clients)) is Mode.INSTANCE  # type: ignore[arg-type]
    assert len(entries_of(history, "rejection")) == 4
    assert history.facts == history.run.facts


def test_replies_that_are_rejected_for_another_reason_say_nothing_of_the_training(history: History) -> None:
    engine = Lying(6, at=ModelId(0, 2), reason="a tensor of the model is missing")
    assert planned(history, engine) is Mode.INSTANCE  # type: ignore[arg-type]


def test_a_doubt_is_recorded_once_a_branch_and_again_after_it_was_lifted(history: History) -> None:
    federation = Revocable(history, Lying(4))  # type: ignore[arg-type]
    federation.train(Rounds(3))
    assert [doubt.model_id for doubt in history.timeline.standing_doubts] == [ModelId(0, 1)]
    history.lift_doubts("it was a mistake in the app")
    assert history.timeline.standing_doubts == ()
    federation.train(Rounds(5))
    assert [doubt.model_id for doubt in history.timeline.standing_doubts] == [ModelId(0, 4)]


def test_a_doubt_is_lifted_with_a_reason_and_only_where_there_is_one(history: History) -> None:
    Revocable(history, Lying(4, at=ModelId(0, 1))).train(Rounds(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="give a reason"):
        history.lift_doubts("  ")
    (lifted,) = history.lift_doubts("it was a mistake in the app")
    assert lifted.model_id == ModelId(0, 1)
    with pytest.raises(ValueError, match="no doubt to lift"):
        history.lift_doubts("once more")


def test_a_plan_does_not_outlive_a_doubt_nor_its_end(history: History) -> None:
    federation = Revocable(history, honest())
    federation.train(Rounds(3))
    plan = federation.plan(Last(), history.requests.ask(["clinic-0"], BUDGET))
    with history.recording(federation.engine.facts, federation.engine.start()) as recorder:
        recorder.doubt("something was seen")
    assert history.requests.is_stale(plan)
    plan = federation.plan(Last(), *plan.requests)
    assert plan.candidate.mode is Mode.HEURISTIC
    history.lift_doubts("it was nothing")
    assert history.requests.is_stale(plan)


def test_a_doubt_that_comes_later_takes_back_what_noise_had_served_until_it_is_lifted(history: History) -> None:
    engine = Lying(4, at=ModelId(1, 2))
    federation = Revocable(history, engine)  # type: ignore[arg-type]
    federation.train(Rounds(4))
    hidden = history.requests.ask(["clinic-0"], BUDGET)
    federation.forget(Last(), Rounds(1), level=ErasureLevel.OUTPUT)
    before = entries_of(history)
    last = max(entry.sequence for entry in before)
    assert outcome_of(history.timeline, hidden).mode is Mode.INSTANCE
    federation.train(Rounds(2))
    exact = history.requests.ask(["clinic-1"], BUDGET)
    federation.forget(Scratch(), Rounds(1), level=ErasureLevel.OUTPUT)
    claim = outcome_of(history.timeline, exact)
    assert (claim.mode, claim.contradictions) == (Mode.EXACT, ())
    assert [outcome.mode for outcome in history.outcomes()] == [Mode.EXACT, Mode.EXACT]
    # As it was before the doubt, and as it is before the second restart.
    assert outcome_of(history.timeline.until(last), hidden).mode is Mode.INSTANCE
    doubted = history.timeline.until(max(entry.sequence for entry in entries_of(history, "doubt")))
    claim = outcome_of(doubted, hidden)
    assert claim.mode is Mode.HEURISTIC
    assert claim.contradictions == doubted.facts.doubts != ()


def test_the_mode_of_what_was_served_comes_back_when_its_doubt_is_lifted(history: History) -> None:
    federation = Revocable(history, Lying(4, at=ModelId(1, 1)))  # type: ignore[arg-type]
    federation.train(Rounds(4))
    number = history.requests.ask(["clinic-0"], BUDGET)
    (outcome,) = federation.forget(Last(), Rounds(1))
    assert outcome.mode is Mode.HEURISTIC
    history.lift_doubts("the four were asked, and had an old version")
    assert history.outcomes()[0].mode is Mode.INSTANCE
    assert outcome_of(history.timeline, number).mode is Mode.INSTANCE


def test_a_doubt_stands_in_the_way_of_a_heads_strict_claim_and_not_of_dp_fedavg() -> None:
    facts = replace(honest().facts, public_schedule=True, doubts=("the training is doubted",))
    head = replace(facts, public=PublicHead(initial_norm=0.0, parameters=21, batch=15))
    assert head.strict_obstacles == facts.doubts
    assert replace(head, doubts=(), averages=False).strict_obstacles != ()
    noised = replace(facts, public=DpFedAvg(1.0, 1.0, 1.0, True, True, True, True))
    assert noised.strict_obstacles == ()
    assert facts.doubts[0] in facts.obstacles


# Servers that do not average


@dataclass(eq=False)
class Momentum:
    """A server that repeats part of the earlier rounds and says nothing of it."""

    facts: None = None
    velocity: dict[str, Tensor] = field(default_factory=dict)

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        made = Average().round(engine, model, model_id, present)
        self.velocity = {
            name: 0.9 * self.velocity.get(name, 0.0) + (made.model[name] - model[name]) for name in model
        }
        return replace(made, model={name: model[name] + self.velocity[name] for name in model})


class Derived(Average):
    """A server that is derived from ours and does otherwise."""

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        made = Average.round(self, engine, model, model_id, present)
        return replace(made, model={name: 1.001 * tensor for name, tensor in made.model.items()})


@dataclass(frozen=True)
class Handmade:
    """A server that averages by code of its own, and claims that nobody is far from the mean."""

    facts: None = None
    lies: bool = False

    def round(
        self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
    ) -> RoundResult:
        replies = engine.train(model, model_id, engine.draw(model_id, present))
        rate = engine.facts.training.server_learning_rate
        means = {
            name: np.average(np.asarray(each), axis=0, weights=replies.weights)
            for name, each in replies.tensors.items()
        }
        new = {name: ((1 - rate) * model[name] + rate * means[name]).astype(model[name].dtype) for name in model}
        measured = average(model, replies, rate).measured
        if self.lies:
            measured = replace(measured, distances=1e-9 * measured.distances, gram=None)
        return RoundResult(replies, new, measured)


@pytest.mark.parametrize("server", [Momentum, Derived])
def test_a_server_that_does_not_average_is_seen_and_nothing_with_noise_is_proven(
    history: History, server: Callable[[], Any]
) -> None:
    assert planned(history, honest(), server()) is Mode.HEURISTIC
    (stray,) = history.timeline.missed_means
    # The first step has no momentum yet.
    assert stray == ModelId(0, 2 if server is Momentum else 1)
    assert history.facts.averages is False
    assert any("not the weighted mean" in each for each in overview(history).claimable.raised_by)
    with pytest.raises(ValueError, match="no doubt to lift"):
        history.lift_doubts("momentum is harmless")
    federation = Revocable(history, honest(), server())
    federation.forget(Last(), Rounds(1))
    (outcome,) = history.outcomes()
    assert outcome.mode is Mode.HEURISTIC


def test_what_a_server_keeps_may_hold_who_was_forgotten_so_it_is_not_exact(history: History) -> None:
    federation = Revocable(history, honest(), Momentum())
    federation.train(Rounds(4))
    number = history.requests.ask(["clinic-0"], BUDGET)
    (outcome,) = federation.forget(Scratch(), Rounds(2), level=ErasureLevel.OUTPUT)
    assert outcome.restart is not None
    assert outcome.restart.planned.candidate.mode is Mode.EXACT
    assert outcome.mode is Mode.HEURISTIC
    claim = outcome_of(history.timeline, number)
    assert claim.mode is Mode.HEURISTIC
    assert "not the weighted mean" in claim.contradictions[0]


def test_a_branch_that_averages_again_is_exact(history: History) -> None:
    Revocable(history, honest(), Momentum()).train(Rounds(4))
    number = history.requests.ask(["clinic-0"], BUDGET)
    Revocable(history, honest()).forget(Exact(), Rounds(2), level=ErasureLevel.OUTPUT)
    assert outcome_of(history.timeline, number).mode is Mode.EXACT


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_a_server_that_averages_by_code_of_its_own_is_believed_after_a_look(
    history: History, precision: str, rate: float
) -> None:
    training = replace(honest().facts.training, precision=precision, server_learning_rate=rate)
    engine = honest(10, training=training)
    assert planned(history, engine, Handmade()) is Mode.INSTANCE
    assert history.facts == history.run.facts
    with History.in_memory() as ours:
        planned(ours, engine)
        # Also to the bit: what differs by rounding only is replaced by our own mean.
        for name, tensor in ours.model(ours.newest).items():
            np.testing.assert_array_equal(history.model(history.newest)[name], tensor)


def test_what_a_server_says_of_distances_is_measured_again(history: History) -> None:
    planned(history, honest(), Handmade(lies=True))
    with History.in_memory() as ours:
        planned(ours, honest())
        for one, two in zip(*(rounds_of(each, 0, 1, 4) for each in (history, ours)), strict=True):
            np.testing.assert_array_equal(one.participants["distance"], two.participants["distance"])


def test_a_server_that_says_it_is_no_mean_is_not_compared(history: History) -> None:
    class Told:
        engine = honest()

        def __getattr__(self, name: str) -> object:
            return getattr(self.engine, name)

        facts = replace(engine.facts, training=replace(engine.facts.training, server_momentum=0.9))

    assert planned(history, Told(), Momentum()) is Mode.HEURISTIC  # type: ignore[arg-type]
    assert history.timeline.missed_means == ()


def made(model: Tensor, replies: Tensor, weights: Tensor, new: Tensor) -> RoundResult:
    names = tuple(map(str, range(len(replies))))
    found = average({"t": model}, Replies(names, weights, (1,) * len(names), {"t": replies}, 1), 1.0)
    return replace(found, model={"t": new})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("participants", [1, 2, 30, 1000])
def test_means_in_any_order_and_precision_are_the_same_and_anything_else_is_not(
    dtype: Any, participants: int
) -> None:
    stricter = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        model = rng.normal(size=40).astype(dtype)
        replies = (model + rng.normal(size=(participants, 40)) * 10.0 ** rng.integers(-6, 6, size=40)).astype(dtype)
        weights = rng.integers(1, 1000, size=participants).astype(np.float64)
        shares = (weights / weights.sum()).astype(dtype)
        mean = average({"t": model}, made(model, replies, weights, model).replies, 1.0)
        running = np.zeros_like(model)
        for share, reply in zip(shares[::-1], replies[::-1], strict=True):
            running += share * reply
        ways = [
            running,
            (weights @ replies.astype(np.float64) / weights.sum()).astype(dtype),
            (model + (shares @ (replies - model))).astype(dtype),
            np.average(replies, axis=0, weights=shares).astype(dtype),
        ]
        for way in ways:
            other = made(model, replies, weights, way)
            assert is_same_mean({"t": model}, other, mean)
            # A rounding or two of the mean itself would refuse honest servers: replies cancel.
            apart = np.abs(way - mean.model["t"])
            stricter += int((apart > 2 * np.finfo(dtype).eps * np.abs(mean.model["t"])).any())
        off = mean.model["t"].copy()
        off[7] += 1e-2 * np.abs(replies[:, 7]).max()
        assert not is_same_mean({"t": model}, made(model, replies, weights, off), mean)
        off[7] = np.nan
        assert not is_same_mean({"t": model}, made(model, replies, weights, off), mean)
    assert participants < 30 or stricter > 0


def test_only_our_own_server_may_say_that_it_is_dp_fedavg(history: History) -> None:
    real = NoisedAverage(clip=1.0, denominator=5.0, noise_multiplier=1.0)

    @dataclass(frozen=True)
    class Fake:
        facts: DpFedAvg = real.facts

        def round(
            self, engine: Engine, model: Mapping[str, Tensor], model_id: ModelId, present: Sequence[str]
        ) -> RoundResult:
            return Average().round(engine, model, model_id, present)

    class DerivedNoise(NoisedAverage):
        pass

    engine = honest(public=real.facts, public_schedule=True)
    Revocable(history, engine, real).train(Rounds(1))
    for server in (Fake(), DerivedNoise(1.0, 5.0, 1.0)):
        with pytest.raises(ValueError, match=r"nothing can check .* only rescind\.engines\.server\.NoisedAverage"):
            Revocable(history, engine, server)  # type: ignore[arg-type]


# Heads


@pytest.mark.parametrize("loss", [rescind.SoftmaxL2(0.1, 1.0), rescind.LogisticL2(0.1, 1.0)])
@pytest.mark.parametrize(
    "shapes",
    [
        {"conv1.weight": (6, 3, 5, 5), "conv1.bias": (6,), "fc.weight": (10, 84), "fc.bias": (10,)},
        {"weight": (3, 4)},
        {"weight": (3, 4), "bias": (4,)},
        {"weight": (3, 4), "bias": (3, 1)},
        {"one.weight": (3, 4), "two.weight": (4, 3), "bias": (3,)},
        {"theta": (15,)},
        {},
    ],
)
def test_the_loss_of_a_head_is_refused_for_anything_else(
    history: History, loss: Any, shapes: dict[str, tuple[int, ...]]
) -> None:
    facts = replace(honest().facts, training=replace(honest().facts.training, loss=loss))
    start = {name: np.zeros(shape) for name, shape in shapes.items()}
    with (
        pytest.raises(ValueError, match=r"linear head.*NetworkLoss\(\).*forgotten exactly"),
        history.recording(facts, start),
    ):
        pass
    assert not entries_of(history)
    network = replace(facts, training=replace(facts.training, loss=rescind.NetworkLoss()))
    with history.recording(network, start or {"weight": np.zeros(1)}):
        pass


@pytest.mark.parametrize(
    ("loss", "outputs", "fits"),
    [
        (rescind.SoftmaxL2(0.1, 1.0), 3, True),
        (rescind.LogisticL2(0.1, 1.0), 1, True),
        (rescind.LogisticL2(0.1, 1.0), 2, False),
    ],
)
def test_a_head_has_one_weight_and_its_bias_whatever_they_are_called(
    history: History, loss: Any, outputs: int, fits: bool
) -> None:
    facts = replace(honest().facts, training=replace(honest().facts.training, loss=loss))
    start = {"z.w": np.zeros((outputs, 4)), "a.b": np.zeros(outputs)}
    if fits:
        with history.recording(facts, start) as recorder:
            assert recorder.model_id == ModelId(0, 0)
    else:
        with pytest.raises(ValueError, match=r"\(1, features\)"), history.recording(facts, start):
            pass


# The commands


def said(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return f"{result.exit_code} {result.output}"


def test_the_operator_sees_doubts_and_answers_them(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    with History(folder) as history:
        Revocable(history, honest()).train(Rounds(1))
    assert said("doubts", folder) == "0 Nothing is doubted.\n"
    assert "fine  declarations" in said("doctor", folder)
    assert said("doubts", folder, "--lift", "why not").startswith("1 rescind: there is no doubt to lift")
    with History(folder) as history:
        Revocable(history, Lying(4, at=ModelId(0, 2))).train(Rounds(2))  # type: ignore[arg-type]
    assert "model 0.2" in said("doubts", folder)
    assert said("doubts", folder).endswith("\tstands\n")
    assert "the declared training is doubted since model 0.2: 4 of 6 replies" in said("status", folder)
    assert "doubted since model 0.2" in said("status", folder, "--json")
    assert "note  declarations: the declared training is doubted since model 0.2" in said("doctor", folder)
    assert said("doubts", folder, "--lift", " ").startswith("1 rescind: give a reason")
    assert "Lifted 1 doubt(s)" in said("doubts", folder, "--lift", "an old app")
    assert said("doubts", folder).endswith("\tlifted: an old app\n")
    assert "doubted" not in said("status", folder)
    with History(folder) as history:
        Revocable(history, honest(), Derived()).train(Rounds(3))
    assert "model 0.3\tis not the mean of its round's replies" in said("doubts", folder)
    assert "not the weighted mean" in said("status", folder)
    assert "note  declarations: the server recorded models" in said("doctor", folder)


def test_a_lifted_doubt_leaves_the_training_declared(history: History) -> None:
    federation = Revocable(history, honest())
    federation.train(Rounds(4))
    number = history.requests.ask(["clinic-0"], BUDGET)
    federation.forget(Last(), Rounds(2))
    certified = build_statement(history, number)
    assert certified.predicate.facts.sources.training == "executed by our helper"
    content, keys = sign(certified, [SIGNER]), [KEY]
    with history.recording(honest().facts, honest().start()) as recorder:
        recorder.doubt("something was seen")
    (since,) = verify(content, keys, history=history).since
    assert since.startswith("nothing is proven any more: the declared training is doubted")
    assert "restart" not in since
    history.lift_doubts("it was a mistake in the app")
    assert verify(content, keys, history=history).since == ()
    again = build_statement(history, number)
    assert again.predicate.mode == "instance"
    assert again.predicate.facts.sources.training == "declared by the operator"
    assert not any("proven" in each.what + each.basis for each in again.predicate.assumptions)
    verify(sign(again, [SIGNER]), keys, history=history)


def test_a_lifted_doubt_about_float32_proves_nothing_any_more(history: History) -> None:
    """What our helper computes in float32 is bounded; what the operator only says that clients compute is not."""
    training = replace(TRAINING, precision="float32")
    federation = Revocable(history, honest(training=training))
    federation.train(Rounds(4))
    number = history.requests.ask(["clinic-0"], BUDGET)
    federation.forget(Last(), Rounds(2))
    assert build_statement(history, number).predicate.mode == "instance"
    with history.recording(federation.engine.facts, federation.engine.start()) as recorder:
        recorder.doubt("something was seen")
    history.lift_doubts("it was a mistake in the app")
    (reason,) = build_statement(history, number).predicate.reasons
    assert "float32" in reason
