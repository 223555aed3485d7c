"""A whole run of a federation: forget whoever asked, train on, and forget whoever asks meanwhile.

Whatever platform the clients are on, this is the order, and this is when a model may be handed out.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Protocol, TypeAlias

from rescind.certificates.approvals import Approvers, check_approval, describe_vain, is_approved
from rescind.checkpoints.tensors import StoredTensor, save
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import DpFedAvg, Mode, PrivacyScope
from rescind.engines.engine import look_around
from rescind.engines.solving import check_room, check_solvable, find_asked
from rescind.engines.stops import Rounds, Stop
from rescind.errors import NoSumsError, PendingRequestError
from rescind.forgetting import Revocable
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.journal import parse_time
from rescind.history.lineage import branch_exits, find_body
from rescind.history.outcomes import Outcome
from rescind.history.timeline import FiledRequest, Timeline
from rescind.ledger.records import Branch, ErasureLevel
from rescind.methods import Dp, Exact, Method, Sifu, Solve
from rescind.methods.method import Certifying, check_method
from rescind.texts import list_some
from rescind.views.clients import find_outsiders
from rescind.views.models import describe_release
from rescind.views.overview import find_unfinished

# Flower's: what it logs is what its users look at.
_LOG = logging.getLogger("flwr")
# So many clients are named in a line.
_MOST_NAMED = 10


class Outlet(Protocol):
    """Where the released model is for everybody to take, a file for instance."""

    def put(self, model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        """Hand out a model, in place of the one before it.

        Args:
            model_id: which one it is.
            model: its trained tensors.
        """

    def clear(self) -> None:
        """Take back what was handed out, as far as possible; nothing may be there."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A safetensors file for the released model.

    Attributes:
        path: where it is.
        history: the model's.
        frozen: the tensors that nobody trains, if there are any.

    Raises:
        ValueError: the file's folder is not there, or it is the history's own.
    """

    path: Path
    history: History
    frozen: Mapping[str, StoredTensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise ValueError(f"the released model cannot be saved in {self.path}: {folder} is no folder")
        own = Path(self.history.location or os.devnull).resolve()
        if own.is_dir() and folder.resolve().is_relative_to(own):
            raise ValueError(f"{self.path} lies in the history's own folder: save the released model elsewhere")

    def put(self, model_id: ModelId, model: Mapping[str, Tensor]) -> None:
        """Write the file, in place of the one that is there.

        Args:
            model_id: which model it is.
            model: its trained tensors.
        """
        save({**model, **self.frozen}, self.path, describe_release(self.history, model_id))
        _LOG.info("rescind: %s is saved in %s", model_id, self.path)

    def clear(self) -> None:
        """Remove the file, if there is one."""
        self.path.unlink(missing_ok=True)


class StopServing(Exception):  # noqa: N818
    """A rule raises it to end a run that waits for requests."""


class Rule(Protocol):
    """When a run that waits for requests serves those that are open."""

    def __call__(self, waiting: Sequence[FiledRequest], now: datetime) -> bool:
        """Return whether the requests are served now.

        Args:
            waiting: the open requests; there may be none.
            now: the coordinator's time, with its zone.

        Returns:
            True if they are served.

        Raises:
            StopServing: the run is to end.
        """


def at_once(waiting: Sequence[FiledRequest], now: datetime) -> bool:  # noqa: ARG001
    """Return True: requests are served as they come.

    Args:
        waiting: the open requests.
        now: the coordinator's time.

    Returns:
        True.
    """
    return True


def nightly(waiting: Sequence[FiledRequest], now: datetime) -> bool:
    """Return whether it is night, from one to five, or the deadline of a request is less than two days away.

    Args:
        waiting: the open requests.
        now: the coordinator's time, in its own zone.

    Returns:
        True if the requests are served now.
    """
    urgent = any(parse_time(asked.deadline) - now < timedelta(days=2) for asked in waiting)
    return urgent or 1 <= now.hour < 5


@dataclass(frozen=True, slots=True)
class TotalRounds:
    """Ends when a model has a number of rounds behind it, counted from the start or from the last noise.

    So whoever joined late is forgotten exactly for the rounds since: those before are the model's already. After a
    restart that is not exact a branch has to have as many rounds as a training.

    Attributes:
        history: what is trained.
        most: the number of rounds, at least 0.

    Raises:
        ValueError: ``most`` is not an integer of at least 0.
    """

    history: History
    most: int
    public: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Rounds(self.most)

    def reached(self, rounds: int, accuracy: Callable[[], float]) -> bool:  # noqa: ARG002, other rules look
        """Return whether the newest model has that many rounds behind it.

        Args:
            rounds: how many rounds the newest branch has.
            accuracy: not looked at.

        Returns:
            True if there are ``most`` rounds or more.
        """
        return rounds + self.count_before() >= self.most

    def count_before(self) -> int:
        """Return how many rounds of earlier branches the newest one goes on from.

        Returns:
            the number; 0 if it began in another way than exactly.
        """
        timeline, rounds = self.history.timeline, 0
        # Of the newest branch no round is among them.
        for left in reversed(branch_exits(timeline.branches, ModelId(max(timeline.branches), 0))):
            rounds += left.round
            if not _is_exact(timeline, timeline.branches[left.branch]):
                break
        return rounds


def _is_exact(timeline: Timeline, branch: Branch) -> bool:
    """Return whether a branch goes on from a kept model as it is, and knows nobody whom it is to forget."""
    plans = (timeline.plans[number] for number in branch.requests)
    return not branch.sigma and all(plan.candidate.mode is Mode.EXACT for plan in plans)


def serve(
    federation: Revocable,
    until: Stop,
    method: Method | None = None,
    *,
    solve: bool = False,
    level: ErasureLevel = ErasureLevel.PURGE,
    outlet: Outlet | None = None,
    served: Callable[[Outcome], None] = lambda _: None,
    approval: Approvers = False,
    rule: Rule | None = None,
    pause: Callable[[], None] = lambda: None,
) -> dict[str, Tensor]:
    """Forget whoever asked for it, then train on from where the history stands; and again while somebody asks.

    Args:
        federation: who trains, and where it is recorded.
        until: the rule by which a branch ends.
        method: how to forget; None leaves it to ``choose_method``.
        solve: the head is solved in place of training it, and ``Solve()`` is how to forget.
        level: how much of a forgotten client is erased.
        outlet: where the released model goes. Nothing is there while somebody whom it may know waits.
        served: is shown what became of every request.
        approval: whether somebody has to agree to every plan before it is carried out, or the public keys of those
            who may: then only what one of them has signed counts.
        rule: when requests are served. With one it does not end by itself: it waits for the next request.
        pause: is called while there is nothing to do, and returns when it is time to look again.

    Returns:
        the newest model, which knows nobody who waits.

    Raises:
        PendingRequestError: somebody whom the model knows waits, for an approval or because the rule ended it.
        ValueError: nobody is left who could train, ``method`` can serve nobody here, the head cannot be solved, or
            ``approval`` is no list of keys.
        LockedError: another process is writing to this run.
        RunMismatchError: the run that was recorded is another one.
    """
    check_approval(approval)
    history = federation.history
    placed: ModelId | None = None
    told: ModelId | None = None
    done: ModelId | None = None
    tried = set[_Wanting]()
    away, waits = False, ""
    solve = solve or federation.engine.facts.only_solved
    chosen = method or (Solve() if solve else choose_method(federation))
    # Before anything is trained or taken away: who asks later could not be served.
    # What was begun is finished, whatever happened since.
    planned = any(asked.branch is not None for asked in find_unfinished(history))
    # What was chosen here fits the engine, and whether that is the recorded one is looked at before it trains.
    recorded = method is not None and history.timeline.branches and not planned
    check_method(chosen, history.facts if recorded else federation.engine.facts)
    if isinstance(chosen, Solve):
        check_solvable(federation.engine)
        _check_room(federation)
    if isinstance(chosen, Certifying) and chosen.public_plan and not planned:
        _check_public(history.timeline, chosen)

    def take_back(numbers: Sequence[int]) -> None:
        nonlocal placed, away
        if outlet is None:
            return
        outlet.clear()
        placed = None
        if not away:
            _LOG.warning(
                "rescind: the released model is taken away, as it may know who asks to be forgotten in request %s; "
                "there is one again once that is served",
                list_some([*map(str, numbers)], _MOST_NAMED),
            )
        away = True

    def begin(plan: RecordedPlan) -> None:
        _check_room(federation)
        take_back(plan.requests)
        federation.planned(plan)

    def hand_out() -> None:
        nonlocal placed, away
        newest = history.newest
        # Where sums are kept nothing was trained until the head is solved.
        made = not federation.engine.facts.keeps_sums or newest in history.timeline.solved
        if outlet is not None and made and placed != newest:
            placed, away = newest, False
            outlet.put(newest, history.model(newest))

    heeding = replace(federation, planned=begin)
    while True:
        # What is there already, and knows nobody who waits, stays there.
        if unfinished := [asked.number for asked in find_unfinished(history)]:
            held = find_held(history)
            if held or placed != history.newest:
                take_back(held or unfinished)
        try:
            due = rule is None or rule(list(history.timeline.open_requests.values()), datetime.now().astimezone())
        except StopServing:
            return _take(history)
        before = set(history.timeline.open_requests)
        # What was begun is finished at any time; what is still open is then planned, and waits until it is due.
        if due or any(asked.served for asked in find_unfinished(history)):
            for outcome in heeding.forget(chosen, until, level=level, approval=approval or not due):
                served(outcome)
        if history.outcomes() and not history.requests.waiting():
            hand_out()
        # Somebody may have asked in this very moment: then the next turn serves it.
        with suppress(PendingRequestError, *([NoSumsError] if rule else [])):
            # A solution is made once: a run that does not end would ask everybody for it again and again. It is made
            # again for whoever is not in it: FedAvg would only lead away from there.
            if federation.engine.facts.keeps_sums or _is_solved(history):
                if wanting := _find_wanting(federation) - tried:
                    shown = history.newest if history.timeline.branches else None
                    try:
                        heeding.solve(asking={name for name, _, _ in wanting})
                    finally:
                        # Nobody was asked if somebody asked to be forgotten before. Whoever was asked is asked again
                        # in the next run, and not because somebody else came.
                        if history.timeline.branches and history.newest != shown and _is_head(history):
                            tried |= _as_they_are(history, {name for name, _, _ in wanting})
            # Nor is a rule that was reached asked about the same model again: it may ask everybody for an accuracy.
            elif done is None or done != history.newest:
                filed = len(history.timeline.requests)
                heeding.solve() if solve else heeding.train(until)
                timeline = history.timeline
                # What a request broke off has not come to its end, even if the request was taken back since.
                ended = history.newest in timeline.solved if solve else len(timeline.requests) == filed
                done = history.newest if ended else None
        # Somebody who asked in the middle of a body may have thought better of it.
        incomplete = (
            federation.engine.facts.stages
            and find_body(history.timeline.branches, history.timeline.bodies, history.newest) is None
        )
        if not history.timeline.open_requests and not incomplete:
            newest = history.newest
            model = history.model(newest)
            hand_out()
            if told != newest and (outsiders := find_outsiders(history)):
                _LOG.warning("rescind: left out of %s: %s", newest, list_some([*map(str, outsiders)], _MOST_NAMED))
            told = newest
            if not history.timeline.open_requests and rule is None:
                return model
        waiting = list(history.timeline.open_requests)
        # Who asks for it meanwhile is asked for the rows in the next turn.
        unnamed = [number for number in waiting if number in before and federation.awaits_rows(number)]
        undecided = [number for number in waiting if approval and _is_undecided(history, number, approval)]
        stuck = waiting == sorted({*undecided, *unnamed})
        waits_before, waits = waits, _describe_waiting(history, undecided, unnamed, approval, None if due else rule)
        if rule is not None and not waiting:
            waits = "the run waits for requests"
        if waiting and stuck and rule is None:
            raise PendingRequestError(f"{waits}; then start the next run")
        if waits and waits != waits_before:
            _LOG.info("rescind: %s", waits)
        if rule is not None and (not due or stuck):
            pause()


def _take(history: History) -> dict[str, Tensor]:
    """Return the newest model, unless it knows somebody who waits, or is on the way to forget somebody."""
    if waiting := [asked.number for asked in history.requests.waiting()]:
        raise PendingRequestError(f"the newest model knows somebody who waits: request {_list(waiting)} is open")
    if begun := find_held(history):
        raise PendingRequestError(f"request {_list(begun)} is being served: the next run goes on with it")
    return history.model(history.newest)


def find_held(history: History) -> list[int]:
    """Return the requests that hold the newest model back: it knows their clients, or they are being served."""
    begun = [asked.number for asked in find_unfinished(history) if asked.served]
    return [asked.number for asked in history.requests.waiting()] + begun


def _is_undecided(history: History, number: int, approval: Approvers) -> bool:
    """Return whether a request is planned, or needs no plan, and nobody who may has agreed to it yet."""
    timeline = history.timeline
    if is_approved(history, number, approval):
        return False
    return number in timeline.plans or history.requests.are_unknown([timeline.requests[number - 1].request])[0]


def _ask_for_approval(history: History, numbers: Sequence[int], approval: Approvers) -> str:
    key = "" if isinstance(approval, bool) else f" --key KEY (one of the {len(approval)} that are listed)"
    return (
        f"request {_list(numbers)} is planned and waits for somebody to agree, by {_find_day(history, numbers)}: "
        f"rescind request approve HISTORY NUMBER --by PERSON{key}, or rescind request refuse HISTORY NUMBER "
        f"--by PERSON --reason REASON{''.join(describe_vain(history, number, approval) for number in numbers)}"
    )


def _describe_waiting(
    history: History, undecided: Sequence[int], unnamed: Sequence[int], approval: Approvers, rule: Rule | None
) -> str:
    """Say which open requests wait for somebody to agree, for rows, or for a rule that does not serve them yet."""
    words = [_ask_for_approval(history, undecided, approval)] if undecided else []
    if unnamed:
        words.append(
            f"request {_list(unnamed)} waits until its clients have named the rows, and has to be served by "
            f"{_find_day(history, unnamed)}: each gives train_head removed= and request=. If one never does, or "
            "trains by code of its own, which names none, take the request back and forget all of the client "
            "(rescind request), or say why not (rescind request refuse)"
        )
    later = [number for number in history.timeline.open_requests if number not in (*undecided, *unnamed)]
    if rule is not None and later:
        name = getattr(rule, "__name__", type(rule).__name__)
        words.append(
            f"request {_list(later)} waits for the rule {name}, and has to be served by {_find_day(history, later)}; "
            "a run with another rule serves it earlier"
        )
    return "; ".join(words)


def _find_day(history: History, numbers: Sequence[int]) -> str:
    """Return the day by which the most urgent of some requests has to be served."""
    return min((history.timeline.requests[number - 1].deadline for number in numbers), key=parse_time)[:10]


def _list(numbers: Sequence[int]) -> str:
    return " and ".join(map(str, numbers))


def choose_method(federation: Revocable) -> Method:
    """Choose how to forget where nobody says: by the planner, or exactly where noise would prove nothing.

    Where every round is noised that noise hides, unless an earlier plan has looked at data or clients were told
    settings that may follow data.

    Args:
        federation: who trains, and where it is recorded.

    Returns:
        the method; what was begun goes on by the planner if that began it.
    """
    history = federation.history
    begun = [asked.number for asked in find_unfinished(history) if asked.branch is not None]
    planned = {history.timeline.plans[number].method for number in begun}
    contradicted = bool(history.timeline.branches) and history.facts.contradictions
    if isinstance(federation.engine.facts.public, DpFedAvg):
        return Exact() if contradicted or _find_private(history.timeline) else Dp()
    if federation.engine.facts.training_obstacles or (contradicted and str(Sifu()) not in planned):
        return Exact()
    return Sifu()


def _check_room(federation: Revocable) -> None:
    """Refuse more clients than a ridge head has room for, not counted those who are to leave."""
    history = federation.history
    if federation.engine.facts.keeps_sums:
        # Who is there decides nothing, and is not waited for.
        return
    waiting = (asked.request for asked in history.timeline.open_requests.values())
    groups = (request.group for request in waiting if request.scope is not PrivacyScope.RECORDS)
    leaving = {*history.participants.names(frozenset[int]().union(*groups))}
    check_room(federation.engine.facts, [name for name in federation.find_present() if name not in leaving])


def _find_private(timeline: Timeline) -> list[int]:
    """Return the requests that were served by a plan which looked at data."""
    served = (number for branch in timeline.branches.values() for number in branch.requests)
    return [number for number in served if not timeline.plans[number].public_plan]


def _check_public(timeline: Timeline, method: Method) -> None:
    """Refuse a method that plans without looking at data where earlier plans did, or who waits asked for no such."""
    if private := _find_private(timeline):
        raise ValueError(
            f"{method.name} has no plan any more: request {_list(private)} was served by a plan that looked at data"
        )
    if classic := [asked.number for asked in timeline.open_requests.values() if not asked.request.budget.certifiable]:
        raise ValueError(
            f"{method.name} has no plan for request {_list(classic)}, which asks by the paper's noise formula: take "
            "another method, or withdraw it"
        )


# A client's name, its pseudonym and how often it was to send its sums again: once more, it is asked once more.
_Wanting: TypeAlias = tuple[str, int, int]


def _find_wanting(federation: Revocable) -> set[_Wanting]:
    """Return who is there and not in the newest model, or is to send its sums again, where sums are kept.

    What is solved already goes on being served if too few are there for others to be asked.
    """
    history, kept = federation.history, federation.engine.facts.keeps_sums
    solved = history.timeline.branches and history.newest in history.timeline.solved
    here = look_around(federation.engine) if solved else federation.engine.clients
    present = federation.find_present(here) if kept else history.participants.remaining(here)
    asked = find_asked(here, history.sums, present) if kept else []
    if not kept and solved and not _has_room(federation, present):
        return set()
    known = history.participants.took_part(history.newest) if solved else []
    return _as_they_are(history, {*set(present).difference(known), *asked})


def _as_they_are(history: History, names: Iterable[str]) -> set[_Wanting]:
    """Return clients with their pseudonyms, 0 of who has none yet, and how often each was to send its sums again."""
    pseudonyms, renewals = history.participants.all(), history.sums.find_renewals()
    clients = ((name, pseudonyms.get(name, 0)) for name in names)
    return {(name, client, renewals.get(client, 0)) for name, client in clients}


def _has_room(federation: Revocable, present: Sequence[str]) -> bool:
    """Return whether a ridge head has room for all of these; say so if it has not: the solution there is stays."""
    try:
        check_room(federation.engine.facts, present)
    except ValueError as full:
        _LOG.warning("rescind: nobody else is asked: %s", full)
        return False
    return True


def _is_head(history: History) -> bool:
    """Return whether the newest round asked everybody, and was not one of a body, which its anchors alone train."""
    timeline, newest = history.timeline, history.newest
    body = find_body(timeline.branches, timeline.bodies, newest)
    return not history.facts.stages or (body is not None and body.model_id != newest)


def _is_solved(history: History) -> bool:
    """Return whether the newest branch was solved to forget somebody: FedAvg would only lead away from there."""
    timeline = history.timeline
    requests = timeline.branches[history.newest.branch].requests if timeline.branches else ()
    return bool(requests) and timeline.plans[requests[0]].candidate.solving is not None
