"""Solves judged: is the solution without a group ever further away than the bound says, and is `exact` exact?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Floats
from rescind.core.edges import RoundKind, solver_edge
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.sensitivity import client_sensitivities, group_sensitivity
from rescind.core.solver import Solver, State, advance, begin
from rescind.core.sums import Sums, Wanted, add_up, unflatten
from rescind.engines.heads import sum_head
from rescind.engines.solving import measure_solution

_MOST_QUESTIONS = 500


class WrongSolve(Enum):
    """What people get wrong about solves: in the bound (first five), or in what is called exact (last two)."""

    DISTANCE_LEFT_OUT = "two solutions are near each other, whoever left"
    FACTOR_TWO = "tau / lambda for the tolerance of both worlds"
    LAMBDA_OF_THE_SUM = "the L2 term taken of the summed loss instead of the mean"
    EQUAL_WEIGHTS = "clients weighed alike instead of their rows"
    LARGEST = "the largest client instead of the group"
    STATE_REUSED = "the old solve's curvature used again"
    SUBTRACTED = "the leaver's sums taken off the old ones"


@dataclass(frozen=True)
class SolveOutcome:
    """What one federation showed: the worst alpha/Psi, violations, models that differ, and who was caught."""

    worst_ratio: float
    violations: int
    caught: dict[WrongSolve, int]


@dataclass(frozen=True)
class Head:
    """Clients with their rows, and the solver of their head."""

    shards: Sequence[tuple[Floats, NDArray[np.int64]]]
    solver: Solver

    def sums(self, theta: Floats, clients: Collection[int], wanted: Wanted) -> list[Sums]:
        """Return the clients' sums at a model."""
        classes, features = self.solver.classes, self.solver.features
        model = unflatten(theta, {"weight": np.empty((classes, features)), "bias": np.empty(classes)})
        return [sum_head(model, *self.shards[client], self.solver.loss, wanted) for client in clients]

    def solve(self, clients: Sequence[int], start: Floats, state: State | None = None) -> Floats:
        """Return the solution over the clients' rows, from a start; ``state`` is that of another solve."""
        state, theta = state or begin(self.solver), start
        for _ in range(_MOST_QUESTIONS):
            state, step = advance(state, theta, add_up(self.sums(theta, clients, state.wanted)))
            if step.solved:
                return theta
            theta = step.theta
        raise RuntimeError(f"not solved after {_MOST_QUESTIONS} questions")


def random_head(rng: np.random.Generator) -> Head:
    """Make three to ten clients of unlike size, each with a class of its own in half of the cases."""
    classes, features = int(rng.choice([1, 2, 3, 5])), int(rng.integers(1, 6))
    kind = LogisticL2 if classes == 1 else SoftmaxL2
    loss = kind(float(10 ** rng.uniform(-3, 0)), float(rng.choice([0.5, 1.0, 3.0])))
    alone, labels = bool(rng.random() < 0.5), max(classes, 2)
    shards = []
    for client in range(int(rng.integers(3, 11))):
        size = int(rng.integers(1, 30))
        own = np.full(size, client % labels) if alone else rng.integers(labels, size=size)
        shards.append((rng.normal(size=(size, features)) + rng.normal(size=features), own.astype(np.int64)))
    wanted = Wanted(str(rng.choice([each.value for each in Wanted])))
    return Head(shards, Solver(loss, classes, features, wanted, float(10 ** rng.uniform(-8, -4))))


