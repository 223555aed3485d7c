"""Certificates: issued from a history, signed, and checked by whoever distrusts them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rescind import History
from rescind.certificates import annex as annexes
from rescind.certificates.envelope import PAYLOAD_TYPE, countersign, sign
from rescind.certificates.errors import (
    CertificateError,
    HistoryMismatchError,
    InconsistentCertificateError,
    ModelMismatchError,
    NotACertificateError,
    UnsignedCertificateError,
    UnusableKeyError,
)
from rescind.certificates.issue import build_statement
from rescind.certificates.keys import create_key, load_public_key, load_signer
from rescind.certificates.predicate import Names, Statement
from rescind.certificates.verification import explain, verify
from rescind.checkpoints.tensors import save
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.participants import blind_name
from rescind.ledger.commitments import canonical
from rescind.ledger.records import ErasureLevel
from rescind.methods import Exact, FineTuning, Last, Method, Scratch, Sifu
from rescind.testing.small import simulation
from tests.builders import BUDGET, everybody

PASSPHRASE = "correct horse battery"  # noqa: S105
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("operator", "officer", "stranger"):
        create_key(folder / name, PASSPHRASE)
    return {name: folder / name for name in ("operator", "officer", "stranger")}


def served(history: History, method: Method, *names: str, secret: bool = True) -> int:
    """Train, let somebody leave, and give the request's number."""
    engine = everybody(30, secret_noise=secret)
    federation = Revocable(history, engine, seed=None if secret else b"s")
    federation.train(Rounds(12))
    number = history.requests.ask(list(names or ("clinic-3",)), BUDGET)
    federation.forget(method, Rounds(2))
    return number


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[History, int]]:
    with History(tmp_path_factory.mktemp("certified") / "history") as made:
        made.name_run(operator="City Hospitals", model="risk head", protocol="ethics vote 2026/14")
        yield made, served(made, Sifu())


@pytest.fixture(scope="module")
def content(history: tuple[History, int], keys: dict[str, Path]) -> bytes:
    return sign(build_statement(*history), [load_signer(keys["operator"], PASSPHRASE)])


def checked(content: bytes, keys: dict[str, Path], *names: str, **options: Any) -> Any:
    chosen = [load_public_key(f"{keys[name]}.pub") for name in names or ("operator",)]
    return verify(content, chosen, **options)


@cache
def open_key(path: Path) -> Ed25519PrivateKey:
    """Return the private key in a file; once, because that is slow for whoever guesses the passphrase."""
    key = serialization.load_pem_private_key(path.read_bytes(), PASSPHRASE.encode())
    assert isinstance(key, Ed25519PrivateKey)
    return key


def forged(content: bytes, keys: dict[str, Path], change: Change) -> bytes:
    """Change what a certificate says, and sign it with the operator's own key: only what is recomputed can tell."""
    envelope = json.loads(content)
    document = json.loads(base64.b64decode(envelope["payload"]))
    change(document)
    payload = canonical(document)
    pae = b"DSSEv1 %d %b %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
    envelope["payload"] = base64.b64encode(payload).decode()
    envelope["signatures"][0]["sig"] = base64.b64encode(open_key(keys["operator"]).sign(pae)).decode()
    return json.dumps(envelope).encode()


# What it says


def test_a_certificate_says_what_people_call_the_run_and_the_history_knows_better(
    history: tuple[History, int], content: bytes, keys: dict[str, Path]
) -> None:
    made, _ = history
    verified = checked(content, keys, history=made)
    assert verified.statement.predicate.names == Names(
        operator="City Hospitals", federation=None, model="risk head", protocol="ethics vote 2026/14"
    )
    assert "  operator City Hospitals; model risk head; protocol ethics vote 2026/14" in list(explain(verified))

    def rename(document: dict[str, Any]) -> None:
        document["predicate"]["names"]["operator"] = "Another Hospital"

    lie = forged(content, keys, rename)
    assert any("of the request: names" in line for line in checked(lie, keys).unchecked)
    with pytest.raises(HistoryMismatchError, match="names"):
        checked(lie, keys, history=made)


