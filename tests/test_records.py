"""Single records: a client stays, some of its rows go; what is claimed, and who takes part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rescind import Exact, History, Last, Revocable, Rounds, Sampling, Scratch, Sifu
from rescind.audit.replay import distance
from rescind.certificates.envelope import sign
from rescind.certificates.errors import InconsistentCertificateError
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.core.aggregation import RoundMeasurement
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope
from rescind.core.planning import assess, candidates
from rescind.core.rounds import Replies, RoundResult
from rescind.core.summary import Request
from rescind.errors import BrokenHistoryError, ForgottenClientError, UnknownClientError
from rescind.history.events import RecordedPlan, RequestFiled
from rescind.ledger.contract import Ledger
from rescind.ledger.sql import SqlLedger
from rescind.methods import FineTuning, Solve
from rescind.methods.method import Method
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.testing.small import TRAINING, federation
from tests.builders import BUDGET, SIGNER, erase_name, run_sql

RECORDS = PrivacyScope.RECORDS


def engine(without: int = 0, *, absent: tuple[str, ...] = (), **options: Any) -> Simulation:
    """Return the small federation; of clinic-2 the first rows are left out, as many as ``without``."""
    whole = federation(6)
    shards = {name: shard for name, shard in whole.shards.items() if name not in absent}
    if rows := shards.get("clinic-2"):
        shards["clinic-2"] = Shard(rows.features[without:], rows.labels[without:])
    head = SoftmaxHead(*whole.inputs, whole.classes)
    return Simulation(Federation(shards, whole.test, whole.classes), head, TRAINING, secret=b"records", **options)


def forget(history: History, method: Method, without: int = 2, rounds: int = 4) -> Revocable:
    """Ask for rows of clinic-2 to be forgotten, and serve it with a federation that leaves them out."""
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    federation = Revocable(history, engine(without))
    federation.forget(method, Rounds(rounds))
    return federation


@pytest.mark.parametrize("method", [Solve(), Exact(), Scratch(), Sifu()])
def test_the_model_is_the_one_of_a_world_without_the_rows(history: History, method: Method) -> None:
    Revocable(history, engine()).train(Rounds(4))
    forget(history, method)
    with History.in_memory() as other:
        world = Revocable(other, engine(2))
        if isinstance(method, Solve):
            world.solve()
        else:
            world.train(Rounds(4))
        # The same operations on the same numbers: the same bits.
        assert distance(history.model(history.newest), other.model(other.newest)) == 0
    assert history.integrity.verify() == []


def test_a_certificate_says_what_it_rests_on(history: History) -> None:
    federation = Revocable(history, engine(secret_noise=True))
    federation.train(Rounds(4))
    number = history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    Revocable(history, engine(2, secret_noise=True)).forget(Solve(), Rounds(4))
    statement = build_statement(history, number)
    predicate = statement.predicate
    assert (predicate.mode, predicate.scope) == ("exact", "records")
    assert "the rows that these participants named" in predicate.claim
    assert "take part again" in predicate.counterfactual
    (left_out,) = [told for told in predicate.assumptions if "leave out the rows" in told.what]
    assert left_out.basis == "reported by the participant"
    assert any("the difference can tell a row" in line for line in predicate.not_claimed)
    assert not any("whole participants are forgotten" in line for line in predicate.not_claimed)
    assert any("under new pseudonyms" in line for line in predicate.erasure.stays)
    content = sign(statement, [SIGNER])
    assert verify(content, [SIGNER.public_key], history=history).statement == statement


@pytest.mark.parametrize("mode", ["strict", "instance"])
def test_a_certificate_with_noise_is_none_for_records(history: History, mode: str) -> None:
    Revocable(history, engine()).train(Rounds(4))
    forget(history, Solve())
    statement = build_statement(history, 1)
    forged = statement.model_copy(update={"predicate": statement.predicate.model_copy(update={"mode": mode})})
    with pytest.raises(InconsistentCertificateError, match="single records are forgotten without noise"):
        verify(sign(forged, [SIGNER]), [SIGNER.public_key])


def test_training_goes_back_to_before_the_first_round_and_no_further(history: History) -> None:
    """clinic-2 joins after three rounds without it; nobody needs these again."""
    Revocable(history, engine(absent=("clinic-2",))).train(Rounds(3))
    Revocable(history, engine()).train(Rounds(6))
    forget(history, Sifu())
    (outcome,) = history.outcomes()
    assert outcome.restart is not None
    assert outcome.restart.branch.parent == ModelId(0, 3)
    assert outcome.restart.branch.sigma == 0


def test_no_noise_hides_rows_of_a_client_that_stays(history: History) -> None:
    """Where a client could leave with noise, its rows cannot."""
    federation = Revocable(history, engine(secret_noise=True))
    federation.train(Rounds(6))
    group = history.participants.find(["clinic-2"])
    summary = history.summary(group)
    whole, rows = (candidates(summary, Request(group, BUDGET, scope)) for scope in (PrivacyScope.GROUP, RECORDS))
    assert len(whole) == len(summary.kept) == 7
    assert [(candidate.node.index, candidate.mode.value) for candidate in rows] == [(0, "exact")]
    with pytest.raises(ValueError, match="it takes at least inf"):
        assess(summary, Request(group, BUDGET, RECORDS), node=summary.kept[3], sigma=2.0**20)


def test_a_method_that_only_adds_noise_refuses(history: History) -> None:
    federation = Revocable(history, engine())
    federation.train(Rounds(3))
    number = history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    with pytest.raises(ValueError, match="no noise hides rows of a client that stays"):
        federation.plan(Last(), number)


def test_a_client_without_its_rows_takes_part_again_and_can_leave_for_good(history: History) -> None:
    Revocable(history, engine()).train(Rounds(4))
    (old,) = history.participants.find(["clinic-2"])
    assert "clinic-2" in history.participants.remaining(["clinic-2"])
    number = history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    assert history.participants.remaining(["clinic-1", "clinic-2"]) == ["clinic-1"]
    federation = Revocable(history, engine(2))
    federation.forget(Exact(), Rounds(4))
    (new,) = history.participants.find(["clinic-2"])
    assert new > old
    assert new in history.lineage().edges[-1].clients
    assert history.participants.describe([history.timeline.requests[number - 1].request.group]) == [["clinic-2"]]
    # For the next rows, and then for good.
    forget(history, Solve(), without=3)
    history.requests.ask(["clinic-2"], BUDGET, scope=PrivacyScope.SEQUENCE)
    federation = Revocable(history, engine(3))
    federation.forget(Exact(), Rounds(2))
    assert history.participants.remaining(["clinic-1", "clinic-2"]) == ["clinic-1"]
    assert [outcome.mode.value for outcome in history.outcomes()] == ["exact"] * 3
    assert history.integrity.verify() == []
    with pytest.raises(UnknownClientError, match="was forgotten"):
        history.participants.find(["clinic-2"])
    with history.recording(federation.engine.facts, federation.engine.start()) as recorder:
        model = recorder.model()
        measured = RoundMeasurement(np.zeros(1), 0.0, None)
        with pytest.raises(ForgottenClientError):
            recorder.record(RoundResult(Replies(("clinic-2",), np.ones(1), (3,), {}, batch=0), model, measured))


def test_a_heuristic_that_keeps_the_rows_refuses(history: History) -> None:
    """Else the clinic, under its new pseudonym, could leave exactly from a model that its old one had trained."""
    federation = Revocable(history, engine())
    federation.train(Rounds(4))
    number = history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    with pytest.raises(ValueError, match="goes on from a model that knows the rows"):
        federation.plan(FineTuning(), number)
    group = history.timeline.requests[0].request.group
    plan = FineTuning().plan(history.summary(group), Request(group, BUDGET, RECORDS))
    history.requests.record_plan(RecordedPlan((number,), plan, False, str(FineTuning())))
    with (
        history.recording(federation.engine.facts, federation.engine.start()) as recorder,
        pytest.raises(ValueError, match="knows the rows that are to go"),
    ):
        recorder.restart(history.newest, recorder.model(), requests=[number])
    assert history.newest.branch == 0


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("scopes", [(RECORDS, PrivacyScope.GROUP), (PrivacyScope.GROUP, RECORDS)])
def test_who_asks_for_both_at_once_leaves_for_good(
    history: History, scopes: tuple[PrivacyScope, ...], together: bool
) -> None:
    """Histories have such requests that were written when two of one moment did not see each other."""
    Revocable(history, engine()).train(Rounds(3))
    history.requests.ask(["clinic-2"], BUDGET, scope=scopes[0])
    ((_, filed),) = history.timeline.of(RequestFiled)
    history.journal.record(replace(filed, request=replace(filed.request, scope=scopes[1])))
    federation = Revocable(history, engine(2))
    federation.forget(Exact(), Rounds(3), together=together)
    federation.train(Rounds(5))
    assert history.participants.remaining(["clinic-1", "clinic-2"]) == ["clinic-1"]
    assert "clinic-2" not in history.participants.all()
    assert history.integrity.verify() == []


@pytest.mark.parametrize("scopes", [(RECORDS, PrivacyScope.GROUP), (PrivacyScope.GROUP, RECORDS)])
def test_a_request_that_is_taken_back_for_another_while_it_is_served(
    history: History, monkeypatch: pytest.MonkeyPatch, scopes: tuple[PrivacyScope, ...]
) -> None:
    Revocable(history, engine()).train(Rounds(3))
    history.requests.ask(["clinic-2"], BUDGET, scope=scopes[0])
    start = Ledger.start_branch

    def cross(*entry: Any) -> None:
        history.requests.withdraw(1)
        history.requests.ask(["clinic-2"], BUDGET, scope=scopes[1])
        start(*entry)

    monkeypatch.setattr(Ledger, "start_branch", cross)
    Revocable(history, engine(2)).forget(Exact(), Rounds(3))
    monkeypatch.undo()
    Revocable(history, engine(2)).train(Rounds(5))
    assert history.participants.remaining(["clinic-1", "clinic-2"]) == ["clinic-1"]
    assert history.integrity.verify() == []


def test_a_request_for_good_that_was_taken_back_bars_nobody(history: History) -> None:
    Revocable(history, engine()).train(Rounds(3))
    history.requests.withdraw(history.requests.ask(["clinic-2"], BUDGET))
    forget(history, Exact())
    assert history.participants.remaining(["clinic-1", "clinic-2"]) == ["clinic-1", "clinic-2"]
    assert history.integrity.verify() == []


def test_while_a_request_waits_more_rows_join_it(history: History) -> None:
    Revocable(history, engine()).train(Rounds(2))
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    with pytest.raises(ValueError, match="is about some of these clients already"):
        history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)


def test_rows_that_the_newest_model_never_saw_need_no_restart(history: History) -> None:
    Revocable(history, engine()).train(Rounds(2))
    history.requests.ask(["clinic-1"], BUDGET)
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    Revocable(history, engine(2)).forget(Scratch(), Rounds(2))
    # It waited while the first was served, so that the newest model does not know it.
    settled = history.timeline.requests[1]
    assert settled.settled
    assert history.participants.remaining(["clinic-1", "clinic-2"]) == ["clinic-2"]
    Revocable(history, engine(2)).train(Rounds(4))
    assert build_statement(history, 2).predicate.mode == "exact"
    assert history.integrity.verify() == []


def test_a_crash_after_the_restart_leaves_nobody_out(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "history") as history:
        Revocable(history, engine()).train(Rounds(2))
        history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
        erase = SqlLedger.erase_identities

        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(SqlLedger, "erase_identities", die)
        with pytest.raises(KeyboardInterrupt):
            Revocable(history, engine(2)).forget(Exact(), Rounds(2))
        assert history.timeline.requests[0].served
        monkeypatch.setattr(SqlLedger, "erase_identities", erase)
    with History(tmp_path / "history") as history:
        Revocable(history, engine(2)).forget(Exact(), Rounds(2))
        assert "clinic-2" in history.participants.all()
        assert history.integrity.verify() == []


def test_a_changed_list_of_names_is_found(tmp_path: Any) -> None:
    """Whoever may write to the database cannot bar a client that stays, or take a name away."""
    with History(tmp_path / "history") as history:
        Revocable(history, engine()).train(Rounds(2))
        forget(history, Exact())
        old = min(history.timeline.returning)
        assert history.integrity.verify() == []
        erase_name(history, old + 1)
        assert any("is gone, and no erasure says so" in problem for problem in history.integrity.verify())


def test_a_name_that_was_moved_to_an_old_pseudonym_is_not_lost(tmp_path: Any) -> None:
    with History(tmp_path / "history") as history:
        Revocable(history, engine()).train(Rounds(2))
        forget(history, Exact(), rounds=2)
        (old,) = history.timeline.returning
    run_sql(tmp_path / "history", ("update identity set pseudonym = ? where name = 'clinic-1'", old))
    with History(tmp_path / "history") as history:
        with pytest.raises(BrokenHistoryError, match="not those that were registered"):
            Revocable(history, engine(2)).train(Rounds(3))
        assert "clinic-1" in history.participants.all()


def test_who_is_settled_by_hand_may_take_part(history: History) -> None:
    Revocable(history, engine()).train(Rounds(2))
    history.requests.ask(["clinic-1"], BUDGET)
    number = history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    federation = Revocable(history, engine(2))
    plan = federation.plan(Scratch(), 1)
    with history.recording(federation.engine.facts, federation.engine.start()) as recorder:
        node = plan.candidate.node
        start = history.model(ModelId(node.branch, node.round))
        recorder.restart(ModelId(node.branch, node.round), start, requests=[1])
        recorder.settle(number)
    assert history.participants.remaining(["clinic-1", "clinic-2"]) == ["clinic-2"]


@pytest.mark.parametrize("sampling", [{"sampling": Sampling.POISSON, "rate": 0.7}, {}])
def test_together_with_a_client_that_leaves(history: History, sampling: dict[str, Any]) -> None:
    make: Callable[[int], Simulation] = lambda without: engine(without, secret_noise=True, **sampling)  # noqa: E731
    Revocable(history, make(0)).train(Rounds(5))
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    history.requests.ask(["clinic-4"], BUDGET)
    outcomes = Revocable(history, make(2)).forget(Sifu(), Rounds(5), together=True)
    assert [outcome.mode.value for outcome in outcomes] == ["exact"] * 2
    assert history.participants.remaining(["clinic-2", "clinic-4"]) == ["clinic-2"]
    assert history.integrity.verify() == []


def test_the_others_are_named_as_before_once_rows_are_gone(history: History) -> None:
    Revocable(history, engine()).train(Rounds(3))
    history.requests.ask(["clinic-2"], BUDGET, scope=RECORDS)
    Revocable(history, engine(2)).forget(Scratch(), Rounds(3))
    (old,) = history.timeline.requests[0].request.group
    (other,) = history.participants.find(["clinic-1"])
    assert history.participants.describe([[other]]) == [["clinic-1"]]
    assert history.participants.describe([[other], [old]]) == [["clinic-1"], ["clinic-2"]]
