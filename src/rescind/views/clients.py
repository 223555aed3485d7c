"""The clients that a history knows: what people call them, how they stand, who is in which model and who is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import numpy as np

from rescind.core.arrays import Clients
from rescind.core.edges import NOBODY, ModelId, RoundEdge, sorted_group
from rescind.core.facts import PrivacyScope, Sampling, Source
from rescind.history.bounds import read_bounds
from rescind.history.events import ClientsReadmitted, RepliesRejected
from rescind.history.history import History
from rescind.history.lineage import find_body, lineage_of
from rescind.history.outcomes import find_outcomes
from rescind.history.participants import is_key_name
from rescind.history.run import Run
from rescind.history.timeline import Timeline, newest_model
from rescind.ledger.contract import ROUND, Ledger
from rescind.ledger.records import Span
from rescind.texts import natural_order


class ClientState(Enum):
    """How a client stands.

    ``SILENT`` is one that could take part, and of whom the last round has no reply although it is one of everybody:
    it was away, or failed, or did not answer. Where participants are drawn nobody is called silent: who is absent may
    not have been asked. A pseudonym that is ``FORGOTTEN`` has no name any more. The client of a ``READMITTED``
    one may take part again, as a new client, and that of a ``ROWS_FORGOTTEN`` one goes on under another pseudonym.
    """

    ACTIVE = "active"
    SILENT = "silent"
    LEAVING = "asked to leave"
    LEAVING_ROWS = "asked to forget rows"
    FORGOTTEN = "forgotten"
    ROWS_FORGOTTEN = "rows forgotten"
    READMITTED = "readmitted"


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A client as the history has it: ``rounds`` and ``last`` are about rounds that are still recorded.

    ``name`` is None once it is erased. ``key`` is the fingerprint of its public key, where clients are known by that.
    ``label`` is what people call it, None if that was not said. ``last_time`` is when ``last`` was recorded.
    ``inside`` says whether it took part on the way to the model that was asked about; ``left_out`` whether it may
    take part, and the newest model is without it.
    """

    pseudonym: int
    name: str | None
    label: str | None
    key: str | None
    state: ClientState
    rounds: int
    last: ModelId | None
    last_time: str | None
    inside: bool
    left_out: bool

    @property
    def called(self) -> str:
        """What people call it, or its name, or else its pseudonym."""
        return self.label or self.name or f"forgotten (pseudonym {self.pseudonym})"


@dataclass(frozen=True, slots=True)
class Outsider:
    """A client that may take part and is left out of the newest model; ``since`` is when it last took part.

    A solution leaves out whoever fell silent while it was made, too.
    """

    client: str
    pseudonym: int
    last: ModelId | None
    since: str | None

    def __str__(self) -> str:
        last = "in no round that is still recorded"
        if self.since:
            last = f"last took part {self.since[:16].replace('T', ' ')}"
        return f"{self.client} ({last})"


def list_clients(history: History, model_id: ModelId | None = None) -> tuple[KnownClient, ...]:
    """Return the clients that a history knows, as they are at one moment.

    Args:
        history: the history.
        model_id: in which model they are or are not; None means the newest.

    Returns:
        the clients in the order in which people look for them: client-2 before client-10.

    Raises:
        BrokenHistoryError: the model never was, or rounds before it were erased: nobody can tell who is in it.
    """
    ledger = history.ledger
    with ledger.snapshot():
        timeline = history.timeline
        inside = find_inside(ledger, timeline, model_id) if timeline.branches else frozenset[int]()
        solved_for = find_solved_for(ledger, timeline) if timeline.branches else frozenset[int]()
        names = {client: name for name, client in ledger.identities().items()}
        labels, (rounds, newest) = ledger.labels(), _count_rounds(ledger, timeline)
        times = {entry.model_id: entry.time for entry in ledger.entries(ROUND)}
        states = find_states(ledger, timeline)
    # Where nobody checks who a client is, it may say such a name of itself.
    checked = any(run.facts.sources.identity is Source.CHECKED for _, run in timeline.of(Run))
    clients = []
    for client, state in states.items():
        name, last = names.get(client), newest.get(client)
        clients.append(
            KnownClient(
                pseudonym=client,
                name=name,
                label=labels.get(client),
                key=name if checked and name is not None and is_key_name(name) else None,
                state=state,
                rounds=rounds.get(client, 0),
                last=last,
                last_time=None if last is None else times.get(last),
                inside=client in inside,
                left_out=client in names and client not in timeline.leaving and client not in solved_for,
            )
        )
    return tuple(sorted(clients, key=lambda client: (natural_order(client.called), client.pseudonym)))


