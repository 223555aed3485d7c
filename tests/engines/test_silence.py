"""Clients that hang, lie about who they are or talk too much: what they cost, and what the log says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import Accuracy, History
from rescind.core.edges import ModelId
from rescind.core.facts import Source
from rescind.flower.server.grid import PROMPT, Backoff
from rescind.flower.server.replies import describe_metrics
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation
from tests.builders import BUDGET, labels_of, rounds_of
from tests.recording import wrap

CLINICS = federation(6).shards
HANGS = "clinic-3"
Change = Callable[[RecordDict, Context], None]


class Hanging(InProcessGrid):
    """A Grid on which one node is silent in the rounds for which ``hangs`` says so."""

    def __init__(self, app: ClientApp, hangs: Callable[[int], bool], names: list[str], authenticated: bool) -> None:
        super().__init__(app, {name: {"client-id": name} for name in names}, authenticated=authenticated)
        self.hangs = hangs

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        rounds = {int(each.content["config"].get("rescind.round", 0)) for each in sent}
        self.failing = {HANGS} if any(map(self.hangs, rounds)) else set()
        return super().send_and_receive(sent, timeout=timeout)

    def asked(self, kind: str) -> int:
        return self.sent.count((HANGS, kind))


USUAL = {"accuracy": 0.5, "num-examples": 1, "Jane Roe's metric": 0.25}


def app(
    change: Change | None = None, called: str | None = None, evaluated: Mapping[str, Any] = MappingProxyType(USUAL)
) -> ClientApp:
    made = ClientApp()

    @made.query()
    def query(msg: Message, context: Context) -> Message:
        reply = rescind.flower.identify(msg, context)
        if called is not None and context.node_config["client-id"] == HANGS:
            reply.content.config_records["rescind"]["client-id"] = called
        return reply

    @made.train()
    def train(msg: Message, context: Context) -> Message:
        shard = CLINICS[str(context.node_config["client-id"])]
        reply = rescind.flower.train_head(msg, context, shard.features, shard.labels)
        if change is not None:
            change(reply.content, context)
        return reply

    @made.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        metrics = MetricRecord(dict(evaluated))
        return Message(RecordDict({"metrics": metrics}), reply_to=msg)

    return made


def grid(
    hangs: Callable[[int], bool] = lambda _: False,
    *,
    change: Change | None = None,
    called: str | None = None,
    without: str = "",
    authenticated: bool = True,
) -> Hanging:
    return Hanging(app(change, called), hangs, [name for name in CLINICS if name != without], authenticated)


class Coming(InProcessGrid):
    """A Grid on which ``late`` nodes are missing in the first three looks, and ``registered`` ones have keys.

    Who is registered may change: it follows from the number of rounds that clinic-0 was asked to train in.
    """

    def __init__(
        self,
        nodes: dict[str, dict[str, str]],
        late: set[str] | None = None,
        registered: Callable[[int], set[str]] = lambda _: set(),
    ) -> None:
        super().__init__(app(), nodes, authenticated=False)
        self.late, self.registered, self.looks = late or set(), registered, 0

    def get_nodes(self) -> list[Any]:
        self.looks += 1
        self.gone = self.late if self.looks <= 3 else set()
        names = {node: name for name, node in self.ids.items()}
        registered = self.registered(self.sent.count(("clinic-0", "train")))
        return [
            replace(node, name=name, public_key=self.key(name))
            if (name := names[node.node_id]) in registered
            else node
            for node in super().get_nodes()
        ]


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescind.flower.server.nodes._PAUSE", 0.0)


def train(
    history: History,
    on: InProcessGrid,
    rounds: int,
    strategy: Any = None,
    timeout: float = 600.0,
    until: Any = None,
    **options: Any,
) -> None:
    arrays = {"head.weight": Array(np.zeros((CLASSES, FEATURES))), "head.bias": Array(np.zeros(CLASSES))}
    chosen = {"training": TRAINING, "trained": list(arrays), "seed": b"a federation for tests 1"} | options
    recorded = wrap(strategy or fedavg(), history, **chosen)
    rescind.flower.run(recorded, on, ArrayRecord(arrays), num_rounds=rounds, timeout=timeout, until=until)


def fedavg(**options: Any) -> FedAvg:
    return FedAvg(**({"fraction_evaluate": 0.0, "min_train_nodes": 1, "min_available_nodes": 1} | options))


def took_part(history: History, rounds: int) -> list[set[str]]:
    called = labels_of(history)
    return [{called[each] for each in one.clients.tolist()} for one in rounds_of(history, 0, 1, rounds)]


# Who hangs


def test_a_client_that_hangs_is_waited_for_in_few_rounds(history: History, caplog: pytest.LogCaptureFixture) -> None:
    on = grid(lambda _: True)
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 20, fedavg(fraction_evaluate=1.0))
    # In rounds 1, 2, 4, 8 and 16; who evaluates depends on who else is there, so silence is counted apart.
    assert on.asked("train") == on.asked("evaluate") == 5
    assert [len(each) for each in took_part(history, 20)] == [5] * 20
    assert re.search(
        rf"branch 0, round 1 of 20, about 0:\d\d:\d\d left: 5 of 6 replied; no answer: client {HANGS!r}", caplog.text
    )
    assert f"client {HANGS!r} did not answer in 0 s: it is asked again 8 round(s) later" in caplog.text


def test_a_node_that_flower_lost_is_not_said_to_have_failed(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """The SuperLink answers for it, at once and under its own number."""

    class Lost(Hanging):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            sent = list(messages)
            replies = super().send_and_receive(sent, timeout=timeout)
            for lost in [each for each in sent if each.metadata.dst_node_id == self.ids[HANGS]]:
                replies.append(Message(Error(code=5, reason="Node Unavailable"), reply_to=lost))
                replies[-1].metadata.__dict__["_src_node_id"] = 1
            return replies

    on = Lost(app(), lambda _: True, list(CLINICS), authenticated=True)
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 2)
    assert "Flower has lost a node (code 5)" in caplog.text
    assert f"client {HANGS!r} did not answer in 0 s" in caplog.text
    assert "failed" not in caplog.text


def test_who_answers_again_is_asked_in_every_round_again(history: History) -> None:
    train(history, grid(lambda round_: 0 < round_ < 4), 9)
    assert [HANGS in each for each in took_part(history, 9)] == [False] * 3 + [True] * 6


def test_a_client_that_fails_at_once_is_not_silent(history: History) -> None:
    def fail(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] == HANGS:
            raise RuntimeError

    on = grid(change=fail)
    train(history, on, 6)
    assert on.asked("train") == 6


@pytest.mark.parametrize("options", [{"rate": 0.6}, {"strategy": fedavg(fraction_train=0.5)}])
def test_leaving_a_silent_client_alone_changes_nothing_for_the_others(options: dict[str, Any]) -> None:
    """Who hangs has no part in who else takes part, whenever it hangs: the drawing goes on as if it answered."""
    found = []
    for hangs in (lambda _: False, lambda _: True, lambda round_: round_ in (2, 3, 4, 9)):
        with History.in_memory() as history:
            train(history, grid(hangs), 12, **options)
            found.append([each - {HANGS} for each in took_part(history, 12)])
    assert found[0] == found[1] == found[2]
    if "rate" in options:
        with History.in_memory() as history:
            train(history, grid(without=HANGS), 12, **options)
            assert took_part(history, 12) == found[0]


class Silent(Hanging):
    """A Grid on which whoever ``who`` names for the messages that are sent is silent."""

    def __init__(
        self, who: Callable[[list[Message]], set[str]], names: list[str], authenticated: bool = True
    ) -> None:
        super().__init__(app(), lambda _: False, names, authenticated)
        self.who = who

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        self.failing = self.who(sent)
        return InProcessGrid.send_and_receive(self, sent, timeout=timeout)


def test_silence_in_evaluations_does_not_reach_training() -> None:
    """Who evaluates is drawn from who is there: a leaver would decide who else trains."""

    def who(sent: list[Message]) -> set[str]:
        return {HANGS} if sent and sent[0].metadata.message_type == MessageType.EVALUATE else set()

    found = []
    for leaver in ("", "clinic-0"):
        with History.in_memory() as history:
            chosen = fedavg(fraction_evaluate=0.5, min_evaluate_nodes=1)
            on = Silent(who, [name for name in CLINICS if name != leaver])
            train(history, on, 40, chosen, rate=0.12, seed=b"a federation for tests 12")
            found.append([HANGS in each for each in took_part(history, 40)])
    assert found[0] == found[1]
    assert any(found[0])


def test_everybody_may_be_away_for_two_rounds(history: History) -> None:
    def who(sent: list[Message]) -> set[str]:
        rounds = {int(each.content["config"].get("rescind.round", 0)) for each in sent}
        return set(CLINICS) if rounds & {5, 6} else set()

    train(history, Silent(who, list(CLINICS)), 12)
    assert [len(each) for each in took_part(history, 12)] == [6] * 4 + [0] * 3 + [6] * 5


def test_a_node_that_never_says_who_it_is_is_asked_ever_more_seldom(
    history: History, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rescind.flower.server.nodes._PATIENCE", 0.0)
    on = grid(lambda round_: round_ == 0, authenticated=False)
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 20)
    assert on.asked("query") == 5
    assert caplog.text.count(f"node {on.ids[HANGS]} did not give a name in 0 s. Without a registered key") == 1
    assert "without a registered key" not in caplog.text


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("patience", [60.0, 0.0])
def test_nodes_that_start_slowly_raise_no_alarm_and_later_one_for_all(
    history: History, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    monkeypatch.setattr("rescind.flower.server.nodes._PATIENCE", patience)
    on = Silent(lambda _: set(CLINICS) if on.asked("query") < 2 else set(), list(CLINICS), authenticated=False)
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 1, fedavg(min_available_nodes=6), timeout=5.0)
    assert took_part(history, 1) == [set(CLINICS)]
    warned = [record.getMessage() for record in caplog.records if "Without a registered key" in record.getMessage()]
    numbers = ", ".join(map(str, on.ids.values()))
    assert [f"6 nodes ({numbers}) did not give a name in 0 s" in line for line in warned] == [True] * (not patience)
    assert "cannot take part" not in caplog.text


def test_who_has_no_registered_key_is_told_so_at_once_and_in_one_line(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = {name: {"client-id": name} for name in CLINICS}
    with caplog.at_level("INFO", "flwr"):
        train(history, Coming(nodes, registered=lambda _: set(list(CLINICS)[:3])), 3)
    assert caplog.text.count("cannot take part without a registered key") == 1
    assert "rescind: 3 nodes (" in caplog.text


@pytest.mark.parametrize("told", [{}, {"client-id": "\x1b[2J"}], ids=["an error", "no name"])
def test_a_stranger_is_asked_who_it_is_by_rounds_however_often_it_is_looked(
    history: History, told: dict[str, str]
) -> None:
    """Evaluations look too. What is not a valid name is no answer."""
    on = Coming({name: {"client-id": name} for name in CLINICS} | {"stranger": told})
    train(history, on, 20, fedavg(fraction_evaluate=1.0))
    trained, asked = 0, []
    for sent in on.sent:
        trained += sent == ("clinic-0", "train")
        if sent == ("stranger", "query"):
            asked.append(trained)
    assert asked == [0, 1, 3, 7, 15]


@pytest.mark.usefixtures("no_pause")
@pytest.mark.parametrize("told", [{}, {"client-id": "\x1b[2J"}], ids=["an error", "no name"])
def test_a_stranger_who_comes_first_and_says_nothing_of_use_does_not_end_a_run(
    history: History, told: dict[str, str]
) -> None:
    on = Coming({name: {"client-id": name} for name in CLINICS} | {"stranger": told}, late=set(CLINICS))
    train(history, on, 2, timeout=5.0)
    assert took_part(history, 2) == [set(CLINICS)] * 2


@pytest.mark.usefixtures("no_pause")
def test_who_is_waited_for_is_asked_again_before_a_round_begins(history: History) -> None:
    def who(sent: list[Message]) -> set[str]:
        return {HANGS} if on.asked("query") < 2 else set()

    on = Silent(who, list(CLINICS), authenticated=False)
    train(history, on, 1, fedavg(min_available_nodes=6), timeout=5.0)
    assert took_part(history, 1) == [set(CLINICS)]


class Late(Hanging):
    """A Grid on which one node's answers of one kind come ``lateness`` seconds after it was asked; nobody waits."""

    def __init__(self, lateness: float, names: list[str], kind: str = MessageType.TRAIN) -> None:
        super().__init__(app(), lambda _: False, names, authenticated=True)
        self.lateness, self.kind, self.waited, self.pulled = lateness, kind, 0.0, 0
        self._due: dict[str, Message] = {}

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        assert timeout is not None
        sent = list(messages)
        replies = super().send_and_receive(sent, timeout=timeout)
        for number, message in enumerate(sent):
            message.metadata.__dict__["_message_id"] = f"{len(self.sent)}.{number}"
        ids = {message.metadata.dst_node_id: message.metadata.message_id for message in sent}
        for reply in replies:
            reply.metadata.__dict__["_reply_to_message_id"] = ids[reply.metadata.src_node_id]
        late = [each for each in replies if self._is_late(each)]
        # Whoever knows the rule answers just in time.
        self.waited += min(timeout, self.lateness) if late else 0.0
        if not late or self.lateness < timeout:
            return replies
        self._due = {each.metadata.reply_to_message_id: each for each in late}
        return [each for each in replies if each not in late]

    def pull_messages(self, message_ids: Any) -> Any:
        self.pulled += 1
        found = [self._due.pop(each) for each in list(message_ids) if each in self._due]
        self.waited += self.lateness - PROMPT * LIMIT if found else 0.0
        return found

    def _is_late(self, reply: Message) -> bool:
        return reply.metadata.src_node_id == self.ids.get(HANGS) and reply.metadata.message_type == self.kind


