"""Can a client end a run, have an honest one rejected, or deny it its forgetting?

Federations of honest and hostile clients train and forget on a Grid in this process. Whatever a hostile one sends is
drawn at random: fields, types, sizes, markup, numbers, counts, told distances, replies late, doubled or none.

In solves up to three of nine lie as far as they are believed, to hold them up. ``solve_growth`` is the most rounds
that a solve took, relative to the same one among honest clients.

A ridge head follows from sums that are kept. Once the hostile have left, it has to have the bits of one that never
had them: ``sums_apart`` counts those that have not.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAdam, FedAvg

import rescind.flower
from benchmarks._liars import Liar, Lie, every_lie
from benchmarks._measure import finish, parser, progress
from rescind import Curvature, DeclaredLoss, History, LocalTraining, NetworkLoss, SquaredL2
from rescind.checkpoints.tensors import digest
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.sensitivity import client_sensitivities
from rescind.core.solver import Solving
from rescind.engines.heads import train_head_on
from rescind.engines.server import norm
from rescind.flower import Limits, Options, Recorded
from rescind.flower.wire import Instructions
from rescind.history.events import RepliesRejected
from rescind.ledger.records import Span
from rescind.methods import Solve
from rescind.testing.grid import InProcessGrid
from rescind.testing.small import CLASSES, FEATURES, TRAINING, federation
from rescind.unattended import forget_unattended

ROUNDS, AFTERWARDS, ATTACKERS, HONEST = 20, 3, 8, 12
# How large an answer to a solver may be: with the Hessian, with the features' curvature, with neither.
MOST_BYTES = (100_000, 800, 300)
SHARDS = federation(HONEST + ATTACKERS).shards
NAMES = tuple(SHARDS)
TRAINED = ("head.bias", "head.weight")
HEAD32 = replace(TRAINING, precision="float32")
# What the clients' own code executes is the head's training all the same.
DECLARED = replace(TRAINING, loss=DeclaredLoss(Curvature(0.02, 1.02), gradient_bound=2.0))
NETWORK = LocalTraining(TRAINING.steps, TRAINING.learning_rate, NetworkLoss(), precision="float32")
RIDGE = LocalTraining.solved(SquaredL2(l2=0.01, row_norm=1.0))
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"training": HEAD32},
    "masked": {"training": HEAD32, "masked": True},
    "declared": {"training": DECLARED, "declared": True},
    "network": {"training": NETWORK},
    "DP": {"training": HEAD32, "declared": True, "heuristic": True},
    "FedAdam": {"training": HEAD32, "declared": True, "heuristic": True},
}
# Behind masks one client can make the model as long as it likes, and by default the others would stop there.
LIMITS = Limits(batch=5, length=1e14)
# Of the others nothing is claimed that a bound could be denied for.
BOUNDED = ("plain", "masked", "declared")
MARKUP = (
    "[/]",
    "[link=http://x]a[/link]",
    "\x1b[2J\x1b[31m",
    "\u202eabc",
    "<script>",
    "a\nb",
    "",
    "x" * 5000,
    "\x00",
)
FLOATS = (
    np.inf,
    -np.inf,
    np.nan,
    3e38,
    -3e38,
    1e30,
    1e13,
    1e12,
    -1e134,
    1e200,
    sys.float_info.max,
    1e-42,
    5e-324,
    -0.0,
)
COUNTS: tuple[Any, ...] = (
    0,
    -1,
    1,
    0.5,
    1e-300,
    10**5,
    10**6,
    10**7,
    10**8,
    2**63 - 1,
    float("nan"),
    float("inf"),
    [40],
    [],
    40.5,
)
DISTANCES = (0.0, -1.0, 1.0, 1e9, 1e300, sys.float_info.max, float("inf"), float("nan"), [1.0], 2**63 - 1, 5e-324)

# Changes a reply, or raises; what it returns is sent instead.
Attack = Callable[[np.random.Generator, Message, Message], Message | None]


def strategy(kind: str, history: History, **options: Any) -> Recorded:
    """Return the recorded strategy of a kind of run."""
    common: dict[str, Any] = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}
    inner: Any = FedAdam(**common) if kind == "FedAdam" else FedAvg(**common)
    if kind == "DP":
        inner = DifferentialPrivacyServerSideFixedClipping(inner, 0.1, 1.0, len(NAMES))
    settings = {"trained": TRAINED, "seed": b"client_fuzz of clients"} | KINDS[kind] | options
    rare = {name: settings.pop(name) for name in (option.name for option in fields(Options)) if name in settings}
    return Recorded(inner, history, **settings, options=Options(**rare))


def initial(kind: str) -> ArrayRecord:
    """Return theta_0^0, with a tensor that nobody trains."""
    dtype = np.dtype(KINDS[kind]["training"].precision)
    return ArrayRecord(
        {
            "body": Array(np.arange(5, dtype=np.float32)),
            "head.weight": Array(np.zeros((CLASSES, FEATURES), dtype)),
            "head.bias": Array(np.zeros(CLASSES, dtype)),
        }
    )


@dataclass(eq=False)
class Hostile(InProcessGrid):
    """A Grid on which some clients are hostile while ``active``; ``replies`` counts what they sent.

    ``loses``: some of their replies are lost, doubled or late.
    """

    attack: Attack
    evaluation: Attack
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    attackers: tuple[str, ...] = NAMES[HONEST:]
    names: tuple[str, ...] = NAMES
    authenticated: bool = True
    active: bool = True
    loses: bool = True
    replies: int = 0

    def __post_init__(self) -> None:
        nodes = {name: {"client-id": name} for name in self.names}
        super().__init__(self._client_app(), nodes, authenticated=self.authenticated)
        self._late: dict[int, Message] = {}

    def _client_app(self) -> ClientApp:
        app = ClientApp()

        @app.query()
        def query(msg: Message, context: Context) -> Message:
            name, reply = str(context.node_config["client-id"]), rescind.flower.identify(msg, context)
            if not (self.active and name in self.attackers):
                return reply
            self.replies += 1
            said: Any = [7, name.encode(), [name], MARKUP[self.rng.integers(len(MARKUP))] + name, name]
            reply.content.config_records["rescind"]["client-id"] = said[self.rng.integers(len(said))]
            return reply

        @app.train()
        def train(msg: Message, context: Context) -> Message:
            return self._sent(trained(msg, context), msg, context, self.attack)

        @app.evaluate()
        def evaluate(msg: Message, context: Context) -> Message:
            metrics = MetricRecord({"accuracy": 0.5, "num-examples": 12})
            told = rescind.flower.report_distance(msg, context)
            reply = told or Message(RecordDict({"metrics": metrics}), reply_to=msg)
            return self._sent(reply, msg, context, self.evaluation)

        return app

    def _sent(self, reply: Message, msg: Message, context: Context, attack: Attack) -> Message:
        if not (self.active and str(context.node_config["client-id"]) in self.attackers):
            return reply
        self.replies += 1
        return attack(self.rng, reply, msg) or reply

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send, and lose, double or delay some replies of the hostile."""
        hostile = {self.ids[name] for name in self.attackers}
        replies: list[Message] = []
        for reply in super().send_and_receive(messages, timeout=timeout):
            node = reply.metadata.src_node_id
            timing = self.rng.integers(20) if self.active and self.loses and node in hostile else -1
            late = self._late.pop(node, None)
            if timing == 0:
                self._late[node] = reply
            elif timing == 1:
                replies += [reply, reply]
            elif timing == 2 and late is not None:
                replies += [late, reply]
            elif timing != 3:
                replies.append(reply)
        return replies


