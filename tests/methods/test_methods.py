"""Every method: the contract, and where its numbers come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant

from rescind import History
from rescind.core.calibration import reached_epsilon
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, PublicHead
from rescind.core.noise import public_sigma
from rescind.core.planning import strict_candidates
from rescind.core.sensitivity import client_sensitivities
from rescind.core.strict import release_mu
from rescind.core.summary import Request
from rescind.engines.server import NoisedAverage
from rescind.engines.stops import Accuracy, Rounds
from rescind.forgetting import Revocable
from rescind.methods import (
    Dp,
    Exact,
    FineTuning,
    Last,
    Method,
    PaperSifu,
    Scratch,
    Sifu,
    StrictSifu,
)
from rescind.testing.methods import BUDGET, MethodConformance, pick_names
from rescind.testing.small import TRAINING, simulation

SEED = b"noise for tests"
NOISED = NoisedAverage(clip=0.5, denominator=7.0, noise_multiplier=2.0, seed=SEED)


def plain(history: History) -> Revocable:
    return Revocable(history, simulation(), seed=SEED)


def noised(history: History) -> Revocable:
    engine = simulation(training=replace(TRAINING, clips_updates=True), public=NOISED.facts, public_schedule=True)
    return Revocable(history, engine, server=NOISED, seed=SEED)


@pytest.mark.parametrize(
    "method",
    [Sifu(), PaperSifu(public_sigma(0.05)), Scratch(), Exact(), Last(), FineTuning()],
)
class TestMethods(MethodConformance):
    @pytest.fixture
    def make_revocable(self) -> Callable[[History], Revocable]:
        return plain


class TestStrict(MethodConformance):
    @pytest.fixture
    def method(self) -> Method:
        return StrictSifu()

    @pytest.fixture
    def make_revocable(self) -> Callable[[History], Revocable]:
        public = PublicHead(initial_norm=0.0, parameters=21, batch=15)
        return lambda history: Revocable(history, simulation(public=public, public_schedule=True), seed=SEED)


class TestDp(MethodConformance):
    @pytest.fixture
    def method(self) -> Method:
        return Dp()

    @pytest.fixture
    def make_revocable(self) -> Callable[[History], Revocable]:
        return noised


def test_what_may_be_claimed_follows_from_the_noise_and_not_from_the_method() -> None:
    expected = {
        Sifu(): {Mode.INSTANCE, Mode.EXACT},
        PaperSifu(public_sigma(4.0)): {Mode.INSTANCE},
        Scratch(): {Mode.EXACT},
        Last(): {Mode.INSTANCE},
        FineTuning(): {Mode.HEURISTIC},
    }
    for method, modes in expected.items():
        with History.in_memory() as history:
            revocable = Revocable(history, simulation(secret_noise=True))
            revocable.train(Rounds(8))
            history.requests.ask(pick_names(revocable, 0), BUDGET)
            (outcome,) = revocable.forget(method, Rounds(2))
            assert outcome.mode in modes, method


def test_the_first_request_of_the_papers_rule_is_ifu() -> None:
    # The last node whose Psi is at most sigma mu*, counted by hand.
    sigma = public_sigma(0.1)
    with History.in_memory() as history:
        revocable = plain(history)
        revocable.train(Rounds(12))
        (client,) = history.participants.find(pick_names(revocable, 4))
        psi = client_sensitivities(history.lineage().edges, [client], range(13))[:, 0]
        number = history.requests.ask(pick_names(revocable, 4), BUDGET)
        plan = revocable.plan(PaperSifu(sigma), number)
        allowed = Request(frozenset([client]), BUDGET).mu * sigma
        assert plan.candidate.node.round == max(at for at in range(13) if psi[at] <= allowed)
        assert 0 < plan.candidate.node.round < 12


def test_dp_needs_noised_rounds() -> None:
    with History.in_memory() as history:
        revocable = plain(history)
        revocable.train(Rounds(3))
        number = history.requests.ask(pick_names(revocable, 0), BUDGET)
        with pytest.raises(ValueError, match="not trained by DP-FedAvg"):
            revocable.plan(Dp(), number)


def test_the_composed_noise_of_dp_is_what_an_independent_accountant_finds() -> None:
    """dp-accounting's privacy loss distributions, for as many rounds as a client took part in."""
    with History.in_memory() as history:
        revocable = noised(history)
        revocable.train(Rounds(12))
        (client,) = history.participants.find(pick_names(revocable, 3))
        edges = history.lineage().edges
        joined = sum(client in edge.clients for edge in edges)
        assert 0 < joined < 12
        z = NOISED.facts.noise_multiplier
        mu = release_mu(edges, [client], z)[-1]
        accountant = PLDAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(GaussianDpEvent(z), joined)
        for delta in (1e-2, 1e-5):
            assert reached_epsilon(mu, delta) == pytest.approx(accountant.get_epsilon(delta), rel=1e-3)


def test_noised_rounds_have_the_noise_that_they_claim() -> None:
    """The model after a round, minus the mean of the clipped updates by hand, is noise of sigma, empty rounds too."""
    quiet = replace(NOISED, noise_multiplier=0.02, clip=0.01)
    engine = simulation(training=replace(TRAINING, clips_updates=True), public=quiet.facts, public_schedule=True)
    start, model_id = engine.start(), ModelId(0, 1)
    replies = engine.train(start, model_id, engine.draw(model_id, engine.clients))
    made = quiet.round(engine, start, model_id, engine.clients)
    total = np.zeros((3, 6))
    for at in range(len(replies.names)):
        update = {name: replies.tensors[name][at] - start[name] for name in start}
        length = np.sqrt(sum((tensor**2).sum() for tensor in update.values()))
        assert length > 0.01
        total += update["weight"] * 0.01 / length
    np.testing.assert_allclose(made.model["weight"], total / 7.0, atol=6 * quiet.sigma)
    big = NoisedAverage(1.0, 1.0, 4.0)
    engine = simulation(
        training=replace(TRAINING, clips_updates=True),
        public=big.facts,
        public_schedule=True,
        secret_noise=True,
        rate=1e-9,
    )
    drawn = np.concatenate(
        [big.round(engine, start, model_id, engine.clients).model["weight"].ravel() for _ in range(200)]
    )
    assert not engine.draw(model_id, engine.clients)
    assert np.std(drawn) == pytest.approx(4.0, rel=0.1)
    assert big.facts.noise_multiplier == pytest.approx(4.0, rel=2e-4)
    with pytest.raises(ValueError, match="another server"):
        big.round(simulation(), start, model_id, engine.clients)


def test_a_strict_claim_needs_rounds_that_look_at_no_data() -> None:
    public = PublicHead(initial_norm=0.0, parameters=21, batch=15)
    for until in (Rounds(6), Accuracy(0.99, most=6)):
        with History.in_memory() as history:
            engine = simulation(public=public, public_schedule=True, secret_noise=True)
            revocable = Revocable(history, engine)
            revocable.train(until)
            number = history.requests.ask(pick_names(revocable, 0), BUDGET)
            expected = {Mode.STRICT if until.public else Mode.INSTANCE, Mode.EXACT}
            summary = history.summary(history.participants.find(pick_names(revocable, 0)))
            request = Request(history.participants.find(pick_names(revocable, 0)), BUDGET)
            assert {each.mode for each in strict_candidates(summary, request)} == expected
            assert revocable.plan(StrictSifu(), number).candidate.mode in expected
