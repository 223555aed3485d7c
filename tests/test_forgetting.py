"""The flow, step by step: what is recorded, what is refused, what goes on after it was cut off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rescind import Facts, History, LocalTraining
from rescind.audit.replay import distance
from rescind.checkpoints.tensors import digest, read
from rescind.core import planning
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, PrivacyScope, PublicHead
from rescind.core.planning import Candidate, candidates, paper_choice
from rescind.core.regularity import NetworkLoss
from rescind.core.rounds import RoundResult
from rescind.core.sensitivity import group_sensitivity
from rescind.core.summary import Node, Request, Summary
from rescind.engines.clinics import Clinics
from rescind.engines.engine import Engine, Replies
from rescind.engines.server import Average, NoisedAverage
from rescind.engines.stops import Accuracy, Rounds
from rescind.engines.training import train
from rescind.errors import (
    ForgottenClientError,
    NoHistoryError,
    PendingRequestError,
    UnknownClientError,
)
from rescind.forgetting import Revocable
from rescind.history.events import RecordedPlan
from rescind.ledger.contract import Ledger
from rescind.ledger.records import ErasureLevel
from rescind.methods import (
    Certifying,
    Dp,
    FineTuning,
    Heuristic,
    Last,
    Method,
    PaperSifu,
    Scratch,
    Sifu,
    StrictSifu,
)
from rescind.simulation import Federation as ImageFederation
from rescind.simulation import Network, Shard, Simulation, SoftmaxHead
from rescind.testing.methods import CutOffError, die_after, pick_names
from rescind.testing.small import TRAINING, federation, simulation
from tests.builders import BUDGET, entries_of, rounds_joined

SEED = b"noise"


@pytest.fixture
def history(stored_history: History) -> History:
    return stored_history


@pytest.fixture
def revocable(history: History) -> Revocable:
    trained = Revocable(history, simulation(secret_noise=True))
    trained.train(Rounds(6))
    return trained


def add_round(revocable: Revocable) -> None:
    """Record one more round, as a training does that was under way when somebody asked."""
    engine, history = revocable.engine, revocable.history
    with history.recording(engine.facts, engine.start()) as recorder:
        train(engine, recorder, lambda: engine.clients, Rounds(recorder.model_id.round + 1), revocable.server)


def test_what_is_not_as_it_was_is_said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    with History.in_memory() as history:
        Revocable(history, Clinics(4), scored=False).train(Rounds(3))
        history.requests.ask(["clinic-1"], BUDGET)
        more = Revocable(history, Clinics(6), scored=False)
        more.forget(Scratch(), Rounds(3))
        (told,) = (entry.message for entry in caplog.records if "new to this history" in entry.message)
        assert "new to this history: 2;" in told
        assert "those of whoever was forgotten, or asked to be, may be somebody else's" in told
        caplog.clear()
        more.train(Rounds(2))
        assert "model 1.3 is the newest model, and is not trained on: Rounds(most=2)" in caplog.text
        caplog.clear()
        monkeypatch.setattr(Clinics, "start", lambda _: {"weight": np.ones((3, 10)), "bias": np.zeros(3)})
        more.train(Rounds(4))
        assert "first model is not the one that this history began with, as by another seed" in caplog.text


def test_a_request_goes_from_plan_to_erasure(revocable: Revocable) -> None:
    history = revocable.history
    number = history.requests.ask(pick_names(revocable, 0), BUDGET)
    (outcome,) = revocable.forget(Last(), Rounds(4))
    asked = outcome.asked
    assert (asked.number, asked.branch, outcome.rounds, outcome.model_id) == (number, 1, 4, ModelId(1, 4))
    assert outcome.mode is Mode.INSTANCE
    assert outcome.restart is not None
    assert outcome.restart.branch.sigma == outcome.restart.planned.candidate.sigma > 0
    assert outcome.model == history.kept()[ModelId(1, 4)]
    assert outcome.erasure.requests == (number,)
    assert outcome.scores is not None
    assert all(0 <= score <= 1 for score in (outcome.scores.retain, outcome.scores.forget, outcome.scores.test))
    often = ("round", "registration")
    kinds = [entry.kind for entry in entries_of(history) if entry.kind not in often]
    assert kinds == ["run", "branch", "request", "plan", "branch", "retrained", "erasure", "remains", "erased"]
    # What the journal says is the outcome, whoever asks later; only the scores are kept nowhere.
    assert history.outcomes() == [replace(outcome, scores=None)]
    assert revocable.forget(Last(), Rounds(4)) == []


def test_requests_are_served_in_their_order(revocable: Revocable) -> None:
    first, second = (revocable.history.requests.ask(pick_names(revocable, at), BUDGET) for at in (3, 1))
    served = revocable.forget(Last(), Rounds(2))
    assert [each.asked.number for each in served] == [first, second]
    assert [each.restart.model_id for each in served if each.restart] == [ModelId(1, 2), ModelId(2, 2)]


def test_whoever_waits_to_be_forgotten_does_not_train(revocable: Revocable) -> None:
    history = revocable.history
    waiting = history.participants.find(pick_names(revocable, 3))
    history.requests.ask(pick_names(revocable, 1), BUDGET)
    number = history.requests.ask(pick_names(revocable, 3), BUDGET)
    revocable.forget(Scratch(), Rounds(3))
    assert all(model_id.branch == 0 for model_id in rounds_joined(history, waiting))
    # One who withdraws may.
    other = history.requests.ask(pick_names(revocable, 4), BUDGET)
    assert pick_names(revocable, 4)[0] not in history.participants.remaining(revocable.engine.clients)
    history.requests.withdraw(other)
    assert pick_names(revocable, 4)[0] in history.participants.remaining(revocable.engine.clients)
    # The second was settled: the model that the first left did not know it.
    (settled,) = [each for each in history.outcomes() if each.asked.number == number]
    assert (settled.restart, settled.mode, settled.rounds) == (None, Mode.EXACT, 0)


def test_served_together_each_request_keeps_its_own_promise(revocable: Revocable) -> None:
    history = revocable.history
    one, two = (frozenset(history.participants.find(pick_names(revocable, at))) for at in (0, 1))
    numbers = (
        history.requests.ask(pick_names(revocable, 0), Budget(2.0, 0.01)),
        history.requests.ask(pick_names(revocable, 1), BUDGET, scope=PrivacyScope.SEQUENCE),
    )
    edges, end = history.lineage().edges, len(history.lineage().edges)
    plan = revocable.plan(Last(), *numbers)
    asked = {each.number: each.request for each in history.timeline.requests}
    needed = max(
        group_sensitivity(edges, one)[end] / asked[numbers[0]].mu,
        group_sensitivity(edges, two)[end] / asked[numbers[1]].mu,
        group_sensitivity(edges, one | two)[end] / asked[numbers[1]].mu,
    )
    assert needed <= plan.candidate.sigma < needed * 1.4143
    outcome, other = revocable.forget(Last(), Rounds(2), together=True)
    assert outcome.restart is not None
    assert outcome.restart.planned == plan
    assert outcome.restart == other.restart
    assert outcome.restart.branch.requests == outcome.restart.branch.hidden == numbers


def test_a_recorded_plan_is_carried_out_unless_it_is_stale(revocable: Revocable) -> None:
    history = revocable.history
    number = history.requests.ask(pick_names(revocable, 0), BUDGET)
    stale = revocable.plan(Last(), number)
    add_round(revocable)
    assert history.requests.is_stale(stale)
    plan = revocable.plan(Last(), number)
    assert plan.candidate.node != stale.candidate.node
    (outcome,) = revocable.forget(Last(), Rounds(2))
    assert outcome.restart is not None
    assert outcome.restart.planned == plan


def test_what_cannot_be_planned_or_trained_is_refused(revocable: Revocable) -> None:
    history = revocable.history
    with pytest.raises(ValueError, match=r"not \[99\]: open are"):
        revocable.plan(Sifu(), 99)
    history.requests.ask(pick_names(revocable, 0), BUDGET)
    mortal = replace(revocable, watch=die_after(ModelId(1, 1)))
    with pytest.raises(CutOffError):
        mortal.forget(Last(), Rounds(4))
    with pytest.raises(ValueError, match="being served: finish it with forget"):
        revocable.train(Rounds(9))
    with pytest.raises(ValueError, match="being served by Last: go on with that method"):
        revocable.forget(Scratch(), Rounds(4))
    (outcome,) = revocable.forget(Last(), Rounds(4))
    assert outcome.rounds == 4
    assert revocable.train(Rounds(6)) == ModelId(1, 6)
    with history.recording(revocable.engine.facts, revocable.engine.start()) as recorder:
        made = revocable.server.round(
            revocable.engine, recorder.model(), ModelId(1, 7), pick_names(revocable, 0, 1, 2)
        )
        assert "clinic-0" in made.replies.names
        with pytest.raises(ForgottenClientError):
            recorder.record(made)


def test_reproducible_noise_and_facts_have_to_agree(history: History) -> None:
    for secret, seed in ((True, SEED), (False, None)):
        with pytest.raises(ValueError, match="with a seed the noise is reproducible"):
            Revocable(history, simulation(secret_noise=secret), seed=seed)


def test_output_level_keeps_the_prefix_and_purge_can_follow(revocable: Revocable) -> None:
    history = revocable.history
    history.requests.ask(pick_names(revocable, 0), BUDGET)
    (outcome,) = revocable.forget(Last(), Rounds(2), level=ErasureLevel.OUTPUT)
    assert outcome.erasure.level is ErasureLevel.OUTPUT
    assert ModelId(0, 6) in history.kept()
    revocable.forget(Last(), Rounds(2), level=ErasureLevel.PURGE)
    assert ModelId(0, 6) not in history.kept()
    assert len(history.outcomes()) == 1


def test_whoever_leaves_after_a_restart_with_much_noise_is_as_near_as_psi_says() -> None:
    """The world without clinic-2 is run by the program itself, from the start: what it decides, it decides anew."""
    everybody = federation()
    others = replace(everybody, shards={name: each for name, each in everybody.shards.items() if name != "clinic-2"})
    for noise_seed in range(8):
        models, starts = [], []
        for clients in (everybody, others):
            with History.in_memory() as history:
                engine = Simulation(clients, SoftmaxHead(6, 3), TRAINING, secret=b"both worlds", secret_noise=False)
                revocable = Revocable(history, engine, seed=bytes([noise_seed]))
                revocable.train(Rounds(6))
                history.requests.ask(["clinic-1"], Budget(0.5, 1e-5))
                (outcome,) = revocable.forget(PaperSifu(sigma=4.0), Rounds(1), level=ErasureLevel.OUTPUT)
                assert outcome.restart is not None
                starts.append((outcome.restart.branch.parent, outcome.restart.branch.sigma))
                models.append(history.model(history.newest))
                if clients is everybody:
                    group = history.participants.find(["clinic-2"])
                    bound = group_sensitivity(history.lineage(group=group).edges, group)[-1]
        # Where it restarts and sigma count as constants; nothing else may.
        assert starts == [(ModelId(0, 6), 4.0)] * 2
        assert 0 < distance(*models) <= bound


def test_after_fine_tuning_the_others_can_still_be_forgotten_soundly(revocable: Revocable) -> None:
    history = revocable.history
    history.requests.ask(pick_names(revocable, 0), BUDGET)
    (first,) = revocable.forget(FineTuning(), Rounds(3), level=ErasureLevel.OUTPUT)
    assert first.mode is Mode.HEURISTIC
    history.requests.ask(pick_names(revocable, 1), BUDGET)
    (second,) = revocable.forget(Last(), Rounds(3))
    assert second.mode is Mode.INSTANCE
    assert [each.mode for each in history.outcomes()] == [Mode.HEURISTIC, Mode.INSTANCE]
    assert history.integrity.verify() == []


def test_no_release_has_two_noised_models(revocable: Revocable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is secret, so a second draw would differ: cut off right before and right after the commit."""
    history = revocable.history
    number = history.requests.ask(pick_names(revocable, 0), BUDGET)
    start_branch = Ledger.start_branch

    def dying(*arguments: object) -> None:
        start_branch(*arguments)  # type: ignore[arg-type]
        raise CutOffError

    monkeypatch.setattr(Ledger, "start_branch", dying)
    with pytest.raises(CutOffError):
        revocable.forget(Last(), Rounds(2))
    monkeypatch.undo()
    drawn = history.model(ModelId(1, 0))
    plan = history.timeline.plans[number]
    (outcome,) = revocable.forget(Last(), Rounds(2), level=ErasureLevel.OUTPUT)
    assert [branch.requests for branch in history.timeline.branches.values()] == [(), (number,)]
    assert outcome.restart.planned == plan
    assert all(np.array_equal(tensor, drawn[name]) for name, tensor in history.model(ModelId(1, 0)).items())


