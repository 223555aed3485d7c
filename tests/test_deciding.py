"""Who agrees to a plan, who refuses a request, and a run that serves requests without anybody's hands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from click.testing import Result
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rescind import Accuracy, Exact, History, Revocable, Rounds, Sampling
from rescind.certificates.approvals import sign_by, state_approval
from rescind.certificates.envelope import fingerprint
from rescind.certificates.issue import build_statement
from rescind.certificates.keys import load_public_key, load_signer
from rescind.certificates.verification import _contradictions
from rescind.checkpoints.tensors import digest
from rescind.cli import app
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.solver import Solving
from rescind.errors import BrokenHistoryError, PendingRequestError, StalePlanError
from rescind.history.events import EndByData, PlanApproved, RecordedPlan, RequestFiled
from rescind.history.outcomes import Outcome, outcome_of
from rescind.history.recorder import Recorder
from rescind.history.requests import Requests, add_months
from rescind.history.timeline import FiledRequest
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Asker, Sender
from rescind.methods import FineTuning, Last, Method, Solve
from rescind.serving import StopServing, at_once, nightly, serve
from rescind.simulation import Simulation, SoftmaxHead
from rescind.testing import small
from rescind.views.plans import describe_agreed
from tests.builders import BUDGET, entries_of, everybody, said


def say(*words: object) -> Result:
    return said(*words)


@pytest.fixture
def federation(history: History) -> Revocable:
    made = Revocable(history, everybody(6))
    made.train(Rounds(3))
    return made


# Approval


def test_what_nobody_agreed_to_is_planned_and_not_carried_out(federation: Revocable) -> None:
    history = federation.history
    number = history.requests.ask(["clinic-1"], BUDGET)
    assert federation.forget(Exact(), Rounds(3), approval=True) == []
    assert history.newest.branch == 0
    assert number in history.timeline.plans
    with pytest.raises(PendingRequestError, match="rescind request approve"):
        serve(federation, Rounds(3), Exact(), approval=True)
    history.requests.approve(number, "A. Officer")
    (outcome,) = federation.forget(Exact(), Rounds(3), approval=True)
    assert outcome.asked.number == number
    assert history.integrity.verify() == []


def test_a_plan_is_recorded_once_though_it_is_waited_for_again_and_again(federation: Revocable) -> None:
    history = federation.history
    history.requests.ask(["clinic-1"], BUDGET)
    for _ in range(3):
        federation.forget(Exact(), Rounds(3), approval=True)
    assert len(entries_of(history, "plan")) == 1


def test_an_approval_is_for_the_plan_that_was_shown(federation: Revocable) -> None:
    history = federation.history
    first, second = history.requests.ask(["clinic-1"], BUDGET), history.requests.ask(["clinic-2"], BUDGET)
    federation.forget(Exact(), Rounds(3), approval=True)
    history.requests.approve(second, "A. Officer")
    history.requests.approve(first, "A. Officer")
    # Retraining left both out, so that the second has nothing to be planned any more, and was agreed to.
    outcomes = federation.forget(Exact(), Rounds(3), approval=True)
    assert [outcome.asked.number for outcome in outcomes] == [first, second]
    assert [outcome.restart is None for outcome in outcomes] == [False, True]


def test_whoever_is_approved_does_not_wait_for_somebody_who_is_not(federation: Revocable) -> None:
    history = federation.history
    first, second = history.requests.ask(["clinic-1"], BUDGET), history.requests.ask(["clinic-2"], BUDGET)
    federation.forget(Exact(), Rounds(3), approval=True)
    history.requests.approve(second, "A. Officer")
    (outcome,) = federation.forget(Exact(), Rounds(3), approval=True)
    assert outcome.asked.number == second
    assert list(history.timeline.open_requests) == [first]
    # The new model never saw it: nothing is planned, and yet nothing is erased before somebody agrees.
    with pytest.raises(PendingRequestError, match="request 1 is planned"):
        serve(federation, Rounds(3), Exact(), approval=True)
    history.requests.approve(first, "A. Officer")
    (settled,) = federation.forget(Exact(), Rounds(3), approval=True)
    assert (settled.asked.number, settled.restart) == (first, None)
    assert build_statement(history, first).predicate.approved is not None


def test_a_stale_plan_is_not_approved(federation: Revocable) -> None:
    history = federation.history
    first, second = history.requests.ask(["clinic-1"], BUDGET), history.requests.ask(["clinic-2"], BUDGET)
    with pytest.raises(ValueError, match="no recorded plan"):
        history.requests.approve(first, "A. Officer")
    federation.plan(Last(), first)
    federation.plan(Last(), second)
    history.requests.approve(first, "A. Officer")
    federation.forget(Last(), Rounds(2), approval=True)
    # The last model still knows the second, and is another one than that was planned for.
    assert history.timeline.approvals_of(second) == []
    history.requests.withdraw(second)
    federation.train(Rounds(4))
    third = history.requests.ask(["clinic-2"], BUDGET)
    plan = federation.plan(Last(), third)
    history.journal.record(EndByData(1))
    assert history.requests.is_stale(plan)
    with pytest.raises(StalePlanError, match="plans anew"):
        history.requests.approve(third, "A. Officer")


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "\u202e", "x" * 257, 7])
def test_nobody_without_a_name_decides(federation: Revocable, name: Any) -> None:
    history = federation.history
    number = history.requests.ask(["clinic-1"], BUDGET)
    federation.plan(Exact(), number)
    with pytest.raises(ValueError, match="name for a person"):
        history.requests.approve(number, name)
    with pytest.raises(ValueError, match="name for a person"):
        history.requests.refuse(number, name, "because")


def test_a_refused_request_is_closed_and_its_client_stays(federation: Revocable) -> None:
    history = federation.history
    number = history.requests.ask(["clinic-1"], BUDGET)
    with pytest.raises(ValueError, match="give a reason"):
        history.requests.refuse(number, "A. Officer", " ")
    history.requests.refuse(number, "A. Officer", "a law asks to keep the data")
    assert history.timeline.open_requests == {}
    assert history.timeline.requests[0].refused == "a law asks to keep the data"
    federation.train(Rounds(4))
    assert "clinic-1" in history.participants.remaining(["clinic-1"])
    with pytest.raises(ValueError, match="was refused"):
        build_statement(history, number)
    assert history.requests.ask(["clinic-1"], BUDGET) == 2
    assert history.integrity.verify() == []


def served_with(folder: Path, *words: object) -> Path:
    with History(folder / "history") as history:
        federation = Revocable(history, everybody(6))
        federation.train(Rounds(3))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Exact(), Rounds(2), approval=True)
        result = say("request", "approve", folder / "history", 1, "--by", "A. Officer", "--yes", *words)
        assert result.exit_code == 0, result.output
        assert "by exact" in result.output
        assert "from the start" in result.output
        federation.forget(Exact(), Rounds(2), approval=True)
    return folder / "history"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    for name in ("operator.key", "officer.key"):
        assert say("key", "new", tmp_path / name).exit_code == 0
    return tmp_path


def verify_in_words(keys: Path, *words: object) -> str:
    result = say("verify", keys / "certificate.json", "--key", keys / "operator.key.pub", *words)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_an_approval_that_nobody_signed_is_called_so_when_it_is_verified(keys: Path) -> None:
    location = served_with(keys)
    result = say("certify", location, 1, "--key", keys / "operator.key", "-o", keys / "certificate.json")
    assert result.exit_code == 0, result.output
    words = verify_in_words(keys, "--history", location)
    assert "is recorded there, not signed Keep in mind" in words
    assert "signature holds" not in words


def test_an_approval_is_signed_and_certified(keys: Path) -> None:
    location = served_with(keys, "--key", keys / "officer.key")
    result = say("certify", location, 1, "--key", keys / "operator.key", "-o", keys / "certificate.json")
    assert result.exit_code == 0, result.output
    with History(location) as history:
        stated = build_statement(history, 1)
        assert stated.predicate.approved is not None
        day = stated.predicate.approved.time[:10]
        assert stated.predicate.approved.key is not None
        assert "Officer" not in stated.payload().decode()
        assert list(_contradictions(stated)) == []
    words = verify_in_words(keys, "--history", location)
    key = fingerprint(load_public_key(keys / "officer.key.pub"))
    told = f"request was approved on {day} is recorded there, signed with the key {key}: the signature holds"
    assert told in words
    assert told in verify_in_words(keys, "--history", location, "--full")
    # Without the history that is the operator's word.
    assert "approved on" not in verify_in_words(keys)
    assert "whose key approved" in verify_in_words(keys, "--full")
    report = keys / "report.html"
    assert say("report", location, "-o", report).exit_code == 0
    assert "A. Officer approved its plan, and signed that." in report.read_text()


def test_an_approval_that_its_key_did_not_sign_is_noticed(keys: Path) -> None:
    location = served_with(keys, "--key", keys / "officer.key")
    with History(location) as history:
        timeline = history.timeline
        approval = state_approval(timeline, history.identifier, 1)
        assert approval is not None
        assert approval.key is not None
        with pytest.raises(ValueError, match="is not signed"):
            state_approval(timeline, "0" * 16, 1)
        ((entry, event),) = timeline.of(PlanApproved)
        for lie in (
            PlanApproved(event.plan, "B. Boss", event.key, event.signature),
            PlanApproved(event.plan, event.by, "00" * 32, event.signature),
            PlanApproved(event.plan, event.by, event.key, ""),
            PlanApproved(event.plan, event.by, "zz", "zz"),
        ):
            moments = tuple((one, lie if other is event else other) for one, other in timeline.moments)
            with pytest.raises(ValueError, match="is not signed"):
                state_approval(type(timeline)(moments), history.identifier, 1)
        assert entry.sequence > event.plan


def test_only_what_a_listed_key_signed_counts_where_keys_are_listed(keys: Path) -> None:
    assert say("key", "new", keys / "other.key").exit_code == 0
    listed = [load_public_key(keys / "officer.key.pub")]
    with History(keys / "history") as history:
        federation = Revocable(history, everybody(6))
        federation.train(Rounds(3))
        number = history.requests.ask(["clinic-1"], BUDGET)
        assert federation.forget(Exact(), Rounds(2), approval=listed) == []

        def approve(*words: object) -> None:
            result = say("request", "approve", keys / "history", 1, "--by", "A. Officer", "--yes", *words)
            assert result.exit_code == 0, result.output

        approve()
        approve("--key", keys / "other.key")
        planned = history.timeline.planned_at(number).sequence
        raw = listed[0].keyval["public"]
        history.journal.record(PlanApproved(planned, "A. Officer", raw, "00" * 64))
        assert federation.forget(Exact(), Rounds(2), approval=listed) == []
        with pytest.raises(
            PendingRequestError, match=r"--key KEY \(one of the 1 that are listed\).*with none of the keys that count"
        ):
            serve(federation, Rounds(2), Exact(), approval=listed)
        approve("--key", keys / "officer.key")
        # Whoever agrees after that takes nothing from it.
        approve()
        (outcome,) = federation.forget(Exact(), Rounds(2), approval=listed)
        assert outcome.asked.number == number
        approved = build_statement(history, number).predicate.approved
        assert approved is not None
        assert approved.key == fingerprint(listed[0])


def test_whom_the_model_never_knew_is_not_settled_without_a_listed_key(federation: Revocable, keys: Path) -> None:
    history, listed = federation.history, [load_public_key(keys / "officer.key.pub")]
    first, second = history.requests.ask(["clinic-1"], BUDGET), history.requests.ask(["clinic-2"], BUDGET)
    federation.forget(Exact(), Rounds(3), approval=True)
    history.requests.approve(second, "A. Officer")
    federation.forget(Exact(), Rounds(3), approval=True)
    history.requests.approve(first, "A. Officer")
    assert federation.forget(Exact(), Rounds(3), approval=listed) == []
    history.requests.approve(first, "A. Officer", sign_by(load_signer(keys / "officer.key", "correct horse battery")))
    (settled,) = federation.forget(Exact(), Rounds(3), approval=listed)
    assert (settled.asked.number, settled.restart) == (first, None)


@pytest.mark.parametrize("approval", [[], (), None, "officer.key.pub", ["officer.key.pub"], 1])
def test_what_lists_no_keys_is_refused(federation: Revocable, approval: Any) -> None:
    federation.history.requests.ask(["clinic-1"], BUDGET)
    for act in (
        lambda: federation.forget(Exact(), Rounds(3), approval=approval),
        lambda: serve(federation, Rounds(3), approval=approval),
    ):
        with pytest.raises(ValueError, match="the public keys of those who may agree"):
            act()
    assert federation.history.newest.branch == 0


def test_whoever_says_no_when_asked_approves_nothing(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        federation = Revocable(history, everybody(6))
        federation.train(Rounds(3))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Exact(), Rounds(2), approval=True)
        result = CliRunner().invoke(
            app, ["request", "approve", str(tmp_path / "history"), "1", "--by", "X"], input="n\n"
        )
        assert result.exit_code == 1
        assert history.timeline.approvals_of(1) == []
        refused = say("request", "refuse", tmp_path / "history", 1, "--by", "X", "--reason", "a law")
        assert refused.exit_code == 0
        assert "refused" in say("request", "list", tmp_path / "history").output


def test_another_plan_than_the_one_shown_is_not_approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(tmp_path / "history") as history:
        federation = Revocable(history, everybody(6))
        federation.train(Rounds(3))
        history.requests.ask(["clinic-1"], BUDGET)
        federation.plan(Exact(), 1)

        def confirm(text: str, *, abort: bool) -> bool:
            assert abort
            assert "by exact" in text
            # While somebody reads that, a run plans by another method.
            federation.plan(Last(), 1)
            return True

        monkeypatch.setattr("typer.confirm", confirm)
        result = say("request", "approve", tmp_path / "history", 1, "--by", "A. Officer")
        assert (result.exit_code, "planned again while" in result.output) == (1, True)
        assert history.timeline.approvals_of(1) == []


def test_an_approval_of_another_plan_counts_for_nothing(federation: Revocable) -> None:
    history = federation.history
    number = history.requests.ask(["clinic-1"], BUDGET)
    federation.plan(Exact(), number)
    history.journal.record(PlanApproved(1, "X"))
    assert history.timeline.approvals_of(number) == []


def test_a_plan_that_solves_otherwise_than_its_method_is_made_anew(federation: Revocable) -> None:
    history, number = federation.history, federation.history.requests.ask(["clinic-1"], BUDGET)
    plan = federation.plan(Solve(), number)
    loose = replace(plan.candidate, solving=Solving(tolerance=1e9, most_rounds=1))
    history.requests.record_plan(replace(plan, candidate=loose))
    assert "solved to 1e+09 in at most 1 rounds" in describe_agreed(history.timeline.plans[number])
    history.requests.approve(number, "A. Officer")
    assert federation.forget(Solve(), Rounds(3), approval=True) == []
    assert history.timeline.plans[number].candidate == plan.candidate


def test_a_plan_that_solves_is_none_of_a_method_that_trains(federation: Revocable) -> None:
    history, number = federation.history, federation.history.requests.ask(["clinic-1"], BUDGET)
    plan = federation.plan(Exact(), number)
    history.requests.record_plan(
        replace(plan, candidate=replace(plan.candidate, solving=Solving(1e9, most_rounds=1)))
    )
    history.requests.approve(number, "A. Officer")
    assert federation.forget(Exact(), Rounds(3), approval=True) == []
    assert history.timeline.plans[number].candidate == plan.candidate


def test_a_plan_has_not_seen_what_is_still_to_come(federation: Revocable) -> None:
    history, number = federation.history, federation.history.requests.ask(["clinic-1"], BUDGET)
    plan = federation.plan(Exact(), number)
    history.requests.record_plan(replace(plan, seen=history.timeline.last + 2))
    with pytest.raises(BrokenHistoryError, match="more than there can be before it"):
        _ = history.timeline


def test_who_agrees_is_told_of_what_a_plan_costs_others(federation: Revocable) -> None:
    history, number = federation.history, federation.history.requests.ask(["clinic-1"], BUDGET)
    plan = federation.plan(Exact(), number)
    weak = replace(plan.candidate, weakened=(frozenset({2}),), obstacles=("nobody knows the loss",))
    told = describe_agreed(replace(plan, candidate=weak))
    assert "It weakens the strict claim of 1 earlier request(s) to instance." in told
    assert "Nothing is proven of it: nobody knows the loss." in told
    request = next(event for _, event in history.timeline.of(RequestFiled))
    assert request.forgotten[0] in describe_agreed(request)


@pytest.mark.parametrize("moment", ["plan", "record_plan", "restart", "settle"])
@pytest.mark.parametrize("closed", ["withdrawn", "refused"])
def test_who_thinks_better_of_it_in_the_very_moment_ends_nothing(
    federation: Revocable, monkeypatch: pytest.MonkeyPatch, moment: str, closed: str
) -> None:
    history = federation.history
    first, second = history.requests.ask(["clinic-1"], BUDGET), history.requests.ask(["clinic-2"], BUDGET)

    def close() -> None:
        if first in history.timeline.open_requests:
            history.requests.withdraw(first) if closed == "withdrawn" else history.requests.refuse(
                first, "X", "a law"
            )

    def closing(original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*values: Any, **options: Any) -> Any:
            close()
            return original(*values, **options)

        return wrapped

    method = Exact()
    if moment == "plan":
        monkeypatch.setattr(Exact, "plan", closing(Exact.plan))
    elif moment == "record_plan":
        monkeypatch.setattr(Requests, "record_plan", closing(Requests.record_plan))
    elif moment == "restart":
        monkeypatch.setattr(Recorder, "restart", closing(Recorder.restart))
    else:
        # The second is served first, so that the first has nothing to be planned.
        federation.forget(method, Rounds(2), approval=True)
        history.requests.approve(second, "X")
        federation.forget(method, Rounds(2), approval=True)
        history.requests.approve(first, "X")
        monkeypatch.setattr(Recorder, "settle", closing(Recorder.settle))
    outcomes = federation.forget(method, Rounds(2))
    assert [outcome.asked.number for outcome in outcomes] == ([] if moment == "settle" else [second])
    assert [asked.served for asked in history.timeline.requests] == [False, True]
    assert "clinic-1" in history.participants.remaining(["clinic-1"])
    assert history.integrity.verify() == []


@pytest.mark.parametrize("method", [Last(), FineTuning()], ids=str)
@pytest.mark.parametrize("late", [False, True])
def test_who_plans_in_the_very_moment_of_the_restart_changes_no_claim(
    federation: Revocable, monkeypatch: pytest.MonkeyPatch, method: Method, late: bool
) -> None:
    """Another process that plans sees the request open, and writes just before the branch is there or just after."""
    history, start_branch = federation.history, Ledger.start_branch
    number = history.requests.ask(["clinic-1"], BUDGET)
    exact = federation.plan(Exact(), number)

    def plan() -> None:
        history.journal.record(exact)

    def start_slowly(*values: Any) -> None:
        if not late:
            plan()
        start_branch(*values)

    planned = federation.plan(method, number)
    history.requests.approve(number, "A. Officer")
    monkeypatch.setattr(Ledger, "start_branch", start_slowly)
    outcomes = replace(federation, after_round=lambda _: plan() if late else None).forget(
        method, Rounds(1), approval=True
    )
    assert [(outcome.restart.planned, outcome.mode) for outcome in outcomes] == [(planned, planned.candidate.mode)]
    assert outcome_of(history.timeline, number).mode is planned.candidate.mode is not Mode.EXACT
    assert history.timeline.approvals_of(number)


def test_whoever_agrees_once_it_is_carried_out_has_approved_nothing(federation: Revocable) -> None:
    history = federation.history
    number = history.requests.ask(["clinic-1"], BUDGET)
    federation.plan(Exact(), number)

    def sign(_: bytes) -> tuple[str, str]:
        # A card reader takes its time.
        federation.forget(Exact(), Rounds(2))
        return "", ""

    history.requests.approve(number, "A. Officer", sign)
    assert len(entries_of(history, "approval")) == 1
    assert build_statement(history, number).predicate.approved is None


def test_a_plan_for_two_is_void_once_one_of_them_is_planned_alone(federation: Revocable) -> None:
    history = federation.history
    first, second = history.requests.ask(["clinic-1"], BUDGET), history.requests.ask(["clinic-2"], BUDGET)
    federation.plan(Exact(), first, second)
    history.requests.approve(first, "A. Officer")
    federation.plan(Exact(), second)
    history.requests.approve(second, "B. Boss")
    assert federation.forget(Exact(), Rounds(2), together=True, approval=True) == []
    history.requests.approve(second, "C. Chief")
    federation.forget(Exact(), Rounds(2), together=True, approval=True)
    for number in (first, second):
        approval = history.timeline.approvals_of(number)[-1]
        assert approval[1].by == "C. Chief"


def test_an_approval_that_its_key_did_not_sign_is_not_certified(federation: Revocable) -> None:
    history = federation.history
    number = history.requests.ask(["clinic-1"], BUDGET)
    federation.plan(Exact(), number)
    public = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    history.requests.approve(number, "A. Officer", lambda _: (public, "00" * 64))
    federation.forget(Exact(), Rounds(2), approval=True)
    with pytest.raises(ValueError, match="not signed by the key"):
        build_statement(history, number)


@pytest.mark.parametrize("refused", [True, False])
def test_what_is_dropped_while_its_plan_is_shown_is_not_carried_out(federation: Revocable, refused: bool) -> None:
    history = federation.history
    first, second = history.requests.ask(["clinic-1"], BUDGET), history.requests.ask(["clinic-2"], BUDGET)

    def drop(plan: RecordedPlan) -> None:
        if plan.requests == (first,):
            history.requests.refuse(first, "A. Officer", "a law") if refused else history.requests.withdraw(first)

    (outcome,) = replace(federation, planned=drop).forget(Exact(), Rounds(2))
    assert outcome.asked.number == second
    assert history.participants.remaining(["clinic-1"]) == ["clinic-1"]


@pytest.mark.parametrize("asker", [Asker.KEY, Asker.NODE])
def test_whoever_asks_itself_asks_for_one(federation: Revocable, asker: Asker) -> None:
    with pytest.raises(ValueError, match="asks for one client"):
        federation.history.requests.ask(["clinic-1", "clinic-2"], BUDGET, sender=Sender(asker, "a" * 64))
    assert federation.history.timeline.requests == ()


# Without hands


class KilledError(Exception):
    """Ends a run in the middle of a retraining."""


def kill_in_retraining(federation: Revocable) -> None:
    """Begin to forget by the last model, and end while its branch is trained."""

    def kill(model_id: ModelId, _: object) -> None:
        if model_id.branch == 1:
            raise KilledError

    with pytest.raises(KilledError):
        replace(federation, watch=kill).forget(Last(), Rounds(3))


def count(turns: int, then: Callable[[int], bool] = lambda _: True) -> Callable[..., bool]:
    """Return a rule that ends a run after some looks."""
    seen = 0

    def rule(waiting: Sequence[FiledRequest], now: datetime) -> bool:
        nonlocal seen
        assert now.tzinfo is not None
        seen += 1
        if seen > turns:
            raise StopServing
        return then(seen)

    return rule


def test_a_serving_run_waits_for_requests_and_serves_them(history: History) -> None:
    federation = Revocable(history, everybody(6))
    served: list[Outcome] = []
    pauses = iter([["clinic-1"], [], ["clinic-2"], [], []])

    def pause() -> None:
        for name in next(pauses):
            history.requests.ask([name], BUDGET)

    serve(federation, Rounds(3), Exact(), served=served.append, rule=count(5), pause=pause)
    assert [outcome.asked.number for outcome in served] == [1, 2]
    assert history.newest.branch == 2
    assert history.integrity.verify() == []


def test_a_rule_batches_requests_and_training_is_held_meanwhile(history: History) -> None:
    federation = Revocable(history, everybody(6))
    served: list[Outcome] = []
    asked = iter([["clinic-1"], ["clinic-2"], [], [], []])
    seen: list[int] = []

    def pause() -> None:
        seen.append(history.newest.branch)
        for name in next(asked):
            history.requests.ask([name], BUDGET)

    serve(federation, Rounds(3), Exact(), served=served.append, rule=count(5, lambda at: at != 2), pause=pause)
    assert [outcome.asked.number for outcome in served] == [1, 2]
    # In the second turn nobody was forgotten, and nothing trained.
    assert seen[1] == 0


def test_a_run_says_once_who_and_what_it_waits_for(history: History, caplog: pytest.LogCaptureFixture) -> None:
    federation = Revocable(history, everybody(6))
    asked = iter([["clinic-1"], [], [], [], [], []])

    def pause() -> None:
        for name in next(asked):
            history.requests.ask([name], BUDGET)

    # It is due in the fourth turn, and waits for somebody to agree from then on.
    rule = count(6, lambda at: at in (1, 4, 5, 6))
    with caplog.at_level("INFO", "flwr"), pytest.raises(PendingRequestError):
        serve(federation, Rounds(3), Exact(), approval=True, rule=rule, pause=pause)
    due = history.timeline.requests[0].deadline[:10]
    lines = [record.getMessage() for record in caplog.records if " waits " in record.getMessage()]
    assert lines == [
        "rescind: the run waits for requests",
        f"rescind: request 1 waits for the rule rule, and has to be served by {due}; a run with another "
        "rule serves it earlier",
        f"rescind: request 1 is planned and waits for somebody to agree, by {due}: rescind request approve HISTORY "
        "NUMBER --by PERSON, or rescind request refuse HISTORY NUMBER --by PERSON --reason REASON",
    ]


class Asking(Simulation):
    """Remembers of which models clients are asked how good they are."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.asked: list[str] = []

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float | None:
        self.asked.append(digest(model))
        return super().accuracy(model, names)


