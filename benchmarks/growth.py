"""Does each call take as long as its work, and does what is none of its work leave it alone?

Histories are made in which one number differs by decades: known clients, rounds, participants of a round, parameters,
kept models, requests. In each of them every call is timed, the best of a few times. On SQLite that is processor time,
which other processes on the machine do not change; on PostgreSQL, where the server does a part of the work, it is the
time on the clock. Of a call whose work grows with the number the exponent p should be at most 1.1; of one whose work
does not it should be at most 0.1.

p is fitted so that neither a constant part hides it nor noise makes it up. Where the time at least doubles, it is the
smallest p with which some a + b n^p, neither a nor b negative, misses the times by at most 15 %, root mean square; or
the best one, if none does. Where the time less than doubles there is hardly a growing part: there, and wherever the
work does not grow, p is the slope of log time over log size from the first size to the last, the constant included.

Rounds are written by the ledger, many in a transaction, without training anything. Whoever leaves took part in the
last tenth of them, so that training goes on from a kept model from before.
"""

from __future__ import annotations

import math
import signal
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls
from securesystemslib.signer import CryptoSigner

from benchmarks._measure import finish, parser, progress
from benchmarks._postgresql import server
from benchmarks.ledger_scale import TIME, model_digest, name
from benchmarks.recorded import FACTS, TRAINING
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.verification import verify
from rescind.core.aggregation import RoundMeasurement
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId, RoundKind
from rescind.core.facts import Mode
from rescind.core.planning import Candidate, candidates
from rescind.core.rounds import Replies, RoundResult
from rescind.core.summary import Node, Request
from rescind.history.events import RecordedPlan, RequestFiled, record, write_body
from rescind.history.history import History
from rescind.history.recorder import Recorder
from rescind.history.run import Run, describe_model
from rescind.ledger.records import Branch, ErasureLevel, RoundRecord, Span, pack_participants, round_edge
from rescind.pages.report import render_report
from rescind.views.overview import overview, read_gauges
from rescind.views.requests import open_requests

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
BUDGET = Budget(3.0, 1e-5)
MANY = 1_000
GROWS, STAYS = 1.1, 0.1
NOISE = 0.15


@dataclass(frozen=True)
class Size:
    """What a history holds."""

    clients: int = 10_000
    rounds: int = 300
    participants: int = 100
    parameters: int = 10_000
    kept: int = 16
    requests: int = 1


@dataclass(frozen=True)
class Axis:
    """A number that differs, and the calls whose work grows with it; ``on`` is a database's name."""

    number: str
    sizes: tuple[int, ...]
    grows: frozenset[str]
    base: Size = field(default_factory=Size)
    on: str = "sqlite"


EVERYTHING = (
    "commit",
    "open",
    "status",
    "plan_one",
    "plan_many",
    "ask",
    "erase",
    "certify",
    "verify",
    "report",
    "open_bytes",
)
_WHOLE = {"verify", "erase", "report"}
AXES = (
    # What is held in memory is of those who took part, and more of many clients did.
    Axis("clients", (10**3, 10**4, 10**5, 10**6), frozenset({"status", "open_bytes", *_WHOLE})),
    Axis("rounds", (10**2, 10**3, 10**4), frozenset(EVERYTHING) - {"commit"}),
    Axis(
        "participants",
        (10, 100, 1000),
        frozenset({"commit", "open", "open_bytes", "status", "plan_one", "plan_many", *_WHOLE}),
        Size(clients=100_000),
    ),
    Axis(
        "parameters",
        (10**4, 10**5, 10**6, 10**7),
        frozenset({"commit", "plan_one", "plan_many", "verify", "report"}),
        Size(kept=4),
    ),
    Axis("kept", (8, 16, 32, 64, 128), frozenset({"commit", "plan_one", "plan_many", *_WHOLE})),
    Axis("requests", (1, 10, 100, 1000), frozenset(EVERYTHING) - {"commit", "open_bytes"}),
    Axis("rounds", (10**2, 10**3, 10**4), frozenset(EVERYTHING) - {"commit"}, on="postgresql"),
)
SMALL = Size(clients=300, rounds=40, participants=10, parameters=100, kept=4)
QUICK = (
    Axis("rounds", (40, 80), AXES[1].grows, SMALL),
    Axis("requests", (1, 5), AXES[5].grows, SMALL),
    Axis("rounds", (40, 80), AXES[6].grows, SMALL, on="postgresql"),
)


