"""Does a history survive the death of its process at any instant?

A child records rounds, serves requests and erases, over and over, until it is killed: at times a random time after
its start, more often a moment after it has begun something chosen at random. Then the history is opened again and
compared with what the child had reported, and the next child goes on. Rounds are written behind. Every step of an
erasure is also cut off once, right before it and right after it. Half of the kills hit a history on SQLite, half one
on PostgreSQL.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from time import monotonic, sleep
from typing import Any

import numpy as np

from benchmarks._killing import BEGINNINGS, PATIENCE_WITH_A_STEP, Life, Location, open_locations, said, tell, watch
from benchmarks._measure import finish, parser, progress
from benchmarks.federations import Federation
from benchmarks.recorded import FACTS, federation, forget, name, train
from rescind.core.calibration import Budget
from rescind.core.edges import ROOT, ErasedStretch, ModelId, RoundEdge
from rescind.core.planning import candidates
from rescind.core.summary import Request
from rescind.errors import LockedError
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.recorder import Recorder
from rescind.history.timeline import FiledRequest, Timeline
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Entry, ErasureLevel, Span

# Large enough that writing a model takes a moment: 24,160 numbers.
FEATURES, CLASSES = 150, 160
START = {"theta": np.zeros((FEATURES + 1) * CLASSES)}
CLIENTS, PRESENT, ROUNDS_A_BRANCH, CAPACITY = 60, 5, 3, 3
# After so many lives a new history begins, so that its creation is hit as well.
LIVES = 12
LONGEST_LIFE = 0.8
# Seconds in which the lock of a killed child has to be free; PostgreSQL first has to notice the death.
PATIENCE = 10.0
FAILURES = ("rounds_lost", "torn", "wrong_digests", "orphans", "broken_chains", "erasures_incomplete")


# The child


def child(reports: Connection, location: Location, seed: int, cut: int | None) -> None:
    """Go on with a history until killed: whatever is begun is finished first, then a request follows some rounds."""
    # The parent ends it, not the terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    clients, rng = federation(1, CLIENTS, features=FEATURES, classes=CLASSES), np.random.default_rng(seed)
    watch(reports, cut)
    tell(reports, "phase", "opening")
    with location.open() as history:
        tell(reports, "phase", "recovering")
        with history.recording(FACTS, START, capacity=CAPACITY) as recorder:
            while True:
                tell(reports, "phase", "between")
                owed = to_be_erased(history.ledger)
                asked = [each for each in history.timeline.requests if each.open]
                if owed:
                    level = ErasureLevel.OUTPUT if rng.random() < 0.25 else ErasureLevel.PURGE
                    plan = history.plan_erasure(level)
                    recorder.erase(plan)
                    tell(reports, "erased", plan.branch)
                elif asked:
                    recorder.finish_writing()
                    serve(history, recorder, clients, asked[0], rng)
                elif recorder.model_id.round >= ROUNDS_A_BRANCH:
                    group, now = frozenset([int(rng.choice(retained(history)))]), datetime.now(UTC)
                    history.requests.file(Request(group, Budget(5.0, 1e-3)), now + timedelta(30))
                else:
                    gone = history.ledger.forgotten([name(each) for each in range(CLIENTS)])
                    present = [each for each in range(CLIENTS) if name(each) not in gone][:PRESENT]
                    train(recorder, clients, ROUNDS_A_BRANCH - recorder.model_id.round, present, behind=True)


def to_be_erased(ledger: Ledger) -> list[int]:
    """Return the requests that were served and whose erasure was not begun."""
    timeline = Timeline.read(ledger)
    begun = {number for deletion in timeline.deletions for number in deletion.plan.requests}
    return [filed.number for filed in timeline.requests if filed.served and filed.number not in begun]


def retained(history: History) -> list[int]:
    """Return the clients that took part on the path to the newest model and were not forgotten."""
    edges = [edge for edge in history.lineage().edges if isinstance(edge, RoundEdge | ErasedStretch)]
    return sorted(
        {client for edge in edges for client in edge.clients.tolist()} & set(history.ledger.identities().values())
    )


def serve(
    history: History, recorder: Recorder, clients: Federation, asked: FiledRequest, rng: np.random.Generator
) -> None:
    """Plan a request unless it is planned already, and restart by the plan."""
    planned = history.timeline.plans.get(asked.number)
    if planned is None:
        found = candidates(history.summary(asked.request.group), asked.request)
        planned = RecordedPlan((asked.number,), found[rng.integers(len(found))], public_plan=False)
        history.requests.record_plan(planned)
    parent = ModelId(planned.candidate.node.branch, planned.candidate.node.round)
    model = history.model(parent)
    if planned.candidate.sigma:
        forget(recorder, clients, parent, planned.candidate.sigma, (asked.number,), model)
    else:
        recorder.restart(parent, model, requests=(asked.number,))


# The parent


@dataclass
class Witness:
    """What must be true of a history, as its children reported it."""

    location: Location
    heads: dict[ModelId, bytes] = field(default_factory=dict)
    numbers: dict[ModelId, bytes] = field(default_factory=dict)
    keys: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    erased: set[int] = field(default_factory=set)
    done: int = 0

    def hear(self, reports: list[tuple[Any, ...]]) -> None:
        for kind, *words in reports:
            if kind == "round":
                self.heads[words[0]], self.numbers[words[0]] = words[1], words[2]
            elif kind == "erased":
                self.erased.add(words[0])

    def examine(self) -> Counter[str]:
        """Open the history again, as the next writer would, and count what is wrong with it."""
        checks: dict[str, Callable[[History, Recorder], Iterator[str]]] = {
            "rounds_lost": self._lost,
            "wrong_digests": self._wrong,
            "orphans": self._orphans,
            "broken_chains": lambda history, _: iter(history.integrity.verify(self.heads.values())),
            "erasures_incomplete": self._incomplete,
            "torn": torn,
        }
        found = Counter[str]()
        try:
            with held(self.location) as (history, recorder):
                for failure, check in checks.items():
                    found += Counter({failure: said(check(history, recorder))})
                everybody = np.arange(1, CLIENTS + 1)
                self.keys |= history.ledger.keys(everybody)
                self.names |= history.ledger.names(everybody)
                self.done = len(list(history.ledger.entries("erased")))
        except Exception:
            # What cannot be opened or read is torn, too.
            traceback.print_exc()
            found["torn"] += 1
        return found

    def _lost(self, history: History, _: Recorder) -> Iterator[str]:
        there = {read_model_id(entry): entry.head for entry in history.ledger.entries("round")}
        yield from (f"{at} is lost" for at, head in self.heads.items() if there.get(at) != head)

    def _wrong(self, *_: object) -> Iterator[str]:
        for path in self.location.files(".safetensors"):
            if hashlib.sha256(path.read_bytes()).hexdigest() != path.name.partition(".")[0]:
                yield f"{path.name} holds something else"

    def _orphans(self, history: History, _: Recorder) -> Iterator[str]:
        needed = {f"{digest}.safetensors" for digest in history.ledger.kept().values()}
        known = ("ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "ledger.sqlite.lock")
        for path in self.location.files():
            if path.name not in (*needed, *known):
                yield f"{path.name} belongs to nothing"

    def _incomplete(self, history: History, _: Recorder) -> Iterator[str]:
        ledger = history.ledger
        timeline = Timeline.read(ledger)
        begun = {deletion.number: deletion.plan for deletion in timeline.deletions}
        done = {deletion.number for deletion in timeline.deletions if deletion.completed}
        yield from (f"erasure {number} is not complete" for number in begun.keys() - done)
        finished = {begun[number].branch for number in done}
        yield from (f"the erasure of branch {each} is gone" for each in self.erased - finished)
        stored = [path.read_bytes() for path in self.location.files("sqlite", "sqlite-wal")]
        for plan in begun.values():
            clients, keys = np.array(plan.clients, dtype=np.int64), np.array(plan.keys, dtype=np.int64)
            if ledger.names(clients) or ledger.keys(keys):
                yield f"branch {plan.branch} forgot {plan.clients}, whose names or keys are there"
            if plan.level is ErasureLevel.PURGE and ledger.rounds_of(clients):
                yield f"branch {plan.branch} purged {plan.clients}, whose rounds are there"
            if any(list(ledger.rounds(span)) or any(at in span for at in ledger.kept()) for span in plan.spans):
                yield f"rounds that branch {plan.branch} erased are there"
            gone = [self.keys[each] for each in plan.keys if each in self.keys]
            for at, rows in self.numbers.items():
                if any(at in span for span in plan.spans):
                    # Of each row weight and distance, which no other place has.
                    gone += [rows[start + 8 : start + 24] for start in range(0, len(rows), 28)]
            names = [self.names[each].encode() for each in plan.clients if each in self.names]
            patterns = [re.compile(rb"%s(?!\d)" % re.escape(each)) for each in names]
            if any(each in data for each in gone for data in stored) or any(
                pattern.search(data) for pattern in patterns for data in stored
            ):
                yield f"bytes that branch {plan.branch} erased are in the file"


def torn(history: History, recorder: Recorder) -> Iterator[str]:
    """Tell what is half there, in the ledger's own tables and against each other."""
    ledger = history.ledger
    spans = [span for deletion in history.timeline.deletions for span in deletion.plan.spans]
    entries = {read_model_id(entry) for entry in ledger.entries("round")}
    started, kept = history.timeline.branches, ledger.kept()
    rounds = {each.model_id: each for number in started for each in ledger.rounds(Span(number, 0, 2**31 - 1))}
    yield from (f"{at} has numbers and no entry" for at in rounds.keys() - entries)
    for at in entries - rounds.keys():
        if not any(at in span for span in spans):
            yield f"{at} has an entry and no numbers"
    for number in started:
        listed, last = sorted(at.round for at in entries if at.branch == number), ledger.last_round(number)
        if listed != list(range(1, last + 1)):
            yield f"branch {number} has rounds {listed} and says that {last} is its last"
    everybody = {client for each in rounds.values() for client in each.clients.tolist()}
    for group in (*([client] for client in everybody), list(range(1, CLIENTS + 1))):
        joined = sorted(at for at, each in rounds.items() if np.isin(group, each.clients).any())
        if ledger.rounds_of(np.array(group)) != joined:
            yield f"clients {group} are not found in their rounds"
    yield from (f"{at} is kept without a file" for at, digest in kept.items() if digest not in history.models)
    yield from (f"{at} is kept and was never there" for at in kept if at not in entries and at.round)
    if recorder.model_id != history.newest or ROOT not in kept:
        yield f"recording goes on from {recorder.model_id}"
    recorder.model()


