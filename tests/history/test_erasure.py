"""What each level promises to erase is in no byte any more, and what can still be computed is said."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from rescind.core.edges import ROOT, ErasedStretch, ModelId, NoiseEdge, RoundEdge
from rescind.core.facts import Mode
from rescind.core.sensitivity import client_sensitivities, group_sensitivity
from rescind.errors import ForgottenClientError
from rescind.history.erasure import Eraser
from rescind.history.history import History
from rescind.ledger.contract import Ledger
from rescind.ledger.records import ErasureLevel
from tests.builders import (
    FACTS,
    START,
    entries_of,
    federation,
    name,
    restarted,
    rounds_of,
    run_sql,
    salts_of,
    stretches_of,
    train,
)

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture(params=["memory", "folder"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    with History.in_memory() if request.param == "memory" else History(tmp_path / "history") as opened:
        yield opened


def test_purge_leaves_one_number_for_each_remaining_client(history: History) -> None:
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 6, range(6))
    leaver = history.participants.find([name(0)])
    others = sorted(history.participants.all().values())[1:]
    branch = restarted(history, [name(0)], ModelId(0, 4))
    before = history.lineage()
    plan = history.plan_erasure()
    history.erase(plan)
    after = history.lineage()
    (edge,) = after.edges
    assert isinstance(edge, ErasedStretch)
    assert edge.sigmas == tuple(each.sigma for each in before.edges if isinstance(each, NoiseEdge))
    assert len(edge.sigmas) == 1
    assert edge.common_factor
    (own,) = np.flatnonzero(np.isin(edge.clients, list(leaver)))
    assert (edge.sensitivities[own], edge.largest_weights[own]) == (np.inf, 1.0)
    assert after.trained == (0, 4)
    expected = client_sensitivities(before.edges, others, [len(before.edges)])[0]
    np.testing.assert_allclose(client_sensitivities(after.edges, others, [1])[0], expected, rtol=1e-8)
    assert (client_sensitivities(after.edges, others, [1])[0] >= expected).all()
    assert group_sensitivity(after.edges, leaver).tolist() == [0, np.inf]
    assert (group_sensitivity(after.edges, others[:2])[-1] >= group_sensitivity(before.edges, others[:2])[-1]).all()
    assert list(history.kept()) == [ROOT, ModelId(branch, 0)]
    assert history.models.digests() == set(history.kept().values())
    assert history.participants.names(leaver) == []
    assert salts_of(history, leaver) == {}
    assert history.integrity.verify() == []
    with history.recording(FACTS, START) as recorder, pytest.raises(ForgottenClientError, match=name(0)):
        train(recorder, clients, 1, range(6))
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 3, range(1, 6))
    view = history.summary(others[:1])
    (owed,) = view.owed
    assert view.protected_from(owed) == 1
    assert history.integrity.verify() == []


def test_rounds_before_the_leavers_first_stay(history: History) -> None:
    """They never depended on it, and neither do the models before it joined."""
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 3, range(1, 6))
        train(recorder, clients, 4, range(6))
    branch = restarted(history, [name(0)], ModelId(0, 5))
    before = history.lineage()
    history.erase(history.plan_erasure())
    after = history.lineage()
    assert [type(edge) for edge in after.edges] == [RoundEdge] * 3 + [ErasedStretch]
    assert after.model_ids == (*(ModelId(0, at) for at in range(4)), ModelId(branch, 0))
    assert after.trained == (0, 1, 2, 3, 5)
    everybody = sorted(history.participants.all().values())
    nodes = client_sensitivities(after.edges, everybody, range(5))
    np.testing.assert_array_equal(nodes[:4], client_sensitivities(before.edges, everybody, range(4)))
    np.testing.assert_allclose(nodes[4], client_sensitivities(before.edges, everybody, [6])[0], rtol=1e-8)
    assert ModelId(0, 3) in history.kept()
    assert ModelId(0, 4) not in history.kept()
    assert history.integrity.verify() == []


def test_an_exact_restart_erases_nothing_that_is_retained(history: History) -> None:
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 3, range(1, 6))
        train(recorder, clients, 2, range(6))
    restarted(history, [name(0)], ModelId(0, 3))
    plan = history.plan_erasure()
    assert plan.stretch == ()
    history.erase(plan)
    assert [type(edge) for edge in history.lineage().edges] == [RoundEdge] * 3
    assert history.newest_of(0).round == 5
    assert [rounds_of(history, span.branch, span.first, span.last) for span in plan.abandoned] == [[]]
    assert history.integrity.verify() == []
    view = history.summary(history.participants.find([name(1)]))
    (owed,) = view.owed
    assert (owed.mode, view.protected_from(owed)) == (Mode.EXACT, None)


def test_a_second_purge_takes_the_first_ones_remains_along(history: History) -> None:
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 4, range(6))
    first = restarted(history, [name(0)], ModelId(0, 3))
    history.erase(history.plan_erasure())
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 4, range(1, 6))
    gone = history.participants.find([name(1)])
    second = restarted(history, [name(1)], ModelId(first, 2))
    before = history.lineage()
    history.erase(history.plan_erasure())
    (edge,) = history.lineage().edges
    assert isinstance(edge, ErasedStretch)
    assert len(edge.sigmas) == 2
    assert history.lineage().trained == (0, 5)
    assert sorted(stretches_of(history)) == [second]
    infinite = edge.clients[np.isinf(edge.sensitivities)].tolist()
    assert len(infinite) == 2
    assert gone < set(infinite)
    others = sorted(history.participants.all().values())
    expected = client_sensitivities(before.edges, others, [len(before.edges)])[0]
    np.testing.assert_allclose(client_sensitivities(history.lineage().edges, others, [1])[0], expected, rtol=1e-8)
    view = history.summary(others[:1])
    assert list(map(view.protected_from, view.owed)) == [1, 1]
    assert history.integrity.verify() == []


def test_output_keeps_the_prefix_and_says_so(history: History) -> None:
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 6, range(6))
    leaver = sorted(history.participants.find([name(0)]))
    restarted(history, [name(0)], ModelId(0, 4))
    before = history.lineage()
    plan = history.plan_erasure(ErasureLevel.OUTPUT)
    assert any("before the restart" in line for line in plan.stays)
    history.erase(plan)
    assert [type(edge) for edge in history.lineage().edges] == [RoundEdge] * 4 + [NoiseEdge]
    np.testing.assert_array_equal(
        group_sensitivity(history.lineage().edges, leaver), group_sensitivity(before.edges, leaver)
    )
    assert ModelId(0, 5) not in history.kept()
    assert history.participants.names(leaver) == []
    assert history.integrity.verify() == []
    # The numbers that stay are still covered by the chain, so their salts have to stay as well.
    assert set(salts_of(history, leaver)) == set(leaver)
    restarted(history, [name(2)], ModelId(0, 2))
    history.erase(history.plan_erasure())
    assert salts_of(history, leaver) == {}
    assert history.integrity.verify() == []


STEPS = ["identities", "rounds", "objects", "keys", "files", "space and log"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", [False, True])
def test_an_erasure_that_was_cut_off_is_finished(
    history: History, step: str, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = federation(1)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 4, range(6))
    leaver = history.participants.find([name(0)])
    restarted(history, [name(0)], ModelId(0, 3))
    whole = Eraser.steps

    def cut_off(self: Eraser, begun: object) -> dict[str, object]:
        steps = list(whole(self, begun).items())  # type: ignore[arg-type]
        at = [each for each, _ in steps].index(step) + after

        def die() -> None:
            raise KeyboardInterrupt

        return {**dict(steps[:at]), "death": die}

    plan = history.plan_erasure()
    with monkeypatch.context() as patched:
        patched.setattr(Eraser, "steps", cut_off)
        with pytest.raises(KeyboardInterrupt):
            history.erase(plan)
    with history.recording(FACTS, START) as recorder:
        train(recorder, clients, 1, range(1, 6))
    assert history.timeline.unfinished_deletions == []
    assert len(entries_of(history, "erased")) == 1
    assert [type(edge) for edge in history.lineage().edges] == [ErasedStretch, RoundEdge]
    assert history.participants.names(leaver) == []
    assert salts_of(history, leaver) == {}
    assert history.models.digests() == set(history.kept().values())
    assert history.integrity.verify() == []


def test_what_is_left_of_a_stretch_cannot_be_made_smaller(tmp_path: Path) -> None:
    clients = federation(1)
    with History(tmp_path / "history") as history:
        with history.recording(FACTS, START) as recorder:
            train(recorder, clients, 4, range(6))
        restarted(history, [name(0)], ModelId(0, 3))
        history.erase(history.plan_erasure())
        assert history.integrity.verify() == []
        (stretch,) = stretches_of(history).values()
    remaining = stretch.remaining.copy()
    remaining["sensitivity"] /= 2
    for change, value in (("remaining", remaining.tobytes()), ("common_factor", 0), ("origin_round", 1)):
        copy = tmp_path / change
        shutil.copytree(tmp_path / "history", copy)
        run_sql(copy, (f"update stretch set {change} = ?", value))  # noqa: S608
        with History(copy) as tampered:
            assert tampered.integrity.verify() == ["what is left before model 1.0 is not what an erasure left"]


def test_an_erasure_that_was_cut_off_says_once_what_remains(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry used to be written before the rounds went, and once more when the erasure was finished."""
    with history.recording(FACTS, START) as recorder:
        train(recorder, federation(1), 4, range(6))
    restarted(history, [name(0)], ModelId(0, 3))

    def dying(*_: object) -> None:
        raise KeyboardInterrupt

    plan = history.plan_erasure()
    with monkeypatch.context() as cut:
        cut.setattr(Ledger, "erase_rounds", dying)
        with pytest.raises(KeyboardInterrupt):
            history.erase(plan)
    with history.recording(FACTS, START):
        pass
    assert [entry.kind for entry in entries_of(history, "erasure", "remains", "erased")] == [
        "erasure",
        "remains",
        "erased",
    ]
    assert history.integrity.verify() == []