def test_rules_end_a_branch() -> None:
    def never() -> float:
        raise AssertionError("looked at too early")

    assert [Rounds(3).reached(rounds, never) for rounds in (2, 3, 4)] == [False, True, True]
    assert (Rounds.share(0.25, of=10), Rounds.share(1.0, of=10)) == (Rounds(3), Rounds(10))
    rule = Accuracy(0.9, least=4, most=8, every=2)
    assert not any(rule.reached(rounds, never) for rounds in (0, 3, 5, 7))
    assert rule.reached(8, never)
    assert not rule.reached(4, lambda: 0.89)
    assert rule.reached(4, lambda: 0.9)
    for wrong in (
        lambda: Rounds(-1),
        lambda: Accuracy(1.5),
        lambda: Accuracy(0.5, least=9, most=8),
        lambda: Accuracy(0.5, every=0),
    ):
        with pytest.raises(ValueError, match=r"rounds|threshold"):
            wrong()


# What a hostile reader found


@dataclass(frozen=True)
class Halfway(Heuristic):
    """Goes back to a node of one's choice, with the model as it is."""

    name: ClassVar[str] = "Halfway"
    why: ClassVar[str] = "for tests"
    at: int = 4

    def node(self, summary: Summary) -> Node:
        return next(each for each in summary.kept if (each.branch, each.round) == (0, self.at))


