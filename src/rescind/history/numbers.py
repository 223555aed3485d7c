"""Whether the numbers that bounds rest on are those that were recorded: asked before they are used and erased."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from rescind.core.edges import ModelId, sorted_group
from rescind.errors import refuse_changes
from rescind.history.events import ErasureFinished, StretchKept
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import round_root, stretch_digest
from rescind.ledger.contract import ROUND, Ledger
from rescind.ledger.records import Entry, ErasurePlan, Span
from rescind.progress import report_progress


def check_numbers(ledger: Ledger) -> None:
    """Refuse to act on a ledger whose entries, numbers or kept models are not those that were recorded.

    Erasing destroys them, and with them all that could show it later. Read within ``snapshot`` what is acted on.

    Raises:
        BrokenHistoryError: somebody changed the ledger.
        MissingSecretError: the secret is not at hand.
    """
    ledger.check_stamps()
    entries = list(ledger.entries())
    timeline = Timeline().follow(entries)
    refuse_changes(find_number_problems(ledger, timeline, entries, first_models(timeline)))


def first_models(timeline: Timeline) -> dict[ModelId, str]:
    """Return the digests of the models that branches start with."""
    return {ModelId(branch.number, 0): branch.model for branch in timeline.branches.values()}


def find_number_problems(
    ledger: Ledger, timeline: Timeline, entries: Sequence[Entry], stored: dict[ModelId, str]
) -> Iterator[str]:
    """Compare rounds, remains of erased ones and kept models with the journal.

    ``stored`` has the ``first_models``; the digests of the rounds' models are added to it.
    """
    erased = [span for deletion in timeline.deletions for span in deletion.plan.spans]
    roots = {entry.model_id: entry.root for entry in entries if entry.kind == ROUND}
    last = {model_id.branch: model_id.round for model_id in sorted(roots)}
    for number in timeline.branches:
        span = Span(number, 1, ledger.last_round(number))
        if span.last != last.get(number, 0):
            yield f"branch {number} is said to end with round {span.last}, which is not its last one"
        indexed = dict(ledger.indexed_participants(span))
        for round_ in report_progress(ledger.rounds(span), f"checking branch {number}", span.last):
            if not np.array_equal(indexed.get(round_.model_id, ()), round_.clients):
                yield f"{round_.model_id} is not found by its participants"
            root = roots.pop(round_.model_id, None)
            stored[round_.model_id] = round_.model
            keys = ledger.keys(round_.clients)
            if root is None:
                yield f"{round_.model_id} is in no entry"
            elif len(keys) < len(round_.participants):
                yield f"{round_.model_id} has a participant whose key is gone"
            elif round_root(round_, keys) != root:
                yield f"the numbers of {round_.model_id} are not those that were recorded"
            elif not math.isclose(round_.factor, round_.edge(timeline.run.facts.training).factor, rel_tol=1e-12):
                yield f"the factor of {round_.model_id} does not follow from its participants"
    yield from (
        f"{model_id} has lost its numbers, and no erasure says so"
        for model_id in roots
        if not any(model_id in span for span in erased)
    )
    yield from (
        f"{model_id} is kept as another model than was recorded"
        for model_id, digest in ledger.kept().items()
        if stored.get(model_id) != digest
    )
    objects = ledger.objects()
    yield from (
        f"there is an object of client {client}, who never was or is erased"
        for client in objects.keys() - ledger.keys(sorted_group(objects)).keys()
    )
    yield from _find_stretch_problems(ledger, timeline)


def _find_stretch_problems(ledger: Ledger, timeline: Timeline) -> Iterator[str]:
    """Compare what is left of erased stretches with what the erasures say they left."""
    digests: dict[int, str] = {}
    done: set[int] = set()
    expected: set[int] = set()
    for entry, event in timeline.moments:
        if isinstance(event, StretchKept) and event.erasure in done:
            yield f"entry {entry.sequence} changes what an erasure left"
        elif isinstance(event, StretchKept):
            digests[event.branch] = event.digest
        elif isinstance(event, ErasurePlan):
            expected = expected.difference(event.superseded) | ({event.branch} if event.origin else set())
        elif isinstance(event, ErasureFinished):
            done.add(event.erasure)
    stretches = ledger.stretches()
    if not timeline.unfinished_deletions:
        yield from (
            f"what an erasure left before {ModelId(branch, 0)} is gone" for branch in expected - set(stretches)
        )
    for branch, stretch in stretches.items():
        if digests.get(branch) != stretch_digest(stretch):
            yield f"what is left before {ModelId(branch, 0)} is not what an erasure left"
