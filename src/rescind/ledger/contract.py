"""The contract of a ledger: what every store of the record has to do, whatever it is built on."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Clients
from rescind.core.edges import ModelId
from rescind.errors import ForgottenClientError, refuse_changes
from rescind.ledger.commitments import (
    KEY_BYTES,
    NO_HEAD,
    broken_links,
    canonical,
    label_leaf,
    merkle_root,
    name_leaf,
    next_entry,
    object_leaf,
    round_root,
    stamp,
)
from rescind.ledger.records import Entry, RoundRecord, Span, Stretch
from rescind.texts import is_digest, is_plain

# Identities come from outside; PostgreSQL's text has no NUL, and no name needs more.
LONGEST_NAME = 256


def is_name(text: object) -> TypeGuard[str]:
    """Return whether people can be shown a text as a name: not too long, in one line, and nothing hidden in it."""
    return isinstance(text, str) and 0 < len(text) <= LONGEST_NAME and is_plain(text)


# What is derived from the rounds takes 20 bytes a client: enough for 13 million. Beyond, nothing is kept.
LARGEST_BOUNDS = 2**28

# The kinds of entries that a ledger writes of its own accord.
ROUND, BRANCH, REGISTRATION, LABEL, REJECTION, REMAINS, READMISSION, OBJECTS = (
    *("round", "branch", "registration", "label"),
    *("rejection", "remains", "readmission", "sums"),
)

ABSENT_ROUNDS = np.dtype([("round", "<i8"), ("factor", "<f8"), ("rounding", "<f8")])


class Ledger(ABC):
    """The durable record of one run.

    **Journal.** What happened, in order: rounds, branches, requests, plans, erasures, certificates. Entries are
    numbered from 1 without gaps, never changed and never deleted. Each carries the head of a hash chain over all
    entries before it (``commitments.next_entry``), so whoever knows a head can tell whether history was rewritten;
    and a stamp, a digest of its head under the secret, so that only who has the secret can add one.

    **Values.** What the journal only commits to, and what can be erased: the numbers of rounds, the keys that salt
    their commitments, identities, stretches, references to kept models. A round's entry carries the Merkle root over
    its numbers; it outlives them.

    **Pseudonyms.** Clients are positive integers below 2^31, given out in order and never twice. ``identities`` is
    the only map from and to names. A client gets a random key when it is registered, and its name a nonce, under
    which the journal commits to it: an entry of kind ``registration`` carries the Merkle root over the names' leaves
    (``commitments.name_leaf``), one of kind ``label`` a leaf for each label that changed.

    **Transactions.** Every method that writes does so in one transaction: when it returns, what it wrote survives
    the death of the process and of the machine, and when it raises or the process dies before, nothing of it is
    there. Readers see whole transactions only.

    **One writer.** ``writing`` holds the run for one process; a second is refused with ``LockedError``, which names
    the holder, and the death of the holder frees it. Only ``append``, ``register``, ``label`` and ``readmit`` may be
    called without it, each in a ``turn``: a request can arrive while training runs.

    **Erasure.** What a method has erased is in no row any more; after ``compact`` it is in no byte of the store
    either, except where ``compact`` says otherwise. Erasing what is already gone does nothing.

    **Secrets.** What keys digests of names and the stamps of entries follows from nothing in the store: it lies in
    ``secret_file``, or in memory. Writing without it ends with ``MissingSecretError``; reading needs none.
    """

    secret_file: Path | None = None

    @abstractmethod
    def close(self) -> None:
        """Let go of all connections; closing twice does nothing."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[None]:
        """Hold the run as its only writer.

        Returns:
            a context manager; the run is held until its end, or until the process dies.

        Raises:
            LockedError: on entering it, another process holds the run.
        """

    # The journal

    def append(self, kind: str, body: Mapping[str, Any], time: str) -> Entry:
        """Add an entry.

        Args:
            kind: the kind of the entry.
            body: what it says, as a JSON document.
            time: when, in ISO 8601.

        Returns:
            the entry.

        Raises:
            MissingSecretError: the secret is not at hand.
        """
        with self.turn():
            return self._append(kind, body, time)

    def _append(self, kind: str, body: Mapping[str, Any], time: str, root: bytes = b"") -> Entry:
        """Add an entry in the transaction that is under way."""
        # As it will be read back, so that it hashes alike: lists for tuples, texts for keys.
        entry = next_entry(self.last_entry(), kind, time, json.loads(canonical(body)), root)
        self._add_entry(entry, stamp(self.outside_secret(STAMPS), entry.head))
        return entry

    @abstractmethod
    def _add_entry(self, entry: Entry, stamped: bytes) -> None:
        """Write an entry and its stamp."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[object]:
        """Begin a transaction of the run's only writer."""

    @abstractmethod
    def turn(self) -> AbstractContextManager[object]:
        """Write in one transaction, which is allowed while another process holds the run.

        Nobody else writes meanwhile: what is read inside is still so when what is appended inside is there. Inside
        one turn of a thread another one is the same.

        Returns:
            a context manager, inside which to read and then append.

        Raises:
            MissingSecretError: on entering it, the secret is not at hand.
        """

    @abstractmethod
    def entries(self, *kinds: str, after: int = 0) -> Iterator[Entry]:
        """Return entries in order.

        Args:
            *kinds: which kinds of entries; none means all.
            after: only entries with a larger number than this.

        Yields:
            the entries.
        """

    def identifier(self) -> str:
        """Return a name of this run that no other run has.

        Returns:
            the name, fit for a folder.
        """
        return hmac.digest(self._run_secret(), b"", "sha256").hex()[:16]

    def secret(self, purpose: str) -> bytes:
        """Return secret bytes for a purpose.

        Args:
            purpose: what the bytes are for.

        Returns:
            32 bytes, always the same ones for this purpose in this run, and unrelated to any other's.
        """
        return derive_secret(self._run_secret(), purpose)

    @abstractmethod
    def _run_secret(self) -> bytes:
        """Return what the store itself holds as the run's secret."""

    @abstractmethod
    def outside_secret(self, purpose: str) -> bytes:
        """Return secret bytes for a purpose that follow from nothing in the store.

        Args:
            purpose: what the bytes are for.

        Returns:
            32 bytes, always the same ones.

        Raises:
            MissingSecretError: what they follow from is not at hand.
            UnsafePermissionsError: other users can read it.
        """

    def head(self) -> bytes:
        """Return the head of the chain.

        Returns:
            that of the last entry, ``commitments.NO_HEAD`` if there is none.
        """
        last = self.last_entry()
        return last.head if last else NO_HEAD

    @abstractmethod
    def last_entry(self) -> Entry | None:
        """Return the journal's last entry.

        Returns:
            the entry; None if there is none.
        """

    # Clients

    def register(self, names: Sequence[str], time: str) -> Clients:
        """Return each name's pseudonym, a new one where the name is new.

        Args:
            names: the names.
            time: when, in ISO 8601.

        Returns:
            the pseudonyms in the order of the names; the new ones share one entry.

        Raises:
            ForgottenClientError: the identity of some name was erased, and not readmitted; nothing is written.
            MissingSecretError: some name is new, and the secret is not at hand.
            ValueError: something is not a valid name.
        """
        # Nearly always all are known: then nothing is written, and no turn is waited for.
        known = self.pseudonyms(names)
        if any(name not in known for name in names):
            with self.turn():
                known = self.pseudonyms(names)
                new = [name for name in dict.fromkeys(names) if name not in known]
                # Whoever is known was not erased.
                gone = self.forgotten(new)
                if gone:
                    raise ForgottenClientError(sorted(gone))
                if new:
                    first = self._last_pseudonym() + 1
                    nonces = [secrets.token_bytes(KEY_BYTES) for _ in new]
                    added = list(zip(range(first, first + len(new)), new, nonces, strict=True))
                    leaves = [name_leaf(nonce, client, name) for client, name, nonce in added]
                    body = {"first": first, "last": first + len(new) - 1}
                    self._append(REGISTRATION, body, time, merkle_root(leaves))
                    self._add_clients(added)
                    known |= {name: client for client, name, _ in added}
        return np.array([known[name] for name in names], dtype=np.int64)

    @abstractmethod
    def _last_pseudonym(self) -> int:
        """Return the last pseudonym that was given out, 0 if none was."""

    @abstractmethod
    def _add_clients(self, clients: Sequence[tuple[int, str, bytes]]) -> None:
        """Add clients, by pseudonym, name and the name's nonce, and give each a key."""

    @abstractmethod
    def _identities(
        self, clients: Collection[int] | None = None, names: Collection[str] | None = None, *, labelled: bool = False
    ) -> Iterable[tuple[int, str, str | None, bytes]]:
        """Return pseudonym, name, label and nonce of all known clients, of these, or of those with these names.

        In the order of the pseudonyms, unless names are given; with ``labelled`` only those that have a label.
        """

    def identities(self) -> dict[str, int]:
        """Return all names that are known, with their pseudonyms.

        Returns:
            the pseudonyms by name.
        """
        return {name: client for client, name, _, _ in self._identities()}

    @abstractmethod
    def count_names(self) -> int:
        """Return how many names are known.

        Returns:
            the number, of millions without reading them.
        """

    def names(self, clients: Clients) -> dict[int, str]:
        """Return the names of clients.

        Args:
            clients: their pseudonyms.

        Returns:
            the names by pseudonym, without those that are erased or were never given out.
        """
        return {client: name for client, name, _, _ in self._identities(clients.tolist())}

    def pseudonyms(self, names: Sequence[str]) -> dict[str, int]:
        """Return the pseudonyms of names.

        Args:
            names: the names.

        Returns:
            the pseudonyms by name, in the order of the names, without those that are not known.

        Raises:
            ValueError: something is not a valid name.
        """
        known = {name: client for client, name, _, _ in self._identities(names=check_names_fit(names))}
        return {name: known[name] for name in names if name in known}

    def forgotten(self, names: Sequence[str], labels: Sequence[str] = (), leaving: Collection[int] = ()) -> set[str]:
        """Return those of some names and labels whose client was erased, and not readmitted since.

        Or whose client was readmitted, and left again under whatever name it came back.

        Args:
            names: the names.
            labels: the labels.
            leaving: those who asked to leave, whether they are erased yet or not.

        Returns:
            those among them that may not come back.

        Raises:
            MissingSecretError: the secret that keys the digests is not at hand.
            ValueError: something is not a valid name.
        """
        erased = self.erased_as(names, labels)
        readmitted = self.readmitted() if erased else set()
        gone = {name for name, clients in erased.items() if not clients <= readmitted}
        if len(gone) < len(erased):
            # Whoever was readmitted may have come back under another name, and left again.
            outside = {client for _, client in self.erased_name_digests()}.union(leaving) - readmitted
            barred = self.linked(outside) if outside else set()
            gone.update(name for name, clients in erased.items() if not barred.isdisjoint(clients))
        return gone

    def linked(self, clients: Collection[int]) -> set[int]:
        """Return clients with all who shared a name or a label with one of them, or with one who did, and so on.

        Whoever comes back has a new pseudonym, may have a new name under its old label, or its old name under a new
        label: those are the same participant, as far as can be told.

        Args:
            clients: the pseudonyms, of erased or of known clients.

        Returns:
            the pseudonyms, also of erased clients.

        Raises:
            MissingSecretError: the secret that keys the digests is not at hand.
        """
        secret, called = self.outside_secret(RETURNING), self.labels()
        rows = self.erased_name_digests()
        for name, client in self.identities().items():
            rows += erased_digests(secret, client, name, called.get(client))
        had, by_digest = dict[int, list[str]](), dict[str, list[int]]()
        for digest, client in rows:
            had.setdefault(client, []).append(digest)
            by_digest.setdefault(digest, []).append(client)
        same, new = set(clients), set(clients)
        while new:
            new = {client for old in new for digest in had.get(old, ()) for client in by_digest[digest]} - same
            same |= new
        return same

    def erased_as(self, names: Sequence[str], labels: Sequence[str] = ()) -> dict[str, set[int]]:
        """Return the pseudonyms of erased clients by their names and labels; only keyed digests are left to tell.

        Args:
            names: the names to look for.
            labels: the labels to look for.

        Returns:
            the pseudonyms by name or label, also of readmitted clients, without what was not erased.

        Raises:
            MissingSecretError: the secret that keys the digests is not at hand.
            ValueError: something is not a valid name.
        """
        secret = self.outside_secret(RETURNING)
        digests = {name_digest(secret, name).hex(): name for name in check_names_fit(names)}
        digests |= {label_digest(secret, label).hex(): label for label in check_names_fit(labels)}
        erased: dict[str, set[int]] = {}
        for digest, client in self._erased_among(digests):
            erased.setdefault(digests[digest], set()).add(client)
        return erased

    @abstractmethod
    def _erased_among(self, digests: Collection[str]) -> Iterable[tuple[str, int]]:
        """Return those of the digests that are of erased names or labels, each with a pseudonym that had it."""

    def readmit(self, clients: Sequence[int], reason: str, time: str) -> Entry:
        """Let erased names and labels be registered again, under new pseudonyms.

        The digests stay: that clients were readmitted is in the journal alone, which nobody without the secret can
        add to.

        Args:
            clients: the pseudonyms that the names had.
            reason: why.
            time: when, in ISO 8601.

        Returns:
            the entry.

        Raises:
            MissingSecretError: the secret is not at hand.
        """
        return self.append(READMISSION, {"clients": sorted(clients), "reason": reason}, time)

    def readmitted(self) -> set[int]:
        """Return the pseudonyms whose names may be registered again.

        Returns:
            the pseudonyms.
        """
        return {client for entry in self.entries(READMISSION) for client in entry.body["clients"]}

    def label(self, labels: Mapping[str, str], time: str) -> None:
        """Record what people call clients.

        A client's name tells it from all others, a public key for instance; what people call it need not.

        Args:
            labels: the labels by name; names that are not known are passed over.
            time: when, in ISO 8601.

        Raises:
            MissingSecretError: the secret is not at hand.
            ValueError: a name or a label is none that every store can hold.
        """
        check_names_fit([*labels, *labels.values()])
        with self.turn():
            rows = self._identities(names=labels)
            changed = {client: (nonce, labels[name]) for client, name, old, nonce in rows if old != labels[name]}
            if changed:
                leaves = {client: label_leaf(nonce, client, label) for client, (nonce, label) in changed.items()}
                body = {"labels": [[client, leaf.hex()] for client, leaf in sorted(leaves.items())]}
                self._append(LABEL, body, time)
                self._set_labels({client: label for client, (_, label) in changed.items()})

    @abstractmethod
    def _set_labels(self, labels: Mapping[int, str]) -> None:
        """Write labels, by pseudonym."""

    def labels(self) -> dict[int, str]:
        """Return what people call the clients, as far as it was said.

        Returns:
            the labels by pseudonym; a label is erased with the name.
        """
        return {client: label for client, _, label, _ in self._identities(labelled=True) if label is not None}

    def name_leaves(self, first: int, last: int) -> dict[int, bytes]:
        """Return the commitments to the names of a range of pseudonyms.

        Args:
            first: the first pseudonym.
            last: the last one.

        Returns:
            the commitments by pseudonym, in order; made anew of a name that is there.
        """
        with self.snapshot():
            erased, known = self._erased_leaves(first, last), self._identities(range(first, last + 1))
        present = {client: name_leaf(nonce, client, name) for client, name, _, nonce in known}
        return dict(sorted((erased | present).items()))

    @abstractmethod
    def _erased_leaves(self, first: int, last: int) -> dict[int, bytes]:
        """Return the commitments to erased names of a range of pseudonyms."""

    def label_leaves(self) -> dict[int, bytes]:
        """Return the commitments to all labels that are there, made anew.

        Returns:
            the commitments by pseudonym.
        """
        known = self._identities(labelled=True)
        return {client: label_leaf(nonce, client, label) for client, _, label, nonce in known if label is not None}

    @abstractmethod
    def keys(self, clients: Clients) -> dict[int, bytes]:
        """Return the keys of clients.

        Args:
            clients: their pseudonyms.

        Returns:
            the keys by pseudonym, without those that are erased.
        """

    # Rounds and kept models

    def commit_round(
        self,
        round_: RoundRecord,
        time: str,
        release: Sequence[ModelId] = (),
        rejected: Mapping[int, str] | None = None,
        *,
        resumed: bool = False,
    ) -> Entry:
        """Record a round with its entry, keep its model, and let go of other models.

        It has to follow the last round of its branch, which has to be there.

        Args:
            round_: the round.
            time: when, in ISO 8601.
            release: the kept models to let go of.
            rejected: clients whose replies were not used, with the reasons; if there are any, an entry of kind
                ``rejection`` comes before the round's own.
            resumed: it is the first round since the run was opened; the entry says so, as an attempt at the same
                round may have been cut off before.

        Returns:
            the round's entry.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
            ValueError: the round does not follow, a digest is none, a number is negative or NaN, the salt has the
                wrong length, or a client has no key.
        """
        check_digest(round_.model)
        model_id = round_.model_id
        with self._transaction():
            keys = self.keys(round_.clients)
            check_round(round_, self.last_round(model_id.branch), keys)
            place: dict[str, Any] = {"branch": model_id.branch, "round": model_id.round}
            if rejected:
                self._append(REJECTION, place | {"rejected": sorted(rejected.items())}, time)
            body = place | ({"resumed": True} if resumed else {})
            entry = self._append(ROUND, body, time, round_root(round_, keys))
            self._add_round(entry.sequence, round_, release)
        return entry

    @abstractmethod
    def _add_round(self, sequence: int, round_: RoundRecord, release: Sequence[ModelId]) -> None:
        """Write the values of a round that has its entry, and let go of models."""

    def start_branch(self, number: int, model: str, body: Mapping[str, Any], time: str) -> Entry:
        """Record the start of a branch as an entry of kind ``branch``, and keep the model it starts with.

        Args:
            number: the branch's number.
            model: the SHA-256 of its first model.
            body: what the entry says.
            time: when, in ISO 8601.

        Returns:
            the entry.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
            ValueError: the branch was started already, or ``model`` is no SHA-256.
        """
        check_digest(model)
        with self._transaction():
            if self.last_round(number) >= 0:
                raise ValueError(f"branch {number} was started already")
            entry = self._append(BRANCH, body, time)
            self._add_branch(number, model)
        return entry

    @abstractmethod
    def _add_branch(self, number: int, model: str) -> None:
        """Write the values of a branch that has its entry."""

    @abstractmethod
    def last_round(self, branch: int) -> int:
        """Return the number of a branch's last round, erased or not.

        Args:
            branch: the branch's number.

        Returns:
            the round's number; 0 if the branch has none, -1 if there is no such branch.
        """

    @abstractmethod
    def rounds(self, span: Span, wanted: Collection[int] | None = None) -> Iterator[RoundRecord]:
        """Return the rounds of a span whose numbers are not erased, in order.

        Args:
            span: the span.
            wanted: the numbers of the rounds to return; None means all.

        Yields:
            the rounds.

        Raises:
            BrokenHistoryError: the numbers of a round cannot be read.
        """

    @abstractmethod
    def absent_rounds(self, span: Span) -> NDArray[np.void]:
        """Return number, factor and rounding of a span's rounds, in order.

        Args:
            span: the span.

        Returns:
            an array in the layout ``ABSENT_ROUNDS``.
        """

    @abstractmethod
    def rounds_of(self, clients: Clients) -> list[ModelId]:
        """Return the rounds that any of these clients took part in.

        Args:
            clients: their pseudonyms.

        Returns:
            the ids of the rounds' models, in order, without erased ones.
        """

    @abstractmethod
    def indexed_participants(self, span: Span) -> Iterator[tuple[ModelId, Clients]]:
        """Return a span's rounds that are not erased, each with the clients by whom ``rounds_of`` finds it.

        They are the round's participants, unless somebody tampered.

        Args:
            span: the span.

        Yields:
            the id of the round's model, and the clients, sorted.
        """

    @abstractmethod
    def kept(self) -> dict[ModelId, str]:
        """Return the digests of the kept models.

        Returns:
            the SHA-256 of each kept model, by id.
        """

    # Objects of clients: files that hold the data of one client each, and go with it

    def keep_objects(self, objects: Mapping[int, str], model_id: ModelId, time: str) -> Entry:
        """Keep objects of clients, in the place of those that they may have; an entry commits to them.

        Args:
            objects: the SHA-256 of each object, whose file is there already, by pseudonym.
            model_id: the model in whose round they came.
            time: when, in ISO 8601.

        Returns:
            the entry.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
            ValueError: a digest is none, or a client has no key: it never was, or is erased.
        """
        for digest in objects.values():
            check_digest(digest)
        with self._transaction():
            leaves = self._object_leaves(objects)
            if strangers := objects.keys() - leaves:
                raise ValueError(f"client {min(strangers)} has no key, so nothing of it is kept")
            listed = [[client, leaf.hex()] for client, leaf in leaves.items()]
            body = {"branch": model_id.branch, "round": model_id.round, "sums": listed}
            self._replace_objects(objects)
            return self._append(OBJECTS, body, time)

    def object_leaves(self) -> dict[int, bytes]:
        """Return the commitments to all objects of clients that are there, made anew.

        Returns:
            the commitments by pseudonym; none of a client whose key is gone.
        """
        with self.snapshot():
            return self._object_leaves(self.objects())

    def _object_leaves(self, objects: Mapping[int, str]) -> dict[int, bytes]:
        keys = self.keys(np.array(sorted(objects), dtype=np.int64))
        return {client: object_leaf(key, client, objects[client]) for client, key in keys.items()}

    @abstractmethod
    def _replace_objects(self, objects: Mapping[int, str]) -> None:
        """Write the digests of clients' objects, in the place of what is there."""

    @abstractmethod
    def objects(self) -> dict[int, str]:
        """Return the digests of the clients' objects.

        Returns:
            the SHA-256 of each object, by pseudonym.
        """

    # What is derived

    def keep_bounds(self, model_id: ModelId, content: bytes) -> None:
        """Keep what was derived from all rounds up to a model, in the place of what was kept before.

        It can be derived again at any time; kept, it saves whoever records next from reading all rounds. It is sealed
        with the secret and the head of the chain, and goes with the next erasure.

        Args:
            model_id: the model, the last one of its branch.
            content: what was derived, at most ``LARGEST_BOUNDS`` bytes.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
            ValueError: the branch has another last model, or there are too many bytes.
        """
        if len(content) > LARGEST_BOUNDS:
            raise ValueError(f"{len(content)} bytes are too many to keep: at most {LARGEST_BOUNDS}")
        with self._transaction():
            last = self.last_entry()
            if last is None or self.last_round(model_id.branch) != model_id.round:
                raise ValueError(f"{model_id} is not the last one of its branch: what follows from it is not kept")
            self._replace_bounds((last.sequence, self._seal_bounds(last.head, content), content))

    def bounds(self) -> tuple[int, bytes] | None:
        """Return what ``keep_bounds`` kept last.

        Returns:
            the number of the journal's last entry by then, and the content. None if nothing is kept, it was changed
                since, or that entry is not in the chain any more.

        Raises:
            MissingSecretError: the secret is not at hand.
        """
        kept = self._read_bounds()
        if kept is None:
            return None
        sequence, head, seal, content = kept
        return (sequence, content) if hmac.compare_digest(seal, self._seal_bounds(head, content)) else None

    def _seal_bounds(self, head: bytes, content: bytes) -> bytes:
        return hmac.digest(self.outside_secret(BOUNDS), head + hashlib.sha256(content).digest(), "sha256")

    @abstractmethod
    def bounds_since(self) -> int | None:
        """Return since which entry something is kept that was derived, true or not.

        Returns:
            the entry's number; None if nothing is kept.
        """

    @abstractmethod
    def _read_bounds(self) -> tuple[int, bytes, bytes, bytes] | None:
        """Return the number of the entry, its head, the seal and the content; None if one of them cannot be."""

    @abstractmethod
    def _replace_bounds(self, kept: tuple[int, bytes, bytes] | None) -> None:
        """Write the number of the entry, the seal and the content, in the place of what is there."""

    # Erasure

    def erase_identities(self, clients: Clients, *, may_return: bool = False) -> None:
        """Delete the names of clients, with labels and nonces.

        Keyed digests of name and label stay, so that a returning client is recognised, and the name's leaf, so that
        the others' still verify.

        Args:
            clients: their pseudonyms.
            may_return: whether the names may be registered again; then no digest stays.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
        """
        secret = self.outside_secret(RETURNING)
        with self._transaction():
            rows = list(self._identities(clients.tolist()))
            stay = [] if may_return else rows
            digests = [
                digest for client, name, label, _ in stay for digest in erased_digests(secret, client, name, label)
            ]
            self._drop_identities(
                {client: name_leaf(nonce, client, name) for client, name, _, nonce in rows}, digests
            )

    @abstractmethod
    def _drop_identities(self, leaves: Mapping[int, bytes], digests: Sequence[tuple[str, int]]) -> None:
        """Delete names, labels and nonces; write the names' leaves by pseudonym, and digests to recognise them."""

    def erase_rounds(
        self,
        spans: Sequence[Span],
        stretch: Stretch | None = None,
        superseded: Sequence[int] = (),
        remains: tuple[Mapping[str, Any], str] | None = None,
    ) -> None:
        """Delete the numbers of rounds and their kept models' references.

        What was derived from all rounds goes too. All of it is one transaction.

        Args:
            spans: the rounds. A span from round 0 covers the branch's first model too.
            stretch: what is left of them; it is written in the place of one that its branch may have.
            superseded: branches whose stretches go.
            remains: body and time of an entry of kind ``remains`` to be written.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
        """
        with self._transaction():
            if remains is not None:
                self._append(REMAINS, *remains)
            self._drop_rounds(spans)
            self._replace_bounds(None)
            self._replace_stretches([*superseded, *([stretch.branch] if stretch else [])], stretch)

    @abstractmethod
    def _drop_rounds(self, spans: Sequence[Span]) -> None:
        """Delete the values of the spans' rounds."""

    @abstractmethod
    def _replace_stretches(self, superseded: Sequence[int], stretch: Stretch | None) -> None:
        """Delete the stretches of branches, and write another one if there is one."""

    @abstractmethod
    def erase_objects(self, clients: Clients) -> None:
        """Delete the digests of clients' objects.

        Args:
            clients: their pseudonyms.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
        """

    @abstractmethod
    def erase_keys(self, clients: Clients) -> None:
        """Delete the keys of clients.

        Args:
            clients: their pseudonyms.

        Raises:
            LockedError: another process holds the run.
            MissingSecretError: the secret is not at hand.
        """

    @abstractmethod
    def stretches(self) -> dict[int, Stretch]:
        """Return what is left of erased stretches.

        Returns:
            the stretches by the branch at whose start they end.
        """

    @abstractmethod
    def compact(self) -> tuple[str, ...]:
        """Overwrite or give back every byte that erased values occupied.

        Returns:
            in words, what is out of reach.

        Raises:
            LockedError: another process holds the run.
            StillReadError: it has to wait, because somebody is reading.
        """

    def copies(self) -> tuple[str, ...]:
        """Return in words where the store copies what is written to it, out of reach of every erasure.

        ``compact`` says it too, when it is too late.

        Returns:
            a sentence for each such place.
        """
        return ()

    # Verification

    def snapshot(self) -> AbstractContextManager[None]:
        """Read everything as it was at one moment, in this thread, whatever others write meanwhile.

        Returns:
            a context manager, inside which to read.
        """
        return nullcontext()

    @abstractmethod
    def unstamped_entries(self) -> list[int]:
        """Return the numbers of the entries that somebody without the secret added.

        Returns:
            the numbers, in order.

        Raises:
            MissingSecretError: the secret is not at hand.
        """

    def stamp_problems(self) -> Iterator[str]:
        """Say in words which entries somebody added or changed without the secret.

        A stamp is of an entry's head, so that the head has to follow from what the entry says.

        Yields:
            a sentence for each such entry; the changed ones, for which no secret is needed, come first.

        Raises:
            MissingSecretError: the secret is not at hand.
        """
        yield from (f"entry {number} does not follow from those before it" for number in broken_links(self.entries()))
        yield from (f"entry {number} was added without the secret" for number in self.unstamped_entries())

    def check_stamps(self) -> None:
        """Refuse to act on entries that somebody added or changed without the secret.

        Raises:
            BrokenHistoryError: there is one.
            MissingSecretError: the secret is not at hand.
        """
        refuse_changes(self.stamp_problems())

    @abstractmethod
    def erased_name_digests(self) -> list[tuple[str, int]]:
        """Return the keyed digests by which erased names and labels are recognised.

        Returns:
            the digests in hexadecimal, each with the pseudonym that the name or label belonged to; sorted.
        """

    @abstractmethod
    def foreign_objects(self) -> Iterator[str]:
        """Say in words what the store holds that no ledger put there, or holds in other words than it was put.

        Yields:
            a sentence for each such thing.
        """


