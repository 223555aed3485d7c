"""What does recording cost a Flower federation? Bare FedAvg and Recorded, alternating, on one machine.

10 participants with 10^6 float32 parameters train in numpy, in one process beside the server's, without SuperLink
and SuperNodes; the history is a folder with SQLite, its models chosen by retention. ``round_ratio`` is Recorded's
time for a round by bare FedAvg's, of each the lower fifth; ``server_ratio`` the same for what the server does between
a round's last reply and the next round's first message. ``small_``: with 10^5 parameters; ``long_``: with clients
that take a second more a round and use no core; ``evaluated_``: with a server that looks at every model, so that each
is written first; ``at_once_``: with ``write_behind=False``. ``memory_ratio`` is that of the peaks of resident memory
with 20 participants and 2*10^7 parameters, each contender in a process of its own.
"""

from __future__ import annotations

import os

# Before numpy: clients of a real federation do not share a machine's cores either.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import json
import logging
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from time import perf_counter, sleep

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from benchmarks._measure import finish, parser, progress
from rescind import History, LocalTraining
from rescind.core.regularity import NetworkLoss
from rescind.testing.grid import InProcessGrid

# A turn's rounds; and which part of all rounds the machine left alone.
ROUNDS, QUIET = 8, 0.2
TRAINING = LocalTraining(steps=3, learning_rate=0.05, loss=NetworkLoss(), precision="float32")


class TimedGrid(InProcessGrid):
    """Clients in a process of their own; notes when the messages of a round leave, and when its replies are there."""

    def __init__(self, app: ClientApp, names: Iterable[str]) -> None:
        super().__init__(app, {name: {} for name in names})
        self.times: list[tuple[float, float]] = []
        # Forked, as the app is made here.
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._clients = context.Process(target=self._answer, args=(theirs,), daemon=True)
        self._clients.start()
        theirs.close()

    def _answer(self, pipe: Connection) -> None:
        # Its copy of the other end would keep the pipe open once the server is gone, and itself waiting for ever.
        self._pipe.close()
        with suppress(EOFError, ConnectionError):
            while True:
                pipe.send(list(super().send_and_receive(pipe.recv())))

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:  # noqa: ARG002
        sent = list(messages)
        start = perf_counter()
        self._pipe.send(sent)
        replies: list[Message] = self._pipe.recv()
        # A strategy that lets nobody evaluate sends nothing, too.
        if sent:
            self.times.append((start, perf_counter()))
        return replies

    def rounds(self) -> list[tuple[float, float]]:
        """Return the seconds of each round, and of the server's part in it; the times are used up."""
        # Where a run begins, clients are asked what they wish.
        pairs = list(zip(self.times[-ROUNDS:], self.times[1 - ROUNDS :], strict=False))
        self.times = []
        return [(after[0] - before[0], after[0] - before[1]) for before, after in pairs]


@dataclass(frozen=True)
class Setting:
    """A federation: how wide its linear layer is, how long its clients are away, and how its rounds are recorded."""

    width: int
    away: float = 0.0
    evaluated: bool = False
    write_behind: bool = True
    participants: int = 10
    steps: int = 3


def trainer(width: int, steps: int, away: float = 0.0) -> ClientApp:
    """Return an app whose clients train a linear layer of width x width on examples of their own."""
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        arrays = msg.content.array_records["arrays"]
        weight, bias = arrays["weight"].numpy(), arrays["bias"].numpy()
        sleep(away)
        rng = np.random.default_rng(context.node_id)
        rows = rng.standard_normal((64, width), dtype=np.float32)
        targets = rng.standard_normal((64, width), dtype=np.float32)
        for _ in range(steps):
            residuals = (rows @ weight + bias - targets) / np.float32(64 * width)
            weight = weight - np.float32(0.05) * (rows.T @ residuals)
            bias = bias - np.float32(0.05) * residuals.sum(axis=0)
        own = ArrayRecord({"weight": Array(weight), "bias": Array(bias)})
        return Message(RecordDict({"arrays": own, "metrics": MetricRecord({"num-examples": 64})}), reply_to=msg)

    return app


