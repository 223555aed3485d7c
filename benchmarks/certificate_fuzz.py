"""Is anything accepted that is not exactly what was signed, or that a signer made up where it has to follow?

A certificate of each kind, in each version of the wording, is changed at random: bits and bytes of the file, fields
of the statement swapped, removed, added or moved, with the old signature, with a stranger's, or signed again by the
operator's own key; another model, another history, oversized and deeply nested files. ``accepted`` counts changed
statements that were verified, ``crashes`` everything but the documented errors, ``slowest_s`` the longest
verification.

The signer lies, too. What follows from something else (texts, numbers, the mode without its noise, the version, the
spelling of times and digests) is altered alone: ``lies_accepted`` counts what was verified. Facts are altered and
everything that follows is made to fit: ``unseen`` lists those that were verified without the history, ``unnamed``
counts the ones of these that verification does not name as not checked.
"""

from __future__ import annotations

import base64
import copy
import json
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any, Self, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner, SSlibKey

from benchmarks._measure import finish, parser, progress
from rescind import History, LocalTraining, Sampling
from rescind.certificates.envelope import PAYLOAD_TYPE, sign
from rescind.certificates.errors import CertificateError
from rescind.certificates.issue import (
    build_guarantee,
    build_statement,
    describe_noised_rounds,
    describe_training,
    read_request,
)
from rescind.certificates.predicate import VERSION, Predicate, Word, name_type
from rescind.certificates.verification import VerifiedCertificate, verify
from rescind.certificates.wording import write_texts
from rescind.checkpoints.tensors import save
from rescind.core.calibration import Budget
from rescind.core.facts import Mode, PrivacyScope
from rescind.core.regularity import LogisticL2, Loss, NetworkLoss, SoftmaxL2
from rescind.engines.server import Average, NoisedAverage, Server
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.commitments import canonical
from rescind.methods import Dp, FineTuning, Method, Scratch, Sifu, Solve
from rescind.testing.small import simulation

OPERATOR, STRANGER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
KEY = SSlibKey.from_crypto(OPERATOR.public_key())
LOSSES: dict[str, type[SoftmaxL2 | LogisticL2]] = {"SoftmaxL2": SoftmaxL2, "LogisticL2": LogisticL2}
ODD = ("\x1b[2J", "\u202e", "\u2066", "\n", "\x00", "\x9b", "\u2028")
ODD_TIMES = (
    *("2026-W01-1T00:00:00+00:00", "20260101T000000+00:00", "2026-01-01", "2026-01-01 00:00:00+00:00", "soon"),
    *("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00", "2026-01-01T00:00:00", "2026-01-01T00:00:00Z"),
    "\u0662\u0660\u0662\u0666-01-01T00:00:00+00:00",
)
# What follows from something else, and the names of texts and times that have one spelling.
DERIVED = (
    *("title", "claim", "counterfactual", "sampling", "constants", "public", "assumptions", "not_claimed", "version"),
    *("mode", "guarantee", "guarantee.mu", "guarantee.epsilons", "guarantee.powers", "noise.grid", "noise.source"),
    *("rounds.noise_multiplier", "rounds.mu", "training.curvature", "training.gradient_bound"),
    *("training.expansion", "training.factor"),
)
TIMES = ("asked", "deadline", "erasure.completed")
SPELLED = ("run", "trained", "erasure.stays", "erasure.unreachable", "reasons", "training.loss", "training.precision")
DIGESTS = ("frozen", "erasure.log", "forgotten", "rows", "run")
WORDS = get_args(Word)