LIMIT = 100.0


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescind.flower.server.grid._PAUSE", 0.0)


@pytest.mark.usefixtures("no_wait")
def test_who_answers_just_before_the_time_limit_is_asked_less_often(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    on = Late(0.97 * LIMIT, list(CLINICS))
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 20, timeout=LIMIT)
    # What it sends is used, in rounds 1, 2, 4, 8 and 16.
    assert [HANGS in each for each in took_part(history, 20)] == [at in (1, 2, 4, 8, 16) for at in range(1, 21)]
    assert on.waited == pytest.approx(5 * 0.97 * LIMIT)
    assert f"5 of 6 clients have replied, waiting at most 75 s for client {HANGS!r}" in caplog.text
    assert f"client {HANGS!r} took more than 25 s, a quarter of the time limit: its answer is used" in caplog.text


@pytest.mark.usefixtures("no_wait")
def test_the_most_that_answering_late_costs_is_a_quarter_of_the_limit_a_round(history: History) -> None:
    on = Late(0.24 * LIMIT, list(CLINICS))
    train(history, on, 20, timeout=LIMIT)
    assert took_part(history, 20) == [set(CLINICS)] * 20
    assert (on.waited, on.pulled) == (pytest.approx(20 * 0.24 * LIMIT), 0)


@pytest.mark.usefixtures("no_wait")
def test_lateness_changes_nothing_for_the_others() -> None:
    """Whether somebody is asked follows from its own answers: against the others' it would follow a leaver."""
    found = []
    for lateness in (0.0, 0.5 * LIMIT, 0.97 * LIMIT):
        with History.in_memory() as history:
            train(history, Late(lateness, list(CLINICS)), 12, rate=0.6, timeout=LIMIT)
            found.append([each - {HANGS} for each in took_part(history, 12)])
    with History.in_memory() as history:
        train(history, Late(0.0, [name for name in CLINICS if name != HANGS]), 12, rate=0.6, timeout=LIMIT)
        found.append(took_part(history, 12))
    assert found[0] == found[1] == found[2] == found[3]


