"""Erasing what a history still holds of clients that were forgotten, by a plan that is carried out step by step.

Unlearning an output leaves a history that can give the client back. ``purge``, the default, deletes all of it up to
the noised model; ``output`` deletes what is no longer needed and says what can still be computed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rescind.core.edges import Aggregation, Clients, Erased, members, sorted_group
from rescind.core.sensitivity import first_joined
from rescind.core.tracker import SensitivityTracker
from rescind.core.training import LocalTraining
from rescind.history.checkpoints import CheckpointStore
from rescind.history.codec import decode, encode
from rescind.history.commitments import stretch_digest
from rescind.history.ledger import Ledger
from rescind.history.path import Path, branches, lineage, path_to, steps_back
from rescind.history.records import REMAINING, Branch, Entry, ErasurePlan, Level, Place, Span, Stretch
from rescind.history.requests import asked_for

Key = TypeVar("Key")

_OUTPUT_STAYS = (
    "the models before the restart, which were trained with the client and carry no noise",
    "the client's own numbers in the rounds before the restart: a later request may have to hide it again",
    "the other participants' numbers in these rounds, from which the client's could be computed as well",
)
_PURGE_STAYS = (
    "one sensitivity and one largest weight of each remaining client, which were measured with the client present",
    "the pseudonym, in the list of those who once took part",
)
_ALWAYS_STAYS = (
    "a keyed digest of the name, by which a returning client is recognised",
    "the pseudonym, in the request",
    "the roots of erased rounds, which commit to numbers under salts that are gone",
)


def plan_erasure(ledger: Ledger, branch: int, level: Level, training: LocalTraining) -> ErasurePlan:
    """List what has to go after the restart that began a branch."""
    known = branches(ledger)
    forgotten = _forgotten(ledger, known, branch)
    clients = forgotten.get(branch, frozenset())
    tip = Place(branch, ledger.last_round(branch))
    kept = ledger.kept()
    abandoned = [span for span in _abandoned(ledger, known, tip) if _holds_anything(ledger, kept, span)]
    stretch: list[Span] = []
    origin = None
    touched = path_to(ledger, Place(branch, 0), training, sorted_group(clients))
    first = first_joined(touched.edges, clients)
    if level is Level.PURGE and clients and first < len(touched.edges):
        origin = touched.places[first]
        stretch = list(_between(known, origin, branch)) if origin else []
    erased = (*abandoned, *stretch)
    everybody = sorted_group(client for group in forgotten.values() for client in group)
    origins = {each.branch: each.origin for each in ledger.stretches().values()} | (
        {branch: origin} if origin else {}
    )
    needed = {place.branch for place in steps_back(known, origins, tip)}
    stays = _OUTPUT_STAYS if first < len(touched.edges) and not stretch else _PURGE_STAYS if stretch else ()
    return ErasurePlan(
        level=level,
        branch=branch,
        clients=tuple(sorted(clients)),
        abandoned=tuple(abandoned),
        stretch=tuple(stretch),
        origin=origin,
        superseded=tuple(each for each in ledger.stretches() if each not in needed),
        keys=tuple(_without_numbers(ledger, everybody, erased).tolist()),
        models=_unshared(kept, lambda place: _inside(place, erased)),
        updates=_unshared(_updates(ledger, known), lambda key: key[1] in clients or _inside(key[0], erased)),
        stays=stays + _ALWAYS_STAYS,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an erasure; doing it twice does no harm."""

    name: str
    run: Callable[[], object]


class Eraser:
    """Carries out erasures and remembers in the journal which are done, so that a killed one can be finished."""

    def __init__(
        self, ledger: Ledger, models: CheckpointStore, updates: CheckpointStore, training: LocalTraining
    ) -> None:
        self._ledger, self._models, self._updates, self._training = ledger, models, updates, training

    def begin(self, plan: ErasurePlan, time: str) -> Entry:
        """Record the plan; from here on the erasure is finished whatever happens."""
        return self._ledger.append("erasure", encode(plan), time)

    def unfinished(self) -> list[Entry]:
        """Give the plans that were recorded and not carried out to the end."""
        done = {int(entry.body["erasure"]) for entry in self._ledger.entries("erased")}
        return [entry for entry in self._ledger.entries("erasure") if entry.sequence not in done]

    def carry_out(self, begun: Entry, time: str) -> None:
        """Take every step of a recorded plan; those that were taken before change nothing."""
        for step in self.steps(begun, time):
            step.run()

    def steps(self, begun: Entry, time: str) -> list[Step]:
        """Give the steps of a recorded plan in their order: identities first, the log last."""
        plan = decode(ErasurePlan, begun.body)
        clients = np.array(plan.clients, dtype=np.int64)
        return [
            Step("identities", lambda: self._ledger.erase_identities(clients)),
            Step("updates", lambda: self._erase_updates(plan, clients)),
            Step("models", lambda: self._erase_models(plan)),
            Step("rounds", lambda: self._erase_rounds(plan, time)),
            Step("keys", lambda: self._ledger.erase_keys(np.array(plan.keys, dtype=np.int64))),
            Step("space and log", lambda: self._finish(begun, plan, time)),
        ]

    def _erase_updates(self, plan: ErasurePlan, clients: Clients) -> None:
        for digest in plan.updates:
            self._updates.delete(digest)
        self._ledger.erase_updates(clients)

    def _erase_models(self, plan: ErasurePlan) -> None:
        kept = self._ledger.kept()
        gone = [place for place in kept if _inside(place, plan.spans)]
        needed = {digest for place, digest in kept.items() if place not in gone}
        for digest in set(plan.models) - needed:
            self._models.delete(digest)
        self._ledger.release(gone)

    def _erase_rounds(self, plan: ErasurePlan, time: str) -> None:
        stretch = None
        # Erasing the rounds is one transaction, so either all of them are there or the stretch is.
        if plan.origin is not None and plan.branch not in self._ledger.stretches():
            path = path_to(self._ledger, Place(plan.branch, 0), self._training)
            groups = _forgotten(self._ledger, branches(self._ledger), plan.branch).values()
            remaining, common = _remaining(path, sorted_group(client for group in groups for client in group))
            stretch = Stretch(plan.branch, plan.origin, remaining, common)
            # Before it is there: later bounds start from these numbers, so they belong to the chain.
            self._ledger.append("remains", {"branch": plan.branch, "digest": stretch_digest(stretch)}, time)
        self._ledger.erase_rounds(plan.spans, stretch, plan.superseded)

    def _finish(self, begun: Entry, plan: ErasurePlan, time: str) -> None:
        left = self._ledger.compact() + self._models.kept_versions() + self._updates.kept_versions()
        roots = [
            entry.root
            for entry in self._ledger.entries("round")
            if _inside(Place(int(entry.body["branch"]), int(entry.body["round"])), plan.spans)
        ]
        body = {
            "erasure": begun.sequence,
            "models": list(plan.models),
            "updates": list(plan.updates),
            "rounds": len(roots),
            "roots": hashlib.sha256(b"".join(roots)).hexdigest(),
            "left": list(left),
        }
        self._ledger.append("erased", body, time)