class Issued:
    """A certificate with the history and the model behind it."""

    def __init__(self, folder: Path, method: Method) -> None:
        self.history = History(folder / "history")
        self.history.name_run(operator="City Hospitals", model="risk head")
        server: Server = Average()
        options: dict[str, Any] = {}
        if isinstance(method, Dp):
            server = NoisedAverage(clip=0.5, denominator=20.0, noise_multiplier=8.0)
            options = {"public": server.facts, "public_schedule": True}
        engine = simulation(20, sampling=Sampling.EVERYBODY, rate=None, secret_noise=True, **options)
        federation = Revocable(self.history, engine, server)
        federation.train(Rounds(10))
        scope = PrivacyScope.RECORDS if isinstance(method, Solve) else PrivacyScope.GROUP
        number = self.history.requests.ask(["clinic-3"], Budget(8.0, 0.01), scope=scope)
        federation.forget(method, Rounds(2))
        if scope is PrivacyScope.RECORDS:
            self.history.requests.name_rows("clinic-3", number, "5" * 64)
        self.model = folder / "model.safetensors"
        save(self.history.model(self.history.newest), self.model)
        self.number = number
        self.sign(VERSION)

    def sign(self, version: int) -> Self:
        """Make it a certificate in a version of the wording."""
        self.statement = build_statement(self.history, self.number, version=version)
        self.content = sign(self.statement, [CryptoSigner(OPERATOR)])
        self.document: dict[str, Any] = json.loads(self.statement.payload())
        return self


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


def at(said: Any, path: str) -> tuple[Any, str]:
    """Return the table that a field is in, and its name there."""
    *tables, name = path.split(".")
    for table in tables:
        said = said[table]
    return said, name


def stated_at(said: Any, path: str) -> Any:
    """Return what stands at a path, None where its part is not there."""
    for name in path.split("."):
        said = None if said is None else said[name]
    return said


def other_text(rng: random.Random, text: str) -> str:
    return rng.choice((f"{text}.", f" {text}", text.upper(), "trust", text[:-1] or "x", text + rng.choice(ODD)))


def other(rng: random.Random, value: Any, elsewhere: Any) -> Any:
    """Return another value for a field that has to follow from others; ``elsewhere`` is another certificate's."""
    if elsewhere not in (value, None) and rng.random() < 0.2:
        return elsewhere
    if isinstance(value, str):
        return other_text(rng, value)
    if isinstance(value, bool | int | float):
        return value * rng.choice((0.5, 0.9, 0.999, 1.001, 1.1, 2.0, 1e3)) if isinstance(value, float) else value + 1
    if value is None:
        return rng.choice((1.0, [0.5, 1.0], {}))
    if isinstance(value, dict):
        return None
    if not value or rng.random() < 0.2:
        return [*value, rng.choice(("trust", {"what": "trust", "basis": "proven"}))]
    found = copy.deepcopy(value)
    at_ = rng.randrange(len(found))
    if rng.random() < 0.3:
        return rng.choice(([], found[1:], found[:-1], [*found, found[0]], [found[-1], *found[:-1], found[0]]))
    if isinstance(found[at_], dict):
        name = rng.choice(list(found[at_]))
        weaker = [each for each in (*WORDS, "proven", "assumed") if each != found[at_][name]]
        found[at_][name] = rng.choice(weaker) if name == "basis" else other(rng, found[at_][name], None)
    else:
        found[at_] = other(rng, found[at_], None)
    return found


def misderived(rng: random.Random, issued: Issued, everybody: Sequence[Issued]) -> bytes:
    """A field that follows from others says something else, and the operator's own key signs it."""
    document = copy.deepcopy(issued.document)
    said = document["predicate"]
    path = rng.choice([each for each in DERIVED if "." not in each or stated_at(said, each.partition(".")[0])])
    elsewhere = stated_at(rng.choice(everybody).document["predicate"], path)
    table, name = at(said, path)
    if path == "mode":
        table[name] = rng.choice([mode.value for mode in Mode if mode.value != said["mode"]])
    elif path == "version" and rng.random() < 0.5:
        # Its type, too, is that of the other version, and its texts are not.
        table[name] = rng.choice([version for version in range(VERSION + 2) if version != said["version"]])
        document["predicateType"] = f"{document['predicateType'][:-1]}{table[name]}"
    else:
        table[name] = other(rng, table[name], copy.deepcopy(elsewhere))
    return enveloped(canonical(document), OPERATOR)


def misspelled(rng: random.Random, issued: Issued) -> bytes:
    """A time, a text or a digest in a spelling that none has, and the operator's own key signs it."""
    document = copy.deepcopy(issued.document)
    said, kind = document["predicate"], rng.randrange(3)
    if kind == 0:
        table, name = at(said, rng.choice(TIMES))
        table[name] = rng.choice(ODD_TIMES)
    elif kind == 1:
        table, name = at(said, rng.choice(SPELLED))
        odd = f"Verified{rng.choice(ODD)}: all is well"
        table[name] = odd if isinstance(table[name], str) else [*table[name], odd]
    else:
        table, name = at(said, rng.choice(DIGESTS))
        right = "0123456789abcdef" * (1 if name == "run" else 4)
        odd = rng.choice((right.upper(), right[:-1], right + "0", right[:-1] + "\u0663", right + "\n"))
        table[name] = [odd] if name == "forgotten" else odd
    return enveloped(canonical(document), OPERATOR)


