"""The history tells which models know somebody who was forgotten."""

from __future__ import annotations

import pytest

from rescind import Exact, History, Rounds, Scratch, Sifu
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.engines.server import NoisedAverage
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Dp, FineTuning
from rescind.testing.small import simulation
from rescind.views.models import find_known
from tests.builders import BUDGET


def federation(history: History, clients: int = 4) -> Revocable:
    return Revocable(history, simulation(clients, rate=1.0), seed=b"s")


def test_the_history_tells_which_models_know_somebody_who_was_forgotten() -> None:
    with History.in_memory() as history:
        few, all_ = federation(history, 3), federation(history, 4)
        few.train(Rounds(2))
        all_.train(Rounds(4))
        history.requests.ask(["clinic-3"], BUDGET)
        all_.forget(Exact(), Rounds(3), level=ErasureLevel.OUTPUT)
        assert history.timeline.branches[1].parent == ModelId(0, 2)
        # What was trained before it came is as good as ever, although it is old.
        assert [find_known(history, ModelId(0, round_)) for round_ in range(3)] == [(), (), ()]
        # Of rounds that are erased nobody can tell.
        assert find_known(history, ModelId(0, 4)) is None
        assert [find_known(history, ModelId(1, round_)) for round_ in range(4)] == [(), (), (), ()]
        history.requests.ask(["clinic-1"], BUDGET)
        assert find_known(history, ModelId(1, 3)) == ()
        all_.forget(Scratch(), Rounds(1), level=ErasureLevel.OUTPUT)
        assert find_known(history, history.newest) == ()
        assert find_known(history, ModelId(0, 1)) is None


@pytest.mark.parametrize("level", ErasureLevel)
def test_what_was_trained_behind_the_noise_knows_nobody(level: ErasureLevel) -> None:
    with History.in_memory() as history:
        whole = federation(history, 10)
        whole.train(Rounds(6))
        for client in ("clinic-1", "clinic-2"):
            before = history.newest
            history.requests.ask([client], Budget(50.0, 0.1))
            (outcome,) = whole.forget(Sifu(), Rounds(3), level=level)
            assert find_known(history, history.newest) == ()
            assert find_known(history, before) != ()
        assert outcome.restart is not None


def test_a_method_that_proves_nothing_has_its_model_all_the_same() -> None:
    with History.in_memory() as history:
        whole = federation(history)
        whole.train(Rounds(2))
        history.requests.ask(["clinic-1"], BUDGET)
        whole.forget(FineTuning(), Rounds(1), level=ErasureLevel.OUTPUT)
        assert find_known(history, history.newest) == ()
        assert find_known(history, ModelId(0, 2)) == (1,)


def test_where_every_round_is_noised_a_later_restart_may_go_back_further() -> None:
    server = NoisedAverage(clip=0.5, denominator=10.0, noise_multiplier=8.0)
    engine = simulation(10, rate=1.0, secret_noise=True, public=server.facts, public_schedule=True)
    with History.in_memory() as history:
        whole = Revocable(history, engine, server=server, scored=False)
        whole.train(Rounds(4))
        for client, epsilon in (("clinic-1", 8.0), ("clinic-2", 0.2)):
            history.requests.ask([client], Budget(epsilon, 0.01))
            (outcome,) = whole.forget(Dp(), Rounds(1), level=ErasureLevel.OUTPUT)
        # It goes back to where the first one still took part, and is hidden by fewer rounds' noise.
        assert outcome.restart is not None
        assert ModelId(0, 0) < (outcome.restart.branch.parent or ModelId(0, 0)) < ModelId(0, 4)
        assert [served.mode for served in history.outcomes()] == [Mode.STRICT, Mode.STRICT]
        assert find_known(history, history.newest) == ()
        assert find_known(history, ModelId(0, 1)) == (1, 2)


def test_a_model_that_never_was_is_known_to_nobody() -> None:
    with History.in_memory() as history:
        federation(history).train(Rounds(1))
        for never in (ModelId(0, 2), ModelId(0, 999_999_999), ModelId(7, 0)):
            assert find_known(history, never) is None
