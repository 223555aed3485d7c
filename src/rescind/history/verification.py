"""Whether a history agrees with itself: the chain, the numbers that it commits to, the models, what was erased."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from rescind.core.edges import sorted_group
from rescind.core.training import LocalTraining
from rescind.history.checkpoints import CheckpointStore
from rescind.history.codec import decode
from rescind.history.commitments import NO_HEAD, broken_links, round_root, stretch_digest
from rescind.history.erasure import unfinished
from rescind.history.ledger import Ledger
from rescind.history.naming import name_problems
from rescind.history.path import branches
from rescind.history.progress import counted
from rescind.history.records import Branch, Entry, ErasurePlan, Place, Span
from rescind.history.requests import asked_for


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
    roots = {entry.place: entry.root for entry in entries if entry.kind == "round"}
    started = branches(ledger)
    stored = {Place(each.number, 0): each.model for each in started.values()}
    for number in started:
        span = Span(number, 1, ledger.last_round(number))
        found = dict(ledger.indexed(span))
        for round_ in counted(ledger.rounds(span), f"checking branch {number}", span.last):
            if not np.array_equal(found.get(round_.place, ()), round_.clients):
                yield f"{round_.place} is not found by its participants"
            root = roots.pop(round_.place, None)
            stored[round_.place] = round_.model
            keys = ledger.keys(round_.clients)
            if root is None:
                yield f"{round_.place} is in no entry"
            elif len(keys) < len(round_.participants):
                yield f"{round_.place} has a participant whose key is gone"
            elif round_root(round_, keys) != root:
                yield f"the numbers of {round_.place} are not those that were recorded"
            elif not math.isclose(round_.factor, round_.edge(training).factor, rel_tol=1e-12):
                yield f"the factor of {round_.place} does not follow from its participants"
    yield from (
        f"{place} has lost its numbers, and no erasure says so"
        for place in roots
        if not any(place in span for span in erased)
    )
    yield from _stretch_problems(ledger, entries)
    yield from (
        f"erasure {entry.sequence} was begun and not finished: record or erase to finish it"
        for entry in unfinished(ledger)
    )
    yield from _model_problems(entries, started, stored)
    yield from name_problems(ledger, entries)
    yield from _returned(ledger, entries)
    yield from _not_erased(ledger, entries, stored)
    for place, digest in ledger.kept().items():
        if stored.get(place) != digest:
            yield f"{place} is kept as another model than was recorded"
        elif digest not in models:
            yield f"the checkpoint of {place} is missing"


def _model_problems(
    entries: Sequence[Entry], started: Mapping[int, Branch], stored: Mapping[Place, str]
) -> Iterator[str]:
    """Compare what restarts say of the models that they start with and lead to with the models recorded there."""
    for branch in started.values():
        before = None if branch.parent is None else stored.get(branch.parent)
        if before is not None and not branch.unbounded and (before == branch.model) is bool(branch.sigma):
            told = "its parent's own model, without its noise" if branch.sigma else "another model than its parent's"
            yield f"branch {branch.number} starts with {told}"
    trained = {entry.place for entry in entries if entry.kind == "round"} | {Place(number, 0) for number in started}
    for entry in entries:
        if entry.kind == "retrained":
            place = Place(int(entry.body["branch"]), int(entry.body["rounds"]))
            if place not in trained or stored.get(place, entry.body["model"]) != entry.body["model"]:
                yield f"entry {entry.sequence} names another model than the one recorded as {place}"


def _returned(ledger: Ledger, entries: Sequence[Entry]) -> Iterator[str]:
    """Find rounds that clients joined after they had been forgotten."""
    recorded = {entry.place: entry.sequence for entry in entries if entry.kind == "round"}
    begun = {int(entry.body["number"]): entry.sequence for entry in entries if entry.kind == "branch"}
    settled = {int(entry.body["request"]): entry.sequence for entry in entries if entry.kind == "settlement"}
    for asked in asked_for(ledger):
        if asked.served:
            since = settled[asked.number] if asked.branch is None else begun[asked.branch]
            for place in ledger.joined(sorted_group(asked.request.group)):
                if recorded.get(place, 0) > since:
                    yield f"clients of request {asked.number} took part in {place}, after they had been forgotten"


def _not_erased(ledger: Ledger, entries: Sequence[Entry], stored: Mapping[Place, str]) -> Iterator[str]:
    """Find what is still there although the journal says that its erasure is done."""
    done = {int(entry.body["erasure"]) for entry in entries if entry.kind == "erased"}
    for entry in entries:
        if entry.kind != "erasure" or entry.sequence not in done:
            continue
        plan = decode(ErasurePlan, entry.body)
        clients = sorted_group(plan.clients)
        rounds = {place for place in stored if place.round}
        there = {
            "rounds": any(place in span for place in rounds for span in plan.spans),
            "kept models": any(place in span for place in ledger.kept() for span in plan.spans),
            "names": bool(ledger.names(clients)),
            "keys": bool(ledger.keys(sorted_group(plan.keys))),
        }
        left = ", ".join(what for what, still in there.items() if still)
        if left:
            yield f"erasure {entry.sequence} is said to be done, and what it names is still there: {left}"


def _stretch_problems(ledger: Ledger, entries: Sequence[Entry]) -> Iterator[str]:
    """Compare what is left of erased stretches with what the erasures say they left."""
    digests: dict[int, str] = {}
    done: set[int] = set()
    expected: set[int] = set()
    for entry in entries:
        if entry.kind == "remains" and int(entry.body["erasure"]) in done:
            yield f"entry {entry.sequence} changes what an erasure left"
        elif entry.kind == "remains":
            digests[int(entry.body["branch"])] = str(entry.body["digest"])
        elif entry.kind == "erasure":
            plan = decode(ErasurePlan, entry.body)
            expected = expected.difference(plan.superseded) | ({plan.branch} if plan.origin else set())
        elif entry.kind == "erased":
            done.add(int(entry.body["erasure"]))
    stretches = ledger.stretches()
    if not unfinished(ledger):
        yield from (f"what an erasure left before {Place(branch, 0)} is gone" for branch in expected - set(stretches))
    for branch, stretch in stretches.items():
        if digests.get(branch) != stretch_digest(stretch):
            yield f"what is left before {Place(branch, 0)} is not what an erasure left"
