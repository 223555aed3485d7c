"""What is owed to requests, what became of them and what may be claimed: decided here, from the journal alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Self

from rescind.core.edges import ROOT, ModelId
from rescind.core.facts import NOT_AVERAGED, DpFedAvg, Mode, PrivacyScope
from rescind.core.summary import Obligation, Request
from rescind.errors import BrokenHistoryError
from rescind.history.events import BranchRetrained, ClientsReadmitted, RecordedPlan
from rescind.history.lineage import branch_exits
from rescind.history.timeline import Deletion, FiledRequest, Timeline
from rescind.ledger.records import Branch, ErasurePlan

_WEAKEST_LAST = list(Mode)


@dataclass(frozen=True, slots=True)
class Scores:
    """Accuracies: of the remaining clients and of the forgotten ones, each on its own data, and on held-out data.

    ``None`` where there is nobody whom the engine can still ask.
    """

    retain: float | None
    forget: float | None
    test: float | None


@dataclass(frozen=True, slots=True)
class Restart:
    """A restart that was trained to its end: its plan, its branch, the rounds, and the model that came out of it."""

    planned: RecordedPlan
    branch: Branch
    rounds: int
    model_id: ModelId
    model: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request that was served to the end, and what may be claimed of it: the only verdict there is.

    ``restart`` is the one that served it, with whoever was served together with it; None if the request was settled,
    because the newest model did not know its clients. ``erasure`` is what was erased, the furthest that was done,
    ``completed`` when, and ``left`` what could not be reached.

    The claim, in a ``mode``, holds for ``model_id``, with which the last restart was trained to its end, and for
    whatever was trained on from there. That restart is the request's own or a later one, which may have weakened the
    claim or gone back to where the clients had never been. The claim rests on ``basis``: the restart whose noise
    hides the clients, or the last one if none has to. What was settled rests on no restart, and has no ``model_id``:
    it is about the newest branch. ``model`` is the model's digest. ``readmitted`` is the number of the entry from
    which on models may know one of its clients again: of these nothing is claimed. ``contradictions`` are what the
    journal holds against the run's declarations: the reasons, where the mode is ``heuristic`` because of them.

    ``scores`` are measured and kept nowhere.
    """

    asked: FiledRequest
    mode: Mode
    restart: Restart | None
    erasure: ErasurePlan
    completed: str
    left: tuple[str, ...]
    model_id: ModelId | None = None
    model: str = ""
    basis: Restart | None = None
    readmitted: int | None = None
    contradictions: tuple[str, ...] = ()
    scores: Scores | None = None

    def __str__(self) -> str:
        since = f"{self.rounds} round{'' if self.rounds == 1 else 's'} since"
        back = self.restart and f"back to {self.restart.branch.parent}, {since}"
        done = back or "the model knew none of them"
        return f"request {self.asked.number} is served ({self.mode.value}): {done}"

    @property
    def rounds(self) -> int:
        """The rounds that were trained to serve it."""
        return self.restart.rounds if self.restart else 0

    @property
    def noise(self) -> float:
        """The noise that hides the clients (sigma), 0 if none has to."""
        branch = self.basis.branch if self.basis else None
        return branch.sigma if branch and self.asked.number in branch.hidden else 0.0


def find_outcomes(timeline: Timeline) -> dict[int, Outcome]:
    """Return by number all requests that were served to the end, in the order in which they were."""
    return timeline.derive(_find_outcomes)


def outcome_of(timeline: Timeline, number: int) -> Outcome:
    """Return what became of a request that was served to the end, and what may be claimed of it.

    Raises:
        ValueError: there is no such request, or it was withdrawn or refused, or it has not been served to the end.
    """
    outcomes = find_outcomes(timeline)
    if number in outcomes:
        return outcomes[number]
    filed_requests = {filed.number: filed for filed in timeline.requests}
    if number not in filed_requests:
        raise ValueError(f"there is no request {number}: `rescind request list` shows all")
    if filed_requests[number].dropped:
        how = "refused" if filed_requests[number].refused else "withdrawn"
        raise ValueError(f"request {number} was {how}: nobody was forgotten by it, so nothing can be certified")
    raise ValueError(
        f"request {number} has not been served to the end: start the federation's next run, then certify"
    )