@dataclass(frozen=True)
class World:
    """A history of a size, which can be opened again and again."""

    size: Size
    open: Callable[[], History]
    start: dict[str, np.ndarray]
    rng: np.random.Generator
    clock: Callable[[], float]

    def best(self, work: Callable[[], object]) -> float:
        """Return the least time that something takes, of as many as a second has room for."""
        seconds: list[float] = []
        while not seconds or (sum(seconds) < 1 and len(seconds) < 10):
            start = self.clock()
            work()
            seconds.append(self.clock() - start)
        return min(seconds)

    def recording(self, history: History) -> Any:
        return history.recording(FACTS, self.start, capacity=self.size.kept)

    def leavers(self) -> range:
        """Whoever asks to be forgotten; the last ones are known too, and never took part."""
        return range(self.size.requests)

    def last_before(self) -> int:
        """Return the last round that nobody of them joined."""
        return self.size.rounds - self.size.rounds // 10

    def draw(self, at: int) -> np.ndarray:
        """Return who takes part in a round; whoever leaves does in the last tenth."""
        count, first = self.size.participants, self.size.requests + 2
        drawn = first + self.rng.choice(self.size.clients - first, size=count, replace=False, shuffle=False)
        if at > self.last_before():
            drawn[0] = at % self.size.requests
        return np.sort(drawn)

    def model(self) -> dict[str, np.ndarray]:
        return {"theta": self.rng.random(self.size.parameters, dtype=np.float32)}

    def build(self) -> None:
        """Write the history: clients, rounds, and of the models only those that stay."""
        size = self.size
        kept = {math.ceil(self.last_before() * at / size.kept) for at in range(1, size.kept + 1)}
        with self.open() as history, history.ledger.writing():
            ledger = history.ledger
            record(ledger, Run(FACTS, describe_model(self.start), size.kept), TIME)
            first = history.models.put(self.start)
            ledger.start_branch(0, first, write_body(Branch(0, first)), TIME)
            for at in range(0, size.clients, 10_000):
                ledger.register([name(each) for each in range(at, min(at + 10_000, size.clients))], TIME)
            for at in range(1, size.rounds + 1, 250):
                with at_once(ledger):
                    for number in range(at, min(at + 250, size.rounds + 1)):
                        stored = number in kept or number == size.rounds
                        self._commit(history, number, history.models.put(self.model()) if stored else "", kept)

    def _commit(self, history: History, number: int, model: str, kept: set[int]) -> None:
        clients, count = self.draw(number) + 1, self.size.participants
        numbers = (self.rng.integers(1, 500, count).astype(np.float64), self.rng.random(count))
        packed = pack_participants(clients, *numbers, np.full(count, 3, dtype=np.int32))
        factor = round_edge(RoundKind.TRAINED, packed, 1.0, 1e-12, None, TRAINING).factor
        digest = model or model_digest(number)
        salt = model_digest(number).encode()[:32]
        round_ = RoundRecord(ModelId(0, number), packed, 1.0, 1e-12, factor, digest, salt=salt)
        release = [ModelId(0, number - 1)] if number > 1 and number - 1 not in kept else []
        history.ledger.commit_round(round_, TIME, release)


@contextmanager
def at_once(ledger: Any) -> Iterator[None]:
    """Write everything in one transaction, which no recorder does; the histories are made faster so."""
    with ledger._transaction():
        ledger._transaction = nullcontext
        try:
            yield
        finally:
            del ledger._transaction