def moved(rng: random.Random, time: str, days: tuple[int, int]) -> str:
    return (datetime.fromisoformat(time) + timedelta(days=rng.randint(*days))).isoformat()


def drawn(rng: random.Random) -> dict[str, Any]:
    kinds = (("everybody", None), ("poisson", 0.3), ("fixed_size", 5.0), ("fraction", 0.5))
    sampling, sample = rng.choice(kinds)
    return {"sampling": sampling, "sample": sample}


def factor(rng: random.Random, value: float) -> float:
    return value * rng.choice((0.25, 0.5, 0.9, 1.1, 2.0, 4.0))


Change = Callable[[random.Random, Any], Any]
# Every fact of a certificate: how it is altered, and the words by which verification names it as not checked.
FACTS: dict[str, tuple[str, Change]] = {
    **{
        f"names.{role}": (
            "of the request: names",
            lambda rng, _: rng.choice((None, rng.randbytes(4).hex())),
        )
        for role in ("operator", "federation", "model")
    },
    "run": ("names, run", lambda rng, _: rng.randbytes(8).hex()),
    "request": ("names, run, number", lambda rng, _: rng.randint(1, 10**6)),
    "asked": ("model and dates", lambda rng, it: moved(rng, it, (-900, -1))),
    "deadline": ("model and dates", lambda rng, it: moved(rng, it, (1, 900))),
    "erasure.completed": ("model and dates", lambda rng, it: moved(rng, it, (1, 900))),
    "forgotten": ("who was forgotten", lambda rng, _: sorted(rng.randbytes(32).hex() for _ in range(3))),
    "rows": (
        "what commits to their rows",
        lambda rng, it: [{**it[0], "root": rng.randbytes(32).hex()}] if it else it,
    ),
    "facts.solved": ("how a head was solved", lambda _, it: not it),
    "solving.tolerance": ("how a head was solved", factor),
    "solving.most_bytes": ("how a head was solved", lambda rng, it: it + rng.randint(1, 99)),
    "solving.most_rounds": ("how a head was solved", lambda rng, it: it + rng.randint(1, 99)),
    "mode": ("mode and reasons", lambda rng, _: rng.choice([mode.value for mode in Mode])),
    "scope": ("whose removal is hidden", lambda rng, _: rng.choice([scope.value for scope in PrivacyScope])),
    "facts": ("how participants were drawn", lambda rng, it: {**it, **drawn(rng)}),
    "facts.batch": ("what they trained", lambda rng, _: rng.randint(1, 99)),
    "facts.equal_weights": ("weighed", lambda _, it: not it),
    "facts.parameters": ("what they trained", lambda rng, _: rng.randint(1, 10**4)),
    **{
        f"facts.sources.{name}": ("on whose word", lambda rng, _: rng.choice(WORDS))
        for name in ("training", "identity", "distances", "reachable")
    },
    "guarantee.epsilon": ("epsilon, delta and releases", factor),
    "guarantee.delta": ("epsilon, delta and releases", factor),
    "guarantee.releases": ("epsilon, delta and releases", lambda rng, it: it + rng.randint(1, 5)),
    "noise.sigma": ("the noise level", lambda rng, it: it * 2.0 ** rng.randint(-4, 4)),
    "noise.earlier": ("the noise level", lambda rng, it: it + rng.randint(1, 5)),
    "rounds.sigma": ("the noise level", lambda rng, it: it * 2.0 ** rng.randint(-4, 4)),
    "rounds.clip": ("the noise level", factor),
    "rounds.denominator": ("the noise level", factor),
    "rounds.rounds": ("how often the forgotten participants took part", lambda rng, it: it + rng.randint(-3, 9)),
    "rounds.participations": (
        "how often the forgotten participants took part",
        lambda rng, it: it + rng.randint(-9, 9),
    ),
    "trained": ("what they trained", lambda _, it: [*it, "more"]),
    "frozen": ("what they trained", lambda rng, _: rng.randbytes(32).hex()),
    "training.loss": ("what they trained", lambda rng, _: rng.choice(("LogisticL2", "NetworkLoss"))),
    "training.l2": ("what they trained", factor),
    "training.row_norm": ("what they trained", factor),
    "training.learning_rate": ("what they trained", factor),
    "training.steps": ("what they trained", lambda rng, it: it + rng.randint(1, 9)),
    "training.proximal": ("what they trained", lambda rng, _: rng.random()),
    "training.server_learning_rate": ("what they trained", factor),
    "training.precision": ("what they trained", lambda rng, _: rng.choice(("float32", "float64"))),
    "erasure.level": ("what was erased", lambda _, it: "output" if it == "purge" else "purge"),
    "erasure.log": ("what was erased", lambda rng, _: rng.randbytes(32).hex()),
    "erasure.stays": ("what is still there", lambda rng, it: rng.choice(([], it[1:], [*it, "a copy"]))),
    "erasure.unreachable": ("what is still there", lambda rng, it: rng.choice(([], it[1:], [*it, "a backup"]))),
    "reasons": ("mode and reasons", lambda rng, it: rng.choice((it[1:], ["nobody knows"]))),
    "evidence": ("the measured evidence", lambda *_: [{"what": "an attack", "found": "nothing", "bound": "1"}]),
    "model": ("which model it is about", lambda rng, _: rng.randbytes(32).hex()),
    "head": ("names, run", lambda rng, _: rng.randbytes(32).hex()),
}