def test_an_instance_certificate_holds_with_everything_at_hand(
    history: tuple[History, int], content: bytes, keys: dict[str, Path], tmp_path: Path
) -> None:
    made, number = history
    (outcome,) = made.outcomes()
    assert outcome.model_id is not None
    save(made.model(outcome.model_id), tmp_path / "model.safetensors")
    verified = checked(content, keys, model=tmp_path / "model.safetensors", history=made)
    predicate = verified.statement.predicate
    assert verified.statement.predicate_type == "urn:rescind:certificate-of-forgetting:2"
    assert (predicate.mode, predicate.request) == ("instance", number)
    assert predicate.guarantee is not None
    assert (predicate.guarantee.epsilon, predicate.guarantee.delta) == (8.0, 0.01)
    assert predicate.noise is not None
    # The client's numbers are erased, and with them what the noise was computed from.
    (unchecked,) = verified.unchecked
    words = "that the noise is enough for what it hides: computed by the operator; the inputs were erased since"
    assert unchecked == words
    # Who has no history learns as much of a purge from the certificate; else the history may still tell.
    assert words in checked(content, keys).unchecked
    assert len(verified.holds) == 4


def test_what_may_not_be_told_in_instance_mode_is_not_in_it(history: tuple[History, int], content: bytes) -> None:
    """The node, the sensitivity and the realised mu were computed from the leaver's data."""
    made, _ = history
    (outcome,) = made.outcomes()
    assert outcome.restart is not None
    text = base64.b64decode(json.loads(content)["payload"]).decode()
    assert "clinic-3" not in text
    assert "node" not in text
    assert f"{outcome.restart.planned.candidate.releases_mu}" not in text


def test_without_model_and_history_it_says_what_is_not_checked(content: bytes, keys: dict[str, Path]) -> None:
    verified = checked(content, keys)
    assert len(verified.unchecked) == 5


def test_the_requester_finds_itself_by_its_receipt(history: tuple[History, int], content: bytes) -> None:
    made, number = history
    assert "clinic-3" not in made.participants.all()
    (own,) = build_statement(made, number).predicate.forgotten
    assert blind_name(bytes.fromhex(made.participants.receipt("clinic-3")), "clinic-3") == own
    assert blind_name(bytes.fromhex(made.participants.receipt("clinic-4")), "clinic-4") != own
    assert hashlib.sha256(b"clinic-3").hexdigest() != own


@pytest.mark.parametrize("method", [Scratch(), Exact()])
def test_an_exact_certificate_has_no_noise_and_no_epsilon(method: Method, keys: dict[str, Path]) -> None:
    with History.in_memory() as made:
        number = served(made, method, "clinic-1", "clinic-2")
        content = sign(build_statement(made, number), [load_signer(keys["operator"], PASSPHRASE)])
        predicate = checked(content, keys, history=made).statement.predicate
        assert (predicate.mode, predicate.guarantee, predicate.noise) == ("exact", None, None)
        assert len(predicate.forgotten) == 2


@pytest.mark.parametrize(("method", "secret"), [(FineTuning(), True), (Sifu(), False)])
def test_what_is_not_proven_gets_a_report_that_says_so(method: Method, secret: bool, keys: dict[str, Path]) -> None:
    with History.in_memory() as made:
        number = served(made, method, secret=secret)
        statement = build_statement(made, number)
        assert statement.predicate_type == "urn:rescind:report-that-is-no-certificate:2"
        assert "not a certificate" in statement.predicate.title
        assert statement.predicate.guarantee is None
        checked(sign(statement, [load_signer(keys["operator"], PASSPHRASE)]), keys, history=made)


def test_an_open_request_has_no_certificate(keys: dict[str, Path]) -> None:
    with History.in_memory() as made:
        Revocable(made, simulation(4), seed=b"s").train(Rounds(2))
        number = made.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
        with pytest.raises(ValueError, match="has not been served to the end"):
            build_statement(made, number)


# Signatures


def test_two_sign_and_a_threshold_is_met_or_not(content: bytes, keys: dict[str, Path]) -> None:
    both = countersign(content, load_signer(keys["officer"], PASSPHRASE))
    checked(both, keys, "operator", "officer", threshold=2)
    checked(both, keys, "officer", "stranger", threshold=1)
    with pytest.raises(
        UnsignedCertificateError, match="2 different keys have to have signed a certificate, and 1 did"
    ):
        checked(content, keys, "operator", "officer", threshold=2)
    with pytest.raises(UnsignedCertificateError, match="and 0 did"):
        checked(both, keys, "stranger")


def test_a_signature_of_another_statement_is_none_of_this(content: bytes, keys: dict[str, Path]) -> None:
    with History.in_memory() as made:
        other = sign(build_statement(made, served(made, Sifu())), [load_signer(keys["operator"], PASSPHRASE)])
    mixed = json.loads(content)
    mixed["signatures"] = json.loads(other)["signatures"]
    with pytest.raises(UnsignedCertificateError):
        checked(json.dumps(mixed).encode(), keys)