def test_a_heuristic_that_goes_back_before_others_noise_takes_their_claim(revocable: Revocable) -> None:
    history = revocable.history
    history.requests.ask(pick_names(revocable, 0), BUDGET)
    revocable.forget(Last(), Rounds(2), level=ErasureLevel.OUTPUT)
    history.requests.ask(pick_names(revocable, 1), BUDGET)
    revocable.forget(Halfway(), Rounds(2), level=ErasureLevel.OUTPUT)
    assert [each.mode for each in history.outcomes()] == [Mode.HEURISTIC, Mode.HEURISTIC]


def test_a_method_cannot_claim_more_than_the_facts_carry(revocable: Revocable) -> None:
    @dataclass(frozen=True)
    class Liar(Certifying):
        name: ClassVar[str] = "Liar"
        sigma: float = 2.0**-14

        def plan(self, summary: Summary, *requests: Request) -> Candidate:
            last = candidates(summary, *requests)[-1]
            return replace(last, sigma=self.sigma, mode=Mode.EXACT)

    number = revocable.history.requests.ask(pick_names(revocable, 0), BUDGET)
    with pytest.raises(ValueError, match="does not hide the group there"):
        revocable.plan(Liar(), number)
    assert revocable.plan(Liar(4.0), number).candidate.mode is Mode.INSTANCE

    class Bold(Halfway):
        def plan(self, summary: Summary, *requests: Request) -> Candidate:
            return replace(super().plan(summary, *requests), mode=Mode.STRICT)

    with pytest.raises(ValueError, match="does not certify, and its plan claims strict"):
        revocable.plan(Bold(), number)
    history = revocable.history
    node = Node(6, 0, 6)
    exact = Candidate(node, 0.0, Mode.EXACT, (), 0.0, 1.0)
    history.requests.record_plan(RecordedPlan((number,), exact, public_plan=False))
    facts, start = revocable.engine.facts, revocable.engine.start()
    with (
        history.recording(facts, start) as recorder,
        pytest.raises(ValueError, match=r"says exact, and model 0\.6 knows clients"),
    ):
        recorder.restart(ModelId(0, 6), recorder.model(), requests=(number,))


