"""Clients that lie while a head is solved, and know every check that their answers have to pass.

They look for the furthest lie that is still believed, go some part of the way, and fit loss and curvature to it; or
they answer honestly for a while and then not, or not at first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import scipy
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from numpy.typing import NDArray

from rescind.core.arrays import Floats, Tensor
from rescind.core.consistency import Earlier
from rescind.core.regularity import SoftmaxL2
from rescind.core.sums import Sums, Wanted, check_sums, flatten, head_shape, longest_row
from rescind.engines.heads import sum_head
from rescind.flower.wire import LOSS, SUMS, Instructions

# How many times the furthest lie is halved, and where no lie is: 2^-30 of the whole way.
_HALVINGS = 30


@dataclass(frozen=True, eq=False)
class Asked:
    """A solver's question as one client sees it, with its honest answer and what it answered before.

    ``others`` is what it should not know: the gradient of everybody else's rows, and of the L2 term for all rows.
    """

    theta: Floats
    shape: tuple[int, int]
    loss: SoftmaxL2
    wanted: Wanted
    honest: Sums
    earlier: Earlier
    others: Floats
    number: int

    def believed(self, sums: Sums) -> bool:
        """Return whether the server would take this for an answer."""
        length = float(np.linalg.norm(self.theta))
        return (
            check_sums(sums, self.loss, *self.shape, length, self.wanted) is None
            and self.earlier.doubt(self.theta, sums, self.loss) is None
        )

    def lie(self, gradient: Floats) -> Sums:
        """Return an answer with another gradient, and the loss that fits it and all answers before best."""
        steepest = self.honest.rows * longest_row(self.loss) ** 2 / 2
        least, most = [0.0], [np.inf]
        for before, told in self.earlier.answers:
            step, change = self.theta - before, gradient - told.gradient
            apart = float(change @ change) / (2 * steepest)
            least.append(told.loss + float(told.gradient @ step) + apart)
            most.append(told.loss + float(gradient @ step) - apart)
        value = (max(least) + min(most)) / 2 if self.earlier.answers else self.honest.loss
        return replace(self.honest, gradient=gradient, loss=float(max(value, 0.0)))

    @property
    def zero_sum_basis(self) -> Floats:
        """Return an orthonormal basis of the vectors whose classes sum to 0."""
        classes, width = self.shape[0], self.shape[1] + 1
        return np.kron(np.linalg.svd(np.eye(classes) - 1 / classes)[0][:, : classes - 1], np.eye(width))

    def zero_sum(self, vector: Floats) -> Floats:
        """Return a vector without what the classes share, of length 1."""
        matrix = vector.reshape(self.shape[0], -1)
        spread = (matrix - matrix.mean(axis=0)).reshape(-1)
        return np.asarray(spread / max(float(np.linalg.norm(spread)), 1e-300))


# What a liar answers.
Lie = Callable[[np.random.Generator, Asked], Sums]


def edge(part: float, tries: int = 1, kept: Floats | None = None) -> Lie:
    """Return a lie that goes so far to the edge of what is believed, in one direction or any, so many times over."""

    def answer(rng: np.random.Generator, asked: Asked) -> Sums:
        if not asked.earlier.answers:
            return asked.honest
        before, told = asked.earlier.answers[-1]
        change = asked.earlier.change
        origins = [asked.honest.gradient, told.gradient + (0.0 if change is None else change)]
        gradient = next((origin for origin in origins if asked.believed(asked.lie(origin))), None)
        if gradient is None:
            return asked.honest
        for _ in range(tries):
            ways = [kept] if kept is not None else [asked.others + gradient, rng.normal(size=len(before))]
            for way in ways:
                direction = asked.honest.rows * asked.zero_sum(way)
                # To where everybody's gradient is longest.
                if kept is None and direction @ (asked.others + gradient) < 0:
                    direction = -direction
                gradient = gradient + part * _furthest(asked, gradient, direction) * direction
        return asked.lie(gradient)

    return answer


def longest(shy: float) -> Lie:
    """Return a lie that makes everybody's gradient as long as it is believed, up to a part, by a search for it."""

    def answer(_: np.random.Generator, asked: Asked) -> Sums:
        if not asked.earlier.answers:
            return asked.honest
        rows, flat = asked.honest.rows, asked.zero_sum_basis
        rest = flat.T @ asked.others / rows

        def length(at: Floats) -> tuple[float, Floats]:
            return -float(np.square(rest + at).sum()), -2 * (rest + at)

        def room(at: Floats) -> Floats:
            return _room(asked, rows * (flat @ at), shy) / rows

        search: dict[str, Any] = {"method": "SLSQP", "constraints": [{"type": "ineq", "fun": room}]}
        begin = flat.T @ asked.honest.gradient / rows
        found = scipy.optimize.minimize(length, begin, jac=True, options={"maxiter": 60, "ftol": 1e-12}, **search)
        gradient = rows * (flat @ found.x)
        if not asked.believed(asked.lie(gradient)):
            direction = gradient - asked.honest.gradient
            gradient = (
                asked.honest.gradient + min(_furthest(asked, asked.honest.gradient, direction), 1.0) * direction
            )
        return asked.lie(gradient)

    return answer


