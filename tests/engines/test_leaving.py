"""Whoever leaves asks itself: by its node's configuration, or by a request that its own key has signed."""

from __future__ import annotations

import base64
import json
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import History
from rescind.certificates.envelope import read_content
from rescind.certificates.leaving import (
    Receipt,
    SignedRequest,
    check_request,
    open_request,
    parse_receipt,
    read_receipt,
    sign_request,
    write_receipt,
)
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope
from rescind.flower import Recorded
from rescind.flower.server import run as run_module
from rescind.flower.server.nodes import Nodes
from rescind.flower.server.wishes import answer_wish, read_wish
from rescind.flower.wire import RECEIPT, REFUSED, seal, tell_password
from rescind.history.participants import name_key
from rescind.ledger.records import Asker, Sender
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation
from tests.builders import delay_writing, said

NAME = "Six clinics"
CLINICS = federation(6).shards
PRIVATE = {name: ec.generate_private_key(ec.SECP384R1()) for name in CLINICS}
OPENSSH = serialization.PrivateFormat.OpenSSH
PEM = serialization.Encoding.PEM


class KeyedGrid(InProcessGrid):
    """A Grid whose nodes show real public keys, as Flower's do."""

    @staticmethod
    def key(name: str) -> bytes:
        return PRIVATE[name].public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


KEYS = {name: name_key(KeyedGrid.key(name)) for name in CLINICS}


def client_app(marked: dict[str, tuple[list[int], int]]) -> ClientApp:
    """Return an app that trains with our helper; ``marked`` are the rows that a client leaves out, for a request."""
    made = ClientApp()
    made.query()(rescind.flower.identify)

    @made.train()
    def train(msg: Message, context: Context) -> Message:
        name = str(context.node_config["clinic"])
        rows, number = marked.get(name, (None, 0))
        shard = CLINICS[name]
        return rescind.flower.train_head(msg, context, shard.features, shard.labels, removed=rows, request=number)

    return made


def grid(
    configs: dict[str, dict[str, Any]] | None = None, marked: dict[str, tuple[list[int], int]] | None = None
) -> KeyedGrid:
    nodes = {name: {"clinic": name} | (configs or {}).get(name, {}) for name in CLINICS}
    return KeyedGrid(client_app(marked or {}), nodes)


def run(history: History, on: InProcessGrid, rounds: int = 2) -> None:
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1)
    arrays = ArrayRecord({"head.weight": Array(np.zeros((CLASSES, FEATURES))), "head.bias": Array(np.zeros(CLASSES))})
    rescind.flower.run(Recorded(strategy, history, training=TRAINING), on, arrays, num_rounds=rounds)


def make_nodes(history: History, on: InProcessGrid) -> Nodes:
    strategy = Recorded(FedAvg(min_available_nodes=1, min_train_nodes=1), history, training=TRAINING)
    arrays = ArrayRecord({"head.weight": Array(np.zeros((CLASSES, FEATURES))), "head.bias": Array(np.zeros(CLASSES))})
    return run_module._engine(strategy, on, arrays, 5.0, None, None).nodes


def trained_on(on: InProcessGrid) -> set[str]:
    return {name for name, kind in on.sent if kind == "train"}


def say(*words: object) -> Result:
    return said(*words)


def write_key(path: Path, name: str = "clinic-2", private: Any = None) -> Path:
    key = private or PRIVATE[name]
    path.write_bytes(key.private_bytes(PEM, OPENSSH, serialization.NoEncryption()))
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
        assert say("key", "new", folder / "operator.key").exit_code == 0
    with History(folder / "history") as history:
        history.name_run(federation=NAME)
        run(history, grid())
    return folder


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    return Path(shutil.copytree(trained, tmp_path, dirs_exist_ok=True))


def leave(place: Path, *words: object, name: str = "clinic-2", file: str = "leave.json") -> Path:
    key = write_key(place / f"key of {name}", name)
    result = say("leave", place / file, "--key", key, "--federation", NAME, *words)
    assert result.exit_code == 0, result.output
    return place / file