def test_an_engine_and_its_server_say_the_same(history: History) -> None:
    noised = NoisedAverage(0.5, 7.0, 2.0)
    training = replace(TRAINING, clips_updates=True)
    engine = simulation(training=training, public=noised.facts, public_schedule=True, secret_noise=True)
    with pytest.raises(ValueError, match="those of another server"):
        Revocable(history, engine).train(Rounds(2))
    with pytest.raises(ValueError, match="those of another server"):
        Revocable(history, simulation(secret_noise=True), server=noised).train(Rounds(2))
    with pytest.raises(ValueError, match="the facts call it secret"):
        Revocable(history, engine, server=replace(noised, seed=SEED)).train(Rounds(2))


def test_noised_rounds_prove_nothing_but_their_own_noise() -> None:
    noised = NoisedAverage(0.5, 7.0, 4.0)
    training = replace(TRAINING, clips_updates=True)
    engine = simulation(training=TRAINING, public=noised.facts, public_schedule=True, secret_noise=True)
    assert any("DP-FedAvg" in each for each in engine.facts.obstacles)
    engine = simulation(training=training, public=noised.facts, public_schedule=True, secret_noise=True)
    with History.in_memory() as history:
        revocable = Revocable(history, engine, server=noised)
        revocable.train(Rounds(4))
        history.requests.ask(pick_names(revocable, 0), BUDGET)
        (first,) = revocable.forget(Dp(), Rounds(2))
        assert first.mode in {Mode.STRICT, Mode.EXACT}
        history.requests.ask(pick_names(revocable, 1), BUDGET)
        revocable.forget(Last(), Rounds(2))
        # A plan that looked at data: what was strict is an instance now.
        assert [each.mode for each in history.outcomes()] in (
            [Mode.INSTANCE, Mode.HEURISTIC],
            [Mode.EXACT, Mode.HEURISTIC],
        )


