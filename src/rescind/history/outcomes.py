"""What became of requests, as the journal has it: all that a certificate states."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from rescind.core.facts import NOT_AVERAGED, DpFedAvg, Mode
from rescind.history.codec import decode
from rescind.history.doubts import DOUBT_KINDS, facts_since, not_means
from rescind.history.lineage import branches
from rescind.history.requests import FiledRequest, RecordedPlan, filed_requests, obligations, plans
from rescind.history.run import Run
from rescind.ledger.contract import Journal, Until
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


@dataclass(frozen=True, slots=True)
class Claim:
    """What may be claimed of a request, in a ``mode``, and of which model.

    It is the ``model`` of the last restart that was trained to its end, the request's own or a later one, which may
    have weakened the claim or gone back to where the clients had never been. It rests on ``restart``: the branch
    whose noise hides the clients, or the last one if none has to; with its plan and the rounds trained after it. A
    request that was settled rests on no restart; ``model`` is ``None``, for its model is the newest.
    ``contradictions`` are what the journal holds against the run's declarations: the reasons, where the mode is
    ``heuristic`` because of them.
    """

    outcome: Outcome
    asked: FiledRequest
    mode: Mode
    model: str | None
    restart: Branch | None = None
    planned: RecordedPlan | None = None
    rounds: int = 0
    contradictions: tuple[str, ...] = ()

    @property
    def noise(self) -> float:
        """The noise that hides the clients (sigma), 0 if none has to."""
        return self.restart.sigma if self.restart and self.asked.number in self.restart.hidden else 0.0


@dataclass(frozen=True, slots=True)
class Deletion:
    """One line of the deletion log: what had to go; ``completed`` says when it was gone, ``left`` what stayed.

    ``completed`` is empty as long as it is under way.
    """

    plan: ErasurePlan
    completed: str
    left: tuple[str, ...]


def deletions(journal: Journal) -> list[Deletion]:
    """Return all erasures in the order in which they were begun."""
    done = {int(entry.body["erasure"]): entry for entry in journal.entries("erased")}
    found = []
    for begun in journal.entries("erasure"):
        log = done.get(begun.sequence)
        plan = decode(ErasurePlan, begun.body)
        found.append(Deletion(plan, log.time if log else "", tuple(log.body["left"]) if log else ()))
    return found


def outcomes(journal: Journal) -> list[Outcome]:
    """Return what became of all requests that were served to the end, in the order in which they were."""
    asked = {each.number: each for each in filed_requests(journal)}
    known, planned = branches(journal), plans(journal)
    modes = {each.number: each.mode for each in obligations(journal)}
    modes |= _settled(journal)
    against = _Against.of(journal)
    modes = {number: Mode.HEURISTIC if against.claim(mode, asked[number]) else mode for number, mode in modes.items()}
    trained = {int(entry.body["branch"]): entry.body for entry in journal.entries("retrained")}
    found: dict[int, Outcome] = {}
    for deletion in deletions(journal):
        if not deletion.completed:
            continue
        for number in deletion.plan.requests:
            branch = None if (at := asked[number].branch) is None else known[at]
            if branch and branch.number not in trained:
                continue
            together = branch.requests if branch else (number,)
            done = trained[branch.number] if branch else None
            # A later erasure goes further than one before it, and takes its place.
            found[together[0]] = Outcome(
                asked=tuple(asked[each] for each in together),
                planned=planned[together[0]] if branch else None,
                modes=tuple(modes[each] for each in together),
                branch=branch,
                model_id=ModelId(branch.number, int(done["rounds"])) if branch and done else None,
                model=str(done["model"]) if done else "",
                rounds=int(done["rounds"]) if done else 0,
                erasure=deletion.plan,
                completed=deletion.completed,
                left=deletion.left,
            )
    return list(found.values())


def claim_of(journal: Journal, number: int) -> Claim:
    """Return what may be claimed of a request that was served to the end, as a journal has it."""
    for outcome in outcomes(journal):
        for asked in outcome.asked:
            if asked.number == number:
                if asked.settled:
                    claim = Claim(outcome, asked, _settled(journal)[number], None)
                else:
                    claim = _claim(journal, outcome, asked)
                found = _Against.of(journal).claim(claim.mode, asked)
                return replace(claim, mode=Mode.HEURISTIC, contradictions=found) if found else claim
    if number not in {asked.number for asked in filed_requests(journal)}:
        raise ValueError(f"there is no request {number}: `rescind request list` shows all")
    raise ValueError(
        f"request {number} has not been served to the end: start the federation's next run, then certify"
    )


def _claim(journal: Journal, outcome: Outcome, asked: FiledRequest) -> Claim:
    *_, last = journal.entries("retrained")
    # A restart that is not trained to its end yet has no model that something could be claimed of.
    then = Until(journal, last.sequence)
    known = branches(then)
    (standing,) = (each for each in obligations(then) if each.number == asked.number)
    restart = known[int(last.body["branch"]) if standing.branch is None else standing.branch]
    rounds = {int(entry.body["branch"]): int(entry.body["rounds"]) for entry in then.entries("retrained")}
    return Claim(
        outcome=outcome,
        asked=asked,
        mode=standing.mode,
        model=str(last.body["model"]),
        restart=restart,
        planned=plans(then)[restart.requests[0]],
        rounds=rounds[restart.number],
    )


@dataclass(frozen=True, slots=True)
class _Against:
    """What a journal holds against the run's declarations, whenever it was recorded.

    ``noise`` are reasons why no noise proves anything, ``strays`` models that are not the mean they should be.
    """

    noise: tuple[str, ...]
    strays: tuple[ModelId, ...]

    @classmethod
    def of(cls, journal: Journal) -> Self:
        if not any(journal.entries(*DOUBT_KINDS)):
            return cls((), ())
        run = next(decode(Run, entry.body) for entry in journal.entries("run"))
        facts = facts_since(run.facts, journal)
        # Training that was doubted once is the operator's word only, by which less may be proven.
        since = tuple(each for each in facts.training_obstacles if each not in run.facts.training_obstacles)
        noised_rounds = isinstance(facts.public, DpFedAvg)
        return cls(facts.contradictions + (() if noised_rounds else since), not_means(journal))

    def claim(self, mode: Mode, asked: FiledRequest) -> tuple[str, ...]:
        """Return why a mode is not to be claimed of a request any more; empty if it is."""
        if mode is not Mode.EXACT:
            return self.noise if mode is not Mode.HEURISTIC else ()
        # Such a server is not believed either to have kept nothing of those who had to go.
        since = asked.branch or 0
        return (NOT_AVERAGED,) if any(model_id.branch >= since for model_id in self.strays) else ()


def _settled(journal: Journal) -> dict[int, Mode]:
    """Return what may be claimed of requests that were settled: ``exact``, until something unbounded is begun."""
    begun = [entry.sequence for entry in journal.entries("branch") if decode(Branch, entry.body).unbounded]
    last = max(begun, default=0)
    return {
        int(entry.body["request"]): Mode.HEURISTIC if last > entry.sequence else Mode.EXACT
        for entry in journal.entries("settlement")
    }