def fitted(rng: random.Random, issued: Issued, path: str) -> bytes:
    """Another fact, with all texts and numbers that follow from it, and the operator's own key signs it."""
    document = copy.deepcopy(issued.document)
    said = document["predicate"]
    change = FACTS[path][1]
    if path in ("model", "head"):
        digest = document["subject"][path == "head"]["digest"]
        digest["sha256"] = change(rng, digest["sha256"])
    else:
        table, name = at(said, path)
        table[name] = change(rng, table[name])
    # What cannot be derived from such a fact is left as it was.
    with suppress(ValueError, ArithmeticError):
        document["predicate"] = json.loads(canonical(derived(said)))
        document["predicateType"] = name_type(Predicate.model_construct(**document["predicate"]))
    return enveloped(canonical(document), OPERATOR)


def derived(said: dict[str, Any]) -> dict[str, Any]:
    """Return a predicate the texts and numbers that its facts have."""
    found = Predicate.model_validate_json(canonical(said))
    mode, training = Mode(found.mode), found.training
    if mode not in (Mode.STRICT, Mode.INSTANCE):
        # Noise on the model stays in a report, and what is exact has none.
        found = found.model_copy(update={"guarantee": None, "rounds": None})
    if mode is Mode.EXACT:
        found = found.model_copy(update={"noise": None})
    reasons = (found.reasons or ("nobody knows",)) if mode is Mode.HEURISTIC else ()
    found = found.model_copy(update={"reasons": reasons})
    if training.loss in LOSSES and training.l2 is not None and training.row_norm is not None:
        loss: Loss = LOSSES[training.loss](training.l2, training.row_norm)
    else:
        loss = NetworkLoss(None)
    local = LocalTraining(
        training.steps or 1,
        training.learning_rate or 1.0,
        loss,
        proximal=training.proximal,
        server_learning_rate=training.server_learning_rate,
        precision=training.precision,
    )
    rounds = found.rounds
    if rounds is not None:
        rounds = describe_noised_rounds(
            rounds.sigma, rounds.clip, rounds.denominator, rounds.rounds, rounds.participations
        )
    found = found.model_copy(update={"training": describe_training(local), "rounds": rounds})
    words = write_texts(found)
    if found.guarantee is not None:
        asked = read_request(found.guarantee)
        words["guarantee"] = build_guarantee(asked, found.facts.parameters, found.noise, rounds)
    return found.model_copy(update=words).model_dump(mode="json")


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
    *(flipped, cut, resigned, of_a_stranger, with_the_old_signature, respelled, monstrous),
)


