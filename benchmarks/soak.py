"""Does a federation stay whole for as long as it is disturbed?

A SuperLink with TLS and a database, authenticated SuperNodes, a ServerApp that trains and forgets without end, and a
ledger on PostgreSQL: real processes of this machine. At random, by a seed: clients die and come back, hang, lie, and
ask to be forgotten, whereupon others join; a second writer tries; the ServerApp and the SuperLink are killed, the
database restarts, the disk with the models is full. A forgotten client stays connected until the next one goes.

In the end every request has to be served (``unserved``) and certified by ``rescind certify``, every certificate has
to verify with the history (``bad_certificates``), ``rescind doctor`` has to find nothing to repair, every head of the
chain that a client was told has to be in the chain, and the newest model must never have gone back (``rounds_lost``).
``returned`` counts clients who took part again after they were forgotten.

``memory_growth`` is that of one ServerApp and one SuperLink, whichever grows more, from the third quarter of the time
to the last. What ends these two happens before, everything else happens always.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Any

from benchmarks._federation import Deployment, Node
from benchmarks._measure import finish, parser, progress
from benchmarks._postgresql import Server, restartable
from rescind import History
from rescind.core.edges import ModelId
from rescind.errors import IncompleteHistoryError, NoHistoryError

APP = Path(__file__).parent / "faulty"
CLIENTS = 4
# Fewer than there are: whether a round begins does not hang on any one of them.
LEAST = 2
ROUNDS = 4
LIES = ("NaN", "infinite", "too far", "wrong shape", "thousandfold num-examples", "frozen tensor changed", "raises")
EPSILONS = ("1", "5", "50")
# All in seconds. A round takes 7 on an idle machine.
TIMEOUT = 60.0
TO_START = 60.0
TO_END = 900.0
BETWEEN_TICKS = 2.0
BETWEEN_LAUNCHES = 8.0
# Importing what it needs is no growth.
TO_SETTLE = 30.0
DISK = "1m"
# The share of the time after which nothing ends the ServerApp or the SuperLink any more; memory is compared from 0.5.
CALM = 0.4
SLOTS = 100
HEAD = re.compile(r"the history's head was ([0-9a-f]{64})")


@dataclass(frozen=True)
class Sample:
    """How many bytes a process held at a time."""

    time: float
    process: int
    held: int


class Soak:
    """A federation that is disturbed, and what was seen of it."""

    def __init__(self, folder: Path, server: Server, checkpoints: Path, seed: int) -> None:
        self.folder, self.server, self.checkpoints = folder, server, checkpoints
        self.secret = folder / "history.secret"
        self.random, self.begun = random.Random(seed), monotonic()
        self.numbers = iter(range(1, 10**6))
        first = [self.node() for _ in range(CLIENTS)]
        self.deployment = Deployment(folder / "deployment", first)
        self.clients = [node.name for node in first]
        self.leaving: dict[int, str] = {}
        self.lingering: list[str] = []
        self.forgotten: list[str] = []
        self.away: dict[str, float] = {}
        self.launched: dict[str, float] = {}
        self.misled: dict[str, float] = {}
        self.faults: Counter[str] = Counter()
        self.went_back = self.refused = 0
        self.runs: list[str] = []
        self.newest = ModelId(0, 0)
        self.expected = 0.0
        self.memory: dict[str, list[Sample]] = {"ServerApp": [], "SuperLink": []}
        self.soft: dict[str, Callable[[], bool]] = {
            "client dies": self.kill_client,
            "client hangs": self.hang_client,
            "client lies": self.spoil_client,
            "request": self.request,
            "second writer": self.rival,
        }
        self.hard: dict[str, Callable[[], bool]] = {
            "ServerApp killed": self.kill_server_app,
            "SuperLink killed": self.kill_superlink,
            "database restarts": self.restart_database,
            "disk full": self.fill_disk,
        }

    # What a supervisor does

    def tick(self) -> None:
        """Look at everything, and start again what has ended."""
        now = monotonic()
        self.sample()
        self.look()
        for name in [each for each, end in self.misled.items() if now > end]:
            self.tell(name, "")
        for name in [*self.clients, *self.leaving.values(), *self.lingering]:
            if now > self.away.get(name, 0.0) and now > self.launched.get(name, 0.0) + BETWEEN_LAUNCHES:
                self.launched[name] = now
                self.deployment.revive(name)
        if self.deployment.server_apps():
            self.expected = 0.0
        elif now > self.expected:
            self.expected = now + BETWEEN_LAUNCHES
            # Flower itself starts what never came to run.
            if not self.runs or self.deployment.status(self.runs[-1]) not in ("pending", "starting"):
                self.run()

    def run(self) -> None:
        """Start the app once more; its ServerApp is there in its own time."""
        run = self.deployment.run(
            APP,
            history=self.server.address,
            checkpoints=str(self.checkpoints),
            secret=str(self.secret),
            model=str(self.folder / "model.safetensors"),
            stop=str(self.folder / "stop"),
            nodes=LEAST,
            num_rounds=ROUNDS,
            timeout=TIMEOUT,
        )
        self.runs.append(run)
        self.expected = monotonic() + TO_START
        self.say(f"run {run} is started")

    def sample(self) -> None:
        running = {"ServerApp": self.deployment.server_apps(), "SuperLink": self.deployment.superlink()}
        for what, processes in running.items():
            for process in processes:
                with suppress(OSError):
                    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
                    self.memory[what].append(Sample(monotonic(), process, pages * resource.getpagesize()))

    def look(self) -> None:
        """See how far training is, and which requests are served."""
        with suppress(NoHistoryError, IncompleteHistoryError), self.history() as history:
            newest = history.newest
            if (newest.branch, newest.round) < (self.newest.branch, self.newest.round):
                self.went_back += 1
                self.say(f"the newest model was {self.newest}, and is {newest}")
            self.newest = newest
            served = {outcome.asked.number for outcome in history.outcomes()}
            for number in sorted(served & self.leaving.keys()):
                self.say(f"request {number} is served: {self.leaving[number]}")
                self.see_off(self.leaving.pop(number))

    def see_off(self, name: str) -> None:
        """Let the SuperNode of a forgotten client stay, and bar the one that stayed so far."""
        self.forgotten.append(name)
        self.lingering.append(name)
        for gone in self.lingering[:-1]:
            self.lingering.remove(gone)
            self.deployment.unregister(gone)
            self.deployment.kill(gone)

    # What happens; each returns whether it did

    def kill_client(self) -> bool:
        name = self.random.choice(self.clients)
        self.away[name] = monotonic() + self.random.uniform(0, 40)
        self.deployment.kill(name)
        return True

    def hang_client(self) -> bool:
        self.tell(self.random.choice(self.clients), "hangs for long", self.random.uniform(5, 30))
        return True

    def spoil_client(self) -> bool:
        self.tell(self.random.choice(self.clients), self.random.choice(LIES), self.random.uniform(10, 60))
        return True

    def request(self) -> bool:
        """Let somebody who took part ask to be forgotten, and a new client join."""
        try:
            with self.history() as history:
                known = set(history.ledger.labels().values())
        except (NoHistoryError, IncompleteHistoryError):
            return False
        able = [name for name in self.clients if name in known]
        if len(able) <= LEAST:
            return False
        name = self.random.choice(able)
        epsilon = self.random.choice(EPSILONS)
        answer, trouble = self.rescind("request", "add", self.server.address, name, "--epsilon", epsilon)
        if trouble:
            self.refused += 1
            return False
        self.clients.remove(name)
        self.leaving[answer["request"]] = name
        self.say(f"request {answer['request']}: {name}")
        joining = self.node()
        self.deployment.join(joining)
        self.clients.append(joining.name)
        self.launched[joining.name] = monotonic()
        return True

    def rival(self) -> bool:
        """Let somebody else write while the ServerApp trains; it did happen if the lock was held."""
        if not self.deployment.server_apps() or self.newest.round >= ROUNDS:
            return False
        _, trouble = self.rescind("erase", self.server.address, "--yes")
        return "is being written by" in trouble

    def kill_server_app(self) -> bool:
        found = self.deployment.server_apps()
        for process in found:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        return bool(found)

    def kill_superlink(self) -> bool:
        self.deployment.kill_superlink()
        self.deployment.start_superlink()
        return True

    def restart_database(self) -> bool:
        self.server.restart(self.random.choice(["fast", "immediate"]))
        return True

    def fill_disk(self) -> bool:
        """Leave no room for models until the ServerApp has ended for it."""
        found, filler, end = self.deployment.server_apps(), self.checkpoints / "filler", monotonic() + 2 * TIMEOUT
        if not found:
            return False
        if self.checkpoints.is_mount():
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        else:
            # Without the right to mount, no file of that process may have a byte; a write fails alike.
            for process in found:
                with suppress(ProcessLookupError):
                    resource.prlimit(process, resource.RLIMIT_FSIZE, (0, 0))
        while (left := self.deployment.server_apps()) and monotonic() < end:
            sleep(BETWEEN_TICKS)
        filler.unlink(missing_ok=True)
        return not left

    # Means

    def node(self) -> Node:
        name = f"client-{next(self.numbers)}"
        return Node(name, f'client="{name}" fault="{self.folder / name}.fault"')

    def tell(self, name: str, fault: str, seconds: float = 0.0) -> None:
        """Have a client misbehave for some time, or no more."""
        Path(f"{self.folder / name}.fault").write_text(fault)
        self.misled.pop(name, None)
        if fault:
            self.misled[name] = monotonic() + seconds

    @contextmanager
    def history(self) -> Iterator[History]:
        address, checkpoints = self.server.address, str(self.checkpoints)
        with History(address, checkpoints=checkpoints, secret=self.secret, create=False) as history:
            yield history

    def witnessed(self) -> set[str]:
        """Return the heads of the chain that clients were told and wrote into their logs."""
        logs = (log.read_text(errors="replace") for log in (self.folder / "deployment").glob("node-*.log"))
        return {head for log in logs for head in HEAD.findall(log)}

    def rescind(self, *words: str) -> tuple[dict[str, Any], str]:
        """Run a command of ours; returns its JSON, and what was wrong if it failed."""
        own = {
            "RESCIND_CHECKPOINTS": str(self.checkpoints),
            "RESCIND_SECRET": str(self.secret),
            "RESCIND_PASSPHRASE": "a soak's own passphrase",
        }
        done = subprocess.run(
            [str(Path(sys.executable).parent / "rescind"), *words, "--json"],
            cwd=self.folder,
            env=os.environ | own,
            capture_output=True,
            text=True,
            check=False,
        )
        trouble = ""
        if done.returncode:
            trouble = f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[-2000:]}"
            self.say(trouble)
        return json.loads(done.stdout or "{}"), trouble

    def say(self, event: str) -> None:
        print(f"soak: {monotonic() - self.begun:5.0f} s, {self.newest}: {event}", file=sys.stderr, flush=True)


def wait_for_training(soak: Soak) -> None:
    """Wait for the first recorded round: what was never there cannot be lost."""
    end = monotonic() + TO_END
    while not soak.newest.round and monotonic() < end:
        with bearing(soak):
            soak.tick()
        sleep(BETWEEN_TICKS)


def disturb(soak: Soak, seconds: float, pause: float) -> None:
    """Deal out what can happen, about every ``pause`` seconds; each kind comes once before any comes again."""
    begun, deck = monotonic(), list[str]()
    due = begun + pause
    for slot in progress(range(SLOTS), "soak"):
        while (now := monotonic()) < begun + (slot + 1) * seconds / SLOTS:
            with bearing(soak):
                soak.tick()
                if soak.newest.round >= ROUNDS and not soak.leaving:
                    # Nothing is left to train.
                    soak.faults["request"] += soak.request()
            if now > due:
                kinds = soak.soft | (soak.hard if now < begun + CALM * seconds else {})
                deck = [kind for kind in deck if kind in kinds] or soak.random.sample(list(kinds), len(kinds))
                kind = deck.pop()
                with bearing(soak):
                    if kinds[kind]():
                        soak.faults[kind] += 1
                        soak.say(kind)
                        due = now + soak.random.uniform(0.5, 1.5) * pause
            sleep(BETWEEN_TICKS)


def settle(soak: Soak) -> None:
    """Leave the federation alone until every request is served and the newest branch trained; then end it."""
    end = monotonic() + TO_END
    soak.away.clear()
    for name in list(soak.misled):
        soak.tell(name, "")
    while (soak.leaving or soak.newest.round < ROUNDS) and monotonic() < end:
        with bearing(soak):
            soak.tick()
        sleep(BETWEEN_TICKS)
    (soak.folder / "stop").touch()
    while soak.deployment.server_apps() and monotonic() < end:
        sleep(BETWEEN_TICKS)


@contextmanager
def bearing(soak: Soak) -> Iterator[None]:
    """Go on if Flower's own commands fail, as they may while a SuperLink starts: the next turn tries again."""
    try:
        yield
    except (ChildProcessError, RuntimeError, TimeoutError) as error:
        soak.say(f"tried again: {str(error)[:500]}")


