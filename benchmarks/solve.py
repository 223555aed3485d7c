"""What solving costs: the rounds until a head is solved without those who left, and what a client sends in them.

Every case is a federation that was trained by FedAvg; then somebody leaves and is forgotten by ``Solve``, ``exact``.
Beside it, FedAvg retrains from scratch for as many rounds as before. Rounds count questions to the clients, the last
of which confirms that the gradient's norm is at most 1e-5.

- hospitals: each of four leaves (``hospitals_rounds``; ``hospitals_loss_ratio`` is the remaining hospitals' loss over
  that of FedAvg's retraining), or one record of it (``record_rounds``);
- MNIST, 100 clients of one class each, 1,010 parameters: one client, a whole class of ten, half of them
  (``one_class_rounds``; ``one_class_accuracy_gain`` is the test accuracy above that of FedAvg's retraining);
- MNIST's pixels, 7,850 parameters, whose Hessian is too large for a message: the features' curvature once and then
  gradients only (``gradients_only_rounds``), or no curvature at all (``no_curvature_rounds``).

Each number is the worst case. ``bytes_full``, ``bytes_features`` and ``bytes_fedavg`` are what one client sends in
the whole solve of the one-class federation by each kind of curvature, and in FedAvg's retraining: rounds are few
because messages are long.

``--large`` measures something else: a head of 204,900 parameters (2,048 features of CIFAR-100's images, 100 classes),
solved without one of ten clients of 1,000 rows:

- ``large_features_...``: a message may have 20 MB, so that the features' curvature is sent once;
- ``large_gradients_...``: the default of 16 MB, so that only gradients are sent;
- ``..._bytes_first`` is what a client sends in the first round, ``..._bytes`` in the whole solve;
- ``..._peak_memory_bytes`` is what the server and one client at a time take beside the rows;
- ``..._server_share`` is the server's part of the time, ``large_seconds_ratio`` the time by features over that by
  gradients only;
- ``large_weak_...``: a tenth of the L2 term.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._large_head import measure_large
from benchmarks._measure import finish, parser, progress
from experiments.data import heart
from experiments.data.federations import federation_of, head_of
from rescind import Budget, History, LocalTraining, LogisticL2, Revocable, Rounds, Scratch, SoftmaxL2
from rescind.core.edges import ROOT
from rescind.core.facts import Mode, PrivacyScope
from rescind.core.solver import Solving, bytes_sent
from rescind.core.sums import Wanted
from rescind.methods import Method, Solve
from rescind.simulation import Federation, LogisticHead, Shard, Simulation

BUDGET = Budget(1.0, 1e-5)
# What fits into a message: the features' curvature of 785 columns, of 101 columns, or gradients only.
FEATURES, ONE_CLASS_FEATURES, GRADIENTS = (Solving(most_bytes=most) for most in (3_000_000, 130_000, 70_000))


@dataclass(frozen=True)
class Case:
    """A federation, for how many rounds it is trained, and who leaves; with ``without`` some of its rows only.

    ``without`` is the federation as it is then.
    """

    name: str
    engine: Simulation
    rounds: int
    leaving: Sequence[str]
    without: Simulation | None = None


@dataclass(frozen=True)
class Forgotten:
    """What forgetting took, and what the model is worth then."""

    rounds: int
    loss: float
    accuracy: float


def hospitals(rounds: int) -> Iterator[Case]:
    """Yield the four hospitals, each of which leaves once, and each of which forgets one record once."""
    loaded = heart.load(None)
    loaded_shards = zip(loaded.names, loaded.rows, loaded.labels, strict=True)
    shards = {name: Shard(rows, labels) for name, rows, labels in loaded_shards}
    everybody = Shard(np.concatenate(loaded.rows), np.concatenate(loaded.labels))
    training = LocalTraining(steps=10, learning_rate=0.1, loss=LogisticL2(l2=0.01, row_norm=2.5))
    head = LogisticHead(len(heart.FEATURES))
    for name, own in shards.items():
        fewer = shards | {name: Shard(own.features[1:], own.labels[1:])}
        engine, without = (
            Simulation(Federation(parts, everybody, 2), head, training, secret=b"solve") for parts in (shards, fewer)
        )
        yield Case(f"hospitals, {name}", engine, rounds, [name])
        yield Case(f"hospitals, a record of {name}", engine, rounds, [name], without)


def one_class(rounds: int) -> Iterator[Case]:
    """Yield a hundred clients of one class each: one of them, a class, and half of them leave."""
    setting = {"dataset": "mnist", "features": "straightened convolutions", "columns": 100, "seed": 0}
    federation = federation_of(setting | {"clients": 100, "split": "one class", "examples": 15_000})
    training = LocalTraining(steps=5, learning_rate=1.8, loss=SoftmaxL2(l2=0.001, row_norm=1.0))
    names = list(federation.shards)
    alike = [name for name, shard in federation.shards.items() if shard.labels[0] == 0]
    for leaving in (names[:1], alike, names[::2]):
        engine = Simulation(federation, head_of(federation), training, secret=b"solve")
        yield Case(f"one class, {len(leaving)} leave", engine, rounds, leaving)


def pixels() -> Case:
    """Return a head on pixels, whose Hessian is too large to be sent; so may be the features' curvature."""
    setting = {"dataset": "mnist", "features": "pixels", "columns": 0, "seed": 0}
    federation = federation_of(setting | {"clients": 100, "split": "iid", "examples": 15_000})
    training = LocalTraining(steps=5, learning_rate=1.8, loss=SoftmaxL2(l2=0.001, row_norm=1.0))
    engine = Simulation(federation, head_of(federation), training, secret=b"solve")
    return Case("pixels", engine, 2, list(federation.shards)[:1])


