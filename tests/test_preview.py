"""What forgetting somebody would take is told before anybody asks, and is what is then planned."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rescind import Budget, History, Revocable, Rounds, Scratch, Sifu, Solve
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope
from rescind.core.planning import Candidate
from rescind.errors import UnknownClientError
from rescind.preview import Preview, preview
from tests.builders import everybody

BUDGETS = [Budget(0.1, 1e-6), Budget(8.0, 0.01), Budget(60.0, 0.1)]


@pytest.fixture
def trained() -> Iterator[Revocable]:
    with History.in_memory() as history:
        federation = Revocable(history, everybody(6))
        federation.train(Rounds(6))
        yield federation


def where(candidate: Candidate | None) -> tuple[int, int, float]:
    """Return the restart of a candidate."""
    assert candidate is not None
    return candidate.node.branch, candidate.node.round, candidate.sigma


@pytest.mark.parametrize("budget", BUDGETS)
def test_what_is_previewed_is_what_is_planned(trained: Revocable, budget: Budget) -> None:
    ways = preview(trained.history, ["clinic-1", "clinic-3"], budget)
    assert not trained.history.timeline.requests
    assert ways.chosen in ways.candidates
    number = trained.history.requests.ask(["clinic-1", "clinic-3"], budget)
    assert where(trained.plan(Sifu(), number).candidate) == where(ways.chosen)
    assert where(trained.plan(Solve(), number).candidate) == where(ways.solved)


def test_a_way_costs_as_many_bytes_as_are_sent(trained: Revocable) -> None:
    history = trained.history
    ways = preview(history, ["clinic-1"], Budget(8.0, 0.01))
    scratch = ways.candidates[0]
    assert where(scratch) == (0, 0, 0.0)
    assert ways.count_bytes(scratch) == 8 * history.run.parameters * round(scratch.predicted_rounds)


def test_rows_are_offered_no_noise(trained: Revocable) -> None:
    ways = preview(trained.history, ["clinic-1"], Budget(60.0, 0.1), scope=PrivacyScope.RECORDS)
    assert [where(candidate) for candidate in ways.candidates] == [(0, 0, 0.0)]
    assert ways.left_out


def test_nothing_is_to_forget_of_who_is_unknown_to_the_model(trained: Revocable) -> None:
    history = trained.history
    number = history.requests.ask(["clinic-1"], BUDGETS[1])
    with history.recording(trained.engine.facts, trained.engine.start()) as recorder:
        trained.plan(Scratch(), number)
        recorder.restart(ModelId(0, 0), trained.engine.start(), requests=[number])
    assert preview(history, ["clinic-2"], BUDGETS[1]) == Preview(history.run)


def test_whoever_is_not_there_is_named(trained: Revocable) -> None:
    with pytest.raises(UnknownClientError, match="nobody-9"):
        preview(trained.history, ["nobody-9"], BUDGETS[1])
    with pytest.raises(ValueError, match="give a list of names"):
        preview(trained.history, "clinic-1", BUDGETS[1])