@pytest.mark.usefixtures("no_wait")
def test_who_is_started_anew_in_every_round_and_answers_queries_late_is_asked_less_often(history: History) -> None:
    class Restarting(Late):
        def get_nodes(self) -> list[Any]:
            return [
                replace(node, last_activated_at=str(len(self.sent)) if node.node_id == self.ids[HANGS] else "")
                for node in super().get_nodes()
            ]

    on = Restarting(0.97 * LIMIT, list(CLINICS), MessageType.QUERY)
    train(history, on, 20, timeout=LIMIT)
    assert on.asked("query") <= 7


def test_backoff_ends_and_comes_back() -> None:
    backoff, asked = Backoff(), []
    for turn in range(1, 140):
        backoff.begin_turn()
        if backoff.asked([7]):
            asked.append(turn)
            backoff.note_replies([7], [])
    assert asked == [1, 2, 4, 8, 16, 32, 64, 96, 128]
    # Answering now and then is not enough.
    backoff.note_replies([7], [7])
    assert backoff.note_replies([7], []) == {7: 32}
    for _ in range(6):
        backoff.note_replies([7], [7])
    assert backoff.note_replies([7], []) == {7: 1}


# Who says that it is somebody else


def test_a_name_that_somebody_took_first_is_told_with_what_ends_it(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    def one(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] == HANGS:
            content.metric_records["metrics"]["num-examples"] = 1

    # The spoofer is clinic-1 before that comes.
    train(history, grid(change=one, called="clinic-1", without="clinic-1", authenticated=False), 2)
    on = grid(authenticated=False)
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 3)
    assert "the reply of client 'clinic-1' is not used: its num-examples differs" in caplog.text
    assert "Did another node use its name before? Registered keys end this" in caplog.text


