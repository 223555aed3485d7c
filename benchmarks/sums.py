"""What does it take to forget a client whose sums are kept, and does it grow with the number of clients?

A hundred clients with a ridge head of 1,280 features: one asks to leave, and is forgotten by a process of its own,
with no client there and the files not in the machine's memory; then another. ``forget_seconds`` is the longer time
from opening the history to the saved model, every file's digest checked; ``command_seconds`` is that of the process.
``forget_seconds_chosen`` is the same where the L2 term is chosen anew, of seven.

Then more and more clients, of 64 features: how long reading, adding up and solving take if one leaves, if ten do,
and once one has joined. ``server_exponent`` is how the first of these grows from the fewest clients to the most. What
the ledger does with a round, which grows with the clients that the round names, is in ``forget_s`` alone: there one
asks to leave, and is forgotten as above.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

import numpy as np

from benchmarks._measure import best_seconds, finish, parser
from rescind.core.calibration import Budget
from rescind.core.regularity import SquaredL2
from rescind.core.ridge import add_up_ridge, ridge_solution
from rescind.core.training import LocalTraining
from rescind.engines.heads import LEAST_ROWS
from rescind.forgetting import Revocable
from rescind.history.history import History
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead

ROWS, OUTPUTS = LEAST_ROWS, 10
FORGET = """
import sys, time
from pathlib import Path
from rescind import History
from rescind.serving import ModelFile
from rescind.unattended import forget_unattended

begun = time.perf_counter()
with History(sys.argv[1]) as history:
    ((outcome,), waiting) = forget_unattended(history, outlet=ModelFile(Path(sys.argv[2]), history))
print(time.perf_counter() - begun, outcome.mode.value, len(waiting))
"""


def federation(clients: int, features: int) -> Federation:
    """Return clients with random rows."""
    rng = np.random.default_rng(5)

    def shard() -> Shard:
        rows = rng.normal(size=(ROWS, features))
        return Shard(rows / np.linalg.norm(rows, axis=1, keepdims=True), rng.integers(0, OUTPUTS, ROWS))

    return Federation({f"client-{at:07}": shard() for at in range(clients)}, shard(), OUTPUTS)


def solve(history: History, clients: Federation, loss: SquaredL2) -> None:
    """Solve the head with everybody who has not sent sums yet."""
    (features,) = clients.inputs
    engine = Simulation(clients, SoftmaxHead(features, OUTPUTS), LocalTraining.solved(loss), secret=b"sums")
    Revocable(history, engine, scored=False).solve()


def read_from_disk(folder: Path) -> None:
    """Have the machine forget what it holds of a folder's files."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def written_at_ease() -> Iterator[None]:
    """Let the machine write files when it likes: of what is made before anything is measured nothing need survive."""
    with patch("os.fsync", lambda _: None):
        yield


def forget(folder: Path, leaver: str) -> tuple[float, float, bool]:
    """Forget a client in a new process; return its own seconds, those of the process, and whether it is exact."""
    with History(folder / "history") as history:
        history.requests.ask([leaver], Budget(1.0, 1e-5))
    read_from_disk(folder)
    begun = perf_counter()
    words = [sys.executable, "-c", FORGET, str(folder / "history"), str(folder / "model")]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    seconds, mode, waiting = printed.split()
    return float(seconds), perf_counter() - begun, (mode, waiting) == ("exact", "0")


def forget_one(folder: Path, clients: int, features: int, loss: SquaredL2) -> dict[str, float]:
    """Time forgetting one of many; twice, as what the first leaves out is made anew."""
    with History(folder / "history") as history:
        solve(history, federation(clients, features), loss)
        stored = history.objects.stored_bytes()
    own, whole, exact = zip(*(forget(folder, f"client-{at:07}") for at in (clients // 2, clients // 3)), strict=True)
    return {
        "seconds": max(own),
        "command_seconds": max(whole),
        "exact": int(all(exact)),
        "kept_bytes": stored,
    }


def grow(folder: Path, sizes: Collection[int], features: int) -> dict[str, object]:
    """Time the server's part at several numbers of clients."""
    # The limits decide how finely sums are rounded; they are the same at all sizes.
    loss = SquaredL2(l2=1e-4, row_norm=1.0, most_rows=1_024, most_clients=2**20)
    times: dict[str, list[float]] = {"one_leaves": [], "ten_leave": [], "one_joined": [], "forget": []}
    exact, stored = [], []

    def add_up(history: History, names: Collection[str]) -> None:
        total = add_up_ridge(sums for _, sums in history.sums.read(names))
        assert total is not None
        ridge_solution(total, loss.l2)

    for size in sizes:
        everybody = federation(size + 1, features)
        *names, new = everybody.shards
        first = Federation({name: everybody.shards[name] for name in names}, everybody.test, OUTPUTS)
        leaving = {name for at, name in enumerate(names) if at % (size // 10) == 1}
        with History(folder / str(size) / "history") as history:
            with written_at_ease():
                solve(history, first, loss)
            one = partial(add_up, history, names[1:])
            ten = partial(add_up, history, [name for name in names if name not in leaving])
            measured = best_seconds(3, f"{size:,} clients", one, ten)
            solve(history, everybody, loss)
            # Twice the same would find what the first has made anew.
            begun = perf_counter()
            add_up(history, [*names, new])
            measured.append(perf_counter() - begun)
            stored.append(history.objects.stored_bytes())
        seconds, _, is_exact = forget(folder / str(size), names[size // 2])
        exact.append(is_exact)
        for known, taken in zip(times.values(), [*measured, seconds], strict=True):
            known.append(taken)
    fewest, *_, most = times["one_leaves"]
    growth = math.log(most / fewest) / math.log(max(sizes) / min(sizes))
    return {
        "clients": list(sizes),
        "kept_bytes_of_clients": stored,
        **{f"{key}_s": seconds for key, seconds in times.items()},
        "all_exact": int(all(exact)),
        "server_exponent": growth,
    }


def main() -> None:
    options = parser(__doc__).parse_args()
    (clients, features), width = (100, 1_280), 64
    sizes = [1_000, 10_000, 100_000]
    if options.quick:
        (clients, features), width = (20, 64), 16
        sizes = [20, 80]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        declared, chosen = (
            forget_one(folder / f"forget{len(choices)}", clients, features, SquaredL2(1e-4, 1.0, l2_choices=choices))
            for choices in ((), tuple(10.0**power for power in range(-6, 1)))
        )
        grown = grow(folder / "grow", sizes, width)
    result = {
        "forget_seconds": declared["seconds"],
        "forget_seconds_chosen": chosen["seconds"],
        "command_seconds": declared["command_seconds"],
        # No client is there whom anybody could ask.
        "forget_rounds": 0,
        "exact": min(declared["exact"], chosen["exact"]),
        "kept_bytes": declared["kept_bytes"],
    }
    finish({**result, **grown, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024})


if __name__ == "__main__":
    main()
