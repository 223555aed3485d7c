"""What may be claimed of a request is decided once: log, registry, report and certificate say the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rescind import Budget
from rescind.certificates.issue import gather_claims
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.engines.stops import Rounds
from rescind.flower.server.run import _tell
from rescind.forgetting import Revocable
from rescind.history.history import History
from rescind.history.outcomes import find_outcomes
from rescind.ledger.records import ErasureLevel
from rescind.methods import Exact, FineTuning, Last, Method, Scratch, Sifu
from rescind.mlflow import _find_mode
from rescind.pages.requests import find_served
from rescind.testing.methods import CutOffError, die_after
from rescind.testing.small import simulation

BUDGET = Budget(5.0, 1e-3)
METHODS: tuple[Method, ...] = (Exact(), FineTuning(), Last(), Scratch(), Sifu())


def check_all_say_the_same(history: History, caplog: pytest.LogCaptureFixture | None = None) -> None:
    decided = {number: outcome.mode for number, outcome in find_outcomes(history.timeline).items()}
    assert {number: Mode(gather_claims(history, number, history.head)[0].mode) for number in decided} == decided
    assert {each.outcome.asked.number: Mode(each.predicate.mode) for each in find_served(history, ())} == decided
    assert _find_mode(history) == (max(decided.values(), key=list(Mode).index).value if decided else "")
    if caplog is not None:
        for outcome in history.outcomes():
            caplog.clear()
            _tell(outcome, keys=False)
            assert f"({outcome.mode.value})" in caplog.text or outcome.restart is None


def forget(revocable: Revocable, method: Method, level: ErasureLevel, dies: ModelId | None) -> None:
    try:
        replace(revocable, watch=die_after(dies) if dies else revocable.watch).forget(method, Rounds(2), level=level)
    except CutOffError:
        check_all_say_the_same(revocable.history)
        revocable.forget(method, Rounds(2), level=level)


@settings(deadline=None, max_examples=8)
@given(
    leaves=st.lists(
        st.tuples(
            st.sampled_from(METHODS),
            st.lists(st.integers(0, 7), min_size=1, max_size=2, unique=True),
            st.sampled_from(ErasureLevel),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_every_reader_has_the_same_verdict(
    leaves: Sequence[tuple[Method, list[int], ErasureLevel, bool, bool]],
) -> None:
    with History.in_memory() as history:
        revocable = Revocable(history, simulation(clients=8, secret_noise=True), scored=False)
        revocable.train(Rounds(3))
        for method, clients, level, dies, returns in leaves:
            known = history.participants.all()
            names = history.participants.remaining(
                [name for client in clients if (name := f"clinic-{client}") in known]
            )
            if not names:
                continue
            for name in names:
                history.requests.ask([name], BUDGET)
            forget(revocable, method, level, ModelId(history.newest.branch + 1, 1) if dies else None)
            check_all_say_the_same(history)
            exact = all(outcome.mode is Mode.EXACT for outcome in history.outcomes())
            if returns and exact:
                for name in names:
                    history.participants.readmit(name, "it asked to come back")
                revocable.train(Rounds(history.newest.round + 1))
                check_all_say_the_same(history)


def test_while_a_restart_is_under_way_the_last_finished_one_counts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="flwr")
    with History.in_memory() as history:
        revocable = Revocable(history, simulation(clients=8, secret_noise=True), scored=False)
        revocable.train(Rounds(3))
        history.requests.ask(["clinic-1"], BUDGET)
        revocable.forget(Last(), Rounds(2))
        (before,) = history.outcomes()
        history.requests.ask(["clinic-2"], BUDGET)
        with pytest.raises(CutOffError):
            replace(revocable, watch=die_after(ModelId(2, 1))).forget(FineTuning(), Rounds(2))
        assert history.newest == ModelId(2, 1)
        assert history.outcomes() == [before]
        check_all_say_the_same(history, caplog)
        revocable.forget(FineTuning(), Rounds(2))
        check_all_say_the_same(history, caplog)