def certify(place: Path, number: int) -> Path:
    file = place / f"certificate-{number}.json"
    result = say("certify", place / "history", number, "--key", place / "operator.key", "-o", file)
    assert result.exit_code == 0, result.output
    return file


def verify(place: Path, certificate: Path, *words: object) -> Result:
    return say("verify", certificate, "--key", place / "operator.key.pub", "--full", *words)


def signed_by(folder: Path, name: str = "clinic-2", **options: Any) -> str:
    """Return a new file in which a clinic's key asks to be forgotten, as rescind leave makes it."""
    file = folder / f"leave-{len(list(folder.glob('leave-*')))}"
    file.write_bytes(sign_request(write_key(folder / f"key of {name}", name), NAME, **options))
    return str(file)


def wish_of(file: str) -> SignedRequest:
    wish = read_wish({"rescind-leave": Path(file).read_text()})
    assert wish is not None
    return wish


# By a file that the node hands over


def test_a_node_hands_over_what_its_key_signed_and_is_forgotten(place: Path) -> None:
    receipt, signed = place / "receipt.json", signed_by(place)
    on = grid({"clinic-2": {"rescind-leave": signed, "rescind-receipt": str(receipt)}})
    with History(place / "history") as history:
        run(history, on)
        (asked,) = history.timeline.requests
        assert (asked.sender.asker, asked.served, asked.request.scope) == (Asker.KEY, True, PrivacyScope.GROUP)
        assert KEYS["clinic-2"] not in history.participants.all()
    assert "clinic-2" not in trained_on(on)
    assert stat.S_IMODE(receipt.stat().st_mode) == 0o600
    assert read_receipt(receipt).request == 1
    at = ("--history", place / "history", "--receipt", receipt)
    shown = verify(place, certify(place, 1), *at, "--request", signed)
    assert shown.exit_code == 0, shown.output
    assert "by the participant's own key, due" in shown.output
    assert "clinic-2 is among the forgotten" in shown.output


def change_scope(content: str) -> str:
    envelope = json.loads(content)
    changed = base64.b64decode(envelope["payload"]).replace(b'"scope":"group"', b'"scope":"records"')
    assert b'"records"' in changed
    return json.dumps(envelope | {"payload": base64.b64encode(changed).decode()})


@pytest.mark.parametrize("told", ["true", "another's key", "changed", "of an older version"])
def test_a_wish_that_the_nodes_own_key_did_not_sign_is_not_recorded(
    place: Path, caplog: pytest.LogCaptureFixture, told: str
) -> None:
    """Whoever answers in a node's place cannot have it forgotten: it does not have the key."""
    text = {
        "true": "true",
        "another's key": Path(signed_by(place, "clinic-3")).read_text(),
        "changed": change_scope(Path(signed_by(place)).read_text()),
    }.get(told, "")

    class Forging(KeyedGrid):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            replies = list(super().send_and_receive(messages, timeout=timeout))
            for reply in replies:
                if reply.metadata.src_node_id == self.ids["clinic-2"] and "rescind" in reply.content:
                    key, value = ("rescind-leave", text) if text else ("rescind-leave-rows", "November")
                    reply.content["rescind"][key] = value
            return replies

    on = Forging(client_app({}), {name: {"clinic": name} for name in CLINICS})
    with History(place / "history") as history, caplog.at_level("WARNING", "flwr"):
        run(history, on, 3)
        assert history.timeline.requests == ()
    assert "clinic-2" in trained_on(on)
    assert "its own key has not signed that: nothing is recorded" in caplog.text
    assert "rescind leave" in caplog.text


def test_a_wish_is_recorded_once_though_it_is_told_in_every_run(place: Path) -> None:
    configs = {"clinic-2": {"rescind-leave": signed_by(place)}}
    with History(place / "history") as history:
        for rounds in (2, 3, 4):
            run(history, grid(configs), rounds)
        assert len(history.timeline.requests) == 1
        assert history.integrity.verify() == []


