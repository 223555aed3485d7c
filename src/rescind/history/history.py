"""The history of a run as its users meet it: open, record, ask, plan, erase, verify."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import chain
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
from sqlalchemy.exc import SQLAlchemyError

from rescind.checkpoints.store import CheckpointStore
from rescind.core.arrays import Floats, Tensor
from rescind.core.calibration import Budget
from rescind.core.edges import is_solvers, sorted_group
from rescind.core.facts import Facts, PrivacyScope
from rescind.core.recovery import RecoveryCurve
from rescind.core.summary import Node, Request, Summary
from rescind.errors import (
    BrokenHistoryError,
    HistoryError,
    LockedError,
    MissingSecretError,
    UnknownClientError,
    UnsafePermissionsError,
    WrongSecretError,
)
from rescind.history import decisions, erasure, requests, verification
from rescind.history.clocks import add_months, entry_times
from rescind.history.events import EVENTS, PlanApproved, RecordedPlan, RowsNamed, record, write_body
from rescind.history.lineage import Lineage, lineage_of, newest_model, newest_model_at
from rescind.history.locations import open_stores
from rescind.history.numbers import check_numbers
from rescind.history.obligations import find_obligations
from rescind.history.outcomes import Outcome, find_outcomes
from rescind.history.recorder import Recorder
from rescind.history.retention import exact_places
from rescind.history.run import Goal, Run, count_parameters, describe_model
from rescind.history.senders import OPERATOR, Sender
from rescind.history.timeline import Doubt, FiledRequest, Timeline
from rescind.ledger.contract import RETURNING, ROUND, Ledger, check_digest
from rescind.ledger.memory import MemoryLedger
from rescind.ledger.records import Branch, Entry, ErasureLevel, ErasurePlan, ModelId, Span

Item = TypeVar("Item")

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
# GDPR art. 12 (3) allows three months; whatever else may hold, a year is a mistake.
_LONGEST_WAIT = timedelta(days=366)
# How often a history that changes meanwhile is looked at.
_LOOKS = 5
# So many kept models are read side by side.
_MODELS_AT_ONCE = 8
_OTHER_TENSORS = "two kept models have not the same tensors: somebody changed one of them"
# A clock in another year is not set.
_YEARS = (2000, 9000)


class History:
    """What happened in a run, kept durably in a folder, or in a PostgreSQL database and a place for the models.

    >>> history = History("hospital-history")                                          # doctest: +SKIP
    >>> history = History("postgresql://rescind@db/federation", checkpoints="s3://bucket/federation",
    ...                   run="spring", secret="/etc/rescind/spring.secret")           # doctest: +SKIP

    Reading needs neither the secret file nor a lock; whoever records or erases is alone (``recording``, ``erase``).

    Args:
        location: a folder, or a PostgreSQL address. A folder that does not exist is made, with mode 700.
        checkpoints: where the models lie, a folder or ``s3://bucket/prefix``; needed on PostgreSQL, else they lie in
            the history's own folder unless another place is given.
        run: the run's name in a PostgreSQL database; a folder holds one run.
        secret: a file that lies neither in the folder nor in the database, by which erased names are recognised. It
            is made with the history, and needed to record, to ask and to erase. For the folder above it is
            ``hospital-history.secret``, beside the folder, unless it is named.
        create: whether to make a history where there is none.

    Raises:
        NoHistoryError: there is no history and ``create`` is false, or the location holds something else.
        IncompleteHistoryError: the location holds only a part of a history.
        SchemaVersionError: the history was written with another schema.
        UnsafePermissionsError: other users can read or write the folder or a file in it.
        HistoryError: the location is no folder or PostgreSQL address, the database cannot be reached, a place for the
            models is missing, or the secret file of a new history cannot be made.
        ValueError: the PostgreSQL address, the run's name or the place for the models is malformed.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        checkpoints: str | None = None,
        run: str = "main",
        secret: str | os.PathLike[str] | None = None,
        create: bool = True,
    ) -> None:
        self._set_up(*open_stores(location, checkpoints, run, secret, create=create))
        self.location = os.fspath(location)

    @classmethod
    def in_memory(cls) -> Self:
        """Make a history that ends when it is closed, for experiments that keep nothing.

        Returns:
            an empty history.
        """
        history = cls.__new__(cls)
        name = f"memory://{secrets.token_hex(16)}"
        history._set_up(MemoryLedger(), CheckpointStore(f"{name}/checkpoints"), CheckpointStore(f"{name}/objects"))
        history._ends_here = True
        return history

    def _set_up(self, ledger: Ledger, models: CheckpointStore, objects: CheckpointStore) -> None:
        self.ledger, self.models, self.objects = ledger, models, objects
        # As it was given; in memory there is none.
        self.location = ""
        self._clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        self._ends_here = False
        self._thread: ThreadPoolExecutor | None = None
        self._remaining: dict[tuple[int, tuple[str, ...]], list[str]] = {}
        self._barred: dict[tuple[int, tuple[tuple[str, str], ...]], frozenset[str]] = {}
        self._read = (Timeline(), 0)
        self._numbers: dict[bytes, int] = {}
        self._newest: dict[int, ModelId] = {}
        self._seen, self._known, self._unknown = -1, list[FiledRequest](), list[FiledRequest]()
        self._looked: ModelId | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close files and connections; a history in memory is gone then. A round being written is written first."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self.ledger.close()
        if self._ends_here:
            self.models.remove()
            self.objects.remove()

    # Reading

    @property
    def timeline(self) -> Timeline:
        """What the journal tells, up to now."""
        # Asked for several times a round: rounds are passed over once, not looked through again each time.
        # What was read, and up to where, change together: another thread may ask meanwhile.
        timeline, last = self._read
        if last:
            new = list(self.ledger.entries(after=last))
        else:
            # Asked first: the entries up to it are among those that are read then, but for rounds.
            newest = self.ledger.last_entry()
            last, new = newest.sequence if newest else 0, list(self.ledger.entries(*EVENTS))
        if any(entry.kind in EVENTS for entry in new):
            timeline = timeline.follow(new)
        self._read = (timeline, max(last, new[-1].sequence if new else 0))
        return timeline

    def timeline_at(self, head: bytes) -> Timeline:
        """Return what the journal told when a given head was the head of the chain.

        Args:
            head: a head that the chain of this history had.

        Returns:
            the timeline up to that entry.

        Raises:
            ValueError: the head is not in the chain.
        """
        return self.timeline.until(self._number_of(head))

    def newest_at(self, head: bytes, before: int | None = None) -> ModelId:
        """Return the model that was the newest when a given head was the head of the chain.

        Args:
            head: a head that the chain of this history had.
            before: the number of an entry; models that were recorded after it do not count.

        Returns:
            the model's id.

        Raises:
            ValueError: the head is not in the chain, or no model was recorded by then.
        """
        last = self._number_of(head)
        last = last if before is None else min(last, before)
        # A report asks for it once a request, and there may be many of both; what was the newest then stays so.
        if last not in self._newest:
            self._newest[last] = newest_model_at(self.ledger, self.timeline, last)
        return self._newest[last]

    def entry_times(self, head: bytes | None = None) -> list[tuple[datetime, int]]:
        """Return the times of the journal's entries, with the entries' numbers.

        Args:
            head: the head of the chain to stop at; None means all entries.

        Returns:
            a time and a number for each entry; one whose time cannot be read is left out.

        Raises:
            ValueError: the head is not in the chain.
        """
        last = math.inf if head is None else self._number_of(head)
        return entry_times(entry for entry in self.ledger.entries() if entry.sequence <= last)

    def _number_of(self, head: bytes) -> int:
        # One certificate asks for it several times, and the journal may be long; what has a head never changes.
        if head not in self._numbers:
            number = next((entry.sequence for entry in self.ledger.entries() if entry.head == head), None)
            if number is None:
                raise ValueError(f"the head {head.hex()} is not in the chain of this history")
            self._numbers[head] = number
        return self._numbers[head]

    @property
    def run(self) -> Run:
        """What the run is.

        Raises:
            NoHistoryError: nothing was recorded yet.
        """
        return self.timeline.run

    @property
    def facts(self) -> Facts:
        """The run's facts, with what happened since: whether data ever ended the training, and what is doubted.

        Raises:
            NoHistoryError: nothing was recorded yet.
        """
        return self.timeline.facts

    @property
    def identifier(self) -> str:
        """A name of this run that no other run has."""
        return self.ledger.identifier()

    def secret(self, purpose: str) -> bytes:
        """Return secret bytes for a purpose.

        Args:
            purpose: what the bytes are for.

        Returns:
            32 bytes, always the same ones for this purpose in this run, and unrelated to any other's.
        """
        return self.ledger.secret(purpose)

    @property
    def secret_file(self) -> os.PathLike[str] | None:
        """Where the secret lies, if it has a file."""
        return self.ledger.secret_file

    def writer(self) -> str | None:
        """Return in words who is writing now.

        Returns:
            the words; None if nobody is writing.
        """
        try:
            with self.ledger.writing():
                return None
        except LockedError as held:
            return str(held)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the run, so that nobody records or erases meanwhile; requests arrive all the same.

        Raises:
            LockedError: another process is writing to this run.
        """
        with self.ledger.writing():
            yield

    def round_entries(self) -> Iterator[Entry]:
        """Return the entries of all rounds that were ever recorded, also those whose numbers are erased.

        Yields:
            the entries, in order.
        """
        return self.ledger.entries(ROUND)

    def secret_problem(self) -> HistoryError | None:
        """Return why the secret file cannot be used.

        Returns:
            the error that using it would raise; None if it can be used.
        """
        try:
            self.ledger.outside_secret(RETURNING)
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
            return self.ledger.stamp_problems()
        except WrongSecretError as wrong:
            return [str(wrong)]
        except (MissingSecretError, UnsafePermissionsError):
            return None

    @property
    def head(self) -> bytes:
        """The head of the chain after the last entry, for clients to witness."""
        return self.ledger.head()

    @property
    def newest(self) -> ModelId:
        """The newest model, from which training goes on.

        Raises:
            NoHistoryError: nothing was recorded yet.
        """
        return newest_model(self.ledger, self.timeline)

    def newest_of(self, branch: int) -> ModelId:
        """Return the id of a branch's last model.

        Args:
            branch: the branch's number.

        Returns:
            the model's id.
        """
        return ModelId(branch, self.ledger.last_round(branch))

    def model(self, model_id: ModelId) -> dict[str, Tensor]:
        """Load a kept model.

        Args:
            model_id: which one.

        Returns:
            the model's tensors by name.

        Raises:
            ValueError: the model is not kept.
            MissingCheckpointError: its file is not in the store.
            DamagedCheckpointError: its file does not hold what was recorded.
        """
        kept = self.ledger.kept()
        if model_id not in kept:
            raise ValueError(f"{model_id} is not kept; kept are {', '.join(map(str, kept))}")
        return self.models.load(kept[model_id])

    def lineage(self, model_id: ModelId | None = None, group: Iterable[int] | None = None) -> Lineage:
        """Return the path of training that leads to a model.

        Args:
            model_id: the model at the end of the path; None means the newest.
            group: clients whose rounds are wanted in full, and no others; None means all rounds in full.

        Returns:
            the path, from theta_0^0 on.

        Raises:
            NoHistoryError: nothing was recorded yet.
            BrokenHistoryError: the numbers of a round on the path are gone, or the model never was.
        """
        chosen = None if group is None else sorted_group(group)
        with self.ledger.snapshot():
            timeline = self.timeline
            tip = model_id or newest_model(self.ledger, timeline)
            return lineage_of(self.ledger, timeline.branches, tip, timeline.run.facts.training, chosen)

    def clients(self, names: Sequence[str]) -> frozenset[int]:
        """Return the pseudonyms of clients.

        Args:
            names: the clients' names or labels; a label stands for everybody who has it.

        Returns:
            the pseudonyms.

        Raises:
            UnknownClientError: nobody is called so, or the client was forgotten and its name erased.
            ValueError: ``names`` is a single string, or holds something that is not a valid name.
        """
        if isinstance(names, str):
            raise ValueError(f"names is {names!r}; give a list of names")
        pseudonyms = self.ledger.pseudonyms(names)
        unknown = [name for name in names if name not in pseudonyms]
        called: dict[str, list[int]] = {}
        for client, label in self.ledger.labels().items() if unknown else ():
            called.setdefault(label, []).append(client)
        same = frozenset(client for name in unknown for client in called.get(name, ()))
        unknown = [name for name in unknown if name not in called]
        if unknown:
            gone, unsure = set[str](), ""
            try:
                gone = self.ledger.forgotten(unknown, unknown)
            except (MissingSecretError, UnsafePermissionsError) as missing:
                unsure = f". Whether it was forgotten cannot be told: {missing}"
            if gone:
                raise UnknownClientError(
                    f"{', '.join(map(repr, sorted(gone)))} was forgotten, and its name erased: nothing is left to do"
                )
            everybody = list({**self.ledger.identities(), **called})
            # Of more names the search would take longer than people wait.
            near = get_close_matches(unknown[0], everybody, n=3) if len(everybody) <= 10_000 else []
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ", or it has not taken part yet"
            raise UnknownClientError(f"no client is called {', '.join(map(repr, unknown))} here{hint}{unsure}")
        return same.union(pseudonyms.values())

    def digest_of(self, model_id: ModelId) -> str | None:
        """Return the SHA-256 of a model as it was recorded.

        Args:
            model_id: which model.

        Returns:
            the digest; None if the model's round was erased since.
        """
        if not model_id.round:
            return self.timeline.branches[model_id.branch].model
        rounds = self.ledger.rounds(Span(model_id.branch, model_id.round, model_id.round))
        return next((round_.model for round_ in rounds), None)

    def kept(self) -> dict[ModelId, str]:
        """Return the digests of the kept models.

        Returns:
            the SHA-256 of each kept model, by id.
        """
        return self.ledger.kept()

    def known_names(self) -> dict[str, int]:
        """Return all names that are known, with their pseudonyms.

        Returns:
            the pseudonyms by name.
        """
        return self.ledger.identities()

    def names(self, clients: Iterable[int]) -> list[str]:
        """Return the names of clients.

        Args:
            clients: the clients' pseudonyms.

        Returns:
            the names that are not erased, in the order of the pseudonyms.
        """
        return list(self.ledger.names(sorted_group(clients)).values())

    def copies(self) -> tuple[str, ...]:
        """Return in words where the database copies what is written to it, out of reach of every erasure.

        Returns:
            a sentence for each such place.
        """
        return self.ledger.copies()

    def describe_groups(self, groups: Sequence[Iterable[int]]) -> list[list[str]]:
        """Return what people call the clients of each group.

        Args:
            groups: groups of pseudonyms.

        Returns:
            for each group the clients' labels, or their names where there is no label; of erased clients the
                pseudonyms.
        """
        return requests.name_groups(self.ledger, groups)

    def is_stale(self, plan: RecordedPlan) -> bool:
        """Return whether a plan no longer fits the history.

        Args:
            plan: a recorded plan.

        Returns:
            True if the history has changed since the plan was made, or one of its requests is not open any more.
        """
        return requests.is_stale(self.ledger, self.timeline, plan)

    def last_change(self) -> int:
        """Return the number of the last entry that a plan depends on.

        Returns:
            the entry's number; 0 if there is none.
        """
        return requests.last_change(self.ledger, self.timeline)

    def are_unknown(self, asked: Sequence[Request]) -> list[bool]:
        """Return for each request whether the newest model knows none of its clients.

        Args:
            asked: the requests.

        Returns:
            for each request, in order, True if none of its clients ever touched the newest model.
        """
        return requests.are_unknown(self.ledger, self.timeline, asked)

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
        timeline = self.timeline
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
        known, leaving = self.ledger.pseudonyms(names), self._leaving()
        gone = self.ledger.forgotten([name for name in names if name not in known], leaving=leaving)
        return [name for name in names if name not in gone and known.get(name) not in leaving]

    def _leaving(self) -> set[int]:
        return {client for filed in self.timeline.requests if not filed.dropped for client in filed.request.group}

    def barred(self, labels: Mapping[str, str]) -> frozenset[str]:
        """Return which clients are forgotten ones: by their names, or new names under labels of those who left.

        Args:
            labels: what people call the clients, by name.

        Returns:
            the names of those who stay outside until they are readmitted.

        Raises:
            MissingSecretError: the secret file is not at hand, by which forgotten names are recognised.
        """
        asked = (self.timeline.last, tuple(labels.items()))
        barred = self._barred.get(asked)
        if barred is None:
            barred = self._find_barred(labels)
            self._barred = {asked: barred}
        return barred

    def _find_barred(self, labels: Mapping[str, str]) -> frozenset[str]:
        known, called = self.ledger.pseudonyms(list(labels)), self.ledger.labels()
        # Whoever is known is its name, whatever people call it; unless nobody has written down what they do.
        new = {name: label for name, label in labels.items() if known.get(name) not in called}
        if not new:
            return frozenset()
        leaving = self._leaving()
        # Where keys were not registered yet the name was what people say.
        called_so = list({*new, *new.values()})
        gone = self.ledger.forgotten(called_so, called_so, leaving)
        gone.update(label for client, label in called.items() if client in leaving)
        return frozenset(name for name, label in new.items() if (name in gone and name not in known) or label in gone)

    def waiting(self) -> list[FiledRequest]:
        """Return the open requests whose clients the newest model knows.

        While there is one, the newest model is not released.

        Returns:
            the requests.
        """
        # Asked for in every round, and requests are rare: as long as none is open, no more than this is read.
        seen = self.timeline.last
        if seen != self._seen:
            self._seen, self._known = seen, []
            self._unknown = list(self.timeline.open_requests.values())
            self._looked = None
        if self._unknown:
            known = self._found_known(self._unknown)
            self._known += known
            self._unknown = [asked for asked in self._unknown if asked not in known]
        return list(self._known)

    def _found_known(self, waiting: Sequence[FiledRequest]) -> list[FiledRequest]:
        """Return those of the requests whose clients the newest model knows; of a branch only new rounds are read."""
        facts, tip, looked = self.run.facts, self.newest, self._looked
        if looked is None or looked.branch != tip.branch or facts.redrawn_rounds:
            unknown = self.are_unknown([asked.request for asked in waiting])
            known = [asked for asked, not_known in zip(waiting, unknown, strict=True) if not not_known]
        else:
            # Somebody who asked while a round was under way is part of that round.
            rounds = self.ledger.rounds(Span(tip.branch, looked.round + 1, tip.round)) if tip != looked else ()
            joined = {client for round_ in rounds for client in round_.clients.tolist()}
            known = [asked for asked in waiting if joined & asked.request.group]
        self._looked = tip
        return known

    def first_weights(self, names: Sequence[str]) -> dict[str, float]:
        """Return the weight with which each client first took part, as far as that is recorded.

        Args:
            names: the clients' names.

        Returns:
            the weights by name, without the clients of whom none is recorded.
        """
        weights = {}
        for name, client in self.ledger.pseudonyms(names).items():
            for model_id in self.ledger.rounds_of(sorted_group([client]))[:1]:
                (round_,) = self.ledger.rounds(Span(model_id.branch, model_id.round, model_id.round))
                weights[name] = float(round_.participants["weight"][round_.clients == client][0])
        return weights

    def removals(self, names: Sequence[str]) -> dict[str, int]:
        """Return of clients that stay without some of their rows the last request that said so.

        Args:
            names: the clients' names.

        Returns:
            the requests' numbers by name, without those of whom no rows were to go.

        Raises:
            MissingSecretError: the secret file is not at hand.
        """
        asked = requests.rows_asked(self.ledger, self.timeline, names)
        return {name: number for number, named in asked.items() for name in named}

    def name_rows(self, name: str, number: int, root: str) -> None:
        """Record, once for each request, by which root a client commits to the rows that it leaves out.

        Args:
            name: the client's name.
            number: the request's number.
            root: the root, a SHA-256 in hexadecimal.

        Raises:
            ValueError: the request is not about rows of this client, or ``root`` is no SHA-256.
        """
        check_digest(root)
        if name not in requests.rows_asked(self.ledger, self.timeline, [name]).get(number, ()):
            raise ValueError(f"request {number} is not about rows of {name!r}")
        own = requests.blind_name(requests.receipt(self.ledger, name), name)
        if (number, own) not in ((event.request, event.client) for _, event in self.timeline.of(RowsNamed)):
            record(self.ledger, RowsNamed(number, own, root), self._now())

    def summary(self, group: Iterable[int]) -> Summary:
        """Return what planning needs to know to forget a group.

        Args:
            group: the pseudonyms of the clients to forget.

        Returns:
            the summary of the path to the newest model.

        Raises:
            ValueError: no round has been trained on the newest model's line yet.
            NoHistoryError: nothing was recorded yet.
        """
        with self.ledger.snapshot():
            timeline = self.timeline
            run, owed = timeline.run, find_obligations(timeline)
            hidden = (client for obligation in owed for client in obligation.request.group)
            everybody, tip = sorted_group({*group, *hidden}), newest_model(self.ledger, timeline)
            path = lineage_of(self.ledger, timeline.branches, tip, run.facts.training, everybody)
            if not path.trained[-1]:
                raise ValueError("no round has been trained on this line yet: there is nothing to plan")
            on_path = {model_id: digest for model_id, digest in self.kept().items() if model_id in path.index}
            kept = {path.index[model_id]: model_id for model_id in on_path}
            # A branch that starts without noise gives its parent's node a second name: either may be set aside.
            eligible = {path.index[model_id] for model_id in self._eligible(timeline, on_path)}
        return Summary(
            edges=path.edges,
            kept=[Node(at, kept[at].branch, kept[at].round, at in eligible) for at in sorted(kept)],
            facts=timeline.facts,
            curve=self._curve(path, {node: on_path[model_id] for node, model_id in kept.items()}, run),
            parameters=run.parameters,
            head_parameters=count_parameters(run.head),
            owed=owed,
            behind_noise=path.behind_noise,
            grid=run.grid,
        )

    def _eligible(self, timeline: Timeline, kept: Collection[ModelId]) -> Collection[ModelId]:
        """Return those of the kept models that are there whatever anybody's data are."""
        run = timeline.run
        if run.goal is None or run.facts.public_schedule:
            return kept
        return exact_places(kept, timeline.branches, self.ledger.last_round, run.capacity)

    def outcomes(self) -> list[Outcome]:
        """Return what became of all requests that were served to the end, and what may be claimed of them.

        Returns:
            the outcomes, in the order in which the requests were served.
        """
        return list(find_outcomes(self.timeline).values())

    def verify(self, witnessed: Collection[bytes] = ()) -> list[str]:
        """Return in words everything that does not agree with the chain.

        The ledger is read as it was at one moment. Files are not: what seems wrong with them while somebody writes is
        looked at again.

        Args:
            witnessed: heads of the chain that clients were handed, which have to be in it.

        Returns:
            a sentence for each problem; empty if everything agrees.
        """
        with self.ledger.snapshot():
            problems = _read_all(lambda: verification.find_ledger_problems(self.ledger, witnessed))
        for _ in range(_LOOKS):
            before = self.head
            with_files = _read_all(lambda: verification.find_file_problems(self.ledger, self.models, self.objects))
            if not with_files or self.head == before:
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
        with self.ledger.snapshot():
            check_numbers(self.ledger)
            # What was read before may have been changed back since.
            self._read = (Timeline(), 0)
            yield

    # Writing

    @contextmanager
    def recording(
        self,
        facts: Facts,
        start: Mapping[str, Tensor],
        *,
        capacity: int = 32,
        goal: Goal | None = None,
        write_behind: bool = True,
    ) -> Iterator[Recorder]:
        """Hold the run and record its rounds, resuming an existing run where it stands.

        Erasures that were interrupted are finished first, and files that nothing refers to are removed.

        Args:
            facts: what claims rest on. When a run goes on, they have to be those recorded.
            start: theta_0^0, which is public. When a run goes on, its tensors need the recorded names, types and
                shapes; its numbers are not looked at.
            capacity: how many checkpoints to keep beside theta_0^0 and the newest model.
            goal: the guarantee for which checkpoints are placed.
            write_behind: whether a round may be written while clients train the next one.

        Yields:
            the recorder of the run.

        Raises:
            LockedError: another process is writing to this run.
            RunMismatchError: the run that was recorded is another one.
            BrokenHistoryError: somebody added or changed an entry without the secret, or changed the list of erased
                names.
            MissingSecretError: the secret file is not at hand.
            ValueError: ``capacity`` is below 1, or the loss is not one for such tensors.
        """
        with self.ledger.writing():
            self.ledger.check_stamps()
            erasure.check_suppression(self.ledger)
            self._check_run(Run(facts, describe_model(start), capacity, goal))
            self._recover()
            if not self.timeline.branches:
                model = self.models.put(start)
                self.ledger.start_branch(0, model, write_body(Branch(0, model)), self._now())
            with ThreadPoolExecutor(1, "rescind-writer") as thread:
                self._thread = thread
                # In memory nothing has to be waited for.
                behind = thread if write_behind and not self._ends_here else None
                recorder = Recorder(self.ledger, self.models, self.run, self._eraser(), self._clock, behind)
                try:
                    yield recorder
                except BaseException as failure:
                    try:
                        recorder.finish_writing()
                    except Exception as lost:
                        failure.add_note(f"{recorder.model_id} is the last model that is recorded: {lost}")
                    raise
                else:
                    recorder.finish_writing()
                    # Unless the history was closed meanwhile.
                    if self._thread is not None:
                        recorder.keep_bounds()
                finally:
                    recorder.retire()

    def ask(
        self,
        names: Sequence[str],
        budget: Budget,
        *,
        scope: PrivacyScope = PrivacyScope.GROUP,
        releases: int = 1,
        deadline: datetime | None = None,
        sender: Sender = OPERATOR,
    ) -> int:
        """Record that clients ask to be forgotten; also while training runs.

        Args:
            names: the clients' names or labels.
            budget: the (epsilon, delta) that the request asks for.
            scope: whose removal is hidden.
            releases: how many releases the budget is for.
            deadline: when the request has to be served, with a time zone, a year from now at most. None means a month
                from now, as in GDPR art. 12.
            sender: who asked, and what shows it.

        Returns:
            the request's number, counted from 1 in the order of arrival.

        Raises:
            UnknownClientError: nobody is called so, or the client was forgotten and its name erased.
            ValueError: nobody is named, ``budget`` is no budget, ``releases`` is below 1, another request is about
                some of these clients already, the deadline is out of range, there are more clients than a certificate
                can list, it is to hide everybody who left and somebody was readmitted, or this machine's clock is not
                set.
            BrokenHistoryError: somebody changed the ledger, a name for instance.
            MissingSecretError: the secret file is not at hand.
        """
        request, now = Request(self.clients(names), budget, scope, releases), self._clock()
        if not _YEARS[0] <= now.year < _YEARS[1]:
            raise ValueError(f"this machine's clock says {now.isoformat()}: set it, then ask")
        if deadline is not None and (deadline.tzinfo is None or deadline < now):
            raise ValueError(
                f"the deadline, {deadline.isoformat()}, has no time zone or has passed: give a later one"
            )
        if deadline is not None and deadline > now + _LONGEST_WAIT:
            raise ValueError(
                f"the deadline, {deadline.isoformat()}, is more than a year away: nobody waits so long, give an "
                "earlier one"
            )
        return requests.ask(self.ledger, request, now, deadline or add_months(now, 1), sender)

    def label(self, labels: Mapping[str, str]) -> None:
        """Record what people call clients.

        Args:
            labels: the labels by name; names that are not known are passed over.

        Raises:
            ValueError: a name or a label is not a text of 1 to 256 characters without NUL.
            MissingSecretError: the secret file is not at hand.
        """
        self.ledger.label(labels, self._now())

    def receipt(self, name: str) -> str:
        """Return what a client needs to find itself in a certificate; for that client only.

        Args:
            name: the client's name.

        Returns:
            the receipt, in hexadecimal.

        Raises:
            MissingSecretError: the secret file is not at hand.
        """
        return requests.receipt(self.ledger, name).hex()

    def extend(self, number: int, days: int, reason: str) -> str:
        """Record that an open request may be served later, and why.

        Args:
            number: the request's number.
            days: how many days later, at least 1; two months in all.
            reason: why, in at most 1,000 characters and without names; it stays in the history.

        Returns:
            the new deadline, in ISO 8601.

        Raises:
            ValueError: the request is not open, the reason is empty or too long, or it would be too many days.
            MissingSecretError: the secret file is not at hand.
        """
        return requests.extend(self.ledger, number, days, reason, self._clock()).isoformat()

    def withdraw(self, number: int, reason: str = "") -> None:
        """Record that an open request was taken back.

        Args:
            number: the request's number.
            reason: why, in at most 1,000 characters and without names; it stays in the history.

        Raises:
            ValueError: the request is not open, or the reason is too long.
            MissingSecretError: the secret file is not at hand.
        """
        requests.withdraw(self.ledger, number, self._clock(), reason)

    def approve(self, number: int, by: str, sign: decisions.Sign | None = None) -> PlanApproved:
        """Record that a named person agrees to the recorded plan of an open request.

        Args:
            number: the request's number.
            by: who agrees; it stays in the history.
            sign: returns the raw public key and the signature of a text, both in hexadecimal.

        Returns:
            what was recorded.

        Raises:
            ValueError: the request is not open, has no recorded plan, or ``by`` cannot be a name.
            StalePlanError: the history has changed since it was planned.
            MissingSecretError: the secret file is not at hand.
        """
        return decisions.approve(self.ledger, number, by, sign, self._now())

    def refuse(self, number: int, by: str, reason: str) -> None:
        """Record that a named person decided not to serve an open request.

        Args:
            number: the request's number.
            by: who decided; it stays in the history.
            reason: why, in at most 1,000 characters and without names of clients; it stays in the history.

        Raises:
            ValueError: the request is not open, the reason is empty or too long, or ``by`` cannot be a name.
            MissingSecretError: the secret file is not at hand.
        """
        decisions.refuse(self.ledger, number, by, reason, self._now())

    def name_run(
        self, *, operator: str | None = None, federation: str | None = None, model: str | None = None
    ) -> None:
        """Record what people call this run; certificates and reports from then on say it.

        Args:
            operator: who runs the federation; None leaves what was said before, here and below.
            federation: the federation.
            model: the model that it trains.

        Raises:
            ValueError: a name has not 1 to 256 characters, or some that nobody sees.
            MissingSecretError: the secret file is not at hand.
        """
        new = {"operator": operator, "federation": federation, "model": model}
        before = self.timeline.names
        names = replace(before, **{role: name for role, name in new.items() if name is not None})
        if names != before:
            record(self.ledger, names, self._now())

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
        return requests.readmit(self.ledger, name, reason, self._clock())

    def record_plan(self, plan: RecordedPlan) -> RecordedPlan:
        """Record how open requests are going to be served.

        Args:
            plan: the plan.

        Returns:
            the plan as it was recorded, with its predicted rounds rounded.

        Raises:
            ValueError: one of its requests is not open.
            MissingSecretError: the secret file is not at hand.
        """
        return requests.record_plan(self.ledger, plan, self._clock())

    def settle(self, number: int) -> None:
        """Serve a request without a restart, which is possible if none of its clients ever touched the newest model.

        Args:
            number: the request's number.

        Raises:
            ValueError: the request is not open, or the newest model knows one of its clients.
            LockedError: another process is writing to this run.
            MissingSecretError: the secret file is not at hand.
        """
        with self.ledger.writing():
            requests.settle(self.ledger, number, self._now())
            erasure.free_names(self.ledger, self.timeline)

    def lift_doubts(self, reason: str) -> tuple[Doubt, ...]:
        """Record why the declared training is right although it was doubted.

        It is the operator's word; what was planned while the doubts stood stays what it was.

        Args:
            reason: why.

        Returns:
            the doubts that this lifts.

        Raises:
            ValueError: the reason is empty, or there is no doubt to lift.
            MissingSecretError: the secret file is not at hand.
        """
        return requests.lift_doubts(self.ledger, reason, self._clock())

    def plan_erasure(self, level: ErasureLevel = ErasureLevel.PURGE) -> ErasurePlan:
        """List what has to be erased of all clients that were forgotten, without touching anything.

        Args:
            level: how much to erase.

        Returns:
            the plan, for ``erase``.

        Raises:
            NoHistoryError: nothing was recorded yet.
        """
        return erasure.plan_erasure(self.ledger, level, self.run.facts.training)

    def erase(self, plan: ErasurePlan) -> tuple[str, ...]:
        """Erase by a plan, step by step.

        If it is interrupted, whoever records or erases next finishes it.

        Args:
            plan: what ``plan_erasure`` returned.

        Returns:
            in words, what could not be reached.

        Raises:
            ValueError: the history has changed since the erasure was planned.
            BrokenHistoryError: somebody changed the ledger, a name for instance.
            LockedError: another process is writing to this run.
            MissingSecretError: the secret file is not at hand.
            StillReadError: another process is reading; call ``finish_erasures`` once it has ended.
        """
        with self.ledger.writing():
            return self._eraser().erase(plan, self._now())

    def finish_erasures(self) -> int:
        """Finish erasures that were interrupted.

        Returns:
            how many there were.

        Raises:
            LockedError: another process is writing to this run.
            BrokenHistoryError: there is one to finish, and somebody added an entry without the secret.
            MissingSecretError: there is one to finish, and the secret file is not at hand.
            StillReadError: another process is reading; call again once it has ended.
        """
        with self.ledger.writing():
            begun = len(self.timeline.unfinished_deletions)
            self._eraser().finish(self._now())
        return begun

    def _recover(self) -> None:
        eraser = self._eraser()
        eraser.finish(self._now())
        eraser.sweep()

    def _eraser(self) -> erasure.Eraser:
        return erasure.Eraser(self.ledger, self.models, self.objects, self.run.facts.training)

    def _check_run(self, run: Run) -> None:
        if not any(self.timeline.of(Run)):
            record(self.ledger, run, self._now())
        else:
            self.run.check_same(run)

    def _curve(self, path: Lineage, kept: Mapping[int, str], run: Run) -> RecoveryCurve:
        """Measure how far each kept model, given by its digest, is from the next one and from the first."""
        nodes = sorted(kept)
        moves, travelled = self._measure_moves([kept[node] for node in nodes])
        return RecoveryCurve.measured(
            nodes=np.array(nodes, dtype=np.float64),
            trained=np.array([path.trained[node] for node in nodes], dtype=np.float64),
            solved=np.cumsum([0, *map(is_solvers, path.edges)], dtype=np.float64)[nodes],
            moves=moves,
            travelled=travelled,
            parameters=run.parameters,
            training=run.facts.training,
        )

    def _measure_moves(self, models: Sequence[str]) -> tuple[Floats, Floats]:
        """Measure how far each stored model is from the one before it, and from the first; one tensor at a time."""
        squares = np.zeros((2, len(models)))
        # Each is read once, and few at once: a bucket has only so many connections.
        for start in range(1, len(models), _MODELS_AT_ONCE):
            together = [models[0], *models[start - 1 : start + _MODELS_AT_ONCE]]
            streams = [self.models.stream(model) for model in together]
            for tensors in _in_turn(streams):
                (_, first), (_, before) = next(tensors), next(tensors)
                for at, (_, tensor) in enumerate(tensors, start=start):
                    for row, other in enumerate((before, first)):
                        squares[row, at] += float(np.square(np.subtract(tensor, other, dtype=np.float64)).sum())
                    before = tensor
        moves, travelled = np.sqrt(squares)
        return moves[1:], travelled

    def _now(self) -> str:
        return self._clock().isoformat()


def _in_turn(streams: Sequence[Iterator[Item]]) -> Iterator[Iterator[Item]]:
    """Yield what the streams have next, one after the other, until all have ended; so only a few are in memory."""
    for first in streams[0]:
        yield chain([first], map(_take, streams[1:]))
    for stream in streams[1:]:
        # Its end is where its digest is checked.
        if next(stream, None) is not None:
            raise ValueError(_OTHER_TENSORS)


def _take(stream: Iterator[Item]) -> Item:
    for item in stream:
        return item
    raise ValueError(_OTHER_TENSORS)


def _read_all(problems: Callable[[], Iterator[str]]) -> list[str]:
    """Return the problems, with that of values that cannot be read as the last."""
    collected = []
    try:
        for problem in problems():
            collected.append(problem)  # noqa: PERF402, what was found before an error is told as well
    except UNREADABLE as broken:
        collected.append(f"the rest cannot be read: {broken}")
    return collected
