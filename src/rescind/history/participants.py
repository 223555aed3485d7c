"""Who takes part, under which name: names, labels and pseudonyms, who may train, who stays outside."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches

from rescind.core.edges import ModelId, sorted_group
from rescind.core.facts import Mode, PrivacyScope
from rescind.errors import MissingSecretError, UnknownClientError, UnsafePermissionsError
from rescind.history.journal import Journal
from rescind.history.outcomes import find_outcomes, outcome_of
from rescind.history.tampering import check_suppression
from rescind.history.timeline import Timeline
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Span

# An operator's own words stay in the journal for good.
LONGEST_REASON = 1000


class Participants:
    """The clients of a run: what they are called, who may take part, who left and came back."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self._ledger = journal, journal.ledger
        self._remaining: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        self._barred: dict[tuple[int, tuple[tuple[str, str], ...]], frozenset[str]] = {}

    def read_again(self) -> None:
        """Find anew who may take part: what a crash left undone may have been finished since, without an entry."""
        self._remaining, self._barred = {}, {}

    def find(self, names: Sequence[str]) -> frozenset[int]:
        """Return the pseudonyms of clients.

        Args:
            names: the clients' names or labels; a label stands for everybody who has it.

        Returns:
            the pseudonyms.

        Raises:
            UnknownClientError: nobody is called so, or the client was forgotten and its name erased.
            ValueError: ``names`` is a single string, or holds a name twice or something that is not a valid name.
        """
        if isinstance(names, str):
            raise ValueError(f"names is {names!r}; give a list of names")
        pseudonyms = self._ledger.pseudonyms(names)
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise ValueError(f"{', '.join(map(repr, twice))} is there more than once: name each client once")
        unknown = [name for name in names if name not in pseudonyms]
        called: dict[str, list[int]] = {}
        for client, label in self._ledger.labels().items() if unknown else ():
            called.setdefault(label, []).append(client)
        same = frozenset(client for name in unknown for client in called.get(name, ()))
        unknown = [name for name in unknown if name not in called]
        if unknown:
            gone, unsure = set[str](), ""
            try:
                gone = self._ledger.forgotten(unknown, unknown)
            except (MissingSecretError, UnsafePermissionsError) as missing:
                unsure = f". Whether it was forgotten cannot be told: {missing}"
            if gone:
                raise UnknownClientError(
                    f"{', '.join(map(repr, sorted(gone)))} was forgotten, and its name erased: nothing is left to do"
                )
            everybody = list({**self._ledger.identities(), **called})
            # Of more names the search would take longer than people wait.
            near = get_close_matches(unknown[0], everybody, n=3) if len(everybody) <= 10_000 else []
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ", or it has not taken part yet"
            raise UnknownClientError(f"no client is called {', '.join(map(repr, unknown))} here{hint}{unsure}")
        return same.union(pseudonyms.values())

    def all(self) -> dict[str, int]:
        """Return all names that are known, with their pseudonyms.

        Returns:
            the pseudonyms by name.
        """
        return self._ledger.identities()

    def names(self, clients: Iterable[int]) -> list[str]:
        """Return the names of clients.

        Args:
            clients: the clients' pseudonyms.

        Returns:
            the names that are not erased, in the order of the pseudonyms.
        """
        return list(self._ledger.names(sorted_group(clients)).values())

    def describe(self, groups: Sequence[Iterable[int]]) -> list[list[str]]:
        """Return what people call the clients of each group.

        Args:
            groups: groups of pseudonyms.

        Returns:
            for each group the clients' labels, or their names where there is no label; of erased clients the
                pseudonyms.
        """
        sorted_groups = [sorted_group(group).tolist() for group in groups]
        everybody = sorted_group(client for group in sorted_groups for client in group)
        if not len(everybody):
            return sorted_groups
        labels = self._ledger.labels()
        known = self._ledger.names(everybody) | labels
        stay = {} if known.keys() >= set(everybody.tolist()) else self._name_staying(labels)
        return [
            stay.get(tuple(clients)) or [known.get(client, f"forgotten (pseudonym {client})") for client in clients]
            for clients in sorted_groups
        ]

    def _name_staying(self, labels: Mapping[int, str]) -> dict[tuple[int, ...], list[str]]:
        """Return what people call those who stay without some rows, by the pseudonyms that they had before."""
        stay: dict[tuple[int, ...], list[str]] = {}
        # Who only reads need not have the secret.
        with suppress(MissingSecretError, UnsafePermissionsError):
            requests, identities = self._journal.timeline.requests, self._ledger.identities()
            for number, names in self.rows_asked(list(identities)).items():
                group = sorted_group(requests[number - 1].request.group).tolist()
                # Nothing tells whose each of the old pseudonyms was: only all of them together have names.
                if len(names) == len(group):
                    stay[tuple(group)] = sorted(labels.get(identities[name], name) for name in names)
        return stay

    def label(self, labels: Mapping[str, str]) -> None:
        """Record what people call clients.

        Args:
            labels: the labels by name; names that are not known are passed over.

        Raises:
            ValueError: a name or a label is not a text of 1 to 256 characters without NUL.
            MissingSecretError: the secret file is not at hand.
        """
        self._ledger.label(labels, self._journal.now())

    def remaining(self, names: Sequence[str], *, back: bool = False) -> list[str]:
        """Return who may take part, neither forgotten nor waiting to be.

        Args:
            names: the names to choose from.
            back: whether those are meant too who come back once rows of theirs are forgotten.

        Returns:
            those of the names who may take part, in the same order.

        Raises:
            MissingSecretError: the secret file is not at hand, by which forgotten names are recognised.
        """
        # Asked for every round with the same names, and requests are rare: what was found for these is still true.
        timeline = self._journal.timeline
        asked = (timeline.last, tuple(names))
        remaining = self._remaining.get(asked)
        if remaining is None:
            remaining = self._found_remaining(names)
            self._remaining = {asked: remaining}
        if not back or not timeline.losing_rows:
            return list(remaining)
        staying = {*remaining, *self.names(timeline.losing_rows)}
        return [name for name in names if name in staying]

    def _found_remaining(self, names: Sequence[str]) -> list[str]:
        known, leaving = self._ledger.pseudonyms(names), self._journal.timeline.leaving
        gone = self._ledger.forgotten([name for name in names if name not in known], leaving=leaving)
        return [name for name in names if name not in gone and known.get(name) not in leaving]

    def barred(self, labels: Mapping[str, str]) -> frozenset[str]:
        """Return which clients are forgotten ones: by their names, or new names under labels of those who left.

        Args:
            labels: what people call the clients, by name.

        Returns:
            the names of those who stay outside until they are readmitted.

        Raises:
            MissingSecretError: the secret file is not at hand, by which forgotten names are recognised.
        """
        asked = (self._journal.timeline.last, tuple(labels.items()))
        barred = self._barred.get(asked)
        if barred is None:
            barred = self._find_barred(labels)
            self._barred = {asked: barred}
        return barred

    def _find_barred(self, labels: Mapping[str, str]) -> frozenset[str]:
        known, called = self._ledger.pseudonyms(list(labels)), self._ledger.labels()
        # Whoever is known is its name, whatever people call it; unless nobody has written down what they do.
        new = {name: label for name, label in labels.items() if known.get(name) not in called}
        if not new:
            return frozenset()
        leaving = self._journal.timeline.leaving
        # Where keys were not registered yet the name was what people say.
        called_so = list({*new, *new.values()})
        gone = self._ledger.forgotten(called_so, called_so, leaving)
        gone.update(label for client, label in called.items() if client in leaving)
        return frozenset(name for name, label in new.items() if (name in gone and name not in known) or label in gone)

    def took_part(self, model_id: ModelId) -> list[str]:
        """Return who took part in the round that made a model.

        Args:
            model_id: the model; the first of a branch was made by no round.

        Returns:
            the names that are not erased.
        """
        rounds = self._ledger.rounds(Span(model_id.branch, model_id.round, model_id.round))
        return [name for round_ in rounds for name in self._ledger.names(round_.clients).values()]

    def first_weights(self, names: Sequence[str]) -> dict[str, float]:
        """Return the weight with which each client first took part, as far as that is recorded.

        Args:
            names: the clients' names.

        Returns:
            the weights by name, without the clients of whom none is recorded.
        """
        weights = {}
        for name, client in self._ledger.pseudonyms(names).items():
            for model_id in self._ledger.rounds_of(sorted_group([client]))[:1]:
                (round_,) = self._ledger.rounds(Span(model_id.branch, model_id.round, model_id.round))
                weights[name] = float(round_.participants["weight"][round_.clients == client][0])
        return weights

    def receipt(self, name: str) -> str:
        """Return what a client needs to find itself in a certificate; for that client only.

        Args:
            name: the client's name.

        Returns:
            the receipt, in hexadecimal.

        Raises:
            MissingSecretError: the secret file is not at hand.
        """
        return _receipt(self._ledger, name).hex()

    def blind(self, name: str) -> str:
        """Return the digest that stands for a client in a request."""
        return blind_name(_receipt(self._ledger, name), name)

    def removals(self, names: Sequence[str]) -> dict[str, int]:
        """Return of clients that stay without some of their rows the last request that said so.

        Args:
            names: the clients' names.

        Returns:
            the requests' numbers by name, without those of whom no rows were to go.

        Raises:
            MissingSecretError: the secret file is not at hand.
        """
        return {name: number for number, named in self.rows_asked(names).items() for name in named}

    def rows_asked(self, names: Sequence[str]) -> dict[int, list[str]]:
        """Return by request, of those that were served, whose rows were to go, among these names."""
        requests = self._journal.timeline.requests
        asked = [filed for filed in requests if filed.served and filed.request.scope is PrivacyScope.RECORDS]
        digests = {self.blind(name): name for name in names} if asked else {}
        return {filed.number: [digests[own] for own in filed.forgotten if own in digests] for filed in asked}

    def readmit(self, name: str, reason: str) -> tuple[int, ...]:
        """Record that a forgotten client may take part again, as a new one, and why; also while training runs.

        What is recorded from then on may know its data: its request is no longer certified of later models.

        Args:
            name: the client's name or label; whoever shared one of them with it is readmitted too.
            reason: why, without the name: it is recorded for good.

        Returns:
            the pseudonyms that are readmitted.

        Raises:
            UnknownClientError: nobody who was called so was forgotten.
            ValueError: a request about the client has not been served to its end, or not exactly, one that is to hide
                everybody who left is open, it was readmitted already, or the reason is empty, too long or names the
                client.
            BrokenHistoryError: somebody changed the ledger, the list of erased names for instance.
            MissingSecretError: the secret file is not at hand.
        """
        check_reason(reason, "nobody is readmitted")
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", reason, re.IGNORECASE):
            raise ValueError("the reason names the client: it is recorded for good, so say it without the name")
        # Whoever could change the list would have somebody else readmitted.
        self._ledger.check_stamps()
        check_suppression(self._ledger)
        timeline = self._journal.read()
        erased = self._ledger.erased_as([name], [name]).get(name, set())
        present = {client for client, label in self._ledger.labels().items() if label == name}
        clients = self._ledger.linked(erased.union(present, self._ledger.pseudonyms([name]).values()))
        _check_served(timeline, clients)
        if not erased:
            raise UnknownClientError(
                f"nobody called {name!r} was forgotten here: there is nothing to readmit"
                + (", it may take part" if clients else "")
            )
        again = {
            client for _, client in self._ledger.erased_name_digests() if client in clients
        } - self._ledger.readmitted()
        if not again:
            raise ValueError(f"{name!r} was readmitted already: it may take part")
        _check_exact(timeline, again)
        self._ledger.readmit(sorted(again), reason, self._journal.now())
        return tuple(sorted(again))


