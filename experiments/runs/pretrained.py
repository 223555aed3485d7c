"""A head on a published network: solved from kept sums, solved as softmax regression, or trained by FedAvg.

Beside it stand the published network, all of which is tuned by FedAvg, and a small one that the clients train from
nothing. All on the same images and clients; one client leaves. Accuracy is on held-out images, seconds are of one
process with one thread: of the clients' part in training, of the server's in forgetting from kept sums. Features are
made beforehand, once for each image, and their seconds are not counted.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import process_time

import numpy as np
import torch
from torch.nn import functional

from experiments.data import sets
from experiments.data.federations import federation_of, head_of, parts_of, trained_by
from experiments.data.pretrained import body_module, coloured
from experiments.harness import Configuration, Row
from experiments.runs import frozen, hospitals
from experiments.runs.cost import leaver_of
from rescind import History, LocalTraining, Revocable, SoftmaxL2, Solve, SquaredL2
from rescind.core.arrays import Tensor
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.solver import Solving, bytes_sent, choose
from rescind.core.sums import head_shape
from rescind.engines.server import Average
from rescind.engines.stops import Rounds
from rescind.simulation import Federation, Simulation
from rescind.unattended import forget_unattended

# Solve() promises nothing to an epsilon; a request has to have one.
BUDGET = Budget(1.0, 1e-5)
HALF_A_POINT = 0.005


def run(configuration: Configuration) -> list[Row]:
    """Train in one way and forget a client, and say what both cost."""
    ways = {"ridge": ridge, "crowd": ridge, "softmax": softmax, "fedavg": fedavg, "network": network, "tuned": tune}
    return [ways[configuration["method"]](configuration)]


def ridge(configuration: Configuration) -> Row:
    """Solve from sums that are kept on disk, and forget with no client there."""
    federation = _federation_of(configuration)
    leaver = leaver_of(list(federation.shards), configuration["seed"])
    engine, never = (_ridge_engine(configuration, federation, gone) for gone in ((), (leaver,)))
    with tempfile.TemporaryDirectory() as scratch, History(Path(scratch) / "history") as history:
        begun = process_time()
        Revocable(history, engine, scored=False).solve()
        trained, test = process_time() - begun, engine.test_accuracy(history.model(history.newest))
        history.requests.ask([leaver], BUDGET)
        begun = process_time()
        ((outcome,), _) = forget_unattended(history)
        forgotten, model = process_time() - begun, history.model(history.newest)
    with History.in_memory() as history:
        Revocable(history, never, scored=False).solve()
        same = is_same(model, history.model(history.newest))
    classes, width = head_shape(model)[0], head_shape(model)[1] + 1
    return {
        "test": round(test, 4),
        "released": round(engine.test_accuracy(model), 4),
        "mode": outcome.mode.value,
        "same": same,
        "rounds": 1,
        "seconds": round(trained, 2),
        "forget_rounds": 0,
        "forget_seconds": round(forgotten, 2),
        "bytes": 8 * (width * (width + 1) // 2 + classes * width),
        "forget_bytes": 0,
    }


def softmax(configuration: Configuration) -> Row:
    """Solve softmax regression, and forget by solving it anew with those who stay."""
    federation = _federation_of(configuration)
    leaver = leaver_of(list(federation.shards), configuration["seed"])
    loss, solving = (
        SoftmaxL2(l2=configuration["l2"], row_norm=configuration["row_norm"]),
        Solving(most_bytes=20_000_000),
    )
    training = LocalTraining(steps=1, learning_rate=1.0, loss=loss)
    engine = Simulation(federation, head_of(federation), training, secret=b"pretrained")
    with History.in_memory() as history:
        begun = process_time()
        revocable = Revocable(history, engine, scored=False)
        rounds = revocable.solve(solving).round
        trained, test = process_time() - begun, engine.test_accuracy(history.model(history.newest))
        history.requests.ask([leaver], BUDGET)
        begun = process_time()
        (outcome,) = revocable.forget(Solve(solving), Rounds(1))
        forgotten, model = process_time() - begun, history.model(history.newest)
    shape = head_shape(model)
    wanted = choose(*shape, solving.most_bytes)
    return {
        "test": round(test, 4),
        "released": round(engine.test_accuracy(model), 4),
        "mode": outcome.mode.value,
        "rounds": rounds,
        "seconds": round(trained, 2),
        "forget_rounds": outcome.rounds,
        "forget_seconds": round(forgotten, 2),
        "bytes": bytes_sent(*shape, wanted, rounds),
        "forget_bytes": bytes_sent(*shape, wanted, outcome.rounds),
    }


def fedavg(configuration: Configuration) -> Row:
    """Train the head by FedAvg until it is half a point below the ridge head; it forgets by training again."""
    federation = _federation_of(configuration)
    loss = SoftmaxL2(l2=configuration["l2"], row_norm=configuration["row_norm"])
    training = LocalTraining(configuration["steps"], configuration["learning_rate"], loss)
    engine = Simulation(federation, head_of(federation), training, secret=b"pretrained")
    model: Mapping[str, Tensor] = engine.start()
    reached, test, begun = None, 0.0, process_time()
    for number in range(1, configuration["rounds"] + 1):
        model = Average().round(engine, model, ModelId(0, number), engine.clients).model
        test = engine.test_accuracy(model)
        if reached is None and test >= configuration["ridge_test"] - HALF_A_POINT:
            reached, until = number, process_time() - begun
    seconds = process_time() - begun if reached is None else until
    rounds, size = reached or configuration["rounds"], sum(tensor.nbytes for tensor in model.values())
    return {"reached": reached, **trained_again(test, rounds, seconds, size * rounds)}


def network(configuration: Configuration) -> Row:
    """Train a small network from nothing; it forgets by training again."""
    begun = process_time()
    test, counts, rounds = frozen.trained(configuration, Average(), [])
    seconds, federation = process_time() - begun, federation_of(configuration)
    _, model = trained_by(configuration, federation)
    size = sum(4 * tensor.numel() for tensor in model.start().values())
    often = max(counts.values())
    return trained_again(test, rounds, seconds, size * often)


def tune(configuration: Configuration) -> Row:
    """Tune all of the published network by FedAvg; it forgets by training again.

    Its batch normalisation stays as it was published: means over a few images of one class would be other ones.
    """
    module, images = body_module(), sets.load(configuration["dataset"], None)
    train, test = (module.as_rows(coloured(own)) for own in (images.train, images.test))
    labels, seed = torch.from_numpy(images.train_labels), configuration["seed"]
    clients, rounds = configuration["clients"], configuration["rounds"]
    each = configuration["examples"] // clients
    parts = parts_of(images.train_labels, configuration["split"], clients, each, seed)
    body, begun = module.Body(), process_time()
    head = torch.nn.Linear(len(body(train[:1]).flatten()), images.classes)
    torch.nn.init.zeros_(head.weight)
    network = torch.nn.Sequential(body, head).eval()
    order = np.random.Generator(np.random.PCG64(seed))
    for _ in range(rounds):
        shared, total = copy.deepcopy(network.state_dict()), dict[str, torch.Tensor]()
        for part in parts:
            network.load_state_dict(shared)
            steps = torch.optim.SGD(network.parameters(), configuration["learning_rate"], momentum=0.9)
            for batch in np.array_split(order.permutation(part), max(1, len(part) // configuration["batch"])):
                steps.zero_grad()
                torch.autograd.backward(functional.cross_entropy(network(train[batch]), labels[batch]))
                steps.step()
            for name, tensor in network.state_dict().items():
                total[name] = total.get(name, 0) + tensor / len(parts)
        network.load_state_dict(total)
    seconds = process_time() - begun
    with torch.no_grad():
        guessed = torch.cat([network(some).argmax(dim=1) for some in test.split(50)]).numpy()
    size = sum(tensor.nbytes for tensor in network.state_dict().values())
    return trained_again(round(float(np.mean(guessed == images.test_labels)), 4), rounds, seconds, size * rounds)


def trained_again(test: float, rounds: int, seconds: float, size: int) -> Row:
    """Return the row of a way that forgets by training again, which costs what training costs."""
    cost = {"rounds": rounds, "seconds": round(seconds, 2), "bytes": size}
    return {
        "test": round(test, 4),
        "released": round(test, 4),
        "mode": "exact",
        **cost,
        **{f"forget_{name}": amount for name, amount in cost.items()},
    }


def is_same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether two models have the same bits."""
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def _federation_of(configuration: Configuration) -> Federation:
    if configuration["dataset"] == "heart_disease":
        return hospitals.federation()
    return federation_of(configuration)


def _ridge_engine(configuration: Configuration, federation: Federation, gone: tuple[str, ...]) -> Simulation:
    left = {name: shard for name, shard in federation.shards.items() if name not in gone}
    smaller = Federation(left, federation.test, federation.classes)
    loss = SquaredL2(configuration["l2"], configuration["row_norm"])
    if configuration["method"] == "crowd":
        # Sums for as many clients, of as many rows each, are rounded to fewer bits.
        loss = replace(loss, most_rows=1_024, most_clients=2**20)
    return Simulation(smaller, head_of(smaller), LocalTraining.solved(loss), secret=b"pretrained")
