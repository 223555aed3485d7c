"""What must not be possible: bounds that come out too small, erasures of what is needed, silent tampering."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from rescind.core.calibration import Budget
from rescind.core.edges import ErasedStretch, ModelId, RoundEdge
from rescind.core.facts import DpFedAvg, Mode, PrivacyScope
from rescind.core.planning import Candidate
from rescind.core.regularity import Curvature, DeclaredLoss
from rescind.core.sensitivity import group_sensitivity
from rescind.errors import BrokenHistoryError, ForgottenClientError, HistoryError, StillReadError
from rescind.history.erasure import _coarse
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.outcomes import find_obligations
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Span
from tests.builders import (
    FACTS,
    START,
    append_entry,
    entries_of,
    federation,
    name,
    one_turn,
    plan_by_hand,
    restart_by_plan,
    restarted,
    run_sql,
    stretches_of,
    train,
)

BUDGET = Budget(5.0, 1e-3)
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
CLIENTS = federation(1)


def trained(history: History, rounds: int, present: object = range(6)) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, CLIENTS, rounds, present)  # type: ignore[arg-type]


def psi(history: History, *clients: int) -> float:
    group = history.participants.find([name(client) for client in clients])
    return float(group_sensitivity(history.lineage().edges, group)[-1])


@pytest.mark.parametrize(
    "act",
    [
        lambda history: history.requests.ask([name(2)], BUDGET, releases=2.0),
        lambda history: history.requests.ask([name(2)], BUDGET, releases=True),
        lambda history: history.requests.ask([name(2)], Budget(True, 1e-3)),
        lambda history: history.requests.withdraw(1.0),
        lambda history: history.requests.extend(True, 3, "because"),
        lambda history: history.requests.refuse(1.0, "A. Officer", "because"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(history: History, act: Callable[[History], object]) -> None:
    trained(history, 2)
    history.requests.ask([name(1)], BUDGET)
    with pytest.raises(ValueError, match=r"nothing is recorded of the .* is unfit"):
        act(history)
    assert len(history.requests.waiting()) == 1
    assert history.integrity.verify() == []


@pytest.mark.parametrize("curvature", [Curvature(-1, 1), Curvature(-(2**70), 2**70)])
def test_a_whole_number_is_a_number(history: History, curvature: Curvature) -> None:
    facts = replace(FACTS, training=replace(FACTS.training, loss=DeclaredLoss(curvature)))
    with history.recording(facts, START):
        pass
    assert history.run.facts == facts


def test_a_path_with_a_gap_is_no_path(history: History) -> None:
    trained(history, 6)
    restarted(history, [name(0)], ModelId(0, 4))
    history.erase(history.plan_erasure())
    for model_id in (ModelId(0, 4), ModelId(0, 5), ModelId(0, 99), ModelId(1, 7)):
        with pytest.raises(BrokenHistoryError, match="no path to it"):
            history.lineage(model_id)


def test_an_erasure_long_after_its_restart_keeps_what_lives(history: History) -> None:
    """Two restarts, the second before the first one's noise, and only then an erasure: it covers both."""
    trained(history, 6)
    restarted(history, [name(0)], ModelId(0, 4))
    trained(history, 2, range(1, 6))
    restarted(history, [name(1)], ModelId(0, 2))
    trained(history, 3, range(2, 6))
    before = psi(history, 3)
    plan = history.plan_erasure()
    assert len(plan.requests) == len(plan.clients) == 2
    history.erase(plan)
    assert psi(history, 3) == pytest.approx(before, rel=1e-8)
    assert psi(history, 3) >= before
    assert [type(edge) for edge in history.lineage().edges] == [ErasedStretch, *[RoundEdge] * 3]
    assert history.integrity.verify() == []
    trained(history, 1, range(2, 6))


def test_a_stale_plan_of_an_erasure_is_refused(history: History) -> None:
    trained(history, 6)
    restarted(history, [name(0)], ModelId(0, 4))
    old = history.plan_erasure()
    restarted(history, [name(1)], ModelId(0, 3))
    entries = entries_of(history)
    for wrong in (old, replace(history.plan_erasure(), abandoned=(Span(0, 1, 6),))):
        with pytest.raises(ValueError, match="has changed since this erasure was planned"):
            history.erase(wrong)
    assert entries_of(history) == entries


