"""What became of requests, as the journal has it: all that a certificate states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from rescind.core.facts import NOT_AVERAGED, DpFedAvg, Mode, PrivacyScope
from rescind.history.events import BranchRetrained, ClientsReadmitted, RecordedPlan, RequestSettled
from rescind.history.obligations import Obligation, find_obligations
from rescind.history.timeline import FiledRequest, Timeline
from rescind.ledger.records import Branch, ErasurePlan, ModelId


@dataclass(frozen=True, slots=True)
class Scores:
    """Accuracies: of the remaining clients and of the forgotten ones, each on its own data, and on held-out data.

    ``None`` where there is nobody whom the engine can still ask.
    """

    retain: float | None
    forget: float | None
    test: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of requests that were served together: all that a certificate states, as the journal has it.

    ``planned`` says from where, with how much noise and why; ``modes`` is what may be claimed for each request now,
    after everything since. ``model_id`` and ``model`` name the model that came out of it, ``rounds``
    were trained for it, ``erasure`` is what was erased, the furthest that was done, ``completed`` when, and ``left``
    what could not be reached. A request that was settled, because the newest model did not know its clients, has no
    plan and no branch. ``scores`` are measured and kept nowhere.
    """

    asked: tuple[FiledRequest, ...]
    planned: RecordedPlan | None
    modes: tuple[Mode, ...]
    branch: Branch | None
    model_id: ModelId | None
    model: str
    rounds: int
    erasure: ErasurePlan
    completed: str
    left: tuple[str, ...]
    scores: Scores | None = None

    def __str__(self) -> str:
        numbers = " and ".join(str(filed.number) for filed in self.asked)
        subject = f"request {numbers} is" if len(self.asked) == 1 else f"requests {numbers} are"
        done = f"back to {self.branch.parent}, {self.rounds} rounds since" if self.branch else "it knew none of them"
        return f"{subject} served ({', '.join(mode.value for mode in self.modes)}): {done}"


@dataclass(frozen=True, slots=True)
class Claim:
    """What may be claimed of a request, in a ``mode``, and of which model.

    It holds for ``model_id``, with which the last restart was trained to its end, and for whatever was trained on
    from there. That restart is the request's own or a later one, which may have weakened the claim or gone back to
    where the clients had never been. The claim rests on ``restart``: the branch whose noise hides the clients, or the
    last one if none has to; with its plan and the rounds trained after it. A request that was settled rests on no
    restart, and has no ``model_id``: it is about the newest branch. ``model`` is the model's digest.
    ``readmitted`` is the number of the entry from which on models may know one of its clients again: of these nothing
    is claimed. ``contradictions`` are what the journal holds against the run's declarations: the reasons, where the
    mode is ``heuristic`` because of them.
    """

    outcome: Outcome
    asked: FiledRequest
    mode: Mode
    model_id: ModelId | None = None
    model: str = ""
    restart: Branch | None = None
    planned: RecordedPlan | None = None
    rounds: int = 0
    readmitted: int | None = None
    contradictions: tuple[str, ...] = ()

    @property
    def noise(self) -> float:
        """The noise that hides the clients (sigma), 0 if none has to."""
        return self.restart.sigma if self.restart and self.asked.number in self.restart.hidden else 0.0


