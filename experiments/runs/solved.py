"""What forgetting by solving costs, beside training again: one client, ten, a quarter; hospitals, or a patient.

A head with an L2 term on public features is trained; clients leave together, and ``Solve()`` forgets them, as the
product does it, until the solver's public stop. Beside it FedAvg trains again without them, until the remaining
clients' mean accuracy is within half a point of what all of its rounds give, and until of the loss that these rounds
gain all but a hundredth is gained. ``gap`` is how much higher a loss than the solution's they end with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from experiments.harness import Configuration, Row
from experiments.runs import cost, hospitals
from experiments.runs.restarts import Model, recovered, trained_on
from rescind import History, Solve
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.solver import Solving, bytes_sent, choose
from rescind.core.sums import Sums, Wanted, flatten, head_shape
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.simulation import Simulation

HALF_A_POINT, HUNDREDTH = 0.005, 0.01
# Solve() promises nothing to an epsilon; a request has to have one.
BUDGET = Budget(1.0, 1e-5)


def run(configuration: Configuration) -> list[Row]:
    """Let clients leave together, and forget them in both ways."""
    engine = hospitals.engine_of(configuration) if "row_norm" in configuration else cost.engine_of(configuration)
    leaving = cost.leavers_of(engine.clients, configuration)
    others, rounds = [name for name in engine.clients if name not in leaving], configuration["rounds"]
    remaining, scope = engine, PrivacyScope.GROUP
    if patients := configuration.get("patients"):
        # The hospital stays, without these.
        remaining, scope = hospitals.engine_of(configuration, patients), PrivacyScope.RECORDS
        others = list(engine.clients)
    with History.in_memory() as history:
        # How long was trained before does not matter: a solve begins at the first model.
        Revocable(history, engine, scored=False).train(Rounds(1))
        history.requests.ask(leaving, BUDGET, scope=scope)
        (outcome,) = Revocable(history, remaining, scored=False).forget(Solve(), until=Rounds(rounds))
        solution = history.model(history.newest)
    engine = remaining
    again = trained_on(engine, engine.start(), others, rounds)
    least = engine.accuracy(again, others) - HALF_A_POINT
    start, end, best = (loss(engine, model, others) for model in (engine.start(), again, solution))
    most = end + HUNDREDTH * (start - end)
    goals: dict[str, Callable[[Model], bool]] = {
        "accuracy": lambda model: engine.accuracy(model, others) >= least,
        "loss": lambda model: loss(engine, model, others) <= most,
    }
    arrived = recovered(engine, engine.start(), others, goals, 3 * rounds)
    shape = head_shape(solution)
    return [
        {
            "leavers": len(leaving),
            "mode": outcome.mode.value,
            "solve": outcome.rounds,
            "solve_bytes": bytes_sent(*shape, choose(*shape, Solving().most_bytes), outcome.rounds),
            "scratch": arrived["accuracy"].rounds,
            "scratch_by_loss": arrived["loss"].rounds,
            "round_bytes": sum(tensor.nbytes for tensor in solution.values()),
            "gap": (end - best) / (start - best),
            "solve_accuracy": round(engine.accuracy(solution, others), 4),
            "scratch_accuracy": round(engine.accuracy(again, others), 4),
            "solve_test": round(engine.test_accuracy(solution), 4),
            "scratch_test": round(engine.test_accuracy(again), 4),
        }
    ]


def loss(engine: Simulation, model: Model, names: Sequence[str]) -> float:
    """Return the mean loss over these clients' rows, with the L2 term: what both ways make smaller."""
    total = cast(Sums, engine.sums(model, ModelId(1, 1), names, Wanted.GRADIENT).total)
    theta, head_loss = flatten(model), cast(SoftmaxL2 | LogisticL2, engine.facts.training.loss)
    return total.loss / total.rows + head_loss.l2 / 2 * float(theta @ theta)