def test_the_signature_can_be_checked_without_us(content: bytes, keys: dict[str, Path]) -> None:
    envelope = json.loads(content)
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"].encode()
    key = serialization.load_pem_public_key(Path(f"{keys['operator']}.pub").read_bytes())
    key.verify(  # type: ignore[union-attr,call-arg]
        base64.b64decode(envelope["signatures"][0]["sig"]),
        b"DSSEv1 " + str(len(kind)).encode() + b" " + kind + b" " + str(len(payload)).encode() + b" " + payload,
    )
    assert json.loads(payload)["_type"] == "https://in-toto.io/Statement/v1"


# Files that are none, and claims that do not follow


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{}",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"payload": "", "payload": "", "payloadType": "", "signatures": []}',
        b'{"payload": "=", "payloadType": "application/vnd.in-toto+json", "signatures": [{"keyid": "", "sig": ""}]}',
        b"x" * 3_000_000,
    ],
)
def test_what_is_no_certificate_is_refused_in_a_sentence(broken: bytes, keys: dict[str, Path]) -> None:
    with pytest.raises(NotACertificateError):
        checked(broken, keys)


def lowered_epsilon(document: dict[str, Any]) -> None:
    document["predicate"]["guarantee"]["epsilon"] = 1.0


def lowered_power(document: dict[str, Any]) -> None:
    document["predicate"]["guarantee"]["powers"][0]["true_positive_rate"] = 0.01


def smaller_factor(document: dict[str, Any]) -> None:
    document["predicate"]["training"]["factor"] *= 0.9


def unlisted_noise(document: dict[str, Any]) -> None:
    document["predicate"]["noise"]["sigma"] *= 1.01


def seeded_noise(document: dict[str, Any]) -> None:
    document["predicate"]["noise"]["source"] = "a seed"


def called_exact(document: dict[str, Any]) -> None:
    document["predicate"]["mode"] = "exact"


def called_strict_in_words(document: dict[str, Any]) -> None:
    document["predicate"]["claim"] = "Everything is forgotten."


def report_as_certificate(document: dict[str, Any]) -> None:
    document["predicate"]["mode"] = "heuristic"


def nobody(document: dict[str, Any]) -> None:
    document["predicate"]["forgotten"] = []


def before_it_was_asked(document: dict[str, Any]) -> None:
    document["predicate"]["erasure"]["completed"] = "2001-01-01T00:00:00+00:00"


def another_loss(document: dict[str, Any]) -> None:
    document["predicate"]["training"]["loss"] = "NetworkLoss"


def not_a_number(document: dict[str, Any]) -> None:
    document["predicate"]["training"]["learning_rate"] = -1.0


@pytest.mark.parametrize(
    "change",
    [
        lowered_epsilon,
        lowered_power,
        smaller_factor,
        unlisted_noise,
        seeded_noise,
        called_exact,
        called_strict_in_words,
        report_as_certificate,
        nobody,
        before_it_was_asked,
        another_loss,
    ],
)
def test_a_signed_lie_that_contradicts_itself_is_found(change: Change, content: bytes, keys: dict[str, Path]) -> None:
    with pytest.raises(InconsistentCertificateError):
        checked(forged(content, keys, change), keys)


@pytest.mark.parametrize("place", [("predicate",), (), ("predicate", "noise"), ("predicate", "training")])
def test_a_field_too_many_is_refused(place: tuple[str, ...], content: bytes, keys: dict[str, Path]) -> None:
    def add(document: dict[str, Any]) -> None:
        for name in place:
            document = document[name]
        document["also"] = "true"

    with pytest.raises(NotACertificateError):
        checked(forged(content, keys, add), keys)
    with pytest.raises(NotACertificateError):
        checked(forged(content, keys, not_a_number), keys)


def test_a_signed_lie_about_the_history_is_found_with_the_history(
    history: tuple[History, int], content: bytes, keys: dict[str, Path]
) -> None:
    def other_log(document: dict[str, Any]) -> None:
        document["predicate"]["erasure"]["log"] = "0" * 64

    def other_model(document: dict[str, Any]) -> None:
        document["subject"][0]["digest"]["sha256"] = "1" * 64

    def other_head(document: dict[str, Any]) -> None:
        document["subject"][1]["digest"]["sha256"] = "2" * 64

    def other_request(document: dict[str, Any]) -> None:
        document["predicate"]["request"] = 999

    for change in (other_log, other_model, other_head, other_request):
        lie = forged(content, keys, change)
        checked(lie, keys)
        with pytest.raises(HistoryMismatchError):
            checked(lie, keys, history=history[0])
    with History.in_memory() as another:
        served(another, Sifu())
        with pytest.raises(HistoryMismatchError, match="another history"):
            checked(content, keys, history=another)