def test_two_nodes_with_one_name_are_told_with_what_ends_it(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    on = grid(called="clinic-1", authenticated=False)
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 2)
    assert f"nodes {on.ids['clinic-1']} and {on.ids[HANGS]} say that they are the same client" in caplog.text
    assert "Registered keys end this" in caplog.text


def test_once_keys_are_registered_nobody_without_one_takes_part(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """Names stay what they were: with two of them a client could train while it is forgotten under the other."""
    clinics = list(CLINICS)
    registered = {0: 0, 1: 0, 2: 3, 3: 3}
    on = Coming(
        {name: {"client-id": name} for name in clinics},
        # From the fifth round on only one of them shows its key.
        registered=lambda trained: set(clinics[: registered.get(trained, 1)]),
    )
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 6)
    everybody, three, one = set(clinics), set(clinics[:3]), set(clinics[:1])
    assert took_part(history, 6) == [everybody, everybody, three, three, one, one]
    assert set(history.participants.all()) == everybody
    assert history.run.facts.sources.identity is Source.REPORTED
    assert "keys are registered by now" in caplog.text
    # And it goes on where they are registered from the beginning.
    train(history, Coming({name: {"client-id": name} for name in clinics}, registered=lambda _: three), 7)
    assert took_part(history, 7)[6] == three


