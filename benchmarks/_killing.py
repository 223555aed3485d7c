"""Children that work on a history and are killed: where they work, what they tell, and when they die."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from benchmarks._postgresql import server
from rescind.checkpoints.store import CheckpointStore
from rescind.history.erasure import Eraser
from rescind.history.history import History
from rescind.history.timeline import Deletion
from rescind.ledger.records import RoundRecord
from rescind.ledger.sql import SqlLedger

PATIENCE_WITH_A_STEP = 60.0
BEGINNINGS = (
    *("opening", "recovering", "checkpoint", "after checkpoint", "commit", "after commit", "deletion"),
    *("restart", "after restart", "erasure begins"),
)


@dataclass(frozen=True)
class Location:
    """Where a history lives, in words that a child can be told."""

    backend: str
    address: str
    folder: str
    run: str

    def open(self) -> History:
        return History(self.address, **self.places())

    def places(self) -> dict[str, Any]:
        """Return what has to be said beside the address."""
        if self.backend == "sqlite":
            return {}
        return {"checkpoints": self.folder, "run": self.run, "secret": Path(self.folder, "secret")}

    def folders(self) -> list[Path]:
        """Return what belongs to the run and to no other; PostgreSQL's models are in a folder with a longer name."""
        return [each for each in Path(self.folder).glob(f"{self.run}*") if each.is_dir()]

    def files(self, *suffixes: str) -> list[Path]:
        """Return the files below the history's own folders, with whatever ending unless some are given."""
        found = [path for own in self.folders() for path in own.rglob("*") if path.is_file()]
        return [path for path in found if not suffixes or path.name.endswith(suffixes)]


# A round may be written by a thread of its own.
_TURN = Lock()


def tell(reports: Connection, *words: object) -> None:
    # Small enough for one call of the operating system: what was told was told whole, whatever happens next.
    with _TURN:
        reports.send((*words, monotonic()))


def watch(reports: Connection, cut: int | None) -> None:
    """Make this process tell what it begins and which rounds it has recorded, and die at a step of an erasure."""
    for owner, method, phase in (
        (CheckpointStore, "put", "checkpoint"),
        (CheckpointStore, "delete", "deletion"),
        (SqlLedger, "commit_round", "commit"),
        (SqlLedger, "start_branch", "restart"),
        (Eraser, "erase", "erasure begins"),
    ):
        setattr(owner, method, announced(getattr(owner, method), phase, reports))
    steps = Eraser.steps

    def watched(self: Eraser, begun: Deletion) -> dict[str, Callable[[], object]]:
        found = steps(self, begun)
        tell(reports, "steps", *found)
        return {name: mortal(at, name, step) for at, (name, step) in enumerate(found.items())}

    def mortal(at: int, name: str, step: Callable[[], object]) -> Callable[[], object]:
        def run() -> None:
            tell(reports, "phase", f"erasing {name}")
            if cut == 2 * at:
                os.kill(os.getpid(), signal.SIGKILL)
            step()
            if cut == 2 * at + 1:
                tell(reports, "phase", f"erasing {name}")
                os.kill(os.getpid(), signal.SIGKILL)

        return run

    Eraser.steps = watched  # type: ignore[method-assign]


def announced(method: Callable[..., Any], phase: str, reports: Connection) -> Callable[..., Any]:
    @wraps(method)
    def telling(self: object, *arguments: Any, **options: Any) -> Any:
        tell(reports, "phase", phase)
        result = method(self, *arguments, **options)
        for round_ in arguments:
            if isinstance(round_, RoundRecord):
                tell(reports, "round", round_.model_id, result.head, round_.participants.tobytes())
        tell(reports, "phase", f"after {phase}")
        return result

    return telling


class Life:
    """One child and what it has reported."""

    def __init__(self, context: ForkServerContext, work: Callable[..., None], *arguments: object) -> None:
        self.reports: list[tuple[Any, ...]] = []
        self._pipe, told = context.Pipe(duplex=False)
        self._process = context.Process(target=work, args=(told, *arguments), daemon=True)
        self._process.start()
        told.close()

    def listen(self, seconds: float, until: str = "") -> None:
        """Read reports for some time, or until a phase has begun, or to the end."""
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            if self._pipe.poll(left) and (not self._read() or (until and self.reports[-1][:2] == ("phase", until))):
                return

    def end(self) -> int | None:
        """Kill the child, read what it had reported, and give its exit code."""
        self._process.kill()
        self._process.join()
        while self._pipe.poll() and self._read():
            pass
        self._pipe.close()
        return self._process.exitcode

    @property
    def phase(self) -> str:
        """What the child was doing last."""
        return self.phases[-1][0] if self.phases else "starting"

    @property
    def phases(self) -> list[tuple[str, float]]:
        """What the child did one after the other, and since when."""
        return [(words[1], words[2]) for words in self.reports if words[0] == "phase"]

    def _read(self) -> bool:
        try:
            self.reports.append(self._pipe.recv())
        except EOFError:
            return False
        return True


def said(problems: Iterable[str]) -> int:
    """Count problems, and tell them where a person looks."""
    listed = list(problems)
    for problem in listed:
        print(f"crash: {problem}", file=sys.stderr)
    return len(listed)


@contextmanager
def open_locations(*imports: str) -> Iterator[tuple[ForkServerContext, dict[str, Callable[[], Location]]]]:
    """Return a context for children that import these modules, and for each backend what finds new places."""
    # Children are forked from a process that has imported all they need, which takes a second, and done nothing else.
    context = get_context("forkserver")
    context.set_forkserver_preload(
        ["benchmarks._measure", "rescind.history.history", "sqlalchemy.dialects.postgresql.psycopg", *imports]
    )
    os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    # The server outlives every child, so whether it syncs its own files changes the time only.
    with tempfile.TemporaryDirectory(prefix="rescind-crash-") as folder, server({"fsync": "off"}) as address:
        runs = count()

        def sqlite() -> Location:
            run = f"run_{next(runs):04d}"
            return Location("sqlite", str(Path(folder, run)), folder, run)

        def postgresql() -> Location:
            return Location("postgresql", address, folder, f"run_{next(runs):04d}")

        yield context, {"sqlite": sqlite, "postgresql": postgresql}
