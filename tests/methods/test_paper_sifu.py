"""The paper's rule against its Algorithms 2 and 3, line by line, noise included; and what its sigmas become."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TypeAlias
from unittest.mock import patch

import numpy as np
import pytest

from rescind import History, LocalTraining, NetworkLoss, Sampling
from rescind.certificates.annex import build_annex, find_condition
from rescind.certificates.envelope import sign
from rescind.certificates.errors import CertificateError
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import Statement
from rescind.certificates.verification import verify
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget, ClassicBudget
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, PrivacyScope
from rescind.engines.server import NoisedAverage, draw_noise
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Dp, Last, PaperSifu
from rescind.serving import serve
from rescind.simulation import Simulation
from rescind.testing.small import TRAINING as SMALL
from rescind.testing.small import simulation
from tests.builders import KEY, SIGNER

SEED, TRAINED, RETRAINED = b"the paper's noise", 12, 6
TRAINING = LocalTraining(steps=4, learning_rate=0.2, loss=NetworkLoss(), momentum=0.5)
BUDGET = ClassicBudget(10.0, 0.01)
GROUPS = (("clinic-0", "clinic-1"), ("clinic-2",), ("clinic-7", "clinic-8"))

Model: TypeAlias = dict[str, Tensor]


def federation(**options: object) -> Simulation:
    return simulation(training=TRAINING, sampling=Sampling.FIXED_SIZE, rate=None, size=3, batch=5, **options)


def distance(one: Model, other: Model) -> float:
    return math.sqrt(sum(float(((one[name] - other[name]) ** 2).sum()) for name in one))


class Paper:
    """Algorithm 3 as it is printed, over an engine's clients; its first request is Algorithm 2."""

    def __init__(self, engine: Simulation, sigma: float, trained: int) -> None:
        self.engine, self.sigma = engine, sigma
        # H(0), and what every client added to Psi at each of its models: B = 1.
        self.path, self.deltas = [engine.start()], [dict[str, float]()]
        self.clients, self.chosen = list(engine.clients), list[int]()
        self.fed_avg(0, trained)

    def fed_avg(self, branch: int, rounds: int) -> None:
        """Algorithm 1, with a sample of the clients and Delta, equation 7, of everybody in it."""
        for number in range(1, rounds + 1):
            model_id = ModelId(branch, number)
            names = self.engine.draw(model_id, self.clients)
            replies = self.engine.train(self.path[-1], model_id, names)
            shares = replies.weights / replies.weights.sum()
            models = [{name: replies.tensors[name][at] for name in self.path[-1]} for at in range(len(names))]
            mean = {name: np.tensordot(shares, np.array(replies.tensors[name]), 1) for name in self.path[-1]}
            self.deltas.append(
                {
                    name: share / (1 - share) * distance(mean, model)
                    for name, share, model in zip(names, shares, models, strict=True)
                }
            )
            self.path.append(mean)

    def forget(self, number: int, group: tuple[str, ...], rounds: int) -> None:
        """Lines 2 to 7 of the second loop."""
        threshold = self.sigma * BUDGET.epsilon / math.sqrt(2 * math.log(1.25 / BUDGET.delta))
        self.clients = [name for name in self.clients if name not in group]
        psi = np.cumsum([[own.get(name, 0.0) for name in group] for own in self.deltas], axis=0).max(axis=1)
        last = int(np.flatnonzero(psi <= threshold).max())
        self.path, self.deltas = self.path[: last + 1], self.deltas[: last + 1]
        self.path.append(draw_noise(self.path[last], self.sigma, SEED, "restart", number))
        # Lambda: the noise adds nothing.
        self.deltas.append({})
        self.chosen.append(last)
        self.fed_avg(number, rounds)


