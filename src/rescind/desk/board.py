"""What the desk shows: a run at one moment, read once for all who look."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Literal

from pydantic import BaseModel, ConfigDict

from rescind.certificates.files import find_certificates
from rescind.core.edges import ModelId
from rescind.desk.logins import Login, Role
from rescind.engines.accuracies import read_accuracies
from rescind.history.events import (
    DeadlineExtended,
    PlanApproved,
    RecordedPlan,
    RequestFiled,
    RequestRefused,
    RequestSettled,
    RequestWithdrawn,
    RowsNamed,
)
from rescind.history.history import History
from rescind.history.outcomes import find_outcomes
from rescind.history.timeline import Timeline
from rescind.ledger.records import Branch, Entry
from rescind.texts import make_plain
from rescind.views.health import examine_history
from rescind.views.metrics import render_metrics
from rescind.views.overview import format_distance, overview, read_gauges
from rescind.views.plans import describe_plan
from rescind.views.requests import KnownRequest, list_requests

_LOG = logging.getLogger("rescind")
# So many of each are shown: of clients the most influential, of others the newest.
_MOST_SHOWN = 12
# What is shown is at most so old; a run that records often is not read more of the time than a twentieth.
_EVERY, _SPARE = 2.0, 20.0
# Whether the chain is whole takes reading all of it.
_HEALTH_EVERY = 3600.0
_STALE = 300.0

State = Literal["open", "being served", "served", "served, readmitted since", "withdrawn", "refused"]


class Shown(BaseModel):
    """A part of what is shown, as the JSON interface describes it."""

    model_config = ConfigDict(frozen=True)


class Step(Shown):
    """What happened to a request, and for which login at the desk, if it was one."""

    time: str
    what: str
    login: str | None


class RequestShown(Shown):
    """A request: who leaves, how it stands, what it waits for. ``days_left`` is below 0 when it is overdue."""

    request: int
    clients: list[str]
    rows: bool
    asked: str
    asked_by: str
    deadline: str
    state: State
    days_left: int
    overdue: bool
    waits_for_approval_since: str | None
    waits_for_rows: bool
    plan: str | None
    certified: bool
    steps: list[Step]

    @property
    def unfinished(self) -> bool:
        """True while it is still to be served to the end."""
        return self.state in ("open", "being served")


class Moved(Shown):
    """How far a client may have moved the model; ``share`` is of the largest, None where nothing bounds it."""

    client: str
    distance: str
    share: float | None
    rounds: int


class Measured(Shown):
    """How many held-out examples a model got right, and in which branch and round it was recorded."""

    branch: int
    round: int
    accuracy: float


class Overview(Shown):
    """A run at a glance, as it was at ``time``; of requests in ``newest_knows`` the newest model knows clients."""

    time: str
    run: str
    operator: str | None
    federation: str | None
    model: str | None
    newest: str
    newest_knows: list[int]
    rounds: int
    last_round: str | None
    clients: int
    states: dict[str, int]
    outsiders: list[str]
    influences: list[Moved]
    kept_models: int
    stored_bytes: int
    if_somebody_left: str
    open_requests: int
    overdue_requests: int
    undecided_requests: int
    problems: list[str]
    last_certificate: int | None
    accuracies: list[Measured]


class Found(Shown):
    """What a receipt's owner is told: how its request stands, and the certificate's file if there is one."""

    request: int
    state: str
    asked: str
    deadline: str
    certificate: str | None


@dataclass(frozen=True, slots=True)
class Board:
    """What the desk knows of a run at one moment; ``forgotten`` are the digests of each request, for receipts."""

    overview: Overview
    requests: tuple[RequestShown, ...]
    certificates: Mapping[int, Path]
    forgotten: Mapping[int, frozenset[str]]
    metrics: str

    def overview_for(self, login: Login) -> Overview:
        """Return what a login may see; of participants' data, and models that knew who left, the operator alone."""
        if login.may(Role.OPERATE):
            return self.overview
        newest = ModelId.read(self.overview.newest).branch
        released = [one for one in self.overview.accuracies if one.branch == newest]
        return self.overview.model_copy(update={"influences": [], "accuracies": released})


