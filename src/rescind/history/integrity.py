"""Checking a history against itself: the chain, the numbers that it commits to, the models, what was erased."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import cache

from rescind.checkpoints import tensors
from rescind.checkpoints.store import CheckpointStore
from rescind.core.edges import ModelId, sorted_group
from rescind.errors import (
    HistoryError,
    MissingSecretError,
    UnsafePermissionsError,
    WrongSecretError,
)
from rescind.history.bounds import follow_from_rounds
from rescind.history.events import (
    AnchorsNamed,
    BodyTrained,
    BranchRetrained,
    EndByData,
    ErasureFinished,
)
from rescind.history.journal import Journal, parse_time
from rescind.history.lineage import branch_exits, find_body
from rescind.history.retention import surely_kept
from rescind.history.run import Run
from rescind.history.subtotals import find_files
from rescind.history.sums import find_unsound
from rescind.history.tampering import (
    UNREADABLE,
    check_numbers,
    find_name_problems,
    find_number_problems,
    find_suppression_problems,
)
from rescind.history.timeline import Timeline, newest_model
from rescind.ledger.commitments import NO_HEAD
from rescind.ledger.contract import RETURNING, ROUND, Ledger
from rescind.ledger.records import Branch, Entry, Span
from rescind.progress import report_progress

# What tells one entry from another of its kind.
_SAID_ONCE: Mapping[type, tuple[str, ...]] = {
    Run: (),
    Branch: ("number",),
    BodyTrained: ("branch",),
    BranchRetrained: ("branch",),
    ErasureFinished: ("erasure",),
}


# How often a history that changes meanwhile is looked at.
_LOOKS = 5


class Integrity:
    """Whether a history is what was recorded, and whether anybody could tell."""

    def __init__(self, journal: Journal, models: CheckpointStore, objects: CheckpointStore) -> None:
        self._journal, self._ledger, self._models, self._objects = journal, journal.ledger, models, objects

    def verify(self, witnessed: Collection[bytes] = ()) -> list[str]:
        """Return in words everything that does not agree with the chain.

        The ledger is read as it was at one moment. Files are not: what seems wrong with them while somebody writes is
        looked at again.

        Args:
            witnessed: heads of the chain that clients were handed, which have to be in it.

        Returns:
            a sentence for each problem; empty if everything agrees.
        """
        with self._ledger.snapshot():
            problems = _read_all(lambda: find_ledger_problems(self._ledger, witnessed))
        for _ in range(_LOOKS):
            before = self._ledger.head()
            with_files = _read_all(lambda: find_file_problems(self._ledger, self._models, self._objects))
            if not with_files or self._ledger.head() == before:
                break
        return problems + with_files

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Read the ledger as it is at one moment at which it agrees with its chain, in this thread.

        Whoever plans a restart reads in here: once the numbers behind it are erased, nobody can tell that somebody
        had changed them.

        Raises:
            BrokenHistoryError: somebody changed the ledger.
            MissingSecretError: the secret file is not at hand.
        """
        with self._ledger.snapshot():
            check_numbers(self._ledger)
            # What was read before may have been changed back since.
            self._journal.read_again()
            yield

    def secret_problem(self) -> HistoryError | None:
        """Return why the secret file cannot be used.

        Returns:
            the error that using it would raise; None if it can be used.
        """
        try:
            self._ledger.outside_secret(RETURNING)
        except (MissingSecretError, UnsafePermissionsError) as problem:
            return problem
        return None

    def stamp_problems(self) -> list[str] | None:
        """Say in words what shows that somebody without the secret changed what the journal tells.

        Returns:
            a sentence for each entry that was added or changed so, or one that the secret file does not fit the
                history; None if the secret file is not at hand, without which nobody can tell.
        """
        try:
            return list(self._ledger.stamp_problems())
        except WrongSecretError as wrong:
            return [str(wrong)]
        except (MissingSecretError, UnsafePermissionsError):
            return None

    def copies(self) -> tuple[str, ...]:
        """Return in words where the database copies what is written to it, out of reach of every erasure.

        Returns:
            a sentence for each such place.
        """
        return self._ledger.copies()

    def entry_times(self, head: bytes | None = None) -> list[tuple[datetime, int]]:
        """Return the times of the journal's entries, with the entries' numbers.

        Args:
            head: the head of the chain to stop at; None means all entries.

        Returns:
            a time and a number for each entry; one whose time cannot be read is left out.

        Raises:
            ValueError: the head is not in the chain.
        """
        last = math.inf if head is None else self._journal.number_of(head)
        times = []
        for entry in self._ledger.entries():
            if entry.sequence <= last:
                with suppress(ValueError):
                    times.append((parse_time(entry.time), entry.sequence))
        return times