def read_model_id(entry: Entry) -> ModelId:
    return ModelId(int(entry.body["branch"]), int(entry.body["round"]))


@contextmanager
def held(location: Location) -> Iterator[tuple[History, Recorder]]:
    """Hold a history whose last writer was killed."""
    end = monotonic() + PATIENCE
    with location.open() as history:
        while True:
            try:
                recording = history.recording(FACTS, START, capacity=CAPACITY)
                recorder = recording.__enter__()
                break
            except LockedError:
                if monotonic() > end:
                    raise
                sleep(0.02)
        try:
            yield history, recorder
        finally:
            recording.__exit__(None, None, None)


class Ordeal:
    """Children that are killed one after the other, and what was found after each."""

    def __init__(self, context: ForkServerContext, locations: Callable[[], Location], seed: int) -> None:
        self._context, self._locations, self._rng = context, locations, np.random.default_rng(seed)
        self.found, self.phases = Counter[str](), Counter[str]()
        self.rounds = self.erasures = self.finished_later = self.interrupted = 0
        self._beginnings, self._durations = list(BEGINNINGS), dict[str, float]()
        self._witness: Witness | None = None
        self._lives = 0

    def kill(self) -> None:
        """Let a child live until a random instant."""
        life = self._born()
        life.listen(PATIENCE_WITH_A_STEP, until="opening")
        if self._rng.random() < 0.3:
            life.listen(self._rng.uniform(0, LONGEST_LIFE))
        else:
            chosen = self._beginnings[self._rng.integers(len(self._beginnings))]
            if chosen != "opening":
                life.listen(10 * LONGEST_LIFE, until=chosen)
            # Anywhere in what was chosen, and a little beyond.
            life.listen(self._rng.uniform(0, 1.2 * self._durations.get(chosen, 0.01)))
        self._check(life)
        self.phases[life.phase] += 1

    def cut(self, at: int) -> int:
        """Let a child die at a step of an erasure, and give the number of such instants."""
        life = self._born(at)
        life.listen(PATIENCE_WITH_A_STEP)
        self._check(life)
        steps: list[str] = next((list(words[1:-1]) for words in life.reports if words[0] == "steps"), [])
        self.interrupted += bool(steps) and life.phase == f"erasing {steps[at // 2]}"
        self._beginnings = [*BEGINNINGS, *(f"erasing {each}" for each in steps)]
        return 2 * len(steps)

    def leave(self) -> None:
        """Go on with a new history."""
        if self._witness is not None:
            self.rounds += len(self._witness.heads)
            self.erasures += self._witness.done
            self.finished_later += self._witness.done - len(self._witness.erased)
            for folder in self._witness.location.folders():
                shutil.rmtree(folder)
        self._witness, self._lives = None, 0

    def _born(self, cut: int | None = None) -> Life:
        if self._witness is None:
            self._witness = Witness(self._locations())
        return Life(self._context, child, self._witness.location, int(self._rng.integers(2**32)), cut)

    def _check(self, life: Life) -> None:
        assert self._witness is not None
        code = life.end()
        self._witness.hear(life.reports)
        for (phase, since), (_, until) in pairwise(life.phases):
            self._durations[phase] = until - since
        found = self._witness.examine()
        if code != -signal.SIGKILL:
            found["torn"] += said([f"a child could not go on: it ended with {code} while {life.phase}"])
        self.found += found
        self._lives += 1
        # A broken history would be counted again after every kill.
        if self._lives == LIVES or found.total():
            self.leave()


