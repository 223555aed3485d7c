"""DP-FedAvg after a purge: erased rounds count as if everybody named had taken part in each, never as fewer."""

from __future__ import annotations

import numpy as np
import pytest

from rescind import History, LocalTraining, SoftmaxL2
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import explain, verify
from rescind.core.aggregation import RoundMeasurement
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId, RoundKind
from rescind.core.facts import Mode, PrivacyScope, Sampling
from rescind.core.rounds import Replies, RoundResult
from rescind.core.strict import participations
from rescind.engines.server import NoisedAverage
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.lineage import branch_exits
from rescind.ledger.records import ErasureLevel
from rescind.methods import Dp
from rescind.simulation import Simulation, SoftmaxHead
from rescind.testing.small import CLASSES, FEATURES, federation
from tests.builders import SIGNER, rounds_of

SERVER = NoisedAverage(clip=0.5, denominator=8.0, noise_multiplier=20.0)
TRAINING = LocalTraining(steps=1, learning_rate=0.5, loss=SoftmaxL2(0.02, 1.0))
Joined = dict[ModelId, set[int]]


def engine(seed: int = 0, clients: int = 8) -> Simulation:
    return Simulation(
        federation(clients, seed),
        SoftmaxHead(FEATURES, CLASSES),
        TRAINING,
        sampling=Sampling.POISSON,
        rate=0.6,
        secret=bytes([seed]),
        secret_noise=True,
        public_schedule=True,
        public=SERVER.facts,
    )


def look(history: History, joined: Joined) -> None:
    """Note who took part in which round, as long as that is there."""
    for number in history.timeline.branches:
        for round_ in rounds_of(history, number, 1, history.newest_of(number).round):
            joined[round_.model_id] = set(round_.clients.tolist())


def counted(history: History, joined: Joined, node: ModelId, group: frozenset[int]) -> int:
    """Return the sum of |W in S|^2 over all rounds on the way to a model, the erased ones too."""
    legs = branch_exits(history.timeline.branches, node)
    return sum(len(group & joined[ModelId(leg.branch, at)]) ** 2 for leg in legs for at in range(1, leg.round + 1))


def test_the_second_to_leave_is_hidden_by_the_rounds_noise_although_the_first_was_purged() -> None:
    with History.in_memory() as history:
        revocable = Revocable(history, engine(), server=SERVER, scored=False)
        revocable.train(Rounds(12))
        for at in (1, 2, 3):
            number = history.requests.ask([f"clinic-{at}"], Budget(3.0, 1e-5))
            newest = history.newest
            (outcome,) = revocable.forget(Dp(), Rounds(1), level=ErasureLevel.PURGE)
            assert (outcome.restart.branch.parent, outcome.mode) == (newest, Mode.STRICT)
            statement = build_statement(history, number)
            checked = verify(sign(statement, [SIGNER]), [SIGNER.public_key], history=history)
            assert f"add up to at most {statement.predicate.rounds.participations}" in " ".join(explain(checked))


@pytest.mark.parametrize("seed", range(4))
def test_mu_is_never_below_what_it_is_without_a_purge(seed: int) -> None:
    rng, joined, compared = np.random.default_rng(seed), Joined(), 0
    with History.in_memory() as history:
        revocable = Revocable(history, engine(seed), server=SERVER, scored=False)
        revocable.train(Rounds(int(rng.integers(2, 8))))
        remaining = [f"clinic-{at}" for at in range(8)]
        for _ in range(3):
            look(history, joined)
            leaving = sorted(rng.choice([name for name in remaining if name in history.participants.all()], 2, False))
            remaining = [name for name in remaining if name not in leaving]
            scope = PrivacyScope.SEQUENCE if rng.integers(2) else PrivacyScope.GROUP
            # Some go back to where nobody of them was, or nearly so.
            budget = Budget(float(rng.choice([0.3, 1.0, 8.0])), 1e-5)
            pseudonyms = history.participants.find(leaving)
            number = history.requests.ask(leaving, budget, scope=scope)
            rounds = Rounds(int(rng.integers(1, 4)))
            level = ErasureLevel.PURGE if rng.integers(3) else ErasureLevel.OUTPUT
            (outcome,) = revocable.forget(Dp(), rounds, level=level)
            look(history, joined)
            path = history.lineage()
            everybody = sorted(set().union(*joined.values()))
            for group in (pseudonyms, *(frozenset(rng.choice(everybody, size, False)) for size in (1, 1, 2, 3))):
                told = participations(path.edges, group)
                for node, at in path.index.items():
                    assert told[at] >= counted(history, joined, node, group)
                    compared += 1
            statement = build_statement(history, number)
            verify(sign(statement, [SIGNER]), [SIGNER.public_key], history=history)
            noised, parent = statement.predicate.rounds, outcome.restart.branch.parent
            if noised is not None and parent is not None:
                assert noised.participations >= counted(history, joined, parent, pseudonyms)
                assert noised.mu <= history.timeline.requests[number - 1].request.mu
    assert compared > 50


def test_no_solver_makes_a_model_of_noised_rounds() -> None:
    """Once such a round is erased nobody could tell it from a noised one."""
    with History.in_memory() as history:
        federated = engine()
        model, zeros = federated.start(), RoundMeasurement(np.zeros(1), 0.0, None)
        replies = Replies(("clinic-1",), np.ones(1), (0,), {}, batch=0)
        with history.recording(federated.facts, model) as recorder, pytest.raises(ValueError, match="have no noise"):
            recorder.record(RoundResult(replies, model, zeros, kind=RoundKind.SOLVED))