def test_who_still_wishes_what_was_withdrawn_signs_anew(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    on = grid({"clinic-2": {"rescind-leave": signed_by(place)}})
    with History(place / "history") as history:
        make_nodes(history, on).connected()
        history.requests.withdraw(1, "by mistake")
        with caplog.at_level("WARNING", "flwr"):
            make_nodes(history, on).connected()
        assert len(history.timeline.requests) == 1
        assert "not forgotten: request 1 was withdrawn: whoever asks again signs a new one" in caplog.text
        make_nodes(history, grid({"clinic-2": {"rescind-leave": signed_by(place)}})).connected()
        assert [asked.withdrawn for asked in history.timeline.requests] == [True, False]


def test_who_was_refused_and_is_forgotten_all_the_same_gets_its_receipt(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = signed_by(place)
    wish = wish_of(file)
    with History(place / "history") as history:
        assert list(answer_wish(history, "clinic-2", wish).told) == [RECEIPT]
        history.requests.refuse(1, "A. Officer", "a law")
        assert list(answer_wish(history, "clinic-2", wish).told) == [REFUSED]
        history.requests.ask(["clinic-2"], Budget(5.0, 1e-5))
        told = answer_wish(history, "clinic-2", wish).told
        assert parse_receipt(told[RECEIPT].encode()).request == 2
        # It is asked in every round of retraining: then it is being served, and nothing is to be recorded.
        with caplog.at_level("WARNING", "flwr"):
            run(history, grid({"clinic-2": {"rescind-leave": file}}))
        assert [asked.served for asked in history.timeline.requests] == [False, True]
    assert "not taken up" not in caplog.text
    assert "not forgotten" not in caplog.text


def test_who_was_refused_asks_again_through_the_operator_only(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it signs next: each request that waits keeps the federation from training on."""
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=len(CLINICS))
    arrays = ArrayRecord({"head.weight": Array(np.zeros((CLASSES, FEATURES))), "head.bias": Array(np.zeros(CLASSES))})
    with History(place / "history") as history:
        answer_wish(history, "clinic-2", wish_of(signed_by(place)))
        history.requests.refuse(1, "A. Officer", "a law")
        for rounds, records in ((3, False), (4, True)):
            on = grid({"clinic-2": {"rescind-leave": signed_by(place, records=records)}})
            with caplog.at_level("WARNING", "flwr"):
                rescind.flower.run(Recorded(strategy, history, training=TRAINING), on, arrays, rounds, timeout=2.0)
            assert len(history.timeline.requests) == 1
            assert "clinic-2" in trained_on(on)
    assert "this client is not forgotten: request 1 was refused: a law; to ask again, write to" in caplog.text


def test_of_one_clients_rows_one_request_a_week_is_taken_up(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each costs a restart from before the client's first round: a new one at every start would stop the training."""
    with History(place / "history") as history:
        for start in range(4):
            on = grid({"clinic-2": {"rescind-leave": signed_by(place, records=True)}}, {"clinic-2": ([0], 1)})
            with caplog.at_level("WARNING", "flwr"):
                run(history, on, 2 + start)
        assert (len(history.timeline.requests), history.newest) == (1, ModelId(1, 5))
        assert "its rows are forgotten once in 7 days" in caplog.text
        # A client that wants to leave altogether does not wait.
        run(history, grid({"clinic-2": {"rescind-leave": signed_by(place)}}), 5)
        assert [asked.served for asked in history.timeline.requests] == [True, True]


def test_rows_wait_a_week_from_the_last_and_no_longer(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(place / "history") as history:
        answer_wish(history, "clinic-2", wish_of(signed_by(place, records=True)))
        run(history, grid(None, {"clinic-2": ([0], 1)}), 3)
        later = wish_of(signed_by(place, records=True))
        for seconds, recorded in ((-2, 1), (2, 2)):
            asked = datetime.fromisoformat(history.timeline.requests[0].time)
            now = asked + timedelta(days=7, seconds=seconds)
            monkeypatch.setattr("rescind.flower.server.wishes.datetime", SetClock(now))
            answer_wish(history, "clinic-2", later)
            assert len(history.timeline.requests) == recorded


@dataclass(frozen=True)
class SetClock:
    time: datetime

    def now(self, _zone: Any) -> datetime:
        return self.time


def test_what_cannot_be_recorded_is_told_to_who_asks_and_it_is_left_out(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stale = signed_by(place, time=datetime.now(UTC) - timedelta(days=40))
    on = grid({"clinic-2": {"rescind-leave": stale}})
    with History(place / "history") as history, caplog.at_level("INFO", "flwr"):
        run(history, on, 3)
        assert history.timeline.requests == ()
    assert "clinic-2" not in trained_on(on)
    assert "this client is not forgotten: the request was signed on" in caplog.text
    assert "a participant's own request is not taken up: the request was signed on" in caplog.text


def test_a_wish_is_heard_although_its_node_was_silent_at_first(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rescind.flower.server.nodes._IDLE", 0.0)
    on = grid({"clinic-2": {"rescind-leave": signed_by(place)}})
    with History(place / "history") as history:
        nodes = make_nodes(history, on)
        on.failing = {"clinic-2"}
        for _ in range(3):
            nodes.listen()
        # Ever more seldom, and only the one that was silent.
        assert on.sent.count(("clinic-2", "query")) == 2
        assert on.sent.count(("clinic-3", "query")) == 1
        on.failing = set()
        for _ in range(2):
            nodes.listen()
        (asked,) = history.timeline.requests
        assert asked.sender.asker is Asker.KEY


def test_who_asks_while_its_first_round_is_written_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on, node = grid(), InProcessGrid.send_and_receive
    asking, signed = on.ids["clinic-2"], signed_by(tmp_path)

    def start_again(own: InProcessGrid, messages: Any, **options: Any) -> Any:
        replies = node(own, messages := list(messages), **options)
        if messages[0].metadata.message_type == MessageType.TRAIN:
            own._contexts[asking].node_config["rescind-leave"] = signed
        return replies

    def show_nodes(own: InProcessGrid) -> list[Any]:
        wishes = own._contexts[asking].node_config.get("rescind-leave", False)
        return [
            replace(info, last_activated_at="later" if wishes and info.node_id == asking else "")
            for info in shown(own)
        ]

    shown = InProcessGrid.get_nodes
    delay_writing(monkeypatch, lambda: threading.Event().wait(0.3))
    monkeypatch.setattr(InProcessGrid, "send_and_receive", start_again)
    monkeypatch.setattr(InProcessGrid, "get_nodes", show_nodes)
    with History(tmp_path / "history") as history:
        history.name_run(federation=NAME)
        run(history, on)
        assert [filed.open for filed in history.timeline.requests] == [False]
        # It asked after one round, and the second one did not begin.
        assert history.timeline.branches.keys() == {0, 1}
        assert history.newest_of(0).round == 1


def test_who_never_took_part_and_wants_to_leave_is_left_out(tmp_path: Path) -> None:
    on = grid({"clinic-2": {"rescind-leave": signed_by(tmp_path)}})
    with History(tmp_path / "history") as history:
        run(history, on)
        assert history.timeline.requests == ()
        assert trained_on(on) == set(CLINICS) - {"clinic-2"}
        again = grid()
        run(history, again, 3)
        assert trained_on(again) == set(CLINICS)


def test_rows_are_asked_for_once_by_every_file(place: Path) -> None:
    receipt, signed = place / "receipt.json", signed_by(place, records=True)
    config = {"rescind-leave": signed, "rescind-receipt": str(receipt)}
    with History(place / "history") as history:
        marked = {"clinic-2": ([0, 3], 1)}
        run(history, grid({"clinic-2": config}, marked))
        assert read_receipt(receipt).request == 1
        on = grid({"clinic-2": config}, marked)
        run(history, on, 3)
        assert "clinic-2" in trained_on(on)
        (asked,) = history.timeline.requests
        assert (asked.request.scope, asked.served, asked.sender.asker) == (PrivacyScope.RECORDS, True, Asker.KEY)
        assert history.integrity.verify() == []
    assert verify(place, certify(place, 1), "--history", place / "history", "--request", signed).exit_code == 0


def test_without_registered_keys_nobody_is_believed_that_it_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes: dict[str, dict[str, Any]] = {name: {"clinic": name, "client-id": name} for name in CLINICS}
    with History(tmp_path / "history") as history:
        run(history, InProcessGrid(client_app({}), nodes, authenticated=False))
        nodes["clinic-2"]["rescind-leave"] = signed_by(tmp_path)
        with caplog.at_level("WARNING", "flwr"):
            run(history, InProcessGrid(client_app({}), nodes, authenticated=False), 3)
        assert history.timeline.requests == ()
    assert "without registered keys nobody knows who asks" in caplog.text


@pytest.mark.parametrize("value", ["false", "true", True, 1, 0, "", "no/such/file", "/dev/null"])
def test_a_wish_that_is_no_signed_request_is_told_to_who_has_it(place: Path, value: object) -> None:
    for name in ("rescind-leave", "rescind-leave-rows"):
        with pytest.raises(ValueError, match="no signed request"):
            asked_of({name: value}, {})
    assert "rescind-leave" not in asked_of({"rescind-leave": False}, {})
    on = grid({"clinic-2": {"rescind-leave": value}})
    with History(place / "history") as history:
        run(history, on, 3)
        assert history.timeline.requests == ()


@pytest.mark.parametrize("told", [True, 7, "", "a" * 257, "two\nlines", "\u202e", "\ud800", "x" * 10**6, b"x", [1.0]])
def test_an_answer_that_is_no_signed_request_wishes_nothing(told: object) -> None:
    assert read_wish({"rescind-leave": told}) is None


def test_a_receipt_is_not_written_over_a_file(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    taken = place / "taken"
    taken.write_text("mine")
    config = {"rescind-leave": signed_by(place), "rescind-receipt": str(taken)}
    with History(place / "history") as history, caplog.at_level("INFO", "flwr"):
        run(history, grid({"clinic-2": config}))
        assert history.timeline.requests[0].served
    assert taken.read_text() == "mine"


def asked_of(config: dict[str, Any], asked: dict[str, Any], *, known: bool = True) -> dict[str, Any]:
    """Return what a client with a node-config answers to a query of whoever has its password, if it is ``known``."""
    grid()
    context = Context(run_id=1, node_id=1, node_config=config, state=RecordDict(), run_config={})
    message = Message(RecordDict({"config": ConfigRecord({"rescind.keyed": True} | asked)}), 1, MessageType.QUERY)
    seal(message, tell_password(context) if known else "0" * 64)
    return dict(rescind.flower.identify(message, context).content.config_records["rescind"])


def test_a_server_writes_nothing_at_a_client_that_asks_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "receipt.json"
    receipts = [
        Receipt(run="0" * 16, request=number, called="clinic-2", names={"clinic-2": "0" * 64}).model_dump_json()
        for number in (1, 2)
    ]
    asked_of({"rescind-receipt": str(file)}, {RECEIPT: receipts[0]})
    assert not file.exists()
    config = {"rescind-receipt": str(file), "rescind-leave": signed_by(tmp_path, records=True)}
    # Whoever does not have the password writes nothing either, and says nothing.
    with caplog.at_level("INFO", "flwr"):
        asked_of(config, {RECEIPT: receipts[1], REFUSED: "sent by Mallory"}, known=False)
    assert not file.exists()
    assert caplog.text == ""
    with caplog.at_level("WARNING", "flwr"):
        for _ in range(2):
            asked_of(config, {RECEIPT: receipts[0]})
        assert caplog.text == ""
        # A later request has a receipt of its own, and a number that its rows need.
        asked_of(config, {RECEIPT: receipts[1]})
        assert "could not be written" in caplog.text
        for odd in ("null", "[1]", '{"run": "x"}'):
            asked_of(config, {RECEIPT: odd})
    assert not any("\n" in record.getMessage() for record in caplog.records)
    assert read_receipt(file).request == 1


def test_a_server_cannot_write_what_is_no_receipt(tmp_path: Path) -> None:
    file = tmp_path / "receipt.json"
    for content in ("{}", "[" * 50_000, '{"run": 1}', "x" * 100_000):
        rescind.flower.client._keep_receipt(content, str(file))
        assert not file.exists()


# By a signed request


def test_a_signed_request_is_imported_and_certified(place: Path) -> None:
    signed, receipt = leave(place), place / "receipt.json"
    result = say("request", "import", place / "history", signed, "--epsilon", 5, "--receipt", receipt)
    assert result.exit_code == 0, result.output
    assert "clinic-2 asked with its own key, SHA256:" in result.output
    assert "to be served by" in result.output
    with History(place / "history") as history:
        assert history.timeline.requests[0].sender == open_request(signed.read_bytes()).sender
        run(history, grid())
    certificate = certify(place, 1)
    assert KEYS["clinic-2"] not in base64.b64decode(json.loads(certificate.read_text())["payload"]).decode()
    at = ("--history", place / "history")
    shown = verify(place, certificate, "--receipt", receipt, "--request", signed, *at)
    assert shown.exit_code == 0, shown.output
    words = " ".join(shown.output.split())
    assert f"signed on {datetime.now(UTC):%Y-%m-%d} for the federation '{NAME}' by" in words
    assert f"by the participant's own key, {KEYS['clinic-2']}" in words
    assert "is who was forgotten" not in words
    assert "asked" in words
    assert "by the participant's own key, due" in words
    bare = verify(place, certificate, *at)
    assert "that the participant's own key signed the request: give the signed request" in " ".join(
        bare.output.split()
    )
    other = leave(place, name="clinic-3", file="other.json")
    assert verify(place, certificate, "--request", other).exit_code == 22
    assert verify(place, certificate, "--request", certificate).exit_code == 22


def test_a_request_of_another_client_or_for_something_else_shows_nothing(place: Path) -> None:
    signed, receipt = leave(place, name="clinic-3"), place / "receipt.json"
    rows = leave(place, "--records", file="rows.json")
    with History(place / "history") as history:
        for file, client in ((signed, "clinic-2"), (rows, "clinic-4")):
            history.requests.ask([client], Budget(5.0, 1e-5), sender=open_request(file.read_bytes()).sender)
        run(history, grid())
        salt = history.participants.receipt(KEYS["clinic-2"])
    own = Receipt(run="0" * 16, request=1, called="clinic-2", names={KEYS["clinic-2"]: salt})
    write_receipt(receipt, own)
    certificate = certify(place, 1)
    at = ("--history", place / "history")
    lied = verify(place, certificate, "--request", signed, *at)
    assert (lied.exit_code, "somebody else was forgotten" in lied.output) == (22, True)
    lied = verify(place, certificate, "--request", signed, "--receipt", receipt)
    assert (lied.exit_code, "the receipt is that of clinic-2" in lied.output) == (17, True)
    alone = verify(place, certificate, "--request", signed)
    assert "that whoever signed the request is who was forgotten" in " ".join(alone.output.split())
    lied = verify(place, certify(place, 2), "--request", rows)
    assert (lied.exit_code, "asks for records" in lied.output) == (22, True)


def test_only_some_rows_can_be_asked_for_by_a_signed_request(place: Path) -> None:
    signed = leave(place, "--records")
    assert say("request", "import", place / "history", signed).exit_code == 0
    with History(place / "history") as history:
        assert history.timeline.requests[0].request.scope is PrivacyScope.RECORDS


def tamper(signed: Path, change: Callable[[dict[str, Any]], None]) -> None:
    envelope = json.loads(signed.read_text())
    payload = json.loads(base64.b64decode(envelope["payload"]))
    change(payload)
    text = json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()
    envelope["payload"] = base64.b64encode(text).decode()
    signed.write_text(json.dumps(envelope))


def to_another_federation(payload: dict[str, Any]) -> None:
    payload["predicate"]["federation"] = "Another"


def with_the_key_of_another(payload: dict[str, Any]) -> None:
    payload["predicate"]["key"] = KeyedGrid.key("clinic-3").decode()


def with_a_spelling_of_its_own(payload: dict[str, Any]) -> None:
    payload["predicate"]["key"] = payload["predicate"]["key"].replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("change", "code"), [(to_another_federation, 12), (with_the_key_of_another, 12), (with_a_spelling_of_its_own, 10)]
)
def test_a_forged_request_is_refused(place: Path, change: Callable[[dict[str, Any]], None], code: int) -> None:
    signed = leave(place)
    tamper(signed, change)
    assert say("request", "import", place / "history", signed).exit_code == code
    with History(place / "history") as history:
        assert history.timeline.requests == ()


def test_a_replayed_request_is_refused_also_after_a_readmission(place: Path) -> None:
    signed, copy = leave(place), place / "copy.json"
    copy.write_bytes(signed.read_bytes())
    assert say("request", "import", place / "history", signed).exit_code == 0
    again = say("request", "import", place / "history", copy)
    assert (again.exit_code, "handed in before" in again.output) == (18, True)
    with History(place / "history") as history:
        history.requests.withdraw(1)
        assert say("request", "import", place / "history", copy).exit_code == 18
        assert say("request", "import", place / "history", leave(place, file="new.json")).exit_code == 0
        strategy = Recorded(FedAvg(fraction_evaluate=0.0), history, training=TRAINING)
        arrays = ArrayRecord(
            {"head.weight": Array(np.zeros((CLASSES, FEATURES))), "head.bias": Array(np.zeros(CLASSES))}
        )
        rescind.flower.run(strategy, grid(), arrays, 2, method=rescind.Exact())
        history.participants.readmit(KEYS["clinic-2"], "a new contract")
        run(history, grid(), 3)
        assert KEYS["clinic-2"] in history.participants.all()
    for old in ("copy.json", "new.json"):
        assert say("request", "import", place / "history", place / old).exit_code == 18


def test_a_second_signature_of_the_same_request_is_a_replay(place: Path) -> None:
    signed = leave(place)
    assert say("request", "import", place / "history", signed).exit_code == 0
    envelope = json.loads(signed.read_text())
    # ECDSA draws a random number: the same text can be signed again and again.
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    payload = base64.b64decode(envelope["payload"])
    again = Envelope(payload, envelope["payloadType"], {})
    again.sign(CryptoSigner(PRIVATE["clinic-2"]))
    signed.write_text(json.dumps(again.to_dict()))
    assert open_request(signed.read_bytes())
    assert say("request", "import", place / "history", signed).exit_code == 18


def test_a_foreign_request_is_refused(place: Path) -> None:
    key = write_key(place / "key")
    assert say("leave", place / "leave.json", "--key", key, "--federation", "Banks").exit_code == 0
    result = say("request", "import", place / "history", place / "leave.json")
    assert (result.exit_code, "'Banks'" in result.output, "'Six clinics'" in result.output) == (19, True, True)


def test_a_key_that_nobody_has_is_refused(place: Path) -> None:
    key = write_key(place / "key", private=ec.generate_private_key(ec.SECP256R1()))
    assert say("leave", place / "leave.json", "--key", key, "--federation", NAME).exit_code == 0
    assert say("request", "import", place / "history", place / "leave.json").exit_code == 20


def test_where_names_are_no_keys_nobody_is_known_by_one(tmp_path: Path) -> None:
    nodes = {name: {"clinic": name, "client-id": KEYS[name]} for name in CLINICS}
    with History(tmp_path / "history") as history:
        history.name_run(federation=NAME)
        run(history, InProcessGrid(client_app({}), nodes, authenticated=False))
    result = say("request", "import", tmp_path / "history", leave(tmp_path))
    assert (result.exit_code, "say themselves who they are" in result.output) == (20, True)


@pytest.mark.parametrize(("days", "code"), [(29, 0), (31, 21), (-2, 21), (-0.5, 0)])
def test_a_request_is_neither_old_nor_from_the_future(place: Path, days: float, code: int) -> None:
    signed = place / "leave.json"
    time = datetime.now(UTC) - timedelta(days=days)
    signed.write_bytes(sign_request(write_key(place / "key"), NAME, time=time))
    assert say("request", "import", place / "history", signed).exit_code == code
    if code == 21 and days > 0:
        assert say("request", "import", place / "history", signed, "--days", 60).exit_code == 0


@pytest.mark.parametrize("time", ["yesterday", "2026-11-17", "2026-11-17T10:00:00", "0001-01-01T00:00:00+23:59"])
def test_a_time_that_is_none_is_refused(place: Path, time: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime):
        def isoformat(self, *_: Any, **__: Any) -> str:
            return time

    signed = place / "leave.json"
    signed.write_bytes(sign_request(write_key(place / "key"), NAME, time=Clock.now(UTC)))
    assert say("request", "import", place / "history", signed).exit_code == 11


def test_a_request_that_is_none_is_refused(place: Path) -> None:
    for content in (b"", b"{}", b"\xff", b"[" * 10_000, (place / "operator.key.pub").read_bytes()):
        (place / "leave.json").write_bytes(content)
        assert say("request", "import", place / "history", place / "leave.json").exit_code == 11


def test_a_key_of_another_kind_does_not_sign(place: Path) -> None:
    key = write_key(place / "key", private=ed25519.Ed25519PrivateKey.generate())
    result = say("leave", place / "leave.json", "--key", key, "--federation", NAME)
    assert (result.exit_code, "NIST curve" in result.output) == (10, True)
    assert (
        say("leave", place / "leave.json", "--key", place / "operator.key.pub", "--federation", NAME).exit_code == 10
    )


def test_a_key_that_others_can_read_does_not_sign(place: Path) -> None:
    key = write_key(place / "key")
    key.chmod(0o644)
    result = say("leave", place / "leave.json", "--key", key, "--federation", NAME)
    assert (result.exit_code, "open to other users" in result.output) == (1, True)


def test_a_file_is_not_overwritten_by_a_request(place: Path) -> None:
    signed = leave(place)
    before = signed.read_bytes()
    assert say("leave", signed, "--key", write_key(place / "key"), "--federation", NAME).exit_code == 1
    assert signed.read_bytes() == before


@pytest.mark.parametrize("name", ["", " ", " Six", "\x1b[2J", "\u202e", "\u3164", "\udcff", "x" * 257, "two\nlines"])
def test_a_federation_that_cannot_be_called_so_is_not_asked(tmp_path: Path, name: str) -> None:
    result = say("leave", tmp_path / "leave.json", "--key", write_key(tmp_path / "key"), "--federation", name)
    assert result.exit_code == 1
    assert "is not a valid name of a federation" in result.output
    assert "pydantic" not in result.output
    assert not (tmp_path / "leave.json").exists()


def test_two_requests_of_one_client_differ(place: Path) -> None:
    one, two = (open_request(leave(place, file=file).read_bytes()) for file in ("one.json", "two.json"))
    assert one.sender != two.sender
    assert one.client == two.client == KEYS["clinic-2"]


def test_a_certificate_cannot_say_that_a_key_asked_without_its_request(place: Path) -> None:
    from rescind.certificates.issue import build_statement
    from rescind.certificates.predicate import Predicate
    from rescind.certificates.verification import _contradictions

    assert say("request", "import", place / "history", leave(place)).exit_code == 0
    with History(place / "history") as history:
        run(history, grid())
        statement = build_statement(history, 1)
        assert list(_contradictions(statement)) == []
        for change in (
            {"signed_request": None},
            {"asked_by": "the operator"},
            {"forgotten": tuple(sorted({*statement.predicate.forgotten, "0" * 64}))},
        ):
            predicate: Predicate = statement.predicate.model_copy(update=change)
            assert list(_contradictions(statement.model_copy(update={"predicate": predicate})))


@pytest.mark.parametrize(
    ("asker", "proof"),
    [(Asker.OPERATOR, "a" * 64), (Asker.KEY, ""), (Asker.NODE, "A" * 64), (Asker.KEY, "a" * 63), ("key", "")],
)
def test_a_sender_without_a_fitting_proof_is_none(asker: Any, proof: str) -> None:
    with pytest.raises(ValueError, match=r"proof|Asker"):
        Sender(asker, proof)


def test_what_is_checked_before_a_request_is_recorded_can_be_called(place: Path) -> None:
    with History(place / "history") as history:
        request = open_request(read_content(leave(place)))
        check_request(history, request, timedelta(days=1), datetime.now(UTC))
        assert request.client == KEYS["clinic-2"]
