"""Random sequences of record, ask, go back, erase and reopen: in memory and in a folder, always the same history."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from unittest.mock import patch

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rescind.core.aggregation import RoundMeasurement
from rescind.core.calibration import Budget
from rescind.core.edges import Edge, ErasedStretch, RoundEdge
from rescind.core.facts import Mode
from rescind.core.planning import Candidate
from rescind.core.rounds import Replies, RoundResult
from rescind.core.sensitivity import first_joined
from rescind.core.summary import Node, Request
from rescind.history import recorder as recorders
from rescind.history.events import RecordedPlan
from rescind.history.history import History
from rescind.history.outcomes import find_obligations
from rescind.history.recorder import Recorder
from rescind.history.run import Goal
from rescind.ledger.commitments import KEY_BYTES
from rescind.ledger.records import ErasureLevel
from tests.builders import FACTS, bounds_of, check_kept_bounds, entries_of, flat_bounds

NAMES = [f"client {number}" for number in range(6)]
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
START = {"theta": np.zeros(3)}
# Few checkpoints, so that retention has something to decide.
SETTINGS = {"capacity": 3, "goal": Goal(Budget(1.0, 1e-2), 0.5)}


def flat(edge: Edge) -> tuple[object, ...]:
    arrays = edge.clients.tolist() if isinstance(edge, RoundEdge | ErasedStretch) else None
    if isinstance(edge, RoundEdge):
        gram = None if edge.gram is None else edge.gram.tolist()
        return (arrays, edge.weights.tolist(), edge.distances.tolist(), edge.factor, edge.rounding, gram)
    if isinstance(edge, ErasedStretch):
        return (arrays, edge.sensitivities.tolist(), edge.largest_weights.tolist(), edge.common_factor, edge.sigmas)
    return (edge,)


class CutOffError(Exception):
    pass


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name) / "history"
        self.bytes = {"memory": count(), "folder": count()}
        with self.as_if("memory"):
            self.memory = History.in_memory()
        with self.as_if("folder"):
            self.disk = History(self.folder)
        self.stream = np.random.default_rng(3)
        self.gone: set[str] = set()
        self.cut_off = False
        self.on_both(lambda history: self.recording(history, lambda _: None))

    def teardown(self) -> None:
        self.disk.close()
        self.memory.models.remove()
        self.scratch.cleanup()

    @contextmanager
    def as_if(self, which: str) -> Iterator[None]:
        """Return both the same secrets, so that even their chains are equal."""
        stream, really = self.bytes[which], secrets.token_bytes

        def key(size: int) -> bytes:
            # Names of temporary files are random as well, and stay so.
            return next(stream).to_bytes(size, "big") if size == KEY_BYTES else really(size)

        with patch.object(secrets, "token_bytes", key):
            yield

    def on_both(self, act: Callable[[History], object]) -> None:
        results = []
        for which, history in (("memory", self.memory), ("folder", self.disk)):
            history.journal.clock = lambda: NOON
            with self.as_if(which):
                results.append(act(history))
        assert results[0] == results[1]

    def recording(self, history: History, act: Callable[[Recorder], object]) -> object:
        result: object = None
        # Often, so that few rounds lie between.
        with (
            suppress(CutOffError),
            patch.object(recorders, "_ROUNDS_REPLAYED", 3),
            history.recording(FACTS, START, **SETTINGS) as recorder,  # type: ignore[arg-type]
        ):
            result = act(recorder)
            assert flat_bounds(recorder._bounds) == flat_bounds(bounds_of(history, kept=False))
            if self.cut_off:
                raise CutOffError
        return result

    @rule(
        who=st.sets(st.sampled_from(NAMES)),
        rounds=st.integers(1, 4),
        scale=st.sampled_from([0.01, 0.3, 2.0]),
        cut_off=st.booleans(),
    )
    def record(self, who: set[str], rounds: int, scale: float, cut_off: bool) -> None:
        self.cut_off = cut_off
        names = sorted(who - self.gone)
        size = len(names)
        drawn = [
            (self.stream.uniform(1, 9, size), self.stream.normal(size=(size, 3)) * scale, self.stream.normal(size=3))
            for _ in range(rounds)
        ]

        def act(recorder: Recorder) -> list[list[float]]:
            sensitivities = []
            for weights, centred, theta in drawn:
                gram = centred @ centred.T
                measured = RoundMeasurement(np.sqrt(np.diagonal(gram)), float(size > 0), gram)
                rounding = 1e-9 if size else 0.0
                replies = Replies(tuple(names), weights, (3,) * size, {}, batch=0)
                recorder.record(RoundResult(replies, {"theta": theta}, measured, rounding))
                sensitivities.append(recorder.sensitivities(names))
            return sensitivities

        self.on_both(lambda history: self.recording(history, act))

    def not_asked(self) -> dict[str, int]:
        """Return who may ask, by name: nobody asks twice."""
        filed = [asked.request.group for asked in self.memory.timeline.requests if not asked.dropped]
        taken = frozenset[int]().union(*filed)
        return {name: client for name, client in self.memory.participants.all().items() if client not in taken}

    @precondition(lambda self: self.not_asked())
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        known = self.not_asked()
        names = data.draw(st.sets(st.sampled_from(sorted(known)), min_size=1, max_size=2))
        request = Request(frozenset(known[name] for name in names), Budget(1.0, 1e-2))
        self.on_both(lambda history: history.requests.file(request, NOON))

    @precondition(lambda self: any(asked.open for asked in self.memory.timeline.requests))
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from([asked.number for asked in self.memory.timeline.requests if asked.open]))
        self.on_both(lambda history: history.requests.withdraw(number))

    @precondition(lambda self: any(asked.open for asked in self.memory.timeline.requests))
    @rule(data=st.data(), level=st.sampled_from([None, *ErasureLevel]))
    def go_back(self, data: st.DataObject, level: ErasureLevel | None) -> None:
        asked = next(filed for filed in self.memory.timeline.requests if filed.open)
        names = set(self.memory.participants.names(asked.request.group))
        path = self.memory.lineage()
        place = data.draw(st.sampled_from([kept for kept in self.memory.kept() if kept in path.index]))
        node, noise = path.index[place], self.stream.normal(size=3)
        touched = first_joined(path.edges, asked.request.group) < node
        hidden = [
            owed.request.group
            for owed in find_obligations(self.memory.timeline)
            if owed.branch is not None
            and first_joined(path.edges, owed.request.group) < node < path.behind_noise[owed.branch]
        ]
        sigma = 0.5 if touched or hidden else 0.0
        mode = Mode.INSTANCE if touched or hidden else Mode.EXACT
        chosen = Candidate(Node(node, place.branch, place.round), sigma, mode, tuple(hidden), 1.0, 1.0)

        def act(history: History) -> object:
            history.requests.record_plan(RecordedPlan((asked.number,), chosen, public_plan=False))
            model = history.model(place)
            restarted = {"theta": model["theta"] + noise} if sigma else model

            def restart(recorder: Recorder) -> object:
                branch = recorder.restart(
                    place,
                    restarted,
                    requests=(asked.number,),
                    sigma=sigma,
                    noise_rounding=1e-6 * bool(sigma),
                    unit_roundoff=2.0**-53 * bool(sigma),
                )
                if level is not None:
                    recorder.erase(history.plan_erasure(level))
                return branch

            return self.recording(history, restart)

        self.on_both(act)
        self.gone |= names

    @rule()
    def reopen(self) -> None:
        self.disk.close()
        self.disk = History(self.folder)
        self.disk.journal.clock = lambda: NOON

    @invariant()
    def equal(self) -> None:
        one, two = self.memory, self.disk
        assert one.head == two.head
        assert entries_of(one) == entries_of(two)
        assert one.kept() == two.kept()
        assert one.models.digests() == two.models.digests() == set(one.kept().values())
        assert one.participants.all() == two.participants.all()
        assert find_obligations(one.timeline) == find_obligations(two.timeline)
        first, second = one.lineage(), two.lineage()
        assert (first.model_ids, first.trained, first.behind_noise) == (
            second.model_ids,
            second.trained,
            second.behind_noise,
        )
        assert [flat(edge) for edge in first.edges] == [flat(edge) for edge in second.edges]
        assert one.integrity.verify() == two.integrity.verify() == []
        check_kept_bounds(one)
        check_kept_bounds(two)
        if len(first.edges) and first.trained[-1]:
            assert one.summary([]).owed == two.summary([]).owed


TestHistories = Histories.TestCase
# An example takes a second: the gate tries five, `.ci/full` a hundred.
TestHistories.settings = settings(max_examples=settings().max_examples // 10, stateful_step_count=12)
