"""Is anything accepted that is not exactly what was signed, and does anything make verification fail otherwise?

A certificate of each kind is changed at random: bits and bytes of the file, fields of the statement swapped,
removed, added or moved, with the old signature, with a stranger's, or signed again by the operator's own key; another
model, another history, oversized and deeply nested files. ``accepted`` counts changed statements that were verified
(what the operator's key signs and what does not contradict itself can be told only with the history, so that counts
where the history is given; a text that does not follow from the facts counts always), ``crashes`` everything but the
documented errors, ``slowest_s`` the longest verification.
"""

from __future__ import annotations

import base64
import copy
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner, SSlibKey

from benchmarks._measure import finish, parser, progress
from rescind import History, Sampling
from rescind.certificates.envelope import PAYLOAD_TYPE, signed
from rescind.certificates.errors import CertificateError
from rescind.certificates.issue import statement
from rescind.certificates.predicate import Statement
from rescind.certificates.verification import verify
from rescind.core.calibration import Budget
from rescind.engines.server import Average, NoisedAverage, Server
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.commitments import canonical
from rescind.history.tensors import save
from rescind.methods import Dp, FineTuning, Method, Scratch, Sifu
from rescind.testing.small import simulation

OPERATOR, STRANGER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
KEY = SSlibKey.from_crypto(OPERATOR.public_key())
STRICT_CLAIM = (
    "Whatever the data are, the released model is (epsilon, delta)-indistinguishable from one that never saw these "
    "clients; what is listed as public is not hidden."
)


class Issued:
    """A certificate with the history and the model behind it."""

    def __init__(self, folder: Path, method: Method) -> None:
        self.history = History(folder / "history")
        server: Server = Average()
        options: dict[str, Any] = {}
        if isinstance(method, Dp):
            server = NoisedAverage(clip=0.5, denominator=20.0, noise_multiplier=8.0)
            options = {"public": server.facts, "public_schedule": True}
        engine = simulation(20, sampling=Sampling.EVERYBODY, rate=None, secret_noise=True, **options)
        federation = Revocable(self.history, engine, server)
        federation.train(Rounds(10))
        number = self.history.ask(["clinic-3"], Budget(8.0, 0.01))
        federation.forget(method, Rounds(2))
        self.model = folder / "model.safetensors"
        save(self.history.model(self.history.newest), self.model)
        self.statement = statement(self.history, number)
        self.content = signed(self.statement, [CryptoSigner(OPERATOR)])
        self.document: dict[str, Any] = json.loads(self.statement.payload())


def enveloped(payload: bytes, key: Ed25519PrivateKey) -> bytes:
    pae = b"DSSEv1 %d %b %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
    signature = {"keyid": KEY.keyid, "sig": base64.b64encode(key.sign(pae)).decode()}
    document = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [signature],
    }
    return json.dumps(document).encode()


