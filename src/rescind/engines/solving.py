"""The loop that solves a head: questions to the clients, a solver's steps, every model handed to the recorder.

The server sends a model, each client answers with sums over its rows at it, and the solver makes the next model of
the sums alone. Where the gradient is small enough the model stays as it is, and is the solution.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import cast

import numpy as np

from rescind.core.aggregation import Aggregator, RoundMeasurement
from rescind.core.arrays import Floats, Tensor
from rescind.core.consistency import Earlier
from rescind.core.edges import NO_BOUND, RoundKind, solver_kind
from rescind.core.facts import Facts, find_head
from rescind.core.regularity import LogisticL2, SoftmaxL2, SquaredL2
from rescind.core.ridge import RidgeSums, ridge_solution
from rescind.core.rounds import RoundResult
from rescind.core.sensitivity import GRAM_LIMIT
from rescind.core.solver import Solver, Solving, advance, begin, choose, solution_rounding
from rescind.core.sums import Sums, Wanted, flatten, head_shape, unflatten
from rescind.engines.engine import Answers, Engine, RidgeEngine, SummingEngine
from rescind.engines.training import Watch, ask_in_turn, check_exchange, describe_round, ignore, show_rounds
from rescind.errors import NoSumsError
from rescind.history.recorder import Recorder
from rescind.history.sums import KeptSums

# Flower's: what it logs is what its users look at.
_LOG = logging.getLogger("flwr")
_UNSOLVED = "rescind: branch %d is not solved: its rounds were used up, after %d. Its model is no solution"


def check_solvable(engine: Engine) -> None:
    """Refuse an engine whose model cannot be solved."""
    obstacles = engine.facts.solving_obstacles
    asked = "ridge_sums" if isinstance(engine.facts.head_loss, SquaredL2) else "sums"
    if not hasattr(engine, asked):
        obstacles = (f"{type(engine).__name__} has no {asked}, so its clients cannot answer a solver's questions",)
    if obstacles:
        raise ValueError(f"this model cannot be solved: {'; '.join(obstacles)}")


def check_room(facts: Facts, names: Sequence[str]) -> None:
    """Refuse more clients than a ridge head has room for, where each of them is asked.

    Nobody is left out in their place: then who is in the model would depend on who else came.
    """
    loss = facts.head_loss
    if isinstance(loss, SquaredL2) and len(names) > loss.most_clients:
        raise ValueError(
            f"{len(names)} clients are there, and the sums have room for {loss.most_clients}: take some away, or "
            "begin a new history with a larger most_clients of SquaredL2"
        )


def solve(
    engine: Engine,
    recorder: Recorder,
    present: Callable[[], Sequence[str]],
    solving: Solving,
    watch: Watch = ignore,
    interrupted: Callable[[], bool] = lambda: False,
    asking: Collection[str] | None = None,
) -> None:
    """Solve the newest branch's head over the rows of those present, from its newest model on.

    Everybody present is asked in every round, but whoever answered and then stopped is left out from there on:
    clients that come and go would change the solution from round to round. What the solver knows is of this call: a
    solve that was cut off begins anew at the last recorded model. It ends with the solution, or when the branch's
    rounds are used up, which is logged. Once ``interrupted`` says so, no further round begins. Each answer is held
    against the client's own earlier ones.

    Where sums are kept, whoever's are there is not asked, and need not be there; of the others those ``asking`` are,
    or all if that is None.
    """
    check_solvable(engine)
    if isinstance(engine.facts.head_loss, SquaredL2):
        _solve_ridge(cast(RidgeEngine, engine), recorder, present, solving, watch, interrupted, asking)
        return
    summing, model = cast(SummingEngine, engine), recorder.model()
    facts = engine.facts
    loss = cast(SoftmaxL2 | LogisticL2, facts.head_loss)
    shape = head_shape(find_head(model, facts))
    solver = Solver(loss, *shape, choose(*shape, solving.most_bytes), solving.tolerance)
    state, before, left_out, solved = begin(solver), tuple[str, ...](), set[str](), False
    earlier: dict[str, Earlier] = {}

    def ended() -> bool:
        return solved or recorder.model_id.round >= solving.most_rounds

    # The answers decide how many rounds it takes.
    recorder.record_end_by_data(solved=True)
    label, done = f"branch {recorder.model_id.branch}, solving", recorder.model_id.round
    with show_rounds(label, solving.most_rounds, done, public=False) as show:
        for model_id, connected in ask_in_turn(recorder, present, ended, interrupted):
            # If nobody else is left, everybody is asked again.
            asked = [name for name in connected if name not in left_out] or connected
            head = find_head(model, facts)
            theta = flatten(head)
            # From here on no Hessian of anybody's is held.
            earlier = {name: answered.before(theta) for name, answered in earlier.items()}
            doubt = partial(_doubt, earlier, theta, loss, state.wanted)
            answers = summing.sums(model, model_id, asked, state.wanted, doubt)
            check_exchange(engine, facts, answers, asked)
            _check_rows(answers)
            left_out = left_out.union(before).difference(answers.names)
            note = ""
            if answers.total is not None:
                state, step = advance(state, theta, answers.total, fresh=answers.names != before)
                before, solved = answers.names, step.solved
                note = f"gradient {step.gradient_norm:.2g}, solved at {solver.tolerance:.2g}"
                model = model if solved else {**model, **unflatten(step.theta, head)}
            known = measure_solution(answers.rows, answers.gradients, solver) if solved else None
            _record(recorder, answers, model, known)
            show(model_id.round, describe_round(answers, note))
            watch(model_id, model)
    _end(recorder, solving, solved)


def _doubt(
    earlier: dict[str, Earlier],
    theta: Floats,
    loss: SoftmaxL2 | LogisticL2,
    wanted: Wanted,
    name: str,
    sums: Sums,
) -> str | None:
    """Hold an answer against the client's ``earlier`` ones, and add it to them if nothing is wrong."""
    before = earlier.get(name, Earlier())
    reason = before.doubt(theta, sums, loss)
    if reason is None:
        earlier[name] = before.and_then(theta, sums, wanted)
    return reason


