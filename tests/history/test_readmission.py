"""Who was forgotten comes back by a command that is recorded, and not otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from rescind import History
from rescind.certificates.issue import build_statement
from rescind.core.calibration import Budget
from rescind.core.facts import PrivacyScope, Sampling
from rescind.engines.stops import Rounds
from rescind.errors import ForgottenClientError, UnknownClientError
from rescind.forgetting import Revocable
from rescind.history.erasure import Eraser
from rescind.history.participants import LONGEST_REASON
from rescind.ledger.contract import Ledger
from rescind.methods import Exact, FineTuning, Last, Method, Scratch
from rescind.simulation import Simulation, SoftmaxHead
from rescind.testing import small
from tests.builders import entries_of, register

LEAVER, LABEL, WHY = "clinic-2", "Clinic of the North", "a new contract"
BUDGET = Budget(5.0, 1e-5)


@pytest.fixture(params=["memory", "folder"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    with History.in_memory() if request.param == "memory" else History(tmp_path / "history") as opened:
        federation(opened).train(Rounds(2))
        opened.participants.label({LEAVER: LABEL})
        yield opened


def federation(history: History, key: str = LEAVER) -> Revocable:
    """Return four clinics, of which the one that leaves has a key."""
    clinics = small.federation(4)
    shards = {key if name == LEAVER else name: shard for name, shard in clinics.shards.items()}
    return Revocable(
        history,
        Simulation(
            replace(clinics, shards=shards),
            SoftmaxHead(small.FEATURES, small.CLASSES),
            small.TRAINING,
            secret=b"clinics",
            sampling=Sampling.EVERYBODY,
            secret_noise=True,
        ),
    )


def forget(history: History, *names: str, method: Method = Scratch()) -> int:  # noqa: B008
    number = history.requests.ask(names, BUDGET)
    federation(history).forget(method, Rounds(1))
    return number


def come_back(history: History, key: str, label: str | None) -> None:
    """Train a round with the leaver's data under another key."""
    federation(history, key).train(Rounds(history.newest.round + 1))
    if label:
        history.participants.label({key: label})


@pytest.mark.parametrize("name", [LEAVER, LABEL])
def test_a_readmitted_client_is_a_new_one_that_can_leave_again(history: History, name: str) -> None:
    (old,) = history.participants.find([LEAVER])
    number = forget(history, LEAVER)
    assert history.participants.remaining([LEAVER]) == []
    assert history.participants.barred({LEAVER: "x", "a new key": LABEL, "a new one": "x"}) == {LEAVER, "a new key"}
    assert history.timeline.readmitted(number) is None
    assert history.participants.readmit(name, WHY) == (old,)
    assert history.participants.remaining([LEAVER]) == [LEAVER]
    assert history.participants.barred({LEAVER: "x", "a new key": LABEL}) == set()
    (entry,) = entries_of(history, "readmission")
    assert entry.body == {"clients": [old], "reason": WHY}
    assert history.timeline.readmitted(number) == entry.sequence
    federation(history).train(Rounds(3))
    (new,) = history.participants.find([LEAVER])
    assert new not in (old, *history.timeline.forgotten)
    assert history.integrity.verify() == []

    second = forget(history, LEAVER)
    assert history.participants.remaining([LEAVER]) == []
    assert history.timeline.readmitted(second) is None
    with pytest.raises(ForgottenClientError, match=LEAVER):
        register(history, LEAVER)
    assert history.participants.readmit(LEAVER, WHY) == (new,)
    assert history.integrity.verify() == []


def test_who_was_not_forgotten_is_not_readmitted(history: History) -> None:
    forget(history, LEAVER)
    with pytest.raises(UnknownClientError, match="nobody called 'nobody' was forgotten here"):
        history.participants.readmit("nobody", WHY)
    with pytest.raises(UnknownClientError, match=r"nobody called 'clinic-1' was forgotten here.*it may take part"):
        history.participants.readmit("clinic-1", WHY)


def test_who_stays_without_some_rows_is_not_readmitted(history: History) -> None:
    history.requests.ask([LEAVER], BUDGET, scope=PrivacyScope.RECORDS)
    federation(history).forget(Exact(), Rounds(1))
    with pytest.raises(UnknownClientError, match="it may take part"):
        history.participants.readmit(LEAVER, WHY)