def _room(asked: Asked, gradient: Floats, shy: float) -> Floats:
    """Return how much room the checks of two and of three answers leave to a gradient, if its loss is fitted."""
    steepest = asked.honest.rows * longest_row(asked.loss) ** 2 / 2
    (newest, last), answers = asked.earlier.answers[-1], asked.earlier.answers
    least, most, room = [0.0], [], []
    for before, told in answers:
        step, change = asked.theta - before, gradient - told.gradient
        apart = float(change @ change) / (2 * steepest)
        least.append(told.loss + float(told.gradient @ step) + apart)
        most.append(told.loss + float(gradient @ step) - apart)
    step, change = asked.theta - newest, gradient - last.gradient
    for before, told in answers[:-1]:
        chord, bend = newest - before, last.gradient - told.gradient
        far = max(float(np.linalg.norm(way)) for way in (chord, step, asked.theta - before))
        spread = 2 * np.sinh(min(far * longest_row(asked.loss) * 0.5**0.5, 50.0))
        allowed = shy * spread * np.sqrt(max(float(chord @ bend), 0.0) * max(float(step @ change), 0.0))
        room.append((allowed - abs(float(chord @ change) - float(step @ bend))) / max(far, 1e-12))
    longest_gradient = asked.honest.rows * asked.loss.gradient_bound
    return np.array([min(most) - max(least), longest_gradient - float(np.linalg.norm(gradient)), *room])


def _furthest(asked: Asked, origin: Floats, direction: Floats) -> float:
    """Return how far from a gradient another one is still believed; 0 if not even the first is."""
    if not asked.believed(asked.lie(origin)):
        return 0.0
    low, high = 0.0, 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if asked.believed(asked.lie(origin + middle * direction)) else (low, middle)
    return low


def steep(lie: Lie) -> Lie:
    """Return a lie with the most curvature that any rows have, where curvature is asked for."""

    def answer(rng: np.random.Generator, asked: Asked) -> Sums:
        if asked.wanted is not Wanted.FULL:
            return lie(rng, asked)
        classes, width = asked.shape[0], asked.shape[1] + 1
        flat = np.kron(np.eye(classes) - 1 / classes, np.eye(width))
        most = asked.honest.rows * longest_row(asked.loss) ** 2 / width * 0.999
        return lie(rng, replace(asked, honest=replace(asked.honest, curvature=most * (flat + flat.T) / 2)))

    return answer


def until(last: int) -> Lie:
    """Return what is honest up to a question, and rejected from then on."""
    return lambda _, asked: asked.honest if asked.number <= last else replace(asked.honest, loss=-1.0)


def between(first: int, last: int) -> Lie:
    """Return what is honest from one question to another, and rejected before and after."""
    return lambda _, asked: asked.honest if first <= asked.number <= last else replace(asked.honest, loss=-1.0)


