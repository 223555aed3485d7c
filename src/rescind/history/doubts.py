"""What was seen to contradict a run's declarations, as the journal has it, and what the operator answered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from rescind.core.facts import Facts, Source
from rescind.ledger.contract import Journal, Ledger
from rescind.ledger.records import ModelId

DOUBT, LIFTED, NOT_A_MEAN = DOUBT_KINDS = ("doubt", "doubt lifted", "not a mean")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why the declared training is doubted since a model; ``answer`` is the operator's, empty while it stands."""

    model_id: ModelId
    time: str
    reason: str
    answer: str = ""

    def __str__(self) -> str:
        return (
            f"the declared training is doubted since {self.model_id}: {self.reason}. Find out what clients execute; "
            'where the declaration is right all the same, say so (rescind doubts HISTORY --lift "why")'
        )


def doubts(journal: Journal) -> tuple[Doubt, ...]:
    """Return all doubts in the order in which they arose; an answer lifts all those before it."""
    found: list[Doubt] = []
    for entry in journal.entries(DOUBT, LIFTED):
        if entry.kind == DOUBT:
            found.append(Doubt(entry.model_id, entry.time, str(entry.body["reason"])))
        else:
            found = [each if each.answer else replace(each, answer=str(entry.body["reason"])) for each in found]
    return tuple(found)


def standing_doubts(journal: Journal) -> tuple[Doubt, ...]:
    """Return the doubts that nobody has lifted."""
    return tuple(doubt for doubt in doubts(journal) if not doubt.answer)


def not_means(journal: Journal) -> tuple[ModelId, ...]:
    """Return of each branch the first model that was seen to be no mean of its round's replies."""
    return tuple(entry.model_id for entry in journal.entries(NOT_A_MEAN))


def lift_doubts(ledger: Ledger, reason: str, time: datetime) -> tuple[Doubt, ...]:
    """Record why the declared training is right all the same; return the doubts that this lifts."""
    if not reason.strip():
        raise ValueError("give a reason: without one a doubt is not lifted")
    lifted = standing_doubts(ledger)
    if not lifted:
        raise ValueError("there is no doubt to lift: `rescind doubts` lists what was recorded")
    ledger.append(LIFTED, {"reason": reason}, time.isoformat())
    return lifted


def facts_since(facts: Facts, journal: Journal) -> Facts:
    """Return a run's facts with what a journal holds since: how training ended, and what contradicts them.

    Once the training was doubted, it is declared by the operator, who lifted the doubt, and not known otherwise.
    """
    doubted = any(journal.entries(DOUBT))
    return replace(
        facts,
        sources=replace(facts.sources, training=Source.DECLARED) if doubted else facts.sources,
        public_rounds=not any(journal.entries("ends by data")),
        doubts=tuple(map(str, standing_doubts(journal))),
        averages=not any(journal.entries(NOT_A_MEAN)),
    )
