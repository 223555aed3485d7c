"""What a version of the wording said once it says for ever, and nothing passes for another version than its own."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope

from rescind import History
from rescind.certificates.envelope import PAYLOAD_TYPE, read_statement, sign
from rescind.certificates.errors import InconsistentCertificateError, NotACertificateError
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import (
    VERSION,
    NoisedRounds,
    Predicate,
    PublishedBody,
    RecordedFacts,
    RidgeLimits,
    Solving,
    Sources,
    Stages,
    Statement,
    Training,
)
from rescind.certificates.verification import VerifiedCertificate, explain, verify
from rescind.certificates.wording import say, write_texts
from rescind.core.facts import Mode, Sampling, Source
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.commitments import canonical
from rescind.methods import Scratch
from rescind.pages.certificate import render_certificate
from rescind.testing.small import simulation
from tests.builders import BUDGET, KEY, SIGNER, said
from tests.certificates.golden_statements import MODES, golden

# Of all texts of the cases below, by version. That of version 1 was computed by the code that knew no other.
TEXTS = {
    1: "44cffbd88ad0c2c3110e0cc01a2d57a7828d2355ce5abec5a6079c7d69e45010",
    2: "29f8db4b2592b5be838b802fc355a72c64266a2468cb4b3acc56e63a6bf5d90e",
}
OLDER = [(old, new) for old in TEXTS for new in TEXTS if old != new]
RIDGE = RidgeLimits(target_norm=1.0, most_rows=100, most_clients=10)
CHOICES = RIDGE.model_copy(update={"l2_choices": (0.1, 1.0)})
WORDS = [source.value for source in Source]
OPTIONS: dict[str, tuple[Any, ...]] = {
    "mode": ("exact", "strict", "instance", "heuristic"),
    "scope": ("individual", "group", "sequence", "records"),
    "sampling": tuple((each.name.lower(), 2.0) for each in Sampling),
    "loss": ("SoftmaxL2", "LogisticL2", "SquaredL2", "DeclaredLoss"),
    "ridge": (None, RIDGE, CHOICES),
    "gradient_bound": (None, 1.0),
    "head": (None, "SoftmaxL2", "SquaredL2"),
    "body": (None, 'the "client" network, ü', "x"),
    **dict.fromkeys(("solved", "equal_weights", "keeps_sums", "noise", "rounds", "solving", "frozen"), (False, True)),
    **dict.fromkeys(Sources.model_fields, tuple(WORDS)),
}
CASES = 2000


def chosen(number: int) -> dict[str, Any]:
    """Return the options of a case: the same in every version of Python."""
    return {
        name: options[hashlib.sha256(f"{number} {name}".encode()).digest()[0] % len(options)]
        for name, options in OPTIONS.items()
    }


def stated(case: dict[str, Any], version: int) -> Predicate:
    """Return what a certificate states that its texts follow from, whether or not that can be."""
    stages = case["head"] and Stages.model_construct(loss=case["head"], ridge=case["ridge"])
    facts = RecordedFacts.model_construct(
        sampling=case["sampling"][0],
        sample=None if case["sampling"][0] == "everybody" else case["sampling"][1],
        equal_weights=case["equal_weights"],
        solved=case["solved"],
        stages=stages,
        sources=Sources.model_construct(**{name: say(version, case[name]) for name in Sources.model_fields}),
        body=case["body"] and PublishedBody(name=case["body"], digest="5" * 64),
        keeps_sums=case["keeps_sums"] or None,
    )
    return Predicate.model_construct(
        version=version,
        mode=case["mode"],
        scope=case["scope"],
        facts=facts,
        frozen="7" * 64 if case["frozen"] else None,
        noise=case["noise"],
        rounds=NoisedRounds.model_construct() if case["rounds"] else None,
        solving=Solving.model_construct() if case["solving"] else None,
        training=Training.model_construct(
            loss=case["loss"], ridge=case["ridge"], gradient_bound=case["gradient_bound"]
        ),
    )


def texts(version: int) -> Iterator[dict[str, Any]]:
    """Return the texts of every case."""
    for number in range(CASES):
        found = write_texts(stated(chosen(number), version))
        yield found | {"assumptions": [each.model_dump() for each in found["assumptions"]]}


def fingerprint(version: int) -> str:
    return hashlib.sha256(canonical(list(texts(version)))).hexdigest()


@pytest.mark.parametrize("version", TEXTS)
def test_a_version_says_what_it_always_said(version: int) -> None:
    # Another text needs a version of its own: what was signed has to verify for ever.
    assert fingerprint(version) == TEXTS[version]
    assert max(TEXTS) == VERSION


# Nothing passes for what it is not


def checked(document: dict[str, Any]) -> VerifiedCertificate:
    """Sign a document, whatever it is, and verify it."""
    envelope = Envelope(canonical(document), PAYLOAD_TYPE, {})
    envelope.sign(SIGNER)
    return verify(json.dumps(envelope.to_dict()).encode(), [KEY])


def document_of(mode: Mode, version: int) -> dict[str, Any]:
    return dict(json.loads(golden(mode, version).payload()))


def labelled(document: dict[str, Any], kind: int, version: Any) -> dict[str, Any]:
    """Return the document under other labels: its type's number, and the version within."""
    found = copy.deepcopy(document)
    found["predicateType"] = f"{found['predicateType'][:-1]}{kind}"
    found["predicate"]["version"] = version
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("own", "other"), OLDER)
def test_another_label_is_refused(own: int, other: int, mode: Mode) -> None:
    document = document_of(mode, own)
    checked(labelled(document, own, own))
    for kind, version, words in ((other, other, "not what follows"), (own, other, "type"), (other, own, "type")):
        with pytest.raises(InconsistentCertificateError, match=words):
            checked(labelled(document, kind, version))


