"""Can a certificate be shown to be wrong?

Small federations on MNIST are trained and asked to forget, one to three times in a row, in every mode: exact, strict
(an L2 head's public bound, and DP-FedAvg) and instance; each client alone, the group, or all groups so far. Where to
restart is chosen at random among what the planner offers, so that not only good choices are tried. Every outcome is
certified, signed and verified. Then whoever was forgotten is left out from the beginning, on the same secrets. The
distance may nowhere be above the bound, nor its epsilon, by another library's accountant, above the certified one;
what a certificate calls exact has to be the same bit by bit; and the branch that forgets has to be what its recorded
rounds make of it, bit by bit (``violations``). Earlier requests are certified and judged again after each one. And
both worlds are released many times over with fresh noise: the best rule to tell them apart may not be better than the
certificate says (``audit_exceeds``, all audits of a run together at 95 % confidence; ``audits`` counts those that
could exceed it at all), nor may a membership attack be (``membership_exceeds``).

Attacks that once made certificates false are among the cases: crowds of nearly alike clients in float32, whose
distances are made of rounding; several requests in a row, the first under much noise; servers that do more than they
say; and federations that differ in the leaver's data only, or in single rows that go while their client stays
(``record_pairs``), under ``exact`` (a violation each, if one gets through; ``records_kept_seen`` counts where it
shows that a client lies and keeps the rows).
Heads are solved, too: to forget (``solve``), or in place of training, and then noise hides who leaves (``solved``).
So are server apps on Flower that look ahead, cast what they send, keep state, change settings by what they measure or
steer by metrics, and solves that end by their limit: refused, or nothing false is certified of them.

The same audit then judges four runs that are broken on purpose: noise left out, a tenth of the noise, the client not
excluded in the retraining, Psi with weights over all clients instead of the participants; and each server app is run
with the check that stops it switched off. There has to be an alarm in all of them (``broken_caught``): an audit that
cannot fail would say nothing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from typing import Any, ClassVar

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from dp_accounting import get_epsilon_gaussian
from scipy.special import softmax
from scipy.stats import chi2
from securesystemslib.signer import CryptoSigner, SSlibKey

from benchmarks._claims import judge_changed_data, judge_server
from benchmarks._measure import finish, progress
from benchmarks._mnist import parsed
from benchmarks._strategies import CASES as SERVER_APPS
from benchmarks._strategies import judge_server_app
from experiments.data import features, partitions, sets
from rescind import History, LocalTraining, LogisticL2, Sampling, SoftmaxL2
from rescind.audit import LowerBound, Rate, RecordingEngine, attack, measure_confidence, tell_apart, train_without
from rescind.audit.replay import distance
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.predicate import Predicate
from rescind.certificates.verification import verify
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget
from rescind.core.edges import Edge, ModelId, RoundEdge
from rescind.core.facts import Mode, PrivacyScope, PublicHead
from rescind.core.noise import public_sigma
from rescind.core.planning import Candidate, candidates, strict_candidates
from rescind.core.sensitivity import group_sensitivity
from rescind.core.strict import strict_sensitivity
from rescind.core.summary import Request, Summary
from rescind.engines.server import Average, NoisedAverage, Server, compute_updates, draw_noise, norm
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.history.lineage import branch_exits
from rescind.history.outcomes import Outcome, outcome_of
from rescind.ledger.records import Branch, ErasureLevel, Span
from rescind.methods import Scratch, Solve
from rescind.methods.method import Certifying, Method
from rescind.simulation import Federation, LogisticHead, Shard, Simulation, SoftmaxHead

Model = Mapping[str, Tensor]

CASES, QUICK_CASES = 105, 6
RELEASES, QUICK_RELEASES = 400, 200
# The released models are retrained this long: more of it tells the worlds apart no better, where all is well.
RETRAINED = 2
BUDGETS = (Budget(10.0, 0.01), Budget(5.0, 1e-5), Budget(3.0, 1e-5), Budget(1.0, 1e-5), Budget(1.0, 0.01))
KINDS = ("instance", "strict", "instance", "exact", "instance", "DP-FedAvg", "strict")
CROWDS, QUICK_CROWDS = 8, 1
# Forgotten by solving, and hidden by noise in what was solved before.
SOLVES, QUICK_SOLVES = 36, 2
SOLVE_KINDS = ("solve", "solved")
LIES, QUICK_LIES = 20, 1
# Small, so that a fault shows against it.
PAIR_BUDGET = Budget(1.0, 1e-5)
FAULTS = ("noise left out", "a tenth of the noise", "not excluded", "weights over all")
KEY = Ed25519PrivateKey.generate()


@dataclass(frozen=True, slots=True)
class Anywhere(Certifying):
    """Restarts at a random candidate, one that is not exact if there is any."""

    seed: int
    name: ClassVar[str] = "anywhere"

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        return _any(candidates(summary, *requests), self.seed)


@dataclass(frozen=True, slots=True)
class StrictlyAnywhere(Certifying):
    """The same among the candidates that public quantities give."""

    seed: int
    name: ClassVar[str] = "strictly anywhere"
    public_plan: ClassVar[bool] = True

    def plan(self, summary: Summary, *requests: Request) -> Candidate:
        return _any(strict_candidates(summary, *requests), self.seed)


def _any(offered: Sequence[Candidate], seed: int) -> Candidate:
    hidden = [each for each in offered if each.mode is not Mode.EXACT] or list(offered)
    return hidden[int(np.random.default_rng(seed).integers(len(hidden)))]


@dataclass(frozen=True)
class Found:
    """What one certified forgetting showed: distances, and what the audit reached, as shares of what is allowed."""

    mode: str
    scope: str
    position: int
    shares: list[float]
    audited: float | None


@cache
def digits(folder: str | None, columns: int) -> tuple[Shard, Shard]:
    """Return training and test digits as rows of a public random projection."""
    images = sets.load("mnist", folder)
    return (
        Shard(features.random_projection(images.train, columns), images.train_labels),
        Shard(features.random_projection(images.test[:1000], columns), images.test_labels[:1000]),
    )


def random_engine(rng: np.random.Generator, kind: str, folder: str | None) -> tuple[Simulation, Server]:
    """Make a small federation of a kind, with all that may vary chosen at random."""
    columns, clients, each = int(rng.integers(4, 16)), int(rng.integers(12, 25)), int(rng.integers(8, 30))
    # Who has fewer than ten rows does not answer a solver.
    each = max(each, 15) if kind in SOLVE_KINDS else each
    train, test = digits(folder, columns)
    split = str(rng.choice(["iid", "one class", "dirichlet"]))
    seed = int(rng.integers(2**31))
    parts = {
        "iid": lambda: partitions.iid(train.labels, clients, each, seed),
        "one class": lambda: partitions.one_class(train.labels, clients, each, seed),
        "dirichlet": lambda: partitions.dirichlet(train.labels, clients, 0.1, each, seed),
    }[split]()
    # One logit is trained client by client, which takes its time.
    two = kind != "DP-FedAvg" and bool(rng.random() < 0.1)
    classes = 2 if two else 10

    def shard(rows: Any, labels: Any) -> Shard:
        return Shard(rows, labels % 2 if two else labels)

    # Not all of the same size, as weights matter.
    shards = {
        f"client-{at}": shard(train.features[part[: each - at % 5]], train.labels[part[: each - at % 5]])
        for at, part in enumerate(parts)
    }
    curved = kind == "strict" or kind in SOLVE_KINDS
    l2 = float(rng.choice([0.01, 0.05, 0.2] if curved else [0.0, 0.01, 0.05, 0.2]))
    loss = LogisticL2(l2, 1.0) if two else SoftmaxL2(l2, 1.0)
    steps = int(rng.integers(1, 6))
    most = 2.0 / (loss.curvature.high + loss.curvature.low)
    training = LocalTraining(
        steps=steps,
        learning_rate=float(rng.uniform(0.1, 0.95)) * most,
        loss=loss,
        server_learning_rate=1.0 if kind == "DP-FedAvg" or rng.random() < 0.7 else float(rng.uniform(0.3, 1)),
        precision="float32" if kind == "instance" and rng.random() < 0.2 else "float64",
    )
    head = LogisticHead(columns) if two else SoftmaxHead(columns, classes)
    small = kind != "DP-FedAvg" and rng.random() < 0.4
    options: dict[str, Any] = {"batch": int(rng.integers(2, 8)) if small else None}
    options |= (
        {},
        {"sampling": Sampling.POISSON, "rate": float(rng.uniform(0.3, 0.9))},
        {"sampling": Sampling.FIXED_SIZE, "size": int(rng.integers(3, clients))},
    )[int(rng.integers(3))]
    server: Server = Average()
    if kind == "strict":
        parameters = sum(tensor.numel() for tensor in head.start().values())
        options |= {"public_schedule": True, "public": PublicHead(0.0, parameters, batch=each)}
    elif kind == "DP-FedAvg":
        server = NoisedAverage(clip=0.5, denominator=float(clients), noise_multiplier=float(rng.uniform(2, 8)))
        options |= {"public_schedule": True, "public": server.facts, "sampling": Sampling.POISSON, "rate": 0.5}
        options.pop("size", None)
    federation = Federation(shards, shard(test.features, test.labels), classes)
    return Simulation(federation, head, training, secret=rng.bytes(16), **options), server


def crowd(rng: np.random.Generator) -> Simulation:
    """Make a federation of many clients that are alike but for their last bits, with a small head in float32."""
    columns, clients = int(rng.integers(1, 4)), int(rng.integers(1000, 3000))
    row, label = rng.uniform(0.2, 0.5, size=(1, columns)), np.zeros(1, dtype=np.int64)
    spread = float(rng.choice([0.0, 1e-7])) * rng.normal(size=clients)
    shards = {f"client-{at}": Shard(row * (1 + spread[at]), label) for at in range(clients)}
    loss = SoftmaxL2(float(rng.choice([0.01, 0.5])), 1.0)
    training = LocalTraining(
        steps=int(rng.integers(1, 4)),
        learning_rate=float(rng.uniform(0.3, 1.9)) / loss.curvature.high,
        loss=loss,
        precision="float32",
    )
    federation = Federation(shards, Shard(row, label), 2)
    return Simulation(federation, SoftmaxHead(columns, 2), training, secret=rng.bytes(16))


def method_of(kind: str, seed: int) -> Method:
    if kind in ("exact", "solve"):
        return Scratch() if kind == "exact" else Solve()
    return Anywhere(seed) if kind in ("instance", "crowd", "solved") else StrictlyAnywhere(seed)


@dataclass(frozen=True)
class Promise:
    """A request that was served: whom it hides together, by name and by pseudonym, as erasing takes the names."""

    number: int
    groups: list[dict[str, int]]


class Case:
    """A federation whose requests are served one after the other, and judged after each."""

    def __init__(self, index: int, folder: str | None, releases: int, risk: float) -> None:
        self.rng = np.random.default_rng((2026, index))
        # Behind the other cases come the crowds, and then the solves.
        behind = index - CASES
        self.kind = (
            KINDS[index % len(KINDS)] if behind < 0 else "crowd" if behind < CROWDS else SOLVE_KINDS[behind % 2]
        )
        self.requests, self.risk, self.releases = 1 + index % 3, risk, releases
        self.server: Server = Average()
        if self.kind == "crowd":
            engine = crowd(self.rng)
        else:
            engine, self.server = random_engine(self.rng, self.kind, folder)
        self.tape = RecordingEngine(engine)
        self.promises: list[Promise] = []

    def judged(self) -> Iterator[Found]:
        level = ErasureLevel.PURGE if self.rng.random() < 0.5 else ErasureLevel.OUTPUT
        with History.in_memory() as history:
            revocable = Revocable(history, self.tape, server=self.server, capacity=8)
            # A release of DP-FedAvg is a whole training, so that is a short one.
            if self.kind == "solved":
                revocable.solve()
            first = history.newest.round if history.timeline.branches else 0
            revocable.train(
                Rounds(first + int(self.rng.integers(3, 7) if self.kind == "DP-FedAvg" else self.rng.integers(6, 16)))
            )
            for position in range(self.requests):
                promise, scope = self.ask(history)
                bounds = self.bounds(history)
                method = method_of(self.kind, int(self.rng.integers(2**31)))
                (outcome,) = revocable.forget(method, Rounds(RETRAINED + 1), level=level)
                said = certified(history, promise.number)
                yield Found(
                    mode=said.mode if self.kind in KINDS[:4] else f"{said.mode}, {self.kind}",
                    scope=scope.value,
                    position=position,
                    shares=list(self.shares(history, outcome, bounds)),
                    audited=self.audited(history, outcome, said),
                )

    def ask(self, history: History) -> tuple[Promise, PrivacyScope]:
        """Let one to three of those who took part ask to be forgotten."""
        took_part = history.ledger.pseudonyms(history.participants.remaining(self.tape.clients))
        size = min(int(self.rng.integers(1, 4)), max(1, len(took_part) - 2))
        own = {str(name): took_part[str(name)] for name in self.rng.choice(sorted(took_part), size, replace=False)}
        scope = list(PrivacyScope)[int(self.rng.integers(3))]
        number = history.requests.ask(list(own), BUDGETS[int(self.rng.integers(len(BUDGETS)))], scope=scope)
        groups = [{name: client} for name, client in own.items()] if scope is PrivacyScope.INDIVIDUAL else [own]
        if scope is PrivacyScope.SEQUENCE:
            earlier = [group for promise in self.promises for group in promise.groups]
            groups.append({name: client for group in [*earlier, own] for name, client in group.items()})
        self.promises.append(Promise(number, groups))
        return self.promises[-1], scope

    def bounds(self, history: History) -> Callable[[Mapping[str, int], ModelId], float]:
        """Return Psi as the history has it before it is carried out and erased."""
        path, facts = history.lineage(), self.tape.facts

        def bound(group: Mapping[str, int], model_id: ModelId) -> float:
            if self.kind == "strict":
                found = strict_sensitivity(path.edges, group.values(), facts.head_bound())
            else:
                found = group_sensitivity(path.edges, group.values())
            return float(found[path.index[model_id]])

        return bound

    def shares(
        self, history: History, outcome: Outcome, bound: Callable[[Mapping[str, int], ModelId], float]
    ) -> Iterator[float]:
        """Return all that is claimed now, of this and of earlier requests, as shares of what may be: at most 1.

        Infinite: noise that is not there, a model that is not what the recorded rounds make of it.
        """
        known, newest = history.timeline.branches, history.newest
        restart = outcome.restart
        if restart and self.kind != "DP-FedAvg" and not self.is_remade(history, restart.branch):
            yield np.inf
        for promise in self.promises:
            claim, said = outcome_of(history.timeline, promise.number), certified(history, promise.number)
            # A request that was settled speaks of its own clients only.
            for group in promise.groups[:1] if claim.asked.settled else promise.groups:
                if self.kind == "DP-FedAvg":
                    yield _epsilon_share(self.shift(known, group, newest), said)
                    continue
                other = dict(train_without(self.tape, known, group, newest))
                if said.noise is None:
                    yield _share(distance(history.model(newest), other[newest]), 0.0)
                    continue
                assert claim.basis is not None
                parent = claim.basis.branch.parent
                assert parent is not None
                apart = distance(self.tape.model(parent), other[parent])
                yield _epsilon_share(apart / said.noise.sigma, said)
                if restart and claim.basis.branch == restart.branch:
                    yield _share(apart, bound(group, parent))

    def is_remade(self, history: History, branch: Branch) -> bool:
        """Return whether a branch is what it is said to be: noise on its parent, then rounds of those who remain."""
        assert branch.parent is not None
        gone = {name for promise in self.promises for group in promise.groups for name in group}
        parent, model = self.tape.model(branch.parent), self.tape.model(ModelId(branch.number, 0))
        if not (self.is_noised(parent, model, branch) if branch.sigma else distance(model, parent) == 0):
            return False
        for round_ in history.ledger.rounds(Span(branch.number, 1, history.newest.round)):
            found = history.ledger.names(round_.clients)
            names = [found[client] for client in round_.clients.tolist()]
            if gone.intersection(names):
                return False
            if round_.model_id in self.tape.questions:
                # Held against the other world, which is solved again question by question.
                model = self.tape.model(round_.model_id)
                continue
            # In the engine's own order, as sums depend on it.
            model = self.tape.next_model(
                model, [each for each in self.tape.clients if each in names], round_.model_id
            )
        newest = history.model(history.newest)
        return all(np.array_equal(newest[name], model[name]) for name in newest)

    def is_noised(self, parent: Model, model: Model, branch: Branch) -> bool:
        """Return whether the noise has the size that it should, which one of a rounding or a tenth would not."""
        parameters = sum(tensor.size for tensor in model.values())
        low, high = (float(chi2.ppf(share, parameters)) for share in (1e-9, 1 - 1e-9))
        return low < (distance(model, parent) / branch.sigma) ** 2 < high

    def shift(self, known: Mapping[int, Branch], group: Collection[str], model_id: ModelId) -> float:
        """Return the mu that DP-FedAvg's noise really has: all rounds' shifts in units of their noise."""
        server, squares = self.server, 0.0
        assert isinstance(server, NoisedAverage)
        for here in rounds_to(known, model_id):
            model, names = self.tape.rounds[here]
            replies = self.tape.engine.train(model, here, [name for name in names if name in group])
            total = {name: np.zeros(tensor.shape) for name, tensor in model.items()}
            for update in compute_updates(model, replies).values():
                scale = server.clip / max(server.clip, norm(update))
                total = {name: tensor + scale * update[name] for name, tensor in total.items()}
            squares += (norm(total) / server.denominator / server.sigma) ** 2
        return float(np.sqrt(squares))

    def audited(self, history: History, outcome: Outcome, said: Predicate) -> float | None:
        """Release both worlds over and over, and give what was reached as a share of what the certificate allows."""
        known, promise = history.timeline.branches, self.promises[-1]
        restart = outcome.restart
        parent = restart.branch.parent if restart else None
        # A release of a crowd takes its time, and rounding is not what an audit can see; nor has the risk been shared
        # with solves.
        alone = self.kind == "crowd" or self.kind in SOLVE_KINDS
        if said.guarantee is None or restart is None or parent is None or alone:
            return None
        releases = self.releases // (2 if self.kind == "DP-FedAvg" else 1)
        if not able(said, releases, self.risk):
            return None
        if self.kind == "DP-FedAvg":
            group = max(promise.groups, key=lambda each: self.shift(known, each, parent))
            path = rounds_to(known, parent)
            found = tell_apart(
                lambda model: self.noised_rounds(model, path, ()),
                lambda model: self.noised_rounds(model, path, group),
                self.tape.start(),
                self.tape.start(),
                delta=said.guarantee.delta,
                releases=releases,
                risk=self.risk,
            )
            return exceeded(found, said)
        branch = restart.branch
        if promise.number not in branch.hidden:
            return None
        model = self.tape.model(parent)
        others = [dict(train_without(self.tape, known, group, parent))[parent] for group in promise.groups]
        other = max(others, key=lambda each: distance(model, each))
        release = Release(self.tape, branch.number, branch.sigma)
        found = tell_apart(
            release, release, model, other, delta=said.guarantee.delta, releases=releases, risk=self.risk
        )
        return exceeded(found, said)

    def noised_rounds(self, model: Model, path: Sequence[ModelId], leaving: Collection[str]) -> Model:
        for here in path:
            names = [name for name in self.tape.rounds[here][1] if name not in leaving]
            # Not the tape: this is another world.
            model = self.server.round(self.tape.engine, model, here, names).model
        return model


@dataclass(frozen=True)
class Release:
    """What the operator does with the model to restart from: noise, and a few rounds with the others.

    ``also`` are clients that take part although they should not.
    """

    tape: RecordingEngine
    branch: int
    sigma: float
    also: tuple[str, ...] = ()

    def __call__(self, model: Model) -> Model:
        if self.sigma:
            model = draw_noise(model, self.sigma, None)
        for number in range(1, RETRAINED + 1):
            here = ModelId(self.branch, number)
            model = self.tape.next_model(model, [*self.tape.rounds[here][1], *self.also], here)
        return model


def rounds_to(known: Mapping[int, Branch], model_id: ModelId) -> list[ModelId]:
    return [ModelId(leg.branch, at) for leg in branch_exits(known, model_id) for at in range(1, leg.round + 1)]


def certified(history: History, number: int) -> Predicate:
    """Certify, sign and verify against the history, as operator and auditor would."""
    content = sign(build_statement(history, number), [CryptoSigner(KEY)])
    return verify(content, [SSlibKey.from_crypto(KEY.public_key())], history=history).statement.predicate


def exceeded(found: LowerBound, said: Predicate) -> float:
    assert said.guarantee is not None
    return max(found.epsilon / said.guarantee.epsilon, found.mu / said.guarantee.mu)


def _epsilon_share(mu: float, said: Predicate) -> float:
    """Return the epsilon that a shift has, by somebody else's accountant, as a share of the certified one."""
    if said.guarantee is None:
        return np.inf if mu else 0.0
    return get_epsilon_gaussian(1 / mu, said.guarantee.delta) / said.guarantee.epsilon if mu else 0.0


