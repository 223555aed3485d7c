"""The theorem as a measurement: is the distance to the world without a group ever above its bound?

Random federations are trained, asked to forget up to three times, and retrained exactly without each group, coupled
in everything else. The bound must hold at every model of every path, also with up to 100,000 participants that are
nearly alike, where the true distance is made of rounding. Heads are solved too, from any start, with everybody and
without one or up to half of the clients, and have to be no further apart than the bound at a solution says. The same
cases are then judged by eighteen wrong versions of the mathematics, eleven of training and seven of solves, each of
which must be caught: a measurement that can't fail would say nothing.

Three more things are tried on the product itself. Servers that do more than they say break the bound
(``servers_broken``): none of them may get a claim that rests on it. Federations that differ in the leaver's data
only: where both are forgotten as ``exact``, the released models have to be the same bit by bit. And random histories
of sums that are kept, in which clients come and go, servers die and backups are restored: the model, and whose sums
are left, have to be what they are without the leaver, bit by bit (``kept_sums_pairs``). Eleven wrong versions of
keeping sums must be caught in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from itertools import accumulate

import numpy as np

from benchmarks._claims import judge_changed_data, judge_server
from benchmarks._kept_worlds import CASES as KEEPERS
from benchmarks._kept_worlds import judge_kept_sums, judge_wrong_sums
from benchmarks._measure import finish, parser, progress
from benchmarks._solves import WrongSolve, judge_solve
from benchmarks._strategies import CASES as SERVER_APPS
from benchmarks._strategies import judge_server_app
from benchmarks.federations import (
    Array,
    Federation,
    Logistic,
    Objective,
    Path,
    Quadratic,
    Sampling,
    Softmax,
    retrained_without,
    train,
    with_noise,
)
from rescind.core.edges import NoiseEdge, RoundEdge, find_members, sorted_group
from rescind.core.regularity import Curvature, DeclaredLoss, LogisticL2, Loss, SoftmaxL2
from rescind.core.sensitivity import SAFETY, group_delta, group_sensitivity
from rescind.core.training import LocalTraining


class Wrong(Enum):
    """What people get wrong, in the formula (first seven) or in the training (last four)."""

    WEIGHTS_OVER_ALL = "weights over all clients instead of the participants"
    EXPONENT = "exponent off by one"
    RESET = "Psi starts again at 0 on a new branch"
    NOISE_CONTRACTS = "contraction across the noise"
    STANDSTILL = "rho instead of 1 where all participants leave"
    MAXIMUM = "largest client instead of the group"
    ABSENT_KEEPS = "a client that is not sampled keeps its Psi although B > 1"
    SHARED_BATCHES = "one stream of batches for all clients"
    REDRAWN = "small rounds are drawn again"
    PULL = "the pull towards the start taken as a constant"
    NARROW_MEAN = "the mean of a round summed in float32, and its rounding left out"


FORMULAS = tuple(Wrong)[:7]


@dataclass(frozen=True)
class Case:
    """A federation with its requests; ``aligned`` if the bound is an equality in it."""

    federation: Federation
    rounds: tuple[int, ...]
    requests: tuple[frozenset[int], ...]
    seed: int
    aligned: bool


@dataclass(frozen=True)
class Outcome:
    """What one case showed: alpha/Psi of every group at the last model and at its largest, and who was caught."""

    last_ratios: list[float]
    worst_ratio: float
    violations: int
    tight_error: float
    caught: dict[Wrong, int]


def random_case(seed: int, index: int) -> Case:
    rng = np.random.default_rng((seed, index))
    return _aligned_case(rng, seed, index) if rng.random() < 0.3 else _general_case(rng, seed, index)


def _general_case(rng: np.random.Generator, seed: int, index: int) -> Case:
    clients = int(rng.integers(2, 13))
    dtype = np.dtype(str(rng.choice(["float64", "float32"])))
    regime = rng.choice(["below", "at", "above"])
    sizes = [int(size) for size in rng.integers(1, 40, clients)]
    kind = rng.choice(["quadratic", "logistic", "softmax"])
    maker = _quadratics if kind == "quadratic" else _heads
    objectives, loss, rate, dimension = maker(rng, sizes, str(regime), str(kind), dtype)
    steps = _steps(rng, clients)
    training = LocalTraining(
        steps=max(steps),
        learning_rate=rate,
        loss=loss,
        proximal=float(rng.uniform(0.05, 1)) if rng.random() < 0.15 else 0.0,
        server_learning_rate=_server_rate(rng),
        precision=dtype.name,
    )
    federation = Federation(
        objectives=objectives,
        steps=steps,
        training=training,
        sampling=_sampling(rng, clients),
        start=rng.normal(size=dimension).astype(dtype),
        seed=seed * 1_000_003 + index,
        batch=int(rng.integers(1, 9)) if rng.random() < 0.5 else None,
    )
    return _with_requests(rng, federation, seed=index, aligned=False)


def _aligned_case(rng: np.random.Generator, seed: int, index: int) -> Case:
    """One dimension, one curvature, one K: a leaver always pulls to the same side, so nothing is lost."""
    clients = int(rng.integers(3, 9))
    curvature = float(rng.choice([rng.uniform(0.05, 0.9), 0.0, -rng.uniform(0.02, 0.2)]))
    steps = int(rng.integers(1, 9))
    sizes = rng.integers(1, 40, clients)
    pulls = rng.permutation(clients) + rng.uniform(0, 0.4, clients)
    objectives = [
        Quadratic(np.array([[curvature]]), np.full((size, 1), pull)) for size, pull in zip(sizes, pulls, strict=True)
    ]
    federation = Federation(
        objectives=objectives,
        steps=[steps] * clients,
        training=LocalTraining(
            steps=steps,
            learning_rate=1.0,
            loss=DeclaredLoss(Curvature(curvature, max(curvature, 1e-9))),
            server_learning_rate=float(rng.choice([1.0, rng.uniform(0.3, 1)])),
        ),
        sampling=_sampling(rng, clients),
        start=np.zeros(1),
        seed=seed * 1_000_003 + index,
        grid=None,
    )
    # Whoever pulls hardest leaves first, so that the others' mean lies on one side of every leaver.
    order = np.argsort(-pulls).tolist()
    case = _with_requests(rng, federation, seed=index, aligned=True)
    taken = 0
    requests = []
    for request in case.requests:
        requests.append(frozenset(order[taken : taken + len(request)]))
        taken += len(request)
    return replace(case, requests=tuple(requests))


def _with_requests(rng: np.random.Generator, federation: Federation, seed: int, aligned: bool) -> Case:
    clients = len(federation.objectives)
    order = rng.permutation(clients).tolist()
    requests = []
    for _ in range(int(rng.integers(1, 4))):
        size = min(int(rng.integers(1, 4)), len(order) - 1)
        if size:
            requests.append(frozenset(order[:size]))
            order = order[size:]
    rounds = tuple(int(count) for count in rng.integers(2, 11, len(requests) + 1))
    return Case(federation, rounds, tuple(requests), seed, aligned)


def _quadratics(
    rng: np.random.Generator, sizes: list[int], regime: str, _kind: str, dtype: np.dtype[np.floating]
) -> tuple[list[Objective], Loss, float, int]:
    dimension = int(rng.integers(1, 8))
    high = float(rng.uniform(0.5, 3))
    rate = float(rng.uniform(0.05, 1.9)) / high
    low = {"below": 0.1 * high, "at": 0.0, "above": -min(0.3 * high, 0.1 / rate)}[regime]
    shift = rng.normal(size=(len(sizes), dimension)) * rng.choice([0.1, 1, 5])
    objectives: list[Objective] = []
    for size, centre in zip(sizes, shift, strict=True):
        basis, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
        # The ends are left alone: float32 may round an eigenvalue outwards.
        hessian = basis * rng.uniform(low + 1e-3 * high, high * (1 - 1e-3), dimension) @ basis.T
        linear = centre + rng.normal(size=(size, dimension))
        objectives.append(Quadratic(((hessian + hessian.T) / 2).astype(dtype), linear.astype(dtype)))
    return objectives, DeclaredLoss(Curvature(low, high)), rate, dimension


def _heads(
    rng: np.random.Generator, sizes: list[int], regime: str, kind: str, dtype: np.dtype[np.floating]
) -> tuple[list[Objective], Loss, float, int]:
    columns, row_norm = int(rng.integers(1, 7)), float(rng.uniform(0.5, 3))
    classes = int(rng.integers(2, 5))
    l2 = {"below": float(rng.uniform(0.01, 0.5)), "at": 0.0, "above": float(rng.choice([0.0, 0.05]))}[regime]
    loss = LogisticL2(l2, row_norm) if kind == "logistic" else SoftmaxL2(l2, row_norm)
    high = loss.curvature.high
    rate = float(rng.uniform(2.05, 2.3) if regime == "above" else rng.uniform(0.1, 1.9)) / high
    objectives: list[Objective] = []
    for size in sizes:
        rows = rng.normal(size=(size, columns)) + rng.normal(size=columns)
        # Clipped a little inside R, as float32 may round a row outwards.
        rows *= np.minimum(1, row_norm * (1 - 1e-6) / np.linalg.norm(rows, axis=1, keepdims=True))
        features: Array = np.hstack([rows, np.ones((size, 1))]).astype(dtype)
        label = rng.integers(classes) if rng.random() < 0.5 else rng.integers(classes, size=size)
        labels: Array = np.broadcast_to(np.eye(classes)[label], (size, classes)).astype(dtype)
        objectives.append(
            Logistic(features, labels[:, :1], l2) if kind == "logistic" else Softmax(features, labels, l2)
        )
    return objectives, loss, rate, (columns + 1) * (1 if kind == "logistic" else classes)


def _steps(rng: np.random.Generator, clients: int) -> list[int]:
    return [int(k) for k in (rng.integers(1, 9, clients) if rng.random() < 0.5 else [rng.integers(1, 9)] * clients)]


def _server_rate(rng: np.random.Generator) -> float:
    return 1.0 if rng.random() < 0.6 else float(rng.uniform(0.3, 1))


def _sampling(rng: np.random.Generator, clients: int) -> Sampling:
    kinds = [
        Sampling(),
        Sampling(rate=float(rng.uniform(0.15, 0.9))),
        Sampling(size=int(rng.integers(1, clients + 1))),
    ]
    return kinds[rng.choice(3, p=[0.25, 0.5, 0.25])]


def run_path(case: Case, federation: Federation) -> Path:
    """Train, and serve the requests one after the other, each from a random node of the path so far."""
    rng = np.random.default_rng((case.seed, 7))
    present = frozenset(range(len(federation.objectives)))
    path, key = Path((federation.start,)), 0
    for number, rounds in enumerate(case.rounds):
        if number:
            present = present.difference(case.requests[number - 1])
            path = path.truncated(int(rng.integers(len(path.models))))
            path = with_noise(federation, path, float(rng.choice([1e-4, 0.01, 0.1, 1])), key)
        path = train(federation, path, present, rounds, key)
        key += rounds
    return path


def groups_to_check(case: Case) -> Iterator[frozenset[int]]:
    """Every request, all of them together, and some who stayed."""
    yield from case.requests
    yield from _hardest(case)[1:]
    everybody = _hardest(case)[-1]
    stayed = sorted(frozenset(range(len(case.federation.objectives))).difference(everybody))
    rng = np.random.default_rng((case.seed, 8))
    if not case.aligned:
        yield frozenset(rng.choice(stayed, size=min(2, len(stayed)), replace=False).tolist())


def _hardest(case: Case) -> list[frozenset[int]]:
    """The first request, the first two together, and so on: in an aligned case all pull to one side of the rest."""
    return list(accumulate(case.requests, lambda together, request: together | request))


def distances(models: tuple[Array, ...], others: list[Array]) -> Array:
    pairs = zip(models, others, strict=True)
    return np.array([np.linalg.norm(one.astype(np.float64) - other.astype(np.float64)) for one, other in pairs])


def wrong_sensitivity(path: Path, group: frozenset[int], federation: Federation, wrong: Wrong | None) -> Array:
    """Psi along the path with one mistake in it, or none."""
    if wrong is Wrong.MAXIMUM:
        alone = [wrong_sensitivity(path, frozenset({client}), federation, None) for client in group]
        return np.asarray(np.max(alone, axis=0))
    leaving, psi, parted = sorted_group(group), 0.0, False
    total = sum(objective.examples for objective in federation.objectives)
    common = federation.training.factor()
    nodes = [0.0]
    for edge in path.edges:
        if isinstance(edge, NoiseEdge):
            psi = 0.0 if wrong is Wrong.RESET else psi * (common if wrong is Wrong.NOISE_CONTRACTS else edge.factor)
            psi += edge.rounding if parted else 0.0
        elif isinstance(edge, RoundEdge):
            inside = find_members(edge.clients, leaving)
            parted = parted or bool(inside.any())
            factor, delta = edge.factor_over(~inside), group_delta(edge, inside)
            if wrong is Wrong.WEIGHTS_OVER_ALL and inside.any() and not inside.all():
                counts = np.array([federation.objectives[client].examples for client in edge.clients])
                delta *= counts[~inside].sum() / (total - counts[inside].sum())
            if wrong is Wrong.STANDSTILL and inside.all():
                factor = edge.factor
            if wrong is Wrong.ABSENT_KEEPS and not inside.any():
                factor = 1.0 if factor > 1 else factor
            psi = factor * psi + delta + (edge.rounding if parted else 0.0)
        nodes.append(psi)
    # The paper's sum attributes every term one round too few.
    return np.array(nodes) * (SAFETY / common if wrong is Wrong.EXPONENT else SAFETY)


def judge(case: Case) -> Outcome:
    federation = case.federation
    path = run_path(case, federation)
    last, worst, violations, tight, caught = [], 0.0, 0, 0.0, dict.fromkeys(Wrong, 0)
    for group in groups_to_check(case):
        alpha = distances(path.models, retrained_without(federation, path, group))
        psi = group_sensitivity(path.edges, group)
        violations += int((alpha > psi).sum())
        known = psi > 0
        worst = max(worst, float((alpha[known] / psi[known]).max(initial=0.0)))
        last += [float(alpha[-1] / psi[-1])] if known[-1] else []
        for wrong in FORMULAS:
            caught[wrong] += int((alpha > wrong_sensitivity(path, group, federation, wrong)).sum())
        if case.aligned and group in _hardest(case) and not _stands_still(path, group):
            tight = max(tight, _tight_error(path, group, alpha))
    for wrong, changed in _wrong_trainings(case):
        wrong_path = run_path(case, changed)
        for group in groups_to_check(case):
            alpha = distances(wrong_path.models, retrained_without(changed, wrong_path, group))
            caught[wrong] += int((alpha > group_sensitivity(wrong_path.edges, group)).sum())
    return Outcome(last, worst, violations, tight, caught)


def _wrong_trainings(case: Case) -> Iterator[tuple[Wrong, Federation]]:
    federation = case.federation
    if federation.batch is not None:
        yield Wrong.SHARED_BATCHES, replace(federation, shared_batches=True)
    if federation.sampling.rate is not None:
        yield Wrong.REDRAWN, replace(federation, sampling=replace(federation.sampling, minimum=2))
    yield Wrong.PULL, replace(federation, pulls=True)


def _stands_still(path: Path, group: frozenset[int]) -> bool:
    leaving = sorted_group(group)
    rounds = [edge for edge in path.edges if isinstance(edge, RoundEdge) and len(edge.clients)]
    return any(find_members(edge.clients, leaving).all() for edge in rounds)


def _tight_error(path: Path, group: frozenset[int], alpha: Array) -> float:
    """Compare with the bare theorem: without the rounding term and the final safety factor.

    Models are left out where contraction has brought the two worlds so near that float64 can't tell them apart.
    """
    edges = [
        replace(edge, rounding=0.0, relative_rounding=0.0) if isinstance(edge, RoundEdge) else edge
        for edge in path.edges
    ]
    psi = group_sensitivity(edges, group) / SAFETY
    known = psi > 1e-5 * np.array([1 + np.abs(model).max() for model in path.models])
    return float(np.abs(alpha[known] / psi[known] - 1).max(initial=0.0))


def _judge_index(argument: tuple[int, int]) -> Outcome:
    return judge(random_case(*argument))


def many_alike(clients: int, seed: int) -> Federation:
    """Make a federation of clients with nearly the same example each, that train a small head in float32."""
    rng = np.random.default_rng((seed, clients))
    classes, row = 2, rng.uniform(0.2, 0.5, size=(1, int(rng.integers(1, 5))))
    loss = SoftmaxL2(float(rng.choice([0.01, 0.5])), row_norm=1.0)
    objectives = [
        Softmax(np.hstack([row * (1 + spread), np.ones((1, 1))]), np.eye(classes)[:1], loss.l2)
        for spread in rng.choice([0.0, 1e-7]) * rng.normal(size=clients)
    ]
    rate = float(rng.uniform(0.3, 1.9)) / loss.curvature.high
    training = LocalTraining(1, rate, loss, precision="float32")
    start = (0.5 * rng.normal(size=classes * (row.size + 1))).astype(np.float32)
    return Federation(objectives, [1] * clients, training, Sampling(), start, seed)


def judge_many(argument: tuple[int, int]) -> Outcome:
    """Hold the bound of one of many, and of a hundredth of them, against the distance."""
    clients, seed = argument
    right, violations, worst, last = many_alike(clients, seed), 0, 0.0, []
    caught = dict.fromkeys(Wrong, 0)
    everybody, start = frozenset(range(clients)), Path((right.start,))
    for federation in (right, replace(right, narrow_mean=True)):
        path = train(federation, start, everybody, 2, 0)
        for group in ({clients // 2}, set(range(0, clients, 100))):
            alpha = distances(path.models, retrained_without(federation, path, group))
            psi = group_sensitivity(path.edges, group)
            above = int((alpha > psi).sum())
            if federation.narrow_mean:
                caught[Wrong.NARROW_MEAN] += above
                continue
            violations += above
            worst = max(worst, float((alpha[1:] / psi[1:]).max()))
            last.append(float(alpha[-1] / psi[-1]))
    return Outcome(last, worst, violations, 0.0, caught)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--cases", type=int, help="number of federations (2,000; with --quick 60)")
    options.add_argument("--seed", type=int, default=1, help="another seed gives other federations")
    chosen = options.parse_args()
    cases = chosen.cases or (60 if chosen.quick else 2000)
    arguments = [(chosen.seed, index) for index in range(cases)]
    with ProcessPoolExecutor() as workers:
        outcomes = list(progress(workers.map(_judge_index, arguments, chunksize=4), "federations", cases))
        # So many clients, so many times: the largest take minutes.
        sizes = {1000: 1} if chosen.quick else {1000: 4, 5000: 4, 10_000: 2, 30_000: 1, 100_000: 1}
        crowds = [(clients, seed) for clients, times in sizes.items() for seed in range(times)]
        outcomes += progress(workers.map(judge_many, crowds), "many alike", len(crowds))
        solves = list(progress(workers.map(judge_solve, range(20 if chosen.quick else 600)), "solves"))
        servers = list(workers.map(judge_server, range(2 if chosen.quick else 60)))
        changed = list(workers.map(judge_changed_data, range(1 if chosen.quick else 60)))
        kept = list(progress(workers.map(judge_kept_sums, range(2 if chosen.quick else 200)), "kept sums"))
        keepers = dict(zip(KEEPERS, workers.map(judge_wrong_sums, KEEPERS), strict=True))
        # The others are a part of falsify --quick, too.
        names = list(SERVER_APPS)[-1:] if chosen.quick else list(SERVER_APPS)
        apps = [list(workers.map(judge_server_app, [(name, off) for name in names])) for off in (False, True)]
    last = [ratio for outcome in outcomes for ratio in outcome.last_ratios]
    caught: dict[Wrong | WrongSolve, int] = {
        wrong: sum(outcome.caught[wrong] for outcome in outcomes) for wrong in Wrong
    }
    caught |= {wrong: sum(outcome.caught[wrong] for outcome in solves) for wrong in WrongSolve}
    shown: dict[str, int] = {wrong.value: count for wrong, count in caught.items()}
    shown |= {f"it {app.name}": app.false for app in apps[1]}
    shown |= {f"it {name}": differs for name, differs in keepers.items()}
    finish(
        {
            "cases": cases,
            "many_alike": len(crowds),
            "solves": len(solves),
            "worst_ratio_of_solves": max(outcome.worst_ratio for outcome in solves),
            "violations": sum(outcome.violations for outcome in outcomes)
            + sum(outcome.violations for outcome in solves)
            + sum(each.claimed and each.broken for each in servers)
            + sum(each.different for each in changed)
            + sum(each.different for each in kept)
            + sum(app.false for app in apps[0]),
            "servers": len(servers),
            "servers_broken": sum(each.broken for each in servers),
            "exact_pairs": sum(each.pairs for each in changed),
            "kept_sums_pairs": sum(each.pairs for each in kept),
            "worst_ratio": max(outcome.worst_ratio for outcome in outcomes),
            "median_ratio": float(np.median(last)),
            "tight_error": max(outcome.tight_error for outcome in outcomes),
            "wrong_versions_caught": sum(count > 0 for count in shown.values()),
            "violations_of_wrong_versions": shown,
        }
    )


if __name__ == "__main__":
    main()