def trained(msg: Message, context: Context) -> Message:
    """Return what an honest client sends: our helper's reply, or the same without its word."""
    shard = SHARDS[str(context.node_config["client-id"])]
    (config,) = msg.content.config_records.values()
    if not isinstance(Instructions.of(config).training.loss, DeclaredLoss | NetworkLoss):
        return rescind.flower.train_head(msg, context, shard.features, shard.labels, limits=LIMITS)
    ((key, arrays),) = msg.content.array_records.items()
    head = {name: arrays[f"head.{name}"].numpy() for name in ("bias", "weight")}
    result = train_head_on(head, shard.features, shard.labels, TRAINING)
    sent = ArrayRecord({**arrays, **{f"head.{name}": Array(tensor) for name, tensor in result.items()}})
    metrics = MetricRecord({"num-examples": len(shard.labels)})
    return Message(RecordDict({key: sent, "metrics": metrics}), reply_to=msg)


# What hostile clients do


def arrays_of(message: Message) -> ArrayRecord:
    """Return a message's one record of arrays."""
    (arrays,) = message.content.array_records.values()
    return arrays


def sent_numbers(rng: np.random.Generator, reply: Message, _: Message) -> None:
    """Send a number that no training makes, in one place or everywhere."""
    arrays, name = arrays_of(reply), str(rng.choice(TRAINED))
    tensor = arrays[name].numpy().copy()
    value = np.float64(rng.choice(FLOATS)).astype(tensor.dtype)
    tensor.reshape(-1)[slice(None) if rng.random() < 0.3 else rng.integers(tensor.size)] = value
    arrays[name] = Array(tensor)


