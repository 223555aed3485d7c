"""What does recording cost a Flower federation? Bare FedAvg and Recorded, alternating, on a Grid in this process.

10 participants with 10^6 float32 parameters train in numpy, one thread, for at least 0.2 s a round in all; the
history is a folder with SQLite, its models chosen by retention. ``round_ratio`` is Recorded's time for a round by
bare FedAvg's, ``server_ratio`` the same for what the server does between a round's last reply and the next round's
first message. ``memory_ratio`` is that of the peaks of resident memory with 20 participants and 2*10^7 parameters,
each contender in a process of its own.
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
from statistics import median
from time import perf_counter

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import rescind.flower
from benchmarks._measure import finish, parser, progress
from rescind import History, LocalTraining
from rescind.core.regularity import NetworkLoss
from rescind.testing.grid import InProcessGrid

TRAINING = LocalTraining(steps=3, learning_rate=0.05, loss=NetworkLoss(), precision="float32")


class TimedGrid(InProcessGrid):
    """Notes when the messages of a round leave, and when its replies are there."""

    times: list[tuple[float, float]]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        sent = list(messages)
        start = perf_counter()
        replies = super().send_and_receive(sent, timeout=timeout)
        self.times.append((start, perf_counter()))
        return replies

    def rounds(self) -> tuple[float, float]:
        """Return the median seconds of a round, and of the server's part in it; the times are used up."""
        pairs = list(zip(self.times, self.times[1:], strict=False))
        self.times = []
        return median(after[0] - before[0] for before, after in pairs), median(
            after[0] - before[1] for before, after in pairs
        )


def trainer(width: int, steps: int) -> ClientApp:
    """Return an app whose clients train a linear layer of width x width on examples of their own."""
    app = ClientApp()

    @app.train()
    def train(msg: Message, context: Context) -> Message:
        arrays = msg.content.array_records["arrays"]
        weight, bias = arrays["weight"].numpy(), arrays["bias"].numpy()
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


def grid(participants: int, width: int, steps: int) -> TimedGrid:
    made = TimedGrid(trainer(width, steps), {f"client-{at}": {} for at in range(participants)})
    made.times = []
    return made


def speed(participants: int, width: int, turns: int, rounds: int) -> dict[str, object]:
    on, arrays = grid(participants, width, 3), start(width)
    bare: list[tuple[float, float]] = []
    ours: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder, History(folder + "/history") as history:
        recorded = rescind.flower.Recorded(averaging(), history, training=TRAINING)
        for turn in progress(range(turns), "recording_overhead"):
            averaging().start(on, arrays, num_rounds=rounds)
            bare.append(on.rounds())
            rescind.flower.run(recorded, on, arrays, num_rounds=(turn + 1) * rounds)
            ours.append(on.rounds())
    round_ratio, server_ratio = (min(each[at] for each in ours) / min(each[at] for each in bare) for at in (0, 1))
    return {
        "participants": participants,
        "parameters": width * (width + 1),
        "round_ratio": round_ratio,
        "server_ratio": server_ratio,
        "bare_round_ms": 1e3 * min(each[0] for each in bare),
        "bare_server_ms": 1e3 * min(each[1] for each in bare),
        "recorded_server_ms": 1e3 * min(each[1] for each in ours),
    }


def peak(contender: str, participants: int, width: int) -> float:
    """Measure the peak of resident memory, in MB, of a process that trains three rounds."""
    command = [sys.executable, "-m", "benchmarks.recording_overhead", "--peak", contender]
    command += [str(participants), str(width)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout
    return float(json.loads(said.splitlines()[-1])["peak_mb"])


def train_once(contender: str, participants: int, width: int) -> None:
    on, arrays = grid(participants, width, 1), start(width)
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
    result = speed(10, 300, 2, 4) if chosen.quick else speed(10, 1000, 8, 8)
    participants, width = (20, 1000) if chosen.quick else (20, 4472)
    bare, ours = (peak(each, participants, width) for each in ("bare", "recorded"))
    return finish(result | {"memory_ratio": ours / bare, "bare_peak_mb": bare, "recorded_peak_mb": ours})


if __name__ == "__main__":
    main()