def find_ledger_problems(ledger: Ledger, witnessed: Collection[bytes] = ()) -> Iterator[str]:
    """Return in words everything in a ledger that does not agree; nothing means that all of it does.

    ``witnessed`` are heads that clients were handed: one that is not in the chain shows that history was rewritten,
    which the chain alone cannot show of its newest entries.
    """
    yield from ledger.foreign_objects()
    entries = list(ledger.entries())
    # Who only reads need not have the secret; ``doctor`` and ``verify --history`` say so then.
    with suppress(MissingSecretError, UnsafePermissionsError):
        try:
            yield from ledger.stamp_problems()
        except WrongSecretError as wrong:
            # Whoever can write the ledger can make the right file look like another history's.
            yield f"the stamps of its entries cannot be checked: {wrong}"
    heads = {NO_HEAD, *(entry.head for entry in entries)}
    yield from (f"the witnessed head {head.hex()} is not in the chain" for head in witnessed if head not in heads)
    timeline = Timeline().follow(entries)
    yield from _find_repetitions(timeline, entries)
    stored: dict[ModelId, str] = {}
    changed = False
    for problem in find_number_problems(ledger, timeline, entries, stored):
        changed = True
        yield problem
    yield from (
        f"erasure {deletion.number} was begun and not finished: record or erase to finish it"
        for deletion in timeline.unfinished_deletions
    )
    recorded = {entry.model_id: entry.sequence for entry in entries if entry.kind == ROUND}
    yield from _find_model_problems(timeline, recorded, stored)
    yield from find_name_problems(ledger, timeline)
    yield from _find_returned(ledger, timeline, recorded)
    yield from _find_not_erased(ledger, timeline, stored)
    yield from _find_bounds_problems(ledger, timeline, changed=changed)
    yield from _find_identity_problems(ledger)
    yield from _find_stage_problems(ledger, timeline, recorded)
    if not timeline.unfinished_deletions:
        yield from find_suppression_problems(ledger, timeline)
    if not timeline.branches:
        return
    kept, newest = ledger.kept(), newest_model(ledger, timeline)
    erased = [span for deletion in timeline.deletions for span in deletion.plan.spans]
    solves = {event.branch for _, event in timeline.of(EndByData) if event.solved}
    surely = surely_kept(timeline.branches, newest, ledger.last_round, timeline.run, solves)
    body = find_body(timeline.branches, timeline.bodies, newest)
    yield from (
        f"{model_id} has to be kept, and is not"
        for model_id in sorted(surely | ({body.model_id} if body else set()))
        if model_id not in kept and not any(model_id in span for span in erased)
    )


def find_file_problems(ledger: Ledger, models: CheckpointStore, objects: CheckpointStore) -> Iterator[str]:
    """Return in words which files are missing, damaged or nobody's; every kept model is read, which takes its time.

    Somebody may write meanwhile: what a file is missed for, or found without, is asked of the ledger last.
    """
    files = [(store, store.digests()) for store in (models, objects)]
    kept, sums = ledger.kept(), ledger.objects()
    for model_id, digest in report_progress(kept.items(), "reading kept models", len(kept)):
        damage = _damage(models, f"the checkpoint of {model_id}", digest)
        if damage and ledger.kept().get(model_id) == digest:
            yield damage
    for client, digest in report_progress(sums.items(), "reading kept sums", len(sums)):
        damage = _damage(objects, f"the object of client {client}", digest)
        if damage and ledger.objects().get(client) == digest:
            yield damage
    yield from find_unsound(ledger, objects)
    timeline = Timeline.read(ledger)
    needed = set(ledger.kept().values()), find_files(ledger.objects())
    erased = any(deletion.completed for deletion in timeline.deletions)
    for (store, present), digests in zip(files, needed, strict=True):
        unused = [digest for digest in present - digests if erased and digest in store]
        if unused:
            yield (
                f"nothing refers to {len(unused)} files in {store.address}, {min(unused)} for one: somebody put them "
                "there, or a writer was killed; the next run removes them"
            )
    yield from _find_body_problems(timeline, ledger.kept(), models)