def test_a_run_that_waits_does_not_ask_again_how_good_a_model_is(history: History) -> None:
    head = SoftmaxHead(small.FEATURES, small.CLASSES)
    engine = Asking(small.federation(6), head, small.TRAINING, secret=b"a federation", sampling=Sampling.EVERYBODY)
    federation = Revocable(history, engine, scored=False)
    asked: list[int] = []
    steps: dict[int, Callable[[], object]] = {
        3: lambda: history.requests.ask(["clinic-1"], BUDGET),
        6: lambda: history.requests.withdraw(1),
        9: lambda: [history.requests.ask([name], BUDGET) for name in ("clinic-2", "clinic-3")],
        12: lambda: history.requests.approve(2, "A. Officer"),
    }

    def pause() -> None:
        asked.append(len(engine.asked))
        steps.get(len(asked), lambda: None)()

    serve(federation, Accuracy(0.5, most=9), Exact(), approval=True, rule=count(20), pause=pause)
    # Of the last request the newest model knows nobody, so training need not wait for it.
    assert history.newest.branch == 1
    assert list(history.timeline.open_requests) == [3]
    # Of what a forgetting has made the training after it asks once more.
    assert asked == [1] * 12 + [3] * 8
    assert len(set(engine.asked)) == 2


def test_what_a_request_broke_off_goes_on_once_that_is_taken_back(history: History) -> None:
    def ask(model_id: ModelId, _: object) -> None:
        if model_id == ModelId(0, 2):
            history.requests.ask(["clinic-1"], BUDGET)

    steps: list[Callable[[], object]] = [lambda: history.requests.withdraw(1)]

    def pause() -> None:
        if steps:
            steps.pop(0)()

    federation = Revocable(history, everybody(6), watch=ask)
    serve(federation, Rounds(5), Exact(), approval=True, rule=count(5), pause=pause)
    assert history.newest == ModelId(0, 5)


