"""Time a round's mean with all distances, and with their matrix, against Flower's mean alone.

Both start from the same replies as Flower holds them, 20 participants with 10^7 float32 parameters in 30
tensors, and both end with an ArrayRecord. Everything is measured twice: with as many threads as BLAS takes,
and, under names ending in `_one_thread`, with one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from typing import TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
from numpy.typing import NDArray

from benchmarks._measure import best_seconds, finish, parser
from rescind.core.aggregation import Aggregator
from rescind.flower.server.arrays import view_array

Model: TypeAlias = dict[str, NDArray[np.float32]]

PARTICIPANTS = 20
LAYERS = 10


def shapes(parameters: int) -> list[tuple[int, ...]]:
    """Return the tensors of a network: per layer a matrix, a bias and a scale, each layer a third larger."""
    growth = 1.3 ** np.arange(LAYERS)
    widths = np.rint(parameters * growth / growth.sum() / 130).astype(int).tolist()
    return [shape for width in widths for shape in ((128, width), (width,), (width,))]


def replies(parameters: int) -> tuple[Model, list[RecordDict]]:
    """Make the global parameters and what the participants send back."""
    rng = np.random.default_rng(0)
    names = {f"tensor-{index:02}": shape for index, shape in enumerate(shapes(parameters))}
    tensors = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in names.items()}
    records = []
    for _ in range(PARTICIPANTS):
        arrays = {
            name: Array(tensor + np.float32(0.01) * rng.standard_normal(tensor.shape, dtype=np.float32))
            for name, tensor in tensors.items()
        }
        metrics = MetricRecord({"num-examples": int(rng.integers(50, 500))})
        records.append(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}))
    return tensors, records


def flower(records: list[RecordDict]) -> ArrayRecord:
    return aggregate_arrayrecords(records, "num-examples")


def ours(previous: Model, records: list[RecordDict], gram: bool) -> ArrayRecord:
    counts = np.array([record.metric_records["metrics"]["num-examples"] for record in records], dtype=float)
    replied = [record.array_records["arrays"] for record in records]
    aggregator = Aggregator(counts, gram=gram)
    new = {
        name: Array(aggregator.add(tensor, [view_array(arrays[name], tensor) for arrays in replied]))
        for name, tensor in previous.items()
    }
    aggregator.result()
    return ArrayRecord(new)


def read(tensors: list[NDArray[np.float32]]) -> None:
    """Read every input once; a dot product is the fastest way that numpy has."""
    for tensor in tensors:
        np.dot(tensor, tensor)


def peak_bytes(previous: Model, records: list[RecordDict]) -> int:
    """Measure the most memory that our contender holds at a time besides its inputs, the result included."""
    tracemalloc.start()
    ours(previous, records, gram=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def measure(parameters: int, runs: int) -> dict[str, object]:
    previous, records = replies(parameters)
    for name, array in flower(records).items():
        mean = ours({name: previous[name]}, records, gram=True)[name].numpy()
        np.testing.assert_allclose(mean, array.numpy(), rtol=0, atol=1e-5)
    arrays = [record.array_records["arrays"] for record in records]
    inputs = [view_array(reply[name], tensor).reshape(-1) for reply in arrays for name, tensor in previous.items()]
    mean_only, with_delta, with_gram, bandwidth = best_seconds(
        runs,
        "aggregation",
        lambda: flower(records),
        lambda: ours(previous, records, gram=False),
        lambda: ours(previous, records, gram=True),
        lambda: read(inputs),
    )
    sizes = [tensor.size for tensor in previous.values()]
    return {
        "participants": PARTICIPANTS,
        "parameters": sum(sizes),
        "mean_delta_ratio": with_delta / mean_only,
        "mean_delta_gram_ratio": with_gram / mean_only,
        "bandwidth_limit_ratio": bandwidth / mean_only,
        "extra_memory_ratio": peak_bytes(previous, records) / (4 * PARTICIPANTS * max(sizes)),
        "flower_seconds": mean_only,
    }


def measure_with_one_thread(arguments: list[str]) -> dict[str, object]:
    """Measure in a process of its own, as BLAS reads the number of threads only when it starts."""
    limits = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "MKL", "OMP")}
    command = [sys.executable, "-m", "benchmarks.aggregation", "--once", *arguments]
    output = subprocess.run(command, env=os.environ | limits, check=True, stdout=subprocess.PIPE, text=True)
    measured = json.loads(output.stdout.splitlines()[-1])
    return {f"{key}_one_thread": value for key, value in measured.items() if isinstance(value, float)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--once", action="store_true", help="only with the threads that the environment sets")
    chosen = options.parse_args()
    # First, so that only one process at a time holds the replies.
    single = {} if chosen.once else measure_with_one_thread(["--quick"] if chosen.quick else [])
    finish(measure(*((2 * 10**6, 3) if chosen.quick else (10**7, 7))) | single)


if __name__ == "__main__":
    main()
