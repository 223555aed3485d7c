"""What became of requests, as the journal has it: all that a certificate states."""

from __future__ import annotations

from dataclasses import dataclass

from rescind.core.facts import Mode
from rescind.history.codec import decode
from rescind.history.ledger import Ledger
from rescind.history.path import branches
from rescind.history.records import Branch, ErasurePlan, Place
from rescind.history.requests import Asked, Planned, asked_for, plans, standings


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
    after everything that has happened since. ``place`` and ``model`` name the model that came out of it, ``rounds``
    were trained for it, ``erasure`` is what was erased then, ``completed`` when, and ``left`` what could not be
    reached. A request that was settled, because the newest model did not know its clients, has no plan and no branch.
    ``scores`` are measured and kept nowhere.
    """

    asked: tuple[Asked, ...]
    planned: Planned | None
    modes: tuple[Mode, ...]
    branch: Branch | None
    place: Place | None
    model: str
    rounds: int
    erasure: ErasurePlan
    completed: str
    left: tuple[str, ...]
    scores: Scores | None = None


def outcomes(ledger: Ledger) -> list[Outcome]:
    """Give what became of all requests that were served to the end, in the order in which they were."""
    asked = {each.number: each for each in asked_for(ledger)}
    known, planned = branches(ledger), plans(ledger)
    modes = {each.number: each.mode for each in standings(ledger)}
    modes |= _settled(ledger)
    trained = {int(entry.body["branch"]): entry.body for entry in ledger.entries("retrained")}
    logs = {int(entry.body["erasure"]): entry for entry in ledger.entries("erased")}
    found, seen = [], set[int]()
    for begun in ledger.entries("erasure"):
        plan = decode(ErasurePlan, begun.body)
        if begun.sequence not in logs:
            continue
        log = logs[begun.sequence]
        for number in plan.requests:
            branch = None if (at := asked[number].branch) is None else known[at]
            together = branch.requests if branch else (number,)
            if number in seen or (branch and branch.number not in trained):
                continue
            seen.update(together)
            done = trained[branch.number] if branch else None
            found.append(
                Outcome(
                    asked=tuple(asked[each] for each in together),
                    planned=planned[number] if branch else None,
                    modes=tuple(modes[each] for each in together),
                    branch=branch,
                    place=Place(branch.number, int(done["rounds"])) if branch and done else None,
                    model=str(done["model"]) if done else "",
                    rounds=int(done["rounds"]) if done else 0,
                    erasure=plan,
                    completed=log.time,
                    left=tuple(log.body["left"]),
                )
            )
    return found


def _settled(ledger: Ledger) -> dict[int, Mode]:
    """Give what may be claimed of requests that were settled: ``exact``, until something unbounded is begun."""
    begun = [entry.sequence for entry in ledger.entries("branch") if decode(Branch, entry.body).unbounded]
    last = max(begun, default=0)
    return {
        int(entry.body["request"]): Mode.HEURISTIC if last > entry.sequence else Mode.EXACT
        for entry in ledger.entries("settlement")
    }