def test_another_model_is_found_with_the_model(
    history: tuple[History, int], content: bytes, keys: dict[str, Path], tmp_path: Path
) -> None:
    (outcome,) = history[0].outcomes()
    assert outcome.model_id is not None
    model = history[0].model(outcome.model_id)
    save({**model, "more": model["bias"]}, tmp_path / "more")
    save({name: tensor + 1e-9 for name, tensor in model.items()}, tmp_path / "other")
    (tmp_path / "none").write_bytes(b"no model")
    for name in ("more", "other", "none"):
        with pytest.raises(ModelMismatchError):
            checked(content, keys, model=tmp_path / name)


# Keys


def test_keys_are_private_and_refuse_what_is_not_safe(tmp_path: Path) -> None:
    public = create_key(tmp_path / "key", PASSPHRASE)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    assert b"ENCRYPTED" in (tmp_path / "key").read_bytes()
    for refused in (
        lambda: create_key(tmp_path / "key", PASSPHRASE),
        lambda: create_key(tmp_path / "other", "short"),
        lambda: load_signer(tmp_path / "key", "a wrong passphrase"),
        lambda: load_signer(public, PASSPHRASE),
        lambda: load_public_key(tmp_path / "key"),
    ):
        with pytest.raises(UnusableKeyError) as caught:
            refused()
        assert PASSPHRASE not in str(caught.value)
    (tmp_path / "key").chmod(0o644)
    with pytest.raises(UnusableKeyError, match="chmod 600"):
        load_signer(tmp_path / "key", PASSPHRASE)


def test_each_kind_of_failure_has_its_own_exit_code() -> None:
    kinds = CertificateError.__subclasses__()
    assert len({kind.exit_code for kind in kinds}) == len(kinds)


def test_the_published_schema_is_the_one_that_is_checked(content: bytes) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    published = json.loads((Path(__file__).parents[2] / "docs" / "certificate.schema.json").read_text())
    assert published == Statement.model_json_schema(by_alias=True)
    older = (Path(__file__).parent / "golden").glob("*/*.json")
    for signed in (content, *(path.read_bytes() for path in older)):
        jsonschema.validate(json.loads(base64.b64decode(json.loads(signed)["payload"])), published)


def test_what_nobody_would_read_is_not_signed(history: tuple[History, int], keys: dict[str, Path]) -> None:
    statement, own = build_statement(*history), load_signer(keys["operator"], PASSPHRASE)
    for clients, read in ((10_000, True), (30_000, False)):
        forgotten = tuple(f"{at:064x}" for at in range(clients))
        many = statement.predicate.model_copy(update={"forgotten": forgotten})
        large = statement.model_copy(update={"predicate": many})
        if read:
            assert checked(sign(large, [own]), keys).statement == large
        else:
            with pytest.raises(ValueError, match="split the request"):
                sign(large, [own])


def test_a_text_that_begins_with_a_mark_is_read(content: bytes, keys: dict[str, Path]) -> None:
    assert checked(b"\xef\xbb\xbf" + content, keys).statement == checked(content, keys).statement


@pytest.mark.parametrize(
    ("broken", "words"),
    [(b"", "empty"), (b" \n", "empty"), (b"\xb3\x00", "no text"), (b'{"payload": ', "cut off"), (b"[1", "cut off")],
)
def test_what_is_no_document_is_told_in_words(broken: bytes, words: str, keys: dict[str, Path]) -> None:
    with pytest.raises(NotACertificateError, match=words):
        checked(broken, keys)


def test_noise_that_does_not_suffice_is_noticed_while_the_numbers_are_there(
    keys: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with History.in_memory() as made:
        engine = everybody(30)
        federation = Revocable(made, engine)
        federation.train(Rounds(12))
        number = made.requests.ask(["clinic-3"], BUDGET)
        federation.forget(Last(), Rounds(1), level=ErasureLevel.OUTPUT)
        content = sign(build_statement(made, number), [load_signer(keys["operator"], PASSPHRASE)])
        assert checked(content, keys, history=made).unchecked == ("which model it is about: give the model's file",)
        untold = [line for line in checked(content, keys).unchecked if "noise is enough" in line]
        assert untold == ["that the noise is enough for what it hides: give the history"]
        bound = annexes.group_sensitivity
        monkeypatch.setattr(annexes, "group_sensitivity", lambda *values: 9 * bound(*values))
        with pytest.raises(InconsistentCertificateError, match="does not hide"):
            checked(content, keys, history=made)