def check_names_fit(names: Sequence[str]) -> list[str]:
    """Refuse what is not a name that every store can hold and give back unchanged.

    Args:
        names: the names.

    Returns:
        the names.

    Raises:
        ValueError: one has not 1 to 256 characters, holds a NUL, or has no UTF-8 form.
    """
    for name in names:
        if not isinstance(name, str) or not name or len(name) > LONGEST_NAME or "\0" in name or not _encodable(name):
            raise ValueError(
                f"{name!r:.80} is not a valid name for a client: it takes 1 to {LONGEST_NAME} characters, no NUL"
            )
    return list(names)


def derive_secret(secret: bytes, purpose: str) -> bytes:
    """Derive what a purpose uses from the run's secret."""
    return hmac.digest(secret, b"purpose\0" + purpose.encode(), "sha256")


def bind_secret(outside: bytes, secret: bytes) -> bytes:
    """Derive what a run's outside secrets follow from: the secret file's content, bound to the run's own secret."""
    return hmac.digest(outside, b"names of\0" + secret, "sha256")


def name_digest(secret: bytes, name: str) -> bytes:
    """Return what stays of an erased name: enough to recognise it, with the secret of names, and not to read it."""
    return hmac.digest(secret, name.encode(), "sha256")


def label_digest(secret: bytes, label: str) -> bytes:
    """Return what stays of an erased label. No name has a NUL, so it is not a valid name's digest."""
    return name_digest(secret, f"\0{label}")