def _find_repetitions(timeline: Timeline, entries: Sequence[Entry]) -> Iterator[str]:
    """Find entries that say once more what is said once: whoever can write could override what was recorded.

    And erasures of other clients than those of the requests that they name.
    """
    rounds = [(entry, (ROUND, entry.model_id)) for entry in entries if entry.kind == ROUND]
    others = [
        (entry, (type(event), *(getattr(event, name) for name in _SAID_ONCE[type(event)])))
        for entry, event in timeline.moments
        if type(event) in _SAID_ONCE
    ]
    seen: set[tuple[object, ...]] = set()
    for entry, statement in (*rounds, *others):
        if statement in seen:
            yield f"entry {entry.sequence} says once more what an earlier {entry.kind!r} said"
        seen.add(statement)
    groups = {filed.number: filed.request.group for filed in timeline.requests}
    for deletion in timeline.deletions:
        asked = frozenset[int]().union(*(groups.get(number, ()) for number in deletion.plan.requests))
        if asked != set(deletion.plan.clients):
            yield f"erasure {deletion.number} is about other clients than its requests"


def _damage(store: CheckpointStore, name: str, digest: str) -> str:
    if digest not in store:
        return f"{name} is missing"
    try:
        for _ in store.stream(digest):
            pass
    except HistoryError as damaged:
        return f"{name}: {damaged}"
    return ""


def _find_identity_problems(ledger: Ledger) -> Iterator[str]:
    """Find clients with a name and without a key, and names that were erased and are known again."""
    known = ledger.identities()
    keys = ledger.keys(sorted_group(known.values()))
    yield from (f"client {client} has a name and no key" for client in known.values() if client not in keys)
    # Who only reads need not have the secret; ``doctor`` and ``verify --history`` say so then.
    with suppress(MissingSecretError, UnsafePermissionsError):
        readmitted = ledger.readmitted()
        back = {name for name, erased in ledger.erased_as(list(known)).items() if not erased <= readmitted}
        yield from (f"client {client} has a name that was erased" for name, client in known.items() if name in back)


def _find_stage_problems(ledger: Ledger, timeline: Timeline, recorded: Mapping[ModelId, int]) -> Iterator[str]:
    """Compare the rounds of a network in two stages with its bodies: who trained them, and that nobody did later.

    ``recorded`` are the rounds' entries.
    """
    if not timeline.branches or timeline.run.facts.stages is None:
        return
    for entry, event in timeline.of(BodyTrained):
        if not timeline.anchors.issuperset(event.clients) or not event.clients:
            yield f"entry {entry.sequence} names others than anchors as those who trained a body"
        yield from _find_untrue_body(ledger, timeline, entry, event)
    named = dict[int, int]()
    for entry, naming in timeline.of(AnchorsNamed):
        named = dict.fromkeys(naming.clients, entry.sequence) | named
    for number in timeline.branches:
        for round_ in ledger.rounds(Span(number, 1, ledger.last_round(number))):
            body, clients = (
                find_body(timeline.branches, timeline.bodies, round_.model_id),
                set(round_.clients.tolist()),
            )
            trained = bool(len(clients)) and not round_.kind.is_solvers
            late = body is not None and body.model_id != round_.model_id
            at = recorded.get(round_.model_id, 0)
            if clients and trained is late:
                yield f"the round of {round_.model_id} is of the other stage than its body says"
            elif trained and not all(named.get(client, at) < at for client in clients):
                yield f"somebody trained the body of {round_.model_id} who was not named as an anchor before"


def _find_untrue_body(ledger: Ledger, timeline: Timeline, entry: Entry, body: BodyTrained) -> Iterator[str]:
    """Recount the rounds that made a body and who joined them, as long as none of them is erased."""
    if body.branch not in timeline.branches:
        yield f"entry {entry.sequence} tells of a body on a branch that never was"
        return
    legs = branch_exits(timeline.branches, body.model_id)
    rounds = [round_ for leg in legs for round_ in ledger.rounds(Span(leg.branch, 1, leg.round))]
    if len(rounds) != sum(leg.round for leg in legs):
        return
    stages, clients = timeline.run.facts.stages, {client for round_ in rounds for client in round_.clients.tolist()}
    joined = sum(len(round_.clients) > 0 for round_ in rounds)
    if stages is not None and joined != stages.body_rounds:
        told = f"{joined} rounds, not {stages.body_rounds}"
        yield f"entry {entry.sequence} calls a body whole that was trained in {told}"
    if tuple(sorted(clients - timeline.until(entry.sequence).forgotten)) != body.clients:
        yield f"entry {entry.sequence} names others than those who trained the body of {body.model_id}"


