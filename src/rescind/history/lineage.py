"""From the ledger to the path of models that mathematics sees: branches joined, erased stretches in their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rescind.core.arrays import Clients
from rescind.core.edges import AbsentRound, Edge, NoiseEdge, UnboundedEdge
from rescind.core.training import LocalTraining
from rescind.errors import BrokenHistoryError, NoHistoryError
from rescind.history.events import BodyTrained
from rescind.history.timeline import Timeline
from rescind.ledger.contract import ABSENT_ROUNDS, ROUND, Ledger
from rescind.ledger.records import Branch, ModelId, Span
from rescind.progress import report_progress

# Of so many clients somebody took part in nearly every round, so that looking for them first does not pay.
_LARGE = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Lineage:
    """The path H(u) to a model: its edges, and of each node its place and the rounds trained up to it.

    A node in front of an ``UnboundedEdge`` edge may have no name of its own. A branch that starts without noise
    starts at its parent's node: ``index`` knows both names. ``behind_noise`` gives for every branch on the path that
    started with noise the first node behind it.
    """

    edges: tuple[Edge, ...]
    model_ids: tuple[ModelId | None, ...]
    trained: tuple[int, ...]
    index: Mapping[ModelId, int]
    behind_noise: Mapping[int, int]

    @property
    def in_rounds(self) -> tuple[Edge, ...]:
        """The edges as rounds know them: what nothing bounds is in no round, and nobody takes part there."""
        return tuple(AbsentRound(1.0, 0.0) if isinstance(edge, UnboundedEdge) else edge for edge in self.edges)


def newest_model(ledger: Ledger, timeline: Timeline) -> ModelId:
    """Return the newest model: the last one of the branch that was started last."""
    number = max(timeline.branches, default=None)
    if number is None:
        raise NoHistoryError("nothing has been recorded here yet: start the federation's first run")
    return ModelId(number, ledger.last_round(number))


def newest_model_at(ledger: Ledger, timeline: Timeline, last: int) -> ModelId:
    """Return the model that was the newest when the journal's last entry had this number."""
    number = max(timeline.until(last).branches)
    rounds = (entry.model_id for entry in ledger.entries(ROUND) if entry.sequence <= last)
    return ModelId(number, max((model_id.round for model_id in rounds if model_id.branch == number), default=0))


def branch_exits(known: Mapping[int, Branch], model_id: ModelId) -> list[ModelId]:
    """Return where the line of training to a model leaves each branch on it, the model itself last."""
    return steps_back(known, {}, model_id)[::-1]


def find_body(timeline: Timeline, model_id: ModelId) -> BodyTrained | None:
    """Return the body that a model of a network in two stages has; None if it was not whole by then."""
    bodies = [event for _, event in timeline.of(BodyTrained)]
    for leg in branch_exits(timeline.branches, model_id) if bodies else ():
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
    model_ids: list[ModelId | None] = [ModelId(0, 0)]
    trained, index = [0], {ModelId(0, 0): 0}
    behind_noise: dict[int, int] = {}
    stretches = ledger.stretches()
    origins = {branch: left.origin for branch, left in stretches.items()}
    for leg in steps_back(known, origins, model_id)[::-1]:
        number, rounds = leg.branch, trained[-1]
        inside, starts = [known[number]], list(start_edges(known[number]))
        if number in stretches:
            stretch = stretches[number]
            inside = [
                known[exit_.branch]
                for exit_ in branch_exits(known, ModelId(number, 0))
                if exit_.branch > stretch.origin.branch
            ]
            erased = sum(branch.parent.round for branch in inside if branch.parent) - stretch.origin.round
            rounds += erased
            starts = [stretch.edge(tuple(branch.sigma for branch in inside if branch.sigma), erased)]
            if any(branch.unbounded for branch in inside):
                starts.append(UnboundedEdge())
        # The first of these edges is the noise, or has it inside.
        behind_noise |= {branch.number: len(edges) + 1 for branch in inside if branch.sigma}
        edges.extend(starts)
        model_ids.extend([None] * len(starts))
        trained.extend([rounds] * len(starts))
        index[ModelId(number, 0)] = len(edges)
        model_ids[-1] = model_ids[-1] or ModelId(number, 0)
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


def start_edges(branch: Branch) -> Iterator[Edge]:
    """Return what was done to the model that a branch starts with."""
    if branch.sigma:
        yield NoiseEdge(branch.sigma, branch.noise_rounding, branch.unit_roundoff)
    if branch.unbounded:
        yield UnboundedEdge()


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