def main() -> None:
    options = parser(__doc__)
    options.add_argument(
        "--kills",
        type=int,
        help="how many children to kill (200 at random instants, quick 8; of the flow 60, quick 4; of the upgrade "
        "50, quick 6)",
    )
    options.add_argument(
        "--flow", action="store_true", help="kill train-and-forget, which has to end as if it had not been"
    )
    options.add_argument(
        "--upgrade",
        action="store_true",
        help="kill upgrades of a released history, which have to end as if undisturbed",
    )
    chosen = options.parse_args()
    # So that being told to end leaves no server behind either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if chosen.flow:
        from benchmarks import crash_flow

        finish(crash_flow.ordeal(chosen.kills or (4 if chosen.quick else 60)))
        return
    if chosen.upgrade:
        from benchmarks import crash_upgrade

        finish(crash_upgrade.ordeal(chosen.kills or (6 if chosen.quick else 50)))
        return
    kills = chosen.kills or (8 if chosen.quick else 200)
    with open_locations("benchmarks.recorded") as (context, locations):
        backends = {name: Ordeal(context, each, seed) for seed, (name, each) in enumerate(locations.items(), start=1)}
        both = list(backends.values())
        for turn, each in enumerate(both):
            instants = each.cut(0)
            # Quick: right before a step on one, right after it on the other.
            for at in progress(range(1 + turn, instants, 2) if chosen.quick else range(1, instants), "steps cut off"):
                each.cut(at)
            each.leave()
        for at in progress(range(kills), "kills"):
            both[at % 2].kill()
        for each in both:
            each.leave()
    found = sum((each.found for each in both), Counter[str]())
    finish(
        {
            "kills": kills,
            **{failure: found[failure] for failure in FAILURES},
            "interrupted_steps": sum(each.interrupted for each in both),
            "rounds": sum(each.rounds for each in both),
            "erasures": sum(each.erasures for each in both),
            "erasures_finished_later": sum(each.finished_later for each in both),
            "killed_while": {backend: dict(each.phases.most_common()) for backend, each in backends.items()},
        }
    )


if __name__ == "__main__":
    main()
