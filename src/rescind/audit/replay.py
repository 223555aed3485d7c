"""Coupled replay: train again without a client, on the same secrets, and hold the distance against its bound.

It needs an engine that can be asked again, such as a simulator, or a federation with canary clients that agree to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from rescind.core.arrays import Tensor
from rescind.core.calibration import reached_epsilon
from rescind.core.edges import ROOT, ModelId
from rescind.core.facts import DpFedAvg, Facts, PrivacyScope, find_head
from rescind.core.regularity import LogisticL2, SoftmaxL2
from rescind.core.sensitivity import group_sensitivity
from rescind.core.solver import Solver, State, advance, begin
from rescind.core.sums import Wanted, flatten, head_shape, unflatten
from rescind.engines.engine import Answers, Doubt, Engine, Replies, SummingEngine
from rescind.engines.server import average, norm
from rescind.history.history import History
from rescind.history.lineage import branch_exits
from rescind.ledger.records import Branch

# The other world's solution is sharper than any that a bound allows for.
_TOLERANCES = {"float32": 1e-5, "float64": 1e-10}
_MOST_QUESTIONS = 1000
# No gradient is so short: a solver with this tolerance goes on for ever.
_NEVER = 1e-300


@dataclass(slots=True, eq=False)
class _Steps:
    """A solver's steps, made from answers as ``solve`` makes them; ``after`` is where the last one led."""

    facts: Facts
    wanted: Wanted
    tolerance: float
    state: State | None = None
    names: tuple[str, ...] = ()
    after: Mapping[str, Tensor] | None = None

    def make(self, model: Mapping[str, Tensor], answers: Answers) -> bool:
        """Go on from the answers about a model, and return whether it is the solution."""
        self.after = model
        if answers.total is None:
            return True
        if self.state is None:
            loss = cast(SoftmaxL2 | LogisticL2, self.facts.head_loss)
            self.state = begin(Solver(loss, *head_shape(find_head(model, self.facts)), self.wanted, self.tolerance))
        fresh, self.names = answers.names != self.names, answers.names
        head = find_head(model, self.facts)
        self.state, step = advance(self.state, flatten(head), answers.total, fresh=fresh)
        self.after = model if step.solved else {**model, **unflatten(step.theta, head)}
        return step.solved

    def leads_to(self, model: Mapping[str, Tensor]) -> bool:
        """Return whether the last step led to a model."""
        return self.after is not None and distance(self.after, model) == 0