def sent_far(
    rng: np.random.Generator, reply: Message, msg: Message, share: float | None = None, direction: Any = None
) -> None:
    """Send an update of a length about the longest that may be."""
    arrays, came = arrays_of(reply), arrays_of(msg)
    head = {name: came[name].numpy() for name in TRAINED}
    away = {name: rng.normal(size=tensor.shape) for name, tensor in head.items()} if direction is None else direction
    longest = HEAD32.longest_update(norm(head)) or 0.0
    length = longest * (rng.choice([0.5, 0.9, 0.999, 1.001, 1.2, 1e3]) if share is None else share)
    for name, tensor in head.items():
        arrays[name] = Array((tensor + length / max(norm(away), 1e-30) * away[name]).astype(tensor.dtype))


def sent_other_type(rng: np.random.Generator, reply: Message, _: Message) -> None:
    """Send a tensor of another type or shape."""
    arrays, name = arrays_of(reply), str(rng.choice(TRAINED))
    tensor = arrays[name].numpy()
    kinds = ("<f2", "<f4", "<f8", ">f4", ">f8", "<i8", "<c16", "|b1", "<U5", "|S3")
    shapes: tuple[Any, ...] = (tensor, tensor.T, tensor.reshape(-1), tensor[:0], tensor.sum(), np.tile(tensor, 2))
    chosen = shapes[rng.integers(len(shapes))]
    arrays[name] = Array(np.asarray(chosen if rng.random() < 0.5 else tensor.astype(str(rng.choice(kinds)))))


def sent_bytes(rng: np.random.Generator, reply: Message, _: Message) -> None:
    """Send bytes that are not what they are called, or call them what they are not."""
    arrays, name = arrays_of(reply), str(rng.choice(TRAINED))
    good = arrays[name]
    data = bytearray(good.data)
    for at in rng.integers(len(data), size=rng.integers(0, 4)):
        data[at] = rng.integers(256)
    pieces = (bytes(data), good.data[: rng.integers(len(data))], good.data + b"\0", rng.bytes(80), b"")
    shapes: tuple[tuple[int, ...], ...] = (tuple(good.shape), (10**9,), (), (-1, 3))
    arrays[name] = Array(
        str(rng.choice([good.dtype, "O", "float99", MARKUP[1]])),
        shapes[rng.integers(len(shapes))],
        str(rng.choice([good.stype, "pickle", "torch", MARKUP[0]])),
        pieces[rng.integers(len(pieces))] if rng.random() < 0.7 else good.data,
    )