@pytest.mark.usefixtures("no_pause")
def test_a_stranger_who_comes_first_has_no_place_in_a_history_of_keys(history: History) -> None:
    train(history, grid(), 2)
    nodes = {name: {"client-id": name} for name in [*CLINICS, "stranger"]}
    on = Coming(nodes, late=set(CLINICS), registered=lambda _: set(CLINICS))
    train(history, on, 4, timeout=5.0)
    assert took_part(history, 4) == [set(CLINICS)] * 4
    assert "stranger" not in {name for name, _ in on.sent}


@pytest.mark.parametrize("name", ["\x1b[2J", "\u202eclinic", "a\u200bb", " clinic-1", "x\ny", ""])
def test_a_name_that_cannot_be_shown_takes_no_part(
    history: History, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    on = grid(called=name, authenticated=False)
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 1)
    assert set(history.participants.all()) == set(CLINICS) - {HANGS}
    assert f"node {on.ids[HANGS]} answered without a name of at most 256 characters that can be seen" in caplog.text


def test_an_odd_name_at_the_superlink_becomes_a_label_that_can_be_shown(history: History) -> None:
    class Odd(InProcessGrid):
        def get_nodes(self) -> list[Any]:
            odd = ["\x1b[2J\u202e", "x" * 5000, " "]
            shown = super().get_nodes()
            return [*(replace(node, name=name) for node, name in zip(shown, odd, strict=False)), *shown[3:]]

    on = Odd(app(), {name: {"client-id": name} for name in CLINICS})
    train(history, on, 1)
    called = set(labels_of(history).values())
    assert {r"\x1b[2J\u202e", "x" * 256} < called
    assert all(0 < len(each) <= 256 and each.isprintable() for each in called)


# What the log says


