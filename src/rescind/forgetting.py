"""The flow: request, plan, roll back, noise, retrain, erase; every step is recorded before the next begins.

Killed anywhere, it goes on where it was. The noised model and the start of its branch are one transaction, so that no
release ever has two.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from rescind.certificates.approvals import Approvers, check_approval, is_approved
from rescind.checkpoints.tensors import digest, save
from rescind.core.arrays import Tensor
from rescind.core.edges import ModelId
from rescind.core.facts import Mode, PrivacyScope, Sampling, Source
from rescind.core.noise import grid_rounding
from rescind.core.planning import Candidate, assess
from rescind.core.sensitivity import first_joined, never_joined
from rescind.core.solver import Solving
from rescind.core.summary import Request, Summary
from rescind.core.training import UNIT_ROUNDOFF
from rescind.engines.engine import Engine, RowsEngine, StagedEngine
from rescind.engines.server import Average, Server, check_server, draw_noise, norm
from rescind.engines.solving import check_solvable, solve
from rescind.engines.stops import Rounds, Stop
from rescind.engines.training import Watch, ignore, train
from rescind.errors import ONLY_SOLVED, ROWS_NEED, ClosedRequestError, NoSumsError, PendingRequestError
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.outcomes import Outcome, Scores
from rescind.history.recorder import Recorder
from rescind.history.run import Goal
from rescind.history.timeline import FiledRequest
from rescind.ledger.records import Branch, ErasureLevel
from rescind.methods.method import Certifying, Method, check_method
from rescind.views.models import describe_release

# Flower's: what it logs is what its users look at.
_LOG = logging.getLogger("flwr")
_AS_USUAL = Solving()
_OTHER_ROWS = (
    "Where a client's rows follow from its place among all (partition-id of num-partitions) or from a seed, clients "
    "have other rows now, and those of whoever was forgotten, or asked to be, may be somebody else's: give every "
    "client rows of its own"
)


@dataclass(frozen=True, slots=True)
class Revocable:
    """A federation whose training is recorded, so that clients can be forgotten.

    Attributes:
        history: where the training is recorded.
        engine: who trains.
        server: what makes the rounds.
        capacity: see ``History.recording``.
        goal: see ``History.recording``.
        seed: makes the noise reproducible, for experiments; then nothing is certified, and the engine's facts have to
            say so. None draws the noise from the operating system's generator.
        watch: is shown every model once its round is recorded, except models that know somebody who waits to be
            forgotten.
        after_round: is told the id of every model as soon as it is made; its round may not be recorded yet.
        planned: is shown every plan before it is carried out.
        scored: whether accuracies are measured once a request is served, the forgotten clients' too, whom nobody
            would ask in a real federation.
        write_behind: whether a round is written while clients train the next one. If the process dies, the round that
            was being written is trained again. What ``watch``, a rule about accuracies, DP-FedAvg or a solver needs
            is written first in any case.

    Raises:
        ValueError: ``seed`` is not bytes, the engine's facts contradict ``seed`` or ``server``, or the server noises
            every round and the facts leave nothing to claim for it.
    """

    history: History
    engine: Engine
    server: Server = field(default_factory=Average)
    capacity: int = 32
    goal: Goal | None = None
    seed: bytes | None = None
    watch: Watch = ignore
    after_round: Callable[[ModelId], None] = lambda _: None
    planned: Callable[[RecordedPlan], None] = lambda _: None
    scored: bool = True
    write_behind: bool = True

    def __post_init__(self) -> None:
        if self.engine.facts.secret_noise != (self.seed is None):
            raise ValueError(
                "with a seed the noise is reproducible, and the engine has to say so (secret_noise=False); without a "
                "seed it has to say that the noise is secret"
            )
        if self.seed is not None and not isinstance(self.seed, bytes):
            raise ValueError(f"seed is {self.seed!r}; give bytes")
        check_server(self.engine, self.server)
        # Checked up front: after training it would be too late to fix.
        if self.server.facts and (missing := self.engine.facts.strict_plan_obstacles):
            raise ValueError("DP-FedAvg is worth its noise only if it can be claimed: " + "; ".join(missing))

    def train(self, until: Stop) -> ModelId:
        """Train the newest branch to its end, with everybody who may take part.

        If a request arrives from somebody whom the newest model knows, training stops after the round that is under
        way.

        Args:
            until: the rule by which the branch ends.

        Returns:
            the id of the newest model.

        Raises:
            PendingRequestError: somebody whom the newest model knows waits to be forgotten.
            ValueError: ``until`` is no rule, a request is being served, nobody is left who could train, or the
                engine's facts change or its replies cannot be used.
            LockedError: another process is writing to this run.
            RunMismatchError: the run that was recorded is another one.
        """
        _check_stop(until)
        with self._recording() as recorder:
            self._check_free()
            if self.engine.facts.only_solved:
                raise ValueError(ONLY_SOLVED)
            held = self._is_held(recorder)
            if isinstance(until, Rounds) and recorder.model_id.round > until.most:
                _LOG.warning("rescind: %s is the newest model, and is not trained on: %s", recorder.model_id, until)
            train(self.engine, recorder, self.find_present, until, self.server, self._show(recorder), held)
            return recorder.model_id

    def solve(self, solving: Solving = _AS_USUAL, *, asking: Collection[str] | None = None) -> ModelId:
        """Solve the newest branch's head over the rows of everybody who may take part, in place of training it.

        Of a network in two stages the anchors train the body first, as far as it is not whole.

        If a request arrives from somebody whom the newest model knows, it stops after the round that is under way.

        Args:
            solving: how.
            asking: where sums are kept, who is asked for theirs; None means everybody whose are not.

        Returns:
            the id of the newest model, the solution unless its rounds were used up.

        Raises:
            PendingRequestError: somebody whom the newest model knows waits to be forgotten.
            ValueError: the model is no head with an L2 term, the engine's clients do not answer a solver's questions,
                a request is being served, or nobody is left who could answer.
            LockedError: another process is writing to this run.
            RunMismatchError: the run that was recorded is another one.
        """
        with self._recording() as recorder:
            self._check_free()
            # The rounds that the branch has already are not the solver's.
            self._solve(recorder, solving, recorder.model_id.round, self._is_held(recorder), asking)
            return recorder.model_id

    def plan(self, method: Method, *numbers: int) -> RecordedPlan:
        """Plan open requests together and record the plan, for somebody to look at before ``forget``.

        Args:
            method: how to forget.
            *numbers: the requests' numbers, at least one.

        Returns:
            the plan as it was recorded.

        Raises:
            ValueError: ``method`` is no method, a request is being served, a number is not that of an open request,
                the newest model does not know the clients of one (``forget`` settles it without a plan), or the
                method finds no plan.
        """
        check_method(method, self.engine.facts)
        if self._in_work() is not None:
            raise ValueError("a request is being served: finish it with forget, then plan")
        known = self.history.timeline.open_requests
        missing = [number for number in numbers if number not in known]
        if missing or not numbers:
            raise ValueError(f"give the numbers of open requests, not {list(missing)}: open are {list(known)}")
        batch = [known[number] for number in numbers]
        unknown = self.history.requests.are_unknown([asked.request for asked in batch])
        for asked, not_known in zip(batch, unknown, strict=True):
            if not_known:
                raise ValueError(
                    f"the newest model does not know the clients of request {asked.number}: forget settles it "
                    "without a plan"
                )
        return self._planned(method, batch)

    def forget(
        self,
        method: Method,
        until: Stop,
        *,
        level: ErasureLevel = ErasureLevel.PURGE,
        together: bool = False,
        approval: Approvers = False,
        only: Collection[int] | None = None,
    ) -> list[Outcome]:
        """Finish what was begun, then serve every open request, in the order of arrival or all together.

        A request that arrives while a branch is retrained is served after it, in the same call. Each request ends
        with erasing.

        Args:
            method: how to forget.
            until: the rule by which a retrained branch ends.
            level: how much of a forgotten client is erased.
            together: whether the open requests are served by one restart.
            approval: whether somebody has to agree to every plan (``rescind request approve``), or the public keys of
                those who may: then only what one of them has signed counts. What is not approved is planned, and
                stays open.
            only: the numbers of the requests to serve; None means all that are open. One whose clients the newest
                model does not know is served in any case.

        Returns:
            what became of the requests that were served, in the order in which they were.

        Raises:
            BrokenHistoryError: somebody changed the ledger.
            ValueError: ``method`` is no method, ``until`` no rule or ``approval`` no list of keys; another method
                began what is to be finished; or the method finds no plan.
            LockedError: another process is writing to this run.
            RunMismatchError: the run that was recorded is another one.
            StillReadError: what was erased cannot be overwritten while another process reads.
        """
        check_method(method, self.engine.facts)
        _check_stop(until)
        check_approval(approval)
        scores: dict[int, Scores] = {}
        before = {outcome.asked.number for outcome in self.history.outcomes()}
        with self._recording() as recorder:
            while True:
                if (branch := self._in_work()) is not None:
                    self._retrain(recorder, branch, method, until)
                    if self.scored:
                        scores |= dict.fromkeys(branch.requests, self._scores(recorder, branch))
                try:
                    waiting = self._waiting(recorder, approval=approval)
                    waiting = [asked for asked in waiting if only is None or asked.number in only]
                    if (due := self.history.plan_erasure(level)).requests:
                        recorder.erase(due)
                    if not waiting:
                        break
                    with self.history.integrity.checked():
                        batches = [waiting] if together else [[asked] for asked in waiting]
                        plan = self._choose(method, batches, approval=approval)
                        if plan is None:
                            break
                        model = self.history.model(plan.parent)
                    self.planned(plan)
                    self._restart(recorder, plan, model)
                except ClosedRequestError:
                    # Somebody took it back, or refused it, in this very moment: the others are served.
                    continue
        served = [outcome for outcome in self.history.outcomes() if outcome.asked.number not in before]
        return [replace(outcome, scores=scores.get(outcome.asked.number)) for outcome in served]

    def release(self, path: str | os.PathLike[str]) -> ModelId:
        """Save the newest model as a safetensors file, for whoever may have it.

        The file says in its metadata which model of which run it is.

        Args:
            path: where to write it; a file that is there is replaced.

        Returns:
            the id of the model.

        Raises:
            PendingRequestError: the model knows somebody who waits to be forgotten.
        """
        if self.history.requests.waiting():
            raise PendingRequestError("the newest model knows somebody who waits to be forgotten: call forget first")
        newest = self.history.newest
        save(self.history.model(newest), path, describe_release(self.history, newest))
        return newest

    # One step each

    def _check_free(self) -> None:
        """Refuse to train while somebody is to be forgotten."""
        if self._in_work() is not None:
            raise ValueError("a request is being served: finish it with forget, then train on")
        if waiting := self.history.requests.waiting():
            numbers = " and ".join(str(asked.number) for asked in waiting)
            raise PendingRequestError(
                f"request {numbers} is open, and the newest model knows its clients: call forget first, then train on"
            )

    def _choose(
        self, method: Method, batches: Sequence[Sequence[FiledRequest]], *, approval: Approvers
    ) -> RecordedPlan | None:
        """Return the plan of the first batch; with ``approval`` the first that somebody agreed to, if any."""
        for batch in batches:
            plan = self._planned(method, batch)
            if is_approved(self.history, plan.requests[0], approval):
                return plan
        return None

    def _planned(self, method: Method, batch: Sequence[FiledRequest]) -> RecordedPlan:
        """Plan a batch; a plan that is recorded and still good, after a crash for instance, is the plan."""
        numbers = tuple(asked.number for asked in batch)
        plans = self.history.timeline.plans
        known = plans.get(numbers[0])
        # One of them may have been planned again, alone.
        latest = all(plans.get(number) == known for number in numbers)
        same = known and latest and known.requests == numbers and known.method == str(method)
        if known and same and not self.history.requests.is_stale(known) and self._follows(method, known):
            return known
        # Before the history is looked at: training may go on meanwhile.
        seen = self.history.requests.last_change()
        summary, requests = self._to_hide(batch)
        candidate, public = method.plan(summary, *requests), False
        if isinstance(method, Certifying):
            public = method.public_plan
            candidate = self._assess(method, candidate, summary, requests)
        elif candidate.mode is not Mode.HEURISTIC or candidate.sigma:
            raise ValueError(f"{method.name} does not certify, and its plan claims {candidate.mode.value}")
        rows = [request.group for request in requests if request.scope is PrivacyScope.RECORDS]
        if any(first_joined(summary.edges, group) < candidate.node.index for group in rows):
            raise ValueError(f"{method.name} goes on from a model that knows the rows: {ROWS_NEED}")
        return self.history.requests.record_plan(RecordedPlan(numbers, candidate, public, str(method), seen))

    def _to_hide(self, batch: Sequence[FiledRequest]) -> tuple[Summary, list[Request]]:
        """Return what planning sees of the history, and the requests without those whom the model does not know."""
        everybody = {client for asked in batch for client in asked.request.group}
        summary = self.history.summary(everybody)
        requests = [asked.request for asked in batch]
        if not summary.facts.redrawn_rounds:
            # Of whom the model knows nothing there is nothing to hide.
            absent = frozenset(never_joined(summary.edges, everybody).tolist())
            requests = [replace(request, group=request.group - absent) for request in requests]
        return summary, requests

    def _follows(self, method: Method, plan: RecordedPlan) -> bool:
        """Return whether a recorded plan claims what follows from the history, and nothing else."""
        if not isinstance(method, Certifying):
            return plan.candidate.mode is Mode.HEURISTIC
        if plan.candidate.solving != method.solving:
            return False
        filed = self.history.timeline.requests
        summary, requests = self._to_hide([filed[number - 1] for number in plan.requests])
        try:
            worth = self._assess(method, plan.candidate, summary, requests)
        except ValueError:
            return False
        worth = replace(worth, predicted_rounds=plan.candidate.predicted_rounds)
        return (worth, method.public_plan) == (plan.candidate, plan.public_plan)

    def _assess(
        self, method: Certifying, candidate: Candidate, summary: Summary, requests: Sequence[Request]
    ) -> Candidate:
        """Return what a method's choice is worth; of what it says itself only the predicted rounds are believed."""
        if candidate.solving:
            check_solvable(self.engine)
        node, sigma = candidate.node, candidate.sigma
        worth = assess(summary, *requests, node=node, sigma=sigma, strict=method.public_plan)
        if candidate.solving is None:
            return worth
        return replace(worth, predicted_rounds=candidate.predicted_rounds, solving=candidate.solving)

    def _restart(self, recorder: Recorder, plan: RecordedPlan, model: Mapping[str, Tensor]) -> None:
        """Begin the branch of a plan at a kept model.

        The noised model, once drawn, is there with the branch or not at all.
        """
        parent, sigma = plan.parent, plan.candidate.sigma
        if not sigma:
            recorder.restart(parent, model, requests=plan.requests)
            return
        grid, unit = self.history.run.grid, UNIT_ROUNDOFF[self.engine.facts.training.precision]
        noised = draw_noise(model, sigma, self.seed, "restart", recorder.model_id.branch + 1, grid=grid)
        parameters = sum(tensor.size for tensor in model.values())
        recorder.restart(
            parent,
            noised,
            requests=plan.requests,
            sigma=sigma,
            noise_rounding=grid_rounding(parameters, norm(noised), unit, grid),
            unit_roundoff=unit,
        )

    def _retrain(self, recorder: Recorder, branch: Branch, method: Method, until: Stop) -> None:
        """Train a branch that serves requests to its end, with everybody who remains."""
        plan = self.history.timeline.plans[branch.requests[0]]
        # One that began unbounded goes on by any: its own is gone, and nothing is claimed.
        if plan.method != str(method) and not branch.unbounded:
            raise ValueError(f"request {branch.requests[0]} is being served by {plan.method}: go on with that method")
        if plan.candidate.solving:
            # That somebody leaves must not decide who is asked, and when: there may be nothing to solve from.
            with suppress(NoSumsError):
                self._solve(recorder, plan.candidate.solving, asking=())
        else:
            # Who asks meanwhile is served by the next branch: the requests of this one need it trained to its end.
            train(self.engine, recorder, self.find_present, until, self.server, self._show(recorder))
        recorder.record_retrained()

    def _solve(
        self,
        recorder: Recorder,
        solving: Solving,
        begun: int = 0,
        interrupted: Callable[[], bool] = lambda: False,
        asking: Collection[str] | None = None,
    ) -> None:
        """Train what is missing of a body, then solve the head; ``begun`` rounds of the branch do not count."""
        # Else it would be noticed only once the anchors have trained the body.
        check_solvable(self.engine)
        anchors = self._anchors(recorder)
        while left := recorder.body_rounds_left:
            until = Rounds(recorder.model_id.round + left)
            train(self.engine, recorder, anchors, until, self.server, self._show(recorder), interrupted)
            if interrupted():
                return
        recorder.finish_body()
        if asking is not None and self.engine.facts.keeps_sums and not self.find_present(asking):
            if not recorder.body_rounds_here:
                # Nobody else has sent sums: had who leaves never been there, nothing would have been solved yet.
                return
            # Another body needs everybody's.
            asking = None
        last = replace(solving, most_rounds=max(begun, recorder.body_rounds_here) + solving.most_rounds)
        present = partial(self.find_present, asking)
        solve(self.engine, recorder, present, last, self._show(recorder), interrupted, asking)

    def _anchors(self, recorder: Recorder) -> Callable[[], Sequence[str]]:
        """Return a function that tells who may train a body now, and names them first."""

        def present() -> Sequence[str]:
            engine = cast(StagedEngine, self.engine)
            labels = engine.anchors
            names = self.history.participants.remaining(list(labels))
            if not names:
                raise ValueError(
                    "none of the anchors is here, or left, to train the body: name others, or wait for them"
                )
            recorder.name_anchors(names, labels)
            return names

        return present

    def _waiting(self, recorder: Recorder, *, approval: Approvers) -> list[FiledRequest]:
        """Return the open requests; those whose clients the newest model does not know are settled here and now.

        With ``approval`` they are settled once somebody agreed, too.
        """
        waiting, asked_now = [], list(self.history.timeline.open_requests.values())
        requests = [asked.request for asked in asked_now]
        unknown = self.history.requests.are_unknown(requests)
        if any(unknown):
            with self.history.integrity.checked():
                unknown = self.history.requests.are_unknown(requests)
        for asked, not_known in zip(asked_now, unknown, strict=True):
            if not not_known:
                waiting.append(asked)
            elif is_approved(self.history, asked.number, approval):
                recorder.settle(asked.number)
        return [asked for asked in waiting if not self._ask_for_rows(asked)]

    def awaits_rows(self, number: int) -> bool:
        """Return whether a client has to name the rows of a request, and has not done so yet."""
        return hasattr(self.engine, "names_rows") and number in self.history.timeline.unnamed_rows

    def _ask_for_rows(self, asked: FiledRequest) -> bool:
        """Ask who has not named the rows of a request yet; return whether it has to wait for them.

        Without them the client would be left out as a whole, and not the rows.
        """
        if not self.awaits_rows(asked.number):
            return False
        engine = cast(RowsEngine, self.engine)
        if not engine.names_rows:
            return True
        participants, missing = self.history.participants, self.history.timeline.unnamed_rows[asked.number]
        names = [name for name in participants.names(asked.request.group) if participants.blind(name) in missing]
        engine.ask_for_rows(asked.number, names)
        return self.awaits_rows(asked.number)

    def _show(self, recorder: Recorder) -> Watch:
        """Return a function that shows the newest model to ``watch``, once it is recorded and unless it is held."""

        def show(model_id: ModelId, model: Mapping[str, Tensor]) -> None:
            self.after_round(model_id)
            if self.watch is ignore:
                return
            recorder.finish_writing()
            if not self.history.requests.waiting():
                self.watch(model_id, model)

        return show

    def _is_held(self, recorder: Recorder) -> Callable[[], bool]:
        """Return a function that tells whether somebody whom the newest model knows waits to be forgotten."""

        def is_held() -> bool:
            if not self.history.timeline.open_requests:
                return False
            # The round that is being written may be the first of whoever asks.
            recorder.finish_writing()
            return bool(self.history.requests.waiting())

        return is_held

    def find_present(self, asking: Collection[str] | None = None) -> list[str]:
        """Return who may take part now; requests can arrive, and clients come and go.

        Args:
            asking: where sums are kept, who is asked for theirs, so that nobody has to be looked for; None means
                everybody who is there.

        Returns:
            the names of those who are connected, and of those whose sums are kept.
        """
        remaining = self.history.participants.remaining
        if not self.engine.facts.keeps_sums:
            return remaining(self.engine.clients)
        kept = remaining(list(self.history.sums.digests()))
        return remaining([*dict.fromkeys((*(self.engine.clients if asking is None else asking), *kept))])

    def _scores(self, recorder: Recorder, branch: Branch) -> Scores:
        """Measure the newest model before the names of the forgotten are gone."""
        model = recorder.model()
        timeline = self.history.timeline
        leaving = (timeline.requests[number - 1].request.group for number in branch.requests)
        gone = self.history.participants.names(frozenset[int]().union(*leaving))
        names = [name for name in gone if name in self.engine.clients]
        remaining = self.history.participants.remaining(self.engine.clients)
        return Scores(
            retain=self.engine.accuracy(model, remaining) if remaining else None,
            forget=self.engine.accuracy(model, names) if names else None,
            test=self.engine.test_accuracy(model),
        )

    def _in_work(self) -> Branch | None:
        """Return the newest branch if it serves requests and is not trained to its end."""
        timeline = self.history.timeline
        branch = timeline.branches[self.history.newest.branch]
        return branch if branch.requests and branch.number not in timeline.retrained else None

    def _recording(self) -> AbstractContextManager[Recorder]:
        start, known = self.engine.start(), self.history.timeline.branches
        # Elsewhere to look who is there may be to wait for them. Where nobody can be reached, nobody is missed.
        if known and self.engine.facts.sources.reachable is Source.CHECKED and self.engine.clients:
            tell_changes(self.history, self.engine.clients, placed=True)
            if digest(start) != known[0].model:
                _LOG.warning(
                    "rescind: the engine's first model is not the one that this history began with, as by another "
                    "seed: the history goes on with its own. %s",
                    _OTHER_ROWS,
                )
        return self.history.recording(
            self.engine.facts,
            start,
            capacity=self.capacity,
            goal=self.goal,
            write_behind=self.write_behind,
        )


def tell_changes(history: History, names: Sequence[str], *, placed: bool) -> None:
    """Say in the log how many clients are new to a history, and how many of it are not there.

    Args:
        history: where the training is recorded.
        names: who is there.
        placed: whether clients may be called by their place among all, as in a simulation: then it is a warning once
            somebody was forgotten, whose rows may be somebody else's.
    """
    # Else it is chance who is known.
    if not history.timeline.branches or history.facts.sampling is not Sampling.EVERYBODY:
        return
    known = history.participants.all()
    new = set(history.participants.remaining(names)).difference(known)
    missing = set(history.participants.remaining(list(known))).difference(names)
    if not known or not (new or missing):
        return
    left = history.timeline.forgotten or history.timeline.open_requests
    _LOG.log(
        logging.WARNING if placed and left else logging.INFO,
        "rescind: clients that are new to this history: %d; clients of it that are not there: %d%s",
        *(len(new), len(missing), f". {_OTHER_ROWS}" if placed and left else ""),
    )


def _check_stop(until: object) -> None:
    if not all(hasattr(until, name) for name in ("public", "most", "reached")):
        raise ValueError(f"until is {until!r}; give a rule such as Rounds(10) or Accuracy(0.9)")