def sent_records(rng: np.random.Generator, reply: Message, _: Message) -> None:
    """Leave records and tensors out, or add some."""
    content, arrays, markup = reply.content, arrays_of(reply), str(rng.choice(MARKUP))
    one = rng.integers(9)
    if one == 0:
        del arrays[str(rng.choice(list(arrays)))]
    elif one == 1:
        arrays[markup] = Array(np.zeros(3, np.float32))
    elif one == 2:
        arrays["body"] = Array(np.zeros(5, np.float32))
    elif one == 3:
        content[f"more{markup}"] = ArrayRecord(dict(arrays))
    elif one == 4:
        del content[next(iter(content.array_records))]
    elif one == 5:
        content[f"more{markup}"] = MetricRecord({"num-examples": 3})
    elif one == 6:
        del content["metrics"]
    elif one == 7:
        content[f"config{markup}"] = ConfigRecord({markup: markup})
    else:
        content["rescind"] = ConfigRecord({"digest": [1, 2] if rng.random() < 0.5 else markup})


def sent_metrics(rng: np.random.Generator, reply: Message, _: Message) -> None:
    """Tell another number of examples, and metrics of all kinds."""
    values: dict[str, Any] = {"num-examples": COUNTS[rng.integers(len(COUNTS))]}
    if rng.random() < 0.3:
        values[str(rng.choice(MARKUP))] = [float(rng.choice(FLOATS))] * int(rng.integers(1, 5))
    if rng.random() < 0.05:
        values |= {f"m{at}": float(at) for at in range(1500)}
    if rng.random() < 0.1:
        del values["num-examples"]
    reply.content["metrics"] = MetricRecord(values)


def failed(rng: np.random.Generator, _: Message, msg: Message) -> Message:
    """Fail, and say something."""
    text = str(rng.choice(MARKUP))
    if rng.random() < 0.5:
        raise RuntimeError(text)
    return Message(Error(code=int(rng.integers(100)), reason=text), reply_to=msg)


def told_distance(rng: np.random.Generator, reply: Message, _: Message) -> None:
    """Tell any distance, and any accuracy."""
    value: Any = DISTANCES[rng.integers(len(DISTANCES))]
    values = {"rescind-distance": value, "accuracy": value, "num-examples": COUNTS[rng.integers(len(COUNTS))]}
    del values[str(rng.choice(list(values)))]
    reply.content["metrics"] = MetricRecord(values)
    if rng.random() < 0.2:
        reply.content[f"more{rng.choice(MARKUP)}"] = MetricRecord({"rescind-distance": 1e9})


TRAINING_ATTACKS: tuple[Attack, ...] = (
    *(
        sent_numbers,
        sent_far,
        sent_far,
        sent_other_type,
        sent_bytes,
        sent_records,
        sent_metrics,
        sent_metrics,
        failed,
    ),
)


def sent_integers(rng: np.random.Generator, reply: Message, _: Message) -> None:
    """Send sums that no rows have, in one place or everywhere, or of another type or shape."""
    arrays = arrays_of(reply)
    name = str(rng.choice(list(arrays)))
    tensor = arrays[name].numpy().copy()
    place = slice(None) if rng.random() < 0.3 else rng.integers(tensor.size)
    values = (0, 1, -1, 2**31, 2**62, 2**63 - 1, -(2**63), int(tensor.reshape(-1)[0]), -int(tensor.reshape(-1)[-1]))
    tensor.reshape(-1)[place] = values[rng.integers(len(values))]
    others = tensor.astype(str(rng.choice(["<i4", "<f8", "<u8", ">i8"]))), tensor.T, tensor.reshape(-1), tensor[:-1]
    arrays[name] = Array(tensor if rng.random() < 0.6 else np.ascontiguousarray(others[rng.integers(len(others))]))