def read_board(
    history: History,
    now: datetime,
    *,
    certificates: Mapping[tuple[str, int], Path],
    measured: list[Measured],
    problems: list[str],
) -> Board:
    """Look over a history.

    Args:
        history: the history.
        now: the time, which decides what is overdue.
        certificates: files by run and request, in the order of their times.
        measured: accuracies on held-out data.
        problems: what an examination of the whole history found.

    Returns:
        what is shown of it.

    Raises:
        NoHistoryError: nothing was recorded yet.
    """
    view, gauges, known = overview(history, _MOST_SHOWN), read_gauges(history, now), list_requests(history, now)
    timeline, run = history.timeline, history.identifier
    own = {number: path for (of, number), path in certificates.items() if of == run}
    steps = {request.asked.number: list[Step]() for request in known}
    for number, step in _steps(timeline):
        if number in steps:
            steps[number].append(step)
    largest = max((moved.sensitivity for moved in view.influences), default=0.0)
    states = {state.value: count for state, count in gauges.clients.items()}
    changed = ["Somebody without the secret file changed the journal: rescind doctor says more."]
    shown = tuple(_request(history, request, steps[request.asked.number], own) for request in known)
    return Board(
        overview=Overview(
            time=now.isoformat(timespec="seconds"),
            run=run,
            operator=timeline.names.operator,
            federation=timeline.names.federation,
            model=timeline.names.model,
            newest=view.newest.name,
            newest_knows=[asked.number for asked in history.requests.waiting()],
            rounds=view.rounds,
            last_round=gauges.last_round and gauges.last_round.isoformat(timespec="seconds"),
            clients=view.clients,
            states=states,
            outsiders=[str(outsider) for outsider in view.outsiders[:_MOST_SHOWN]],
            influences=[
                Moved(
                    client=moved.client,
                    distance=format_distance(moved.sensitivity),
                    share=moved.sensitivity / largest if 0 < largest < 1e100 else None,
                    rounds=moved.rounds,
                )
                for moved in view.influences
            ],
            kept_models=len(view.kept),
            stored_bytes=view.stored_bytes,
            if_somebody_left=view.claimable.mode.value,
            open_requests=gauges.open_requests,
            overdue_requests=gauges.overdue_requests,
            undecided_requests=gauges.undecided_requests,
            problems=[
                *(changed if gauges.stamp_problems else []),
                *(["An erasure is begun and not ended."] if gauges.unfinished_erasures else []),
                *problems,
            ],
            last_certificate=next(reversed(own), None),
            accuracies=measured,
        ),
        requests=shown,
        certificates=own,
        forgotten={request.asked.number: frozenset(request.asked.forgotten) for request in known},
        metrics=render_metrics(gauges),
    )


def _request(
    history: History, known: KnownRequest, steps: list[Step], certificates: Mapping[int, Path]
) -> RequestShown:
    asked = known.asked
    return RequestShown(
        request=asked.number,
        clients=known.clients,
        rows=asked.request.scope.value == "records",
        asked=asked.time,
        asked_by=asked.sender.asker.value,
        deadline=asked.deadline,
        state=known.state,
        days_left=known.days_left,
        overdue=known.overdue,
        waits_for_approval_since=known.planned,
        waits_for_rows=known.unnamed,
        plan=describe_plan(history, asked.number) if asked.open and asked.number in history.timeline.plans else None,
        certified=asked.number in certificates,
        steps=steps,
    )


