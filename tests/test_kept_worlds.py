"""Kept sums in two worlds: whoever left, and whatever its rows were, the model is the one without it, bit by bit."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks._kept_worlds import (
    BEGIN,
    CASES,
    CONNECT,
    EVENTS,
    LATE,
    LEAVER,
    RUN,
    Case,
    Clinics,
    Compared,
    Event,
    Setting,
    World,
    judge_wrong_sums,
)
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.core.facts import Mode
from tests.builders import KEY, SIGNER

SCRIPTS = st.lists(st.sampled_from(EVENTS), max_size=15).map(lambda events: [*BEGIN, *events])
ALIKE = Compared(pairs=2, different=0)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=SCRIPTS)
@example(script=LATE)
def test_the_model_is_the_one_without_whoever_left(script: list[Event]) -> None:
    assert not Case(script).compare().different


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(script=SCRIPTS)
@example(script=LATE)
def test_the_l2_term_is_the_one_without_whoever_left(script: list[Event]) -> None:
    assert not Case(script, Setting(choosing=True)).compare().different


@pytest.mark.parametrize("event", ["die asking", "die storing", "die recording", "die erasing"])
def test_a_server_that_dies_leaves_nothing_of_whoever_leaves(event: str) -> None:
    assert Case([*BEGIN, ("leave", LEAVER), (event, "cork"), ("rows", "cork")]).compare() == ALIKE


def test_a_backup_that_is_restored_is_without_whoever_left_once_its_request_is_recorded_again() -> None:
    gone = [*CONNECT, RUN, ("back up", ""), ("leave", LEAVER), RUN]
    script = [*gone, ("rows", "cork"), ("renew", "cork"), RUN, ("restore", ""), RUN]
    assert Case(script).compare() == ALIKE
    restored = World(Setting(), 1)
    assert restored.live(script)
    certificate = sign(build_statement(restored.history, 1), [SIGNER])
    verified = verify(certificate, [KEY], history=restored.history)
    assert verified.statement.predicate.mode == Mode.EXACT.value


def test_the_leaver_is_back_with_a_backup_until_its_request_is_recorded_again() -> None:
    world = World(Setting(), 1)
    for event, name in [*CONNECT, RUN, ("back up", ""), ("leave", LEAVER), RUN]:
        world.happen(event, name)
    assert LEAVER not in world.history.sums.digests()
    world.asked.clear()
    world.happen("restore", "")
    assert LEAVER in world.history.sums.digests()


@pytest.mark.parametrize("name", CASES)
def test_wrong_versions_are_caught(name: str) -> None:
    assert judge_wrong_sums(name)
    right = replace(CASES[name], clinics=Clinics, world=World, wrong=nullcontext)
    assert right.compare() == ALIKE


# Of those who stay nobody has sent sums: had the leaver never been there, nobody would be asked now.
ALONE = [("connect", LEAVER), RUN, ("connect", "bern"), ("leave", LEAVER), ("forget", ""), ("rows", "bern")]


def test_nobody_is_asked_because_the_only_one_left_whose_sums_are_kept() -> None:
    assert Case(ALONE).compare() == ALIKE