def test_a_plan_from_before_the_last_restart_is_refused(history: History) -> None:
    """It never saw that the other group has to be hidden as well."""
    trained(history, 6)
    first, second = plan_by_hand(history, [name(0)], ModelId(0, 4)), plan_by_hand(history, [name(1)], ModelId(0, 2))
    restart_by_plan(history, first)
    with pytest.raises(ValueError, match="no plan since the last restart"):
        restart_by_plan(history, second)
    trained(history, 1, range(1, 6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parent": ModelId(0, 5)}, "says model 0.4 and sigma"),
        ({"sigma": 64.0}, "says model 0.4 and sigma"),
        ({"sigma": 0.0}, "starts with its parent's own model"),
        ({"sigma": 0.0, "model": "own"}, "says model 0.4"),
        ({"sigma": -1.0}, "sigma"),
        ({"noise_rounding": -1.0}, "rounding"),
        ({"noise_rounding": 0.0}, "noise_rounding"),
        ({"unit_roundoff": 0.0}, "unit_roundoff"),
        ({"requests": ()}, "without a request"),
    ],
)
def test_a_restart_does_what_was_planned_or_nothing(
    history: History, change: dict[str, object], message: str
) -> None:
    trained(history, 6)
    number = plan_by_hand(history, [name(0)], ModelId(0, 4))
    sigma = history.timeline.plans[number].candidate.sigma
    own = history.model(ModelId(0, 4))
    given: dict[str, object] = {
        "parent": ModelId(0, 4),
        "model": {"theta": own["theta"] + 1},
        "requests": (number,),
        "sigma": sigma,
        "noise_rounding": 1e-6,
        "unit_roundoff": 2.0**-53,
    } | change
    if given["model"] == "own":
        given["model"] = own
    with history.recording(FACTS, START) as recorder:
        with pytest.raises(ValueError, match=message):
            recorder.restart(**given)  # type: ignore[arg-type]
        train(recorder, CLIENTS, 1, range(6))
    assert history.newest == ModelId(0, 7)
    assert history.integrity.verify() == []


def test_going_back_without_a_request_keeps_the_forgotten_hidden(history: History) -> None:
    trained(history, 6)
    branch = restarted(history, [name(0)], ModelId(0, 4))
    trained(history, 3, range(1, 6))
    with history.recording(FACTS, START) as recorder:
        recorder.record_retrained()
        with pytest.raises(ValueError, match="stays so there"):
            recorder.restart(ModelId(0, 3), history.model(ModelId(0, 3)))
        recorder.restart(ModelId(branch, 1), history.model(ModelId(branch, 1)))
    view = history.summary([2])
    assert list(map(view.protected_from, view.owed)) == [5]
    with pytest.raises(ValueError, match="not kept on this line"), history.recording(FACTS, START) as recorder:
        recorder.restart(ModelId(0, 6), history.model(ModelId(0, 6)))


def test_noise_that_only_earlier_clients_need_is_not_the_leavers(history: History) -> None:
    """A late joiner leaves; its own group had not touched the model, an earlier one is hidden again there."""
    trained(history, 4, range(5))
    restarted(history, [name(0)], ModelId(0, 3))
    trained(history, 2, range(1, 6))
    restarted(history, [name(5)], ModelId(0, 2))
    first, late = find_obligations(history.timeline)
    assert (first.mode, first.branch, len(first.spent)) == (Mode.INSTANCE, 2, 2)
    assert (late.mode, late.branch, late.spent) == (Mode.EXACT, None, ())
    view = history.summary([2])
    assert list(map(view.protected_from, view.owed)) == [3, None]


def test_a_promise_to_a_sequence_is_kept(history: History) -> None:
    """The second request promised to hide both groups together, also where only the first one had been."""
    trained(history, 3, [0, 2, 3])
    trained(history, 3, range(6))
    restarted(history, [name(0)], ModelId(0, 5))
    restarted(history, [name(1)], ModelId(0, 4), PrivacyScope.SEQUENCE)
    trained(history, 2, range(2, 6))
    restarted(history, [name(2)], ModelId(0, 2))
    assert [each.branch for each in find_obligations(history.timeline)] == [3, 3, 3]


