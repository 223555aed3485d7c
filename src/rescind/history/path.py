"""From the ledger to the path of models that mathematics sees: branches joined, erased stretches in their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rescind.core.edges import Clients, Edge, Noise, Unbounded, Untouched
from rescind.core.training import LocalTraining
from rescind.history.codec import decode
from rescind.history.errors import BrokenHistory, NotAHistory
from rescind.history.ledger import UNTOUCHED, Journal, Ledger
from rescind.history.progress import counted
from rescind.history.records import Branch, Place, Round, Span

# Of a span in which the group took part in more than this share of the rounds, all rounds are read at once.
_DENSE = 0.25

# Of so many clients somebody took part in nearly every round, so that looking for them first does not pay.
_LARGE = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """The path H(u) to a model: its edges, and of each node its place and the rounds trained up to it.

    A node in front of an ``Unbounded`` edge may have no place of its own. A branch that starts without noise
    starts at its parent's node: ``index`` knows both names. ``behind_noise`` gives for every branch on the path that
    started with noise the first node behind it.
    """

    edges: tuple[Edge, ...]
    places: tuple[Place | None, ...]
    trained: tuple[int, ...]
    index: Mapping[Place, int]
    behind_noise: Mapping[int, int]


def branches(journal: Journal) -> dict[int, Branch]:
    """Give all branches by number."""
    found = (decode(Branch, entry.body) for entry in journal.entries("branch"))
    return {branch.number: branch for branch in found}


def newest(ledger: Ledger) -> Place:
    """Give the newest model: the last one of the branch that was started last."""
    number = max(branches(ledger), default=None)
    if number is None:
        raise NotAHistory("nothing has been recorded here yet: start the federation's first run")
    return Place(number, ledger.last_round(number))


def newest_at(journal: Journal) -> Place:
    """Return the newest model as a journal has it."""
    number = max(branches(journal))
    rounds = [entry.place.round for entry in journal.entries("round") if entry.place.branch == number]
    return Place(number, max(rounds, default=0))


def lineage(known: Mapping[int, Branch], place: Place) -> list[Place]:
    """Give where the line of training to a place leaves each branch on it, the place itself last."""
    return steps_back(known, {}, place)[::-1]


def path_to(ledger: Ledger, place: Place, training: LocalTraining, group: Clients | None = None) -> Path:
    """Build the path to a model; with a group, the rounds that nobody of it joined are ``Untouched``."""
    known = branches(ledger)
    touched = None if group is None or len(group) > _LARGE else set(ledger.joined(group))
    edges: list[Edge] = []
    places: list[Place | None] = [Place(0, 0)]
    trained, index = [0], {Place(0, 0): 0}
    behind_noise: dict[int, int] = {}
    stretches = ledger.stretches()
    for leg in steps_back(known, {each.branch: each.origin for each in stretches.values()}, place)[::-1]:
        number, rounds = leg.branch, trained[-1]
        if number in stretches:
            stretch = stretches[number]
            inside = [
                known[each.branch] for each in lineage(known, Place(number, 0)) if each.branch > stretch.origin.branch
            ]
            erased = sum(each.parent.round for each in inside if each.parent) - stretch.origin.round
            edges.append(stretch.edge(tuple(each.sigma for each in inside if each.sigma), erased))
            places.append(None)
            rounds += erased
            trained.append(rounds)
            behind_noise |= {each.number: len(edges) for each in inside if each.sigma}
            if any(each.unbounded for each in inside):
                edges.append(Unbounded())
                places.append(None)
                trained.append(rounds)
        else:
            for edge in start_edges(known[number]):
                edges.append(edge)
                places.append(None)
                trained.append(rounds)
                if isinstance(edge, Noise):
                    behind_noise[number] = len(edges)
        index[Place(number, 0)] = len(edges)
        places[-1] = places[-1] or Place(number, 0)
        # Ten thousand rounds are quite usual, so they are put in place all at once.
        rounds_here = _round_edges(ledger, Span(number, 1, leg.round), training, touched)
        found = dict(counted(rounds_here, f"reading branch {number}", leg.round))
        if list(found) != list(range(1, leg.round + 1)):
            # A path with a gap would give bounds that are too small.
            raise BrokenHistory(
                f"the numbers of rounds up to {leg} are gone, or it never was: there is no path to it"
            )
        here = [Place(number, at) for at in found]
        index.update(zip(here, range(len(edges) + 1, len(edges) + 1 + len(here)), strict=True))
        edges.extend(found.values())
        places.extend(here)
        trained.extend(range(rounds + 1, rounds + 1 + len(here)))
    return Path(tuple(edges), tuple(places), tuple(trained), index, behind_noise)


def steps_back(known: Mapping[int, Branch], origins: Mapping[int, Place], place: Place) -> list[Place]:
    """Follow a path from its end: where it leaves each branch. A stretch is stepped over to where it began."""
    steps = [place]
    while (before := origins.get(steps[-1].branch, known[steps[-1].branch].parent)) is not None:
        steps.append(before)
    return steps


def start_edges(branch: Branch) -> Iterator[Edge]:
    """Give what was done to the model that a branch starts with."""
    if branch.sigma:
        yield Noise(branch.sigma, branch.noise_rounding, branch.unit_roundoff)
    if branch.unbounded:
        yield Unbounded()


def _round_edges(
    ledger: Ledger, span: Span, training: LocalTraining, touched: set[Place] | None
) -> Iterator[tuple[int, Edge]]:
    """Give the span's edges, those of rounds that were not touched in short."""
    if span.last < span.first:
        return
    joined = None if touched is None else {place.round for place in touched if place in span}
    if joined is None:
        for each in ledger.rounds(span):
            yield each.place.round, each.edge(training)
        return
    whole: Mapping[int, Round] = {each.place.round: each for each in _chosen(ledger, span, joined)}
    short = ledger.untouched(span)
    for number, factor, rounding in zip(*(short[each].tolist() for each in UNTOUCHED.names or ()), strict=True):
        yield number, whole[number].edge(training) if number in whole else Untouched(factor, rounding)


def _chosen(ledger: Ledger, span: Span, wanted: set[int]) -> Iterator[Round]:
    if len(wanted) > _DENSE * (span.last - span.first + 1):
        yield from (each for each in ledger.rounds(span) if each.place.round in wanted)
        return
    for number in sorted(wanted):
        yield from ledger.rounds(Span(span.branch, number, number))