def find_outcomes(timeline: Timeline) -> list[Outcome]:
    """Return what became of all requests that were served to the end, in the order in which they were."""
    asked = {filed.number: filed for filed in timeline.requests}
    modes = {owed.number: owed.mode for owed in find_obligations(timeline)}
    modes |= _settled(timeline)
    against = _Against.of(timeline)
    modes = {number: Mode.HEURISTIC if against.claim(mode, asked[number]) else mode for number, mode in modes.items()}
    outcomes: dict[int, Outcome] = {}
    for deletion in timeline.deletions:
        if not deletion.completed:
            continue
        done_here = set[int]()
        for number in deletion.plan.requests:
            if number in done_here:
                continue
            branch = None if (at := asked[number].branch) is None else timeline.branches[at]
            done = timeline.retrained.get(branch.number) if branch else None
            if branch and not done:
                continue
            together = branch.requests if branch else (number,)
            done_here.update(together)
            # A later erasure goes further than one before it, and takes its place.
            outcomes[together[0]] = Outcome(
                asked=tuple(asked[member] for member in together),
                planned=timeline.plans[together[0]] if branch else None,
                modes=tuple(modes[member] for member in together),
                branch=branch,
                model_id=done.model_id if done else None,
                model=done.model if done else "",
                rounds=done.rounds if done else 0,
                erasure=deletion.plan,
                completed=deletion.completed,
                left=deletion.left,
            )
    return list(outcomes.values())


def find_finished(timeline: Timeline) -> set[int]:
    """Return the numbers of all requests that were served to the end."""
    return {filed.number for outcome in timeline.derive(find_outcomes) for filed in outcome.asked}


def claim_of(timeline: Timeline, number: int) -> Claim:
    """Return what may be claimed of a request that was served to the end.

    Raises:
        ValueError: there is no such request, or it was withdrawn or refused, or it has not been served to the end.
    """
    if number in (served := timeline.derive(_find_served)):
        outcome, filed = served[number]
        readmitted = timeline.readmitted(number)
        if filed.settled:
            claim = Claim(outcome, filed, timeline.derive(_settled)[number], readmitted=readmitted)
        else:
            claim = _claim(timeline, outcome, filed, readmitted)
        contradictions = (*_Against.of(timeline).claim(claim.mode, filed), *_find_back_before(timeline, filed))
        return replace(claim, mode=Mode.HEURISTIC, contradictions=contradictions) if contradictions else claim
    filed_requests = {filed.number: filed for filed in timeline.requests}
    if number not in filed_requests:
        raise ValueError(f"there is no request {number}: `rescind request list` shows all")
    if filed_requests[number].dropped:
        how = "refused" if filed_requests[number].refused else "withdrawn"
        raise ValueError(f"request {number} was {how}: nobody was forgotten by it, so nothing can be certified")
    raise ValueError(
        f"request {number} has not been served to the end: start the federation's next run, then certify"
    )


def _claim(timeline: Timeline, outcome: Outcome, filed: FiledRequest, readmitted: int | None) -> Claim:
    before = timeline if readmitted is None else timeline.until(readmitted)
    *_, (entry, last) = before.of(BranchRetrained)
    # A restart that is not trained to its end yet has no model that something could be claimed of.
    then = timeline.until(entry.sequence)
    owed = then.derive(_find_owed).get(filed.number)
    if owed is None:
        raise ValueError(f"request {filed.number} was served after the last restart was trained to its end")
    restart = then.branches[last.branch if owed.branch is None else owed.branch]
    return Claim(
        outcome=outcome,
        asked=filed,
        mode=owed.mode,
        model_id=last.model_id,
        model=last.model,
        restart=restart,
        planned=then.plans[restart.requests[0]],
        rounds=then.retrained[restart.number].rounds,
        readmitted=readmitted,
    )


def _find_served(timeline: Timeline) -> dict[int, tuple[Outcome, FiledRequest]]:
    """Return by number the requests that were served to the end, each with what became of it."""
    outcomes = timeline.derive(find_outcomes)
    return {filed.number: (outcome, filed) for outcome in outcomes for filed in outcome.asked}


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

    ``noise`` are reasons why no noise proves anything, ``strays`` models that are not the mean they should be.
    """

    noise: tuple[str, ...]
    strays: tuple[ModelId, ...]

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
        return (NOT_AVERAGED,) if any(model_id.branch >= since for model_id in self.strays) else ()


def _settled(timeline: Timeline) -> dict[int, Mode]:
    """Return what may be claimed of requests that were settled."""
    return {event.request: Mode.EXACT for _, event in timeline.of(RequestSettled)}