def test_every_rounds_noise_is_counted_for_a_sequence(history: History) -> None:
    """DP-FedAvg needs no noise of its own at a restart, and everybody forgotten still counts."""
    facts = replace(FACTS, public_schedule=True, public=DpFedAvg(1.0, 1.0, 20.0, True, True, True, True))
    with history.recording(facts, START) as recorder:
        train(recorder, CLIENTS, 4, range(6))
    number = history.requests.ask([name(0)], BUDGET)
    model_id = ModelId(0, 3)
    group = history.participants.find([name(0)])
    summary = history.summary(group)
    node = next(each for each in summary.kept if each.round == 3)
    history.requests.record_plan(RecordedPlan((number,), Candidate(node, 0.0, Mode.STRICT, (), 0.0, 1.0), True))
    with history.recording(facts, START) as recorder:
        recorder.restart(model_id, history.model(model_id), requests=(number,))
    later = history.summary(history.participants.find([name(1)]))
    assert [(each.mode, each.branch) for each in later.owed] == [(Mode.STRICT, None)]
    whole = history.lineage()
    both = [*group, *history.participants.find([name(1)])]
    assert group_sensitivity(later.edges, both) == pytest.approx(group_sensitivity(whole.edges, both))


def test_plans_are_for_open_requests(history: History) -> None:
    trained(history, 4)
    number = plan_by_hand(history, [name(0)], ModelId(0, 3))
    plan = history.timeline.plans[number]
    restart_by_plan(history, number)
    for wrong, reason in ((number, "request 1 is being served"), (12345, "no open request 12345")):
        with pytest.raises(ValueError, match=reason):
            history.requests.record_plan(replace(plan, requests=(wrong,)))


def test_what_a_plan_records_was_not_computed_to_the_last_digit(history: History) -> None:
    trained(history, 4)
    number = plan_by_hand(history, [name(0)], ModelId(0, 3))
    assert history.timeline.plans[number].candidate.predicted_rounds.is_integer()


def test_runs_that_share_an_address_do_not_share_models(tmp_path: Path) -> None:
    shared = str(tmp_path / "models")
    one, two = (History(tmp_path / each, checkpoints=shared) for each in ("one", "two"))
    with one, two:
        trained(one, 3)
        trained(two, 2)
        trained(one, 1)
        assert one.integrity.verify() == two.integrity.verify() == []
        two.model(ModelId(0, 1))


def test_the_leavers_number_of_examples_cannot_be_computed(history: History) -> None:
    """Exact weights of the others, p_c = n_c / n_S, would give n_S and with it n_W."""
    trained(history, 4)
    everybody = sum(each.examples for each in CLIENTS.objectives)
    others = {history.participants.all()[name(each)]: CLIENTS.objectives[each].examples for each in range(1, 6)}
    restarted(history, [name(0)], ModelId(0, 3))
    history.erase(history.plan_erasure())
    (stretch,) = stretches_of(history).values()
    for client, _, weight in stretch.remaining.tolist():
        if client in others:
            assert others[client] / everybody <= weight <= others[client] / everybody * 2**0.25 * (1 + 1e-8)
            assert 4 * np.log2(weight) == pytest.approx(round(4 * np.log2(weight)), abs=1e-9)


def test_coarse_weights_are_never_smaller() -> None:
    weights = np.concatenate([np.random.default_rng(1).random(10_000), 2.0 ** -np.arange(40), [0.0, 1.0, 1e-300]])
    coarse = _coarse(weights)
    assert (coarse >= weights).all()
    assert coarse.max() == 1.0
    assert (coarse[weights > 0] <= weights[weights > 0] * 2**0.2501).all()
    assert coarse[weights == 0].tolist() == [0.0]


def test_a_client_of_an_abandoned_branch_can_be_forgotten(history: History) -> None:
    trained(history, 2, range(5))
    trained(history, 2, range(6))
    number = history.requests.ask([name(5)], BUDGET)
    with (
        history.recording(FACTS, START) as recorder,
        pytest.raises(ValueError, match="knows clients of request"),
    ):
        recorder.settle(number)
    with pytest.raises(ValueError, match=f"request {number} is about some of these clients already"):
        history.requests.ask([name(4), name(5)], BUDGET)
    restarted(history, [name(0)], ModelId(0, 2))
    with history.recording(FACTS, START) as recorder:
        recorder.settle(number)
    plan = history.plan_erasure()
    client = next(iter(history.participants.find([name(5)])))
    assert client in plan.clients
    assert client in plan.keys
    history.erase(plan)
    assert history.participants.remaining([name(5)]) == []
    assert history.integrity.verify() == []