def erased_digests(secret: bytes, client: int, name: str, label: str | None) -> list[tuple[str, int]]:
    """Return what stays of an erased client, by which its name and what people called it are recognised."""
    digests = [name_digest(secret, name)]
    if label is not None and label != name:
        digests.append(label_digest(secret, label))
    return [(digest.hex(), client) for digest in digests]


def check_digest(digest: str) -> None:
    """Refuse what is no SHA-256 that every store gives back unchanged.

    Args:
        digest: the digest.

    Raises:
        ValueError: it has not 64 lower-case hexadecimal digits.
    """
    if not is_digest(digest):
        raise ValueError(f"{digest!r:.80} is no SHA-256 in 64 lower-case hexadecimal digits")


def check_round(round_: RoundRecord, last_round: int, keys: Mapping[int, bytes]) -> None:
    """Refuse a round that is out of order, that a store would not give back bit for bit, or that has no salt.

    Args:
        round_: the round.
        last_round: the number of its branch's last round, -1 without such a branch.
        keys: the keys of its clients, by pseudonym.

    Raises:
        ValueError: it is refused.
    """
    if last_round < 0:
        raise ValueError(f"branch {round_.model_id.branch} was not started")
    if round_.model_id.round != last_round + 1:
        raise ValueError(f"{round_.model_id} does not follow round {last_round} of its branch")
    for name in ("update_norm", "rounding", "factor"):
        value = getattr(round_, name)
        # SQLite makes 0.0 of -0.0, and nothing of NaN.
        if math.isnan(value) or math.copysign(1.0, value) < 0:
            raise ValueError(f"{name} is {value!r}; it has to be at least 0")
    if len(round_.salt) != KEY_BYTES:
        raise ValueError(f"the salt of {round_.model_id} has {len(round_.salt)} bytes: draw {KEY_BYTES} random ones")
    missing = [client for client in round_.clients.tolist() if client not in keys]
    if missing:
        raise ValueError(
            f"client {missing[0]} has no key: register it before the round; one that was erased stays out"
        )


# What a returning client is recognised by, what stamps entries, what seals what is derived, and sums that are added
# up, what clients are parted by, and what shows that a secret is the right one.
RETURNING, STAMPS, BOUNDS, SUBTOTALS = "returning clients", "stamps", "bounds", "subtotals"
FOLDS, CHECK = "folds", "check"


def _encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