def test_what_waits_for_somebody_to_agree_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    with History(folder) as history:
        federation = Revocable(history, everybody(6))
        federation.train(Rounds(2))
        number = history.requests.ask(["clinic-1"], BUDGET)
        assert "waits for approval" not in say("request", "list", folder).output
        with pytest.raises(PendingRequestError, match=r"agree, by 2\d{3}-"):
            serve(federation, Rounds(2), Exact(), approval=True)
        planned = history.timeline.planned_at(number).time[:16].replace("T", " ")
        for command in (("status",), ("request", "list")):
            assert f"waits for approval since {planned}" in " ".join(say(*command, folder).output.split())
        gauge = 'rescind_undecided_requests{run="' + history.identifier + '"}'
        assert f"{gauge} 1" in say("status", folder, "--format", "prometheus").output
        history.requests.approve(number, "A. Officer")
        assert f"{gauge} 0" in say("status", folder, "--format", "prometheus").output
        assert "waits for approval" not in say("status", folder).output


def test_a_rule_that_ends_while_somebody_waits_hands_out_nothing(federation: Revocable) -> None:
    federation.history.requests.ask(["clinic-1"], BUDGET)
    with pytest.raises(PendingRequestError, match="request 1 is open"):
        serve(federation, Rounds(3), Exact(), rule=count(1, lambda _: False))