def test_where_rounds_were_drawn_again_nobody_is_unknown(tmp_path: Path) -> None:
    class Redrawn:
        def __init__(self, engine: Simulation) -> None:
            self.engine = engine
            self.facts = replace(engine.facts, redrawn_rounds=True)

        def __getattr__(self, name: str) -> object:
            return getattr(self.engine, name)

        def draw(self, model_id: ModelId, present: list[str]) -> list[str]:
            return [
                name for name in self.engine.draw(model_id, present) if name != "clinic-9" or model_id.branch == 0
            ]

    with History(tmp_path / "history") as history:
        revocable = Revocable(history, Redrawn(simulation(secret_noise=True)))  # type: ignore[arg-type]
        revocable.train(Rounds(4))
        history.requests.ask(pick_names(revocable, 0), BUDGET)
        revocable.forget(Scratch(), Rounds(3))
        history.requests.ask(["clinic-9"], BUDGET)
        (outcome,) = revocable.forget(Sifu(), Rounds(2))
        assert outcome.restart is not None
        assert (outcome.restart.branch.parent, outcome.mode) == (ModelId(1, 0), Mode.EXACT)


def test_a_settled_request_is_not_exact_behind_a_model_that_is_no_mean(revocable: Revocable) -> None:
    history = revocable.history
    for at in (0, 1):
        history.requests.ask(pick_names(revocable, at), BUDGET)
    served = revocable.forget(Scratch(), Rounds(2))
    assert [(each.restart is None, each.mode) for each in served] == [(False, Mode.EXACT), (True, Mode.EXACT)]
    with history.recording(revocable.engine.facts, revocable.engine.start()) as recorder:
        recorder.record_other_mean()
    assert [each.mode for each in history.outcomes()] == [Mode.HEURISTIC] * 2