def flipped(rng: random.Random, issued: Issued) -> bytes:
    data = bytearray(issued.content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def cut(rng: random.Random, issued: Issued) -> bytes:
    data, at = issued.content, rng.randrange(len(issued.content))
    length = rng.randrange(1, 40)
    return rng.choice((data[:at], data[:at] + data[at + length :], data[: at + length] + data[at:]))


def places(value: Any) -> list[tuple[Any, Any]]:
    """List every (container, key) of a document."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def changed(rng: random.Random, issued: Issued) -> dict[str, Any]:
    """Change a field: another value, another's value, none, or one too many."""
    document = copy.deepcopy(issued.document)
    found = places(document)
    container, key = rng.choice(found)
    other_container, other_key = rng.choice(found)
    values: tuple[Any, ...] = (0, -1, 1e308, True, None, "", "x" * 3000, [], {}, [[]], 1e-300, "0" * 64, 2**70)
    kind = rng.randrange(5)
    if kind == 0:
        container[key] = rng.choice(values)
    elif kind == 1:
        container[key] = copy.deepcopy(other_container[other_key])
    elif kind == 2:
        del container[key]
    elif kind == 3 and isinstance(container, dict):
        container[rng.choice(("also", "_type", "mode", "claim"))] = rng.choice(values)
    elif isinstance(container[key], float):
        container[key] *= rng.choice((0.5, 0.999, 1.001, 2.0, -1.0))
    else:
        container[key] = f"{container[key]} "
    return document


def resigned(rng: random.Random, issued: Issued) -> bytes:
    """Changed, and signed again with the operator's own key: what contradicts itself or the history is found."""
    return enveloped(canonical(changed(rng, issued)), OPERATOR)


def reworded(rng: random.Random, issued: Issued) -> bytes:
    """Other words than the facts have, or a guarantee without its noise, signed by the operator's own key."""
    document = copy.deepcopy(issued.document)
    said = document["predicate"]
    name = rng.choice(
        ("assumptions", "constants", "public", "not_claimed", "counterfactual", "sampling", "claim", "mode")
    )
    if name == "mode":
        said |= {"mode": "strict", "noise": None, "rounds": None, "claim": STRICT_CLAIM}
    elif isinstance(said[name], str):
        said[name] = rng.choice(("whatever", "moonlight", f"{said[name]}.", said["title"]))
    elif not said[name] or rng.random() < 0.3:
        said[name] = [*said[name], {"what": "trust", "basis": "proven"} if name == "assumptions" else "trust"]
    else:
        said[name] = rng.choice(([], said[name][1:], said[name][:-1]))
    return enveloped(canonical(document), OPERATOR)


def of_a_stranger(rng: random.Random, issued: Issued) -> bytes:
    return enveloped(canonical(changed(rng, issued)), STRANGER)


def with_the_old_signature(rng: random.Random, issued: Issued) -> bytes:
    envelope = json.loads(issued.content)
    envelope["payload"] = base64.b64encode(canonical(changed(rng, issued))).decode()
    return json.dumps(envelope).encode()


def respelled(rng: random.Random, issued: Issued) -> bytes:
    """The same statement in other bytes, signed: keys in another order, spaces, numbers written otherwise."""
    items = list(issued.document.items())
    rng.shuffle(items)
    text = json.dumps(dict(items), indent=rng.choice((None, 1, 2)))
    return enveloped(text.replace("8.0", "8.00").encode() if rng.random() < 0.3 else text.encode(), OPERATOR)


def monstrous(rng: random.Random, issued: Issued) -> bytes:
    depth = rng.randrange(10, 200_000)
    return rng.choice(
        (
            b"[" * depth,
            b'{"payload":' * depth,
            enveloped(b"[" * min(depth, 50_000), OPERATOR),
            issued.content + b" " * depth,
            enveloped(canonical({**issued.document, "subject": issued.document["subject"] * 500}), OPERATOR),
            json.dumps({**json.loads(issued.content), "signatures": [{}] * (depth % 1000)}).encode(),
        )
    )


KINDS: tuple[Callable[[random.Random, Issued], bytes], ...] = (
    *(flipped, flipped, cut, resigned, resigned, resigned),
    *(reworded, of_a_stranger, with_the_old_signature, respelled, monstrous),
)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--mutations", type=int, default=100_000, help="how many (default 100,000)")
    chosen = options.parse_args()
    mutations = 2_000 if chosen.quick else chosen.mutations
    rng = random.Random(20261115)
    accepted = crashes = 0
    slowest = 0.0
    with tempfile.TemporaryDirectory() as name:
        folders = [Path(name) / str(at) for at in range(4)]
        for folder in folders:
            folder.mkdir()
        everybody = [Issued(*each) for each in zip(folders, (Sifu(), Scratch(), FineTuning(), Dp()), strict=True)]
        for issued in everybody:
            verify(issued.content, [KEY], model=issued.model, history=issued.history)
        for at in progress(range(mutations), "certificate_fuzz"):
            issued, kind = rng.choice(everybody), rng.choice(KINDS)
            content = kind(rng, issued)
            # Every tenth with history and model at hand, as an auditor of the operator's would; and of another run.
            other = everybody[(everybody.index(issued) + 1) % 4] if at % 50 == 0 else issued
            extra = {"history": other.history, "model": other.model} if at % 10 == 0 else {}
            start = perf_counter()
            try:
                found: Statement | None = verify(content, [KEY], **extra).statement  # type: ignore[arg-type]
            except CertificateError:
                found = None
            except Exception as crash:
                found = None
                crashes += 1
                print(f"{kind.__name__}: {crash!r:.300}", file=sys.stderr)
            slowest = max(slowest, perf_counter() - start)
            # What the operator's own key signs consistently can be told from the truth only by the history.
            alone = kind is resigned and not extra
            if found is not None and (found != issued.statement or other is not issued) and not alone:
                accepted += 1
                print(f"{kind.__name__}: accepted", file=sys.stderr)
    finish({"mutations": mutations, "accepted": accepted, "crashes": crashes, "slowest_s": slowest})


if __name__ == "__main__":
    main()