def test_who_was_forgotten_does_not_come_back_before_the_erasure(history: History) -> None:
    trained(history, 4)
    restarted(history, [name(0)], ModelId(0, 3))
    with history.recording(FACTS, START) as recorder:
        with pytest.raises(ForgottenClientError, match=name(0)):
            train(recorder, CLIENTS, 1, range(6))
        train(recorder, CLIENTS, 1, range(1, 6))


def test_an_erasure_that_has_to_wait_is_not_called_done(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rescind.ledger.databases._LOCK_TIMEOUT", 0.2)
    trained(history, 4)
    restarted(history, [name(0)], ModelId(0, 3))
    plan = history.plan_erasure()
    with (
        History(tmp_path / "history") as waiting,
        closing(sqlite3.connect(tmp_path / "history/ledger.sqlite")) as other,
    ):
        other.execute("BEGIN")
        other.execute("SELECT * FROM journal").fetchone()
        with pytest.raises(StillReadError, match="when nobody reads"):
            waiting.erase(plan)
        (problem,) = waiting.integrity.verify()
        assert "was begun and not finished" in problem
        other.execute("COMMIT")
        waiting.erase(waiting.plan_erasure())
        assert waiting.timeline.unfinished_deletions == []
        assert waiting.integrity.verify() == []


def test_after_a_failure_the_recorder_is_not_gone_on_with(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    with history.recording(FACTS, START) as recorder:
        train(recorder, CLIENTS, 2, range(6))
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "commit_round", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                train(recorder, CLIENTS, 1, range(6))
        with pytest.raises(HistoryError, match="open the history again"):
            train(recorder, CLIENTS, 1, range(6))
    trained(history, 1)
    assert history.newest == ModelId(0, 3)
    assert history.integrity.verify() == []


def test_what_an_erasure_left_cannot_be_changed_unseen(history: History, tmp_path: Path) -> None:
    trained(history, 4)
    restarted(history, [name(0)], ModelId(0, 3))
    history.erase(history.plan_erasure())
    trained(history, 3, range(1, 6))
    changes = {
        "delete from stretch": "what an erasure left before model 1.0 is gone",
        "delete from participation": "is not found by its participants",
        "update participation set client = 100 where client = 3": "is not found by its participants",
        "update stretch set remaining = substr(remaining, 2)": "cannot be read",
        "update journal set body = 'no json' where kind = 'erasure'": "cannot be read",
    }
    run_sql(tmp_path / "history", "PRAGMA wal_checkpoint(TRUNCATE)")
    for at, (statement, expected) in enumerate(changes.items()):
        copy = tmp_path / f"copy {at}"
        shutil.copytree(tmp_path / "history", copy)
        run_sql(copy, statement)
        with History(copy) as tampered:
            assert any(expected in problem for problem in tampered.integrity.verify()), statement
    (remains,) = entries_of(history, "remains")
    append_entry(history, "remains", remains.body)
    assert history.integrity.verify() == [f"entry {remains.sequence + 5} changes what an erasure left"]


def test_mistakes_are_named(history: History) -> None:
    for act in (lambda: history.newest, history.lineage, history.plan_erasure):
        with pytest.raises(HistoryError, match="nothing has been recorded here yet"):
            act()
    trained(history, 3)
    restarted(history, [name(0)], ModelId(0, 2))
    history.erase(history.plan_erasure())
    with pytest.raises(HistoryError, match="'hospital-0' was forgotten"):
        history.participants.find([name(0)])


def test_a_branch_that_serves_nobody_is_not_ended_and_one_that_does_is_not_left(history: History) -> None:
    trained(history, 3, range(5))
    with history.recording(FACTS, START) as recorder, pytest.raises(ValueError, match="serves no request"):
        recorder.record_retrained()
    restarted(history, [name(0)], ModelId(0, 2))
    with (
        history.recording(FACTS, START) as recorder,
        pytest.raises(ValueError, match="train it to its end first"),
    ):
        recorder.restart(ModelId(0, 0), history.model(ModelId(0, 0)))


def test_what_was_rolled_back_is_not_remembered(history: History) -> None:
    def ask_twice() -> None:
        with one_turn(history):
            history.requests.ask([name(1)], BUDGET)
            history.requests.ask([name(1)], BUDGET)

    trained(history, 2, range(5))
    with pytest.raises(ValueError, match="about some of these clients already"):
        ask_twice()
    assert history.requests.ask([name(2)], BUDGET) == 1
    assert [filed.request.group for filed in history.timeline.requests] == [history.participants.find([name(2)])]
