"""Between a request and its restart: nothing that knows who leaves is trained on, or shown to anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rescind import History
from rescind.core.edges import ModelId
from rescind.core.rounds import RoundResult
from rescind.engines.engine import Engine
from rescind.engines.server import Average
from rescind.engines.stops import Accuracy, Rounds
from rescind.errors import PendingRequestError
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Last, Scratch
from tests.builders import BUDGET, entries_of, everybody, rounds_joined


@dataclass(frozen=True)
class Meanwhile(Average):
    """Rounds during which something happens."""

    happens: dict[ModelId, Callable[[], object]]

    def round(self, engine: Engine, model: Any, model_id: ModelId, present: Sequence[str]) -> RoundResult:
        made = Average.round(self, engine, model, model_id, present)
        self.happens.get(model_id, lambda: None)()
        return made


class Absent:
    """An engine of whose clients one takes part in some rounds only."""

    def __init__(self, engine: Engine, name: str, present: Callable[[ModelId], bool]) -> None:
        self.engine, self.name, self.present = engine, name, present

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:
        everybody = self.engine.draw(model_id, present)
        return [name for name in everybody if name != self.name or self.present(model_id)]


@dataclass
class Federation:
    """A federation in which everybody takes part, and the models that were shown."""

    history: History
    shown: list[ModelId]
    revocable: Revocable

    def ask(self, client: int) -> int:
        return self.history.requests.ask([f"clinic-{client}"], BUDGET)

    def during(self, happens: dict[ModelId, Callable[[], object]]) -> Revocable:
        return replace(self.revocable, server=Meanwhile(happens))


@pytest.fixture
def federation() -> Iterator[Federation]:
    with History.in_memory() as history:
        shown: list[ModelId] = []
        engine = everybody(6)
        yield Federation(history, shown, Revocable(history, engine, watch=lambda model_id, _: shown.append(model_id)))


def model_ids(branch: int, first: int, last: int) -> list[ModelId]:
    return [ModelId(branch, number) for number in range(first, last + 1)]


def test_training_does_not_begin_while_a_request_waits(federation: Federation) -> None:
    federation.revocable.train(Rounds(4))
    number, entries = federation.ask(1), len(entries_of(federation.history))
    with pytest.raises(PendingRequestError, match=rf"request {number} is open, .*call forget first") as refused:
        federation.revocable.train(Rounds(8))
    assert isinstance(refused.value, ValueError)
    assert len(entries_of(federation.history)) == entries
    assert federation.shown == model_ids(0, 1, 4)
    federation.revocable.forget(Last(), Rounds(2))
    assert federation.revocable.train(Rounds(3)) == ModelId(1, 3)
    assert federation.shown == model_ids(0, 1, 4) + model_ids(1, 1, 3)


def test_a_request_ends_the_training_that_is_under_way(federation: Federation) -> None:
    history, shown = federation.history, federation.shown
    asking = federation.during({ModelId(0, 3): lambda: federation.ask(1)})
    assert asking.train(Rounds(9)) == history.newest == ModelId(0, 3)
    # The round was trained with who asked while it was, so it is recorded; its model is not shown.
    assert max(rounds_joined(history, history.participants.find(["clinic-1"]))) == ModelId(0, 3)
    assert shown == model_ids(0, 1, 2)
    (outcome,) = federation.revocable.forget(Last(), Rounds(2))
    assert outcome.restart is not None
    assert outcome.restart.branch.parent == ModelId(0, 3)
    assert shown == model_ids(0, 1, 2) + model_ids(1, 1, 2)
    assert history.integrity.verify() == []


def test_a_request_that_comes_while_a_model_is_looked_at_ends_the_training(federation: Federation) -> None:
    def watch(model_id: ModelId, _: object) -> None:
        federation.shown.append(model_id)
        if model_id == ModelId(0, 3):
            federation.ask(1)

    assert replace(federation.revocable, watch=watch).train(Rounds(9)) == ModelId(0, 3)
    assert federation.shown == model_ids(0, 1, 3)


def test_a_request_that_comes_while_clients_are_waited_for_ends_the_training(federation: Federation) -> None:
    class Slow:
        """An engine that is asked for its clients before every round."""

        def __init__(self, engine: Engine) -> None:
            self.engine, self.asked = engine, 0

        def __getattr__(self, name: str) -> Any:
            return getattr(self.engine, name)

        @property
        def clients(self) -> tuple[str, ...]:
            self.asked += 1
            if self.asked == 4:
                federation.ask(1)
            return self.engine.clients

    slow = Slow(federation.revocable.engine)
    assert replace(federation.revocable, engine=slow).train(Rounds(9)) == ModelId(0, 3)  # type: ignore[arg-type]
    assert slow.asked == 4


def test_nobody_evaluates_a_model_for_a_rule_once_a_request_is_there(federation: Federation) -> None:
    evaluated: list[int] = []

    class Counted:
        def __init__(self, engine: Engine) -> None:
            self.engine = engine

        def __getattr__(self, name: str) -> Any:
            return getattr(self.engine, name)

        def accuracy(self, model: Any, names: Sequence[str]) -> float | None:
            evaluated.append(federation.history.newest.round)
            return self.engine.accuracy(model, names)

    asking = federation.during({ModelId(0, 3): lambda: federation.ask(1)})
    replace(asking, engine=Counted(asking.engine)).train(Accuracy(1.0, most=9))  # type: ignore[arg-type]
    assert evaluated == [1, 2]


def test_a_request_that_is_taken_back_holds_nothing(federation: Federation) -> None:
    history = federation.history
    federation.revocable.train(Rounds(2))
    number = federation.ask(1)
    assert [asked.number for asked in history.requests.waiting()] == [number]
    history.requests.withdraw(number)
    assert history.requests.waiting() == []
    assert federation.revocable.train(Rounds(4)) == ModelId(0, 4)
    assert federation.shown == model_ids(0, 1, 4)


def test_a_branch_that_knows_who_asks_meanwhile_is_finished_and_not_shown(federation: Federation) -> None:
    history, shown = federation.history, federation.shown
    federation.revocable.train(Rounds(3))
    client = np.array(sorted(history.participants.find(["clinic-2"])))
    first, later = federation.ask(1), list[int]()
    asking = federation.during({ModelId(1, 2): lambda: later.append(federation.ask(2))})
    served = asking.forget(Last(), Rounds(5), level=ErasureLevel.OUTPUT)
    # Who asked is part of the round that was under way, and of none after it.
    assert max(rounds_joined(history, client)) == ModelId(1, 2)
    assert [(outcome.asked.number, outcome.restart and outcome.restart.model_id) for outcome in served] == [
        (first, ModelId(1, 5)),
        (later[0], ModelId(2, 5)),
    ]
    assert shown == [*model_ids(0, 1, 3), ModelId(1, 1), *model_ids(2, 1, 5)]
    assert history.requests.waiting() == []
    assert history.integrity.verify() == []


def test_two_who_wait_hold_back_the_branch_of_the_first(federation: Federation) -> None:
    federation.revocable.train(Rounds(3))
    federation.ask(1)
    federation.ask(2)
    federation.revocable.forget(Last(), Rounds(2))
    assert federation.shown == model_ids(0, 1, 3) + model_ids(2, 1, 2)


def test_a_request_about_clients_whom_the_model_does_not_know_stops_nothing(federation: Federation) -> None:
    """Clinic 5 took part on a line of training that was given up, and then in no round of the new one."""
    absent = Absent(federation.revocable.engine, "clinic-5", lambda model_id: model_id.branch == 0)
    revocable = replace(federation.revocable, engine=absent)  # type: ignore[arg-type]
    revocable.train(Rounds(3))
    federation.ask(1)
    revocable.forget(Scratch(), Rounds(2))
    asking = replace(revocable, server=Meanwhile({ModelId(1, 4): lambda: federation.ask(5)}))
    assert asking.train(Rounds(6)) == ModelId(1, 6)
    assert federation.history.requests.waiting() == []
    assert revocable.train(Rounds(7)) == ModelId(1, 7)
    assert federation.shown == model_ids(0, 1, 3) + model_ids(1, 1, 7)
    (settled,) = revocable.forget(Scratch(), Rounds(2))
    assert settled.restart is None


def test_who_is_part_of_the_round_that_is_under_way_is_known_once_it_is_recorded(federation: Federation) -> None:
    """Clinic 5 comes back to the new line of training in round 4, and asks in the middle of it."""
    absent = Absent(
        federation.revocable.engine, "clinic-5", lambda model_id: model_id.branch == 0 or model_id.round >= 4
    )
    revocable = replace(federation.revocable, engine=absent)  # type: ignore[arg-type]
    revocable.train(Rounds(3))
    federation.ask(1)
    revocable.forget(Scratch(), Rounds(2))
    before: list[object] = []

    def ask() -> None:
        federation.ask(5)
        before.append(federation.history.requests.waiting())

    assert replace(revocable, server=Meanwhile({ModelId(1, 4): ask})).train(Rounds(6)) == ModelId(1, 4)
    assert before == [[]]
    assert [asked.number for asked in federation.history.requests.waiting()]
    assert federation.shown == model_ids(0, 1, 3) + model_ids(1, 1, 3)


def test_who_takes_a_request_back_while_its_branch_is_begun_is_forgotten(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model that the branch begins with may take long to store, and its client would be asked to train again."""
    history = federation.history
    federation.revocable.train(Rounds(3))
    number, put = federation.ask(1), history.models.put

    def withdrawing(model: Mapping[str, Any]) -> str:
        if history.timeline.requests[0].open:
            history.requests.withdraw(number)
        return put(model)

    monkeypatch.setattr(history.models, "put", withdrawing)
    (outcome,) = federation.revocable.forget(Last(), Rounds(2))
    filed = outcome.asked
    assert (filed.served, filed.withdrawn) == (True, False)
    assert history.integrity.verify() == []