def able(said: Predicate, releases: int, risk: float) -> bool:
    """Return whether an audit of so many releases could exceed what a certificate says at all."""
    judged = releases - releases // 2
    assert said.guarantee is not None
    perfect = LowerBound(Rate(judged, judged, risk / 2), Rate(0, judged, risk / 2), said.guarantee.delta)
    return exceeded(perfect, said) > 1


def _share(apart: float, allowed: float) -> float:
    return apart / allowed if allowed else (np.inf if apart else 0.0)


def judged(task: tuple[int, str | None, int, float]) -> list[Found]:
    torch.set_num_threads(1)
    return list(Case(*task).judged())


@dataclass(frozen=True)
class Pair:
    """Two worlds, with and without a client, before a restart with noise; ``bound`` is Psi, maybe a wrong one."""

    tape: RecordingEngine
    leaver: str
    examples: Shard
    branch: int
    model: Model
    without: Model
    bound: float

    @property
    def release(self) -> Release:
        return Release(self.tape, self.branch, public_sigma(self.bound / PAIR_BUDGET.mu))


def pair(folder: str | None, over_all: bool = False) -> Pair:
    """Train a federation of which few take part in a round, and choose somebody who is seen clearly."""
    train, test = digits(folder, 8)
    parts = partitions.one_class(train.labels, 40, 20, 1)
    shards = {f"client-{at}": Shard(train.features[part], train.labels[part]) for at, part in enumerate(parts)}
    engine = Simulation(
        Federation(shards, test, 10),
        SoftmaxHead(8, 10),
        LocalTraining(steps=3, learning_rate=1.0, loss=SoftmaxL2(l2=0.2, row_norm=1.0)),
        sampling=Sampling.POISSON,
        rate=0.15,
        secret=b"broken on purpose",
    )
    tape = RecordingEngine(engine)
    with History.in_memory() as history:
        revocable = Revocable(history, tape, capacity=16)
        revocable.train(Rounds(12))
        # Whoever took part in the last round has left most.
        parent, leaver = history.newest, tape.rounds[history.newest][1][0]
        group, path = history.participants.find([leaver]), history.lineage()
        total = sum(len(shard.labels) for shard in shards.values())
        edges = [_over_all(edge, total) for edge in path.edges] if over_all else path.edges
        bound = float(group_sensitivity(edges, group)[path.index[parent]])
        history.requests.ask([leaver], PAIR_BUDGET)
        # Who takes part after the restart does not depend on where it is.
        (outcome,) = revocable.forget(Scratch(), Rounds(RETRAINED + 1), level=ErasureLevel.OUTPUT)
        assert outcome.restart is not None
        without = dict(train_without(tape, history.timeline.branches, [leaver], parent))[parent]
    return Pair(tape, leaver, shards[leaver], outcome.restart.branch.number, tape.model(parent), without, bound)