SUMS_ATTACKS: tuple[Attack, ...] = (sent_integers, sent_integers, sent_records, sent_metrics, failed)
# These leave the tensors alone, which is what a server of masked updates cannot check.
QUIET_ATTACKS: tuple[Attack, ...] = (sent_records, sent_metrics, sent_metrics, failed)


def united(rng: np.random.Generator, reply: Message, msg: Message) -> None:
    """Pull the model into one direction with all the length that is accepted, and claim three times the data."""
    direction = {"head.bias": np.full(CLASSES, 1.0), "head.weight": np.zeros((CLASSES, FEATURES))}
    sent_far(rng, reply, msg, 0.999, direction)
    reply.content["metrics"] = MetricRecord({"num-examples": 40})


def several(attacks: tuple[Attack, ...]) -> Attack:
    """Return an attack that is one or two of some, or none."""

    def attack(rng: np.random.Generator, reply: Message, msg: Message) -> Message | None:
        for _ in range(rng.integers(3)):
            try:
                with np.errstate(all="ignore"):
                    instead = attacks[rng.integers(len(attacks))](rng, reply, msg)
            except (ValueError, KeyError, TypeError, StopIteration):
                # The first one took away what the second one would have changed.
                continue
            if instead is not None:
                return instead
        return None

    return attack


# What came of it


def sensitivities(history: History, names: Iterable[str], rounds: int) -> dict[str, float]:
    """Return Psi of clients after a number of rounds of the first branch, by what they are called."""
    found = {}
    for name in names:
        (client,) = history.participants.find([name])
        path = history.lineage(ModelId(0, rounds), group=[client])
        found[name] = float(client_sensitivities(path.edges, [client], [len(path.edges)])[0, 0])
    return found


def limits(history: History, honest: Iterable[str], rounds: int) -> dict[str, float]:
    """Return what Psi of each honest client can be at most, whatever the others sent.

    Theory section 4.
    """
    training = history.run.facts.training
    ours = {next(iter(history.participants.find([name]))): name for name in honest}
    found = dict.fromkeys(ours.values(), 0.0)
    for round_ in history.ledger.rounds(Span(0, 1, rounds)):
        edge = round_.edge(training)
        length = norm(history.model(ModelId(0, round_.model_id.round - 1)))
        longest = training.longest_update(length)
        assert longest is not None
        weights = {
            ours[each]: weight
            for each, weight in zip(edge.clients.tolist(), edge.weights, strict=True)
            if each in ours
        }
        total = sum(weights.values())
        for name in found:
            found[name] *= edge.factor
            if name in weights:
                share = weights[name] / (total - weights[name])
                found[name] += training.server_learning_rate * share * 2.01 * longest
            found[name] += 2.0**-17 * (length + 9 * longest)
    return found


@dataclass(frozen=True)
class Outcome:
    """What came of a run: how the honest stood before one of them was forgotten, and who was rejected."""

    ended: str
    unserved: int
    honest_rejected: int
    sensitivities: Mapping[str, float]
    limits: Mapping[str, float]


def outcome(on: Hostile, kind: str, rounds: int = ROUNDS, *, bounded: bool = True) -> Outcome:
    """Train in a federation, forget an honest client, and return what came of it, with bounds if there are any."""
    honest = [name for name in on.names if name not in on.attackers]
    ended, unserved, found, most = "", 0, dict[str, float](), dict[str, float]()
    with History.in_memory() as history:
        recorded = strategy(kind, history)
        try:
            rescind.flower.run(recorded, on, initial(kind), num_rounds=rounds)
            clients = history.participants.find(honest)
            if bounded:
                found, most = sensitivities(history, honest, rounds), limits(history, honest, rounds)
            history.requests.ask(honest[:1], Budget(8.0, 1e-3))
            rescind.flower.run(recorded, on, initial(kind), num_rounds=AFTERWARDS)
            unserved = 1 - len(history.outcomes()) + len(history.integrity.verify())
        except Exception as error:
            return Outcome(repr(error), 1, 0, found, most)
        noted = [event.rejected for _, event in history.timeline.of(RepliesRejected)]
    rejected = sum(client in clients for round_ in noted for client, _ in round_)
    return Outcome(ended, unserved, rejected, found, most)