def _end(recorder: Recorder, solving: Solving, solved: bool) -> None:
    """Record that a solve ended with the solution, or say in the log that its rounds were used up."""
    at = recorder.model_id
    if solved:
        recorder.record_solved()
    elif at.round >= solving.most_rounds:
        _LOG.warning(_UNSOLVED, at.branch, at.round)


def _solve_ridge(
    engine: RidgeEngine,
    recorder: Recorder,
    present: Callable[[], Sequence[str]],
    solving: Solving,
    watch: Watch,
    interrupted: Callable[[], bool],
    asking: Collection[str] | None,
) -> None:
    """Solve a head with squared error: the first round of which there are any sums is the last."""
    facts, model, solved = engine.facts, recorder.model(), False
    loss = cast(SquaredL2, facts.head_loss)
    # Where sums are kept each client is asked once: whether once more must not follow from who else answered.
    most = recorder.model_id.round + 1 if facts.keeps_sums else solving.most_rounds

    def ended() -> bool:
        return solved or recorder.model_id.round >= most

    recorder.record_end_by_data(solved=True)
    for model_id, names in ask_in_turn(recorder, present, ended, interrupted):
        if not facts.keeps_sums:
            check_room(facts, names)
        kept = recorder.sums.digests() if facts.keeps_sums else {}
        answers, sent = Answers.collect_ridge(()), dict[str, str]()

        def keep(name: str, sums: RidgeSums, sent: dict[str, str] = sent) -> None:
            sent[name] = recorder.sums.store(sums)

        wanted = names if asking is None or not facts.keeps_sums else asking
        # Nobody is waited for of whom nothing is wanted.
        here = engine.clients if wanted else ()
        asked = find_asked(here, recorder.sums, [name for name in names if name in wanted])
        if facts.keeps_sums:
            asked = _find_room(loss, [name for name in names if name in kept], asked)
        renewed = recorder.sums.find_renewals()
        if asked:
            # What is kept outlives this line of training: it is asked for at a head that knows nobody.
            shown = {**model, **find_head(recorder.first_model(), facts)} if facts.keeps_sums else model
            answers = engine.ridge_sums(shown, model_id, asked, keep if facts.keeps_sums else None)
            check_exchange(engine, facts, answers, asked)
        if facts.keeps_sums:
            if sent:
                recorder.keep_sums(sent, answers.labels, renewed)
            stay = [name for name in names if name in kept or name in sent]
            answers = answers.of_kept(recorder.sums.read(stay))
        told = model_id, len(answers.names), len(sent)
        _LOG.info("rescind: %s follows from the sums of %d clients, %d of them sent now", *told)
        _check_rows(answers)
        if answers.ridge is not None:
            l2 = recorder.sums.choose_l2(answers.names, loss)
            if loss.l2_choices:
                _LOG.info(
                    "rescind: of %s the L2 term %g suits those who were left out in turn best", loss.possible_l2, l2
                )
            solved, theta = True, ridge_solution(answers.ridge, l2)
            model = {**model, **unflatten(theta, find_head(model, facts))}
        _record(recorder, answers, model, None)
        watch(model_id, model)
    if facts.keeps_sums and not solved and not interrupted():
        raise NoSumsError(
            "nothing that clients sent could be used, and nobody's sums are kept: the SuperNodes' logs say more. The "
            "next run asks again"
        )
    _end(recorder, solving, solved)


