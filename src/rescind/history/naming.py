"""Names in a ledger compared with those that were registered or erased: the journal commits to all of them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from itertools import islice

from rescind.errors import refuse_changes
from rescind.history.events import ClientsLabelled, ClientsReadmitted, ClientsRegistered, ErasureFinished
from rescind.history.timeline import Timeline
from rescind.ledger.commitments import merkle_root
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Entry
from rescind.texts import is_digest

# So many clients of a registration are named whose names are gone.
_MOST_NAMED = 1000


def name_key(public_key: bytes) -> str:
    """Return the name of whoever has a key: the SHA-256 of its PEM text, as SSH shows fingerprints."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_key.strip()).digest()).decode().rstrip("=")


def is_key_name(name: str) -> bool:
    """Return whether a name has the form of those that ``name_key`` gives."""
    return re.fullmatch("SHA256:[A-Za-z0-9+/]{43}", name) is not None


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