def find_inside(ledger: Ledger, timeline: Timeline, model_id: ModelId | None = None) -> frozenset[int]:
    """Return who took part on the way to a model: it may know them, also those whom its solution leaves out.

    Read within ``snapshot`` if somebody may be writing.

    Args:
        ledger: the ledger.
        timeline: the journal's.
        model_id: the model; None means the newest.

    Returns:
        the pseudonyms, without those of whoever was forgotten.

    Raises:
        BrokenHistoryError: the model never was, or rounds before it were erased: nobody can tell who is in it.
    """
    newest = newest_model(ledger, timeline)
    wanted = model_id or newest
    if wanted == newest:
        return frozenset(read_bounds(ledger, timeline).tracker.state().clients.tolist()) - timeline.forgotten
    path = lineage_of(ledger, timeline.branches, wanted, timeline.run.facts.training)
    joined = [NOBODY, *(edge.clients for edge in path.edges if isinstance(edge, RoundEdge))]
    return frozenset(np.concatenate(joined).tolist())


def find_solved_for(ledger: Ledger, timeline: Timeline) -> frozenset[int]:
    """Return for whom the newest model is: of a solution those who are in it to the end, else all inside."""
    newest = newest_model(ledger, timeline)
    if newest not in timeline.solved:
        return find_inside(ledger, timeline)
    rounds = ledger.rounds(Span(newest.branch, newest.round, newest.round))
    return frozenset(client for round_ in rounds for client in round_.clients.tolist()) - timeline.forgotten


def find_outsiders(history: History, solved_for: frozenset[int] | None = None) -> tuple[Outsider, ...]:
    """Return who may take part and is left out of the newest model: was away, failed, or came back since.

    Args:
        history: the history.
        solved_for: for whom that model is, if it is known already.

    Returns:
        the clients that took part or answered before, in the order in which people look for them.
    """
    ledger = history.ledger
    with ledger.snapshot():
        timeline = history.timeline
        if not timeline.branches:
            return ()
        inside = find_solved_for(ledger, timeline) if solved_for is None else solved_for
        # To read a million names takes seconds.
        if not _count(ledger, timeline, inside):
            return ()
        outside = sorted_group({*ledger.identities().values()} - timeline.leaving - inside)
        last = _find_last(ledger, outside)
        wanted = {*last.values()}
        times = {entry.model_id: entry.time for entry in ledger.entries(ROUND) if entry.model_id in wanted}
        (called,) = history.participants.describe([outside.tolist()])
    outsiders = [
        Outsider(name, client, last.get(client), times.get(last[client]) if client in last else None)
        for name, client in zip(called, outside.tolist(), strict=True)
    ]
    return tuple(sorted(outsiders, key=lambda outsider: (natural_order(outsider.client), outsider.pseudonym)))


def count_outsiders(ledger: Ledger, timeline: Timeline) -> int:
    """Count those who may take part and are left out of the newest model, without reading millions of names."""
    return _count(ledger, timeline, find_solved_for(ledger, timeline)) if timeline.branches else 0


def _count(ledger: Ledger, timeline: Timeline, inside: frozenset[int]) -> int:
    return ledger.count_names() - len(ledger.names(sorted_group(timeline.leaving))) - len(inside - timeline.leaving)


def _find_last(ledger: Ledger, clients: Clients) -> dict[int, ModelId]:
    """Return in which recorded round each of some clients took part last."""
    last, missing = dict[int, ModelId](), clients
    for model_id in reversed(ledger.rounds_of(clients)):
        for round_ in ledger.rounds(Span(model_id.branch, model_id.round, model_id.round)):
            joined = np.intersect1d(missing, round_.clients)
            last |= dict.fromkeys(joined.tolist(), model_id)
            missing = np.setdiff1d(missing, joined)
        if not len(missing):
            break
    return last