@pytest.mark.parametrize("authenticated", [False, True])
def test_the_log_holds_no_text_of_a_client(
    history: History, caplog: pytest.LogCaptureFixture, authenticated: bool
) -> None:
    def leak(content: RecordDict, context: Context) -> None:
        if context.node_config["client-id"] == "clinic-4":
            raise RuntimeError("no diagnosis for Jane Roe")
        if context.node_config["client-id"] == "clinic-5":
            content.metric_records["metrics"]["num-examples"] = -1
        content.metric_records["metrics"]["Jane Roe's metric"] = 1.0

    def combine(contents: list[RecordDict], weighted_by: str) -> MetricRecord:
        raise KeyError(str(contents[0]))

    strategy = fedavg(fraction_evaluate=1.0, train_metrics_aggr_fn=combine)
    with caplog.at_level("DEBUG"):
        train(history, grid(lambda _: True, change=leak, authenticated=authenticated), 3, strategy)
    said = caplog.text
    assert "client 'clinic-4' failed: RuntimeError. Its SuperNode's log says more" in said
    assert "could not be combined: KeyError" in said
    assert "clients evaluate model 0.3: 2 metrics, accuracy 0.5" in said
    assert "is not used: its num-examples" in said
    for needle in ("Jane", "diagnosis"):
        assert needle not in said


def test_the_log_shows_what_clients_measure_and_no_name_that_steers_it(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = {"\x1b[2J": 1.0, "a b": 1.0, "x" * 33: 1.0, "\u202eabc": 1.0, "l\n": 1.0, "list": [1.0, 2.0]}
    told = {"eval_loss": 0.25, "eval_acc": 0.75, "num-examples": 1, **hostile, **{f"m{at}": at for at in range(20)}}

    def losing(content: RecordDict, context: Context) -> None:
        content.metric_records["metrics"]["train_loss"] = 0.125

    on = InProcessGrid(app(losing, evaluated=told), {name: {"client-id": name} for name in CLINICS})
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 2, fedavg(fraction_evaluate=1.0), until=Accuracy(0.7, most=5))
    shown = "eval_loss 0.25, eval_acc 0.75, m0 0, m1 1, m2 2, m3 3, m4 4, m5 5, m6 6, m7 7"
    lines = [record.getMessage() for record in caplog.records]
    assert f"rescind: clients evaluate model 0.1: 28 metrics, {shown}" in lines
    assert any("clients tell of training model 0.1: " in line and ", train_loss 0.125" in line for line in lines)
    # Flower's templates call it so.
    assert "rescind: 6 clients have a mean accuracy of 75.0%" in lines
    assert history.newest == ModelId(0, 1)


def test_a_log_shows_only_numbers_that_are_finite() -> None:
    odd = {"a": float("nan"), "b": float("inf"), "c": 10**400, "d": [1.0], "e": 2, "f": "text", "g": True}
    assert describe_metrics(odd) == "7 metrics, e 2, g 1"


def test_where_no_metric_is_the_accuracy_the_log_says_how_to_name_it(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    on = InProcessGrid(
        app(evaluated={"top1": 0.5, "a b": 0.5, "num-examples": 1}), {name: {"client-id": name} for name in CLINICS}
    )
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 2, until=Accuracy(0.7, most=2))
    assert "tells a metric 'accuracy' from 0 to 1 in evaluation, they tell top1, num-examples: say" in caplog.text


def test_who_waits_to_leave_has_a_number_in_the_log_and_no_name(
    history: History, caplog: pytest.LogCaptureFixture
) -> None:
    """The request comes while a round is under way, in which it and another one do not answer."""

    def who(sent: list[Message]) -> set[str]:
        trains = sent and sent[0].metadata.message_type == MessageType.TRAIN and history.timeline.branches
        if not trains or history.timeline.requests or len(rounds_of(history, 0, 1, 99)) < 2:
            return set()
        history.requests.ask([HANGS], BUDGET)
        return {HANGS, "clinic-1"}

    on = Silent(who, list(CLINICS))
    with caplog.at_level("INFO", "flwr"):
        train(history, on, 5)
    assert f"node {on.ids[HANGS]} did not answer in 0 s" in caplog.text
    assert "client 'clinic-1' did not answer in 0 s" in caplog.text
    assert HANGS not in caplog.text
    assert not re.search(rf"request \d.*{on.ids[HANGS]}|{on.ids[HANGS]}.*request \d", caplog.text)