@dataclass
class Tally:
    """What came of all documents."""

    accepted: int = 0
    lies_accepted: int = 0
    crashes: int = 0
    slowest: float = 0.0
    unseen: set[str] = field(default_factory=set)
    unnamed: set[str] = field(default_factory=set)

    def checked(self, label: str, content: bytes, extra: dict[str, Any]) -> VerifiedCertificate | None:
        """Verify a document; None if it is refused."""
        start = perf_counter()
        try:
            return verify(content, [KEY], **extra)
        except CertificateError:
            return None
        except Exception as crash:
            self.crashes += 1
            print(f"{label}: {crash!r:.300}", file=sys.stderr)
            return None
        finally:
            self.slowest = max(self.slowest, perf_counter() - start)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--mutations", type=int, default=100_000, help="how many (default 100,000)")
    chosen = options.parse_args()
    mutations = 2_000 if chosen.quick else chosen.mutations
    rng, tally = random.Random(20261115), Tally()
    with tempfile.TemporaryDirectory() as name:
        methods = (Sifu(), Scratch(), FineTuning(), Dp(), Solve())
        folders = [Path(name) / str(at) for at in range(len(methods))]
        for folder in folders:
            folder.mkdir()
        newest = [Issued(*each) for each in zip(folders, methods, strict=True)]
        everybody = [copy.copy(issued).sign(version) for version in range(1, VERSION + 1) for issued in newest]
        for issued in everybody:
            verify(issued.content, [KEY], model=issued.model, history=issued.history)
        for number in progress(range(mutations), "certificate_fuzz"):
            issued = rng.choice(everybody)
            # Some with history and model at hand, as an auditor of the operator's would; and of another run.
            other_run = everybody[(everybody.index(issued) + 1) % len(everybody)] if number % 400 == 0 else issued
            extra = {"history": other_run.history, "model": other_run.model} if number % 80 == 0 else {}
            turn = number % 8
            if turn < 3:
                mutate(rng, issued, extra, tally, same_run=other_run is issued)
            elif turn < 7:
                lie(rng, issued, everybody, tally)
            else:
                alter_a_fact(rng, issued, tally)
    unseen = sorted(tally.unseen)
    finish(
        {
            "mutations": mutations,
            "accepted": tally.accepted,
            "lies_accepted": tally.lies_accepted,
            "unnamed": len(tally.unnamed),
            "crashes": tally.crashes,
            "slowest_s": tally.slowest,
            "unseen": unseen,
        }
    )


def mutate(rng: random.Random, issued: Issued, extra: dict[str, Any], tally: Tally, *, same_run: bool) -> None:
    kind = rng.choice(KINDS)
    found = tally.checked(kind.__name__, kind(rng, issued), extra)
    # What the operator's own key signs consistently can be told from the truth only by the history.
    alone = kind is resigned and not extra
    if found is not None and (found.statement != issued.statement or not same_run) and not alone:
        tally.accepted += 1
        print(f"{kind.__name__}: accepted", file=sys.stderr)


def lie(rng: random.Random, issued: Issued, everybody: Sequence[Issued], tally: Tally) -> None:
    derived_one = rng.random() < 0.5
    content = misderived(rng, issued, everybody) if derived_one else misspelled(rng, issued)
    found = tally.checked("lie", content, {})
    if found is not None and found.statement != issued.statement:
        tally.lies_accepted += 1
        print(f"accepted: {json.loads(content)['payload']}", file=sys.stderr)


def alter_a_fact(rng: random.Random, issued: Issued, tally: Tally) -> None:
    said = issued.document["predicate"]
    there = [path for path in FACTS if "." not in path or stated_at(said, path.rpartition(".")[0]) is not None]
    path = rng.choice(there)
    content = fitted(rng, issued, path)
    found = tally.checked(path, content, {})
    if found is None or found.statement == issued.statement:
        return
    tally.unseen.add(path)
    if not any(FACTS[path][0] in line for line in found.unchecked):
        tally.unnamed.add(path)
        print(f"{path}: not named", file=sys.stderr)
    # Every hundredth of these with the history, which knows better; evidence is in none.
    if path != "evidence" and rng.random() < 0.01:
        known = {"history": issued.history, "model": issued.model}
        if tally.checked(path, content, known) is not None:
            tally.accepted += 1
            print(f"{path}: accepted with the history", file=sys.stderr)


if __name__ == "__main__":
    main()