def forget(case: Case, method: Method) -> Forgotten:
    """Train a federation, let those who leave be forgotten by a method, and say what that took."""
    with History.in_memory() as history:
        federation = Revocable(history, case.engine, scored=False)
        federation.train(Rounds(case.rounds))
        history.requests.ask(case.leaving, BUDGET, scope=PrivacyScope.RECORDS if case.without else PrivacyScope.GROUP)
        federation = replace(federation, engine=case.without or case.engine)
        (outcome,) = federation.forget(method, until=Rounds(case.rounds))
        if outcome.mode is not Mode.EXACT:
            raise RuntimeError(f"{case.name}: {outcome}")
        model = history.model(history.newest)
    remaining = [name for name in case.engine.clients if case.without or name not in case.leaving]
    total = (case.without or case.engine).sums(model, ROOT, remaining, Wanted.GRADIENT).total
    assert total is not None
    return Forgotten(outcome.rounds, total.loss / total.rows, case.engine.test_accuracy(model))


def main() -> None:
    """Measure, and print the result."""
    options = parser(__doc__)
    options.add_argument(
        "--large", action="store_true", help="a head of 204,900 parameters instead of the small ones"
    )
    chosen = options.parse_args()
    if chosen.large:
        return finish(measure_large(chosen.quick))
    solved = [(case, forget(case, Solve())) for case in progress(list(hospitals(20)), "hospitals")]
    few = [(case, done) for case, done in solved if case.without is None]
    retrained = {case.name: forget(case, Scratch()) for case, _ in progress(few, "hospitals, retraining")}
    result: dict[str, object] = {
        "hospitals_rounds": max(done.rounds for _, done in few),
        "hospitals_loss_ratio": max(done.loss / retrained[case.name].loss for case, done in few),
        "record_rounds": max(done.rounds for case, done in solved if case.without is not None),
    }
    # MNIST's features alone take longer than the rest of a quick run.
    return finish(result if chosen.quick else result | _measure_mnist())


def _measure_mnist() -> dict[str, object]:
    many = [(case, forget(case, Solve())) for case in progress(list(one_class(60)), "one class")]
    retrained = {case.name: forget(case, Scratch()) for case, _ in progress(many, "one class, retraining")}
    by_features, on_pixels = forget(many[0][0], Solve(ONE_CLASS_FEATURES)), pixels()
    rounds = max(done.rounds for _, done in many)
    return {
        "one_class_rounds": rounds,
        "one_class_accuracy_gain": min(done.accuracy - retrained[case.name].accuracy for case, done in many),
        "bytes_full": bytes_sent(10, 100, Wanted.FULL, rounds),
        "bytes_features": bytes_sent(10, 100, Wanted.FEATURES, by_features.rounds),
        "bytes_fedavg": bytes_sent(10, 100, Wanted.GRADIENT, 60),
        "gradients_only_rounds": forget(on_pixels, Solve(FEATURES)).rounds,
        "no_curvature_rounds": forget(on_pixels, Solve(GRADIENTS)).rounds,
    }


if __name__ == "__main__":
    main()
