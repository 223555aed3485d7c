"""Does a participant get others forgotten, or obeyed, on a real Flower federation?

A SuperLink with TLS, three SuperNodes and Mallory, all with registered keys. Mallory takes part in one run as the
program that it likes. As the server it sends another node a refusal, and a training of 10^12 steps; Flower takes both
(``taken``). ``obeyed`` counts what the node did of it. And it computes the ids of the queries to the others, by which
it could answer for them, from its own query and the very times at which theirs were made, which it would have to
guess: ``own_id`` is 1 if its own is found so, ``known_ids`` counts the others'. ``rounds`` are those in which
everybody else took part.
"""

from __future__ import annotations

import hashlib
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.app.metadata import Metadata
from flwr.common.serde import message_to_proto, recorddict_to_proto
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import PullObjectRequest, PushObjectRequest
from flwr.proto.node_pb2 import Node as NodeProto
from flwr.supercore.constant import HEAD_BODY_DIVIDER, HEAD_VALUE_DIVIDER
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from benchmarks._federation import Deployment, Node
from benchmarks._measure import finish, parser
from rescind import History
from rescind.core.edges import ModelId
from rescind.flower.wire import KEYED, REFUSED, Instructions
from rescind.ledger.records import Span

APP = Path(__file__).parent / "faulty"
sys.path.insert(0, str(APP))

from faulty.server_app import TRAINED, TRAINING, initial  # noqa: E402, the app is no part of this package

NAMES = ("ann", "bob", "cyd")
ROUNDS = 2
PATIENCE = 300.0
REFUSAL = "sent by Mallory"


class Mallory:
    """A registered participant with a program of its own."""

    def __init__(self, address: str, authority: Path, key: Path) -> None:
        own = serialization.load_ssh_private_key(key.read_bytes(), None)
        assert isinstance(own, ec.EllipticCurvePrivateKey)
        signs: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(own, own.public_key()),
        ]
        self._client = FleetHttpClient.from_server_address(address, False, str(authority), interceptors=signs)
        public = public_key_to_bytes(own.public_key())
        activated = self._client.ActivateNode(ActivateNodeRequest(public_key=public, heartbeat_interval=300))
        self.node = NodeProto(node_id=activated.node_id)

    def receive(self) -> tuple[str, bytes]:
        """Wait for a message, and return its id and the bytes that the id is made from."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            pulled = self._client.PullMessages(PullMessagesRequest(node=self.node)).messages_list
            if pulled:
                metadata = pulled[0].metadata
                request = PullObjectRequest(node=self.node, run_id=metadata.run_id, object_id=metadata.message_id)
                while not (content := self._client.PullObject(request).object_content):
                    time.sleep(0.05)
                return metadata.message_id, content
            time.sleep(0.05)
        raise TimeoutError("Mallory was asked nothing")

    def send(self, run: int, node: int, kind: str, content: RecordDict) -> bool:
        """Send a message as if it were the server, and return whether Flower took it."""
        metadata = Metadata(run, "", 1, node, "", "", time.time(), 3600.0, kind)
        message = Message(content, metadata=metadata)  # type: ignore[call-overload]
        metadata.__dict__["_message_id"] = message.object_id
        proto = message_to_proto(message)
        proto.content.CopyFrom(recorddict_to_proto(RecordDict()))
        tree = get_object_tree(message)
        pushed = self._client.PushMessages(
            PushMessagesRequest(node=self.node, messages_list=[proto], message_object_trees=[tree])
        )
        objects = get_all_nested_objects(message)
        for each in pushed.objects_to_push:
            own = {"object_id": each, "object_content": objects[each].deflate(), "session_id": pushed.session_id}
            self._client.PushObject(PushObjectRequest(node=self.node, run_id=run, **own))
        return bool(pushed.objects_to_push)


def compute_id(content: bytes, node: int, created_at: float) -> str:
    """Return the id that a message would have if it went to another node at another time."""
    head, body = content.split(HEAD_BODY_DIVIDER, 1)
    message = MessageProto.FromString(body)
    message.metadata.dst_node_id, message.metadata.created_at = node, created_at
    body = message.SerializeToString(deterministic=True)
    kind, child, _ = head.decode().split(HEAD_VALUE_DIVIDER)
    head = HEAD_VALUE_DIVIDER.join((kind, child, str(len(body)))).encode()
    return hashlib.sha256(head + HEAD_BODY_DIVIDER + body).hexdigest()


def endless_training() -> RecordDict:
    """Return a training that does not end, as the server would spell it."""
    training = replace(TRAINING, steps=10**12)
    told = Instructions(training, tuple(TRAINED), 0, b"\0" * 32, ModelId(0, 1), b"\0" * 32)
    return RecordDict({"arrays": initial(), "config": ConfigRecord({**told.record()})})


def read_queries(database: Path, run: int) -> dict[int, tuple[str, float]]:
    """Return the id and the time of the first query to each node of a run."""
    query = (
        "select dst_node_id, message_id, created_at from message_ins where run_id = ? and message_type = 'query' "
        "order by created_at desc"
    )
    # SQLite has signed numbers.
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as opened:
        rows = opened.execute(query, (run - 2**64 if run >= 2**63 else run,)).fetchall()
    return {node % 2**64: (message_id, created_at) for node, message_id, created_at in rows}


def attack(folder: Path) -> dict[str, object]:
    """Let Mallory take part in a run, and return what came of it."""
    deployment = Deployment(folder / "deployment", [Node(name, f'client="{name}"') for name in NAMES])
    with deployment:
        numbers = {name: deployment.number(name) for name in NAMES}
        key = deployment.register("mallory")
        mallory = Mallory(deployment.address, folder / "deployment" / "ca.crt", key)
        history = folder / "history"
        run = deployment.run(APP, history=str(history), num_rounds=ROUNDS, nodes=len(NAMES), timeout=40.0)
        own_id, content = mallory.receive()
        queries = read_queries(folder / "deployment" / "state.db", int(run))
        refusal = RecordDict({"config": ConfigRecord({KEYED: True, REFUSED: REFUSAL})})
        sent = ((MessageType.QUERY, refusal), (MessageType.TRAIN, endless_training()))
        taken = sum(mallory.send(int(run), numbers["ann"], kind, content) for kind, content in sent)
        status = deployment.wait(run, PATIENCE)
        log = deployment.node_log("ann")
        trained = log.count("rescind: trained for model 0.")
    with History(history, create=False) as opened:
        labels = opened.ledger.labels()
        rounds = [{labels[each] for each in one.clients.tolist()} for one in opened.ledger.rounds(Span(0, 1, 10**6))]
        requests = len(opened.timeline.requests)
    known = {node: compute_id(content, node, queries[node][1]) == queries[node][0] for node in queries}
    return {
        "completed": int(status == "finished:completed"),
        "taken": taken,
        # The endless one would be under way still.
        "obeyed": int(REFUSAL in log) + int(trained != ROUNDS),
        "own_id": int(known[mallory.node.node_id] and queries[mallory.node.node_id][0] == own_id),
        "known_ids": sum(known[numbers[name]] for name in NAMES),
        "asked": sum(numbers[name] in queries for name in NAMES),
        "rounds": sum(each >= set(NAMES) for each in rounds),
        "requests": requests,
    }


def main() -> None:
    parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        finish(attack(Path(folder)))


if __name__ == "__main__":
    main()