def alarmed(task: tuple[str, str | None, float]) -> bool:
    """Return whether the audit raises alarm over a run with one fault, or with none."""
    torch.set_num_threads(1)
    fault, folder, risk = task
    worlds = pair(folder, over_all=fault == "weights over all")
    right = worlds.release
    wrong = {
        "noise left out": replace(right, sigma=0.0),
        "a tenth of the noise": replace(right, sigma=public_sigma(right.sigma / 10)),
        "not excluded": replace(right, also=(worlds.leaver,)),
    }.get(fault, right)
    found = tell_apart(
        wrong, right, worlds.model, worlds.without, delta=PAIR_BUDGET.delta, releases=RELEASES, risk=risk
    )
    too_far = distance(worlds.model, worlds.without) > worlds.bound
    return bool(too_far or found.epsilon > PAIR_BUDGET.epsilon or found.mu > PAIR_BUDGET.mu)


def membership(task: tuple[str | None, int, float]) -> dict[str, dict[str, float]]:
    """Attack the client's membership through its own examples, with shadows that know all but the noise."""
    torch.set_num_threads(1)
    folder, releases, risk = task
    worlds = pair(folder)

    def confidences(model: Model) -> list[Any]:
        return [_confidence(worlds.release(model), worlds.examples) for _ in range(releases)]

    kinds = (worlds.model, worlds.without, worlds.model, worlds.without)
    found = attack(*(np.array(confidences(model)) for model in kinds), rates=(0.01, 0.1), risk=risk)
    return {
        f"{rate:g}": {
            "found": power.found.share,
            "at_least": power.found.low,
            "at_most": power.found.high,
            "accused": power.accused.share,
            "allowed": power.allowed(PAIR_BUDGET.mu),
        }
        for rate, power in found.items()
    }