def _steps(timeline: Timeline) -> Iterator[tuple[int, Step]]:
    """Say what happened to requests, in order, each with its number."""
    filed, logins, planned = 0, timeline.logins, dict[int, tuple[int, ...]]()

    def step(entry: Entry, happening: str) -> Step:
        done = logins.get(entry.sequence)
        return Step(time=entry.time, what=happening, login=None if done is None else f"{done.login} ({done.role})")

    for entry, event in timeline.moments:
        match event:
            case RequestFiled():
                filed += 1
                planned[entry.sequence] = (filed,)
                yield filed, step(entry, f"asked for by {event.sender.asker.value}")
            case RowsNamed():
                yield event.request, step(entry, "its client named the rows that it leaves out")
            case RecordedPlan():
                mode, planned[entry.sequence] = event.candidate.mode.value, event.requests
                yield from ((number, step(entry, f"planned by {event.method} ({mode})")) for number in event.requests)
            case PlanApproved():
                approved = step(
                    entry, f"approved by {event.by}, {'signed with a key' if event.key else 'not signed'}"
                )
                yield from ((number, approved) for number in planned.get(event.plan, ()))
            case DeadlineExtended():
                yield event.request, step(entry, f"deadline moved to {event.deadline[:10]}: {event.reason}")
            case RequestRefused():
                yield event.request, step(entry, f"refused by {event.by}: {event.reason}")
            case RequestWithdrawn():
                yield event.request, step(entry, "withdrawn" + (f": {event.reason}" if event.reason else ""))
            case RequestSettled():
                yield event.request, step(entry, "settled: the newest model knew none of its clients")
            case Branch():
                for number in event.requests:
                    yield number, step(entry, "training went back to before its clients")
    for number, outcome in find_outcomes(timeline).items():
        yield number, Step(time=outcome.completed, what=f"served and erased ({outcome.mode.value})", login=None)


def read_measured(path: Path | None) -> list[Measured]:
    """Return the accuracies on held-out data, as far as a file has any; nobody's own data's."""
    scores = {} if path is None or not path.exists() else read_accuracies(path)
    ordered: list[tuple[ModelId, float]] = sorted(
        (model_id, one.test) for model_id, one in scores.items() if one.test is not None
    )
    return [Measured(branch=model_id.branch, round=model_id.round, accuracy=test) for model_id, test in ordered]


@dataclass(eq=False)
class Reader:
    """Reads the board anew whenever the history has changed, and keeps it: whoever looks reads nothing.

    Attributes:
        open: opens the history; it is closed after each look, as an erasure waits for readers.
        certificates: the folder with certificates.
        accuracies: the file with accuracies over time.
        notify: told of every new board.
        board: what was read last; None if nothing could be read yet.
    """

    open: Callable[[], AbstractContextManager[History]]
    certificates: Path | None = None
    accuracies: Path | None = None
    notify: Callable[[Board], None] = lambda _: None
    board: Board | None = None
    _problem: str = "nothing was read yet"
    _read: float = -_STALE
    _examined: float = -_HEALTH_EVERY
    _problems: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _ended: Event = field(default_factory=Event)

    @property
    def problem(self) -> str:
        """Why what is shown is not as it should be; empty if it is."""
        stale = monotonic() - self._read > _STALE
        return self._problem or ("what is shown has not been read again for minutes" if stale else "")

    def start(self) -> None:
        """Read now, and then again and again in a thread of its own."""
        self.refresh()
        Thread(target=self._go_on, name="desk", daemon=True).start()

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()

    def refresh(self) -> None:
        """Read the board anew; what cannot be read is said in its place."""
        with self._lock:
            try:
                self.board, self._read = self._look(), monotonic()
                self.notify(self.board)
                self._problem = ""
            except Exception as error:
                # Whatever it is, what is wrong now need not be at the next look.
                problem = make_plain(str(error) or type(error).__name__)
                if problem != self._problem:
                    _LOG.warning("rescind: the desk cannot read the history: %s", problem)
                self._problem = problem

    def _go_on(self) -> None:
        rest = _EVERY
        while not self._ended.wait(rest):
            begun = monotonic()
            self.refresh()
            # Looking at all of a history takes long, once an hour: no reason to show nothing new for the rest of it.
            rest = min(max(_EVERY, _SPARE * (monotonic() - begun)), _STALE / 2)

    def _look(self) -> Board:
        now, certificates = datetime.now(UTC), find_certificates(self.certificates)
        with self.open() as history:
            if monotonic() - self._examined > _HEALTH_EVERY:
                repairs = [finding for finding in examine_history(history) if finding.verdict == "repair"]
                self._problems = [f"{finding.what}: {finding.detail}" for finding in repairs]
                self._examined = monotonic()
            return read_board(
                history,
                now,
                certificates=certificates,
                measured=read_measured(self.accuracies),
                problems=self._problems,
            )
