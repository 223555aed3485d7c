"""A certificate checked by others' libraries alone: nothing of ours is imported here."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf.json_format import Parse
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement

FOLDER = Path(__file__).parent / "golden"


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("mode", ["exact", "strict", "instance", "heuristic"])
def test_in_toto_reads_the_statement_and_cryptography_the_signature(mode: str, version: str) -> None:
    envelope = json.loads((FOLDER / version / f"{mode}.json").read_text())
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    key = load_pem_public_key((FOLDER / "key.pub").read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    key.verify(signature, signed)
    with pytest.raises(InvalidSignature):
        key.verify(signature, signed + b" ")
    found = Statement.copy_from_pb(Parse(payload, statement_pb2.Statement()))
    found.validate()
    assert [subject.name for subject in found.pb.subject] == ["model", "head of the history"]
    assert found.pb.subject[0].digest["sha256"] == "a" * 64
    assert found.pb.predicate["mode"] == mode
    assert ("report" in found.pb.predicate_type) == (mode == "heuristic")
    assert found.pb.predicate_type.endswith(f":{version}")