def test_a_rule_that_ends_while_somebody_is_being_forgotten_hands_out_nothing(federation: Revocable) -> None:
    history = federation.history
    history.requests.ask(["clinic-1"], BUDGET)

    kill_in_retraining(federation)
    with pytest.raises(PendingRequestError, match="request 1 is being served"):
        serve(federation, Rounds(3), Last(), rule=count(0))
    assert serve(federation, Rounds(3), Last(), rule=count(1))


def test_a_serving_run_goes_on_once_somebody_agrees(history: History) -> None:
    federation = Revocable(history, everybody(6))
    served: list[Outcome] = []
    steps: list[Callable[[], object]] = [
        lambda: history.requests.ask(["clinic-1"], BUDGET),
        lambda: None,
        lambda: history.requests.approve(1, "X"),
        lambda: history.requests.ask(["clinic-2"], BUDGET),
        lambda: history.requests.refuse(2, "X", "a law"),
    ]

    def pause() -> None:
        if steps:
            steps.pop(0)()

    model = serve(federation, Rounds(2), Exact(), served=served.append, approval=True, rule=count(9), pause=pause)
    assert [outcome.asked.number for outcome in served] == [1]
    assert model
    assert history.newest.branch == 1


def test_what_was_begun_is_finished_and_who_else_is_open_waits_until_it_is_due(federation: Revocable) -> None:
    history = federation.history
    history.requests.ask(["clinic-1"], BUDGET)

    kill_in_retraining(federation)
    history.requests.ask(["clinic-2"], BUDGET)
    served: list[int] = []

    def note(outcome: Outcome) -> None:
        served.append(outcome.asked.number)

    with pytest.raises(PendingRequestError, match="request 2 is open"):
        serve(federation, Rounds(3), Last(), served=note, rule=count(3, lambda _: False))
    assert served == [1]
    serve(federation, Rounds(3), Last(), served=note, rule=count(1))
    assert served == [1, 2]


