"""From the ledger to the path of models that mathematics sees: branches joined, erased stretches in their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rescind.core.arrays import Clients
from rescind.core.edges import ROOT, AbsentRound, Edge, ModelId, NoiseEdge
from rescind.core.training import LocalTraining
from rescind.errors import BrokenHistoryError
from rescind.history.events import BodyTrained, ClientsRegistered, read_event
from rescind.ledger.contract import ABSENT_ROUNDS, BRANCH, REGISTRATION, Ledger
from rescind.ledger.records import REMAINING, Branch, Span, Stretch
from rescind.progress import report_progress

# Of so many clients somebody took part in nearly every round, so that looking for them first does not pay.
_LARGE = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Lineage:
    """The path H(u) to a model: its edges, and of each node its place and the rounds trained up to it.

    A branch that starts without noise starts at its parent's node: ``index`` knows both names. ``behind_noise`` gives
    for every branch on the path that started with noise the first node behind it.
    """

    edges: tuple[Edge, ...]
    model_ids: tuple[ModelId, ...]
    trained: tuple[int, ...]
    index: Mapping[ModelId, int]
    behind_noise: Mapping[int, int]


def branch_exits(known: Mapping[int, Branch], model_id: ModelId) -> list[ModelId]:
    """Return where the line of training to a model leaves each branch on it, the model itself last."""
    return steps_back(known, {}, model_id)[::-1]


def find_body(known: Mapping[int, Branch], bodies: Sequence[BodyTrained], model_id: ModelId) -> BodyTrained | None:
    """Return the body that a model of a network in two stages has; None if it was not whole by then."""
    for leg in branch_exits(known, model_id) if bodies else ():
        for body in bodies:
            if body.branch == leg.branch and body.round <= leg.round:
                return body
    return None


def lineage_of(
    ledger: Ledger,
    known: Mapping[int, Branch],
    model_id: ModelId,
    training: LocalTraining,
    group: Clients | None = None,
) -> Lineage:
    """Build the path to a model; with a group, the rounds that nobody of it joined are ``AbsentRound``."""
    # Read over one connection: a database is far away.
    with ledger.snapshot():
        return _build_path(ledger, known, model_id, training, group)


def _build_path(
    ledger: Ledger, known: Mapping[int, Branch], model_id: ModelId, training: LocalTraining, group: Clients | None
) -> Lineage:
    touched = None if group is None or len(group) > _LARGE else set(ledger.rounds_of(group))
    edges: list[Edge] = []
    model_ids, trained, index = [ROOT], [0], {ROOT: 0}
    behind_noise: dict[int, int] = {}
    stretches = ledger.stretches()
    origins = {branch: left.origin for branch, left in stretches.items()}
    for leg in steps_back(known, origins, model_id)[::-1]:
        number, rounds = leg.branch, trained[-1]
        inside, stretch, erased = [known[number]], stretches.get(number), 0
        if stretch:
            line = [known[exit_.branch] for exit_ in branch_exits(known, ModelId(number, 0))]
            inside = [branch for branch in line if branch.number > stretch.origin.branch]
            erased = sum(branch.parent.round for branch in inside if branch.parent) - stretch.origin.round
            rounds += erased
        if any(branch.unbounded for branch in (line if stretch else inside)):
            stretch = Stretch(number, ROOT, _know_nothing(ledger, number), common_factor=False)
        sigmas = tuple(branch.sigma for branch in inside if branch.sigma)
        start = stretch.edge(sigmas, erased) if stretch else start_edge(known[number])
        # It is the noise, or has it inside.
        behind_noise |= {branch.number: len(edges) + 1 for branch in inside if branch.sigma}
        if start:
            edges.append(start)
            model_ids.append(ModelId(number, 0))
            trained.append(rounds)
        index[ModelId(number, 0)] = len(edges)
        # Ten thousand rounds are quite usual, so they are put in place all at once.
        by_round = read_rounds(ledger, Span(number, 1, leg.round), training, touched)
        here = [ModelId(number, at) for at in by_round]
        index.update(zip(here, range(len(edges) + 1, len(edges) + 1 + len(here)), strict=True))
        edges.extend(by_round.values())
        model_ids.extend(here)
        trained.extend(range(rounds + 1, rounds + 1 + len(here)))
    return Lineage(tuple(edges), tuple(model_ids), tuple(trained), index, behind_noise)


def read_rounds(
    ledger: Ledger, span: Span, training: LocalTraining, touched: set[ModelId] | None = None
) -> dict[int, Edge]:
    """Return the edges of all rounds of a span by number, those of rounds that were not ``touched`` in short."""
    count = max(span.last - span.first + 1, 0)
    edges = dict(
        report_progress(_round_edges(ledger, span, training, touched), f"reading branch {span.branch}", count)
    )
    if len(edges) != count or list(edges) != list(range(span.first, span.last + 1)):
        # A path with a gap would give bounds that are too small.
        raise missing_rounds(span)
    return edges


def missing_rounds(span: Span) -> BrokenHistoryError:
    """Return the error that not all rounds of a span are there."""
    last = ModelId(span.branch, span.last)
    return BrokenHistoryError(f"the numbers of rounds up to {last} are gone, or it never was: there is no path to it")


def steps_back(known: Mapping[int, Branch], origins: Mapping[int, ModelId], model_id: ModelId) -> list[ModelId]:
    """Follow a path from its end: where it leaves each branch. A stretch is stepped over to where it began."""
    steps = [model_id]
    while True:
        if steps[-1].branch not in known:
            raise BrokenHistoryError(f"{steps[-1]} is on a branch that never was")
        before = origins.get(steps[-1].branch, known[steps[-1].branch].parent)
        if before is None:
            return steps
        if not 0 <= before.branch < steps[-1].branch:
            # Followed on, it would have no end.
            raise BrokenHistoryError(f"{before} is said to come before branch {steps[-1].branch}: it cannot")
        steps.append(before)


def start_edge(branch: Branch) -> NoiseEdge | None:
    """Return the noise that a branch starts with, if it does."""
    return NoiseEdge(branch.sigma, branch.noise_rounding, branch.unit_roundoff) if branch.sigma else None


def _know_nothing(ledger: Ledger, number: int) -> NDArray[np.void]:
    """Return what is known of everybody who was registered when a branch began, if anything may have gone into it."""
    last = 0
    for entry in ledger.entries(BRANCH, REGISTRATION):
        event = read_event(entry)
        if isinstance(event, ClientsRegistered):
            last = event.last
        elif isinstance(event, Branch) and event.number == number:
            break
    remaining = np.empty(last, dtype=REMAINING)
    remaining["client"], remaining["sensitivity"], remaining["largest_weight"] = np.arange(1, last + 1), np.inf, 1.0
    return remaining


def _round_edges(
    ledger: Ledger, span: Span, training: LocalTraining, touched: set[ModelId] | None
) -> Iterator[tuple[int, Edge]]:
    """Return the span's edges, those of rounds that were not touched in short."""
    if span.last < span.first:
        return
    joined = None if touched is None else {model_id.round for model_id in touched if model_id in span}
    if joined is None:
        for round_ in ledger.rounds(span):
            yield round_.model_id.round, round_.edge(training)
        return
    whole = {round_.model_id.round: round_ for round_ in ledger.rounds(span, joined)} if joined else {}
    short = ledger.absent_rounds(span)
    columns = (short[name].tolist() for name in ABSENT_ROUNDS.names or ())
    for number, factor, rounding in zip(*columns, strict=True):
        yield number, whole[number].edge(training) if number in whole else AbsentRound(factor, rounding)