def _find_body_problems(timeline: Timeline, kept: Mapping[ModelId, str], models: CheckpointStore) -> Iterator[str]:
    """Compare the bodies of kept models of a network in two stages with those that were whole before them."""
    stages = timeline.run.facts.stages if timeline.branches else None
    if stages is None:
        return

    # Many models have one body.
    @cache
    def read_body(model_id: ModelId) -> str:
        model = models.load(kept[model_id])
        return tensors.digest({name: tensor for name, tensor in model.items() if name not in stages.head})

    for model_id in kept:
        body = find_body(timeline.branches, timeline.bodies, model_id)
        # A file that cannot be read is a problem of its own.
        with suppress(HistoryError):
            if body and body.model_id in kept and read_body(model_id) != read_body(body.model_id):
                yield f"the body of {model_id} is not the one that was whole at {body.model_id}"


def _find_model_problems(
    timeline: Timeline, recorded: Collection[ModelId], stored: Mapping[ModelId, str]
) -> Iterator[str]:
    """Compare what restarts say of the models that they start with and lead to with the models recorded there."""
    for branch in timeline.branches.values():
        before = None if branch.parent is None else stored.get(branch.parent)
        if before is None or branch.unbounded or (before == branch.model) is not bool(branch.sigma):
            continue
        # Noise that hides nobody may be so small that rounding swallows it.
        if branch.hidden or not branch.sigma:
            told = "its parent's own model, without its noise" if branch.sigma else "another model than its parent's"
            yield f"branch {branch.number} starts with {told}"
    for entry, event in timeline.of(BranchRetrained):
        trained = event.model_id in recorded or (event.rounds == 0 and event.branch in timeline.branches)
        if not trained or stored.get(event.model_id, event.model) != event.model:
            yield f"entry {entry.sequence} names another model than the one recorded as {event.model_id}"


def _find_returned(ledger: Ledger, timeline: Timeline, recorded: Mapping[ModelId, int]) -> Iterator[str]:
    """Find rounds that clients joined after they had been forgotten; ``recorded`` are the rounds' entries."""
    for filed in timeline.requests:
        since = timeline.served_at(filed.number)
        if since is not None:
            for model_id in ledger.rounds_of(sorted_group(filed.request.group)):
                if recorded.get(model_id, 0) > since:
                    yield f"clients of request {filed.number} took part in {model_id}, after they had been forgotten"


def _find_bounds_problems(ledger: Ledger, timeline: Timeline, *, changed: bool) -> Iterator[str]:
    """Find derived numbers that are not those that were written; without the secret nobody can tell.

    Unless the rounds were ``changed``, they are derived once more.
    """
    with suppress(MissingSecretError, UnsafePermissionsError):
        if ledger.bounds_since() is None:
            return
        if ledger.bounds() is None:
            yield "what was derived from all rounds was changed: the next run derives it anew"
        elif not changed and not follow_from_rounds(ledger, timeline):
            yield (
                "what was derived from all rounds does not follow from them: somebody changed rounds, and changed "
                "them back. Delete the row of table bounds, and the next run derives it anew"
            )


def _find_not_erased(ledger: Ledger, timeline: Timeline, stored: Mapping[ModelId, str]) -> Iterator[str]:
    """Find what is still there although the journal says that its erasure is done."""
    objects, since = ledger.objects(), ledger.bounds_since()
    for deletion in timeline.deletions:
        if not deletion.completed:
            continue
        plan = deletion.plan
        clients = sorted_group(plan.clients)
        rounds = {model_id for model_id in stored if model_id.round}
        present = {
            "rounds": any(model_id in span for model_id in rounds for span in plan.spans),
            "kept models": any(model_id in span for model_id in ledger.kept() for span in plan.spans),
            "names": bool(ledger.names(clients)),
            "what was derived from all rounds": since is not None and since < deletion.number,
            "keys": bool(ledger.keys(sorted_group(plan.keys))),
            "objects": not objects.keys().isdisjoint(plan.clients),
        }
        left = ", ".join(name for name, still in present.items() if still)
        if left:
            yield f"erasure {deletion.number} is said to be done, and what it names is still there: {left}"


def _read_all(problems: Callable[[], Iterator[str]]) -> list[str]:
    """Return the problems, with that of values that cannot be read as the last."""
    collected = []
    try:
        for problem in problems():
            collected.append(problem)  # noqa: PERF402, what was found before an error is told as well
    except UNREADABLE as broken:
        collected.append(f"the rest cannot be read: {broken}")
    return collected
