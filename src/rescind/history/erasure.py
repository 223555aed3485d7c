"""Erasing what a history still holds of clients that were forgotten, by a plan that is carried out step by step.

Unlearning an output leaves a history that can give the client back. ``purge``, the default, deletes all of it up to
the noised model; ``output`` deletes what is no longer needed and says what can still be computed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rescind.checkpoints.store import CheckpointStore
from rescind.core.arrays import Clients, Floats
from rescind.core.edges import ErasedStretch, ModelId, RoundEdge, find_members, sorted_group
from rescind.core.facts import Mode
from rescind.core.sensitivity import first_joined, never_joined
from rescind.core.tracker import SensitivityTracker
from rescind.history.events import (
    ErasureFinished,
    RepliesRejected,
    StretchKept,
    SumsKept,
    write_body,
)
from rescind.history.journal import Journal
from rescind.history.lineage import Lineage, branch_exits, lineage_of, steps_back
from rescind.history.outcomes import find_obligations
from rescind.history.subtotals import find_files
from rescind.history.tampering import check_names, check_numbers, check_suppression, suppression_digest
from rescind.history.timeline import Deletion, Timeline, newest_model
from rescind.ledger.commitments import KEY_BYTES, stretch_digest
from rescind.ledger.contract import ROUND, Ledger
from rescind.ledger.records import REMAINING, Branch, ErasureLevel, ErasurePlan, Span, Stretch
from rescind.progress import report_progress

_OUTPUT_STAYS = (
    "the models before the restart, which were trained with the participant and carry no noise",
    "the participant's own numbers in the rounds before the restart: a later request may have to hide it again",
    "the other participants' numbers in these rounds, from which the participant's could be computed as well",
)
_NOISED_OUTPUT_STAYS = (
    "the models before the restart, which were trained with the participant and carry the noise of their rounds only",
    *_OUTPUT_STAYS[1:],
)
_UNPROVEN_STAYS = ("whatever the newest model holds of the participant: nothing that was done to it bounds that",)
_ANCHOR_STAYS = ("the pseudonym, in the list of those who may train, or trained, a network's body",)
_REJECTED_STAYS = ("the pseudonym, in notes of replies that were not used, with round and reason",)
_SUMS_STAYS = ("the pseudonym, in the entries about its sums, with digests of them under a key that is gone",)
_NOISED_STAYS = (
    "how often the participants took part before the restart, squared and summed: what the rounds' noise has to hide",
)
_PURGE_STAYS = (
    "one sensitivity of each remaining participant, which was measured with the leaver present",
    "one largest weight of each remaining participant, rounded up to a coarse list: with its own count it tells "
    "about how many examples all participants of a round had",
    "the pseudonym, in the list of those who once took part, and before which round it first did",
)
_RECORDS_STAYS = ("the names of participants that stay without some of their rows, under new pseudonyms",)
_ALWAYS_STAYS = (
    "keyed digests of the name, by which a returning participant is recognised and finds itself in a certificate: an "
    "attacker who has the run's secret file too, which lies outside of the ledger, can test guesses of the name",
    "the pseudonym, in the request and in its registration, whose time tells when the participant first took part; "
    "the restart's round and noise, in the plan",
    "the roots of erased rounds and of registrations, which commit to numbers and the name under salts that are gone",
)

# Largest weights are rounded up to powers of this root of 2: exact ones would tell the leaver's number of examples.
_WEIGHTS_PER_OCTAVE = 4


def plan_erasure(journal: Journal, level: ErasureLevel) -> ErasurePlan:
    """List what has to go of all clients that were forgotten and not erased at this level yet."""
    ledger, timeline = journal.ledger, journal.read()
    training = timeline.run.facts.training
    known, tip, kept = timeline.branches, newest_model(ledger, timeline), ledger.kept()
    covered = _covered(timeline, level)
    due = [filed for filed in timeline.requests if filed.served and filed.number not in covered]
    clients = frozenset(client for filed in due for client in filed.request.group)
    abandoned = [span for span in _abandoned(ledger, known, tip) if _holds_anything(ledger, kept, span)]
    touched = lineage_of(ledger, known, ModelId(tip.branch, 0), training, sorted_group(clients))
    first = first_joined(touched.edges, clients)
    on_path = first < len(touched.edges)
    origin = touched.model_ids[first] if on_path and level is ErasureLevel.PURGE else None
    stretch = [] if origin is None else list(_between(known, origin, tip.branch))
    erased = (*abandoned, *stretch)
    numbers = {filed.number for filed in due}
    owed = (obligation for obligation in find_obligations(timeline) if obligation.number in numbers)
    unproven = any(obligation.mode is Mode.HEURISTIC for obligation in owed)
    origins = {branch: left.origin for branch, left in ledger.stretches().items()}
    noised_rounds = any(known[filed.branch].participations for filed in due if filed.branch)
    output_stays = _NOISED_OUTPUT_STAYS if noised_rounds else _OUTPUT_STAYS
    needed = steps_back(known, origins | ({tip.branch: origin} if origin else {}), tip)
    return ErasurePlan(
        level=level,
        branch=tip.branch,
        requests=tuple(filed.number for filed in due),
        clients=tuple(sorted(clients)),
        abandoned=tuple(abandoned),
        stretch=tuple(stretch),
        origin=origin,
        superseded=tuple(sorted(set(origins).difference(model_id.branch for model_id in needed))),
        keys=tuple(_without_numbers(ledger, sorted_group(timeline.forgotten), erased).tolist()),
        models=sum(_inside(model_id, erased) for model_id in kept),
        updates=len(clients & ledger.objects().keys()),
        stays=(_UNPROVEN_STAYS if unproven else ())
        + (_ANCHOR_STAYS if clients & timeline.anchors else ())
        + (_REJECTED_STAYS if _has_rejections(timeline, clients) else ())
        + (_SUMS_STAYS if _has_sums(timeline, clients) else ())
        + (_NOISED_STAYS if noised_rounds else ())
        + (_PURGE_STAYS if stretch else output_stays if on_path else ())
        + (_RECORDS_STAYS if clients & timeline.returning else ())
        + _ALWAYS_STAYS,
    )


def _has_rejections(timeline: Timeline, clients: frozenset[int]) -> bool:
    """Return whether the journal notes a reply of these clients that was not used."""
    return any(client in clients for _, event in timeline.of(RepliesRejected) for client, _ in event.rejected)


def _has_sums(timeline: Timeline, clients: frozenset[int]) -> bool:
    """Return whether the journal notes sums that these clients sent."""
    return any(client in clients for _, event in timeline.of(SumsKept) for client, _ in event.sums)


class Eraser:
    """Carries out erasures and remembers in the journal which are done, so that a killed one can be finished."""

    def __init__(self, journal: Journal, models: CheckpointStore, objects: CheckpointStore) -> None:
        self._journal, self._ledger, self._models, self._objects = journal, journal.ledger, models, objects
        self._computed: tuple[ErasurePlan | None, Stretch | None] = (None, None)

    def erase(self, plan: ErasurePlan) -> tuple[str, ...]:
        """Record a plan and carry it out; say in words what could not be reached.

        A plan that is no longer the one that would be made is refused: what it names may be needed by now.
        """
        self.finish()
        if plan != plan_erasure(self._journal, plan.level):
            raise ValueError("the history has changed since this erasure was planned: plan it again")
        check_names(self._ledger, self._journal.read(), plan.clients)
        check_suppression(self._ledger)
        # Before anything is recorded: what somebody changed is not erased.
        self._computed = (plan, self._compute_stretch(plan))
        self._journal.record(plan)
        self.finish()
        return self._journal.read().deletions[-1].left

    def finish(self) -> None:
        """Carry out every plan that was recorded and not carried out to the end."""
        deletions = self._journal.read().unfinished_deletions
        if deletions:
            self._ledger.check_stamps()
        for begun in deletions:
            for step in self.steps(begun).values():
                step()

    def steps(self, begun: Deletion) -> dict[str, Callable[[], object]]:
        """Return the steps of a recorded plan in their order, the log last; doing one twice does no harm."""
        plan = begun.plan
        clients = np.array(plan.clients, dtype=np.int64)
        return {
            "identities": lambda: self._erase_identities(clients),
            "rounds": lambda: self._erase_rounds(begun),
            "objects": lambda: self._ledger.erase_objects(clients),
            "keys": lambda: self._ledger.erase_keys(np.array(plan.keys, dtype=np.int64)),
            "files": self.sweep,
            "space and log": lambda: self._log(begun),
        }

    def sweep(self) -> None:
        """Delete every file that nothing refers to, and what killed writers left."""
        needed = ((self._models, self._ledger.kept().values()), (self._objects, find_files(self._ledger.objects())))
        for store, files in needed:
            store.remove_unfinished()
            gone = store.digests().difference(files)
            for digest in report_progress(gone, "deleting files", len(gone)):
                store.delete(digest)

    def _erase_identities(self, clients: Clients) -> None:
        free_names(self._journal)
        self._ledger.erase_identities(clients)

    def _erase_rounds(self, begun: Deletion) -> None:
        plan, stretch, remains = begun.plan, None, None
        # Erasing the rounds is one transaction, so either all of them are there or the stretch is.
        if plan.branch not in self._ledger.stretches():
            for_plan, stretch = self._computed
            stretch = stretch if for_plan == plan else self._compute_stretch(plan)
        if stretch is not None:
            # Later bounds start from these numbers, so they belong to the chain.
            remains = (
                write_body(StretchKept(begun.number, plan.branch, stretch_digest(stretch))),
                self._journal.now(),
            )
        self._ledger.erase_rounds(plan.spans, stretch, plan.superseded, remains)

    def _compute_stretch(self, plan: ErasurePlan) -> Stretch | None:
        """Return what stays of the rounds that a plan erases on the path, if their numbers are those recorded."""
        if plan.origin is None:
            return None
        with self._ledger.snapshot():
            check_numbers(self._ledger)
            timeline = self._journal.read()
            training = timeline.run.facts.training
            path = lineage_of(self._ledger, timeline.branches, ModelId(plan.branch, 0), training)
        remaining = _remaining(path, path.index[plan.origin], sorted_group(timeline.forgotten))
        return Stretch(plan.branch, plan.origin, *remaining, secrets.token_bytes(KEY_BYTES))

    def _log(self, begun: Deletion) -> None:
        left = self._ledger.compact() + self._models.kept_versions() + self._objects.kept_versions()
        roots = [entry.root for entry in self._ledger.entries(ROUND) if _inside(entry.model_id, begun.plan.spans)]
        digest = hashlib.sha256(b"".join(roots)).hexdigest()
        suppressed = suppression_digest(self._ledger)
        self._journal.record(ErasureFinished(begun.number, len(roots), digest, left, suppressed))


def free_names(journal: Journal) -> None:
    """Take their names from the old pseudonyms of clients that stay without some rows: they get new ones.

    Raises:
        BrokenHistoryError: somebody gave such a pseudonym another name, which would be lost.
    """
    ledger, returning = journal.ledger, journal.read().returning
    named = ledger.names(sorted_group(returning)) if returning else {}
    if named:
        check_names(ledger, journal.read(), named)
        ledger.erase_identities(sorted_group(named), may_return=True)


def _covered(timeline: Timeline, level: ErasureLevel) -> set[int]:
    """Return the requests that were erased at this level or a stronger one."""
    order = list(ErasureLevel)
    plans = (deletion.plan for deletion in timeline.deletions)
    return {number for plan in plans if order.index(plan.level) >= order.index(level) for number in plan.requests}


def _abandoned(ledger: Ledger, known: Mapping[int, Branch], tip: ModelId) -> Iterator[Span]:
    """Return what lies beside the line of training to the tip."""
    left_at = {model_id.branch: model_id.round for model_id in branch_exits(known, tip)}
    for number in known:
        span = Span(number, left_at.get(number, -1) + 1, ledger.last_round(number))
        if span.first <= span.last:
            yield span


def _between(known: Mapping[int, Branch], origin: ModelId, branch: int) -> Iterator[Span]:
    """Return what lies on the line of training after ``origin`` and before the first model of a branch."""
    for model_id in branch_exits(known, ModelId(branch, 0))[:-1]:
        first = origin.round + 1 if model_id.branch == origin.branch else 0
        if model_id.branch >= origin.branch and first <= model_id.round:
            yield Span(model_id.branch, first, model_id.round)


def _holds_anything(ledger: Ledger, kept: Mapping[ModelId, str], span: Span) -> bool:
    return any(model_id in span for model_id in kept) or len(ledger.absent_rounds(span)) > 0


def _inside(model_id: ModelId, spans: Sequence[Span]) -> bool:
    return any(model_id in span for span in spans)


def _without_numbers(ledger: Ledger, clients: Clients, erased: Sequence[Span]) -> Clients:
    """Return those of the clients of whom no number is left once the spans are erased."""
    still = np.zeros(len(clients), dtype=np.bool_)
    for model_id in ledger.rounds_of(clients):
        if not _inside(model_id, erased):
            (round_,) = ledger.rounds(Span(model_id.branch, model_id.round, model_id.round))
            still |= find_members(clients, round_.clients)
    held = ledger.keys(clients)
    return np.array([client for client in clients[~still].tolist() if client in held], dtype=np.int64)


def _remaining(path: Lineage, origin: int, forgotten: Clients) -> tuple[NDArray[np.void], bool]:
    """Return what may stay of a path: each client's Psi at its end and largest weight; whether factors agreed.

    ``origin`` is the node at which the stretch that is erased begins.
    """
    tracker, common = SensitivityTracker(), True
    everybody = np.unique(np.concatenate([edge.clients for edge in path.edges]))
    measured, known = np.zeros(len(everybody)), np.zeros(len(everybody))
    for edge in path.edges:
        tracker.record(edge)
        if isinstance(edge, RoundEdge) and len(edge.clients):
            positions = np.searchsorted(everybody, edge.clients)
            measured[positions] = np.maximum(measured[positions], edge.weights / edge.weights.sum())
            common = common and bool(edge.factors.min() == edge.factors.max())
        elif isinstance(edge, ErasedStretch):
            known[np.searchsorted(everybody, edge.clients)] = edge.largest_weights
            common = common and edge.common_factor
    gone = find_members(everybody, forgotten)
    remaining = np.empty(len(everybody), dtype=REMAINING)
    remaining["client"] = everybody
    remaining["sensitivity"] = np.where(gone, np.inf, tracker.sensitivities(everybody))
    # Of whoever was forgotten not even a weight stays, but only whether it took part since the stretch began.
    before_only = find_members(everybody, never_joined(path.edges[origin:], everybody))
    remaining["largest_weight"] = np.where(gone, ~before_only, np.maximum(_coarse(measured), known))
    return remaining, common


def _coarse(weights: Floats) -> Floats:
    """Round shares up to the coarse list; what floating point might take away is added."""
    tiny = np.finfo(np.float64).tiny
    steps = np.ceil(_WEIGHTS_PER_OCTAVE * np.log2(np.maximum(weights, tiny) * (1 + 1e-9)))
    return np.where(weights > 0, np.minimum(np.exp2(steps / _WEIGHTS_PER_OCTAVE), 1.0), 0.0)
