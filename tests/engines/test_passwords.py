"""Participants who speak as the server, or in another's place: what a client obeys, and whose answer is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from rescind import History, LocalTraining
from rescind.core.edges import ModelId
from rescind.core.regularity import NetworkLoss, SquaredL2
from rescind.flower import Stages
from rescind.flower.wire import DISTANCE, NONCE, PASSWORD, Instructions, seal, tell_password
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation
from rescind.texts import is_digest
from tests.builders import labels_of, rounds_of
from tests.recording import wrap

CLINICS = federation(3).shards
VICTIM = "clinic-1"


class Seen(InProcessGrid):
    """A Grid that keeps what was sent."""

    def __init__(self, app: ClientApp) -> None:
        super().__init__(app, {name: {"client-id": name} for name in CLINICS})
        self.messages: list[Message] = []

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        sent = list(messages)
        self.messages += sent
        return super().send_and_receive(sent, timeout=timeout)


def client_app(*, own_code: bool = False) -> ClientApp:
    app = ClientApp()
    app.query()(rescind.flower.identify)

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        shard = CLINICS[str(context.node_config["client-id"])]
        if own_code and not rescind.flower.is_question(msg):
            metrics = MetricRecord({"num-examples": len(shard.labels)})
            return Message(RecordDict({"arrays": msg.content["arrays"], "metrics": metrics}), reply_to=msg)
        rows = shard.features / np.maximum(np.linalg.norm(shard.features, axis=1, keepdims=True), 1)
        return rescind.flower.train_head(msg, context, rows, shard.labels)

    @app.evaluate()
    def evaluate(msg: Message, context: Context) -> Message:
        told = rescind.flower.report_distance(msg, context)
        metrics = MetricRecord({"accuracy": 0.5, "num-examples": 1})
        return told or Message(RecordDict({"metrics": metrics}), reply_to=msg)

    return app


def head() -> dict[str, Array]:
    return {"head.weight": Array(np.zeros((CLASSES, FEATURES))), "head.bias": Array(np.zeros(CLASSES))}


def train(history: History, on: InProcessGrid, rounds: int = 3, **options: Any) -> None:
    strategy = FedAvg(fraction_evaluate=1.0, min_train_nodes=1, min_available_nodes=1)
    staged = "stages" in options
    arrays = head() | ({"body": Array(np.zeros(3))} if staged else {})
    chosen = {} if staged else {"training": TRAINING, "trained": list(head())}
    solve = options.pop("solve", False)
    recorded = wrap(strategy, history, **(chosen | options))
    rescind.flower.run(recorded, on, ArrayRecord(arrays), num_rounds=rounds, solve=solve, timeout=5.0)


# Answering in another's place


@pytest.mark.parametrize("kind", ["head", "masked", "solved", "own code", "two stages"])
def test_nobody_can_know_the_id_of_a_message_to_another(kind: str) -> None:
    """Flower makes it from what is in the message: there is a number in each that only its node is sent."""
    ridge = SquaredL2(l2=1.0, row_norm=1.0)
    options: dict[str, dict[str, Any]] = {
        "masked": {"masked": True},
        "solved": {"solve": True},
        "own code": {"training": LocalTraining(5, 0.1, NetworkLoss())},
        "two stages": {"stages": Stages(2, ("head.weight", "head.bias"), ridge), "anchors": tuple(CLINICS)},
    }
    on = Seen(client_app(own_code=kind in ("own code", "two stages")))
    with History.in_memory() as history:
        train(history, on, **options.get(kind, {}))
    kinds = {message.metadata.message_type for message in on.messages}
    assert kinds == {MessageType.QUERY, MessageType.TRAIN, MessageType.EVALUATE}
    configs = [config for message in on.messages for config in message.content.config_records.values()]
    assert len(configs) == len(on.messages)
    nonces = [config[NONCE] for config in configs]
    assert all(map(is_digest, nonces))
    assert len(set(nonces)) == len(nonces)
    # Trainings and questions have a secret seed of their own as well.
    trainings = [message.content["config"] for message in on.messages if message.metadata.message_type == "train"]
    seeds = [config["rescind.seed"] for config in trainings]
    assert len(set(seeds)) == len(seeds)
    assert all(map(is_digest, seeds))
    wanted = {(bool(config["rescind.wanted"]), bool(config["rescind.ridge"])) for config in trainings}
    assert wanted == {"solved": {(True, False)}, "two stages": {(False, False), (False, True)}}.get(
        kind, {(False, False)}
    )


# Speaking as the server


def context_of(name: str = VICTIM) -> Context:
    Seen(client_app())
    return Context(1, 1, {"client-id": name}, RecordDict(), {})


def instructions() -> dict[str, Any]:
    return Instructions(TRAINING, tuple(head()), 0, b"s" * 32, ModelId(0, 1), b"\0" * 32, masked=True).record()


def message(kind: str, config: dict[str, Any], password: str | None) -> Message:
    content = RecordDict({"arrays": ArrayRecord(head()), "config": ConfigRecord(config)})
    made = Message(content, 1, kind)
    seal(made, password)
    return made


@pytest.mark.parametrize("told", [False, True], ids=["before the server asked", "afterwards"])
@pytest.mark.parametrize("guess", [None, "", "0" * 64])
def test_a_client_obeys_nobody_without_its_password(told: bool, guess: str | None) -> None:
    context, app = context_of(), client_app()
    if told:
        rescind.flower.identify(message(MessageType.QUERY, {}, None), context)
    own = Message(RecordDict({"arrays": ArrayRecord(head())}), 1, MessageType.TRAIN)
    for kind, config in (("train", instructions()), ("evaluate", {DISTANCE: "model 0.1"})):
        with pytest.raises(ValueError, match="does not have the password"):
            app(message(kind, config, guess), context)
    with pytest.raises(ValueError, match="does not have the password"):
        rescind.flower.keep_own(message("train", instructions(), guess), context, own.content["arrays"])
    password = tell_password(context)
    app(message("train", instructions(), password), context)
    assert DISTANCE in app(message("evaluate", {DISTANCE: "model 0.1"}, password), context).content["metrics"]


def test_whoever_asks_first_a_client_has_one_password_in_a_run() -> None:
    """Else a participant that asks before the server, or after it, would cut it off."""
    context = context_of()
    told = {
        str(rescind.flower.identify(message("query", {}, guess), context).content["rescind"][PASSWORD])
        for guess in (None, "0" * 64, None)
    }
    assert len(told) == 1
    assert told != {tell_password(context_of())}


def test_a_client_that_lost_its_password_is_asked_again() -> None:
    """Its SuperNode may have been started again, or a message of somebody else's may have come between."""

    class Losing(Seen):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            sent = list(messages)
            if sent[0].content["config"].get("rescind.round", 0) == 2:
                self._contexts[self.ids[VICTIM]].state = RecordDict()
            return super().send_and_receive(sent, timeout=timeout)

    with History.in_memory() as history:
        train(history, Losing(client_app()), 4)
        labels = labels_of(history)
        took_part = [{labels[each] for each in one.clients.tolist()} for one in rounds_of(history, 0, 1, 4)]
    assert [VICTIM in each for each in took_part] == [True, False, True, True]


@pytest.mark.parametrize("told", [7, "short", "A" * 64, "0" * 65, ["0" * 64]])
def test_a_password_that_is_none_is_not_sent(told: Any) -> None:
    app = client_app()
    lying = ClientApp()
    lying.train()(lambda msg, context: app(msg, context))
    lying.evaluate()(lambda msg, context: app(msg, context))

    @lying.query()
    def query(msg: Message, context: Context) -> Message:
        reply = rescind.flower.identify(msg, context)
        if context.node_config["client-id"] == VICTIM:
            reply.content["rescind"][PASSWORD] = told
        return reply

    on = Seen(lying)
    with History.in_memory() as history:
        train(history, on, 1)
        assert len(history.participants.all()) == len(CLINICS) - 1
    to_it = [each.content["config"] for each in on.messages if each.metadata.dst_node_id == on.ids[VICTIM]]
    assert not any(PASSWORD in config for config in to_it)
