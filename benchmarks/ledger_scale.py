"""Does a ledger stay fast and small over 10^7 contributions, and is a plan read from it at once?

A million clients are registered, then 10^4 rounds of 10^3 of them each go through ``register`` and ``commit_round``,
on SQLite and on a PostgreSQL server that is started for it. Models are digests only: the ledger is what is measured.

``growth`` is the median commit of the last tenth of the rounds over that of the first tenth. A machine that is slower
now than it was an hour ago would spoil that, so the first tenth is timed on a twin, a second ledger with the same
clients: its rounds and the last rounds of the old ledger are committed in turn.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np
from sqlalchemy import create_engine, text

from benchmarks._measure import finish, parser, progress
from benchmarks._postgresql import server
from benchmarks.recorded import FACTS, TRAINING
from rescind.core.arrays import Clients
from rescind.core.edges import Edge, ModelId, RoundKind
from rescind.core.sensitivity import group_sensitivity
from rescind.history.bounds import keep_bounds, read_bounds
from rescind.history.events import record, write_body
from rescind.history.lineage import Lineage, lineage_of
from rescind.history.run import Run
from rescind.history.timeline import Timeline, newest_model
from rescind.ledger.records import Branch, RoundRecord, pack_participants, round_edge
from rescind.ledger.sql import SqlLedger

TIME = "2026-11-01T12:00:00+00:00"


@dataclass(frozen=True)
class Size:
    """How much is recorded; ``batch`` clients are registered at once, ``leaving`` ask to be forgotten together."""

    clients: int
    rounds: int
    participants: int
    leaving: int
    batch: int = 10_000

    @property
    def contributions(self) -> int:
        return self.rounds * self.participants


FULL = Size(clients=1_000_000, rounds=10_000, participants=1_000, leaving=10_000)
QUICK = Size(clients=10_000, rounds=500, participants=200, leaving=100)


@dataclass(frozen=True)
class Location:
    """Where one run can be opened, and how many bytes it takes."""

    open: Callable[[bool], SqlLedger]
    size: Callable[[], int]


@dataclass
class Growing:
    """A ledger with the times that its rounds took."""

    ledger: SqlLedger
    size: Size
    rng: np.random.Generator
    commits: list[float] = field(default_factory=list)
    registrations: list[float] = field(default_factory=list)

    def start(self, label: str) -> float:
        """Start the run, register everybody, and give the seconds that this took."""
        record(self.ledger, Run(FACTS, ()), TIME)
        self.ledger.start_branch(0, model_digest(0), write_body(Branch(0, model_digest(0))), TIME)
        start = perf_counter()
        for first in progress(range(0, self.size.clients, self.size.batch), f"{label}: registering"):
            self.ledger.register([name(each) for each in range(first, first + self.size.batch)], TIME)
        return perf_counter() - start

    def record(self) -> None:
        """Record a round as a recorder does, and time what the ledger does of it."""
        count, at = self.size.participants, len(self.commits) + 1
        drawn = self.rng.choice(self.size.clients, size=count, replace=False, shuffle=False)
        names = [name(each) for each in drawn.tolist()]
        start = perf_counter()
        clients = self.ledger.register(names, TIME)
        self.registrations.append(perf_counter() - start)
        packed = pack_participants(
            np.sort(clients),
            self.rng.integers(1, 500, count).astype(np.float64),
            self.rng.random(count),
            self.rng.integers(1, 4, count, dtype=np.int32),
        )
        factor = round_edge(RoundKind.TRAINED, packed, 1.0, 1e-12, None, TRAINING).factor
        round_ = RoundRecord(
            ModelId(0, at), packed, 1.0, 1e-12, factor, model_digest(at), salt=model_digest(at).encode()[:32]
        )
        release = [ModelId(0, at - 1)] if at > 1 else []
        start = perf_counter()
        self.ledger.commit_round(round_, TIME, release)
        self.commits.append(perf_counter() - start)


def name(client: int) -> str:
    return f"phone-{client:07d}"


def model_digest(round_: int) -> str:
    return hashlib.sha256(str(round_).encode()).hexdigest()


@contextmanager
def in_a_folder() -> Iterator[Callable[[str], Location]]:
    with tempfile.TemporaryDirectory(prefix="rescind-ledger-scale-") as folder:

        def place(run: str) -> Location:
            # A folder each: who writes a history holds its folder.
            path = Path(folder) / run / "ledger.sqlite"
            path.parent.mkdir(mode=0o700, exist_ok=True)
            # Asked after closing, when the write-ahead log has gone into the file; whatever is left counts too.
            return Location(
                lambda create: SqlLedger.sqlite(path, path.with_suffix(".secret"), create=create),
                lambda: sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*")),
            )

        yield place


@contextmanager
def on_a_server() -> Iterator[Callable[[str], Location]]:
    with server() as address, tempfile.TemporaryDirectory(prefix="rescind-ledger-scale-") as folder:
        engine = create_engine(address.replace("postgresql:", "postgresql+psycopg:"))
        query = text(
            "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class AS c JOIN pg_namespace AS n "
            "ON n.oid = c.relnamespace WHERE n.nspname = :schema AND c.relkind = 'r'"
        )

        def size(run: str) -> int:
            with engine.connect() as connection:
                return int(connection.execute(query, {"schema": f"rescind_{run}"}).scalar_one())

        try:
            yield lambda run: Location(
                lambda create: SqlLedger.postgresql(address, run, Path(folder, "secret"), create=create),
                lambda: size(run),
            )
        finally:
            engine.dispose()


def recorded(place: Callable[[str], Location], size: Size, label: str) -> dict[str, object]:
    """Record the rounds, the last tenth in turn with the first tenth of a twin."""
    with ExitStack() as stack:
        old, twin = (
            Growing(stack.enter_context(writing(place(run).open(True))), size, np.random.default_rng(seed))
            for seed, run in enumerate(("old", "twin"))
        )
        seconds = old.start(label)
        tenth = size.rounds // 10
        for _ in progress(range(size.rounds - tenth), f"{label}: rounds"):
            old.record()
        twin.start(f"{label}: twin")
        for _ in progress(range(tenth), f"{label}: in turn with the twin"):
            old.record()
            twin.record()
    commits, first, last = (
        1e3 * np.array(old.commits),
        1e3 * np.array(twin.commits),
        1e3 * np.array(old.commits[-tenth:]),
    )
    return {
        "commit_p50_ms": float(np.median(commits)),
        "commit_p99_ms": float(np.quantile(commits, 0.99)),
        "growth": float(np.median(last) / np.median(first)),
        "first_tenth_ms": float(np.median(first)),
        "last_tenth_ms": float(np.median(last)),
        # As it would be without the twin, the machine's moods included.
        "first_tenth_then_ms": float(np.median(commits[:tenth])),
        "register_p50_ms": 1e3 * float(np.median(old.registrations)),
        "register_everybody_s": seconds,
        "bytes_per_contribution": place("old").size() / size.contributions,
    }


@contextmanager
def writing(ledger: SqlLedger) -> Iterator[SqlLedger]:
    try:
        with ledger.writing():
            yield ledger
    finally:
        ledger.close()


def planned(place: Callable[[str], Location], size: Size, label: str) -> dict[str, object]:
    """Open the ledger again, read plans from it, and compare them with the whole path."""
    start = perf_counter()
    ledger = place("old").open(False)
    opened = perf_counter() - start
    rng = np.random.default_rng(3)
    try:
        ones = [np.array([each]) for each in rng.integers(1, size.clients + 1, 20).tolist()]
        # Whoever never joined costs less.
        ones = [each for each in ones if ledger.rounds_of(each)]
        many = np.sort(rng.choice(size.clients, size=size.leaving, replace=False)) + 1
        one_seconds = [timed_plan(ledger, each)[0] for each in progress(ones, f"{label}: plans for one")]
        many_seconds, many_edges = timed_plan(ledger, many)
        whole = newest_lineage(ledger)
        start = perf_counter()
        bounds = read_bounds(ledger, Timeline.read(ledger))
        replay = perf_counter() - start
        start = perf_counter()
        keep_bounds(ledger, ModelId(0, size.rounds), bounds)
        keep = perf_counter() - start
        start = perf_counter()
        read_bounds(ledger, Timeline.read(ledger))
        resume = perf_counter() - start
        groups = [(ones[0], timed_plan(ledger, ones[0])[1]), (many, many_edges)]
        differ = sum(not agree(whole.edges, edges, group) for group, edges in groups)
    finally:
        ledger.close()
    return {
        "open_s": opened,
        "plan_one_s": float(np.median(one_seconds)),
        "plan_one_worst_s": max(one_seconds),
        "plan_many_s": many_seconds,
        "leaving": size.leaving,
        # What a recorder derives from all rounds: read from them, kept in the ledger, and read from there.
        "replay_s": replay,
        "keep_bounds_s": keep,
        "resume_s": resume,
        "paths_agree": int(not differ),
    }


def newest_lineage(ledger: SqlLedger, group: Clients | None = None) -> Lineage:
    timeline = Timeline.read(ledger)
    return lineage_of(ledger, timeline.branches, newest_model(ledger, timeline), TRAINING, group)


def timed_plan(ledger: SqlLedger, group: Clients) -> tuple[float, Sequence[Edge]]:
    start = perf_counter()
    edges = newest_lineage(ledger, group).edges
    return perf_counter() - start, edges


def agree(whole: Sequence[Edge], short: Sequence[Edge], group: Clients) -> bool:
    """Say whether the short path gives the same Psi as the whole one, to the last bit, and one above 0."""
    expected = group_sensitivity(whole, group.tolist())
    return bool(expected[-1] > 0) and np.array_equal(expected, group_sensitivity(short, group.tolist()))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", choices=("sqlite", "postgresql"), help="leave the other database out")
    chosen = options.parse_args()
    # So that being told to end leaves no server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    size = QUICK if chosen.quick else FULL
    backends = {"sqlite": in_a_folder, "postgresql": on_a_server}
    result: dict[str, object] = {
        "clients": size.clients,
        "rounds": size.rounds,
        "participants": size.participants,
        "contributions": size.contributions,
    }
    agreements = []
    for backend, place in backends.items():
        if chosen.only in (None, backend):
            with place() as run:
                figures = recorded(run, size, backend) | planned(run, size, backend)
            result[backend] = figures
            # A line for whoever waits; the last one has all.
            print(backend, figures, flush=True)
            agreements.append(figures["paths_agree"])
    # A number, as the gate wants it.
    finish(result | {"paths_agree": int(all(agreements))})


if __name__ == "__main__":
    main()
