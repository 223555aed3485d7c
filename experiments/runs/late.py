"""Who joined late can be forgotten exactly, by a network too: how many rounds that takes.

Some clients join only after a share of the rounds. Later they leave, and training goes back to the last kept model
before they were first drawn, and makes up the rounds that were cut off, without them. There is no noise, and nothing
is assumed of the training.
"""

from __future__ import annotations

from experiments.data.federations import federation_of, trained_by
from experiments.harness import Configuration, Row
from experiments.runs.requests import Departing, scores
from rescind import History, Sampling
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.ledger.records import ErasureLevel
from rescind.methods import Exact, Method, Scratch

METHODS: dict[str, Method] = {Exact.name: Exact(), Scratch.name: Scratch()}


def run(configuration: Configuration) -> list[Row]:
    """Train with clients that join late, and forget them."""
    federation = federation_of(configuration)
    training, model = trained_by(configuration, federation)
    engine = Departing(
        federation,
        model,
        training,
        sampling=Sampling.FIXED_SIZE,
        size=configuration["drawn"],
        batch=configuration["batch"],
        secret=b"late %d" % configuration["seed"],
    )
    method, rounds = METHODS[configuration["method"]], configuration["rounds"]
    everybody = engine.clients
    late, others = everybody[: configuration["leaving"]], everybody[configuration["leaving"] :]
    with History.in_memory() as history:
        revocable = Revocable(history, engine, capacity=configuration["capacity"], scored=False)
        engine.gone = frozenset(late)
        revocable.train(Rounds(round(configuration["joined"] * rounds)))
        engine.gone = frozenset()
        revocable.train(Rounds(rounds))
        # Of who was never drawn nothing is to forget. Exact needs no budget, but every request has one.
        number = history.requests.ask(list(history.ledger.pseudonyms(late)), Budget(1, 1e-5))
        back_to = revocable.plan(method, number).candidate.node.round
        (outcome,) = revocable.forget(method, Rounds(rounds - back_to), level=ErasureLevel.OUTPUT)
        if outcome.restart is None:
            raise RuntimeError("nobody who leaves was ever drawn")
        claim = outcome.restart.planned.candidate.mode.value
        return [
            {"back_to": back_to, "again": outcome.rounds, "mode": claim}
            | scores(engine, history.model(history.newest), late, [], others)
        ]