def measure(world: World) -> tuple[dict[str, float], int]:
    """Return how long each call takes, and how many problems were found."""
    took = {"open": math.inf}
    with world.open() as history, world.recording(history):
        pass
    for _ in range(3):
        with world.open() as history:
            start = world.clock()
            with world.recording(history) as recorder:
                took["open"] = min(took["open"], world.clock() - start)
                commits = world.best(partial(commit, world, recorder))
                took["commit"] = min(took.get("commit", math.inf), commits)
    with world.open() as history:
        tracemalloc.start()
        with world.recording(history):
            took["open_bytes"] = float(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    asked = ask(world, took)
    took["status"] = world.best(lambda: fresh(world, show))
    many = fresh(world, took_part)
    took["plan_one"] = world.best(lambda: fresh(world, lambda history: plan(history, many[:1])))
    took["plan_many"] = world.best(lambda: fresh(world, lambda history: plan(history, many)))
    forget(world, asked)
    with world.open() as history:
        start = world.clock()
        history.erase(history.plan_erasure(ErasureLevel.PURGE))
        took["erase"] = world.clock() - start
    signer = CryptoSigner.generate_ed25519()
    took["certify"] = world.best(
        lambda: fresh(world, lambda history: sign(build_statement(history, asked[0]), [signer]))
    )
    content = fresh(world, lambda history: sign(build_statement(history, asked[0]), [signer]))
    verified = [signer.public_key]
    took["verify"] = world.best(lambda: fresh(world, lambda history: verify(content, verified, history=history)))
    took["report"] = world.best(lambda: fresh(world, partial(render_report, private=False)))
    return took, len(fresh(world, lambda history: history.integrity.verify()))


def fresh(world: World, work: Callable[[History], Any]) -> Any:
    """Do something with a history that was not read yet."""
    with world.open() as history:
        history.journal.clock = lambda: NOW
        return work(history)


def commit(world: World, recorder: Recorder) -> None:
    count = world.size.participants
    names = tuple(map(name, world.draw(0).tolist()))
    measured = RoundMeasurement(world.rng.random(count), 1.0, None)
    weights = world.rng.integers(1, 500, count).astype(np.float64)
    replies = Replies(names, weights, (3,) * count, {}, batch=0)
    recorder.record(RoundResult(replies, world.model(), measured, 1e-12))


def ask(world: World, took: dict[str, float]) -> tuple[int, ...]:
    """File the requests, the last ones as users do, and return their numbers."""
    with world.open() as history, history.ledger.writing(), at_once(history.ledger):
        ledger: Any = history.ledger
        until = (NOW + timedelta(days=30)).isoformat()
        ledger._beside_the_writer = nullcontext
        for leaver in world.leavers():
            (client,) = history.participants.find([name(leaver)])
            digests = (history.participants.blind(name(leaver)),)
            record(ledger, RequestFiled(Request(frozenset({client}), BUDGET), until, digests), NOW.isoformat())
    took["ask"] = math.inf
    for extra in (world.size.requests, world.size.requests + 1):
        with world.open() as history:
            history.journal.clock = lambda: NOW
            start = world.clock()
            number = history.requests.ask([name(extra)], BUDGET)
            took["ask"] = min(took["ask"], world.clock() - start)
            history.requests.withdraw(number)
    return tuple(range(1, world.size.requests + 1))


def show(history: History) -> None:
    overview(history)
    open_requests(history, NOW)
    read_gauges(history, NOW)


def took_part(history: History) -> list[str]:
    """Return the names of so many who took part."""
    clients: dict[int, None] = {}
    for round_ in history.ledger.rounds(Span(0, 1, MANY)):
        clients |= dict.fromkeys(round_.clients.tolist())
        if len(clients) >= MANY:
            break
    return history.participants.names(list(clients)[:MANY])


def plan(history: History, names: Sequence[str]) -> None:
    request = Request(history.participants.find(names), BUDGET)
    candidates(history.summary(request.group), request)


def forget(world: World, asked: tuple[int, ...]) -> None:
    """Go back to the last kept model that knows nobody of them, and train a round."""
    with world.open() as history:
        history.journal.clock = lambda: NOW
        before = [model_id for model_id in history.kept() if model_id.round <= world.last_before()]
        parent = max(before)
        chosen = Candidate(Node(parent.round, 0, parent.round), 0.0, Mode.EXACT, (), 0.0, 1.0)
        history.requests.record_plan(RecordedPlan(asked, chosen, public_plan=False))
        with world.recording(history) as recorder:
            recorder.restart(parent, history.model(parent), requests=asked)
            commit(world, recorder)
            recorder.record_retrained()


def exponent(sizes: Sequence[int], seconds: Sequence[float], *, grows: bool) -> float:
    """Return the fitted exponent, as this module's first lines say."""
    slope = math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0])
    if not grows or len(sizes) < 3 or seconds[-1] < 2 * seconds[0]:
        return slope
    # A smaller history that took longer was disturbed.
    times = np.minimum.accumulate(np.array(seconds)[::-1])[::-1]
    misses: dict[float, float] = {}
    for power in np.arange(0.05, 3, 0.01).tolist():
        # Relative to the times, so that the largest does not decide alone.
        terms = np.stack([1 / times, np.array(sizes, dtype=np.float64) ** power / times], axis=1)
        misses[power] = float(nnls(terms, np.ones(len(times)))[1]) / math.sqrt(len(times))
    allowed = max(NOISE, min(misses.values()))
    return min(power for power, miss in misses.items() if miss <= allowed)


