"""What rounding costs the bound: the same federations in float32 and in float64.

The map's federations, up to 10,000 clients, and a head on MNIST's pixels are trained in both types. At every model
the bound (Psi) of a client in float32 is compared with that in float64 (``float32_ratio``, the worst), both with the
true distance to the world without the client (``violations``), and what the planner makes of them (``plans_differ``
on the pixels; on the map a Psi that is a hundredth larger may ask for the next noise of the public list).
Then up to 100,000 participants that are alike, or nearly so, train small heads: there nothing but rounding is left of
the true distance, and the bound over it is reported (``alike``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._measure import finish, progress
from benchmarks._mnist import parsed
from experiments.data.federations import examples_of, federation_of, head_of
from rescind import History, LocalTraining, SoftmaxL2
from rescind.audit import Comparison, RecordingEngine, compare_worlds
from rescind.core.calibration import Budget
from rescind.core.planning import Candidate
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.methods import Sifu
from rescind.simulation import Federation, Shard, Simulation

PRECISIONS = ("float64", "float32")
# The map's own setting.
EXAMPLES = 15_000
MAP: dict[str, Any] = {"dataset": "mnist", "features": "straightened convolutions", "columns": 100, "seed": 0}
MAP_TRAINING = LocalTraining(steps=5, learning_rate=1.8, loss=SoftmaxL2(l2=0.001, row_norm=1.0))
PIXELS_TRAINING = LocalTraining(steps=5, learning_rate=0.1, loss=SoftmaxL2(l2=0.01, row_norm=1.0))
ALIKE_TRAINING = LocalTraining(steps=1, learning_rate=1.9, loss=SoftmaxL2(l2=0.01, row_norm=1.0))
BUDGET = Budget(1.0, 1e-5)


@dataclass(frozen=True)
class Case:
    """A federation, how it is trained, for how many rounds, and what it is called in the output."""

    name: str
    federation: Federation
    training: LocalTraining
    rounds: int


def on_the_map(quick: bool) -> Iterator[Case]:
    """Yield the map's federations; ten thousand clients have an example each."""
    rounds = 12 if quick else 60
    for clients in (30, 300) if quick else (30, 300, 3000, 10000):
        for split in ("iid", "one class"):
            setting = MAP | {"clients": clients, "split": split, "examples": max(EXAMPLES, clients)}
            yield Case(f"{split}, {clients}", federation_of(setting), MAP_TRAINING, rounds)


def on_pixels(quick: bool) -> Iterator[Case]:
    """Yield heads of 7,850 parameters, 20 examples a client."""
    train, test, classes = examples_of("mnist", "pixels", 0)
    for clients in (10, 50) if quick else (10, 50, 400):
        shards = {
            f"client-{at}": Shard(train.features[20 * at : 20 * at + 20], train.labels[20 * at : 20 * at + 20])
            for at in range(clients)
        }
        yield Case(f"pixels, {clients}", Federation(shards, test, classes), PIXELS_TRAINING, 12 if quick else 60)


def alike(quick: bool) -> Iterator[Case]:
    """Yield clients that have the same example, or nearly the same, and a head of ten parameters."""
    rng = np.random.default_rng(1)
    row, label = rng.normal(size=(1, 4)), np.zeros(1, dtype=np.int64)
    for clients in (1000, 5000) if quick else (1000, 10_000, 100_000):
        for spread in (0.0, 1e-6):
            shards = {
                f"client-{at}": Shard(row * (1 + spread * rng.normal(size=row.shape)), label) for at in range(clients)
            }
            name = f"{'alike' if spread == 0 else 'nearly alike'}, {clients}"
            yield Case(name, Federation(shards, Shard(row, label), 2), ALIKE_TRAINING, 3)


def measure(case: Case, precision: str) -> tuple[list[Comparison], Candidate]:
    """Train, hold the bound of one client against its distance at every model, and plan to forget it."""
    training = LocalTraining(
        case.training.steps, case.training.learning_rate, case.training.loss, precision=precision
    )
    tape = RecordingEngine(Simulation(case.federation, head_of(case.federation), training, secret=b"rounding"))
    leaver = tape.clients[len(tape.clients) // 2]
    with History.in_memory() as history:
        revocable = Revocable(history, tape, capacity=16)
        revocable.train(Rounds(case.rounds))
        found = compare_worlds(history, tape, [leaver])
        plan = revocable.plan(Sifu(), history.requests.ask([leaver], BUDGET))
    return found, plan.candidate


def main() -> None:
    chosen = parsed(__doc__)
    ratios: dict[str, float] = {}
    differ: list[str] = []
    violations, compared_models = 0, 0
    cases = [*on_the_map(chosen.quick), *on_pixels(chosen.quick)]
    for case in progress(cases, "federations", len(cases)):
        (double, one), (single, other) = (measure(case, precision) for precision in PRECISIONS)
        pairs = [(wide.bound, narrow.bound) for wide, narrow in zip(double, single, strict=True) if wide.bound]
        ratios[case.name] = max(narrow / wide for wide, narrow in pairs)
        if (one.node, one.sigma, one.mode) != (other.node, other.sigma, other.mode):
            differ.append(case.name)
        violations += sum(each.violated for each in (*double, *single))
        compared_models += len(double) + len(single)
    near: dict[str, dict[str, float | None]] = {}
    for case in progress(list(alike(chosen.quick)), "alike", None):
        for precision in PRECISIONS:
            found, _ = measure(case, precision)
            violations += sum(each.violated for each in found)
            compared_models += len(found)
            distance, bound = max(each.distance for each in found), found[-1].bound
            near[f"{case.name}, {precision}"] = {
                "distance": distance,
                "bound": bound,
                "ratio": bound / distance if distance else None,
            }
    finish(
        {
            "float32_ratio": max(ratio for name, ratio in ratios.items()),
            "float32_ratios": ratios,
            "plans_differ": sum(name.startswith("pixels") for name in differ),
            "other_plans": differ,
            "violations": violations,
            "compared": compared_models,
            "alike": near,
        }
    )


if __name__ == "__main__":
    main()
