"""The operator's annex: what a certificate may not tell, and whether it fits the certificate."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from securesystemslib.signer import CryptoSigner

from rescind import History
from rescind.certificates.annex import Annex, build_annex, check_annex, is_same_annex
from rescind.certificates.envelope import PAYLOAD_TYPE, sign
from rescind.certificates.errors import AnnexMismatchError, NotACertificateError
from rescind.certificates.issue import build_statement, deletion_digest
from rescind.certificates.predicate import Sha256, Statement
from rescind.certificates.verification import verify
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope, PublicHead
from rescind.core.sensitivity import group_sensitivity
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.codec import decode
from rescind.ledger.commitments import canonical
from rescind.ledger.records import ErasureLevel, ErasurePlan
from rescind.methods import FineTuning, Method, Scratch, Sifu, StrictSifu
from tests.builders import BUDGET, KEY, SIGNER, everybody

STRANGER = CryptoSigner.generate_ed25519()
HEAD = PublicHead(initial_norm=0.0, parameters=21, batch=15)
Change = Callable[[dict[str, Any]], None]


def served(
    history: History,
    method: Method,
    level: ErasureLevel = ErasureLevel.OUTPUT,
    scope: PrivacyScope = PrivacyScope.GROUP,
    **facts: Any,
) -> list[tuple[Statement, Annex]]:
    """Let two leave one after the other, and give the certificate and the annex of each."""
    engine = everybody(30, **facts)
    federation = Revocable(history, engine)
    federation.train(Rounds(12))
    found = []
    for names in (["clinic-3", "clinic-4"], ["clinic-5"]):
        number = history.requests.ask(names, BUDGET, scope=scope)
        federation.forget(method, Rounds(2), level=level)
        certificate = build_statement(history, number)
        found.append((certificate, build_annex(history, certificate)))
    return found


@pytest.fixture(scope="module")
def issued() -> Iterator[tuple[History, Statement, Annex]]:
    with History.in_memory() as history:
        yield history, *served(history, Sifu())[0]


def checked(certificate: Statement, content: bytes) -> None:
    verify(sign(certificate, [SIGNER]), [KEY], annex=content)


def test_it_tells_where_training_restarted_and_how_much_was_hidden(
    issued: tuple[History, Statement, Annex],
) -> None:
    history, certificate, found = issued
    outcome, _ = history.outcomes()
    assert outcome.restart is not None
    assert outcome.restart.branch.parent is not None
    assert outcome.restart is not None
    told = found.predicate.restart
    assert told is not None
    assert ModelId(told.of_branch, told.round) == outcome.restart.branch.parent
    assert (told.rounds, told.method) == (2, str(Sifu()))
    path = history.lineage(outcome.restart.branch.parent)
    own = outcome.asked.request.group
    assert len(own) == 2
    assert told.hidden is not None
    assert told.hidden.sensitivity == pytest.approx(group_sensitivity(path.edges, own)[-1], rel=1e-12)
    assert 0 < told.hidden.mu == told.hidden.sensitivity / told.sigma <= outcome.asked.request.mu
    assert certificate.predicate.noise is not None
    assert told.sigma == certificate.predicate.noise.sigma
    checked(certificate, sign(found, [SIGNER]))


def test_its_deletion_log_is_the_one_that_the_certificate_commits_to(
    issued: tuple[History, Statement, Annex],
) -> None:
    history, certificate, found = issued
    told = found.predicate
    digest = hashlib.sha256(bytes.fromhex(told.salt) + told.log.encode()).hexdigest()
    assert digest == certificate.predicate.erasure.log
    assert decode(ErasurePlan, json.loads(told.log)) == history.outcomes()[0].erasure


@pytest.mark.parametrize(
    ("scope", "jointly"),
    [
        (PrivacyScope.INDIVIDUAL, [["clinic-3"], ["clinic-4"]]),
        (PrivacyScope.GROUP, [["clinic-3", "clinic-4"]]),
        (PrivacyScope.SEQUENCE, [["clinic-3", "clinic-4"]]),
    ],
)
def test_each_scope_has_its_own_groups_to_hide(scope: PrivacyScope, jointly: list[list[str]]) -> None:
    with History.in_memory() as history:
        (first, own), (second, later) = served(history, Sifu(), scope=scope)
        clients = {f"clinic-{number}": number + 1 for number in range(30)}
        known = history.outcomes()
        assert known[0].asked.request.group == {clients["clinic-3"], clients["clinic-4"]}
        everybody = ["clinic-3", "clinic-4", "clinic-5"]
        both = [["clinic-5"], *([everybody] if scope is PrivacyScope.SEQUENCE else [])]
        for certificate, found, groups in ((first, own, jointly), (second, later, both)):
            checked(certificate, sign(found, [SIGNER]))
            told = found.predicate.restart
            assert told is not None
            assert told.hidden is not None
            edges = history.lineage(ModelId(told.of_branch, told.round)).edges
            expected = [group_sensitivity(edges, [clients[name] for name in group])[-1] for group in groups]
            assert told.hidden.sensitivity == pytest.approx(max(expected), rel=1e-12)


def test_a_strict_noise_is_measured_by_the_bound_that_chose_it() -> None:
    with History.in_memory() as history:
        (certificate, found), _ = served(history, StrictSifu(), public=HEAD, public_schedule=True)
        assert certificate.predicate.mode == "strict"
        assert found.predicate.restart is not None
        assert found.predicate.restart.hidden is not None
        checked(certificate, sign(found, [SIGNER]))


def test_after_a_purge_it_says_that_the_numbers_are_gone() -> None:
    with History.in_memory() as history:
        for certificate, found in served(history, Sifu(), ErasureLevel.PURGE):
            assert certificate.predicate.noise is not None
            told = found.predicate.restart
            assert told is not None
            assert told.hidden is None
            assert told.unknown is not None
            assert "erased" in told.unknown
            checked(certificate, sign(found, [SIGNER]))


@pytest.mark.parametrize("method", [Scratch(), FineTuning()])
def test_without_noise_there_is_nothing_that_it_hides(method: Method) -> None:
    with History.in_memory() as history:
        for certificate, found in served(history, method):
            assert found.predicate.restart is not None
            assert found.predicate.restart.hidden is None
            checked(certificate, sign(found, [SIGNER]))


def test_a_settled_request_has_a_log_and_no_restart() -> None:
    with History.in_memory() as history:
        engine = everybody(10)
        federation = Revocable(history, engine)
        federation.train(Rounds(3))
        numbers = [history.requests.ask([name], BUDGET) for name in ("clinic-3", "clinic-4")]
        federation.forget(Scratch(), Rounds(2))
        certificate = build_statement(history, numbers[1])
        found = build_annex(history, certificate)
        assert found.predicate.restart is None
        checked(certificate, sign(found, [SIGNER]))


# What does not fit


def other_certificate(document: dict[str, Any]) -> None:
    document["subject"][0]["digest"]["sha256"] = "0" * 64


def other_request(document: dict[str, Any]) -> None:
    document["predicate"]["request"] += 1


def other_title(document: dict[str, Any]) -> None:
    document["predicate"]["title"] = "Certificate of forgetting"


def other_log(document: dict[str, Any]) -> None:
    document["predicate"]["log"] = document["predicate"]["log"].replace("OUTPUT", "PURGE")


def other_salt(document: dict[str, Any]) -> None:
    document["predicate"]["salt"] = "0" * 64


def other_noise(document: dict[str, Any]) -> None:
    restart = document["predicate"]["restart"]
    restart["sigma"] *= 2
    restart["hidden"]["mu"] /= 2


def no_restart(document: dict[str, Any]) -> None:
    document["predicate"]["restart"] = None


def other_mu(document: dict[str, Any]) -> None:
    document["predicate"]["restart"]["hidden"]["mu"] *= 0.9


def too_much_to_hide(document: dict[str, Any]) -> None:
    hidden = document["predicate"]["restart"]["hidden"]
    hidden["mu"] *= 100
    hidden["sensitivity"] *= 100


def no_reason(document: dict[str, Any]) -> None:
    document["predicate"]["restart"]["hidden"] = None


def enveloped(payload: bytes) -> bytes:
    pae = b"DSSEv1 %d %b %d %b" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)
    signature = {"keyid": KEY.keyid, "sig": base64.b64encode(bytes.fromhex(SIGNER.sign(pae).signature)).decode()}
    document = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [signature],
    }
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "change",
    [
        other_certificate,
        other_request,
        other_title,
        other_log,
        other_salt,
        other_noise,
        no_restart,
        other_mu,
        too_much_to_hide,
        no_reason,
    ],
)
def test_a_signed_annex_that_does_not_fit_is_refused(
    change: Change, issued: tuple[History, Statement, Annex]
) -> None:
    _, certificate, found = issued
    document = json.loads(found.payload())
    checked(certificate, enveloped(canonical(document)))
    change(document)
    with pytest.raises(AnnexMismatchError):
        checked(certificate, enveloped(canonical(document)))


def test_hiding_by_noise_that_the_certificate_does_not_have_is_refused(
    issued: tuple[History, Statement, Annex],
) -> None:
    _, certificate, found = issued
    noiseless = certificate.model_copy(
        update={
            "predicate": certificate.predicate.model_copy(update={"mode": "exact", "noise": None, "guarantee": None})
        }
    )
    subject = found.subject[0].model_copy(
        update={
            "digest": certificate.subject[0].digest.model_copy(
                update={"sha256": hashlib.sha256(noiseless.payload()).hexdigest()}
            )
        }
    )
    with pytest.raises(AnnexMismatchError, match="the certificate has none"):
        check_annex(found.model_copy(update={"subject": (subject,)}), noiseless)


@pytest.mark.parametrize(
    "lie",
    [
        lambda log: log.replace('"name":"OUTPUT"', '"name":"PURGE"'),
        lambda log: changed(log, "requests", [1000]),
        lambda log: changed(log, "clients", [4]),
        lambda log: changed(log, "stays", []),
        lambda log: changed(log, "clients", 4),
        lambda log: changed(log, "level", "output"),
        lambda _: "[" * 100_000,
        lambda log: " " + log,
        lambda log: '{"stays":["nothing"],' + log[1:],
        lambda _: "nothing was erased",
    ],
)
def test_a_log_that_contradicts_its_certificate_is_refused_although_both_are_signed(
    lie: Callable[[str], str], issued: tuple[History, Statement, Annex]
) -> None:
    _, certificate, found = issued
    log = lie(found.predicate.log)
    assert log != found.predicate.log
    erasure = certificate.predicate.erasure.model_copy(
        update={"log": deletion_digest(bytes.fromhex(found.predicate.salt), log.encode())}
    )
    lying = certificate.model_copy(
        update={"predicate": certificate.predicate.model_copy(update={"erasure": erasure})}
    )
    digest = Sha256(sha256=hashlib.sha256(lying.payload()).hexdigest())
    told = found.model_copy(
        update={
            "subject": (found.subject[0].model_copy(update={"digest": digest}),),
            "predicate": found.predicate.model_copy(update={"log": log}),
        }
    )
    with pytest.raises(AnnexMismatchError, match="deletion log"):
        checked(lying, sign(told, [SIGNER]))


def changed(log: str, name: str, value: object) -> str:
    return canonical(json.loads(log) | {name: value}).decode()


def test_it_is_read_as_strictly_as_a_certificate(issued: tuple[History, Statement, Annex]) -> None:
    _, certificate, found = issued
    document = json.loads(found.payload())
    document["predicate"]["also"] = 1
    for content in (
        b"{}",
        enveloped(canonical(document)),
        enveloped(json.dumps(json.loads(found.payload()), indent=1).encode()),
        sign(certificate, [SIGNER]),
    ):
        with pytest.raises(AnnexMismatchError, match="cannot be used"):
            checked(certificate, content)
    with pytest.raises(NotACertificateError):
        verify(sign(found, [SIGNER]), [KEY])
    with pytest.raises(AnnexMismatchError, match="have to have signed an annex"):
        checked(certificate, sign(found, [STRANGER]))


def test_with_the_history_at_hand_it_has_to_say_what_the_history_says(
    issued: tuple[History, Statement, Annex],
) -> None:
    history, certificate, found = issued
    content = sign(certificate, [SIGNER])
    verify(content, [KEY], history=history, annex=sign(found, [SIGNER]))
    document = json.loads(found.payload())
    document["predicate"]["restart"]["method"] = "another one"
    with pytest.raises(AnnexMismatchError, match="the history says something else"):
        verify(content, [KEY], history=history, annex=enveloped(canonical(document)))


def test_it_still_agrees_once_the_numbers_behind_it_are_erased() -> None:
    with History.in_memory() as history:
        certificate, before = served(history, Sifu())[0]
        history.erase(history.plan_erasure(ErasureLevel.PURGE))
        after = build_annex(history, certificate)
        assert before.predicate.restart is not None
        assert before.predicate.restart.hidden is not None
        assert before != after
        assert is_same_annex(before, after)
        assert not is_same_annex(after, before)


def test_one_of_several_releases_may_show_only_its_part() -> None:
    with History.in_memory() as history:
        certificate, found = served(history, Sifu())[0]
    restart = found.predicate.restart
    assert restart is not None
    assert restart.hidden is not None
    guarantee = certificate.predicate.guarantee
    assert guarantee is not None
    # As if the same mu had to cover so many releases that this one is too much.
    many = guarantee.model_copy(update={"releases": int((guarantee.mu / restart.hidden.mu) ** 2) + 1})
    other = certificate.model_copy(update={"predicate": certificate.predicate.model_copy(update={"guarantee": many})})
    digest = Sha256(sha256=hashlib.sha256(other.payload()).hexdigest())
    moved = found.model_copy(update={"subject": (found.subject[0].model_copy(update={"digest": digest}),)})
    with pytest.raises(AnnexMismatchError, match="more than the certificate allows"):
        check_annex(moved, other)