class Shelf:
    """An outlet that remembers what was there."""

    def __init__(self) -> None:
        self.told: list[ModelId | None] = []

    def put(self, model_id: ModelId, model: object) -> None:
        assert model
        self.told.append(model_id)

    def clear(self) -> None:
        self.told.append(None)


def test_a_model_that_knows_nobody_who_waits_stays_where_it_is(history: History) -> None:
    federation, shelf = Revocable(history, everybody(6)), Shelf()
    steps: list[Callable[[], object]] = [
        lambda: [history.requests.ask([name], BUDGET) for name in ("clinic-1", "clinic-2")],
        lambda: history.requests.approve(2, "A. Officer"),
    ]

    def pause() -> None:
        if steps:
            steps.pop(0)()

    serve(federation, Rounds(2), Exact(), outlet=shelf, approval=True, rule=count(8), pause=pause)
    # The first request waits for somebody to agree, and the model that was made for the second never saw its client.
    assert list(history.timeline.open_requests) == [1]
    assert shelf.told[-1] == history.newest == ModelId(1, 2)
    assert shelf.told.count(history.newest) == 1


def test_what_was_taken_back_for_a_plan_that_is_dropped_is_there_again(history: History) -> None:
    shelf = Shelf()

    def drop(_: RecordedPlan) -> None:
        history.requests.withdraw(1)

    federation = Revocable(history, everybody(6), planned=drop)
    steps = [lambda: history.requests.ask(["clinic-1"], BUDGET)]

    def pause() -> None:
        if steps:
            steps.pop(0)()

    serve(federation, Rounds(2), Exact(), outlet=shelf, rule=count(4), pause=pause)
    assert shelf.told[-1] == history.newest == ModelId(0, 2)


