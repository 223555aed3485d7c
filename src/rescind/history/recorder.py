"""The one writer of a run: a round is its checkpoint first, then one transaction.

If the process dies in between, the round did not happen, and the next opening removes the checkpoint that nothing
refers to. A round can be written behind, by a thread, while clients train the next one; whatever else is asked of the
recorder waits for it.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from typing import cast

import numpy as np

from rescind.checkpoints.store import CheckpointStore
from rescind.checkpoints.tensors import digest
from rescind.core.arrays import Clients, Tensor
from rescind.core.edges import NO_BOUND, ErasedStretch, ModelId, RoundEdge, solver_kind, sorted_group
from rescind.core.facts import DpFedAvg, Mode, PrivacyScope, Stages
from rescind.core.rounds import RoundResult
from rescind.errors import ROWS_NEED, ForgottenClientError, HistoryError, StalePlanError
from rescind.history.bounds import Bounds, keep_bounds, read_bounds
from rescind.history.erasure import Eraser, free_names
from rescind.history.events import (
    AnchorsNamed,
    BodyTrained,
    BranchRetrained,
    EndByData,
    HeadSolved,
    MeanMissed,
    RequestSettled,
    SettingsTold,
    TrainingDoubted,
    write_body,
)
from rescind.history.journal import Journal
from rescind.history.lineage import find_body, lineage_of, start_edge
from rescind.history.restarts import are_unknown, check_all_open, check_open, hidden_at, participations_at
from rescind.history.retention import exact_places, exact_rounds, exact_shares, public_schedule
from rescind.history.run import Run, compare_tensors, describe_model
from rescind.history.sums import KeptSums, find_other_bodies
from rescind.history.timeline import Timeline, newest_model
from rescind.ledger.commitments import KEY_BYTES
from rescind.ledger.records import Branch, ErasurePlan, RoundRecord, pack_participants, round_edge
from rescind.texts import is_plain

# After a crash at most so many rounds are read again. What is kept is written as a whole, so less often is cheaper.
_ROUNDS_REPLAYED = 256


class Recorder:
    """Writes the rounds of a run; made by ``History.recording``, which holds the run for it.

    ``model_id`` names the newest model, ``model`` is it, ``head`` is the head of the chain, to be handed to clients
    of the next round so that they witness it; ``sums`` are those that are kept.
    """

    def __init__(
        self,
        journal: Journal,
        models: CheckpointStore,
        run: Run,
        eraser: Eraser,
        sums: KeptSums,
        thread: Executor | None = None,
    ) -> None:
        self._journal, self._ledger = journal, journal.ledger
        self._models, self._run = models, run
        self._eraser, self._thread = eraser, thread
        self.sums = sums
        # The model whose round the thread writes, and what becomes of it.
        self._behind: tuple[ModelId, Future[None]] | None = None
        self._resumed = True
        self._newest: ModelId
        self._kept: dict[ModelId, str]
        self._gone: frozenset[int]
        self._usable: bool
        self._bounds: Bounds
        self._share: int
        self._set_aside: frozenset[int]
        self._anchors: frozenset[int]
        self._labels: dict[int, str]
        self._settings: str
        self._introduced: dict[str, int]
        self._body: ModelId | None
        # Whether the newest model is one that a solve made, as far as this recorder knows.
        self._solving: bool
        self._reload()

    @property
    def model_id(self) -> ModelId:
        """The name of the newest model; its round may still be on its way to the ledger."""
        return self._newest if self._behind is None else self._behind[0]

    @property
    def head(self) -> bytes:
        """The head of the chain."""
        return self._ledger.head()

    @property
    def body_rounds_left(self) -> int:
        """How many rounds a body of two stages is still to be trained; those that nobody joined do not count."""
        self.finish_writing()
        return self._body_rounds_left()

    @property
    def body_rounds_here(self) -> int:
        """How many rounds of the newest branch trained such a body."""
        self.finish_writing()
        if self._body is None:
            return self._newest.round if self._run.facts.stages else 0
        return self._body.round if self._body.branch == self._newest.branch else 0

    def finish_body(self) -> None:
        """Record that the body is whole, and who trained it, unless that is recorded already."""
        self._check_usable()
        if self._run.facts.stages is None or self._body is not None or self.body_rounds_left:
            return
        timeline = self._journal.read()
        path = lineage_of(self._ledger, timeline.branches, self._newest, self._run.facts.training)
        edges = (edge for edge in path.edges if isinstance(edge, RoundEdge | ErasedStretch))
        joined = {client for edge in edges for client in edge.clients.tolist()}
        event = BodyTrained(self._newest.branch, self._newest.round, tuple(sorted(joined - timeline.forgotten)))
        self._journal.record(event)
        self._body = event.model_id
        self._drop_other_bodies()

    def _drop_other_bodies(self) -> None:
        """Delete what was summed over the features of another body: it is of no use any more."""
        if self._body is None:
            return
        if stale := find_other_bodies(self._journal.read(), self._newest) & self._ledger.objects().keys():
            self._ledger.erase_objects(sorted_group(stale))
            self._eraser.sweep()

    def keep_sums(
        self, digests: Mapping[str, str], labels: Mapping[str, str], renewed: Mapping[int, int] | None = None
    ) -> None:
        """Keep the sums that clients sent for the round to come, in the place of those that they sent before.

        Args:
            digests: what ``sums.store`` returned of each, by name.
            labels: what people call the clients, where that is not their name.
            renewed: what ``sums.find_renewals`` said when they were asked; whoever was to send them once more since
                then still is. None means that nobody was.
        """
        self._check_usable()
        clients = self._introduce(list(digests), labels).tolist()
        before = self.sums.files()
        kept = dict(zip(clients, digests.values(), strict=True))
        self._ledger.keep_objects(kept, self._following(), self._journal.now())
        self.sums.delete_unneeded(before)
        if renewed is None:
            return
        now = self.sums.find_renewals()
        if again := [client for client in clients if now.get(client, 0) > renewed.get(client, 0)]:
            self.sums.ask_again(again)

    def name_anchors(self, names: Sequence[str], labels: Mapping[str, str]) -> None:
        """Record who may train the body, as far as that is new; nobody else's reply is recorded there."""
        self._check_usable()
        new = set(self._introduce(names, labels).tolist()) - self._anchors
        if new:
            self._journal.record(AnchorsNamed(tuple(sorted(new))))
            self._anchors |= new

    def took_part(self, names: Sequence[str]) -> list[str]:
        """Return those of the names who took part on the newest model's line."""
        self.finish_writing()
        known = self._ledger.pseudonyms(names)
        clients = [name for name in names if name in known]
        joined = self._bounds.tracker.knows(np.array([known[name] for name in clients], dtype=np.int64))
        return [name for name, is_known in zip(clients, joined.tolist(), strict=True) if is_known]

    def first_model(self) -> dict[str, Tensor]:
        """Load theta_0^0, which knows nobody."""
        return self._models.load(self._kept[ModelId(0, 0)])

    def model(self) -> dict[str, Tensor]:
        """Load the newest model: training goes on from it."""
        self.finish_writing()
        return self._newest_model()

    def sensitivities(self, names: Sequence[str]) -> list[float]:
        """Return Psi of clients that are known, at the newest model."""
        self.finish_writing()
        known = self._ledger.pseudonyms(names)
        return [self._bounds.tracker.sensitivity(known[name]) for name in names]

    def record(self, round_: RoundResult, *, behind: bool = False) -> None:
        """Record a round; what people call its clients is written before, and they are recognised by it later.

        A round that nobody joined is a round too. After an error nothing of the round is recorded; open the history
        again to go on.

        ``behind``: it may be written while the caller goes on, who must not change model and measurement any more.
        What goes wrong is raised by whatever is called next.
        """
        self._check_usable()
        replies = round_.replies
        # Not by the writer, whose pace would decide whose wish to leave is heard, and who is waited for.
        clients = self._introduce([*replies.names, *replies.rejected], replies.labels)
        # Copied, as an engine may use its own for the next round; and what was sent is not held meanwhile.
        kept = replace(replies, weights=np.array(replies.weights), tensors={}, rejected=dict(replies.rejected))
        round_ = replace(round_, replies=kept)
        if behind and self._thread is not None:
            # Until it is written: whoever went on from a lost model would record what was trained from it.
            self._usable = False
            self._behind = (self._following(), self._thread.submit(self._write, round_, clients))
        else:
            self._write(round_, clients)

    def finish_writing(self) -> None:
        """Wait until the newest model's round is recorded, and raise what went wrong with it."""
        if self._behind is None:
            return
        interruption: BaseException | None = None
        _, written = self._behind
        while not written.done():
            try:
                wait([written])
            except BaseException as error:
                # However often somebody interrupts it: the run must not be let go while a round is written.
                interruption = error
        self._behind = None
        if interruption is not None:
            raise interruption from written.exception()
        written.result()

    def _write(self, round_: RoundResult, everybody: Clients) -> None:
        """Check a round, then record it; nobody else may use the recorder meanwhile.

        ``everybody`` are the pseudonyms of the participants, then of the rejected.
        """
        replies, measured, names = round_.replies, round_.measured, round_.replies.names
        self._check_model(round_.model)
        # A round that nobody joined is like any other.
        solver = round_.kind.is_solvers and len(names) > 0
        model_id = self._following()
        if solver and isinstance(self._run.facts.public, DpFedAvg):
            # Once it is erased nobody could tell it from a noised round.
            raise ValueError("a solver's sums have no noise, and this run is DP-FedAvg: train its rounds")
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ValueError(f"{twice[0]!r} is named twice in one round")
        lengths = {
            "weights": len(replies.weights),
            "steps": len(replies.steps),
            "distances": len(measured.distances),
        }
        for name, length in lengths.items():
            if length != len(names):
                raise ValueError(f"{len(names)} participants need as many {name}, not {length}")
        if any(replies.steps) is solver and names:
            raise ValueError("participants make local steps, and those who answer a solver make none")
        if solver and round_.kind is not solver_kind(round_.rounding):
            # Read again, the round would be of the other kind.
            raise ValueError(f"a solution is bounded by less than {NO_BOUND:g}, and a solver's step by nothing")
        training = self._run.facts.training
        clients, unused = everybody[: len(names)], everybody[len(names) :]
        gone = [name for name, client in zip(names, clients.tolist(), strict=True) if client in self._gone]
        if gone:
            raise ForgottenClientError(gone)
        if self._run.facts.stages is not None and len(names):
            self._check_stage(clients, round_.model, solver=solver)
        order = np.argsort(clients)
        packed = pack_participants(
            clients[order],
            replies.weights[order],
            measured.distances[order],
            np.array(replies.steps, dtype=np.int32)[order],
        )
        gram = None if measured.gram is None else np.ascontiguousarray(measured.gram[np.ix_(order, order)])
        edge = round_edge(round_.kind, packed, measured.update_norm, round_.rounding, gram, training)
        record = RoundRecord(
            model_id,
            packed,
            measured.update_norm,
            round_.rounding,
            edge.factor,
            self._models.put(round_.model),
            gram,
            secrets.token_bytes(KEY_BYTES),
        )
        self._usable = False
        self._bounds.tracker.record(edge)
        self._bounds.index[model_id] = self._bounds.tracker.last_node
        released = self._observed(edge, model_id, solver=solver or not len(names))
        reasons = dict(zip(unused.tolist(), replies.rejected.values(), strict=True))
        self._ledger.commit_round(record, self._journal.now(), released, reasons, resumed=self._resumed)
        self._newest, self._resumed = model_id, False
        self._bounds = replace(self._bounds, joined=self._bounds.joined + bool(len(names)))
        self._solving = solver or (self._solving and not len(names))
        self._kept[model_id] = record.model
        self._let_go(released)
        self._keep_bounds(_ROUNDS_REPLAYED)
        # Last: whoever tried again after an error would record the round a second time.
        self._usable = True

    def _following(self) -> ModelId:
        """Return the id of the model after the newest that is recorded."""
        return ModelId(self._newest.branch, self._newest.round + 1)

    def _newest_model(self) -> dict[str, Tensor]:
        return self._models.load(self._kept[self._newest])

    def _body_rounds_left(self) -> int:
        stages = self._run.facts.stages
        return stages.body_rounds_left(self._bounds.joined) if stages and self._body is None else 0

    def _introduce(self, names: Sequence[str], labels: Mapping[str, str]) -> Clients:
        """Return the clients' pseudonyms; who is new gets one, and what people call them is written down."""
        if not self._introduced.keys() >= set(names):
            self._check_names(names)
            registered = self._ledger.register(names, self._journal.now())
            # Those of the next round are mostly the same.
            self._introduced = dict(zip(names, registered.tolist(), strict=True))
        clients = np.array([self._introduced[name] for name in names], dtype=np.int64)
        called = {
            client: (name, labels[name])
            for name, client in zip(names, clients.tolist(), strict=True)
            if name in labels and self._labels.get(client) != labels[name]
        }
        if called:
            self._ledger.label(dict(called.values()), self._journal.now())
            self._labels |= {client: label for client, (_, label) in called.items()}
        return clients

    def _check_stage(self, clients: Clients, model: Mapping[str, Tensor], *, solver: bool) -> None:
        """Refuse a round of the other stage, somebody who is no anchor in the body, and a body that changes later."""
        stages = cast(Stages, self._run.facts.stages)
        if solver is (self._body is None) or not (solver or self._body_rounds_left()):
            raise ValueError("the head is solved once the body is whole, and then the body is not trained")
        if not solver and not self._anchors.issuperset(clients.tolist()):
            raise ValueError("only anchors train the body: somebody else would be forgotten from it by nothing")
        if solver:
            before = self._newest_model()
            if any(not np.array_equal(model[name], before[name]) for name in before if name not in stages.head):
                raise ValueError("the body has changed while the head was solved")

    def _check_names(self, names: Sequence[str]) -> None:
        """Refuse new names that cannot be shown as they are; those that a history has already are spelt out."""
        odd = [name for name in names if not is_plain(name)]
        new = [name for name in odd if name not in self._ledger.pseudonyms(odd)]
        if new:
            raise ValueError(
                f"{new[0]!a:.80} is not a valid name for a client: it begins or ends with a space, or has a "
                "character that nobody can see, such as a line break. Call it otherwise"
            )

    def restart(
        self,
        parent: ModelId,
        model: Mapping[str, Tensor],
        *,
        requests: Sequence[int] = (),
        sigma: float = 0.0,
        noise_rounding: float = 0.0,
        unit_roundoff: float = 0.0,
    ) -> Branch:
        """Start a new branch at a kept model, with ``model`` as its first: the noised one, or the kept one itself.

        The numbers are those of a ``Noise``. To serve requests it has to do what their plan says, and the plan has to
        be younger than the last restart. Noise has been drawn before: whoever goes on after a crash finds the branch
        here, or not, and never has two models under one request.
        """
        self._check_usable()
        self._check_model(model)
        if parent not in self._kept or parent not in self._bounds.index:
            on_line = ", ".join(str(model_id) for model_id in sorted(self._kept) if model_id in self._bounds.index)
            raise ValueError(f"{parent} is not kept on this line of training; restart from one of {on_line}")
        timeline = self._journal.read()
        newest = timeline.branches[self._newest.branch]
        if newest.requests and newest.number not in timeline.retrained and not requests:
            raise ValueError(f"branch {newest.number} serves a request: train it to its end first")
        filed = check_all_open(timeline, requests)
        hidden = hidden_at(self._ledger, timeline, parent, self._run.facts.training, filed)
        branch = Branch(
            number=max(timeline.branches) + 1,
            model=digest(model),
            parent=parent,
            sigma=sigma,
            noise_rounding=noise_rounding,
            unit_roundoff=unit_roundoff,
            requests=tuple(requests),
            hidden=hidden if sigma else (),
            # Where every round was noised nothing more may be needed.
            bare=() if sigma or isinstance(self._run.facts.public, DpFedAvg) else hidden,
            participations=participations_at(self._ledger, timeline, parent, self._run.facts, filed),
        )
        self._check_restart(timeline, branch, parent, hidden)
        self._usable = False
        self._models.put(model)
        self._ledger.start_branch(branch.number, branch.model, write_body(branch), self._journal.now())
        self._reload()
        return branch

    def _check_restart(self, timeline: Timeline, branch: Branch, parent: ModelId, hidden: tuple[int, ...]) -> None:
        """Refuse a restart that is not what was planned, or whose numbers no path could be built from."""
        noise = start_edge(branch)
        if branch.sigma and not (branch.noise_rounding > 0 and branch.unit_roundoff > 0):
            raise ValueError("noise needs its noise_rounding (see grid_rounding) and unit_roundoff")
        if not noise and branch.model != self._kept[parent]:
            raise ValueError(f"without noise a branch starts with its parent's own model, {parent}, and no other one")
        if not branch.requests:
            if noise or hidden:
                raise ValueError(
                    f"to go back to {parent} without a request is possible only without noise, and only if everybody "
                    "who was forgotten stays so there"
                )
            return
        numbers = " and ".join(map(str, branch.requests))
        plan = timeline.plans.get(branch.requests[0])
        if (
            plan is None
            or plan.requests != branch.requests
            or plan.seen < max(entry.sequence for entry, _ in timeline.of(Branch))
        ):
            raise StalePlanError(f"request {numbers} has no plan since the last restart: plan it, record the plan")
        if (plan.parent, plan.candidate.sigma) != (parent, branch.sigma):
            raise ValueError(
                f"the plan of request {numbers} says {plan.parent} and sigma {plan.candidate.sigma:g}, not {parent} "
                f"and {branch.sigma:g}"
            )
        heuristic = plan.candidate.mode is Mode.HEURISTIC
        requests = {filed.number: filed.request for filed in timeline.requests}
        if any(requests[number].scope is PrivacyScope.RECORDS for number in hidden):
            # Its clients get new pseudonyms: nobody would know who they are on this line.
            raise ValueError(f"{parent} knows the rows that are to go: {ROWS_NEED}")
        if hidden and plan.candidate.mode is Mode.EXACT:
            raise ValueError(f"the plan of request {numbers} says exact, and {parent} knows clients that are to go")
        noised_rounds = isinstance(self._run.facts.public, DpFedAvg) and plan.public_plan
        if hidden and not (branch.sigma or heuristic or noised_rounds):
            raise ValueError(f"at {parent} there are {len(hidden)} requests to hide, and no noise hides them")

    def record_end_by_data(self, *, solved: bool = False) -> None:
        """Record, once a branch, that a rule which looks at data decides when its training ends.

        ``solved``: the branch's head is solved, and ends with its solution.
        """
        self._check_usable()
        told = EndByData(self._newest.branch, solved)
        if told not in (event for _, event in self._journal.read().of(EndByData)):
            self._journal.record(told)

    def record_solved(self) -> None:
        """Record that the newest model is the head's solution."""
        self._check_usable()
        self._journal.record(HeadSolved(self._newest.branch, self._newest.round))

    def record_settings(self, told: str) -> None:
        """Record what clients are told beside the model in the round to come, if that is new.

        ``told`` is a digest, empty where an engine tells nothing, or nobody was asked.
        """
        if told in ("", self._settings):
            return
        self._check_usable()
        self._journal.record(SettingsTold(self._newest.branch, self._newest.round + 1, told))
        self._settings = told

    def doubt(self, reason: str) -> None:
        """Record why the round to come contradicts the declared training, once a branch while the doubt stands.

        ``reason`` tells nothing of what the replies hold.
        """
        self._check_usable()
        branch, round_ = self._newest.branch, self._newest.round + 1
        if all(doubt.model_id.branch != branch for doubt in self._journal.read().standing_doubts):
            self._journal.record(TrainingDoubted(branch, round_, reason))

    def record_other_mean(self) -> None:
        """Record, once a branch, that the model to come is not the mean which the training says that it is."""
        self._check_usable()
        timeline, branch = self._journal.read(), self._newest.branch
        missed = {model_id.branch for model_id in timeline.missed_means}
        if branch not in missed:
            self._journal.record(MeanMissed(branch, self._newest.round + 1))

    def record_retrained(self) -> None:
        """Record that the newest branch, which serves requests, has been trained to its end."""
        self._check_usable()
        newest = self._newest
        if not self._journal.read().branches[newest.branch].requests:
            raise ValueError(f"branch {newest.branch} serves no request: there is nothing to end")
        self._journal.record(BranchRetrained(newest.branch, newest.round, self._kept[newest]))

    def settle(self, number: int) -> None:
        """Serve a request without a restart: possible if nobody of it ever touched the newest model."""
        self._check_usable()
        timeline = self._journal.read()
        if not are_unknown(self._ledger, timeline, [check_open(timeline, number).request])[0]:
            raise ValueError(f"the newest model knows clients of request {number}: plan it, and restart")
        self._journal.record(RequestSettled(number))
        free_names(self._journal)
        self._gone, self._introduced = self._journal.read().forgotten, {}

    def erase(self, plan: ErasurePlan) -> tuple[str, ...]:
        """Erase by a plan, step by step, and go on with what is left; say in words what could not be reached."""
        self._check_usable()
        self._usable = False
        left = self._eraser.erase(plan)
        self._reload()
        return left

    def _reload(self) -> None:
        """Build what is derived from the ledger anew: the bounds, and what to keep."""
        free_names(self._journal)
        timeline = self._journal.read()
        self._newest = newest_model(self._ledger, timeline)
        bounds = self._bounds = read_bounds(self._ledger, timeline)
        self._kept = self._ledger.kept()
        self._gone = timeline.forgotten
        on_line = [model_id for model_id in self._kept if model_id in bounds.index]
        # What exact restarts may take of earlier branches changes with the next restart only.
        known, capacity = timeline.branches, self._run.capacity
        self._share = exact_shares(known, capacity)[self._newest.branch]
        earlier = [model_id for model_id in on_line if model_id.branch != self._newest.branch]
        chosen = exact_places(earlier, known, self._ledger.last_round, capacity)
        self._set_aside = frozenset(bounds.index[model_id] for model_id in chosen)
        self._anchors, body = timeline.anchors, find_body(timeline.branches, timeline.bodies, self._newest)
        self._body = None if body is None else body.model_id
        # Where a solve of a whole model was cut off the next one begins, and keeps the model that it begins with.
        self._solving = self._body in bounds.index and bounds.index[self._body] < bounds.tracker.last_node
        self._labels, self._introduced = {}, {}
        told = [event.digest for _, event in timeline.of(SettingsTold)]
        self._settings = told[-1] if told else ""
        self._drop_other_bodies()
        self._keep_bounds(_ROUNDS_REPLAYED)
        self._usable = True

    def keep_bounds(self) -> None:
        """Keep what is derived from the rounds in the ledger, unless a call failed half-way."""
        if self._usable:
            self._keep_bounds(1)

    def retire(self) -> None:
        """Be of no use any more: others may have changed the history once the run is let go."""
        self._usable = False

    def _keep_bounds(self, rounds: int) -> None:
        """Keep it if there were so many rounds since it was kept last."""
        node = self._bounds.tracker.last_node
        if node - self._bounds.kept >= rounds:
            keep_bounds(self._ledger, self._newest, self._bounds)
            self._bounds = replace(self._bounds, kept=node)

    def _observed(self, edge: RoundEdge, model_id: ModelId, *, solver: bool) -> list[ModelId]:
        """Return the models that need not be kept any longer; ``solver`` if a solve may have made the newest."""
        node = self._bounds.tracker.last_node
        # A branch that starts without noise gives its parent's node a second name, so all ids are looked through.
        kept = {model_id: self._bounds.index[model_id] for model_id in self._kept if model_id in self._bounds.index}
        if self._run.facts.public_schedule:
            dropped = set(kept.values()).difference(public_schedule(node, self._run.capacity))
        else:
            set_aside = self._for_exact(model_id) if self._run.goal else self._for_heads()
            # How many rounds a solve takes follows data: it must not decide what is left of the rounds before it.
            replaces = solver and self._solving and node - 1 not in set_aside
            psi = self._bounds.tracker.sensitivities
            dropped = set(self._bounds.retention.observe(node, edge.clients, psi, set_aside, replaces=replaces))
        return [model_id for model_id, at in kept.items() if at in dropped]

    def _for_exact(self, model_id: ModelId) -> set[int]:
        """Return the nodes that Psi must not decide about once training stands at ``model_id``."""
        rounds = exact_rounds(model_id.branch, model_id.round, self._share)
        return {*self._set_aside, *(self._bounds.index[ModelId(model_id.branch, number)] for number in rounds)}

    def _for_heads(self) -> set[int]:
        """Return the node at which the body of a network in two stages is whole: everybody's head begins there."""
        return {self._bounds.index[self._body]} if self._body in self._bounds.index else set()

    def _let_go(self, model_ids: Sequence[ModelId]) -> None:
        gone = {self._kept.pop(model_id) for model_id in model_ids if model_id in self._kept}
        for unused in gone - set(self._kept.values()):
            self._models.delete(unused)

    def _check_usable(self) -> None:
        """Wait for the round that is being written, and refuse to go on after an error."""
        self.finish_writing()
        if not self._usable:
            raise HistoryError(
                "an earlier call failed half-way, or the run was let go: open the history again to go on from what "
                "is recorded"
            )

    def _check_model(self, model: Mapping[str, Tensor]) -> None:
        if (tensors := describe_model(model)) != self._run.tensors:
            different = compare_tensors(self._run.tensors, tensors)
            raise ValueError(f"the model has other tensors than the run was started with: {different}")
        for name, tensor in model.items():
            if not np.isfinite(tensor).all():
                raise ValueError(f"tensor {name!r} of the model holds numbers that are not finite")
