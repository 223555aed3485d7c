"""The sums that clients sent for a ridge head, kept for each of them: who stays is not asked again.

They are a client's data. Their file lies in the store of clients' objects, its digest in the ledger under the
client's pseudonym, and the journal commits to it under the client's key; all three go with the client. Sums belong
to the body whose features they are made of.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np

from rescind.checkpoints.store import CheckpointStore
from rescind.core.edges import ModelId, sorted_group
from rescind.core.facts import find_head
from rescind.core.regularity import SquaredL2
from rescind.core.ridge import RidgeSums, add_up_ridge, choose_l2, ridge_error, ridge_solution
from rescind.core.sums import flatten, unflatten
from rescind.errors import (
    BrokenHistoryError,
    DamagedCheckpointError,
    HistoryError,
    MissingCheckpointError,
    MissingSecretError,
    UnsafePermissionsError,
)
from rescind.history.events import SumsAsked, SumsKept
from rescind.history.journal import Journal
from rescind.history.lineage import find_body
from rescind.history.subtotals import Subtotals, find_files, grow_tree, pack, unpack
from rescind.history.timeline import Timeline, newest_model
from rescind.ledger.contract import FOLDS, ROUND, SUBTOTALS, Ledger
from rescind.ledger.records import Span

_FOLDS = 5


@dataclass(frozen=True, slots=True)
class SolvedAgain:
    """A head that was solved once more.

    Attributes:
        clients: of how many clients.
        apart: how far the recorded head is from what came out, 0 if not a bit differs.
        error: how far what came out is at most from the exact solution.
    """

    clients: int
    apart: float
    error: float


class KeptSums:
    """The sums that are kept; made by ``History``, and written by its recorder."""

    def __init__(self, journal: Journal, store: CheckpointStore) -> None:
        self._journal, self._ledger, self._store = journal, journal.ledger, store
        self._subtotals = subtotals_of(journal.ledger, store)

    def digests(self) -> dict[str, str]:
        """Return whose sums are kept for the newest model's body.

        Returns:
            the SHA-256 of the sums, by the client's name; also of clients who may not take part.

        Raises:
            BrokenHistoryError: what is kept is not what was recorded.
        """
        with self._ledger.snapshot():
            timeline = self._journal.timeline
            listed = find_listed(timeline, newest_model(self._ledger, timeline)) if timeline.branches else {}
            if not listed:
                return {}
            names, objects = self._ledger.names(sorted_group(listed)), self._ledger.objects()
            for problem in find_sums_problems(self._ledger, timeline):
                raise BrokenHistoryError(problem)
        return {name: objects[client] for client, name in names.items()}

    def ask_again(self, clients: Collection[int]) -> None:
        """Record that clients are to send their sums again: the next run asks them, as soon as they are there.

        Until then those that they sent before stay in use.

        Args:
            clients: their pseudonyms.

        Raises:
            ValueError: no sums of one of them are kept.
            MissingSecretError: the secret file is not at hand.
        """
        if unknown := set(clients) - self._ledger.objects().keys():
            if not self._journal.read().facts.keeps_sums:
                raise ValueError("this run keeps no sums: whoever takes part is asked every time")
            raise ValueError(
                f"of pseudonym {min(unknown)} there are no sums that are kept: it is asked once it is there"
            )
        self._journal.record(SumsAsked(tuple(sorted(clients))))

    def awaited(self) -> frozenset[str]:
        """Return who is to send its sums again, and has not done so.

        Returns:
            the names.
        """
        awaited = self._journal.timeline.derive(_find_awaited)
        return frozenset(self._ledger.names(sorted_group(awaited)).values()) if awaited else frozenset()

    def find_renewals(self) -> dict[int, int]:
        """Return how often each client was to send its sums again, by pseudonym; whoever never was is not in it."""
        return self._journal.timeline.derive(_count_renewals)

    def solve_again(self, model_id: ModelId, models: CheckpointStore) -> SolvedAgain | str:
        """Solve a model's head once more, from the sums of exactly those whom its round names.

        Args:
            model_id: which model.
            models: where the models lie.

        Returns:
            what came out; or why it cannot be told any more, in words.

        Raises:
            BrokenHistoryError: the recorded head is not that solution.
            HistoryError: the model or a client's sums cannot be read.
        """
        with self._ledger.snapshot():
            timeline = self._journal.timeline
            facts, kept = timeline.run.facts, self._ledger.kept()
            rounds = list(self._ledger.rounds(Span(model_id.branch, model_id.round, model_id.round)))
            if model_id not in kept or not rounds or model_id not in timeline.solved:
                return f"{model_id} is not kept, or no solution"
            clients = rounds[0].clients.tolist()
            since = next(entry.sequence for entry in self._ledger.entries(ROUND) if entry.model_id == model_id)
            then, objects = timeline.until(since).derive(_find_sent), self._ledger.objects()
            now = timeline.derive(_find_sent)
        gone = [client for client in clients if client not in objects or then.get(client) != now.get(client)]
        if gone:
            return f"of its {len(clients)} clients the sums of {len(gone)} were erased, or sent anew, since"
        loss, model = facts.head_loss, models.load(kept[model_id])
        total = add_up_ridge(unpack(self._store.load(objects[client])) for client in clients)
        if total is None or not isinstance(loss, SquaredL2):
            return "nobody's sums are in it"
        names = self._ledger.names(sorted_group(clients))
        if loss.l2_choices and len(names) < len(clients):
            return "some of its clients have no names any more, which decide by whose rows the L2 term was chosen"
        try:
            l2 = self.choose_l2(names.values(), loss)
        except MissingSecretError:
            return "the secret is not at hand, which decides by whose rows the L2 term was chosen"
        head = find_head(model, facts)
        theta, again = flatten(head), ridge_solution(total, l2)
        apart, error = float(np.linalg.norm(flatten(unflatten(again, head)) - theta)), ridge_error(total, l2, again)
        # Another machine's solver may be as far off, on the other side, and round to another number.
        rounding = float(np.finfo(next(iter(head.values())).dtype).eps * np.linalg.norm(again))
        if not apart <= 2 * error + rounding:
            raise BrokenHistoryError(
                f"the head of {model_id} is {apart:.3g} from the solution for the kept sums of the clients that its "
                f"round names, which is known to within {error:.3g}"
            )
        return SolvedAgain(len(clients), apart, error + rounding)

    def store(self, sums: RidgeSums) -> str:
        """Write sums into a file, which nothing refers to yet, and return its digest."""
        return self._store.put(pack(sums))

    def read(
        self, names: Collection[str], *, one_by_one: bool = False
    ) -> Iterator[tuple[Mapping[str, int], RidgeSums]]:
        """Read clients' sums, as far as possible already added up; subtotals that are missing are written.

        Args:
            names: whose; they are kept.
            one_by_one: whether no subtotals are taken, or written: whoever writes has to hold the run.

        Yields:
            parts: how many rows each of some clients has, by name, and their sums; without those that cannot be read
            and are to be sent again.

        Raises:
            HistoryError: the sums of somebody else cannot be read.
        """
        named = {client: name for name, client in self._ledger.pseudonyms(list(names)).items()}
        awaited = self._journal.timeline.derive(_find_awaited)

        def read_one(client: int, digest: str) -> RidgeSums | None:
            try:
                return unpack(self._store.load(digest))
            except (MissingCheckpointError, DamagedCheckpointError) as unread:
                if client in awaited:
                    return None
                called = self._ledger.labels().get(client, named[client])
                raise HistoryError(
                    f"the sums of {called!r} cannot be read, and the head is not solved without them ({unread}). "
                    "Restore the file; or say rescind renew HISTORY NAME: then this client is left out until it has "
                    "sent them again"
                ) from unread

        tree = grow_tree(self._ledger.objects())
        for rows, sums in self._subtotals.read(tree, named, named if one_by_one else awaited, read_one):
            yield {named[client]: count for client, count in rows.items()}, sums

    def choose_l2(self, names: Collection[str], loss: SquaredL2) -> float:
        """Choose the L2 term by the sums of clients, of whom a fifth is left out in turn.

        Who is in which fifth follows from its name and the secret, whoever else there is.

        Args:
            names: whose sums; they are kept.
            loss: the head's loss.

        Returns:
            lambda; the declared one, without reading anything, if there is nothing to choose from.

        Raises:
            HistoryError: sums cannot be read.
            MissingSecretError: the secret is not at hand.
        """
        if not loss.l2_choices:
            return loss.l2
        # Of a fold hardly any subtotal is whole; and whoever only verifies must not write.
        totals = (add_up_ridge(sums for _, sums in self.read(fold, one_by_one=True)) for fold in self._part(names))
        return choose_l2([total for total in totals if total is not None], loss)

    def _part(self, names: Collection[str]) -> list[list[str]]:
        """Return which of the clients are left out together."""
        secret, folds = self._ledger.outside_secret(FOLDS), [list[str]() for _ in range(_FOLDS)]
        for name in names:
            folds[int.from_bytes(hmac.digest(secret, name.encode(), "sha256")) % _FOLDS].append(name)
        return folds

    def files(self) -> set[str]:
        """Return the names of the files that the sums may be in, alone or added up."""
        return find_files(self._ledger.objects())

    def delete_unneeded(self, before: Collection[str]) -> None:
        """Delete those of the ``files`` from before that the sums are not in any more."""
        for file in set(before) - self.files():
            self._store.delete(file)


def subtotals_of(ledger: Ledger, store: CheckpointStore) -> Subtotals:
    """Return the subtotals of a history's kept sums."""
    return Subtotals(store, lambda: ledger.outside_secret(SUBTOTALS))


