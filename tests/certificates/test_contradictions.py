"""What a certificate shows to be impossible by itself is refused, even if all its texts follow from its facts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rescind import History, LocalTraining
from rescind.certificates.envelope import sign
from rescind.certificates.errors import HistoryMismatchError, InconsistentCertificateError
from rescind.certificates.issue import (
    build_guarantee,
    build_statement,
    describe_noised_rounds,
    describe_training,
    read_request,
)
from rescind.certificates.predicate import Noise, Statement
from rescind.certificates.verification import VerifiedCertificate, explain, verify
from rescind.certificates.wording import NOISE_SOURCE, format_exactly, write_texts
from rescind.core.calibration import Budget
from rescind.core.facts import Mode
from rescind.core.noise import GRID
from rescind.engines.server import NoisedAverage
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.outcomes import outcome_of
from rescind.ledger.records import ErasureLevel
from rescind.methods import Dp, Last, StrictSifu
from rescind.pages.certificate import render_certificate
from rescind.testing.small import TRAINING, simulation
from tests.builders import KEY, SIGNER, everybody

NOISED = NoisedAverage(clip=0.5, denominator=10.0, noise_multiplier=8.0)


def served(history: History, *, noised: bool) -> Statement:
    options: dict[str, Any] = {"public": NOISED.facts, "public_schedule": True} if noised else {}
    engine = everybody(10, **options)
    federation = Revocable(history, engine, **({"server": NOISED} if noised else {}))
    federation.train(Rounds(6))
    number = history.requests.ask(["clinic-1"], Budget(5.0, 1e-5))
    federation.forget(Dp() if noised else Last(), Rounds(2), level=ErasureLevel.OUTPUT)
    return build_statement(history, number)


@pytest.fixture(scope="module")
def instance() -> Iterator[tuple[History, Statement]]:
    with History.in_memory() as history:
        yield history, served(history, noised=False)


@pytest.fixture(scope="module")
def strict() -> Iterator[tuple[History, Statement]]:
    with History.in_memory() as history:
        yield history, served(history, noised=True)


def fitting(found: Statement, **changes: Any) -> Statement:
    """Alter a certificate so that every text and every other number follows from what is altered."""
    said = found.predicate.model_copy(update=changes)
    said = said.model_copy(update=write_texts(said))
    if said.guarantee is not None:
        proven = build_guarantee(read_request(said.guarantee), said.facts.parameters, said.noise, said.rounds)
        said = said.model_copy(update={"guarantee": proven})
    return found.model_copy(update={"predicate": said})


def checked(found: Statement, **options: Any) -> VerifiedCertificate:
    return verify(sign(found, [SIGNER]), [KEY], **options)


def test_float32_by_code_of_the_clients_own_proves_nothing(instance: tuple[History, Statement]) -> None:
    facts = instance[1].predicate.facts
    small = describe_training(LocalTraining(3, 1.0, TRAINING.loss, precision="float32"))
    declared = facts.sources.model_copy(update={"training": "declared by the operator"})
    executed = facts.sources.model_copy(update={"training": "executed by our helper"})
    for mode in ("instance", "strict"):
        checked(fitting(instance[1], mode=mode, training=small, facts=facts.model_copy(update={"sources": executed})))
        lie = fitting(instance[1], mode=mode, training=small, facts=facts.model_copy(update={"sources": declared}))
        with pytest.raises(InconsistentCertificateError, match="float32"):
            checked(lie)


def test_noise_hides_on_the_model_or_in_every_round_and_not_both(strict: tuple[History, Statement]) -> None:
    noise = Noise(sigma=1.0, grid=GRID, source=NOISE_SOURCE, earlier=0)
    with pytest.raises(InconsistentCertificateError, match="do not go together"):
        checked(fitting(strict[1], noise=noise))


def test_nothing_else_than_a_head_was_ever_solved(
    instance: tuple[History, Statement], strict: tuple[History, Statement]
) -> None:
    head, noised = (
        statement.predicate.facts.model_copy(update={"solved": True}) for _, statement in (instance, strict)
    )
    checked(fitting(instance[1], facts=head))
    lies = (
        fitting(strict[1], facts=noised),
        fitting(instance[1], facts=head, trained=("bias", "hidden", "weight")),
        fitting(instance[1], facts=head.model_copy(update={"equal_weights": True})),
    )
    for lie in lies:
        with pytest.raises(InconsistentCertificateError, match="the head was solved"):
            checked(lie)


@pytest.mark.parametrize(("rounds", "counted"), [(0, 6), (6, 0), (1, 5), (6, 7)])
def test_nobody_takes_part_more_often_than_there_were_rounds(
    rounds: int, counted: int, strict: tuple[History, Statement]
) -> None:
    wide = NOISED.sigma * 8
    checked(fitting(strict[1], rounds=describe_noised_rounds(wide, 0.5, 10.0, 6, 6)))
    with pytest.raises(InconsistentCertificateError, match="so often"):
        checked(fitting(strict[1], rounds=describe_noised_rounds(wide, 0.5, 10.0, rounds, counted)))


def test_in_a_sequence_others_count_too(strict: tuple[History, Statement]) -> None:
    checked(fitting(strict[1], scope="sequence", rounds=describe_noised_rounds(NOISED.sigma * 8, 0.5, 10.0, 6, 24)))
    with pytest.raises(InconsistentCertificateError, match="so often"):
        checked(
            fitting(strict[1], scope="sequence", rounds=describe_noised_rounds(NOISED.sigma * 8, 0.5, 10.0, 0, 6))
        )


@pytest.mark.parametrize(
    ("sampling", "sample", "possible"),
    [
        ("everybody", 0.3, False),
        ("poisson", None, False),
        ("poisson", 50.0, False),
        ("poisson", 1.0, True),
        ("fraction", None, False),
        ("fraction", 1.0, False),
        ("fraction", 0.5, True),
        ("fixed_size", None, False),
        ("fixed_size", 0.5, False),
        ("fixed_size", 2.5, False),
        ("fixed_size", 3.0, True),
    ],
)
def test_a_sample_fits_its_kind(
    sampling: str, sample: float | None, possible: bool, instance: tuple[History, Statement]
) -> None:
    facts = instance[1].predicate.facts.model_copy(update={"sampling": sampling, "sample": sample})
    other = fitting(instance[1], facts=facts)
    if possible:
        checked(other)
    else:
        with pytest.raises(InconsistentCertificateError, match="draw participants"):
            checked(other)


def test_something_was_trained_and_nothing_twice(instance: tuple[History, Statement]) -> None:
    names = instance[1].predicate.trained
    for trained in ((), names + names[:1]):
        with pytest.raises(InconsistentCertificateError, match="tensors"):
            checked(fitting(instance[1], trained=trained))


def test_nothing_is_due_before_it_is_asked_for(instance: tuple[History, Statement]) -> None:
    with pytest.raises(InconsistentCertificateError, match="before it was asked"):
        checked(fitting(instance[1], deadline="1999-01-01T00:00:00+00:00"))
    with pytest.raises(InconsistentCertificateError, match="never made earlier"):
        checked(fitting(instance[1], first_deadline="2999-01-01T00:00:00+00:00"))
    now = datetime.now(UTC)
    for deadline in (now - timedelta(days=1), (now + timedelta(days=1)).replace(tzinfo=None)):
        with pytest.raises(ValueError, match="give a later one"):
            instance[0].requests.ask(["clinic-2"], Budget(5.0, 1e-5), deadline=deadline)


def test_without_the_history_the_mode_and_the_dates_are_the_signers_word(
    instance: tuple[History, Statement],
) -> None:
    history, found = instance
    line = (
        "what it states of the request: names, run, number, model and dates; who asked, and whose key approved; "
        "who was forgotten, and what commits to their rows; mode and reasons; whose removal is hidden; epsilon, "
        "delta and releases: give the history"
    )
    assert any(each.startswith(line) for each in checked(found).unchecked)
    assert not any(each.startswith(line) for each in checked(found, history=history).unchecked)


def test_epsilon_and_delta_are_shown_in_all_their_digits(instance: tuple[History, Statement]) -> None:
    assert [format_exactly(value) for value in (8.0, 0.01, 1e-5, 1.0000004)] == ["8", "0.01", "1e-05", "1.0000004"]
    said = instance[1].predicate.guarantee
    assert said is not None
    asked = {"epsilon": 1.0000004, "delta": 1.00000001e-5}
    found = checked(fitting(instance[1], guarantee=said.model_copy(update=asked)))
    assert "  epsilon 1.0000004, delta 1.00000001e-05, for 1 release" in "\n".join(explain(found))
    assert "1.0000004, 1.00000001e-05" in render_certificate(found, "today")


def test_another_machines_last_digit_is_no_other_history(instance: tuple[History, Statement]) -> None:
    history, found = instance
    said = found.predicate.guarantee
    assert said is not None
    for factor, same in ((1 + 1e-15, True), (1 + 1e-6, False)):
        first = said.epsilons[0].model_copy(update={"epsilon": math.nextafter(said.epsilons[0].epsilon * factor, 99)})
        other = found.predicate.model_copy(
            update={"guarantee": said.model_copy(update={"epsilons": (first, *said.epsilons[1:])})}
        )
        lie = found.model_copy(update={"predicate": other})
        if same:
            checked(lie, history=history)
        else:
            with pytest.raises((InconsistentCertificateError, HistoryMismatchError)):
                checked(lie, history=history)


def test_whoever_took_part_in_no_round_before_the_restart_is_exact_in_dp_fedavg() -> None:
    """Two leave together, and training goes back to where only one of them had been."""
    for seed in range(20):
        engine = simulation(10, seed, rate=0.3, secret_noise=True, public=NOISED.facts, public_schedule=True)
        with History.in_memory() as history:
            federation = Revocable(history, engine, NOISED)
            federation.train(Rounds(12))
            names = sorted(history.participants.all())[:6]
            numbers = [history.requests.ask([name], Budget(0.7, 1e-5)) for name in names]
            federation.forget(StrictSifu(), Rounds(2), level=ErasureLevel.OUTPUT, together=True)
            served = {each.restart.branch for each in history.outcomes() if each.restart is not None}
            counted = {
                number: sum_
                for each in served
                for number, sum_ in zip(each.requests, each.participations, strict=True)
            }
            if {0} < set(counted.values()):
                modes = {number: outcome_of(history.timeline, number).mode for number in numbers if number in counted}
                assert {modes[number] for number, sum_ in counted.items() if sum_ == 0} == {Mode.EXACT}
                assert {modes[number] for number, sum_ in counted.items() if sum_ > 0} == {Mode.STRICT}
                for number in counted:
                    checked(build_statement(history, number), history=history)
                return
    pytest.fail("no federation had both")