@pytest.mark.parametrize("first", [Last(), FineTuning()])
def test_everybody_so_far_can_be_asked_for_after_any_method(revocable: Revocable, first: Method) -> None:
    """The second joins late, so that only what the first left has to be hidden with it."""

    class Late:
        def __init__(self, engine: Engine) -> None:
            self.engine = engine

        def __getattr__(self, name: str) -> object:
            return getattr(self.engine, name)

        def draw(self, model_id: ModelId, present: list[str]) -> list[str]:
            late = model_id.branch == 1
            return [name for name in self.engine.draw(model_id, present) if name != "clinic-9" or late]

    with History.in_memory() as history:
        late = replace(revocable, history=history, engine=Late(revocable.engine))
        late.train(Rounds(6))
        history.requests.ask(["clinic-0"], BUDGET)
        late.forget(first, Rounds(3), level=ErasureLevel.OUTPUT)
        history.requests.ask(["clinic-9"], BUDGET, scope=PrivacyScope.SEQUENCE)
        late.forget(Sifu(), Rounds(2), level=ErasureLevel.OUTPUT)
        history.requests.ask(["clinic-1"], BUDGET)
        (last,) = late.forget(Sifu(), Rounds(2))
        assert last.mode in (Mode.INSTANCE, Mode.EXACT)


def test_scores_of_nobody_are_none(revocable: Revocable) -> None:
    class Gone:
        """An engine that does not reach the leaver any more."""

        def __init__(self, engine: Engine) -> None:
            self.engine = engine
            self.clients = tuple(name for name in engine.clients if name != "clinic-0")

        def __getattr__(self, name: str) -> object:
            return getattr(self.engine, name)

    revocable.history.requests.ask(pick_names(revocable, 0), BUDGET)
    (outcome,) = replace(revocable, engine=Gone(revocable.engine)).forget(Last(), Rounds(2))
    assert outcome.scores is not None
    assert outcome.scores.forget is None
    assert outcome.scores.retain is not None


def test_when_everybody_leaves_there_is_nobody_to_train(revocable: Revocable) -> None:
    revocable.history.requests.ask(list(revocable.engine.clients), BUDGET)
    with pytest.raises(ValueError, match="nobody is left who could take part"):
        revocable.forget(Scratch(), Rounds(2))


def test_a_plan_is_that_methods_and_of_that_moment(revocable: Revocable, monkeypatch: pytest.MonkeyPatch) -> None:
    history = revocable.history
    number = history.requests.ask(pick_names(revocable, 0), BUDGET)
    assert revocable.plan(PaperSifu(0.25), number).candidate.sigma == 0.25
    assert revocable.plan(PaperSifu(2.0), number).candidate.sigma == 2.0
    # Somebody trains on while the history is being looked at.
    summary = History.summary

    def slow(self: History, group: object) -> Summary:
        found = summary(self, group)  # type: ignore[arg-type]
        with monkeypatch.context() as once:
            once.setattr(History, "summary", summary)
            add_round(revocable)
        return found

    monkeypatch.setattr(History, "summary", slow)
    late = revocable.plan(Sifu(), number)
    monkeypatch.undo()
    assert history.requests.is_stale(late)
    plan = revocable.plan(Last(), number)
    history.requests.withdraw(number)
    assert history.requests.is_stale(plan)


def test_a_rule_that_looks_at_data_makes_strict_plans_stale(history: History) -> None:
    public = PublicHead(initial_norm=0.0, parameters=21, batch=15)
    revocable = Revocable(history, simulation(public=public, public_schedule=True, secret_noise=True))
    revocable.train(Rounds(5))
    number = history.requests.ask(pick_names(revocable, 0), BUDGET)
    plan = revocable.plan(StrictSifu(), number)
    with history.recording(revocable.engine.facts, revocable.engine.start()) as recorder:
        recorder.record_end_by_data()
    assert history.requests.is_stale(plan)