def growth(samples: Sequence[Sample], since: float, until: float) -> float | None:
    """Return by which share a process held more in the second half of a time than in the first half.

    None if no process ran for most of that time: then nothing is known.
    """
    first = {sample.process: sample.time for sample in reversed(samples)}
    lives: dict[int, list[Sample]] = {}
    for sample in samples:
        if since <= sample.time <= until and sample.time > first[sample.process] + TO_SETTLE:
            lives.setdefault(sample.process, []).append(sample)
    longest = max(lives.values(), key=lambda life: life[-1].time - life[0].time, default=[])
    if not longest or longest[-1].time - longest[0].time < (until - since) / 2:
        return None
    held, half = [sample.held for sample in longest], len(longest) // 2
    return median(held[half:]) / median(held[:half]) - 1


def certify(soak: Soak) -> tuple[Counter[str], int, int]:
    """Certify every request and verify it; returns how many there are of each mode, how many are bad and unserved."""
    address, key = soak.server.address, "operator.key"
    soak.rescind("key", "new", key)
    modes: Counter[str] = Counter()
    bad = unserved = 0
    listed, _ = soak.rescind("request", "list", address)
    for request in progress(listed["requests"], "certificates"):
        if request["state"] != "served":
            unserved += 1
            continue
        number, file = str(request["request"]), f"certificate-{request['request']}.json"
        told, unsigned = soak.rescind("certify", address, number, "--key", key, "--output", file)
        _, wrong = soak.rescind("verify", file, "--key", f"{key}.pub", "--history", address)
        if unsigned or wrong or told["mode"] == "heuristic":
            bad += 1
        else:
            modes[told["mode"]] += 1
    return modes, bad, unserved


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Make a disk that is soon full, where mounting is allowed, and else a folder."""
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=700", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    try:
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)  # noqa: S607


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--minutes", type=float, default=30.0, help="how long it is disturbed; 2 with --quick")
    options.add_argument("--seed", type=int, default=1, help="what decides what happens when")
    chosen = options.parse_args()
    minutes, pause = (2.0, 8.0) if chosen.quick else (chosen.minutes, 30.0)
    with (
        tempfile.TemporaryDirectory(prefix="rescind-soak-") as name,
        restartable() as server,
        small_disk(Path(name).resolve() / "checkpoints") as disk,
    ):
        soak = Soak(Path(name).resolve(), server, disk, chosen.seed)
        with soak.deployment:
            wait_for_training(soak)
            begun = monotonic()
            disturb(soak, 60 * minutes, pause)
            ended = monotonic()
            settle(soak)
            heads = soak.witnessed()
        with soak.history() as history:
            rounds = sum(1 for _ in history.ledger.entries("round"))
            chain = {entry.head.hex() for entry in history.ledger.entries()}
            returned = len(set(history.ledger.labels().values()) & set(soak.forgotten))
        modes, bad, unserved = certify(soak)
        examined, _ = soak.rescind("doctor", server.address, "--key", "operator.key")
    grown = [growth(each, (begun + ended) / 2, ended) for each in soak.memory.values()]
    finish(
        {
            "minutes": round((ended - begun) / 60, 1),
            "rounds": rounds,
            "rounds_lost": len(heads - chain) + soak.went_back,
            "heads_witnessed": len(heads),
            "requests": soak.faults["request"],
            "unserved": unserved + soak.refused,
            "returned": returned,
            "certificates": sum(modes.values()),
            "modes": modes,
            "bad_certificates": bad,
            "doctor_problems": sum(each["verdict"] == "repair" for each in examined["checks"]),
            "memory_growth": None if None in grown else round(max(each for each in grown if each is not None), 4),
            "faults": soak.faults,
            "runs": len(soak.runs),
        }
    )


if __name__ == "__main__":
    main()