# Among the models that it goes back to are the first one, some that the group has touched, and some that it has not.
@pytest.mark.parametrize("sigma", [0.05, 0.1, 0.2, 0.4])
def test_the_rule_is_algorithm_3_noise_included(sigma: float) -> None:
    paper = Paper(federation(), sigma, TRAINED)
    with History.in_memory() as history:
        revocable = Revocable(history, federation(), capacity=100, seed=SEED)
        revocable.train(Rounds(TRAINED))
        for number, group in enumerate(GROUPS, 1):
            history.requests.ask(group, BUDGET, scope=PrivacyScope.INDIVIDUAL)
            (outcome,) = revocable.forget(PaperSifu(sigma), Rounds(RETRAINED), level=ErasureLevel.OUTPUT)
            paper.forget(number, group, RETRAINED)
            assert outcome.restart is not None
            assert outcome.restart.branch.sigma == sigma
            # Where nobody is to be hidden the model knows nobody who left, whatever noise it has.
            assert (outcome.mode is Mode.EXACT) == (not outcome.restart.branch.hidden)
            assert outcome.restart.planned.candidate.node.index == paper.chosen[-1]
            for name, tensor in history.model(history.newest).items():
                np.testing.assert_allclose(tensor, paper.path[-1][name], rtol=0, atol=1e-9)
        assert history.integrity.verify() == []
    assert len(paper.chosen) == len(GROUPS)


@pytest.mark.parametrize(("asked", "drawn"), [(0.05, 2.0**-4), (0.1, 2.0**-3), (0.25, 0.25), (1e-9, 2.0**-16)])
def test_secret_noise_is_rounded_up_to_what_can_be_drawn(asked: float, drawn: float) -> None:
    with History.in_memory() as history:
        revocable = Revocable(history, simulation(secret_noise=True))
        revocable.train(Rounds(6))
        history.requests.ask(["clinic-0"], Budget(10.0, 0.01))
        (outcome,) = revocable.forget(PaperSifu(asked), Rounds(2))
        assert outcome.restart is not None
        assert outcome.restart.branch.sigma == drawn
        assert outcome.mode in (Mode.INSTANCE, Mode.EXACT)


def test_noise_that_cannot_be_drawn_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"sigma is 64\.5; noise can be drawn up to 64"):
        PaperSifu(64.5)


@pytest.mark.parametrize("sigma", [True + 0.0, 1, np.float64(0.25), Fraction(1, 8)])
def test_its_noise_is_a_plain_number(sigma: float) -> None:
    assert str(PaperSifu(sigma)) == f"SIFU, paper's rule (sigma={float(sigma)!r})"
    for unfit in (None, [0.1], 10**400, math.nan):
        with pytest.raises(ValueError, match="it has to be a"):
            PaperSifu(unfit)  # type: ignore[arg-type]


def test_noise_from_a_seed_that_cannot_be_drawn_is_refused_before_a_run_trains() -> None:
    with History.in_memory() as history, pytest.raises(ValueError, match="noise from a seed can be drawn from"):
        serve(Revocable(history, federation(), seed=SEED), Rounds(2), PaperSifu(1e-9))
    assert not history.timeline.branches


def test_noise_that_rounding_swallows_hides_nobody_and_breaks_nothing() -> None:
    far = {name: np.full_like(tensor, 5000.0, dtype=np.float32) for name, tensor in simulation().start().items()}
    engine = simulation(secret_noise=True, training=replace(SMALL, precision="float32"))
    with History.in_memory() as history, patch.object(Simulation, "start", lambda _: far):
        revocable = Revocable(history, engine, scored=False)
        revocable.train(Rounds(3))
        history.requests.ask(["clinic-0"], Budget(1e-3, 1e-9))
        (outcome,) = revocable.forget(PaperSifu(2.0**-16), Rounds(1))
        assert outcome.mode is Mode.EXACT
        assert history.integrity.verify() == []