def test_replies_that_nobody_asked_for_are_refused(revocable: Revocable) -> None:
    class Strange(Average):
        change: dict[str, object] = {}  # noqa: RUF012, set below

        def round(self, engine: Engine, model: object, model_id: ModelId, present: list[str]) -> RoundResult:  # type: ignore[override]
            made = Average.round(self, engine, model, model_id, present)  # type: ignore[arg-type]
            return replace(made, replies=replace(made.replies, **self.change))  # type: ignore[arg-type]

    for change, message in (
        ({"names": ("stranger",)}, "'stranger' replied and was not asked"),
        ({"steps": (0,)}, "made no local step"),
    ):
        server = Strange()
        Strange.change = change
        with pytest.raises(ValueError, match=message):
            replace(revocable, server=server).train(Rounds(9))

    class Changing:
        def __init__(self, engine: Engine) -> None:
            self.engine, self.asked = engine, 0

        def __getattr__(self, name: str) -> object:
            return getattr(self.engine, name)

        @property
        def facts(self) -> Facts:
            self.asked += 1
            return self.engine.facts if self.asked < 8 else replace(self.engine.facts, redrawn_rounds=True)

    with pytest.raises(ValueError, match="facts have changed meanwhile"):
        replace(revocable, engine=Changing(revocable.engine)).train(Rounds(20))


class Cut:
    """An engine that dies before a round."""

    def __init__(self, engine: Engine, before: ModelId) -> None:
        self.engine, self.before = engine, before

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)

    def train(self, model: object, model_id: ModelId, names: object) -> Replies:
        if model_id == self.before:
            raise CutOffError
        return self.engine.train(model, model_id, names)  # type: ignore[arg-type]


def test_a_branch_goes_on_when_the_model_it_began_with_is_not_kept_any_more(history: History) -> None:
    revocable = Revocable(history, simulation(secret_noise=True), capacity=2)
    revocable.train(Rounds(6))
    history.requests.ask(pick_names(revocable, 0), BUDGET)
    with pytest.raises(CutOffError):
        replace(revocable, engine=Cut(revocable.engine, ModelId(1, 12))).forget(FineTuning(), Rounds(14))
    assert ModelId(0, 6) not in history.kept()
    (outcome,) = revocable.forget(FineTuning(), Rounds(14))
    assert outcome.rounds == 14


