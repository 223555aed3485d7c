"""Time a round of the simulation's fast trainers against the plain loop over clients, with one thread each.

Three settings, 10 participants each, in float32: softmax regression from 784 features to 10 classes, 10 steps on all
of 100 examples; a convolutional network of 122,570 parameters on 32x32x3 images, and one of 8,538 parameters on
28x28 images, 5 steps on batches of 20. What is timed is ``Simulation.train``, from numpy arrays to numpy arrays. The
data is random: it does not change the work.

And what float64 costs a client: the helper's steps on float32 rows (``train_head_on``) beside the same steps by
torch in float32, for a head of 784 features and 10 classes on 100 rows, and one of 1,600 and 100 on 1,000.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from benchmarks._measure import best_seconds, finish, parser
from rescind.core.edges import ModelId
from rescind.core.regularity import NetworkLoss, SoftmaxL2
from rescind.core.training import LocalTraining
from rescind.engines.engine import Replies
from rescind.engines.heads import train_head_on
from rescind.simulation import Federation, Network, Shard, Simulation, SoftmaxHead
from rescind.simulation.models import Model
from rescind.simulation.trainers import Loop, fast

PARTICIPANTS = 10
EXAMPLES = 100
CLASSES = 10


def federation(inputs: tuple[int, ...]) -> Federation:
    rng = np.random.default_rng(0)

    def shard() -> Shard:
        features = rng.standard_normal((EXAMPLES, *inputs), dtype=np.float32)
        return Shard(features, rng.integers(0, CLASSES, EXAMPLES))

    return Federation({f"client-{index}": shard() for index in range(PARTICIPANTS)}, shard(), CLASSES)


def difference(one: Replies, other: Replies) -> float:
    """Return the largest distance of two results for a participant, relative to the result."""

    def flat(replies: Replies) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        stacked = [np.asarray(tensors, dtype=np.float64) for tensors in replies.tensors.values()]
        return np.concatenate([tensors.reshape(len(tensors), -1) for tensors in stacked], axis=1)

    distances = np.linalg.norm(flat(one) - flat(other), axis=1)
    return float((distances / np.linalg.norm(flat(one), axis=1)).max())


def measure(label: str, model: Model, training: LocalTraining, batch: int | None, runs: int) -> dict[str, object]:
    data = federation(model.inputs)
    slow, quick = (
        Simulation(data, model, training, batch=batch, secret=b"benchmark", trainer=trainer)
        for trainer in (Loop, fast)
    )
    start, model_id = slow.start(), ModelId(0, 1)
    # Also warms both up.
    apart = difference(slow.train(start, model_id, slow.clients), quick.train(start, model_id, quick.clients))
    loop, best = best_seconds(
        runs,
        label,
        lambda: slow.train(start, model_id, slow.clients),
        lambda: quick.train(start, model_id, quick.clients),
    )
    return {
        f"{label}_speedup": loop / best,
        f"{label}_loop_ms": 1000 * loop,
        f"{label}_fast_ms": 1000 * best,
        f"{label}_difference": apart,
    }


def train_in_float32(
    head: torch.nn.Linear, rows: torch.Tensor, labels: torch.Tensor, training: LocalTraining
) -> None:
    """Make the helper's steps as one would without it."""
    l2 = cast(SoftmaxL2, training.loss).l2
    optimizer = torch.optim.SGD(head.parameters(), lr=training.learning_rate, weight_decay=l2)
    clipped = torch.nn.functional.normalize(rows)
    for _ in range(training.steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(head(clipped), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def measure_helper(label: str, training: LocalTraining, size: tuple[int, int, int], runs: int) -> dict[str, object]:
    examples, features, classes = size
    rng = np.random.default_rng(0)
    rows, labels = rng.standard_normal((examples, features), dtype=np.float32), rng.integers(0, classes, examples)
    start = {"bias": np.zeros(classes, np.float32), "weight": np.zeros((classes, features), np.float32)}
    head, inputs, targets = torch.nn.Linear(features, classes), torch.from_numpy(rows), torch.from_numpy(labels)
    helper, plain = best_seconds(
        runs,
        label,
        lambda: train_head_on(start, rows, labels, training),
        lambda: train_in_float32(head, inputs, targets, training),
    )
    return {f"{label}_helper_ratio": helper / plain, f"{label}_helper_ms": 1000 * helper}


def main() -> None:
    quick = parser(__doc__).parse_args().quick
    torch.set_num_threads(1)
    head = LocalTraining(10, 0.1, SoftmaxL2(l2=0.01, row_norm=1.0), precision="float32")
    softmax = measure("softmax", SoftmaxHead(784, CLASSES), head, None, 3 if quick else 200)
    network = LocalTraining(5, 0.05, NetworkLoss(), precision="float32")
    cnn = measure("cnn", Network(3, 32, CLASSES), network, 20, 1 if quick else 20)
    small = measure("small_cnn", Network(1, 28, CLASSES, hidden=32, width=8), network, 20, 1 if quick else 20)
    digits = measure_helper("digits", head, (EXAMPLES, 784, CLASSES), 3 if quick else 200)
    large = measure_helper("large", head, (1000, 1600, 100), 1 if quick else 30)
    finish(softmax | cnn | small | digits | large)


if __name__ == "__main__":
    main()
