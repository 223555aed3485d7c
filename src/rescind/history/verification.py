"""Whether a history agrees with itself: the chain, the numbers that it commits to, the models, what was erased."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from rescind.core.training import LocalTraining
from rescind.history.checkpoints import CheckpointStore
from rescind.history.codec import decode
from rescind.history.commitments import NO_HEAD, broken_links, round_root, stretch_digest
from rescind.history.ledger import Ledger
from rescind.history.path import branches
from rescind.history.records import ErasurePlan, Place, Span


def problems(
    ledger: Ledger, models: CheckpointStore, training: LocalTraining, witnessed: Collection[bytes] = ()
) -> Iterator[str]:
    """Give in words everything that does not agree; nothing means that all of it does.

    ``witnessed`` are heads that clients were handed: one that is not in the chain shows that history was rewritten,
    which the chain alone cannot show of its newest entries.
    """
    entries = list(ledger.entries())
    yield from (f"entry {number} does not follow from those before it" for number in broken_links(entries))
    heads = {NO_HEAD, *(entry.head for entry in entries)}
    yield from (f"the witnessed head {head.hex()} is not in the chain" for head in witnessed if head not in heads)
    plans = [decode(ErasurePlan, entry.body) for entry in entries if entry.kind == "erasure"]
    erased = [span for plan in plans for span in plan.spans]
    roots = {_place(entry.body): entry.root for entry in entries if entry.kind == "round"}
    started = branches(ledger)
    stored = {Place(each.number, 0): each.model for each in started.values()}
    for number in started:
        for round_ in ledger.rounds(Span(number, 1, ledger.last_round(number))):
            root = roots.pop(round_.place, None)
            stored[round_.place] = round_.model
            keys = ledger.keys(round_.clients)
            if root is None:
                yield f"{round_.place} is in no entry"
            elif len(keys) < len(round_.participants):
                yield f"{round_.place} has a participant whose key is gone"
            elif round_root(round_, keys) != root:
                yield f"the numbers of {round_.place} are not those that were recorded"
            elif round_.factor != round_.edge(training).factor:
                yield f"the factor of {round_.place} does not follow from its participants"
    yield from (
        f"{place} has lost its numbers, and no erasure says so"
        for place in roots
        if not any(place in span for span in erased)
    )
    remains = {int(entry.body["branch"]): entry.body["digest"] for entry in entries if entry.kind == "remains"}
    for branch, stretch in ledger.stretches().items():
        if remains.get(branch) != stretch_digest(stretch):
            yield f"what is left before {Place(branch, 0)} is not what an erasure left"
    for place, digest in ledger.kept().items():
        if stored.get(place) != digest:
            yield f"{place} is kept as another model than was recorded"
        elif digest not in models:
            yield f"the checkpoint of {place} is missing"


def _place(body: Mapping[str, Any]) -> Place:
    return Place(int(body["branch"]), int(body["round"]))