def find_states(ledger: Ledger, timeline: Timeline) -> dict[int, ClientState]:
    """Return how each client that a ledger knows stands; what ends its membership counts most.

    Read within ``snapshot`` if somebody may be writing.
    """
    known = ledger.identities().values()
    return dict.fromkeys(known, ClientState.ACTIVE) | _find_others(ledger, timeline, known)


def count_states(ledger: Ledger, timeline: Timeline) -> Counter[ClientState]:
    """Count the clients in each state, without reading millions that are active where nobody can be silent."""
    if find_silent(ledger, timeline, ()) is not None:
        return Counter(find_states(ledger, timeline).values())
    others = _find_others(ledger, timeline, ())
    named = ledger.names(sorted_group(others))
    return Counter(others.values()) + Counter({ClientState.ACTIVE: ledger.count_names() - len(named)})


def _find_others(ledger: Ledger, timeline: Timeline, known: Collection[int]) -> dict[int, ClientState]:
    """Return the clients that are not just active."""
    done, leaving, rows = find_outcomes(timeline), set[int](), set[int]()
    for filed in timeline.requests:
        if not filed.dropped and filed.number not in done:
            (rows if filed.request.scope is PrivacyScope.RECORDS else leaving).update(filed.request.group)
    readmitted = {client for _, event in timeline.of(ClientsReadmitted) for client in event.clients}
    strongest_first = (
        (ClientState.READMITTED, readmitted),
        (ClientState.LEAVING, leaving),
        (ClientState.LEAVING_ROWS, rows),
        (ClientState.ROWS_FORGOTTEN, timeline.returning),
        (ClientState.FORGOTTEN, timeline.forgotten),
        (ClientState.SILENT, find_silent(ledger, timeline, known) or frozenset()),
    )
    clients = leaving.union(rows, timeline.forgotten, strongest_first[-1][1])
    return {client: next(state for state, among in strongest_first if client in among) for client in clients}


def find_silent(ledger: Ledger, timeline: Timeline, known: Collection[int]) -> frozenset[int] | None:
    """Return of whom of some clients the last recorded round has no reply; None if that cannot be told.

    It is told only where everybody was asked, and as long as the round's numbers are not erased.
    """
    runs = [run for _, run in timeline.of(Run)]
    if not runs or runs[0].facts.sampling is not Sampling.EVERYBODY or not timeline.branches:
        return None
    branch = max(timeline.branches)
    newest = ModelId(branch, ledger.last_round(branch))
    rounds = list(ledger.rounds(Span(branch, newest.round, newest.round)))
    if not rounds:
        return None
    answered = set(rounds[0].clients.tolist())
    # A reply that was of no use is an answer all the same.
    for _, event in timeline.of(RepliesRejected):
        if event.model_id == newest:
            answered.update(client for client, _ in event.rejected)
    asked = frozenset(known)
    if runs[0].facts.stages is not None:
        body = find_body(timeline.branches, timeline.bodies, newest)
        if body is None or body.model_id == newest:
            # Nobody else is asked while the body is trained.
            asked &= timeline.anchors
    return asked - answered


def _count_rounds(ledger: Ledger, timeline: Timeline) -> tuple[dict[int, int], dict[int, ModelId]]:
    """Return in how many recorded rounds each client took part, on whatever branch, and in which it did last."""
    model_ids, participants = [], [NOBODY]
    for branch in sorted(timeline.branches):
        for round_ in ledger.rounds(Span(branch, 1, ledger.last_round(branch))):
            model_ids.append(round_.model_id)
            participants.append(round_.clients)
    joined, which, counts = np.unique(np.concatenate(participants), return_inverse=True, return_counts=True)
    last = np.zeros(len(joined), dtype=np.int64)
    positions = np.repeat(np.arange(len(model_ids)), [len(clients) for clients in participants[1:]])
    np.maximum.at(last, which, positions)
    clients = joined.tolist()
    return dict(zip(clients, counts.tolist(), strict=True)), {
        client: model_ids[at] for client, at in zip(clients, last.tolist(), strict=True)
    }
