"""A whole run on any engine: who asks is forgotten, also meanwhile, and no model that may know them is handed out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rescind import (
    Budget,
    Curvature,
    DeclaredLoss,
    Exact,
    History,
    Last,
    NetworkLoss,
    PaperSifu,
    Revocable,
    Rounds,
    Scratch,
    Sifu,
    Solve,
    StrictSifu,
)
from rescind.audit.replay import distance
from rescind.core.arrays import Tensor
from rescind.core.calibration import ClassicBudget
from rescind.core.edges import ModelId
from rescind.core.facts import PublicHead
from rescind.engines.server import NoisedAverage
from rescind.history.outcomes import Outcome
from rescind.history.timeline import Timeline
from rescind.ledger.records import Branch, Entry
from rescind.methods import Dp, FineTuning, Method
from rescind.serving import StopServing, TotalRounds, choose_method, serve
from rescind.simulation import Federation, Simulation, SoftmaxHead
from rescind.testing import small
from rescind.testing.small import TRAINING
from rescind.views.clients import list_clients
from tests.builders import BUDGET, everybody
from tests.history.ledger_suite import NOW


class Shelf:
    """An outlet that remembers what was there."""

    def __init__(self) -> None:
        self.told: list[ModelId | None] = []

    def put(self, model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        assert model
        self.told.append(model_id)

    def clear(self) -> None:
        self.told.append(None)


def test_nobody_asks(history: History) -> None:
    shelf = Shelf()
    model = serve(Revocable(history, everybody(6)), Rounds(3), outlet=shelf)
    assert shelf.told == [ModelId(0, 3)] == [history.newest]
    assert distance(model, history.model(history.newest)) == 0


def test_who_asks_meanwhile_is_served_and_the_model_taken_back(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    served: list[Outcome] = []
    shelf = Shelf()

    def ask(model_id: ModelId, _: object) -> None:
        if model_id == ModelId(0, 4):
            history.requests.ask(["clinic-1"], BUDGET)

    federation = Revocable(history, everybody(6), watch=ask)
    serve(federation, Rounds(2), outlet=shelf)
    serve(federation, Rounds(6), Exact(), outlet=shelf, served=served.append)
    assert history.newest_of(0) == ModelId(0, 4)
    assert [outcome.asked.number for outcome in served] == [1]
    assert shelf.told[0] == ModelId(0, 2)
    assert None in shelf.told[1:]
    taken = [record.getMessage() for record in caplog.records if "taken away" in record.getMessage()]
    assert taken == [
        "rescind: the released model is taken away, as it may know who asks to be forgotten in request 1; there "
        "is one again once that is served"
    ]
    # Between the request and the end of forgetting nothing is there, and then what was trained without it.
    assert shelf.told[-1] == ModelId(1, 6) == history.newest
    assert set(shelf.told[1:-1]) <= {None, ModelId(1, 6)}


NOISED = NoisedAverage(clip=0.5, denominator=10.0, noise_multiplier=2.0)
SETTINGS: dict[str, dict[str, Any]] = {
    "a head": {},
    "a head with public constants": {
        "public": PublicHead(initial_norm=0.0, parameters=21, batch=15),
        "public_schedule": True,
    },
    "a network": {"training": replace(TRAINING, loss=NetworkLoss())},
    "a network with momentum": {"training": replace(TRAINING, loss=NetworkLoss(), momentum=0.9)},
    "a smooth loss": {"training": replace(TRAINING, loss=DeclaredLoss(Curvature(-0.1, 0.1)))},
    "DP-FedAvg": {
        "training": replace(TRAINING, clips_updates=True),
        "public": NOISED.facts,
        "public_schedule": True,
    },
}
METHODS = [
    *(Sifu(), StrictSifu(), Scratch(), Exact(), Last(), FineTuning(), Dp(), Solve()),
    # Every sigma of the paper's Table 2, and one of the public list.
    *(PaperSifu(0.05), PaperSifu(0.1), PaperSifu(0.25)),
]
HEADS = {"a head", "a head with public constants"}
# Where a method can serve nobody; everywhere else it has to serve.
REFUSED = {
    "strict SIFU": SETTINGS.keys() - {"a head with public constants", "DP-FedAvg"},
    "DP": SETTINGS.keys() - {"DP-FedAvg"},
    "solve": SETTINGS.keys() - HEADS,
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_what_a_method_cannot_do_is_said_before_anything_is_trained_or_taken_away(
    setting: str, method: Method, history: History
) -> None:
    options = SETTINGS[setting]
    server = {"server": NOISED} if setting == "DP-FedAvg" else {}
    federation, shelf = Revocable(history, everybody(12, **options), **server), Shelf()
    if setting in REFUSED.get(method.name, ()):
        with pytest.raises(ValueError, match=f"nobody can be forgotten by {method.name} here"):
            serve(federation, Rounds(4), method, outlet=shelf)
        assert shelf.told == []
        assert not history.timeline.branches
        return
    serve(federation, Rounds(4), method, outlet=shelf)
    history.requests.ask(["clinic-1"], Budget(10.0, 0.01))
    serve(federation, Rounds(4), method, outlet=shelf)
    assert len(history.outcomes()) == 1
    assert shelf.told[-1] == history.newest


def test_what_a_method_cannot_do_any_more_is_said_before_anything_is_trained_or_taken_away(history: History) -> None:
    federation, shelf = Revocable(history, everybody(12, **SETTINGS["a head with public constants"])), Shelf()
    serve(federation, Rounds(4), Sifu(), outlet=shelf)
    history.requests.ask(["clinic-1"], ClassicBudget(10.0, 0.01))
    placed = list(shelf.told)
    with pytest.raises(ValueError, match="no plan for request 1, which asks by the paper's noise formula"):
        serve(federation, Rounds(4), StrictSifu(), outlet=shelf)
    assert shelf.told == placed
    serve(federation, Rounds(4), Sifu(), outlet=shelf)
    newest, placed = history.newest, list(shelf.told)
    with pytest.raises(ValueError, match="no plan any more: request 1 was served by a plan that looked at data"):
        serve(federation, Rounds(8), StrictSifu(), outlet=shelf)
    assert (history.newest, shelf.told) == (newest, placed)


def test_the_papers_formula_is_not_for_noise_in_every_round(history: History) -> None:
    federation = Revocable(history, everybody(12, **SETTINGS["DP-FedAvg"]), server=NOISED)
    federation.train(Rounds(2))
    with pytest.raises(ValueError, match="this run has noise in every round"):
        history.requests.ask(["clinic-1"], ClassicBudget(10.0, 0.01))


def test_what_was_solved_to_forget_is_not_trained_on(history: History) -> None:
    federation = Revocable(history, everybody(6))
    serve(federation, Rounds(3))
    history.requests.ask(["clinic-1"], BUDGET)
    serve(federation, Rounds(50), Solve())
    assert history.newest.branch == 1
    assert history.newest.round < 12
    history.requests.ask(["clinic-2"], BUDGET)
    serve(federation, Rounds(50), solve=True)
    assert history.newest.branch == 2
    assert history.newest.round < 12


def test_whoever_comes_after_a_solve_is_solved_for(history: History, caplog: pytest.LogCaptureFixture) -> None:
    """Those who are new, who were readmitted, and who were away while the head was solved."""

    def connected(*away: str) -> Revocable:
        whole = small.federation(8)
        shards = {name: shard for name, shard in whole.shards.items() if name not in away}
        return Revocable(history, of(Federation(shards, whole.test, whole.classes)))

    serve(connected("clinic-6", "clinic-7"), Rounds(3))
    history.requests.ask(["clinic-1"], BUDGET)
    serve(connected("clinic-5", "clinic-6", "clinic-7"), Rounds(50), Solve())
    assert inside(history) == {"clinic-0", "clinic-2", "clinic-3", "clinic-4"}
    assert "left out of model 1." in caplog.text
    assert "clinic-5 (in no round that is still recorded)" in caplog.text
    solved = history.newest
    serve(connected("clinic-5", "clinic-6", "clinic-7"), Rounds(50), Solve())
    assert history.newest == solved
    history.participants.readmit("clinic-1", "a new contract")
    serve(connected("clinic-7"), Rounds(50), Solve())
    assert inside(history) == {f"clinic-{at}" for at in range(7)}
    assert history.newest.branch == 1
    assert history.newest in history.timeline.solved
    caplog.clear()
    serve(connected("clinic-0", "clinic-7"), Rounds(50), Solve())
    assert inside(history) == {f"clinic-{at}" for at in range(7)}
    assert "left out" not in caplog.text


def test_who_is_away_in_mid_solve_is_solved_for_in_the_same_run(history: History) -> None:
    class Faltering(Simulation):
        """Hears nothing of one client in the second round of a solve."""

        turns = 0

        def sums(self, model: Any, model_id: Any, names: Any, *others: Any) -> Any:
            self.turns += 1
            there = [name for name in names if name != "clinic-2" or self.turns != 2]
            return super().sums(model, model_id, there, *others)

    engine = of(small.federation(6), Faltering)
    serve(Revocable(history, engine), Rounds(3))
    history.requests.ask(["clinic-1"], BUDGET)
    serve(Revocable(history, engine), Rounds(50), Solve())
    assert engine.turns > 2
    assert inside(history) == {"clinic-0", "clinic-2", "clinic-3", "clinic-4", "clinic-5"}


def test_two_that_drop_out_in_turn_do_not_keep_a_run_solving(history: History) -> None:
    class Alternating(Simulation):
        """Hears nothing of one of two clients, of the one that was heard in the last solution."""

        asked = 0

        def sums(self, model: Any, model_id: Any, names: Any, *others: Any) -> Any:
            self.asked += 1
            last = max((solved for solved in history.timeline.solved if solved.branch == 1), default=None)
            known = {"clinic-2"} if last is None else {*history.participants.took_part(last)}
            there = [name for name in names if name not in ("clinic-2", "clinic-3") or name not in known]
            return super().sums(model, model_id, there, *others)

    turns, asked = 0, list[int]()

    def rule(*_: object) -> bool:
        nonlocal turns
        turns += 1
        asked.append(engine.asked)
        if turns > 12:
            raise StopServing
        return True

    engine = of(small.federation(6), Alternating)
    serve(Revocable(history, engine), Rounds(3))
    history.requests.ask(["clinic-1"], BUDGET)
    serve(Revocable(history, engine), Rounds(50), Solve(), rule=rule)
    assert asked[5] == asked[-1] > 0


def of(federation: Federation, kind: type[Simulation] = Simulation) -> Any:
    return kind(federation, SoftmaxHead(small.FEATURES, small.CLASSES), TRAINING, secret=b"a federation")


def inside(history: History) -> set[str]:
    return {client.called for client in list_clients(history) if client.inside and not client.left_out}


def test_who_joined_late_is_forgotten_for_the_rounds_since(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    early, whole = everybody(5), everybody(6)
    late = next(name for name in whole.clients if name not in early.clients)
    served: list[Outcome] = []
    serve(Revocable(history, early), TotalRounds(history, 7))
    federation = Revocable(history, whole)
    serve(federation, TotalRounds(history, 10))
    history.requests.ask([late], BUDGET)
    with caplog.at_level("INFO", "flwr"):
        serve(federation, TotalRounds(history, 10), Exact(), served=served.append)
    assert "branch 1, round 1 of 3, about " in caplog.text
    assert (str(served[-1].restart and served[-1].restart.branch.parent), served[-1].rounds) == ("model 0.7", 3)
    # Rounds of the branch before count; after noise they count anew.
    serve(federation, TotalRounds(history, 12), served=served.append)
    assert history.newest == ModelId(1, 5)
    history.requests.ask(["clinic-1"], BUDGET)
    serve(federation, TotalRounds(history, 4), Last(), served=served.append)
    assert history.newest == ModelId(2, 4)
    with pytest.raises(ValueError, match="-1 rounds"):
        TotalRounds(history, -1)


def test_rounds_are_counted_over_more_restarts_than_python_nests_calls() -> None:
    restarts = (Branch(number, "", ModelId(number - 1, 1)) for number in range(1, 2001))
    entries = (Entry(at, "branch", NOW, {}, b"", b"") for at in range(2001))
    timeline = Timeline(tuple(zip(entries, (Branch(0, ""), *restarts), strict=True)))
    rule = TotalRounds(cast(History, SimpleNamespace(timeline=timeline)), 2003)
    assert [rule.reached(rounds, lambda: 0.0) for rounds in (2, 3)] == [False, True]


def test_where_noise_would_prove_nothing_the_choice_is_exact(history: History) -> None:
    assert choose_method(Revocable(history, everybody(6))) == Sifu()
    federation = Revocable(history, everybody(6))
    federation.train(Rounds(1))
    with history.recording(federation.engine.facts, federation.engine.start()) as recorder:
        recorder.doubt("for a test")
    assert choose_method(federation) == Exact()