def filed(deadline: datetime) -> FiledRequest:
    with History.in_memory() as other:
        federation = Revocable(other, everybody(6))
        federation.train(Rounds(1))
        number = other.requests.ask(["clinic-1"], BUDGET, deadline=deadline)
        return other.timeline.open_requests[number]


def test_at_night_or_when_it_is_urgent() -> None:
    zone = ZoneInfo("Europe/Zurich")
    soon = filed(datetime.now(UTC) + timedelta(days=20))
    due = datetime.fromisoformat(soon.deadline)
    day = (due - timedelta(days=10)).astimezone(zone)
    assert at_once([soon], day)
    assert nightly([soon], day.replace(hour=1))
    assert nightly([soon], day.replace(hour=4))
    assert not nightly([soon], day.replace(hour=5))
    assert not nightly([], day.replace(hour=12))
    assert not nightly([soon], day.replace(hour=12))
    for hours in range(24):
        assert nightly([soon], (due - timedelta(days=1, hours=hours)).astimezone(zone))
    # The hour that comes twice, and the one that does not come.
    for month, last in ((10, 31), (3, 28)):
        for fold in (0, 1):
            assert nightly([], datetime(2027, month, last, 2, 30, tzinfo=zone, fold=fold))


# Deadlines


@pytest.mark.parametrize(
    ("asked", "due"),
    [
        ("2026-01-31", "2026-02-28"),
        ("2028-01-31", "2028-02-29"),
        ("2028-01-30", "2028-02-29"),
        ("2026-02-28", "2026-03-28"),
        ("2026-12-31", "2027-01-31"),
        ("2026-08-31", "2026-09-30"),
        ("2026-11-17", "2026-12-17"),
    ],
)
def test_a_month_is_a_month_of_the_calendar(asked: str, due: str) -> None:
    with History.in_memory() as history:
        Revocable(history, everybody(4)).train(Rounds(1))
        now = datetime.fromisoformat(f"{asked}T23:30:00+00:00")
        history.journal.clock = lambda: now
        number = history.requests.ask(["clinic-1"], BUDGET)
        assert history.timeline.requests[0].deadline == f"{due}T23:30:00+00:00"
        latest = add_months(datetime.fromisoformat(f"{due}T23:30:00+00:00"), 2)
        days = (latest - datetime.fromisoformat(f"{due}T23:30:00+00:00")).days
        with pytest.raises(ValueError, match="two months in all"):
            history.requests.extend(number, days + 1, "too much")
        assert history.requests.extend(number, days, "many at once") == latest.isoformat()