def find_unsound(ledger: Ledger, store: CheckpointStore) -> Iterator[str]:
    """Return in words which subtotals are not what was written; each is read, if the secret is at hand."""
    tree, subtotals = grow_tree(ledger.objects()), subtotals_of(ledger, store)
    with suppress(MissingSecretError, UnsafePermissionsError):
        for node in chain.from_iterable(top.walk() for top in tree):
            if node.below and not subtotals.is_sound(node):
                yield f"the subtotal of the sums of {len(node.clients)} clients in {node.file} was changed"


def find_listed(timeline: Timeline, newest: ModelId) -> dict[int, str]:
    """Return the commitments to all sums that were sent last and are of a model's body, by pseudonym."""
    branches, bodies = timeline.branches, timeline.bodies
    body = find_body(branches, bodies, newest)
    sent = timeline.derive(_find_sent)
    return {client: leaf for client, (leaf, at) in sent.items() if find_body(branches, bodies, at) == body}


def find_other_bodies(timeline: Timeline, newest: ModelId) -> frozenset[int]:
    """Return whose sums are of another body than a model's."""
    return frozenset(timeline.derive(_find_sent).keys() - find_listed(timeline, newest))


def _find_sent(timeline: Timeline) -> dict[int, tuple[str, ModelId]]:
    """Return the last commitment to each client's sums, and for which model they came."""
    return {client: (leaf, event.model_id) for _, event in timeline.of(SumsKept) for client, leaf in event.sums}