def honest_attack(_rng: np.random.Generator, _reply: Message, _msg: Message) -> None:
    """Send what an honest client sends."""


def solved(
    lie: tuple[Lie, int] | None, liars: int, most_bytes: int, rng: np.random.Generator
) -> tuple[int, Outcome, int]:
    """Solve a head to forget a client, and return the rounds that it took, what came of it, and the lies told."""
    names = NAMES[:9]
    attackers = names[len(names) - liars :]
    on = Hostile(honest_attack, honest_attack, rng, attackers=attackers, names=names, loses=False)
    if lie is not None:
        shards = {on.ids[name]: (SHARDS[name].features, SHARDS[name].labels) for name in names[1:]}
        on.attack = Liar(lie[0], shards, lie[1])
    honest = [name for name in names[1:] if name not in attackers]
    with History.in_memory() as history:
        recorded = strategy("declared", history, training=TRAINING, declared=False)
        try:
            rescind.flower.run(recorded, on, initial("declared"), num_rounds=1)
            clients = history.participants.find(honest)
            history.requests.ask(names[:1], Budget(8.0, 1e-3))
            method = Solve(Solving(most_bytes=most_bytes))
            rescind.flower.run(recorded, on, initial("declared"), num_rounds=1, method=method)
            (forgotten,) = history.outcomes()
            unserved = len(history.integrity.verify())
        except Exception as error:
            return 0, Outcome(repr(error), 1, 0, {}, {}), on.replies
        noted = [event.rejected for _, event in history.timeline.of(RepliesRejected)]
    rejected = sum(client in clients for round_ in noted for client, _ in round_)
    return forgotten.rounds, Outcome("", unserved, rejected, {}, {}), on.replies