@dataclass(frozen=True, slots=True, eq=False)
class RecordingEngine:
    """An engine that keeps who took part in each round, and from which model: what a replay needs.

    ``questions`` are a solver's, by the model that its round made, and ``begun`` the first ones of each solve.

    An erasure takes names and models from the history, not from here: a tape is for audits, and goes with them.
    """

    engine: Engine
    rounds: dict[ModelId, tuple[Mapping[str, Tensor], tuple[str, ...]]] = field(default_factory=dict)
    questions: dict[ModelId, Wanted] = field(default_factory=dict)
    begun: set[ModelId] = field(default_factory=set)
    _steps: dict[ModelId, _Steps] = field(default_factory=dict)

    @property
    def facts(self) -> Facts:
        """What claims rest on."""
        return self.engine.facts

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of everybody who could take part."""
        return self.engine.clients

    def start(self) -> dict[str, Tensor]:
        """Return theta_0^0."""
        return self.engine.start()

    def draw(self, model_id: ModelId, present: Sequence[str]) -> list[str]:
        """Choose who takes part."""
        return self.engine.draw(model_id, present)

    def train(self, model: Mapping[str, Tensor], model_id: ModelId, names: Sequence[str]) -> Replies:
        """Train a round, and keep what it was made of."""
        replies = self.engine.train(model, model_id, names)
        self.rounds[model_id] = (model, replies.names)
        return replies

    def sums(
        self,
        model: Mapping[str, Tensor],
        model_id: ModelId,
        names: Sequence[str],
        wanted: Wanted,
        doubt: Doubt | None = None,
    ) -> Answers:
        """Ask a solver's question, and keep who answered it about which model."""
        answers = cast(SummingEngine, self.engine).sums(model, model_id, names, wanted, doubt)
        self.rounds[model_id], self.questions[model_id] = (model, answers.names), wanted
        steps = self._steps.pop(ModelId(model_id.branch, model_id.round - 1), None)
        if steps is None or not steps.leads_to(model):
            first, steps = self._begin(model, model_id)
            self.begun.add(first)
        steps.make(model, answers)
        self._steps[model_id] = steps
        return answers

    def _begin(self, model: Mapping[str, Tensor], model_id: ModelId) -> tuple[ModelId, _Steps]:
        """Return where a solve began that is not the one before, and its steps up to a question.

        A solve may begin where the last one's step led, and is then known by its own first step only. So the
        questions before are asked again, the last one first, until a new solve at one of them leads here.
        """
        first = ModelId(model_id.branch, model_id.round - 1)
        # After a solution the next solve asks about it once more.
        again = first in self.questions and distance(self.rounds[first][0], model) == 0
        while not again and first in self.questions and first not in self.begun:
            steps = self._solve_again(first, model_id)
            if steps.leads_to(model):
                return first, steps
            first = ModelId(first.branch, first.round - 1)
        return model_id, _Steps(self.facts, self.questions[model_id], _NEVER)

    def _solve_again(self, first: ModelId, end: ModelId) -> _Steps:
        """Return the steps of a solve that begins at a question, up to another one or to where it would part."""
        steps = _Steps(self.facts, self.questions[first], _NEVER)
        for number in range(first.round, end.round):
            question = ModelId(first.branch, number)
            model, names = self.rounds[question]
            if question != first and not steps.leads_to(model):
                break
            wanted = self.questions[question]
            steps.make(model, cast(SummingEngine, self.engine).sums(model, question, names, wanted))
        return steps

    def accuracy(self, model: Mapping[str, Tensor], names: Sequence[str]) -> float | None:
        """Return the mean of the named clients' accuracies."""
        return self.engine.accuracy(model, names)

    def test_accuracy(self, model: Mapping[str, Tensor]) -> float | None:
        """Return the accuracy on held-out data."""
        return self.engine.test_accuracy(model)

    def model(self, model_id: ModelId) -> Mapping[str, Tensor]:
        """Return a model: the one that the round after it began with, or else made once more."""
        after = ModelId(model_id.branch, model_id.round + 1)
        if after in self.rounds:
            return self.rounds[after][0]
        if model_id not in self.rounds:
            raise ValueError(
                f"{model_id} was not recorded: give this recording engine to whoever trains, for a round at least"
            )
        if model_id in self.questions:
            # After its last question a solver leaves the model as it is.
            return self.rounds[model_id][0]
        return self.next_model(*self.rounds[model_id], model_id)

    def next_model(self, model: Mapping[str, Tensor], names: Sequence[str], model_id: ModelId) -> dict[str, Tensor]:
        """Make a model again, from a model and by the named clients only."""
        if isinstance(self.facts.public, DpFedAvg):
            raise ValueError("rounds of DP-FedAvg have noise of their own, which nobody can draw again")
        if model_id in self.questions:
            raise ValueError(f"{model_id} is a solver's, and not made by training")
        rate = self.engine.facts.training.server_learning_rate
        return average(model, self.engine.train(model, model_id, names), rate).model


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far a model is from the one without the group (alpha), and how far it may be (Psi)."""

    model_id: ModelId
    distance: float
    bound: float

    @property
    def violated(self) -> bool:
        """True if the bound does not hold."""
        return not self.distance <= self.bound

    def epsilon(self, sigma: float, delta: float) -> float:
        """Return the epsilon that noise of ``sigma`` really has here, beside the certified one."""
        return reached_epsilon(self.distance / sigma, delta)


def train_without(
    tape: RecordingEngine, known: Mapping[int, Branch], leaving: Collection[str], model_id: ModelId
) -> Iterator[tuple[ModelId, Mapping[str, Tensor]]]:
    """Return every model on the way to another as it would be had the leaving never taken part.

    Participation of the others, batches and noise are those of the real world. ``known`` are the history's branches.

    Theory section 15.
    """
    model: Mapping[str, Tensor] = tape.start()
    yield ROOT, model
    for leg in branch_exits(known, model_id):
        branch, first = known[leg.branch], ModelId(leg.branch, 0)
        if branch.parent is not None:
            if branch.sigma:
                model = _same_noise(model, tape.model(branch.parent), tape.model(first))
            yield first, model
        again = _SolvedAgain(tape, leaving)
        for number in range(1, leg.round + 1):
            here = ModelId(leg.branch, number)
            _, names = tape.rounds[here]
            if here in tape.begun:
                again = _SolvedAgain(tape, leaving)
            if here in tape.questions:
                model = again.next_model(model, here)
            else:
                model = tape.next_model(model, [name for name in names if name not in leaving], here)
            yield here, model


@dataclass(slots=True, eq=False)
class _SolvedAgain:
    """A solve as it would be without the leaving: question by question, and at its end to the solution.

    Where none of them answered it is the same solve, bit by bit. Else the other world may need more questions, which
    are asked at the end.

    Theory section 15.
    """

    tape: RecordingEngine
    leaving: Collection[str]
    steps: _Steps | None = None
    apart: bool = False

    def next_model(self, model: Mapping[str, Tensor], here: ModelId) -> Mapping[str, Tensor]:
        asked, names = self.tape.rounds[here]
        self.apart = self.apart or distance(asked, model) > 0 or not set(self.leaving).isdisjoint(names)
        solved = distance(asked, self.tape.model(here)) == 0
        if solved and not self.apart:
            return model
        for _ in range(_MOST_QUESTIONS if solved else 1):
            model, done = self._ask(model, here)
            if done:
                break
        return model

    def _ask(self, model: Mapping[str, Tensor], here: ModelId) -> tuple[Mapping[str, Tensor], bool]:
        tape, remaining = self.tape, [name for name in self.tape.rounds[here][1] if name not in self.leaving]
        if self.steps is None:
            tolerance = _TOLERANCES[tape.facts.training.precision]
            self.steps = _Steps(tape.facts, tape.questions[here], tolerance)
        wanted = self.steps.state.wanted if self.steps.state else self.steps.wanted
        solved = self.steps.make(model, cast(SummingEngine, tape.engine).sums(model, here, remaining, wanted))
        return cast(Mapping[str, Tensor], self.steps.after), solved


def compare_worlds(
    history: History, tape: RecordingEngine, leaving: Collection[str], scope: PrivacyScope = PrivacyScope.GROUP
) -> list[Comparison]:
    """Hold the bound against the distance at every model up to the newest; before a request is carried out.

    With ``PrivacyScope.INDIVIDUAL`` each client is replayed alone; of each model the one nearest to its bound counts.

    Theory section 15.
    """
    if scope is PrivacyScope.INDIVIDUAL and len(leaving) > 1:
        alone = [compare_worlds(history, tape, [name]) for name in leaving]
        return [max(comparisons, key=_nearness) for comparisons in zip(*alone, strict=True)]
    group = history.participants.find(list(leaving))
    # People may have called them by their labels.
    names = set(history.participants.names(group))
    path = history.lineage(group=group)
    bounds = group_sensitivity(path.edges, group)
    return [
        Comparison(model_id, distance(tape.model(model_id), other), float(bounds[path.index[model_id]]))
        for model_id, other in train_without(tape, history.timeline.branches, names, history.newest)
        if model_id in path.index
    ]


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """Return the Euclidean distance of two models."""
    return norm({name: np.subtract(one[name], other[name], dtype=np.float64) for name in one})


def _same_noise(
    model: Mapping[str, Tensor], parent: Mapping[str, Tensor], noised: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return what a model of the other world becomes by the noise that made ``noised`` of ``parent``."""
    return {
        name: (tensor + np.subtract(model[name], parent[name], dtype=np.float64)).astype(tensor.dtype)
        for name, tensor in noised.items()
    }


def _nearness(comparison: Comparison) -> float:
    """Return how near a distance is to its bound: their ratio, infinite above the bound."""
    if comparison.violated:
        return np.inf
    return comparison.distance / comparison.bound if comparison.bound else 0.0
