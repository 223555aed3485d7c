"""A body from some, a head from all: who influences what is decided before, and forgetting a network becomes cheap.

A federation of images is trained in one of two ways, with the same work of the clients.

- ``groups``: a network for each group of clients, by FedAvg; what is released is the mean of their probabilities. One
  group is one network. Who leaves is forgotten by training its group again.
- ``anchors``: a public draw chooses some clients, who train a network by FedAvg. Its body is frozen, and everybody
  solves a head on what it says of their images, a softmax head by rounds of sums (``Solve``), or a ridge head from
  one. Who is no anchor is forgotten by solving again without it. Without anchors the body is the public start.

The work is counted in images that are learned from; what the body says of everybody's images counts as one pass over
them. With ``held_out`` so many images of each class belong to no client and take the place of the test images: that
is how learning rates and L2 terms were chosen.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from time import process_time
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import nn
from torch.nn import functional

from experiments.data.features import normalised
from experiments.data.federations import examples_of, parts_of
from experiments.harness import Configuration, Row
from experiments.runs.membership import together, told_apart_by
from rescind import Budget, History, LocalTraining, NetworkLoss, Revocable, Rounds, Sampling, SoftmaxL2, Solve
from rescind.audit.attacks import measure_confidence
from rescind.core.arrays import Floats, Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Mode
from rescind.core.regularity import SquaredL2
from rescind.core.ridge import RidgeSums, add_up_ridge, ridge_solution
from rescind.core.solver import Solving, bytes_sent, choose
from rescind.core.sums import Wanted, flatten, unflatten
from rescind.engines.engine import Answers, Doubt, Replies
from rescind.engines.heads import sum_ridge
from rescind.engines.seeds import toss_coin
from rescind.engines.server import average
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead
from rescind.simulation.federation import Examples
from rescind.simulation.models import Model
from rescind.simulation.trainers import Batches, Tensors, channels_last

Labels: TypeAlias = NDArray[np.int64]

# Public: everybody has to be able to make the same start.
_SEED = 20_261_117
# Exact forgetting has no budget, but every request has one.
_BUDGET = Budget(1.0, 1e-5)
# Images of each client that are held against images of nobody.
_KNOWN = 20


@dataclass(frozen=True, slots=True)
class TwoConvolutions:
    """Two 5x5 convolutions with stride 2, and one linear layer."""

    channels: int
    size: int
    classes: int
    width: int

    @property
    def inputs(self) -> tuple[int, ...]:
        """The shape of one example."""
        return (self.channels, self.size, self.size)

    @property
    def features(self) -> int:
        """How many numbers the body gives."""
        return 2 * self.width * (((self.size - 5) // 2 - 4) // 2 + 1) ** 2

    def start(self) -> dict[str, torch.Tensor]:
        """Return numbers uniform in +-sqrt(6/fan-in), and in +-1/sqrt(fan-in) for the head; biases are 0."""
        generator, start = torch.Generator().manual_seed(_SEED), {}
        for name, parameter in self.module().named_parameters():
            bound = math.sqrt((1 if name.startswith("head") else 6) / parameter[0].numel())
            uniform = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
            start[name] = (2 * uniform - 1) * bound if name.endswith("weight") else torch.zeros_like(uniform)
        return start

    def module(self) -> nn.Module:
        """Return the layers."""
        with torch.device("meta"):
            layers = OrderedDict[str, nn.Module](
                convolution_1=nn.Conv2d(self.channels, self.width, 5, stride=2),
                relu_1=nn.ReLU(),
                convolution_2=nn.Conv2d(self.width, 2 * self.width, 5, stride=2),
                relu_2=nn.ReLU(),
                flatten=nn.Flatten(),
                head=nn.Linear(self.features, self.classes),
            )
            return nn.Sequential(layers).to_empty(device="cpu")


class SideBySide:
    """Makes the local steps of all participants at once: their images lie on each other like channels.

    Each one's filters see its own images only, so that the numbers are those of ``Loop`` up to rounding.
    """

    def __init__(self, model: Model, examples: Examples, training: LocalTraining) -> None:  # noqa: ARG002, as it is called
        self._examples, self._training = examples, training

    def train(self, start: Tensors, names: Sequence[str], batches: Batches) -> dict[str, torch.Tensor]:
        """Return, tensor by tensor, those of the named clients as one tensor (clients, *shape)."""
        if batches is None:
            raise ValueError("everybody needs batches, of one size")
        rows = torch.stack([own + self._examples.spans[name].start for name, own in zip(names, batches, strict=True)])
        many, _, size = rows.shape
        copies = {name: tensor.expand(many, *tensor.shape).clone() for name, tensor in start.items()}
        stacked = [tensor if name.startswith("head") else tensor.flatten(0, 1) for name, tensor in copies.items()]
        parameters = [channels_last(tensor).requires_grad_() for tensor in stacked]
        for chosen in rows.transpose(0, 1):
            values = channels_last(self._examples.features[chosen.T].flatten(1, 2))
            for weight, bias in (parameters[:2], parameters[2:4]):
                values = functional.conv2d(values, weight, bias, stride=2, groups=many).relu_()
            values = values.reshape(size, many, -1).transpose(0, 1)
            logits = torch.baddbmm(parameters[5].unsqueeze(1), values, parameters[4].transpose(1, 2))
            labels = self._examples.labels[chosen].flatten()
            # Each client's mean, added up: nobody's parameters are in another's.
            loss = functional.cross_entropy(logits.flatten(0, 1), labels, reduction="sum") / size
            with torch.no_grad():
                for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                    parameter.sub_(gradient, alpha=self._training.learning_rate)
        return {
            name: parameter.detach().reshape(many, *start[name].shape)
            for name, parameter in zip(start, parameters, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Cost:
    """What clients do: rounds one after the other, answers of all clients, bytes in them, seconds of computing."""

    rounds: int = 0
    answers: int = 0
    sent: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.rounds + other.rounds,
            self.answers + other.answers,
            self.sent + other.sent,
            self.seconds + other.seconds,
        )

    def among(self, answers: int) -> Cost:
        """Return the cost of as many rounds with other numbers of answers."""
        share = answers / self.answers
        return Cost(self.rounds, answers, round(self.sent * share), self.seconds * share)

    def row(self, name: str) -> Row:
        """Return it as columns."""
        return {
            f"{name}_rounds": self.rounds,
            f"{name}_answers": self.answers,
            f"{name}_bytes": self.sent,
            f"{name}_seconds": round(self.seconds, 3),
        }


class Timed(Simulation):
    """Clients whose computing is timed."""

    seconds = 0.0

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        """Train, and add the time that it took."""
        start = process_time()
        replies = super().train(model, model_id, names)
        self.seconds += process_time() - start
        return replies

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,
    ) -> Answers:
        """Sum, and add the time that it took."""
        start = process_time()
        answers = super().sums(model, model_id, names, wanted, doubt)
        self.seconds += process_time() - start
        return answers


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """A network that some clients have trained: its last model, some of those before, and what it cost."""

    engine: Timed
    models: list[dict[str, Tensor]]
    cost: Cost


@dataclass(frozen=True, slots=True)
class Setting:
    """A federation and a public draw of its clients, in which nobody's place depends on who else is there."""

    configuration: Configuration
    federation: Federation

    @property
    def secret(self) -> bytes:
        """What all chance of a run comes from."""
        return b"staged %d" % self.configuration["seed"]

    @property
    def order(self) -> list[str]:
        """Everybody; the first are the anchors."""
        return sorted(self.federation.shards, key=lambda name: toss_coin(self.secret, "anchor", name))

    @property
    def leavers(self) -> list[str]:
        """Those who leave, the first of them alone: no anchors, whoever the anchors are."""
        others = self.order[self.configuration["most_anchors"] :]
        leaving = self.configuration["leaving"]
        return sorted(others, key=lambda name: toss_coin(self.secret, "leaving", name))[: leaving + 1]

    @property
    def network(self) -> TwoConvolutions:
        """What is trained."""
        channels, size, _ = self.federation.inputs
        return TwoConvolutions(channels, size, self.federation.classes, self.configuration["width"])

    @property
    def rounds(self) -> int:
        """How many rounds of as many clients as are drawn make up the work."""
        own = self.configuration
        return int(own["passes"] * own["examples"] // (own["drawn"] * own["steps"] * own["batch"]))


def federation_of(configuration: Configuration) -> Federation:
    """Return the clients' images, and the test images or those that are held out for validation."""
    train, test, classes = examples_of(configuration["dataset"], "images", 0)
    if configuration["held_out"]:
        last = [np.flatnonzero(train.labels == label)[-configuration["held_out"] :] for label in range(classes)]
        chosen = np.zeros(len(train.labels), dtype=np.bool_)
        chosen[np.concatenate(last)] = True
        test = Shard(train.features[chosen], train.labels[chosen])
        train = Shard(train.features[~chosen], train.labels[~chosen])
    clients, examples = configuration["clients"], configuration["examples"]
    parts = parts_of(train.labels, configuration["split"], clients, examples // clients, configuration["seed"])
    shards = {
        f"client-{at:04}": Shard(train.features[part], train.labels[part])
        for at, part in enumerate(map(np.sort, parts))
    }
    return Federation(shards, test, classes)


def run(configuration: Configuration) -> list[Row]:
    """Train in one way, say how good the model is, what forgetting costs, and whether it is exact."""
    setting = Setting(configuration, federation_of(configuration))
    return train_groups(setting) if "groups" in configuration else train_staged(setting)


def train(setting: Setting, names: Sequence[str], rounds: int) -> Training:
    """Train a network by FedAvg with some of the clients, and keep models of the last fifth of the rounds."""
    own, network = setting.configuration, setting.network
    shards = {name: setting.federation.shards[name] for name in sorted(names)}
    engine = Timed(
        replace(setting.federation, shards=shards),
        network,
        LocalTraining(
            steps=own["steps"], learning_rate=own["learning_rate"], loss=NetworkLoss(), precision="float32"
        ),
        sampling=Sampling.FIXED_SIZE,
        size=own["drawn"],
        batch=own["batch"],
        secret=setting.secret,
        trainer=SideBySide,
    )
    model, models, answers = engine.start(), list[dict[str, Tensor]](), 0
    for number in range(1, rounds + 1):
        model_id = ModelId(0, number)
        replies = engine.train(model, model_id, engine.draw(model_id, engine.clients))
        model, answers = average(model, replies, 1.0).model, answers + len(replies.names)
        if number > rounds - max(rounds // 5, 1):
            models.append(model)
    sent = 4 * sum(tensor.size for tensor in model.values()) * answers
    return Training(engine, models or [model], Cost(rounds, answers, sent, engine.seconds))


def train_groups(setting: Setting) -> list[Row]:
    """Train a network for each group, and count what training a leaver's group again costs."""
    own, count, order = setting.configuration, setting.configuration["groups"], setting.order
    groups = [order[at::count] for at in range(count)]
    trained = [train(setting, names, setting.rounds // count) for names in groups]
    # The last iterate is noisy: some models of the last fifth of the rounds are judged.
    last, judged = len(trained[0].models), own["judged"]
    chosen = sorted({last - 1 - at * last // judged for at in range(judged)})
    test, known = setting.federation.test, _known(setting)
    outside = [np.stack([_probabilities(group.engine, group.models[at], test) for group in trained]) for at in chosen]
    inside = np.stack([_probabilities(group.engine, group.models[-1], known) for group in trained])
    row: Row = {
        "head": "own",
        "test": round(float(np.mean([_accuracy(each, test.labels) for each in outside])), 4),
        "membership": _membership(inside, known.labels, outside[-1], test.labels),
    }
    if own["held_out"]:
        return [row]
    first, *others = setting.leavers
    everybody = reduce(Cost.__add__, (group.cost for group in trained))

    def again(members: list[set[str]], leaving: Sequence[str]) -> Cost:
        """Count the training of the groups that have one of those who leave, and take these out of them."""
        total = Cost()
        for names, group in zip(members, trained, strict=True):
            if names.intersection(leaving):
                names.difference_update(leaving)
                total += group.cost.among(group.cost.rounds * min(own["drawn"], len(names)))
        return total

    scattered = [set(names) for names in groups]
    costs = {
        "train": everybody,
        "one": again([set(names) for names in groups], [first]),
        "ten": again([set(names) for names in groups], others),
    }
    # Groups train side by side, but for those who leave at different times.
    rounds = trained[0].cost.rounds
    for name, cost in costs.items():
        row |= replace(cost, rounds=rounds).row(name)
    return [row | reduce(Cost.__add__, (again(scattered, [name]) for name in others)).row("scattered")]


def train_staged(setting: Setting) -> list[Row]:
    """Train the body with the anchors, solve both heads with everybody, and forget by solving again."""
    own, anchors = setting.configuration, setting.order[: setting.configuration["anchors"]]
    # What the body says of everybody's images is counted as a pass over them.
    rounds = setting.rounds - own["examples"] // (own["drawn"] * own["steps"] * own["batch"]) if anchors else 0
    body = train(setting, anchors or setting.order, rounds)
    look, images = _body(setting.network, body.models[-1]), setting.federation
    start = process_time()
    shards = {name: look(shard) for name, shard in images.shards.items()}
    looking = Cost(seconds=process_time() - start)
    rows, known = Federation(shards, look(images.test), images.classes), look(_known(setting))
    heads = [_solve_softmax(setting, rows, l2, known) for l2 in own["softmax_l2"]]
    heads += [_solve_ridge(setting, rows, l2, known) for l2 in own["ridge_l2"]]
    alone = {"body_test": round(body.engine.test_accuracy(body.models[-1]), 4)} if anchors else {}
    if own["held_out"]:
        return [row | alone for row, _, _ in heads]
    fewer = body.cost.among(rounds * min(own["drawn"], len(anchors) - 1)) if anchors else Cost()
    return [
        row
        | alone
        | (body.cost + looking + everybody).row("train")
        # Where an anchor leaves, a head is solved on a new body.
        | ((fewer + looking + one).row("anchor") if anchors else {})
        for row, everybody, one in heads
    ]


def _solve_softmax(setting: Setting, rows: Federation, l2: float, known: Shard) -> tuple[Row, Cost, Cost]:
    """Solve the softmax head, forget, and hold that against a federation that never had who left."""
    own, classes, (features,) = setting.configuration, rows.classes, rows.inputs
    solving = Solving(**{name: own[name] for name in ("tolerance", "most_bytes", "most_rounds")})
    engine = _engine(rows, l2)

    def cost(rounds: int, clients: int) -> Cost:
        sent = bytes_sent(classes, features, choose(classes, features, solving.most_bytes), rounds)
        seconds, engine.seconds = engine.seconds, 0.0
        return Cost(rounds, rounds * clients, sent * clients, seconds)

    with History.in_memory() as history:
        revocable = Revocable(history, engine, scored=False)
        training = cost(revocable.solve(solving).round, len(engine.clients))
        row = _judge(engine, history.model(history.newest), rows.test, known, {"head": "softmax", "l2": l2})
        if own["held_out"]:
            return row, training, Cost()
        left, costs = list[str](), list[Cost]()
        for leaving in (setting.leavers[:1], setting.leavers[1:]):
            history.requests.ask(leaving, _BUDGET)
            (outcome,) = revocable.forget(Solve(solving), until=Rounds(own["most_rounds"]))
            if outcome.mode is not Mode.EXACT:
                raise RuntimeError(f"it was not forgotten exactly: {outcome}")
            left += leaving
            costs.append(cost(outcome.rounds, len(engine.clients) - len(left)))
        forgotten = history.model(history.newest)
    remaining = {name: shard for name, shard in rows.shards.items() if name not in left}
    with History.in_memory() as history:
        Revocable(history, _engine(replace(rows, shards=remaining), l2), scored=False).solve(solving)
        apart = _apart(forgotten, history.model(history.newest))
    one, ten = costs
    slowest = one if one.rounds >= ten.rounds else ten
    costs_row = one.row("one") | ten.row("ten") | _scattered(slowest, setting).row("scattered")
    return row | costs_row | {"apart": apart}, training, one


def _solve_ridge(setting: Setting, rows: Federation, l2: float, known: Shard) -> tuple[Row, Cost, Cost]:
    """Do the same for the ridge head, which takes one round."""
    loss = SquaredL2(l2, 1.0, most_rows=setting.configuration["examples"], most_clients=1)
    classes, (features,), targets = rows.classes, rows.inputs, np.eye(rows.classes)
    numbers = (features + 1) * (features + 2) // 2 + classes * (features + 1)
    engine = _engine(rows, l2)

    def solve(names: Sequence[str]) -> tuple[dict[str, Tensor], Cost]:
        seconds, total = 0.0, list[RidgeSums]()
        for name in names:
            start, shard = process_time(), rows.shards[name]
            total.append(sum_ridge(shard.features, targets[shard.labels], loss))
            seconds += process_time() - start
            # All of them at once would take much memory.
            total = [cast(RidgeSums, add_up_ridge(total))]
        cost = Cost(1, len(names), 8 * numbers * len(names), seconds)
        return unflatten(ridge_solution(total[0], l2), engine.start()), cost

    everybody, (first, *others) = list(rows.shards), setting.leavers
    model, training = solve(everybody)
    row = _judge(engine, model, rows.test, known, {"head": "ridge", "l2": l2})
    if setting.configuration["held_out"]:
        return row, training, Cost()
    forgotten, one = solve([name for name in everybody if name != first])
    # In another order, in which they might have answered had that client never been there.
    never, _ = solve([name for name in reversed(everybody) if name != first])
    ten = one.among(len(everybody) - 1 - len(others))
    costs = one.row("one") | ten.row("ten") | _scattered(one, setting).row("scattered")
    return row | costs | {"apart": _apart(forgotten, never)}, training, one


def _body(network: TwoConvolutions, model: Mapping[str, Tensor]) -> Callable[[Shard], Shard]:
    """Return what turns images into what the body says of them, each row scaled to norm 1."""
    module = network.module()
    module.load_state_dict({name: torch.from_numpy(np.array(tensor)) for name, tensor in model.items()})
    layers = nn.Sequential(*list(module.children())[:-1])

    def look(shard: Shard) -> Shard:
        with torch.no_grad():
            parts = [layers(part) for part in torch.split(torch.from_numpy(np.array(shard.features)), 500)]
        return Shard(normalised(torch.cat(parts).numpy().astype(np.float64)), shard.labels)

    return look


def _engine(rows: Federation, l2: float) -> Timed:
    """Return clients with a softmax head; it is solved, so that steps and learning rate are never used."""
    training = LocalTraining(steps=1, learning_rate=1.0, loss=SoftmaxL2(l2=l2, row_norm=1.0))
    return Timed(rows, SoftmaxHead(rows.inputs[0], rows.classes), training, secret=b"staged")


def _scattered(one: Cost, setting: Setting) -> Cost:
    """Return the cost of one solve for each of those who leave, with a client less each time."""
    clients, leaving = setting.configuration["clients"], setting.configuration["leaving"]
    return reduce(Cost.__add__, (one.among(one.rounds * (clients - 1 - at)) for at in range(leaving)))


def _apart(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    return float(np.abs(flatten(one) - flatten(other)).max())


def _judge(engine: Simulation, model: Mapping[str, Tensor], test: Shard, known: Shard, row: Row) -> Row:
    """Add how good a head is, and how well it knows the examples that it was made from."""
    inside, outside = (_probabilities(engine, model, shard)[np.newaxis] for shard in (known, test))
    return row | {
        "test": _accuracy(outside, test.labels),
        "membership": _membership(inside, known.labels, outside, test.labels),
    }


def _probabilities(engine: Simulation, model: Mapping[str, Tensor], shard: Shard) -> Floats:
    return np.asarray(softmax(engine.logits(model, shard).astype(np.float64), axis=1))


def _accuracy(probabilities: Floats, labels: Labels) -> float:
    """Return the accuracy of the mean of some models' probabilities, (models, examples, classes)."""
    return round(float((probabilities.mean(axis=0).argmax(axis=1) == labels).mean()), 4)


def _known(setting: Setting) -> Shard:
    """Return some examples of every client."""
    chance = np.random.default_rng(setting.configuration["seed"])
    shards = setting.federation.shards.values()
    rows = [chance.choice(len(shard.labels), min(_KNOWN, len(shard.labels)), replace=False) for shard in shards]
    return together([Shard(shard.features[own], shard.labels[own]) for shard, own in zip(shards, rows, strict=True)])


def _membership(inside: Floats, inside_labels: Labels, outside: Floats, outside_labels: Labels) -> float:
    """Return how well examples that somebody has are told from examples that nobody has, by what is released.

    By one model's confidence of the right class; of several models, by how far the most confident is above the mean
    of the others, as an example is known to one of them only.
    """

    def score(probabilities: Floats, labels: Labels) -> Floats:
        confidence = measure_confidence(probabilities[:, np.arange(len(labels)), labels])
        if len(confidence) == 1:
            return np.asarray(confidence[0])
        most = confidence.max(axis=0)
        return np.asarray(most - (confidence.sum(axis=0) - most) / (len(confidence) - 1))

    scores = score(inside, inside_labels), score(outside, outside_labels)
    return round(told_apart_by(scores[0], inside_labels, scores[1], outside_labels), 4)