def _count_renewals(timeline: Timeline) -> dict[int, int]:
    counts = dict[int, int]()
    for _, event in timeline.of(SumsAsked):
        for client in event.clients:
            counts[client] = counts.get(client, 0) + 1
    return counts


def _find_awaited(timeline: Timeline) -> frozenset[int]:
    awaited = set[int]()
    for _, event in timeline.moments:
        if isinstance(event, SumsAsked):
            awaited.update(event.clients)
        elif isinstance(event, SumsKept):
            awaited.difference_update(client for client, _ in event.sums)
    return frozenset(awaited)


def find_sums_problems(ledger: Ledger, timeline: Timeline) -> Iterator[str]:
    """Return in words which sums are not those that were recorded, or are gone without an erasure."""
    sent, leaves = timeline.derive(_find_sent), ledger.object_leaves()
    for client in sorted(ledger.objects().keys() - leaves):
        yield f"there is an object of client {client}, who never was or is erased"
    for client in sorted(leaves.keys() - sent):
        yield f"there is an object of client {client}, and nothing recorded says so"
    if not sent:
        return
    listed = find_listed(timeline, newest_model(ledger, timeline)) if timeline.branches else {}
    # Under the name that it had a client may take part again, without some of its rows.
    named = ledger.names(sorted_group(sent))
    for client, (leaf, _) in sorted(sent.items()):
        if client in leaves and leaves[client].hex() != leaf:
            yield f"the sums of client {client} are not those that it sent"
        elif client in named and client in listed and client not in leaves:
            yield f"the sums of client {client} are gone, and no erasure says so"