def test_in_rounds_with_noise_its_own_is_not_said_to_hide_who_left_before() -> None:
    server = NoisedAverage(clip=0.5, denominator=7.0, noise_multiplier=8.0)
    noised = replace(SMALL, clips_updates=True)
    engine = simulation(training=noised, public=server.facts, public_schedule=True, secret_noise=True)
    with History.in_memory() as history:
        revocable = Revocable(history, engine, server=server)
        revocable.train(Rounds(8))
        for name, method in (("clinic-0", Dp()), ("clinic-1", PaperSifu(2.0**-14))):
            history.requests.ask([name], Budget(8.0, 0.01))
            revocable.forget(method, Rounds(3), level=ErasureLevel.OUTPUT)
        first, second = (build_statement(history, number) for number in (1, 2))
        for statement in (first, second):
            verify(sign(statement, [SIGNER]), [KEY], history=history)
        assert first.predicate.mode == "instance"
        assert first.predicate.noise is None
        assert second.predicate.mode == "exact"


def forged(statement: Statement, sigma: float) -> Statement:
    noise = statement.predicate.noise
    assert noise is not None
    stated = statement.predicate.model_copy(update={"noise": noise.model_copy(update={"sigma": sigma})})
    return statement.model_copy(update={"predicate": stated})


@pytest.mark.parametrize("releases", [1, 4])
def test_a_condition_is_of_all_releases_and_of_the_noise_as_it_is_drawn(releases: int) -> None:
    with History.in_memory() as history:
        revocable = Revocable(history, simulation(), seed=SEED)
        revocable.train(Rounds(6))
        history.requests.ask(["clinic-0"], Budget(8.0, 0.01), releases=releases)
        revocable.forget(Last(), Rounds(2))
        condition = find_condition(history, build_statement(history, 1))
    assert condition is not None
    # What secret noise would certify, but for what is kept back for rounding.
    assert condition.epsilon == pytest.approx(8.0, rel=2e-3)
    assert "within epsilon 8 and delta 0.01" in str(condition)


def test_noise_that_hides_nobody_leaves_a_certificate_as_exact_as_it_was() -> None:
    with History.in_memory() as history:
        early = simulation(9, secret_noise=True)
        Revocable(history, early).train(Rounds(4))
        whole = Revocable(history, simulation(secret_noise=True))
        whole.train(Rounds(8))
        history.requests.ask(["clinic-9"], Budget(10.0, 0.01))
        (outcome,) = whole.forget(PaperSifu(2.0**-14), Rounds(4))
        assert outcome.restart is not None
        branch = outcome.restart.branch
        assert (branch.hidden, branch.sigma, outcome.noise, outcome.mode) == ((), 2.0**-14, 0.0, Mode.EXACT)
        assert branch.parent is not None
        assert branch.parent.round >= 4
        assert history.integrity.verify() == []
        statement = build_statement(history, 1)
        assert statement.predicate.noise is not None
        assert statement.predicate.noise.sigma == 2.0**-14
        (chosen,) = [said for said in statement.predicate.assumptions if "size of the restart's noise" in said.what]
        assert chosen.basis == "declared by the operator"
        assert statement.predicate.guarantee is None
        annex = build_annex(history, statement)
        assert annex.predicate.restart is not None
        assert annex.predicate.restart.sigma == 2.0**-14
        for sigma in (0.3, 1e-30, 1e300):
            with pytest.raises(CertificateError, match="its noise"):
                verify(sign(forged(statement, sigma), [SIGNER]), [KEY])
        found = verify(sign(statement, [SIGNER]), [KEY], history=history, annex=sign(annex, [SIGNER]))
        assert found.statement.predicate.mode == "exact"
        # Whoever asks next goes back along the same line, and is hidden by noise of its own.
        history.requests.ask(["clinic-1"], Budget(10.0, 0.01))
        (second,) = whole.forget(PaperSifu(4.0), Rounds(2))
        assert second.mode is Mode.INSTANCE
        assert history.integrity.verify() == []
