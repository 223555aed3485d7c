"""What was recorded, compared with the journal that commits to it: names, the list of erased ones, and numbers.

It is asked before anything is decided by these values, and before they are erased.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from rescind.core.edges import ModelId
from rescind.errors import BrokenHistoryError, refuse_changes
from rescind.history.events import ClientsLabelled, ClientsReadmitted, ClientsRegistered, ErasureFinished, StretchKept
from rescind.history.sums import find_sums_problems
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import merkle_root, round_root, stretch_digest
from rescind.ledger.contract import ROUND, Ledger
from rescind.ledger.records import Entry, ErasurePlan, Span
from rescind.progress import report_progress
from rescind.texts import is_digest

# What reading tampered values may end with, whatever they were made into.
UNREADABLE = (
    BrokenHistoryError,
    SQLAlchemyError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
)
# So many clients of a registration are named whose names are gone.
_MOST_NAMED = 1000


def check_names(ledger: Ledger, timeline: Timeline, clients: Iterable[int]) -> None:
    """Refuse to go on with clients under names that are not those they were registered under.

    Whoever swaps two names in the ledger would have the wrong one forgotten, and a certificate say so.

    Raises:
        BrokenHistoryError: somebody added or changed an entry, a name or a label.
        MissingSecretError: the secret is not at hand.
    """
    asked = set(clients)
    ledger.check_stamps()
    registered = timeline.of(ClientsRegistered)
    registrations = [
        (entry, event) for entry, event in registered if any(client in event.clients for client in asked)
    ]
    problems = _unregistered(asked, timeline)
    problems += _other_names(ledger, registrations)
    problems += _other_labels(ledger, timeline)
    refuse_changes(problems, ", or whoever is forgotten may not be who asked")


def find_name_problems(ledger: Ledger, timeline: Timeline) -> Iterator[str]:
    """Return in words which names and labels are not those that were registered, or are gone without an erasure."""
    known = set(ledger.identities().values())
    yield from _unregistered(known, timeline)
    yield from _other_names(ledger, timeline.of(ClientsRegistered))
    yield from _other_labels(ledger, timeline)
    accounted_for = known.union(timeline.returning, *(deletion.plan.clients for deletion in timeline.deletions))
    for _, event in timeline.of(ClientsRegistered):
        gone = (client for client in event.clients if client not in accounted_for)
        # Somebody may have written that there are more clients than can be counted.
        for client in islice(gone, _MOST_NAMED):
            yield f"the name of client {client} is gone, and no erasure says so"


def _unregistered(clients: Iterable[int], timeline: Timeline) -> list[str]:
    last = max((event.last for _, event in timeline.of(ClientsRegistered)), default=0)
    return [f"client {client} was never registered" for client in sorted(clients) if client > last]


def _other_names(ledger: Ledger, registrations: Iterable[tuple[Entry, ClientsRegistered]]) -> Iterator[str]:
    for entry, event in registrations:
        leaves = ledger.name_leaves(event.first, event.last)
        complete = 0 < len(leaves) == event.last - event.first + 1 and list(leaves) == list(event.clients)
        if not complete or merkle_root(list(leaves.values())) != entry.root:
            yield f"the names of clients {event.first} to {event.last} are not those that were registered"


def _other_labels(ledger: Ledger, timeline: Timeline) -> Iterator[str]:
    recorded = {client: leaf for _, event in timeline.of(ClientsLabelled) for client, leaf in event.labels}
    stored = {client: leaf.hex() for client, leaf in ledger.label_leaves().items()}
    known = set(ledger.identities().values()) if recorded else set()
    for client in sorted({client for client in recorded if client in known} | set(stored)):
        if recorded.get(client) != stored.get(client):
            yield f"what people call client {client} is not what was recorded"


def suppression_digest(ledger: Ledger) -> str:
    """Commit to the list by which erased names are recognised, and to the run's secret."""
    listed = ",".join(f"{digest} {client}" for digest, client in ledger.erased_name_digests())
    return hmac.digest(ledger.secret("suppression"), listed.encode(), "sha256").hex()


def find_suppression_problems(ledger: Ledger, timeline: Timeline) -> Iterator[str]:
    """Compare the list by which erased names are recognised with what the last erasure left.

    And those who were readmitted with those who were erased before.
    """
    left = [event.suppressed for _, event in timeline.of(ErasureFinished)]
    erased = {client for deletion in timeline.deletions for client in deletion.plan.clients} - timeline.returning
    listed = ledger.erased_name_digests()
    if {client for digest, client in listed if is_digest(digest)} != erased:
        yield f"the list by which erased names are recognised has not the {len(erased)} of those that were erased"
    if left and left[-1] != suppression_digest(ledger):
        yield "the list by which erased names are recognised, or the run's secret, is not what the last erasure left"
    elif not left and listed:
        yield "names are listed as erased, and no erasure says so"
    plans = {deletion.number: deletion.plan for deletion in timeline.deletions}
    gone = set[int]()
    for entry, event in timeline.moments:
        if isinstance(event, ErasureFinished) and event.erasure in plans:
            gone.update(plans[event.erasure].clients)
        elif isinstance(event, ClientsReadmitted) and (unknown := set(event.clients) - gone):
            yield f"entry {entry.sequence} readmits client {min(unknown)}, who was not forgotten by then"


def check_suppression(ledger: Ledger) -> None:
    """Refuse to go on with another list of erased names than the last erasure left: the forgotten could come back.

    Raises:
        BrokenHistoryError: somebody changed the list.
    """
    # Else an erasure by another process, between the two, would look as if somebody had changed the list.
    with ledger.snapshot():
        timeline = Timeline.read(ledger)
        # An erasure that was cut off has begun to change it.
        if not timeline.unfinished_deletions:
            refuse_changes(find_suppression_problems(ledger, timeline))


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
    refuse_changes(find_number_problems(ledger, timeline, entries, {}))


def find_number_problems(
    ledger: Ledger, timeline: Timeline, entries: Sequence[Entry], stored: dict[ModelId, str]
) -> Iterator[str]:
    """Compare rounds, remains of erased ones and kept models with the journal.

    The digests of the models that branches start with and that rounds made are added to ``stored``.
    """
    stored |= {ModelId(branch.number, 0): branch.model for branch in timeline.branches.values()}
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
    yield from find_sums_problems(ledger, timeline)
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