def _find_outcomes(timeline: Timeline) -> dict[int, Outcome]:
    asked = {filed.number: filed for filed in timeline.requests}
    against = _Against.of(timeline)
    outcomes: dict[int, Outcome] = {}
    for deletion in timeline.deletions:
        if not deletion.completed:
            continue
        for number in deletion.plan.requests:
            filed = asked[number]
            if filed.branch is None or filed.branch in timeline.retrained:
                # A later erasure goes further than one before it, and takes its place.
                outcomes[number] = _judge(timeline, filed, deletion, against)
    return outcomes


def _judge(timeline: Timeline, filed: FiledRequest, deletion: Deletion, against: _Against) -> Outcome:
    """Return the verdict on a request that was served to the end."""
    outcome = Outcome(
        asked=filed,
        mode=Mode.EXACT,
        restart=None if filed.branch is None else _restart(timeline, filed.branch),
        erasure=deletion.plan,
        completed=deletion.completed,
        left=deletion.left,
        readmitted=timeline.readmitted(filed.number),
    )
    if filed.branch is not None:
        outcome = _follow_restarts(timeline, outcome)
    contradictions = (
        *outcome.contradictions,
        *against.claim(outcome.mode, filed),
        *_find_back_before(timeline, filed),
    )
    return replace(outcome, mode=Mode.HEURISTIC, contradictions=contradictions) if contradictions else outcome


def _follow_restarts(timeline: Timeline, outcome: Outcome) -> Outcome:
    """Return an outcome with what the last restart that was trained to its end leaves of its claim."""
    before = timeline if outcome.readmitted is None else timeline.until(outcome.readmitted)
    retrained = list(before.of(BranchRetrained))
    # A restart that is not trained to its end yet has no model that something could be claimed of.
    then = before.until(retrained[-1][0].sequence) if retrained else before
    owed = then.derive(_find_owed).get(outcome.asked.number)
    if owed is None or not retrained:
        return replace(outcome, contradictions=("somebody was readmitted before the request was served to its end",))
    last = retrained[-1][1]
    return replace(
        outcome,
        mode=owed.mode,
        model_id=last.model_id,
        model=last.model,
        basis=_restart(then, last.branch if owed.branch is None else owed.branch),
    )


def _restart(timeline: Timeline, number: int) -> Restart:
    branch, done = timeline.branches[number], timeline.retrained.get(number)
    if done is None or not branch.requests:
        raise BrokenHistoryError(f"branch {number} serves no request that was trained to its end, and others follow")
    return Restart(timeline.plans[branch.requests[0]], branch, done.rounds, done.model_id, done.model)


def _find_owed(timeline: Timeline) -> dict[int, Obligation]:
    return {obligation.number: obligation for obligation in find_obligations(timeline)}


def _find_back_before(timeline: Timeline, filed: FiledRequest) -> Iterator[str]:
    """Say if somebody was back already whom a request hides together with its own clients."""
    if filed.request.scope is PrivacyScope.SEQUENCE and not filed.settled:
        served = timeline.served_at(filed.number) or 0
        if any(entry.sequence < served for entry, _ in timeline.of(ClientsReadmitted)):
            yield "somebody whom it hides as well had been readmitted before it was served"


@dataclass(frozen=True, slots=True)
class _Against:
    """What a journal holds against the run's declarations, whenever it was recorded.

    ``noise`` are reasons why no noise proves anything, ``missed_means`` models that are not the mean they should be.
    """

    noise: tuple[str, ...]
    missed_means: tuple[ModelId, ...]

    @classmethod
    def of(cls, timeline: Timeline) -> Self:
        if not timeline.doubts and not timeline.missed_means and timeline.fixed_settings:
            return cls((), ())
        facts, declared = timeline.facts, timeline.run.facts
        # Training that was doubted once is the operator's word only, by which less may be proven.
        before = declared.training_obstacles
        since = tuple(obstacle for obstacle in facts.training_obstacles if obstacle not in before)
        noised_rounds = isinstance(facts.public, DpFedAvg)
        return cls(facts.contradictions + (() if noised_rounds else since), timeline.missed_means)

    def claim(self, mode: Mode, asked: FiledRequest) -> tuple[str, ...]:
        """Return why a mode is not to be claimed of a request any more; empty if it is."""
        if mode is not Mode.EXACT:
            return self.noise if mode is not Mode.HEURISTIC else ()
        # A server that did not average may also have kept something of the forgotten.
        since = asked.branch or 0
        return (NOT_AVERAGED,) if any(model_id.branch >= since for model_id in self.missed_means) else ()


