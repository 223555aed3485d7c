"""A head of 204,900 parameters, solved without one of ten clients: rounds, messages, memory and time."""

from __future__ import annotations

import ctypes
import gc
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks._measure import progress
from experiments.data.federations import federation_of, head_of
from rescind import Budget, History, LocalTraining, Revocable, Rounds, SoftmaxL2
from rescind.core.arrays import Tensor
from rescind.core.edges import ROOT, ModelId
from rescind.core.solver import Solving, choose
from rescind.core.sums import Wanted, flatten
from rescind.engines.engine import Answers, Doubt
from rescind.methods import Solve
from rescind.simulation import Simulation

CLASSES, FEATURES, CLIENTS, ROWS = 100, 2048, 10, 10_000
PARAMETERS = CLASSES * (FEATURES + 1)
# The default limit on a message leaves gradients only; the other one has room for the features' curvature, once.
BY_GRADIENTS, BY_FEATURES = (Solving(most_bytes=most, most_rounds=200) for most in (16_000_000, 20_000_000))


class TimedSimulation(Simulation):
    """A simulation that knows how long its clients took to answer, in seconds."""

    seconds = 0.0

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,
    ) -> Answers:
        """Let clients sum over their rows, by the clock."""
        start = perf_counter()
        answers = super().sums(model, model_id, names, wanted, doubt)
        self.seconds += perf_counter() - start
        return answers


@dataclass(frozen=True)
class Solved:
    """What a solve took: memory above what there was before it, in bytes, and the gradient's norm at its end."""

    rounds: int
    memory: int
    gradient: float
    seconds: float
    server_seconds: float


def measure_large(quick: bool) -> dict[str, object]:
    """Solve with either limit; at full size also with a tenth of the L2 term, which takes longer."""
    usual = {solving: solve_large(1e-4, solving) for solving in progress([BY_FEATURES, BY_GRADIENTS], "large head")}
    features, gradients = usual[BY_FEATURES], usual[BY_GRADIENTS]
    result: dict[str, object] = {"large_parameters": PARAMETERS}
    for name, solving, solved in (("features", BY_FEATURES, features), ("gradients", BY_GRADIENTS, gradients)):
        first = first_bytes(solving)
        result |= {
            f"large_{name}_rounds": solved.rounds,
            f"large_{name}_bytes_first": first,
            f"large_{name}_bytes": first + (solved.rounds - 1) * 8 * PARAMETERS,
            f"large_{name}_peak_memory_bytes": solved.memory,
            f"large_{name}_server_share": solved.server_seconds / solved.seconds,
        }
    result |= {
        "large_bytes_sent_by_a_client_a_round": 8 * PARAMETERS,
        "large_gradient": max(features.gradient, gradients.gradient),
        "large_seconds_ratio": features.seconds / gradients.seconds,
    }
    if quick:
        return result
    weak = {solving: solve_large(1e-5, solving) for solving in progress([BY_FEATURES, BY_GRADIENTS], "weak L2")}
    return result | {
        "large_weak_features_rounds": weak[BY_FEATURES].rounds,
        "large_weak_gradients_rounds": weak[BY_GRADIENTS].rounds,
        "large_weak_gradient": max(solved.gradient for solved in weak.values()),
    }


def solve_large(l2: float, solving: Solving) -> Solved:
    """Train a round with everybody, and solve without the first client."""
    setting = {"dataset": "cifar100", "features": "convolutions", "columns": FEATURES, "seed": 0}
    federation = federation_of(setting | {"clients": CLIENTS, "split": "iid", "examples": ROWS})
    training = LocalTraining(steps=1, learning_rate=1.0, loss=SoftmaxL2(l2=l2, row_norm=1.0))
    engine = TimedSimulation(federation, head_of(federation), training, secret=b"solve")
    leaver, *others = engine.clients
    # On disk, as a server has it: a history in memory would hold every model.
    with tempfile.TemporaryDirectory() as folder, History(folder + "/history") as history:
        revocable = Revocable(history, engine, scored=False)
        revocable.train(Rounds(1))
        history.requests.ask([leaver], Budget(1.0, 1e-5))
        before, start = reset_peak(), perf_counter()
        (outcome,) = revocable.forget(Solve(solving), until=Rounds(1))
        seconds, memory = perf_counter() - start, read_status("VmHWM") - before
        model = history.model(history.newest)
    clients_seconds = engine.seconds
    total = engine.sums(model, ROOT, others, Wanted.GRADIENT).total
    assert total is not None
    gradient = float(np.linalg.norm(total.gradient / total.rows + l2 * flatten(model)))
    return Solved(outcome.rounds, memory, gradient, seconds, seconds - clients_seconds)


def first_bytes(solving: Solving) -> int:
    """Return what a client sends in the first round: the gradient, and the curvature that fits."""
    if choose(CLASSES, FEATURES, solving.most_bytes) is Wanted.GRADIENT:
        return 8 * PARAMETERS
    return 8 * (PARAMETERS + (FEATURES + 1) * (FEATURES + 2) // 2)


def reset_peak() -> int:
    """Give freed memory back, begin a new peak, and return the bytes in use; Linux has this."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return read_status("VmRSS")


def read_status(key: str) -> int:
    """Return a number of bytes that the kernel knows of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))