def _forgotten(ledger: Ledger, known: Mapping[int, Branch], branch: int) -> dict[int, frozenset[int]]:
    """Give the group that each branch up to this one forgets."""
    groups = {asked.number: asked.request.group for asked in asked_for(ledger)}
    return {
        each.number: groups[each.request]
        for each in known.values()
        if each.request is not None and each.number <= branch
    }


def _abandoned(ledger: Ledger, known: Mapping[int, Branch], tip: Place) -> Iterator[Span]:
    """Give what lies beside the line of training to the tip."""
    left_at = {place.branch: place.round for place in lineage(known, tip)}
    for number in known:
        span = Span(number, left_at.get(number, -1) + 1, ledger.last_round(number))
        if span.first <= span.last:
            yield span


def _between(known: Mapping[int, Branch], origin: Place, branch: int) -> Iterator[Span]:
    """Give what lies on the line of training after ``origin`` and before the first model of a branch."""
    for place in lineage(known, Place(branch, 0))[:-1]:
        first = origin.round + 1 if place.branch == origin.branch else 0
        if place.branch >= origin.branch and first <= place.round:
            yield Span(place.branch, first, place.round)


def _holds_anything(ledger: Ledger, kept: Mapping[Place, str], span: Span) -> bool:
    return any(place in span for place in kept) or len(ledger.untouched(span)) > 0


def _inside(place: Place, spans: Sequence[Span]) -> bool:
    return any(place in span for span in spans)


def _without_numbers(ledger: Ledger, clients: Clients, erased: Sequence[Span]) -> Clients:
    """Give those of the clients of whom no number is left once the spans are erased."""
    still = np.zeros(len(clients), dtype=np.bool_)
    for place in ledger.joined(clients):
        if not _inside(place, erased):
            (round_,) = ledger.rounds(Span(place.branch, place.round, place.round))
            still |= members(clients, round_.clients)
    held = ledger.keys(clients)
    return np.array([each for each in clients[~still].tolist() if each in held], dtype=np.int64)


def _updates(ledger: Ledger, known: Mapping[int, Branch]) -> dict[tuple[Place, int], str]:
    spans = (Span(number, 1, ledger.last_round(number)) for number in known)
    return {key: digest for span in spans for key, digest in ledger.updates(span).items()}


def _unshared(stored: Mapping[Key, str], goes: Callable[[Key], bool]) -> tuple[str, ...]:
    """Give the digests that nothing refers to any more once some of the references go."""
    going = {digest for key, digest in stored.items() if goes(key)}
    return tuple(sorted(going.difference(digest for key, digest in stored.items() if not goes(key))))


def _remaining(path: Path, forgotten: Clients) -> tuple[NDArray[np.void], bool]:
    """Give what may stay of a path: each client's Psi at its end and largest weight; whether factors agreed."""
    tracker, common = SensitivityTracker(), True
    everybody = np.unique(
        np.concatenate([edge.clients for edge in path.edges if isinstance(edge, Aggregation | Erased)])
    )
    largest = np.zeros(len(everybody))
    for edge in path.edges:
        tracker.record(edge)
        if isinstance(edge, Aggregation) and len(edge.clients):
            shares = edge.weights / edge.weights.sum() * (1 + 2.0**-50)
            common = common and bool(edge.factors.min() == edge.factors.max())
        elif isinstance(edge, Erased):
            shares = edge.largest_weights
            common = common and edge.common_factor
        else:
            continue
        places = np.searchsorted(everybody, edge.clients)
        largest[places] = np.maximum(largest[places], shares)
    remaining = np.empty(len(everybody), dtype=REMAINING)
    gone = members(everybody, forgotten)
    remaining["client"] = everybody
    remaining["sensitivity"] = np.where(gone, np.inf, tracker.sensitivities(everybody))
    # Of whoever was forgotten not even a weight stays; nothing is computed with it any more.
    remaining["largest_weight"] = np.where(gone, 1.0, largest)
    return remaining, common