def name_key(public_key: bytes) -> str:
    """Return the name of whoever has a key: the SHA-256 of its PEM text, as SSH shows fingerprints."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(public_key.strip()).digest()).decode().rstrip("=")


def is_key_name(name: str) -> bool:
    """Return whether a name has the form of those that ``name_key`` gives."""
    return re.fullmatch("SHA256:[A-Za-z0-9+/]{43}", name) is not None


def _check_served(timeline: Timeline, clients: Collection[int]) -> None:
    """Refuse clients of a request that has not been served to its end, with the erasure."""
    done = find_outcomes(timeline)
    erasing = {number for deletion in timeline.unfinished_deletions for number in deletion.plan.requests}
    for filed in timeline.requests:
        asked = not filed.dropped and not filed.request.group.isdisjoint(clients)
        if asked and (filed.number not in done or filed.number in erasing):
            raise ValueError(
                f"request {filed.number} is about this client and not served to its end, with the erasure: start the "
                "federation's next run (or withdraw a request that is open), then readmit"
            )


def _check_exact(timeline: Timeline, clients: Collection[int]) -> None:
    """Refuse clients of whom the model may still hold a trace, or whom a request that is open is to hide.

    If they came back and left again, nothing would cover both traces together.
    """
    done = find_outcomes(timeline)
    for filed in timeline.requests:
        sequence = filed.request.scope is PrivacyScope.SEQUENCE
        if sequence and not filed.dropped and filed.number not in done:
            raise ValueError(
                f"request {filed.number} is to hide everybody who left before it, and is not served to its end: "
                "start the federation's next run, then readmit"
            )
        if filed.served and not filed.request.group.isdisjoint(clients):
            mode = outcome_of(timeline, filed.number).mode
            if mode is not Mode.EXACT:
                raise ValueError(
                    f"by request {filed.number} this client was not forgotten exactly ({mode.value}): the model may "
                    "hold a trace of it, and if it came back and left again nothing would cover both. If it "
                    "was hidden by noise, a later restart from before it joined makes that exact; then readmit it. "
                    "What a heuristic method did stays so for good"
                )


def _receipt(ledger: Ledger, name: str) -> bytes:
    """Return what a client needs to find itself in a certificate; it can be given again, also after an erasure."""
    return hmac.digest(ledger.outside_secret("receipts"), name.encode(), "sha256")


def blind_name(salt: bytes, name: str) -> str:
    """Return the digest that stands for a client, whose receipt is ``salt``."""
    return hashlib.sha256(b"rescind forgets " + salt + name.encode()).hexdigest()


def check_reason(reason: str, otherwise: str) -> None:
    """Refuse no reason, or one that is too long; ``otherwise`` says what is not done without one."""
    if not reason.strip():
        raise ValueError(f"give a reason: without one {otherwise}")
    check_length(reason)


def check_length(reason: str) -> None:
    """Refuse words that are too long."""
    if len(reason) > LONGEST_REASON:
        raise ValueError(f"the reason has {len(reason)} characters: at most {LONGEST_REASON} are recorded")