@contextmanager
def worlds(on: str) -> Iterator[Callable[[Size], World]]:
    """Return what makes a world on a database."""
    with tempfile.TemporaryDirectory(prefix="rescind-growth-") as folder, ExitStack() as stack:
        address = stack.enter_context(server()) if on == "postgresql" else None
        made: list[Path] = []

        def make(size: Size) -> World:
            place = Path(folder) / f"world{len(made)}"
            made.append(place)
            place.mkdir(mode=0o700)
            options = {"secret": place / "secret", "checkpoints": str(place / "models")}

            def opened() -> History:
                if address is None:
                    return History(place / "history", secret=place / "secret")
                return History(address, run=place.name, **options)  # type: ignore[arg-type]

            start = {"theta": np.zeros(size.parameters, dtype=np.float32)}
            clock = process_time if address is None else perf_counter
            return World(size, opened, start, np.random.default_rng(1), clock)

        yield make


def measure_axis(axis: Axis) -> tuple[dict[str, list[float]], int]:
    """Return how long each call takes at each size of an axis."""
    seconds: dict[str, list[float]] = {}
    problems = 0
    with worlds(axis.on) as make:
        for size in progress(axis.sizes, f"{axis.number} on {axis.on}"):
            world = make(replace(axis.base, **{axis.number: size}))
            world.build()
            took, wrong = measure(world)
            problems += wrong
            # A line for whoever waits.
            print(
                axis.on, axis.number, size, {call: float(f"{value:.3g}") for call, value in took.items()}, flush=True
            )
            for call, value in took.items():
                seconds.setdefault(call, []).append(value)
    return seconds, problems


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", help="one number, such as rounds, or rounds_postgresql")
    chosen = options.parse_args()
    # So that being told to end leaves no server behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    table = Table("number", "call", *["at each size"], "exponent", "allowed")
    result: dict[str, Any] = {}
    worst = {GROWS: (-math.inf, ""), STAYS: (-math.inf, "")}
    problems = 0
    for axis in QUICK if chosen.quick else AXES:
        title = axis.number if axis.on == "sqlite" else f"{axis.number}_{axis.on}"
        if chosen.only not in (None, title):
            continue
        seconds, wrong = measure_axis(axis)
        problems += wrong
        result[title] = {"sizes": axis.sizes}
        for call in EVERYTHING:
            allowed = GROWS if call in axis.grows else STAYS
            fitted = exponent(axis.sizes, seconds[call], grows=allowed == GROWS)
            worst[allowed] = max(worst[allowed], (fitted, f"{call} by {title}"))
            result[title][call] = {"measured": seconds[call], "exponent": fitted, "allowed": allowed}
            shown = " ".join(f"{value:.3g}" for value in seconds[call])
            table.add_row(
                title, call, shown, f"{fitted:.2f}", f"{allowed:g}", style="red" if fitted > allowed else ""
            )
    Console(width=120).print(table)
    named = {"worst_exponent": worst[GROWS], "worst_independent": worst[STAYS]}
    finish(
        result
        | {key: value for key, (value, _) in named.items()}
        | {f"{key}_is": what for key, (_, what) in named.items()}
        | {"problems": problems}
    )


if __name__ == "__main__":
    main()
