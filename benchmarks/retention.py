"""How many rounds does it cost that only some checkpoints are kept?

Federations are trained for a thousand rounds; the rule sees them round by round. A client's best node is the last one
with Psi(n, c) <= Psi*; ``extra`` is how much earlier the last one is that it is *offered*, as a share of the rounds,
mean over the clients. Offered is what has seen the client, and what is set aside for exact restarts. ``exact`` is the
same for a client that goes back to before its first round. Each history is judged at six Psi*, the quantiles of all
Psi met in it, and at capacities of 8, 16 and 32. The rule is compared with evenly spaced checkpoints, with the public
schedule of strict runs, and with hindsight, all of which are taken as offered.

Hindsight is a dynamic programme. It is exact where the nodes that serve a client are the path up to one of them
(B >= 1). Elsewhere Psi dips and rises again, a client's node depends on all kept nodes at once, and the
programme gives a lower bound: a client that the next kept node does not serve is assumed to find its best one before
that. ``best_found`` is what a set of nodes found by exchanging single nodes really costs, so that the optimum lies
between the two. ``settings`` lists all of them at a capacity of 16. ``optimum_at_16`` is the lower bound, in the
setting that is worst for the rule.

At the hardest Psi* of a sampled federation with B < 1 a client can go back to one node in ten only, and whom 16 nodes
happen to miss at the last round differs by a few hundredths from seed to seed; ``on_the_way``, the mean over ten
moments of the history, is steadier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from benchmarks._measure import finish, parser, progress
from benchmarks.federations import Federation, Logistic, Path, Sampling, train
from rescind.core.arrays import Floats, Members
from rescind.core.edges import RoundEdge
from rescind.core.regularity import LogisticL2
from rescind.core.sensitivity import client_sensitivities
from rescind.core.tracker import SensitivityTracker
from rescind.core.training import LocalTraining
from rescind.history.retention import Retention, exact_rounds, exact_shares, public_schedule
from rescind.ledger.records import Branch

CAPACITIES = (8, 16, 32)
LEVELS = (0.1, 0.3, 0.5, 0.7, 0.9, 0.97)
COLUMNS, STEPS = 4, 2


@dataclass(frozen=True)
class Setting:
    """What is trained: an L2 term of 0 gives B = 1; ``rate`` is None where everybody takes part in every round."""

    l2: float
    rate: float | None
    heterogeneous: bool
    late: bool
    rounds: int = 1000
    clients: int = 100

    @property
    def name(self) -> str:
        return ", ".join(
            [
                f"L2 {self.l2:g}" if self.l2 else "convex",
                f"{self.rate * 100:g} % sampled" if self.rate else "all take part",
                "heterogeneous" if self.heterogeneous else "iid",
                *(["half join late"] if self.late else []),
            ]
        )


@dataclass(frozen=True)
class Outcome:
    """One history at one Psi*, and the figures at each capacity."""

    setting: str
    level: float
    prefixes: bool
    unsafe: int
    at: dict[int, dict[str, float]]


SETTINGS = (
    Setting(0.0, None, heterogeneous=False, late=False),
    Setting(0.0, None, heterogeneous=True, late=True),
    Setting(0.0, 0.1, heterogeneous=False, late=False),
    Setting(0.0, 0.1, heterogeneous=True, late=True),
    Setting(0.01, None, heterogeneous=True, late=True),
    Setting(0.01, 0.1, heterogeneous=False, late=False),
    Setting(0.01, 0.1, heterogeneous=True, late=True),
    Setting(0.05, None, heterogeneous=False, late=True),
    Setting(0.05, 0.1, heterogeneous=False, late=False),
    Setting(0.05, 0.1, heterogeneous=True, late=False),
    Setting(0.05, 0.1, heterogeneous=True, late=True),
)
QUICK = tuple(
    Setting(l2, rate, heterogeneous=True, late=late, rounds=150, clients=30)
    for l2, rate, late in ((0.0, None, True), (0.0, 0.2, False), (0.05, None, True), (0.05, 0.2, False))
)


def history(setting: Setting, seed: int) -> tuple[RoundEdge, ...]:
    """Train a small federation of logistic heads and give its rounds; half of the clients may join later."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=COLUMNS)
    objectives = []
    for _ in range(setting.clients):
        size = int(rng.integers(5, 40))
        rows = rng.normal(size=(size, COLUMNS)) + (rng.normal(size=COLUMNS) if setting.heterogeneous else 0.0)
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
        labels = rows @ direction + 0.15 * rng.normal(size=size) > 0
        if setting.heterogeneous:
            labels ^= rng.random(size) < rng.uniform(0, 0.8)
        features = np.hstack([rows, np.ones((size, 1))])
        objectives.append(Logistic(features, labels[:, None].astype(np.float64), setting.l2))
    training = LocalTraining(steps=STEPS, learning_rate=1.0, loss=LogisticL2(setting.l2, 1.0))
    federation = Federation(
        objectives=objectives,
        steps=[STEPS] * setting.clients,
        training=training,
        sampling=Sampling(rate=setting.rate),
        start=np.zeros(COLUMNS + 1),
        seed=seed,
    )
    joins = np.zeros(setting.clients, dtype=np.int64)
    if setting.late:
        joins[::2] = rng.integers(0, setting.rounds * 8 // 10, len(joins[::2]))
    path = Path((federation.start,))
    times = np.unique([*joins, 0, setting.rounds]).tolist()
    for start, end in pairwise(times):
        path = train(federation, path, frozenset(np.flatnonzero(joins <= start).tolist()), end - start, start)
    return tuple(edge for edge in path.edges if isinstance(edge, RoundEdge))


def last_served(serves: Members) -> NDArray[np.int64]:
    """Give, for every node and client, the last node up to there that serves the client; node 0 always does."""
    nodes = np.arange(len(serves))[:, None]
    return np.asarray(np.maximum.accumulate(np.where(serves, nodes, 0), axis=0))


def chosen(serves: Members, kept: Iterable[int]) -> NDArray[np.int64]:
    """Return the last kept node that serves each client."""
    nodes = np.array(sorted(kept))
    return np.asarray(np.where(serves[nodes], nodes[:, None], 0).max(axis=0))


def extra(serves: Members, kept: Iterable[int], offered: Members | None = None) -> float:
    """Return the share of the rounds that the clients lose on average if they are offered these nodes, or all."""
    found = chosen(serves if offered is None else serves & offered, kept)
    return float((last_served(serves)[-1] - found).mean() / (len(serves) - 1))


def set_aside(node: int, capacity: int) -> frozenset[int]:
    """Return the nodes that a run with a goal keeps for exact restarts while it has one branch."""
    return exact_rounds(0, node, exact_shares({0: Branch(0, "")}, capacity)[0])


def offered(psi: Floats, node: int, capacity: int) -> Members:
    """Tell which nodes each client is offered: those that have seen it, and those that are set aside."""
    found = psi[: node + 1] > 0
    found[list(set_aside(node, capacity))] = True
    return found


def hindsight(serves: Members, capacity: int) -> tuple[float, tuple[int, ...]]:
    """Return the least extra that any kept nodes could have cost (or less, see above), and the nodes it comes from.

    ``losses[k, m]`` is what all clients whose best node lies in k, ..., m - 1 lose if k and m are kept and nothing
    between them; the programme adds one node more at a time, from the end of the path to its start.
    """
    end = len(serves) - 1
    reached = last_served(serves)
    best = reached[-1]
    losses = np.full((end + 1, end + 1), np.inf)
    for node in range(end):
        lost = np.where(best >= node, best - reached[node], 0)
        losses[node, node + 1 :] = np.cumsum(np.bincount(best, weights=lost, minlength=end + 1))[node:end]
    # From the last node on nothing is lost: fewer nodes than allowed may be kept.
    losses[end, end] = 0.0
    rest, steps = losses[:, end], []
    for _ in range(capacity):
        totals = losses + rest
        step = totals.argmin(axis=1)
        rest = totals[np.arange(end + 1), step]
        steps.append(step)
    node, kept = 0, {0, end}
    for step in reversed(steps):
        node = int(step[node])
        kept.add(node)
    return float(rest[0] / serves.shape[1] / end), tuple(sorted(kept))


def exchanged(serves: Members, capacity: int) -> tuple[int, ...]:
    """Look for kept nodes by adding the most useful one, then by exchanging single nodes while that helps."""
    end = len(serves) - 1
    values = np.where(serves, np.arange(end + 1)[:, None], 0)
    always, kept = values[end], list[int]()
    while len(kept) < capacity:
        now = np.maximum(always, values[kept].max(axis=0, initial=0))
        kept.append(int(np.maximum(values, now).sum(axis=1).argmax()))
    improved = True
    while improved:
        improved = False
        for place in range(capacity):
            others = kept[:place] + kept[place + 1 :]
            now = np.maximum(always, values[others].max(axis=0, initial=0))
            totals = np.maximum(values, now).sum(axis=1)
            if totals.max() > totals[kept[place]]:
                kept[place], improved = int(totals.argmax()), True
    return tuple(sorted({0, end, *kept}))


def evenly(end: int, capacity: int) -> tuple[int, ...]:
    return tuple(np.linspace(0, end, capacity + 2).round().astype(int).tolist())


def judge(setting: Setting, seed: int, levels: Sequence[float]) -> list[Outcome]:
    """Run the rule over one history at every Psi* and capacity, and compare."""
    edges = history(setting, seed)
    end = len(edges)
    psi = client_sensitivities(edges, range(setting.clients), range(end + 1))
    goals = np.quantile(psi[psi > 0], levels).tolist()
    rules = {(goal, capacity): Retention(capacity, goal) for goal in goals for capacity in CAPACITIES}
    moments = range(end // 10, end + 1, end // 10)
    tracker, on_the_way = SensitivityTracker(), {key: list[float]() for key in rules}
    lazy = np.zeros((end + 1, setting.clients))
    for edge in edges:
        tracker.record(edge)
        now = tracker.last_node
        lazy[now] = tracker.sensitivities(np.arange(setting.clients))
        for (_, capacity), rule in rules.items():
            rule.observe(now, edge.clients, tracker.sensitivities, set_aside(now, capacity))
        if now in moments:
            for (goal, capacity), rule in rules.items():
                lost = extra(psi[: now + 1] <= goal, rule.kept, offered(psi, now, capacity))
                on_the_way[goal, capacity].append(lost)
    first = (psi > 0).argmax(axis=0) - 1
    first[first < 0] = end
    outcomes = []
    for level, goal in zip(levels, goals, strict=True):
        serves = psi <= goal
        prefixes = bool((serves == (np.arange(end + 1)[:, None] <= last_served(serves)[-1])).all())
        at, unsafe = {}, 0
        for capacity in CAPACITIES:
            kept, even, there = rules[goal, capacity].kept, evenly(end, capacity), offered(psi, end, capacity)
            bound, nodes = hindsight(serves, capacity)
            at[capacity] = {
                "extra": extra(serves, kept, there),
                "on_the_way": float(np.mean(on_the_way[goal, capacity])),
                "optimum": bound,
                "best_found": extra(serves, nodes if prefixes else exchanged(serves, capacity)),
                "evenly": extra(serves, even),
                "public_schedule": extra(serves, public_schedule(end, capacity)),
                "half_sigma": extra(psi <= goal / 2, kept, there),
                "half_sigma_evenly": extra(psi <= goal / 2, even),
                "double_sigma": extra(psi <= goal * 2, kept, there),
                "double_sigma_evenly": extra(psi <= goal * 2, even),
                "exact": extra(np.arange(end + 1)[:, None] <= first, kept, there),
            }
            unsafe += _unsafe(lazy, psi, goal, kept)
        outcomes.append(Outcome(setting.name, level, prefixes, unsafe, at))
    return outcomes


def _unsafe(lazy: Floats, psi: Floats, goal: float, kept: Sequence[int]) -> int:
    """Hand out nodes as the product does, by the lazy bound, and count those whose Psi is above Psi* after all."""
    count = 0
    for client in range(psi.shape[1]):
        handed = next(node for node in reversed(kept) if lazy[node, client] <= goal)
        count += int(psi[handed, client] > goal)
    return count


def _judge(argument: tuple[Setting, int, Sequence[float]]) -> list[Outcome]:
    return judge(*argument)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=1, help="another seed gives other federations")
    given = options.parse_args()
    settings, levels = (QUICK, LEVELS[::2]) if given.quick else (SETTINGS, LEVELS)
    arguments = [(setting, given.seed, levels) for setting in settings]
    with ProcessPoolExecutor() as workers:
        judged = list(progress(workers.map(_judge, arguments), "histories", len(arguments)))
    outcomes = [outcome for several in judged for outcome in several]
    worst = {capacity: max(outcomes, key=lambda each: each.at[capacity]["extra"]) for capacity in CAPACITIES}
    names = list(outcomes[0].at[16])
    finish(
        {
            **{f"extra_at_{capacity}": outcome.at[capacity]["extra"] for capacity, outcome in worst.items()},
            "optimum_at_16": worst[16].at[16]["optimum"],
            "best_found_at_16": worst[16].at[16]["best_found"],
            "worst_at_16": f"{worst[16].setting}, level {worst[16].level:g}",
            "above_a_tenth_at_16": sum(each.at[16]["extra"] > 0.1 for each in outcomes),
            "unsafe": sum(each.unsafe for each in outcomes),
            "largest_at_16": {name: max(each.at[16][name] for each in outcomes) for name in names},
            "mean_at_16": {name: float(np.mean([each.at[16][name] for each in outcomes])) for name in names},
            "settings": {
                f"{each.setting}, level {each.level:g}": {
                    name: round(each.at[16][name], 4) for name in ("extra", "optimum", "best_found", "evenly")
                }
                for each in outcomes
            },
        }
    )


if __name__ == "__main__":
    main()
