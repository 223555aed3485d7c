"""Names in a ledger compared with those that were registered: the journal commits to every name and label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rescind.errors import BrokenHistoryError
from rescind.history.codec import decode
from rescind.ledger.commitments import broken_links, merkle_root
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Entry, ErasurePlan


def check_names(ledger: Ledger, clients: Iterable[int]) -> None:
    """Refuse to go on with clients under names that are not those they were registered under.

    Whoever swaps two names in the ledger would have the wrong one forgotten, and a certificate say so.

    Raises:
        BrokenHistoryError: the chain is broken, somebody added an entry, or a name or a label was changed.
        MissingSecretError: the secret is not at hand.
    """
    ledger.check_stamps()
    entries, asked = list(ledger.entries()), set(clients)
    found = [f"entry {number} does not follow" for number in broken_links(entries)]
    found += _unregistered(asked, entries)
    found += _other_names(ledger, [entry for entry in entries if not asked.isdisjoint(_registered(entry))])
    found += _other_labels(ledger, entries)
    if found:
        raise BrokenHistoryError(
            f"{found[0]}: somebody changed the ledger. Nothing was done; look at it with rescind doctor, and restore "
            "it from a backup, or whoever is forgotten may not be who asked"
        )


def find_name_problems(ledger: Ledger, entries: Sequence[Entry]) -> Iterator[str]:
    """Return in words which names and labels are not those that were registered, or are gone without an erasure."""
    known = set(ledger.identities().values())
    yield from _unregistered(known, entries)
    yield from _other_names(ledger, entries)
    yield from _other_labels(ledger, entries)
    plans = (decode(ErasurePlan, entry.body) for entry in entries if entry.kind == "erasure")
    gone = {client for entry in entries for client in _registered(entry)} - known
    for client in sorted(gone.difference(*(plan.clients for plan in plans))):
        yield f"the name of client {client} is gone, and no erasure says so"


def _registered(entry: Entry) -> range:
    """Return the pseudonyms that an entry gave out."""
    return range(int(entry.body["first"]), int(entry.body["last"]) + 1) if entry.kind == "registration" else range(0)


def _unregistered(clients: Iterable[int], entries: Sequence[Entry]) -> list[str]:
    last = max((each.stop for each in map(_registered, entries)), default=1)
    return [f"client {client} was never registered" for client in sorted(clients) if client >= last]


def _other_names(ledger: Ledger, entries: Sequence[Entry]) -> Iterator[str]:
    for entry in entries:
        given = _registered(entry)
        if given:
            leaves = ledger.name_leaves(given[0], given[-1])
            if list(leaves) != list(given) or merkle_root(list(leaves.values())) != entry.root:
                yield f"the names of clients {given[0]} to {given[-1]} are not those that were registered"


def _other_labels(ledger: Ledger, entries: Sequence[Entry]) -> Iterator[str]:
    said = {
        int(client): str(leaf)
        for entry in entries
        if entry.kind == "label"
        for client, leaf in entry.body["labels"].items()
    }
    there = {client: leaf.hex() for client, leaf in ledger.label_leaves().items()}
    known = set(ledger.identities().values()) if said else set()
    for client in sorted({client for client in said if client in known} | set(there)):
        if said.get(client) != there.get(client):
            yield f"what people call client {client} is not what was recorded"