def _confidence(model: Model, examples: Shard) -> Any:
    logits = examples.features @ np.asarray(model["weight"]).T + np.asarray(model["bias"])
    return measure_confidence(softmax(logits, axis=1)[np.arange(len(logits)), examples.labels])


def _over_all(edge: Edge, total: int) -> Edge:
    """Weigh by all clients' examples instead of the participants'."""
    if not isinstance(edge, RoundEdge):
        return edge
    others = edge.weights.sum() - edge.weights
    return replace(edge, distances=edge.distances * others / (total - edge.weights), gram=None)


def main() -> None:
    chosen = parsed(__doc__)
    cases, releases = (QUICK_CASES, QUICK_RELEASES) if chosen.quick else (CASES, RELEASES)
    # All audits of a run together are wrong with a probability of at most 0.05; membership has two ends at two rates.
    risk = 0.05 / (2 * cases + len(FAULTS) + 1 + 4)
    crowds, solves, lies = (QUICK_CROWDS, QUICK_SOLVES, QUICK_LIES) if chosen.quick else (CROWDS, SOLVES, LIES)
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(2, get_context("forkserver")) as workers:
        behind = CASES + CROWDS
        indices = [*range(cases), *range(CASES, CASES + crowds), *range(behind, behind + solves)]
        tasks = [(index, chosen.data, releases, risk) for index in indices]
        found = [each for case in progress(workers.map(judged, tasks), "federations", len(tasks)) for each in case]
        servers = list(workers.map(judge_server, range(lies)))
        changed = list(workers.map(judge_changed_data, range(lies)))
        alarms = list(workers.map(alarmed, [(fault, chosen.data, risk) for fault in ("no fault", *FAULTS)]))
        apps = [list(workers.map(judge_server_app, [(name, off) for name in SERVER_APPS])) for off in (False, True)]
        powers = workers.submit(membership, (chosen.data, 2 * releases, risk)).result()
    audited = [each.audited for each in found if each.audited is not None]
    finish(
        {
            "certified": len(found),
            "modes": dict(Counter(each.mode for each in found)),
            "scopes": dict(Counter(each.scope for each in found)),
            "sequential": sum(each.position > 0 for each in found),
            "violations": sum(share > 1 for each in found for share in each.shares)
            + sum(each.claimed and each.broken for each in servers)
            + sum(each.different for each in changed)
            + sum(app.false for app in apps[0]),
            "server_apps": len(apps[0]),
            "server_apps_refused": sum(app.refused for app in apps[0]),
            "crowds": crowds,
            "solves": sum(each.mode.partition(", ")[2] in SOLVE_KINDS for each in found),
            "servers_broken": sum(each.broken for each in servers),
            "exact_pairs": sum(each.pairs for each in changed),
            "record_pairs": sum(each.record_pairs for each in changed),
            "records_kept_seen": sum(each.kept_seen for each in changed),
            "compared": sum(len(each.shares) for each in found),
            "closest": {
                mode: max(share for each in found if each.mode == mode for share in each.shares)
                for mode in {each.mode for each in found}
            },
            "audits": len(audited),
            "audit_exceeds": sum(share > 1 for share in audited),
            "strongest_audit": max(audited),
            "membership": powers,
            "membership_exceeds": sum(power["at_least"] > power["allowed"] for power in powers.values()),
            "false_alarm": alarms[0],
            "broken_caught": sum(alarms[1:]) + sum(app.false for app in apps[1]),
        }
    )


if __name__ == "__main__":
    main()