def _find_room(loss: SquaredL2, kept: Sequence[str], asked: Sequence[str]) -> list[str]:
    """Return those for whom there is room beside the clients whose sums are kept, and say how many there is none for.

    They do not end the run: one who comes under many names would end everybody's.
    """
    room = loss.most_clients - len(set(kept).difference(asked))
    if len(asked) > room:
        told = len(asked) - room, loss.most_clients
        _LOG.warning(
            "rescind: %d clients are not asked: the sums have room for %d. Begin a new history with a larger "
            "most_clients of SquaredL2; who left while there was no room may have kept somebody out",
            *told,
        )
    return sorted(asked)[:room]


def find_asked(here: Collection[str], sums: KeptSums, names: Sequence[str]) -> list[str]:
    """Return who of those named is there and asked for sums: those whose are kept are not, unless they have to be.

    Args:
        here: who is there.
        sums: what is kept.
        names: those who may take part.

    Returns:
        their names.
    """
    known = sums.digests().keys() - sums.awaited()
    return [name for name in names if name not in known and name in here]


def _check_rows(answers: Answers) -> None:
    """Refuse a total of other rows than those who answered have."""
    total = answers.total or answers.ridge
    rows, told = 0 if total is None else total.rows, answers.names if answers.ridge else answers.gradients
    if not len(answers.names) == len(answers.rows) == len(told) or sum(answers.rows) != rows:
        raise ValueError(f"the total is over {rows} rows, and those who answered have {sum(answers.rows)}")


def measure_solution(
    rows: Sequence[int], gradients: Sequence[Floats], solver: Solver
) -> tuple[RoundMeasurement, float]:
    """Return how far each client's mean gradient is from the mean of all, over lambda, and what comes on top of it.

    Theory section 16.
    """
    means = [gradient / (own * solver.loss.l2) for gradient, own in zip(gradients, rows, strict=True)]
    mean = Aggregator(np.array(rows, dtype=np.float64), gram=len(rows) <= GRAM_LIMIT)
    mean.add(np.zeros_like(means[0]), means)
    return mean.result(), solution_rounding(solver, max(rows), len(rows))


def _record(
    recorder: Recorder,
    answers: Answers,
    model: dict[str, Tensor],
    known: tuple[RoundMeasurement, float] | None,
) -> None:
    """Record a round: of a solution what is ``known`` to bound later leavers, of all else that nothing is."""
    recorder.record_settings(answers.settings)
    count = len(answers.names)
    measured, rounding = known or (RoundMeasurement(np.zeros(count), 0.0, None), NO_BOUND if count else 0.0)
    # With nearly no L2 term, or a tolerance beyond all numbers, a solution is bounded by nothing, as a step is.
    kind = solver_kind(rounding) if known else RoundKind.STEP
    recorder.record(RoundResult(answers, model, measured, rounding, kind))