def judge_solve(seed: int) -> SolveOutcome:
    """Solve with everybody, and without each of some groups from another start; hold the distance against Psi."""
    rng = np.random.default_rng((16, seed))
    head = random_head(rng)
    everybody = list(range(len(head.shards)))
    length, solver = head.solver.classes * (head.solver.features + 1), head.solver
    solution = head.solve(everybody, rng.normal(size=length) * rng.choice([0.0, 1.0, 10.0]))
    sums = head.sums(solution, everybody, Wanted.GRADIENT)
    rows, gradients = [each.rows for each in sums], [each.gradient for each in sums]
    clients, weights = np.array(everybody, dtype=np.int64), np.array(rows, dtype=np.float64)
    measured, rounding = measure_solution(rows, gradients, solver)
    edge = solver_edge(RoundKind.SOLVED, clients, weights, measured.distances, rounding, measured.gram)
    alike, _ = measure_solution([1] * len(rows), gradients, solver)
    unweighted = solver_edge(RoundKind.SOLVED, clients, np.ones(len(rows)), alike.distances / weights, rounding)
    caught, violations, worst = dict.fromkeys(WrongSolve, 0), 0, 0.0
    half = rng.permutation(len(everybody))[: max(len(everybody) // 2, 1)].tolist()
    for group in ([int(rng.integers(len(everybody)))], half):
        others = [client for client in everybody if client not in group]
        other = head.solve(others, rng.normal(size=length) * rng.choice([0.0, 1.0, 10.0]))
        alpha, psi = float(np.linalg.norm(solution - other)), float(group_sensitivity([edge], group)[-1])
        violations += alpha > psi
        worst = max(worst, alpha / psi)
        caught[WrongSolve.DISTANCE_LEFT_OUT] += alpha > rounding
        caught[WrongSolve.LAMBDA_OF_THE_SUM] += alpha > psi / sum(rows)
        caught[WrongSolve.EQUAL_WEIGHTS] += alpha > float(group_sensitivity([unweighted], group)[-1])
        caught[WrongSolve.LARGEST] += alpha > float(client_sensitivities([edge], group, [1]).max())
    near, ratio, halved = _judge_tolerance(head, everybody, rounding)
    caught[WrongSolve.FACTOR_TWO] += halved
    caught |= _judge_exact(head, everybody, half[:1], length)
    return SolveOutcome(max(worst, ratio), violations + near, caught)


def _judge_tolerance(head: Head, everybody: list[int], rounding: float) -> tuple[int, float, int]:
    """Compare two starts that are solutions within the tolerance, on either side of the best one: a tight case.

    Adding the same numbers to all classes changes no probability, so that only the L2 term sees it.
    """
    solver = head.solver
    if solver.classes == 1:
        return 0, 0.0, 0
    sharp = Head(head.shards, Solver(solver.loss, solver.classes, solver.features, Wanted.FULL, 1e-13))
    best = sharp.solve(everybody, np.zeros(solver.classes * (solver.features + 1)))
    flat = np.ones_like(best) / np.sqrt(len(best)) * solver.tolerance / solver.loss.l2 * (1 - 1e-6)
    one, other = (head.solve(everybody, start) for start in (best + flat, best - flat))
    alpha = float(np.linalg.norm(one - other))
    return int(alpha > rounding), alpha / rounding, int(alpha > rounding / 2)


def _judge_exact(head: Head, everybody: list[int], leaving: list[int], length: int) -> dict[WrongSolve, int]:
    """Change the leaver's rows only: what is solved anew stays the same, bit by bit, and short cuts do not."""
    others = [client for client in everybody if client not in leaving]
    changed = [*head.shards]
    for client in leaving:
        rows, labels = changed[client]
        changed[client] = (3 * rows[::-1] + 1, labels)
    start, released = np.zeros(length), []
    for federation in (head, Head(changed, head.solver)):
        before = begin(federation.solver)
        question = federation.sums(start, everybody, before.wanted)
        state, _ = advance(before, start, add_up(question))
        total, gone = add_up(question), add_up([question[client] for client in leaving])
        first = begin(federation.solver)
        _, subtracted = advance(first, start, _subtract(total, gone))
        # Only the number of rows tells the solver that others answer.
        remaining = sum(len(federation.shards[client][1]) for client in others)
        kept = State(state.solver, remaining, state.bound, state.search)
        _, reused = advance(kept, start, add_up(federation.sums(start, others, kept.wanted)))
        released.append((federation.solve(others, start), reused.theta, subtracted.theta))
    (anew, reused_one, less_one), (again, reused_other, less_other) = released
    if not np.array_equal(anew, again):
        raise RuntimeError("a solve without the leaver depends on the leaver")
    return {
        WrongSolve.STATE_REUSED: int(not np.array_equal(reused_one, reused_other)),
        WrongSolve.SUBTRACTED: int(not np.array_equal(less_one, less_other)),
    }


def _subtract(total: Sums, gone: Sums) -> Sums:
    curvature = None
    if total.curvature is not None and gone.curvature is not None:
        curvature = total.curvature - gone.curvature
    return Sums(total.rows - gone.rows, total.loss - gone.loss, total.gradient - gone.gradient, curvature)