@dataclass(eq=False)
class Liar:
    """An attack on a solve: what each liar answered is remembered as the server remembers it.

    ``everybody``: the rows of all clients, by their nodes. ``times``: it tells of so many times its rows.
    """

    lie: Lie
    everybody: Mapping[int, tuple[Tensor, NDArray[np.int64]]]
    times: int = 1
    earlier: dict[int, tuple[int, Earlier]] = field(default_factory=dict)
    numbers: dict[int, int] = field(default_factory=dict)

    def __call__(self, rng: np.random.Generator, reply: Message, msg: Message) -> None:
        """Change an answer to a solver; of anything else nothing but the number of rows."""
        if SUMS not in reply.content:
            metrics = reply.content.metric_records["metrics"]
            metrics["num-examples"] = self.times * int(cast(int, metrics["num-examples"]))
            return
        node = msg.metadata.dst_node_id
        (config,), (arrays,) = msg.content.config_records.values(), msg.content.array_records.values()
        told = Instructions.of(config)
        branch, earlier = self.earlier.get(node, (told.model_id.branch, Earlier()))
        if branch != told.model_id.branch:
            earlier, self.numbers[node] = Earlier(), 0
        self.numbers[node] = self.numbers.get(node, 0) + 1
        wanted = cast(Wanted, told.wanted)
        head = {name: arrays[name].numpy() for name in told.trained}
        theta, honest = flatten(head), _read(reply, wanted, head_shape(head), self.times)
        asked = Asked(
            theta,
            head_shape(head),
            cast(SoftmaxL2, told.training.loss),
            wanted,
            honest,
            earlier.before(theta),
            self._others(node, head, told),
            self.numbers[node],
        )
        sums = self.lie(rng, asked)
        if asked.believed(sums):
            earlier = asked.earlier.and_then(theta, sums, wanted)
        self.earlier[node] = (told.model_id.branch, earlier)
        _write(reply, sums)

    def _others(self, node: int, head: Mapping[str, Tensor], told: Instructions) -> Floats:
        loss = cast(SoftmaxL2, told.training.loss)
        named = {name.rpartition(".")[2]: tensor for name, tensor in head.items()}
        sums = [sum_head(named, *rows, loss) for other, rows in self.everybody.items() if other != node]
        rows = sum(each.rows for each in sums) + self.times * len(self.everybody[node][1])
        return np.asarray(sum(each.gradient for each in sums) + rows * loss.l2 * flatten(named))


def _read(reply: Message, wanted: Wanted, shape: tuple[int, int], times: int) -> Sums:
    arrays, metrics = reply.content.array_records[SUMS], reply.content.metric_records["metrics"]
    curvature = None
    if wanted is not Wanted.GRADIENT:
        width = (shape[1] + 1) * (shape[0] if wanted is Wanted.FULL else 1)
        curvature = np.zeros((width, width))
        curvature[np.triu_indices(width)] = arrays["curvature"].numpy()
        curvature = times * (curvature + np.triu(curvature, 1).T)
    rows, loss = int(cast(int, metrics["num-examples"])), float(cast(float, metrics[LOSS]))
    return Sums(times * rows, times * loss, times * arrays["gradient"].numpy(), curvature)


def _write(reply: Message, sums: Sums) -> None:
    arrays = {"gradient": Array(sums.gradient)}
    if sums.curvature is not None:
        arrays["curvature"] = Array(sums.curvature[np.triu_indices(len(sums.curvature))])
    reply.content[SUMS] = ArrayRecord(arrays)
    metrics = reply.content.metric_records["metrics"]
    reply.content["metrics"] = MetricRecord({**metrics, LOSS: float(sums.loss), "num-examples": sums.rows})


def every_lie(rng: np.random.Generator) -> list[tuple[Lie, int]]:
    """Return one lie of every kind, with how many times the rows it is about."""
    way, (few, more) = rng.normal(size=1000), sorted(int(number) for number in rng.integers(1, 9, size=2))

    def one_way(rng: np.random.Generator, asked: Asked) -> Sums:
        return edge(0.2, kept=way[: len(asked.theta)])(rng, asked)

    return [
        *((edge(part, tries), 1) for part, tries in ((0.05, 1), (0.5, 8), (0.9, 1))),
        *((longest(shy), 1) for shy in (0.2, 0.9)),
        (one_way, 1),
        (steep(edge(0.2, 2)), 1),
        (edge(0.2), 10),
        (until(more), 1),
        (between(few + 1, more + 2), 1),
    ]
