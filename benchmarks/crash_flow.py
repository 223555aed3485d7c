"""Does train-and-forget end alike, however often it is killed?

A child trains a federation and forgets clients by one method after the other; it is killed at random instants and
started again until it is through. Noise is reproducible here, so that the finished history can be held against that
of a run which nobody disturbed: entries, numbers, bounds, models and outcomes have to be the same, bit by bit, except
the salts. ``different`` counts finished runs that were not; ``double_noise`` noised models beyond one a release.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from time import sleep
from typing import Any

import numpy as np

from benchmarks._killing import (
    BEGINNINGS,
    PATIENCE_WITH_A_STEP,
    Life,
    Location,
    announced,
    open_locations,
    said,
    tell,
    watch,
)
from benchmarks._measure import progress
from benchmarks._objects import keep_objects
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.errors import LockedError
from rescind.forgetting import Revocable
from rescind.history.history import History
from rescind.history.recorder import Recorder
from rescind.history.requests import Requests
from rescind.ledger.records import ErasureLevel, Span
from rescind.methods import FineTuning, Last, Method, Scratch, Sifu
from rescind.testing.small import simulation

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
TRAINED, RETRAINED = Rounds(6), Rounds(4)
# Who leaves one after the other, by which method; the last two together.
STEPS: tuple[tuple[Method, tuple[tuple[str, ...], ...], ErasureLevel], ...] = (
    (Last(), (("clinic-0",),), ErasureLevel.OUTPUT),
    (Sifu(), (("clinic-1", "clinic-2"),), ErasureLevel.PURGE),
    (FineTuning(), (("clinic-3",),), ErasureLevel.PURGE),
    (Scratch(), (("clinic-6",), ("clinic-7", "clinic-8")), ErasureLevel.PURGE),
)
STEPS_OF_AN_ERASURE = ("identities", "rounds", "objects", "keys", "files", "space and log")
MOMENTS = (
    *(moment for moment in BEGINNINGS if moment != "opening"),
    *("plan", "after plan", "end of training", "after end of training"),
    *(f"erasing {step}" for step in STEPS_OF_AN_ERASURE),
)
LONGEST_LIFE = 1.0


def work(reports: Connection, location: Location) -> None:
    """Go on with train-and-forget wherever it stands, to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watch(reports, None)
    Requests.record_plan = announced(Requests.record_plan, "plan", reports)  # type: ignore[method-assign]
    Recorder.record_retrained = announced(Recorder.record_retrained, "end of training", reports)  # type: ignore[method-assign]
    tell(reports, "phase", "opening")
    with location.open() as history:
        history.journal.clock = lambda: NOON
        patiently(lambda: forget_all(history))
    tell(reports, "finished")


def forget_all(history: History) -> None:
    revocable = Revocable(history, simulation(12), capacity=4, seed=b"crash")
    asked = 0
    for method, groups, level in STEPS:
        if not history.timeline.requests:
            revocable.train(TRAINED)
            if not history.ledger.objects():
                names = history.ledger.identities()
                keep_objects(history, {name: {"own": np.full(4, number)} for name, number in names.items()})
        for group in groups:
            asked += 1
            if len(history.timeline.requests) < asked:
                history.requests.ask(group, Budget(8.0, 0.01))
        served = {outcome.asked.number for outcome in history.outcomes()}
        numbers = [each.number for each in history.timeline.requests][asked - len(groups) : asked]
        if not served.issuperset(numbers):
            revocable.forget(method, RETRAINED, level=level, together=True)


def patiently(go_on: Callable[[], object]) -> None:
    """Wait until the lock of a killed child is free; PostgreSQL first has to notice the death."""
    for _ in range(500):
        try:
            go_on()
            return
        except LockedError:
            sleep(0.02)
    go_on()


def snapshot(location: Location) -> dict[str, object]:
    """Return all that a finished history holds, without what salts decide."""
    with location.open() as history:
        ledger = history.ledger
        salted = {
            "remains": ["digest"],
            "erased": ["roots", "suppressed"],
            "request": ["forgotten"],
            "sums": ["sums"],
        }
        # Where the run was opened again the entries may say so.
        salted["round"] = ["resumed"]
        spans = [Span(number, 1, 2**31 - 1) for number in history.timeline.branches]
        return {
            "entries": [
                (
                    entry.kind,
                    entry.time,
                    {key: value for key, value in entry.body.items() if key not in salted.get(entry.kind, ())},
                )
                for entry in ledger.entries()
            ],
            "kept": ledger.kept(),
            "objects": ledger.objects(),
            "identities": ledger.identities(),
            "numbers": [
                (
                    each.model_id,
                    each.participants.tobytes(),
                    each.update_norm,
                    each.rounding,
                    each.model,
                    matrix(each.gram),
                )
                for span in spans
                for each in ledger.rounds(span)
            ],
            "stretches": {number: each.remaining.tobytes() for number, each in ledger.stretches().items()},
            "outcomes": [replace(each, asked=replace(each.asked, forgotten=())) for each in history.outcomes()],
            "tampered": history.integrity.verify(),
        }


def matrix(gram: np.ndarray[Any, Any] | None) -> bytes:
    return b"" if gram is None else gram.tobytes()


def double_noise(found: dict[str, Any]) -> int:
    """Count the restarts of requests beyond the first, and the noised models that are there twice."""
    served = Counter(number for kind, _, body in found["entries"] if kind == "branch" for number in body["requests"])
    return sum(count - 1 for count in served.values())


def finished(context: ForkServerContext, location: Location) -> bool:
    """Let a child work to the end."""
    life = Life(context, work, location)
    life.listen(PATIENCE_WITH_A_STEP)
    life.end()
    return any(words[0] == "finished" for words in life.reports)


def killed(context: ForkServerContext, location: Location, rng: np.random.Generator) -> tuple[bool, str]:
    """Let a child live until a random instant; tell whether it was through before, and what it was doing."""
    life = Life(context, work, location)
    life.listen(PATIENCE_WITH_A_STEP, until="opening")
    if rng.random() < 0.4:
        life.listen(rng.uniform(0, LONGEST_LIFE))
    else:
        life.listen(4 * LONGEST_LIFE, until=MOMENTS[rng.integers(len(MOMENTS))])
        life.listen(rng.uniform(0, 0.05))
    life.end()
    return any(words[0] == "finished" for words in life.reports), life.phase


def ordeal(kills: int) -> dict[str, object]:
    rng, phases, done = np.random.default_rng(3), Counter[str](), 0
    result = Counter[str]({"kills": 0, "runs": 0, "different": 0, "double_noise": 0})
    with open_locations("benchmarks.crash_flow") as (context, backends):
        undisturbed = {}
        for name, open_location in backends.items():
            location = open_location()
            if not finished(context, location):
                raise RuntimeError(
                    f"train-and-forget does not work on {name} at all: run benchmarks.crash_flow's work"
                )
            undisturbed[name] = snapshot(location)
        bar = progress(range(kills), "kills")
        while done < kills:
            name = list(backends)[result["runs"] % len(backends)]
            location, through = backends[name](), False
            while not through and done < kills:
                through, phase = killed(context, location, rng)
                if not through:
                    phases[phase] += 1
                    done += 1
                    next(bar)
            through = through or finished(context, location)
            found = snapshot(location)
            unlike = [key for key in found if found[key] != undisturbed[name][key]] if through else ["unfinished"]
            result["different"] += bool(said(f"a run on {name} has other {key}" for key in unlike))
            result["double_noise"] += double_noise(found)
            result["runs"] += 1
        next(bar, None)
    return {**result, "kills": done, "killed_while": dict(phases.most_common())}