def test_it_is_too_late_to_extend_once_the_first_month_is_over(tmp_path: Path) -> None:
    asked = datetime.now(UTC) - timedelta(days=40)
    with History(tmp_path / "history") as history:
        Revocable(history, everybody(4)).train(Rounds(1))
        history.journal.clock = lambda: asked
        for client, week in (("clinic-1", None), ("clinic-2", asked + timedelta(days=7))):
            history.requests.ask([client], BUDGET, deadline=week)
        history.journal.clock = lambda: asked + timedelta(days=20)
        history.requests.extend(2, 60, "many at once")
        history.journal.clock = lambda: asked + timedelta(days=32)
        for number in (1, 2):
            with pytest.raises(ValueError, match=rf"request {number} can be extended until .* only.*art. 12\(3\)"):
                history.requests.extend(number, 1, "too late")
        says = {filed.number: filed.deadline[:10] for filed in history.timeline.requests}
    late = said("request", "extend", tmp_path / "history", 1, "--days", 3, "--reason", "forgot")
    assert (late.exit_code, "serve it now, and tell them why it is late" in late.output) == (1, True)
    listed = said("request", "list", tmp_path / "history").output
    assert f"open, overdue since {says[1]}" in listed
    assert f"open, due {says[2]}" in listed


@given(
    time=st.datetimes(datetime(1971, 1, 1), datetime(8000, 1, 1), timezones=st.just(timezone(timedelta(hours=5)))),
    months=st.integers(0, 40),
)
def test_months_are_added_one_by_one_or_together(time: datetime, months: int) -> None:
    later = add_months(time, months)
    assert (later.year * 12 + later.month) - (time.year * 12 + time.month) == months
    assert later.day == time.day or (later + timedelta(days=1)).day == 1
    assert later.timetz() == time.timetz()
