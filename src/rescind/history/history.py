"""The history of a run as its users meet it: open, record, ask, plan, erase, verify."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from rescind.checkpoints.store import CheckpointStore, MemoryStore
from rescind.core.arrays import Floats, Tensor
from rescind.core.edges import ModelId, is_solvers, sorted_group
from rescind.core.facts import Facts
from rescind.core.recovery import RecoveryCurve
from rescind.core.summary import Node, Summary
from rescind.errors import (
    LockedError,
)
from rescind.history.erasure import Eraser, plan_erasure
from rescind.history.events import DoneByLogin, DoubtsLifted, write_body
from rescind.history.integrity import Integrity
from rescind.history.journal import Journal
from rescind.history.lineage import Lineage, lineage_of
from rescind.history.locations import expand_home, open_stores
from rescind.history.outcomes import Outcome, find_obligations, find_outcomes
from rescind.history.participants import Participants, check_reason
from rescind.history.recorder import Recorder
from rescind.history.requests import Requests
from rescind.history.retention import exact_places
from rescind.history.run import Goal, Run, count_parameters, describe_model
from rescind.history.sums import KeptSums
from rescind.history.tampering import check_suppression
from rescind.history.timeline import Doubt, Timeline, newest_model, newest_model_at
from rescind.ledger.contract import ROUND, Ledger
from rescind.ledger.memory import MemoryLedger
from rescind.ledger.records import Branch, Entry, ErasureLevel, ErasurePlan, Span

Item = TypeVar("Item")

# So many kept models are read side by side.
_MODELS_AT_ONCE = 8
_OTHER_TENSORS = "two kept models have not the same tensors: somebody changed one of them"


class History:
    """What happened in a run, kept durably in a folder, or in a PostgreSQL database and a place for the models.

    >>> history = History("hospital-history")                                          # doctest: +SKIP
    >>> history = History("postgresql://rescind@db/federation", checkpoints="s3://bucket/federation",
    ...                   run="spring", secret="/etc/rescind/spring.secret")           # doctest: +SKIP

    ``requests`` has what was asked and decided, ``participants`` who takes part, ``integrity`` whether all is as it
    was recorded, ``sums`` what a ridge head is solved from. Reading needs neither the secret file nor a lock; whoever
    records or erases is alone (``recording``, ``erase``).

    Args:
        location: a folder, or a PostgreSQL address. A folder that does not exist is made, with mode 700. Here and
            in the other places ``~`` is the home folder.
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
        self.location = expand_home(location)

    @classmethod
    def in_memory(cls, ledger: MemoryLedger | None = None) -> Self:
        """Make a history that ends when it is closed, for experiments that keep nothing.

        Args:
            ledger: what was recorded; None begins with nothing.

        Returns:
            the history, without any models.
        """
        history = cls.__new__(cls)
        history._set_up(ledger or MemoryLedger(), MemoryStore(), MemoryStore())
        return history

    def _set_up(self, ledger: Ledger, models: CheckpointStore, objects: CheckpointStore) -> None:
        self.ledger, self.models, self.objects = ledger, models, objects
        self.journal = Journal(ledger)
        self.participants = Participants(self.journal)
        self.requests = Requests(self.journal, self.participants)
        self.integrity = Integrity(self.journal, models, objects)
        self.sums = KeptSums(self.journal, objects)
        # As it was given; in memory there is none.
        self.location = ""
        self._thread: ThreadPoolExecutor | None = None
        self._newest: dict[int, ModelId] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close files and connections. A round that is being written is written first."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self.ledger.close()

    @property
    def timeline(self) -> Timeline:
        """What the journal tells, up to now."""
        return self.journal.timeline

    def timeline_at(self, head: bytes) -> Timeline:
        """Return what the journal told when a given head was the head of the chain.

        Args:
            head: a head that the chain of this history had.

        Returns:
            the timeline up to that entry.

        Raises:
            ValueError: the head is not in the chain.
        """
        return self.timeline.until(self.journal.number_of(head))

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
        last = self.journal.number_of(head)
        last = last if before is None else min(last, before)
        # A report asks for it once a request, and there may be many of both; what was the newest then stays so.
        if last not in self._newest:
            self._newest[last] = newest_model_at(self.ledger, self.timeline, last)
        return self._newest[last]

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

    @contextmanager
    def credit(self, login: str, role: str) -> Iterator[None]:
        """Note in the journal for which login at the desk something is done, together with it or not at all.

        Args:
            login: what the login is called; it stays in the journal.
            role: in which role it acts.

        Yields:
            Nothing; inside, what is recorded is one entry.

        Raises:
            MissingSecretError: on entering it, the secret file is not at hand.
        """
        with self.ledger.turn():
            before = self.ledger.last_entry()
            yield
            done = self.ledger.last_entry()
            if done is not None and done != before:
                self.journal.record(DoneByLogin(done.sequence, login, role))

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
            check_suppression(self.ledger)
            self._check_run(Run(facts, describe_model(start), capacity, goal))
            self._recover()
            self.participants.read_again()
            if not self.timeline.branches:
                model = self.models.put(start)
                self.ledger.start_branch(0, model, write_body(Branch(0, model)), self.journal.now())
            with ThreadPoolExecutor(1, "rescind-writer") as thread:
                self._thread = thread
                # In memory nothing has to be waited for.
                behind = thread if write_behind and not isinstance(self.ledger, MemoryLedger) else None
                recorder = Recorder(self.journal, self.models, self.run, self._eraser(), self.sums, behind)
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

    def name_run(
        self,
        *,
        operator: str | None = None,
        federation: str | None = None,
        model: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """Record what people call this run; certificates and reports from then on say it.

        Args:
            operator: who runs the federation; None leaves what was said before, here and below.
            federation: the federation.
            model: the model that it trains.
            protocol: the protocol, or the vote of a committee, by which its cohort was approved.

        Raises:
            ValueError: a name has not 1 to 256 characters, or some that nobody sees.
            MissingSecretError: the secret file is not at hand.
        """
        new = {"operator": operator, "federation": federation, "model": model, "protocol": protocol}
        before = self.timeline.names
        names = replace(before, **{role: name for role, name in new.items() if name is not None})
        if names != before:
            self.journal.record(names)

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
        check_reason(reason, "a doubt is not lifted")
        lifted = self.timeline.standing_doubts
        if not lifted:
            raise ValueError("there is no doubt to lift: `rescind doubts` lists what was recorded")
        self.journal.record(DoubtsLifted(reason))
        return lifted

    def plan_erasure(self, level: ErasureLevel = ErasureLevel.PURGE) -> ErasurePlan:
        """List what has to be erased of all clients that were forgotten, without touching anything.

        Args:
            level: how much to erase.

        Returns:
            the plan, for ``erase``.

        Raises:
            NoHistoryError: nothing was recorded yet.
        """
        return plan_erasure(self.journal, level)

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
            return self._eraser().erase(plan)

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
            self._eraser().finish()
        return begun

    def _recover(self) -> None:
        eraser = self._eraser()
        eraser.finish()
        eraser.sweep()

    def _eraser(self) -> Eraser:
        return Eraser(self.journal, self.models, self.objects)

    def _check_run(self, run: Run) -> None:
        if not any(self.timeline.of(Run)):
            self.journal.record(run)
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