def test_who_was_readmitted_is_not_readmitted_again(history: History) -> None:
    forget(history, LEAVER)
    history.participants.readmit(LABEL, WHY)
    head = history.head
    for name in (LEAVER, LABEL):
        with pytest.raises(ValueError, match="was readmitted already"):
            history.participants.readmit(name, WHY)
    assert history.head == head


def test_nobody_is_readmitted_before_the_request_is_served_with_its_erasure(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = history.requests.ask([LEAVER], BUDGET)
    refusal = f"request {number} is about this client and not served to its end"
    for name in (LEAVER, LABEL):
        with pytest.raises(ValueError, match=refusal):
            history.participants.readmit(name, WHY)
    whole = Eraser.steps
    for step in range(6):
        with monkeypatch.context() as cut:
            cut.setattr(Eraser, "steps", lambda *of, step=step: dict([*islice(whole(*of).items(), step), ("", die)]))
            with pytest.raises(KeyboardInterrupt):
                federation(history).forget(Scratch(), Rounds(1))
        with pytest.raises(ValueError, match=refusal):
            history.participants.readmit(LEAVER, WHY)
    federation(history).forget(Scratch(), Rounds(1))
    assert history.participants.readmit(LEAVER, WHY)
    assert history.integrity.verify() == []


def die() -> None:
    raise KeyboardInterrupt


def test_a_label_is_not_readmitted_while_another_key_under_it_waits(history: History) -> None:
    history.participants.label({"clinic-1": LABEL})
    forget(history, LEAVER)
    history.requests.ask(["clinic-1"], BUDGET)
    with pytest.raises(ValueError, match="request 2 is about this client"):
        history.participants.readmit(LABEL, WHY)
    history.requests.withdraw(2)
    assert history.participants.readmit(LABEL, WHY)


@pytest.mark.parametrize(
    ("reason", "refusal"),
    [
        (" ", "give a reason: without one nobody is readmitted"),
        ("x" * (LONGEST_REASON + 1), "at most 1000 are recorded"),
        ("CLINIC-2 has a new contract", "names the client"),
    ],
)
def test_a_reason_is_given_and_names_nobody(history: History, reason: str, refusal: str) -> None:
    forget(history, LEAVER)
    head = history.head
    with pytest.raises(ValueError, match=refusal):
        history.participants.readmit(LEAVER, reason)
    assert history.head == head


def test_a_short_name_within_other_words_is_no_name(history: History) -> None:
    history.participants.label({LEAVER: "act"})
    forget(history, LEAVER)
    with pytest.raises(ValueError, match="names the client"):
        history.participants.readmit("act", "Act has signed")
    assert history.participants.readmit("act", WHY)


def test_a_readmission_that_was_cut_off_is_done_or_not(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(history, LEAVER)
    written = Ledger.append
    for done in (False, True):
        with monkeypatch.context() as cut:

            def append(*entry: object, done: bool = done) -> None:
                if done:
                    written(*entry)  # type: ignore[arg-type]
                raise KeyboardInterrupt

            cut.setattr(Ledger, "append", append)
            with pytest.raises(KeyboardInterrupt):
                history.participants.readmit(LEAVER, WHY)
        assert history.participants.remaining([LEAVER]) == [LEAVER] * done
        assert history.integrity.verify() == []
    with pytest.raises(ValueError, match="was readmitted already"):
        history.participants.readmit(LEAVER, WHY)


@pytest.mark.parametrize("method", [Last(), FineTuning()])
def test_who_left_a_trace_is_not_readmitted(history: History, method: Method) -> None:
    """It could leave again, and get an exact certificate for a model that its first stay is in."""
    number = history.requests.ask([LEAVER], Budget(8.0, 0.01))
    federation(history).forget(method, Rounds(2))
    head = history.head
    with pytest.raises(ValueError, match=f"by request {number} this client was not forgotten exactly"):
        history.participants.readmit(LEAVER, WHY)
    assert history.head == head
    if isinstance(method, Last):
        # Another's restart from the beginning takes the trace away.
        forget(history, "clinic-1")
        assert history.participants.readmit(LEAVER, WHY)


def test_a_sequence_and_a_readmission_do_not_go_together(history: History) -> None:
    forget(history, LEAVER)
    waiting = history.requests.ask(["clinic-1"], BUDGET, scope=PrivacyScope.SEQUENCE)
    with pytest.raises(ValueError, match=f"request {waiting} is to hide everybody who left before it"):
        history.participants.readmit(LEAVER, WHY)
    history.requests.withdraw(waiting)
    history.participants.readmit(LEAVER, WHY)
    with pytest.raises(ValueError, match="somebody was readmitted: ask with the scope 'group'"):
        history.requests.ask(["clinic-1"], BUDGET, scope=PrivacyScope.SEQUENCE)
    assert history.requests.ask(["clinic-1"], BUDGET)


def test_rows_that_left_before_their_client_did_are_not_claimed_of_what_it_trains_later(history: History) -> None:
    rows = history.requests.ask([LEAVER], BUDGET, scope=PrivacyScope.RECORDS)
    federation(history).forget(Exact(), Rounds(1))
    federation(history).train(Rounds(2))
    forget(history, LEAVER)
    history.participants.readmit(LEAVER, WHY)
    (entry,) = entries_of(history, "readmission")
    assert history.timeline.readmitted(rows) == entry.sequence
    federation(history).train(Rounds(3))
    assert build_statement(history, rows).predicate.model == "2.1"


def test_who_comes_back_under_another_key_and_leaves_again_is_barred_by_all_it_was_called(history: History) -> None:
    forget(history, LEAVER)
    history.participants.readmit(LABEL, WHY)
    come_back(history, "a new key", LABEL)
    second = forget(history, "a new key", method=Last())
    head = history.head
    assert history.participants.remaining([LEAVER]) == []
    assert history.participants.barred({LEAVER: "x", "a third key": LABEL}) == {LEAVER, "a third key"}
    with pytest.raises(ForgottenClientError, match=LEAVER):
        register(history, LEAVER)
    for name in (LEAVER, LABEL, "a new key"):
        with pytest.raises(ValueError, match=f"by request {second} this client was not forgotten exactly"):
            history.participants.readmit(name, WHY)
    assert history.head == head


def test_that_many_come_back_at_once_is_looked_up_once(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"clinic-{number}" for number in range(3)]
    forget(history, *names)
    for name in names:
        history.participants.readmit(name, WHY)
    forget(history, "clinic-3")
    looked: list[object] = []
    linked = Ledger.linked
    monkeypatch.setattr(Ledger, "linked", lambda *of: looked.append(of) or linked(*of))
    assert history.participants.barred({name: name for name in [*names, "clinic-3"]}) == {"clinic-3"}
    assert len(looked) == 1


def test_a_label_that_was_left_out_the_second_time_bars_too(history: History) -> None:
    forget(history, LEAVER)
    history.participants.readmit(LEAVER, WHY)
    come_back(history, LEAVER, None)
    history.requests.ask([LEAVER], BUDGET)
    assert history.participants.barred({"a new key": LABEL}) == {"a new key"}
    federation(history).forget(Scratch(), Rounds(1))
    assert history.participants.barred({"a new key": LABEL}) == {"a new key"}
    assert history.participants.readmit(LABEL, WHY)
    assert history.participants.barred({"a new key": LABEL}) == set()


def test_clients_are_linked_by_whoever_is_there_too(history: History) -> None:
    """A first key and a second label are the same participant, as it has come back with both."""
    forget(history, LEAVER)
    history.participants.readmit(LEAVER, WHY)
    history.participants.label({"clinic-1": "the other label"})
    come_back(history, LEAVER, "the other label")
    forget(history, "clinic-1")
    assert history.participants.barred({"a new key": LABEL}) == {"a new key"}
    assert history.integrity.verify() == []


def test_two_keys_under_one_label_are_readmitted_together(history: History) -> None:
    history.participants.label({"clinic-1": LABEL})
    numbers = [forget(history, LEAVER), forget(history, "clinic-1")]
    assert len(history.participants.readmit(LEAVER, WHY)) == 2
    (entry,) = entries_of(history, "readmission")
    assert [history.timeline.readmitted(number) for number in numbers] == [entry.sequence] * 2
    assert history.participants.remaining([LEAVER, "clinic-1"]) == [LEAVER, "clinic-1"]
    assert history.integrity.verify() == []


def test_a_key_is_not_readmitted_if_another_under_its_label_left_a_trace(history: History) -> None:
    history.participants.label({"clinic-1": LABEL})
    forget(history, LEAVER)
    federation(history).train(Rounds(2))
    trace = forget(history, "clinic-1", method=Last())
    with pytest.raises(ValueError, match=f"by request {trace} this client was not forgotten exactly"):
        history.participants.readmit(LEAVER, WHY)
