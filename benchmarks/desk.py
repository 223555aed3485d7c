"""Does the desk hold what it promises, at full size and among real programs?

Five parts, each of which ``--only`` runs alone. ``pages``: every page in Debian's Chromium, light and dark, on a
phone and on a desktop, examined by axe-core (npm fetches it); then the work by forms without a script. ``interface``:
schemathesis (on PATH) against the desk's own description. ``size``: how long the overview takes with 10,000 clients
and 200 requests, and the reading of the history behind it. ``readers``: rounds of a recording federation without a
desk, beside one, and beside one that 200 read. ``whole``, which ``--quick`` leaves out: a request that a SuperNode's
key signed, from the desk to the certificate that the leaver fetches, with Flower and TLS, a webhook and Prometheus.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

import rescind.flower
from benchmarks import growth, recording_overhead
from benchmarks._desk import Desk, ask_ago, live
from benchmarks._desk_interface import examine_interface
from benchmarks._desk_pages import install_driver, load, look
from benchmarks._desk_whole import follow_request
from benchmarks._measure import finish, parser, progress
from benchmarks.ledger_scale import name
from rescind import History
from rescind.core.planning import candidates
from rescind.desk.board import Reader
from rescind.desk.logins import Role
from rescind.history.events import RecordedPlan
from rescind.ledger.records import ErasureLevel

PARTS = ("pages", "interface", "size", "readers", "whole")
# As the page does it.
EVERY = 15.0
# For each operation of the interface; together some 10,000 requests.
EXAMPLES = 1150
SIZE = growth.Size(clients=10_000, rounds=2_000, requests=200)
# What is beside the federation: nothing, a desk, a desk that is read.
KINDS = ALONE, BESIDE, READ = ("alone", "beside", "read")


# Size


def fill(folder: Path, size: growth.Size) -> None:
    """Record a large history: half of the requests are served, and a fifth each is closed, planned, or only asked."""

    def opened() -> History:
        return History(folder / "history")

    start = {"theta": np.zeros(size.parameters, dtype=np.float32)}
    half = size.requests // 2
    world = growth.World(replace(size, requests=half), opened, start, np.random.default_rng(1), perf_counter)
    world.build()
    # Two more are asked for, and withdrawn.
    growth.forget(world, growth.ask(world, {}))
    with opened() as history:
        history.erase(history.plan_erasure(ErasureLevel.PURGE))
        numbers = [ask_ago(history, name(half + 2 + at), days=at % 40) for at in range(size.requests - half - 2)]
        for at, number in enumerate(numbers):
            if at % 5 == 0:
                history.requests.withdraw(number, "asked by mistake")
            elif at % 5 == 1:
                history.requests.refuse(number, "A. Officer", "a law asks to keep the data")
            elif at % 5 in (2, 3):
                plan(history, number)


def plan(history: History, number: int) -> None:
    """Plan the one that costs least to serve, as a run does that waits for approvals."""
    request = history.timeline.requests[number - 1].request
    found = candidates(history.summary(request.group), request)
    chosen = max(found, key=lambda candidate: candidate.node.round)
    history.requests.record_plan(RecordedPlan((number,), chosen, public_plan=False, method="exact"))


def measure_size(folder: Path, scripts: Path, size: growth.Size) -> dict[str, Any]:
    """Return how long the page and the reading of the history take."""
    fill(folder, size)
    reader = Reader(lambda: History(folder / "history", create=False))
    reads = []
    for _ in range(4):
        start = perf_counter()
        reader.refresh()
        reads.append(perf_counter() - start)
    if reader.board is None or reader.problem:
        raise RuntimeError(f"the history cannot be read: {reader.problem}")
    with Desk(folder / "history") as desk:
        pages = []
        for _ in range(20):
            start = perf_counter()
            page = desk.ask(Role.READ, "/")
            pages.append(perf_counter() - start)
            if page.code != 200:
                raise RuntimeError(f"the overview is answered with {page}")
        loads = load(desk, scripts, Role.READ)
    waiting = sum(request.waits_for_approval_since is not None for request in reader.board.requests)
    return {
        "clients": sum(reader.board.overview.states.values()),
        "requests_shown": len(reader.board.requests),
        "requests_open": reader.board.overview.open_requests,
        "requests_waiting": waiting,
        "first_read_seconds": reads[0],
        "read_seconds": median(reads[1:]),
        "page_seconds": median(pages),
        "page_kilobytes": len(page.content) / 1e3,
        "load_seconds": median(loads),
        "page_by_read": median(pages) / median(reads[1:]),
    }


# Readers


def record(folder: Path, width: int) -> None:
    """Train and record on and on, and say of every round when it began."""
    setting = recording_overhead.Setting(width)
    on, arrays = recording_overhead.grid(setting), recording_overhead.start(width)
    with History(folder / "history") as history:
        recorded = rescind.flower.Recorded(
            recording_overhead.averaging(), history, training=recording_overhead.TRAINING
        )
        rounds, parent = 0, os.getppid()
        # Whoever kills the measurement does not end this process.
        while os.getppid() == parent:
            rounds += recording_overhead.ROUNDS
            rescind.flower.run(recorded, on, arrays, num_rounds=rounds)
            for taken, _ in on.rounds():
                print(taken, flush=True)


async def read(desk: Desk, readers: int, seconds: float) -> list[float]:
    """Read the overview all at once, and then each again as the page does; return how long each answer took."""
    taken: list[float] = []

    async def ask() -> None:
        start = perf_counter()
        incoming, outgoing = await asyncio.open_connection("127.0.0.1", desk.port)
        outgoing.write(
            f"GET / HTTP/1.1\r\nhost: desk\r\nauthorization: Bearer {desk.tokens[Role.READ]}\r\n"
            "connection: close\r\n\r\n".encode()
        )
        answer = await incoming.read()
        outgoing.close()
        await outgoing.wait_closed()
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a reader was told {answer[:200]!r}")
        taken.append(perf_counter() - start)

    async def go_on() -> None:
        await ask()
        # From then on they come one after the other, as they have opened the page at different times.
        await asyncio.sleep(random.uniform(0, EVERY))
        while True:
            await ask()
            await asyncio.sleep(EVERY)

    tasks = [asyncio.create_task(go_on()) for _ in range(readers)]
    done, waiting = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in waiting:
        task.cancel()
    for task in done:
        task.result()
    return taken


@dataclass
class Recording:
    """A process that records; ``lines`` is where it says how long its rounds took."""

    process: subprocess.Popen[bytes]
    lines: Path
    _seen: int = 0

    def take(self) -> list[float]:
        """Return how long the rounds took since the last look."""
        told = self.lines.read_text().splitlines()
        new, self._seen = told[self._seen :], len(told)
        if self.process.poll() is not None:
            raise RuntimeError("the federation has ended")
        return [float(line) for line in new]


@contextmanager
def recording(folder: Path, width: int) -> Iterator[Recording]:
    lines = folder / "rounds"
    command = [sys.executable, "-m", "benchmarks.desk", "--record", str(folder), str(width)]
    with lines.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, env=os.environ | {"OMP_NUM_THREADS": "1"})
    made = Recording(process, lines)
    try:
        while not made.take():
            sleep(0.2)
        yield made
    finally:
        process.terminate()
        process.wait()


def measure_readers(folder: Path, *, readers: int, turns: int, seconds: float, width: int) -> dict[str, Any]:
    """Return how much longer rounds take beside a desk, and beside one that is read."""
    folder.mkdir()
    rounds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    answers: list[float] = []
    busy = 0.0
    with recording(folder, width) as federation:
        for turn in progress(range(turns), "readers"):
            # Another one is the first each time: what comes later has more rounds behind it.
            for kind in KINDS[turn % 3 :] + KINDS[: turn % 3]:
                with Desk(folder / "history") if kind != ALONE else nullcontext() as desk:
                    federation.take()
                    if desk is None or kind != READ:
                        sleep(seconds)
                    else:
                        before = desk.processor_seconds()
                        answers += asyncio.run(read(desk, readers, seconds))
                        busy += desk.processor_seconds() - before
                    rounds[kind] += federation.take()
    quiet = {kind: float(np.quantile(taken, recording_overhead.QUIET)) for kind, taken in rounds.items()}
    return {
        "rounds": sum(map(len, rounds.values())),
        "round_ms": 1e3 * quiet[ALONE],
        "desk_ratio": quiet[BESIDE] / quiet[ALONE],
        "readers_ratio": quiet[READ] / quiet[ALONE],
        "readers_best_ratio": min(rounds[READ]) / min(rounds[ALONE]),
        "desk_cores": busy / (turns * seconds),
        "answers": len(answers),
        "answer_ms": 1e3 * median(answers),
        "slowest_answer_ms": 1e3 * max(answers),
    }


# All


def measure_pages(folder: Path, scripts: Path, pictures: Path, rounds: int) -> dict[str, Any]:
    """Return what is wrong with the pages, and say it."""
    live(folder, rounds)
    found = look(folder, scripts, pictures)
    for kind in ("violations", "overflows", "complaints", "broken"):
        for told in found[kind]:
            print(f"{kind}: {told}")
        found[kind] = len(found[kind])
    return found


def measure(part: str, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Return what a part finds."""
    quick, scripts = chosen.quick, folder / "scripts"
    if part in ("pages", "size") and not scripts.exists():
        install_driver(scripts)
    match part:
        case "pages":
            return measure_pages(folder / part, scripts, chosen.output or folder / "pictures", 8 if quick else 40)
        case "interface":
            live(folder / part, 8)
            return examine_interface(folder / part, 5 if quick else EXAMPLES, chosen.seed)
        case "size":
            size = growth.Size(clients=1_000, rounds=60, requests=40) if quick else SIZE
            return measure_size(folder / part, scripts, size)
        case "readers":
            if quick:
                return measure_readers(folder / part, readers=20, turns=3, seconds=3.0, width=300)
            return measure_readers(folder / part, readers=200, turns=6, seconds=12.0, width=1000)
        case _:
            return {"steps": sum(1 for _ in progress(follow_request(folder / part), part))}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--only", choices=PARTS, help="one part of all")
    options.add_argument("--output", type=Path, help="where to keep the pictures of the pages")
    options.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options.add_argument("--record", nargs=2, metavar=("FOLDER", "WIDTH"), help="used by itself")
    chosen = options.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if chosen.record:
        return record(Path(chosen.record[0]), int(chosen.record[1]))
    os.environ["RESCIND_PASSPHRASE"] = secrets.token_hex(16)
    parts = [chosen.only] if chosen.only else [part for part in PARTS if not (chosen.quick and part == "whole")]
    result: dict[str, Any] = {"seed": chosen.seed}
    with tempfile.TemporaryDirectory(prefix="rescind-desk-") as folder:
        for part in parts:
            result |= measure(part, Path(folder).resolve(), chosen)
            # A line for whoever waits.
            print(part, result, flush=True)
    return finish(result)


if __name__ == "__main__":
    main()