@pytest.mark.parametrize("odd", [0, 3, -1, "2", 2.0, True, None, [2], 2**70])
def test_a_version_that_is_none_is_refused(odd: object) -> None:
    for own in TEXTS:
        document = document_of(Mode.EXACT, own)
        with pytest.raises(NotACertificateError):
            checked(labelled(document, own, odd))
        with pytest.raises(NotACertificateError):
            checked(labelled(document, 3, own))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("own", "other"), OLDER)
def test_no_text_of_another_version_fits_in(own: int, other: int, mode: Mode) -> None:
    document, foreign = document_of(mode, own), document_of(mode, other)["predicate"]
    differ = [name for name in write_texts(golden(mode).predicate) if document["predicate"][name] != foreign[name]]
    assert differ
    for count in range(1, len(differ) + 1):
        for names in combinations(differ, count):
            for label in TEXTS:
                mixed = labelled(document, label, label)
                mixed["predicate"] |= {name: foreign[name] for name in names}
                if count < len(differ) or label == own:
                    with pytest.raises(InconsistentCertificateError, match="not what follows"):
                        checked(mixed)
                else:
                    # Every text is the other version's, and so are the labels: it is one of that version.
                    checked(mixed)
    lists = [name for name in differ if isinstance(foreign[name], list)]
    for name in lists:
        for at, line in enumerate(foreign[name]):
            mixed = copy.deepcopy(document)
            if mixed["predicate"][name][at] == line:
                continue
            mixed["predicate"][name][at] = line
            with pytest.raises(InconsistentCertificateError, match="not what follows"):
                checked(mixed)


@pytest.mark.parametrize(("own", "other"), OLDER)
def test_the_words_for_a_participant_are_the_versions_own(own: int, other: int) -> None:
    def asked(found: Statement, version: int) -> Statement:
        by = say(version, "the client's own key")
        changes = {"asked_by": by, "signed_request": "5" * 64, "forgotten": ("c" * 64,)}
        return found.model_copy(update={"predicate": found.predicate.model_copy(update=changes)})

    def identified(found: Statement, version: int) -> Statement:
        sources = found.predicate.facts.sources.model_copy(
            update={"identity": say(version, "reported by the client")}
        )
        facts = found.predicate.facts.model_copy(update={"sources": sources})
        predicate = found.predicate.model_copy(update={"facts": facts})
        return found.model_copy(update={"predicate": predicate.model_copy(update=write_texts(predicate))})

    changes: tuple[Callable[[Statement, int], Statement], ...] = (asked, identified)
    for change in changes:
        right, wrong = (change(golden(Mode.EXACT, own), version) for version in (own, other))
        verify(sign(right, [SIGNER]), [KEY])
        with pytest.raises(InconsistentCertificateError, match=f"and version {own} does not"):
            verify(sign(wrong, [SIGNER]), [KEY])


@pytest.mark.parametrize("version", TEXTS)
@pytest.mark.parametrize("field", ["wording", "predicateType", "Version", "texts"])
def test_one_field_more_is_refused(version: int, field: str) -> None:
    document = document_of(Mode.EXACT, version)
    for part in (document["predicate"], document["predicate"]["facts"], document["predicate"]["assumptions"][0]):
        part[field] = version
        with pytest.raises(NotACertificateError):
            checked(document)
        del part[field]
    checked(document)


# Both are read and shown


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", TEXTS)
def test_a_version_is_shown_in_its_own_words(version: int, mode: Mode) -> None:
    found = checked(document_of(mode, version))
    predicate = found.statement.predicate
    told = " ".join(" ".join(explain(found)).split())
    assert all(line.what in told for line in predicate.assumptions)
    assert all(line in told for line in (predicate.claim, *predicate.constants, *predicate.public))
    # Whom it is about is explained in both.
    word = "client: a participant" if version == 1 else "participant: an organisation, a person or a device"
    assert word in render_certificate(found, "today")


def test_version_2_never_says_client() -> None:
    for case in texts(2):
        assert "client" not in str(case).replace('the \\\\"client\\\\" network', "")


def test_what_is_issued_is_of_the_newest_version_and_an_older_one_is_signed_once_more_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    for name in ("first", "second"):
        said("key", "new", tmp_path / name)
    with History(tmp_path / "history") as history:
        federation = Revocable(history, simulation(4, rate=1.0), seed=b"s")
        federation.train(Rounds(2))
        number = history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Scratch(), Rounds(1))
        old = build_statement(history, number, version=1)
        for version in TEXTS:
            verify(sign(build_statement(history, number, version=version), [SIGNER]), [KEY], history=history)
    written = tmp_path / "certificate.json"
    written.write_bytes(sign(old, [SIGNER]))
    command = ("certify", tmp_path / "history", number, "-o", written, "--annex", tmp_path / "annex.json")
    for name in ("first", "second"):
        result = said(*command, "--key", tmp_path / name)
        assert result.exit_code == 0, result.output
    assert read_statement(Statement, written.read_bytes()) == old
    assert len(json.loads(written.read_bytes())["signatures"]) == 3
    fresh = tmp_path / "fresh.json"
    assert said("certify", tmp_path / "history", number, "-o", fresh, "--key", tmp_path / "first").exit_code == 0
    assert read_statement(Statement, fresh.read_bytes()).predicate.version == VERSION