def start(width: int) -> ArrayRecord:
    weight = np.random.default_rng(0).standard_normal((width, width), dtype=np.float32) / np.float32(width**0.5)
    return ArrayRecord({"weight": Array(weight), "bias": Array(np.zeros(width, dtype=np.float32))})


def averaging() -> FedAvg:
    return FedAvg(fraction_evaluate=0.0)


def grid(setting: Setting) -> TimedGrid:
    app = trainer(setting.width, setting.steps, setting.away / setting.participants)
    return TimedGrid(app, [f"client-{at}" for at in range(setting.participants)])


def speed(setting: Setting, turns: int, prefix: str = "") -> dict[str, object]:
    on, arrays = grid(setting), start(setting.width)
    bare: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    evaluate = (lambda *_: None) if setting.evaluated else None
    with tempfile.TemporaryDirectory() as folder, History(folder + "/history") as history:
        recorded = rescind.flower.Recorded(
            averaging(), history, training=TRAINING, options=rescind.flower.Options(write_behind=setting.write_behind)
        )
        for turn in progress(range(turns), f"recording_overhead: {prefix}"):
            averaging().start(on, arrays, num_rounds=ROUNDS, evaluate_fn=evaluate)
            bare += on.rounds()
            rescind.flower.run(recorded, on, arrays, num_rounds=(turn + 1) * ROUNDS, evaluate_fn=evaluate)
            ours += on.rounds()
    bare_round, bare_server = np.quantile(bare, QUIET, axis=0)
    our_round, our_server = np.quantile(ours, QUIET, axis=0)
    figures = {
        "parameters": setting.width * (setting.width + 1),
        "round_ratio": our_round / bare_round,
        "server_ratio": our_server / bare_server,
        "bare_round_ms": 1e3 * bare_round,
        "bare_server_ms": 1e3 * bare_server,
        "recorded_server_ms": 1e3 * our_server,
    }
    return {prefix + name: figure for name, figure in figures.items()}


def peak(contender: str, participants: int, width: int) -> float:
    """Measure the peak of resident memory, in MB, of a process that trains three rounds."""
    command = [sys.executable, "-m", "benchmarks.recording_overhead", "--peak", contender]
    command += [str(participants), str(width)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout
    return float(json.loads(printed.splitlines()[-1])["peak_mb"])


def train_once(contender: str, participants: int, width: int) -> None:
    on, arrays = grid(Setting(width, participants=participants, steps=1)), start(width)
    if contender == "bare":
        averaging().start(on, arrays, num_rounds=3)
    else:
        with tempfile.TemporaryDirectory() as folder, History(folder + "/history") as history:
            rescind.flower.run(rescind.flower.Recorded(averaging(), history, training=TRAINING), on, arrays, 3)
    finish({"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024})


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--peak", nargs=3, metavar=("CONTENDER", "PARTICIPANTS", "WIDTH"), help="used by itself")
    chosen = options.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    if chosen.peak:
        return train_once(chosen.peak[0], *map(int, chosen.peak[1:]))
    if chosen.quick:
        result = speed(Setting(300), 1)
    else:
        result = (
            speed(Setting(1000), 6)
            | speed(Setting(316), 16, "small_")
            | speed(Setting(1000, away=1.0), 2, "long_")
            | speed(Setting(1000, evaluated=True), 3, "evaluated_")
            | speed(Setting(1000, write_behind=False), 3, "at_once_")
        )
    participants, width = (20, 1000) if chosen.quick else (20, 4472)
    bare, ours = (peak(contender, participants, width) for contender in ("bare", "recorded"))
    return finish(result | {"memory_ratio": ours / bare, "bare_peak_mb": bare, "recorded_peak_mb": ours})


if __name__ == "__main__":
    main()
