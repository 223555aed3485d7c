"""Solving: the loop, what later leavers' bounds are worth at its models, its certificates, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

from rescind import (
    Budget,
    Facts,
    History,
    Last,
    LocalTraining,
    NetworkLoss,
    Revocable,
    Rounds,
    Sampling,
    Scratch,
    SoftmaxL2,
)
from rescind.audit.replay import distance
from rescind.certificates.envelope import sign
from rescind.certificates.errors import InconsistentCertificateError
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.core.arrays import Tensor
from rescind.core.edges import NO_BOUND, AbsentRound, ModelId, RoundEdge
from rescind.core.facts import DpFedAvg, Mode, PublicHead, Source, Sources, Stages
from rescind.core.sensitivity import client_sensitivities, group_sensitivity
from rescind.core.solver import Solving
from rescind.core.strict import release_mu, strict_sensitivity
from rescind.core.sums import Wanted
from rescind.core.tracker import SensitivityTracker
from rescind.engines.clinics import Clinics
from rescind.engines.engine import Answers, Doubt
from rescind.engines.server import norm
from rescind.history.events import RepliesRejected
from rescind.methods import Solve
from rescind.pages.certificate import render_certificate
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.testing.small import TRAINING, federation
from tests.builders import BUDGET, SIGNER, everybody


def engine(clients: int = 6, seed: int = 0, without: Sequence[str] = (), **options: Any) -> Simulation:
    """Return the small federation, everybody in every round; ``without`` some of its clients."""
    if not without:
        return everybody(clients, seed, **options)
    whole = federation(clients, seed)
    shards = {name: shard for name, shard in whole.shards.items() if name not in without}
    head = SoftmaxHead(*whole.inputs, whole.classes)
    return Simulation(Federation(shards, whole.test, whole.classes), head, TRAINING, secret=b"others")


class Wrapped:
    """A simulation in which a test changes something; ``asked`` is for its questions to be counted."""

    def __init__(self, whole: Simulation) -> None:
        self.whole, self.asked = whole, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.whole, name)


def solved(engine: Simulation, solving: Solving | None = None) -> tuple[dict[str, Tensor], int]:
    """Solve from theta_0^0, and return the model and the rounds it took."""
    with History.in_memory() as history:
        newest = Revocable(history, engine).solve(solving or Solving())
        return history.model(newest), newest.round


# Forgetting


def test_a_client_is_forgotten_exactly_and_the_model_is_the_one_that_never_knew_it(history: History) -> None:
    federation = Revocable(history, engine())
    federation.train(Rounds(4))
    history.requests.ask(["clinic-2"], BUDGET)
    (outcome,) = federation.forget(Solve(), until=Rounds(4))
    other, rounds = solved(engine(without=["clinic-2"]))
    assert outcome.mode is Mode.EXACT
    assert outcome.rounds == rounds <= 8
    # The same operations on the same numbers: the same bits.
    assert distance(history.model(history.newest), other) == 0


def test_whoever_left_with_noise_is_forgotten_exactly_once_others_are_solved_away(history: History) -> None:
    """What is solved goes back to before everybody, the noise included."""
    federation = Revocable(history, engine())
    federation.train(Rounds(4))
    history.requests.ask(["clinic-2"], BUDGET)
    (first,) = federation.forget(Last(), until=Rounds(2))
    assert first.mode is Mode.INSTANCE
    history.requests.ask(["clinic-4"], BUDGET)
    federation.forget(Solve(), until=Rounds(2))
    assert [outcome.mode for outcome in history.outcomes()] == [Mode.EXACT] * 2


def test_a_clinic_of_the_readme_leaves_in_four_rounds(history: History) -> None:
    federation = Revocable(history, Clinics(200), scored=False)
    federation.train(Rounds(1))
    history.requests.ask(["clinic-7"], Budget(3.0, 1e-5))
    (outcome,) = federation.forget(Solve(), until=Rounds(20))
    assert (outcome.mode, outcome.rounds) == (Mode.EXACT, 4)


def test_half_of_them_leave_together(history: History) -> None:
    federation = Revocable(history, engine())
    federation.train(Rounds(4))
    history.requests.ask(["clinic-0", "clinic-2", "clinic-4"], BUDGET)
    (outcome,) = federation.forget(Solve(), until=Rounds(4))
    assert outcome.mode is Mode.EXACT
    assert (
        distance(history.model(history.newest), solved(engine(without=["clinic-0", "clinic-2", "clinic-4"]))[0]) == 0
    )


def test_what_the_leaver_had_decides_nothing(history: History) -> None:
    whole = federation(6, 0)
    models, printed = [], []
    for labels in (whole.shards["clinic-1"].labels, np.zeros_like(whole.shards["clinic-1"].labels)):
        shards = dict(whole.shards) | {"clinic-1": Shard(whole.shards["clinic-1"].features * 3, labels)}
        changed = Simulation(
            Federation(shards, whole.test, whole.classes),
            SoftmaxHead(*whole.inputs, whole.classes),
            TRAINING,
            secret=b"the same",
        )
        with History.in_memory() as history:
            revocable = Revocable(history, changed)
            revocable.train(Rounds(3))
            history.requests.ask(["clinic-1"], BUDGET)
            (outcome,) = revocable.forget(Solve(), until=Rounds(3))
            models.append(history.model(history.newest))
            printed.append(str(outcome))
    assert distance(*models) == 0
    assert printed[0] == printed[1]


def test_a_solve_that_was_cut_off_goes_on_and_ends_at_the_same_solution(history: History) -> None:
    class CutOff(Wrapped):
        """Fails at its third question."""

        def sums(self, *question: Any) -> Answers:
            self.asked += 1
            if self.asked == 3:
                raise ConnectionError("the network is gone")
            return self.whole.sums(*question)

    whole = engine()
    Revocable(history, whole).train(Rounds(3))
    history.requests.ask(["clinic-2"], BUDGET)
    with pytest.raises(ConnectionError):
        Revocable(history, CutOff(whole)).forget(Solve(), until=Rounds(3))  # type: ignore[arg-type]
    assert history.newest == ModelId(1, 2)
    with pytest.raises(ValueError, match="is being served by solve"):
        Revocable(history, whole).forget(Scratch(), until=Rounds(3))
    (outcome,) = Revocable(history, whole).forget(Solve(), until=Rounds(3))
    assert outcome.mode is Mode.EXACT
    apart = distance(history.model(history.newest), solved(engine(without=["clinic-2"]))[0])
    assert apart <= 2 * Solving().tolerance / TRAINING.loss.l2  # type: ignore[attr-defined]


def test_clients_who_drop_out_are_left_out_from_there_on(history: History) -> None:
    class Leaves(Wrapped):
        """clinic-3 does not answer after the first question."""

        def sums(
            self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str], wanted: Wanted, doubt: Doubt
        ) -> Answers:
            self.asked += 1
            answering = [name for name in names if name != "clinic-3" or self.asked == 1]
            return replace(self.whole.sums(model, model_id, answering, wanted, doubt), silent=("clinic-3",))

    newest = Revocable(history, Leaves(engine())).solve()  # type: ignore[arg-type]
    apart = distance(history.model(newest), solved(engine(without=["clinic-3"]))[0])
    assert apart <= 2 * Solving().tolerance / TRAINING.loss.l2  # type: ignore[attr-defined]
    last = list(history.lineage().edges)[-1]
    assert isinstance(last, RoundEdge)
    assert len(last.clients) == 5


def test_clients_who_come_and_go_do_not_keep_a_solve_from_ending(history: History) -> None:
    class ComesAndGoes(Wrapped):
        """Every question one of clinic-3, clinic-4 and clinic-5 does not answer, in turn."""

        def sums(
            self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str], wanted: Wanted, doubt: Doubt
        ) -> Answers:
            self.asked += 1
            answering = [name for name in names if name != f"clinic-{3 + self.asked % 3}"]
            return self.whole.sums(model, model_id, answering, wanted, doubt)

    newest = Revocable(history, ComesAndGoes(engine())).solve(Solving(most_rounds=20))  # type: ignore[arg-type]
    others = solved(engine(without=["clinic-3", "clinic-4", "clinic-5"]))[0]
    assert newest.round <= 10
    assert distance(history.model(newest), others) <= 2 * Solving().tolerance / TRAINING.loss.l2  # type: ignore[attr-defined]


def test_rounds_of_training_are_not_the_solvers(history: History) -> None:
    federation = Revocable(history, engine())
    federation.train(Rounds(12))
    newest = federation.solve(Solving(most_rounds=10))
    assert newest.round > 12
    assert distance(history.model(newest), solved(engine())[0]) <= 2 * Solving().tolerance / TRAINING.loss.l2  # type: ignore[attr-defined]


def test_nobody_answers_and_the_solve_still_ends(history: History, caplog: pytest.LogCaptureFixture) -> None:
    class Silent(Wrapped):
        def sums(self, *_: Any) -> Answers:
            return Answers.collect([], silent=("clinic-0",))

    newest = Revocable(history, Silent(engine())).solve(Solving(most_rounds=4))  # type: ignore[arg-type]
    assert newest == ModelId(0, 4)
    assert distance(history.model(newest), engine().start()) == 0
    assert "branch 0 is not solved: its rounds were used up" in caplog.text


def test_a_solve_logs_how_far_its_gradient_is(history: History, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "flwr"):
        Revocable(history, engine()).solve(Solving(tolerance=0.001))
    lines = [record.getMessage() for record in caplog.records if ", solving, round " in record.getMessage()]
    assert len(lines) == history.newest.round
    assert all(
        re.search(r" of at most 100: \d+ of \d+ replied, gradient \S+, solved at 0.001$", line) for line in lines
    )


def test_a_solution_is_not_said_to_be_missing(history: History, caplog: pytest.LogCaptureFixture) -> None:
    Revocable(history, engine()).solve(Solving(most_rounds=solved(engine())[1]))
    assert "not solved" not in caplog.text


def test_who_has_too_few_rows_does_not_answer(history: History) -> None:
    whole = federation(4, 0)
    few = Shard(whole.shards["clinic-0"].features[:9], whole.shards["clinic-0"].labels[:9])
    small = Simulation(
        Federation(dict(whole.shards) | {"clinic-0": few}, whole.test, whole.classes),
        SoftmaxHead(*whole.inputs, whole.classes),
        TRAINING,
        secret=b"few",
    )
    Revocable(history, small).solve()
    assert any(history.timeline.of(RepliesRejected))
    assert all(len(edge.clients) == 3 for edge in history.lineage().edges if isinstance(edge, RoundEdge))


@pytest.mark.parametrize("most_bytes", [100_000, 800, 100])
def test_every_kind_of_curvature_finds_the_same_solution(most_bytes: int) -> None:
    best, _ = solved(engine())
    found, _ = solved(engine(), Solving(most_bytes=most_bytes))
    assert distance(found, best) <= 2 * Solving().tolerance / TRAINING.loss.l2  # type: ignore[attr-defined]


# What is known of later leavers


@pytest.mark.parametrize("seed", range(4))
def test_who_leaves_after_a_solve_is_no_further_than_the_bound(history: History, seed: int) -> None:
    Revocable(history, engine(seed=seed)).solve()
    names = [f"clinic-{at}" for at in range(6)]
    path = history.lineage()
    for group in (names[:1], names[3:4], names[:2], names[1:4], names[1:]):
        clients = history.participants.find(group)
        bounds = group_sensitivity(path.edges, clients)
        apart = distance(history.model(history.newest), solved(engine(seed=seed, without=group))[0])
        assert apart <= bounds[-1] <= 100
        # Nothing is known of the iterates.
        assert (bounds[1:-1] >= NO_BOUND).all()
        alone, lazy = sorted(clients), SensitivityTracker()
        for edge in path.edges:
            lazy.record(edge)
        known = lazy.sensitivities(np.array(alone, dtype=np.int64))
        assert known == pytest.approx(client_sensitivities(path.edges, alone, [len(path.edges)])[0], rel=1e-6)
    assert group_sensitivity(path.edges, history.participants.find(names))[-1] >= NO_BOUND


def test_a_solve_bounds_anew_whoever_took_part_before_it_and_did_not_answer(history: History) -> None:
    class Absent(Wrapped):
        def sums(self, model: Any, model_id: Any, names: Sequence[str], wanted: Wanted, doubt: Doubt) -> Answers:
            return self.whole.sums(model, model_id, [name for name in names if name != "clinic-5"], wanted, doubt)

    federation = Revocable(history, Absent(engine()))  # type: ignore[arg-type]
    federation.train(Rounds(3))
    federation.solve()
    edges = history.lineage(group=history.participants.find(["clinic-5"])).edges
    assert any(isinstance(edge, AbsentRound) for edge in edges)
    bounds = group_sensitivity(edges, history.participants.find(["clinic-5"]))
    assert 0 < bounds[3] < NO_BOUND <= bounds[4]
    loss = TRAINING.loss
    assert bounds[-1] == pytest.approx(2 * Solving().tolerance / loss.l2, rel=1e-4)  # type: ignore[attr-defined]


def test_a_later_leaver_is_hidden_by_noise_at_the_solution(history: History) -> None:
    federation = Revocable(history, engine(40))
    federation.solve()
    federation.train(Rounds(history.newest.round + 5))
    history.requests.ask(["clinic-7"], BUDGET)
    (outcome,) = federation.forget(Last(), until=Rounds(3))
    assert outcome.mode is Mode.INSTANCE
    said = build_statement(history, 1).predicate
    assert "where the head was solved, the other world solves it for the others" in said.counterfactual


def test_rounds_of_a_solver_are_not_taken_for_rounds_of_training(history: History) -> None:
    """Retraining takes as long as it takes, however short the solve was."""
    federation = Revocable(history, engine(40))
    newest = federation.solve()
    retrained = history.summary(history.participants.find(["clinic-7"])).curve.rounds
    assert newest.round < 7
    assert retrained > 2 * newest.round
    with History.in_memory() as other:
        losses: list[float] = []
        alone = engine(40, without=["clinic-7"])
        solution = solved(engine(40, without=["clinic-7"]))[0]

        def watch(_: ModelId, model: Mapping[str, Tensor]) -> None:
            losses.append(mean_loss(alone, model) - mean_loss(alone, solution))

        Revocable(other, alone, watch=watch).train(Rounds(60))
    needed = 1 + next(at for at, above in enumerate(losses) if above <= 1e-3 * losses[0])
    # A solve leaves two models to guess from.
    assert needed / 3 <= retrained <= 2 * needed


def mean_loss(whole: Simulation, model: Mapping[str, Tensor]) -> float:
    total = whole.sums(model, ModelId(0, 1), whole.clients, Wanted.GRADIENT).total
    assert total is not None
    return total.loss / total.rows + TRAINING.loss.l2 / 2 * norm(model) ** 2  # type: ignore[attr-defined]


def test_nothing_strict_is_said_behind_a_solve(history: History) -> None:
    loss = TRAINING.loss
    public = PublicHead(0.0, 21, 15)
    facts = Facts(replace(TRAINING, learning_rate=0.5), Sampling.EVERYBODY, True, False, True, True, public)
    assert facts.strict_obstacles == ()
    Revocable(history, engine()).solve()
    for group in (["clinic-0"], []):
        clients = history.participants.find(group)
        bounds = strict_sensitivity(history.lineage().edges, clients, facts.head_bound())
        assert np.isinf(bounds[1:]).all()
    assert np.isinf(release_mu(history.lineage().edges, history.participants.find(["clinic-0"]), 1.0)[1:]).all()
    assert loss.curvature is not None


# Certificates


def test_a_certificate_says_that_the_head_was_solved(history: History) -> None:
    federation = Revocable(history, engine())
    federation.train(Rounds(4))
    history.requests.ask(["clinic-2"], BUDGET)
    federation.forget(Solve(), until=Rounds(4))
    found = build_statement(history, 1)
    said = found.predicate
    assert said.mode == "exact"
    assert said.solving is not None
    assert said.solving.tolerance == 1e-5
    assert "all other participants who could be reached were asked in the solve" in said.counterfactual
    assert any("solver's settings" in each.what for each in said.assumptions)
    content = sign(found, [SIGNER])
    assert verify(content, [SIGNER.public_key], history=history).since == ()
    for changes in (
        {"solving": None},
        {"facts": said.facts.model_copy(update={"solved": False})},
        {"training": said.training.model_copy(update={"l2": 0.0})},
        {"not_claimed": said.not_claimed[:-1]},
    ):
        lie = found.model_copy(update={"predicate": said.model_copy(update=changes)})
        with pytest.raises(InconsistentCertificateError):
            verify(sign(lie, [SIGNER]), [SIGNER.public_key])


def test_a_claim_says_that_it_rests_on_a_solve_also_after_a_later_restart_that_trained(history: History) -> None:
    federation = Revocable(history, engine(40))
    federation.train(Rounds(2))
    history.requests.ask(["clinic-2"], BUDGET)
    federation.forget(Solve(), until=Rounds(2))
    history.requests.ask(["clinic-3"], BUDGET)
    federation.forget(Last(), until=Rounds(2))
    for number, mode in ((1, "exact"), (2, "instance")):
        predicate = build_statement(history, number).predicate
        assert (predicate.mode, predicate.solving) == (mode, None)
        assert any("solver's settings" in assumption.what for assumption in predicate.assumptions)
        assert "sums over one participant's rows" in predicate.not_claimed[-1]


def test_a_page_does_not_say_that_a_solve_which_ran_out_of_rounds_found_the_solution(history: History) -> None:
    federation = Revocable(history, engine())
    federation.train(Rounds(2))
    history.requests.ask(["clinic-2"], BUDGET)
    federation.forget(Solve(Solving(most_rounds=1)), until=Rounds(2))
    content = sign(build_statement(history, 1), [SIGNER])
    page = render_certificate(verify(content, [SIGNER.public_key]), "today")
    assert "for 1 rounds, which did not reach" in page
    assert verify(content, [SIGNER.public_key], history=history).statement.predicate.solving.solved is False


# What is refused


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda whole, *question: whole.sums(*question[:2], whole.clients, question[3]), "was not asked"),
        (lambda whole, *question: replace(whole.sums(*question), rejected={"clinic-2": "late"}), "was not asked"),
        (
            lambda whole, *question: replace(whole.sums(*question), names=(), weights=np.empty(0), gradients=()),
            "those who answered have 0",
        ),
        (lambda whole, *question: replace(whole.sums(*question), total=None), "the total is over 0 rows"),
    ],
)
def test_an_engine_that_contradicts_itself_is_refused(history: History, lie: Any, words: str) -> None:
    class Lies(Wrapped):
        def sums(self, *question: Any) -> Answers:
            answers: Answers = lie(self.whole, *question)
            return answers

    federation = Revocable(history, Lies(engine()))  # type: ignore[arg-type]
    federation.train(Rounds(2))
    history.requests.ask(["clinic-2"], BUDGET)
    with pytest.raises(ValueError, match=words):
        federation.forget(Solve(), until=Rounds(2))
    assert history.newest == ModelId(1, 0)


@pytest.mark.parametrize(
    ("l2", "tolerance"), [(0.02, 1e99), (0.02, 1e300), (1e-60, 0.1), (1e-106, 0.1)], ids=["99", "300", "60", "106"]
)
def test_a_solution_that_nothing_is_known_of_is_a_step(history: History, l2: float, tolerance: float) -> None:
    training = LocalTraining(steps=3, learning_rate=1.0, loss=SoftmaxL2(l2=l2, row_norm=1.0))
    revocable = Revocable(history, everybody(4, training=training))
    revocable.solve(Solving(tolerance=tolerance))
    assert history.integrity.verify() == []
    history.requests.ask(["clinic-0"], BUDGET)
    (outcome,) = revocable.forget(Scratch(), Rounds(1))
    assert outcome.mode is Mode.EXACT


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training": LocalTraining(3, 0.1, NetworkLoss())}, "only a softmax, logistic or ridge head"),
        ({"public": DpFedAvg(1.0, 1.0, 4.0, True, True, True, True)}, "DP-FedAvg"),
        ({"sources": Sources()}, "declared"),
        ({"sources": Sources(training=Source.EXECUTED, distances=Source.REPORTED)}, "masked"),
        ({"equal_weights": True}, "weigh the same"),
    ],
)
def test_what_cannot_be_solved_says_why(changes: dict[str, Any], words: str) -> None:
    facts = replace(engine().facts, **changes)
    assert any(words in obstacle for obstacle in facts.solving_obstacles)


def test_an_engine_without_sums_says_so(history: History) -> None:
    class Trains(Wrapped):
        def __getattr__(self, name: str) -> object:
            if name == "sums":
                raise AttributeError(name)
            return super().__getattr__(name)

    federation = Revocable(history, Trains(engine()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Trains has no sums"):
        federation.solve()
    federation.train(Rounds(2))
    history.requests.ask(["clinic-1"], BUDGET)
    with pytest.raises(ValueError, match="Trains has no sums"):
        federation.forget(Solve(), until=Rounds(2))


def test_a_body_is_not_trained_for_clients_who_cannot_answer(history: History) -> None:
    class Untold:
        facts = replace(
            Clinics.facts,
            training=LocalTraining.own_code("float64"),
            stages=Stages(2, ("head.weight", "head.bias"), SoftmaxL2(l2=0.01, row_norm=1.0)),
        )
        clients = ("clinic-0", "clinic-1")
        anchors: ClassVar = {"clinic-0": "clinic-0"}

        def start(self) -> dict[str, Tensor]:
            return {"body": np.ones(2), "head.weight": np.zeros((3, 2)), "head.bias": np.zeros(3)}

        def draw(self, *_: Any) -> list[str]:
            raise AssertionError("an anchor was drawn")

    with pytest.raises(ValueError, match="Untold has no sums"):
        Revocable(history, Untold()).solve()  # type: ignore[arg-type]


def test_equal_weights_are_not_solved(history: History) -> None:
    federation = Revocable(history, engine(equal_weights=True))
    federation.train(Rounds(2))
    history.requests.ask(["clinic-1"], BUDGET)
    with pytest.raises(ValueError, match="weigh the same"):
        federation.forget(Solve(), until=Rounds(2))


@pytest.mark.parametrize("changes", [{"tolerance": 0.0}, {"most_bytes": -1}, {"most_rounds": 2.5}])
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        Solving(**changes)


def test_a_certificate_says_whether_a_solve_ended_with_the_solution(history: History) -> None:
    federation = Revocable(history, engine())
    federation.solve(Solving(most_rounds=2))
    assert not history.timeline.solved
    federation.solve()
    assert history.timeline.solved == {history.newest}
    history.requests.ask(["clinic-2"], BUDGET)
    federation.forget(Last(), Rounds(0))
    said = build_statement(history, 1).predicate
    assert said.mode == "instance"
    assert any("a solve ended with the solution" in constant for constant in said.constants)
    for number, most in ((2, 1), (3, 100)):
        history.requests.ask([f"clinic-{number + 1}"], BUDGET)
        federation.forget(Solve(Solving(most_rounds=most)), Rounds(0))
        solving = build_statement(history, number).predicate.solving
        assert solving is not None
        assert solving.solved is (most == 100)


def test_how_many_rounds_a_solve_takes_does_not_decide_what_is_kept_before_it() -> None:
    kept = []
    for rounds in (3, 9):
        with History.in_memory() as history:
            federation = Revocable(history, engine(), capacity=4)
            federation.train(Rounds(5))
            federation.solve(Solving(most_rounds=rounds, tolerance=1e-15, most_bytes=100))
            assert history.newest.round == 5 + rounds
            kept.append(set(history.kept()) - {history.newest})
            assert not list(history.integrity.verify())
    assert kept[0] == kept[1]
    assert ModelId(0, 5) in kept[0]
    assert len(kept[0]) == 5