def solve_with_liars(at: int, seed: int) -> tuple[float, Outcome, int]:
    """Return of one solve with liars the growth of its rounds, what came of it, and the lies told."""
    rng, most_bytes = np.random.default_rng([seed, at]), MOST_BYTES[at % len(MOST_BYTES)]
    kinds = every_lie(rng)
    rounds, seen, lies = solved(kinds[at % len(kinds)], 1 + at // 2 % 3, most_bytes, rng)
    return rounds / honest_rounds(most_bytes), seen, lies


def kept(on: Hostile) -> tuple[str, Outcome]:
    """Solve a head from kept sums, forget an honest client and then the hostile, and return the head's digest."""
    honest = [name for name in on.names if name not in on.attackers]
    with History.in_memory() as history:
        recorded = strategy("network", history, training=RIDGE, seed=None)
        try:
            rescind.flower.run(recorded, on, initial("declared"))
            clients, known = history.participants.find(honest), history.participants.all()
            gone = [honest[0], *(name for name, client in known.items() if client not in clients)]
            for name in gone:
                history.requests.ask([name], Budget(8.0, 1e-3))
            forget_unattended(history)
            unserved = len(gone) - len(history.outcomes()) + len(history.integrity.verify())
        except Exception as error:
            return "", Outcome(repr(error), 1, 0, {}, {})
        noted = [event.rejected for _, event in history.timeline.of(RepliesRejected)]
        made = digest(history.model(history.newest))
    rejected = sum(client in clients for round_ in noted for client, _ in round_)
    return made, Outcome("", unserved, rejected, {}, {})


@lru_cache
def honest_rounds(most_bytes: int) -> int:
    """Return the rounds that a solve takes among honest clients."""
    return solved(None, 0, most_bytes, np.random.default_rng(0))[0]


def main() -> None:
    """Run federations until so many hostile replies were sent."""
    options = parser(__doc__)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    wanted, rounds = (800, 4) if chosen.quick else (20_000, ROUNDS)
    calm = {kind: outcome(Hostile(several(()), several(()), active=False), kind, rounds) for kind in BOUNDED}
    growth = dict.fromkeys(BOUNDED, 0.0)
    counted = (
        *("replies", "runs", "runs_ended", "unserved", "honest_rejected", "beyond_limit", "solves", "lies"),
        *("sums_runs", "sums_replies", "sums_apart"),
    )
    figures = dict.fromkeys(counted, 0)

    def hostile_runs() -> Iterator[int]:
        while figures["replies"] < wanted:
            yield figures["runs"]

    for at in progress(hostile_runs(), "client_fuzz", total=wanted // (2 * ATTACKERS * (rounds + AFTERWARDS)) + 1):
        kind = list(KINDS)[at % len(KINDS)]
        # One in five masked runs attacks the tensors: nobody can see that, and nothing limits it.
        quiet = kind == "masked" and at // len(KINDS) % 5 != 4
        attack = several(QUIET_ATTACKS if quiet else TRAINING_ATTACKS)
        if kind in BOUNDED and at // len(KINDS) % 3 == 2:
            attack, quiet = united, True
        rng = np.random.default_rng([chosen.seed, at])
        on = Hostile(attack, several((told_distance,)), rng, authenticated=bool(at // len(KINDS) % 2))
        seen = outcome(on, kind, rounds, bounded=kind in BOUNDED and (quiet or kind != "masked"))
        if seen.ended or seen.honest_rejected or seen.unserved:
            print(f"run {at}, {kind}: {seen.ended or seen}", file=sys.stderr)
        figures["replies"] += on.replies
        figures["runs"] += 1
        figures["runs_ended"] += bool(seen.ended)
        figures["unserved"] += seen.unserved
        figures["honest_rejected"] += seen.honest_rejected
        figures["beyond_limit"] += sum(bool(value > seen.limits[name]) for name, value in seen.sensitivities.items())
        for name, value in seen.sensitivities.items():
            growth[kind] = max(growth[kind], value / calm[kind].sensitivities[name])
    slowest = 0.0
    for at in progress(range(10 if chosen.quick else 180), "solves with liars"):
        grown, seen, lies = solve_with_liars(at, chosen.seed)
        slowest = max(slowest, grown)
        figures["solves"] += 1
        figures["lies"] += lies
        figures["runs_ended"] += bool(seen.ended)
        figures["unserved"] += seen.unserved
        figures["honest_rejected"] += seen.honest_rejected
        if seen.ended or seen.honest_rejected or seen.unserved:
            print(f"solve {figures['solves']}: {seen.ended or seen}", file=sys.stderr)
    never, _ = kept(Hostile(honest_attack, honest_attack, attackers=(), names=NAMES[:HONEST], loses=False))
    for at in progress(range(20 if chosen.quick else 150), "sums that are kept"):
        rng = np.random.default_rng([chosen.seed, 1, at])
        on = Hostile(several(SUMS_ATTACKS), several((told_distance,)), rng, authenticated=bool(at % 2))
        made, seen = kept(on)
        if seen.ended or seen.honest_rejected or seen.unserved or made != never:
            print(f"sums {at}: {seen.ended or seen}", file=sys.stderr)
        figures["sums_runs"] += 1
        figures["sums_replies"] += on.replies
        figures["sums_apart"] += made != never
        figures["runs_ended"] += bool(seen.ended)
        figures["unserved"] += seen.unserved
        figures["honest_rejected"] += seen.honest_rejected
    finish({**figures, "worst_growth": max(growth.values()), "growth": growth, "solve_growth": slowest})


if __name__ == "__main__":
    main()
