"""Certificates of a history that has gone on since: they verify, and what is less today is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.errors import HistoryMismatchError, ModelMismatchError
from rescind.certificates.issue import build_statement, gather_claims
from rescind.certificates.models import find_unfounded, has_touched
from rescind.certificates.predicate import Predicate, Sha256, Statement
from rescind.certificates.verification import VerifiedCertificate, explain, verify
from rescind.checkpoints.tensors import save
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope, PublicHead
from rescind.engines.server import NoisedAverage
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.events import ErasureFinished, TrainingDoubted
from rescind.history.outcomes import find_outcomes, outcome_of
from rescind.ledger.commitments import NO_HEAD
from rescind.ledger.records import ErasureLevel
from rescind.methods import Last, Method, Scratch, Sifu, StrictSifu
from rescind.testing.small import simulation
from tests.builders import BUDGET, KEY, SIGNER, entries_of, everybody, rounds_of

HEAD = PublicHead(initial_norm=0.0, parameters=21, batch=15)


@pytest.fixture
def federation() -> Iterator[Revocable]:
    engine = everybody(30, public=HEAD, public_schedule=True)
    with History.in_memory() as history:
        made = Revocable(history, engine)
        made.train(Rounds(12))
        yield made


def forgotten(federation: Revocable, name: str, method: Method) -> int:
    number = federation.history.requests.ask([name], BUDGET)
    federation.forget(method, Rounds(2))
    return number


def certified(federation: Revocable, number: int) -> bytes:
    return sign(build_statement(federation.history, number), [SIGNER])


def checked(content: bytes, federation: Revocable) -> VerifiedCertificate:
    return verify(content, [KEY], history=federation.history)


def test_it_verifies_after_more_training_and_after_others_were_forgotten(federation: Revocable) -> None:
    number = forgotten(federation, "clinic-3", Sifu())
    content = certified(federation, number)
    federation.train(Rounds(5))
    (since,) = checked(content, federation).since
    assert since == "training went on from its model 1.2 to model 1.5, for which a certificate can be issued, too"
    forgotten(federation, "clinic-4", Sifu())
    federation.train(Rounds(5))
    found = checked(content, federation)
    assert found.statement.predicate.mode == "instance"
    (since,) = found.since
    assert "it is about an earlier model" in since
    assert not any("round was erased" in line for line in found.unchecked)


def test_a_strict_claim_that_is_an_instance_today_verifies_and_says_so(federation: Revocable) -> None:
    number = forgotten(federation, "clinic-3", StrictSifu())
    content = certified(federation, number)
    assert outcome_of(federation.history.timeline, number).mode.value == "strict"
    forgotten(federation, "clinic-4", Last())
    found = checked(content, federation)
    assert found.statement.predicate.mode == "strict"
    _, since = found.since
    assert "the claim is instance, not strict" in since
    assert since in " ".join(" ".join(explain(found)).split())
    assert checked(certified(federation, number), federation).statement.predicate.mode == "instance"


def test_behind_a_model_that_is_no_mean_an_old_certificate_verifies_and_says_so(federation: Revocable) -> None:
    number = forgotten(federation, "clinic-3", Scratch())
    content = certified(federation, number)
    forgotten(federation, "clinic-4", Scratch())
    with federation.history.recording(federation.engine.facts, federation.engine.start()) as recorder:
        recorder.record_other_mean()
    _, since = checked(content, federation).since
    assert "nothing is proven" in since
    today = checked(certified(federation, number), federation)
    assert today.since == ()
    assert today.statement.predicate.reasons


def test_what_a_later_restart_made_exact_is_claimed_of_its_own_model(federation: Revocable) -> None:
    """The first model has noise, and never becomes exact by what others do later."""
    number = forgotten(federation, "clinic-3", Sifu())
    content, (before,) = certified(federation, number), federation.history.outcomes()
    assert before.restart is not None
    assert before.restart.branch.sigma > 0
    forgotten(federation, "clinic-4", Scratch())
    assert checked(content, federation).statement.predicate.mode == "instance"
    today = checked(certified(federation, number), federation)
    assert (today.statement.predicate.mode, today.statement.predicate.noise) == ("exact", None)
    assert today.statement.subject[0].digest.sha256 == federation.history.outcomes()[-1].model != before.model


def test_a_restart_that_is_not_trained_to_its_end_changes_nothing_yet(federation: Revocable) -> None:
    number = forgotten(federation, "clinic-3", Sifu())
    before = build_statement(federation.history, number)
    federation.history.requests.ask(["clinic-4"], BUDGET)

    class DiesError(Exception):
        pass

    def die(*_: object) -> None:
        raise DiesError

    with pytest.raises(DiesError):
        Revocable(federation.history, federation.engine, watch=die).forget(Scratch(), Rounds(2))
    now = build_statement(federation.history, number)
    assert now.subject[0] == before.subject[0]
    assert now.predicate == before.predicate
    assert now.subject[1] != before.subject[1]


def settled(federation: Revocable, scope: PrivacyScope = PrivacyScope.GROUP) -> int:
    """Let two leave: once the first is forgotten from the start, the newest model does not know the second."""
    federation.history.requests.ask(["clinic-3"], BUDGET)
    number = federation.history.requests.ask(["clinic-4"], BUDGET, scope=scope)
    federation.forget(Scratch(), Rounds(2))
    assert {each.asked.number for each in federation.history.outcomes() if each.restart is None} == {number}
    return number


def test_a_settled_request_verifies_after_more_rounds(federation: Revocable) -> None:
    number = settled(federation)
    first = certified(federation, number)
    federation.train(Rounds(5))
    second = certified(federation, number)
    federation.train(Rounds(7))
    models = [checked(each, federation).statement.subject[0] for each in (first, second)]
    assert models[0] != models[1]


def test_a_model_whose_round_was_erased_is_named_as_not_checked(federation: Revocable) -> None:
    number = settled(federation)
    federation.train(Rounds(5))
    content = certified(federation, number)
    assert not any("erased" in line for line in checked(content, federation).unchecked)
    forgotten(federation, "clinic-5", Scratch())
    found = checked(content, federation)
    assert any("that round was erased since" in line for line in found.unchecked)
    head = bytes.fromhex(found.statement.subject[1].digest.sha256)
    assert gather_claims(federation.history, number, head)[1] is None
    with pytest.raises(ValueError, match="was erased since"):
        build_statement(federation.history, number, head=head)


def test_another_model_or_head_is_still_found_after_more_rounds(federation: Revocable) -> None:
    number = settled(federation)
    found = build_statement(federation.history, number)
    federation.train(Rounds(5))
    later = build_statement(federation.history, number)
    asked = entries_of(federation.history, "request")[0]
    for model, head in (
        (later.subject[0].digest.sha256, found.subject[1].digest.sha256),
        (found.subject[0].digest.sha256, "0" * 64),
        (found.subject[0].digest.sha256, asked.head.hex()),
        (found.subject[0].digest.sha256, NO_HEAD.hex()),
    ):
        subjects = tuple(
            each.model_copy(update={"digest": Sha256(sha256=digest)})
            for each, digest in zip(found.subject, (model, head), strict=True)
        )
        lie = found.model_copy(update={"subject": subjects})
        verify(sign(lie, [SIGNER]), [KEY])
        with pytest.raises(HistoryMismatchError):
            checked(sign(lie, [SIGNER]), federation)


def test_every_head_since_it_was_served_gives_the_same_again(federation: Revocable) -> None:
    """Whatever the last entry was when it was signed, the same bytes come out of the history later."""
    number, history = forgotten(federation, "clinic-3", StrictSifu()), federation.history
    then: list[Statement] = [build_statement(history, number)]
    for go_on in (
        lambda: federation.train(Rounds(3)),
        lambda: history.requests.ask(["clinic-4"], BUDGET),
        lambda: federation.forget(Sifu(), Rounds(2)),
        lambda: forgotten(federation, "clinic-5", Scratch()),
    ):
        go_on()
        then.append(build_statement(history, number))
    for each in then:
        if each.predicate.model == "1.3":
            # Its round was erased since, and only the retrained models' digests are in the journal.
            continue
        assert build_statement(history, number, head=bytes.fromhex(each.subject[1].digest.sha256)) == each
    assert [each.predicate.model for each in then] == ["1.2", "1.3", "1.3", "2.2", "3.2"]
    follow = {"model", "mode", "title", "claim", "guarantee", "noise", "assumptions", "constants", "public"}
    fields = set(Predicate.model_fields) - follow
    assert all(getattr(each.predicate, name) == getattr(then[0].predicate, name) for each in then for name in fields)


def test_a_journal_can_be_read_as_it_was(federation: Revocable) -> None:
    forgotten(federation, "clinic-3", Scratch())
    timeline = federation.history.timeline
    before = next(entry.sequence for entry, _ in timeline.of(ErasureFinished)) - 1
    assert len(find_outcomes(timeline.until(timeline.last))) == 1
    assert find_outcomes(timeline.until(before)) == {}
    assert [entry.sequence for entry, _ in timeline.until(3).moments] == [1, 2, 3]
    assert timeline.until(3).requests == ()


def test_noise_in_every_round_hides_without_a_restarts_own() -> None:
    server = NoisedAverage(clip=0.5, denominator=30.0, noise_multiplier=8.0)
    engine = simulation(30, rate=1.0, secret_noise=True, public=server.facts, public_schedule=True)
    with History.in_memory() as history:
        federation = Revocable(history, engine, server=server)
        federation.train(Rounds(3))
        number = forgotten(federation, "clinic-3", StrictSifu())
        strict = checked(certified(federation, number), federation).statement.predicate
        forgotten(federation, "clinic-4", Scratch())
        weaker = checked(certified(federation, number), federation).statement.predicate
    assert (strict.mode, strict.noise, weaker.noise) == ("strict", None, None)
    assert weaker.mode in ("exact", "instance")
    assert strict.rounds is not None


def test_a_settled_request_speaks_of_its_own_clients_only(federation: Revocable) -> None:
    number = settled(federation, PrivacyScope.SEQUENCE)
    said = checked(certified(federation, number), federation).statement.predicate
    assert (said.mode, said.scope) == ("exact", "group")
    assert "served before" not in said.counterfactual


def test_an_erasure_that_goes_further_is_the_one_that_is_told(federation: Revocable) -> None:
    number = federation.history.requests.ask(["clinic-3"], BUDGET)
    federation.forget(Sifu(), Rounds(2), level=ErasureLevel.OUTPUT)
    before = certified(federation, number)
    assert checked(before, federation).statement.predicate.erasure.level == "output"
    federation.history.erase(federation.history.plan_erasure(ErasureLevel.PURGE))
    after = certified(federation, number)
    assert checked(after, federation).statement.predicate.erasure.level == "purge"
    assert checked(before, federation).statement.predicate.erasure.level == "output"


def saved(federation: Revocable, folder: Path) -> Path:
    save(federation.history.model(federation.history.newest), folder / "model.safetensors")
    return folder / "model.safetensors"


@pytest.mark.parametrize("method", [Sifu(), Scratch()])
def test_the_model_in_service_after_more_rounds_gets_its_own_certificate(
    federation: Revocable, tmp_path: Path, method: Method
) -> None:
    number = forgotten(federation, "clinic-3", method)
    earlier = certified(federation, number)
    federation.train(Rounds(4))
    served = saved(federation, tmp_path)
    content = certified(federation, number)
    assert verify(content, [KEY], model=served).statement.predicate.model == "1.4"
    verify(content, [KEY], model=served, history=federation.history)
    with pytest.raises(ModelMismatchError, match="if it was trained on from that one, the history shows it"):
        verify(earlier, [KEY], model=served)
    shown = verify(earlier, [KEY], model=served, history=federation.history)
    assert (
        "the model at hand is model 1.4, which was trained on without the forgotten from the one that it is about, "
        "model 1.2"
    ) in shown.holds


def test_a_model_from_a_later_restart_does_not_descend(federation: Revocable, tmp_path: Path) -> None:
    number = forgotten(federation, "clinic-3", Sifu())
    content = certified(federation, number)
    forgotten(federation, "clinic-4", Last())
    with pytest.raises(ModelMismatchError):
        verify(content, [KEY], model=saved(federation, tmp_path), history=federation.history)


def test_a_model_that_was_trained_on_under_doubt_does_not_pass_for_the_certified_one(
    federation: Revocable, tmp_path: Path
) -> None:
    number, history = forgotten(federation, "clinic-3", Sifu()), federation.history
    content = certified(federation, number)
    federation.train(Rounds(4))
    history.journal.record(TrainingDoubted(1, 3, "updates were too long"))
    with pytest.raises(ModelMismatchError):
        verify(content, [KEY], model=saved(federation, tmp_path), history=history)


def test_only_models_that_a_claim_is_about_are_certified(federation: Revocable) -> None:
    number, history = forgotten(federation, "clinic-3", Sifu()), federation.history
    federation.train(Rounds(4))
    chosen = build_statement(history, number, model_id=ModelId(1, 3))
    assert chosen.predicate.model == "1.3"
    assert chosen.subject[0].digest.sha256 == history.digest_of(ModelId(1, 3))
    for model_id in (ModelId(0, 3), ModelId(1, 1), ModelId(1, 5), ModelId(2, 0)):
        with pytest.raises(ValueError, match=r"is not among those that request 1 led to: model 1\.2 to model 1\.4"):
            build_statement(history, number, model_id=model_id)
    # Whoever signs something else is found out.
    for lie in ("1.2", "1.4", "1.5", "0.3"):
        predicate = chosen.predicate.model_copy(update={"model": lie})
        content = sign(chosen.model_copy(update={"predicate": predicate}), [SIGNER])
        with pytest.raises(HistoryMismatchError):
            checked(content, federation)


def test_a_forgotten_client_that_trains_behind_the_noise_is_found(federation: Revocable) -> None:
    """A server that lets the leaver train on after it was hidden; its certificate does not verify."""
    number, history = forgotten(federation, "clinic-3", Sifu()), federation.history
    (leaver,) = history.timeline.requests[0].request.group
    (present,) = [round_.participants for round_ in rounds_of(history, 1, 2, 2)]
    assert leaver not in present["client"]
    claim = outcome_of(history.timeline, number)
    assert has_touched(history, history.head, claim, ModelId(1, 2)) is False
    request = replace(claim.asked.request, group=frozenset({int(present["client"][0])}))
    other = replace(claim, asked=replace(claim.asked, request=request))
    assert has_touched(history, history.head, other, ModelId(1, 2)) is True
    assert list(find_unfounded(history.timeline, claim, True)) == [
        "clients of request 1 took part after the noise that hides them"
    ]


@pytest.mark.parametrize("scope", [PrivacyScope.GROUP, PrivacyScope.SEQUENCE])
def test_nothing_is_claimed_of_models_that_may_know_a_readmitted_client_again(
    federation: Revocable, tmp_path: Path, scope: PrivacyScope
) -> None:
    """In a sequence the next request hides the first one's client as well."""
    history = federation.history
    first = forgotten(federation, "clinic-3", Scratch())
    second = history.requests.ask(["clinic-4"], BUDGET, scope=scope)
    federation.forget(Scratch(), Rounds(2))
    limited = [first, second] if scope is PrivacyScope.SEQUENCE else [first]
    earlier = {number: certified(federation, number) for number in (first, second)}
    history.participants.readmit("clinic-3", "it signed a new contract")
    federation.train(Rounds(4))
    served = saved(federation, tmp_path)
    for number in (first, second):
        about = build_statement(history, number).predicate.model
        assert about == ("2.2" if number in limited else "2.4")
        checked(certified(federation, number), federation)
        if number in limited:
            with pytest.raises(ValueError, match=r"model 2\.4 is not among those"):
                build_statement(history, number, model_id=ModelId(2, 4))
            with pytest.raises(ModelMismatchError):
                verify(earlier[number], [KEY], model=served, history=history)
        else:
            verify(earlier[number], [KEY], model=served, history=history)
    # A later restart trains with it, too.
    forgotten(federation, "clinic-5", Scratch())
    assert build_statement(history, first).predicate.model == "2.2"
    assert any("was readmitted" in line for line in checked(earlier[first], federation).since)