def test_what_is_no_method_or_rule_is_refused_before_anything_is_done(revocable: Revocable) -> None:
    history = revocable.history
    number = history.requests.ask(pick_names(revocable, 0), BUDGET)
    entries = len(entries_of(history))

    class Nameless(Heuristic):
        """No dataclass: a plan of one could be carried out by another."""

        name = "Nameless"
        why = "for tests"

        def node(self, summary: Summary) -> Node:
            return summary.kept[0]

    for call, message in (
        (lambda: revocable.forget(Last(), 3), r"until is 3; give a rule such as Rounds\(10\)"),  # type: ignore[arg-type]
        (lambda: revocable.train(3), "until is 3"),  # type: ignore[arg-type]
        (lambda: revocable.forget(Last, Rounds(3)), r"is no method: give one such as Sifu\(\)"),  # type: ignore[arg-type]
        (lambda: revocable.plan(Sifu, number), "is no method"),  # type: ignore[arg-type]
        (lambda: revocable.forget(Nameless(), Rounds(3)), "Nameless has to be a dataclass"),
        (lambda: Rounds(2.5), "a branch of 2.5 rounds"),  # type: ignore[arg-type]
        (lambda: PaperSifu(-1.0), "sigma is -1"),
        (lambda: replace(revocable, seed="x"), "seed"),  # type: ignore[arg-type]
        (lambda: history.requests.ask("clinic-1", BUDGET), "give a list of names"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert len(entries_of(history)) == entries
    with pytest.raises(UnknownClientError, match="did you mean 'clinic-1'"):
        history.requests.ask(["Clinic-1"], BUDGET)
    history.requests.withdraw(number)
    assert history.requests.ask(pick_names(revocable, 0), BUDGET) > number


def test_noised_rounds_that_could_claim_nothing_are_refused_before_training(history: History) -> None:
    noised = NoisedAverage(0.5, 7.0, 2.0)
    engine = simulation(training=replace(TRAINING, clips_updates=True), public=noised.facts, secret_noise=True)
    with pytest.raises(ValueError, match="say public_schedule=True from the start"):
        Revocable(history, engine, server=noised)


def test_a_network_is_recorded_and_forgotten_without_a_claim() -> None:
    rng = np.random.default_rng(0)
    shards = {
        f"phone-{at}": Shard(rng.normal(size=(6, 1, 18, 18)).astype(np.float32), rng.integers(0, 2, 6))
        for at in range(4)
    }
    engine = Simulation(
        ImageFederation(shards, shards["phone-0"], 2),
        Network(channels=1, size=18, classes=2, hidden=4),
        LocalTraining(2, 0.05, NetworkLoss(), precision="float32"),
        batch=3,
        secret=b"phones",
    )
    with History.in_memory() as history:
        revocable = Revocable(history, engine)
        revocable.train(Rounds(3))
        assert all(edge.rounding > 0 for edge in history.lineage().edges)
        history.requests.ask(["phone-1"], Budget(10.0, 0.01))
        (last,) = revocable.forget(Last(), Rounds(1))
        assert last.mode is Mode.HEURISTIC
        history.requests.ask(["phone-2"], Budget(10.0, 0.01))
        (scratch,) = revocable.forget(Scratch(), Rounds(1))
        assert scratch.mode is Mode.EXACT
        assert history.integrity.verify() == []


def test_a_model_is_released_unless_it_knows_who_waits(revocable: Revocable, tmp_path: Path) -> None:
    assert revocable.release(tmp_path / "model.safetensors") == ModelId(0, 6)
    with (tmp_path / "model.safetensors").open("rb") as file:
        released = dict(read(file))
    assert digest(released) == revocable.history.kept()[ModelId(0, 6)]
    revocable.history.requests.ask(pick_names(revocable, 0), BUDGET)
    with pytest.raises(PendingRequestError, match="call forget first"):
        revocable.release(tmp_path / "other.safetensors")
    assert not (tmp_path / "other.safetensors").exists()
    (outcome,) = revocable.forget(Scratch(), Rounds(2))
    assert str(outcome) == "request 1 is served (exact): back to model 0.0, 2 rounds since"


@pytest.mark.parametrize("method", [Sifu(), PaperSifu(4.0), Last()])
def test_a_plan_computes_the_sensitivity_once(
    method: Method, revocable: Revocable, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[object] = []

    def counting(*arguments: Any) -> Any:
        computed.append(arguments)
        return group_sensitivity(*arguments)

    monkeypatch.setattr(planning, "group_sensitivity", counting)
    revocable.plan(method, revocable.history.requests.ask(pick_names(revocable, 0), BUDGET))
    assert len(computed) == 1


def test_noise_off_the_public_list_proves_nothing(revocable: Revocable) -> None:
    @dataclass(frozen=True)
    class Odd(PaperSifu):
        def plan(self, summary: Summary, *requests: Request) -> Candidate:
            return paper_choice(summary, *requests, sigma=self.sigma)

    number = revocable.history.requests.ask(pick_names(revocable, 0), BUDGET)
    plan = revocable.plan(Odd(4.1), number).candidate
    assert (plan.mode, plan.sigma) == (Mode.HEURISTIC, 4.1)
    assert any("not on the public list" in obstacle for obstacle in plan.obstacles)


def test_nothing_is_planned_where_nothing_was_recorded() -> None:
    with History.in_memory() as history, pytest.raises(NoHistoryError, match="nothing has been recorded"):
        Revocable(history, simulation(secret_noise=True)).plan(Scratch(), 1)