def find_obligations(timeline: Timeline) -> tuple[Obligation, ...]:
    """Follow every request that a restart served through the restarts after it, in the order of the restarts.

    A later restart from before its noise hid its clients again, went back to where none of them had been, or left
    them to nothing (``heuristic``).
    """
    requests = {filed.number: filed.request for filed in timeline.requests}
    owed: list[Obligation] = []
    for branch in sorted(timeline.branches.values(), key=lambda started: started.number):
        plan = timeline.plans[branch.requests[0]] if branch.requests else None
        upstream = {model_id.branch for model_id in branch_exits(timeline.branches, branch.parent or ROOT)}
        owed = [_follow(earlier, branch, plan, upstream) for earlier in owed]
        if plan is None:
            continue
        # Where every round was noised, whoever took part in none before the restart is hidden by nothing either.
        took_part = dict(zip(branch.requests, branch.participations, strict=False))
        all_hidden = set(branch.hidden)
        if all_hidden and plan.candidate.mode is Mode.EXACT:
            raise BrokenHistoryError(f"branch {branch.number} hides somebody, and its plan says exact")
        for number in branch.requests:
            request, hidden = requests[number], number in all_hidden
            noise = branch.number if hidden else None
            spent = (request.mu,) if hidden else ()
            # Noise that only earlier requests need leaves this one as exact as it was.
            needless = bool(branch.sigma and all_hidden) and not hidden and plan.candidate.mode is not Mode.HEURISTIC
            needless |= plan.candidate.mode is Mode.STRICT and took_part.get(number) == 0
            mode = Mode.EXACT if needless else plan.candidate.mode
            owed.append(Obligation(number, request, mode, plan.public_plan, noise, spent))
    return tuple(owed)


def hidden_together(request: Request, earlier: Iterable[Request]) -> list[frozenset[int]]:
    """Return the groups that a request hides, each of them jointly; ``earlier`` are those served before it."""
    if request.scope is PrivacyScope.INDIVIDUAL:
        return [frozenset({client}) for client in request.group]
    if request.scope is PrivacyScope.SEQUENCE:
        return [request.group, request.group.union(*(other.group for other in earlier))]
    return [request.group]


def groups_of(timeline: Timeline, filed: FiledRequest) -> list[frozenset[int]]:
    """Return the groups that a request hides, each jointly; the request was served by a restart."""
    before = takewhile(lambda obligation: obligation.number != filed.number, find_obligations(timeline))
    return hidden_together(filed.request, (obligation.request for obligation in before))


def _follow(earlier: Obligation, branch: Branch, plan: RecordedPlan | None, upstream: Collection[int]) -> Obligation:
    """Return what an earlier request is owed after a later restart; ``upstream`` are the branches that led to it."""
    if earlier.number in branch.bare:
        return replace(earlier, mode=Mode.HEURISTIC, branch=None, spent=())
    if plan is not None and not plan.public_plan:
        # Its node and its noise follow data, so nothing that holds whatever these are can rest on it.
        weaker = Mode.INSTANCE if earlier.mode is Mode.STRICT else earlier.mode
        earlier = replace(earlier, mode=weaker, public_plan=earlier.public_plan and earlier.mode is not Mode.STRICT)
    if plan is not None and earlier.number in branch.hidden:
        spent = (*earlier.spent, earlier.request.mu)
        mode = max(earlier.mode, plan.candidate.mode, key=_WEAKEST_LAST.index)
        return replace(earlier, mode=mode, branch=branch.number, spent=spent)
    if earlier.branch is None or earlier.branch in upstream:
        return earlier
    # A heuristic claim may be so because rounds were drawn again: only theta_0^0 precedes all of those.
    unproven = earlier.mode is Mode.HEURISTIC and branch.parent != ROOT
    return replace(earlier, mode=Mode.HEURISTIC if unproven else Mode.EXACT, branch=None, spent=())
