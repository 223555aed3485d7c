"""Who is in a head that follows from kept sums does not follow from who left, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from typer.testing import CliRunner

from rescind import History
from rescind.cli import app as commands
from rescind.core.edges import ModelId
from rescind.core.facts import PrivacyScope
from rescind.errors import AskedClientError, NoSumsError
from rescind.flower import StopServing
from rescind.history.timeline import FiledRequest
from rescind.serving import ModelFile
from rescind.testing.grid import InProcessGrid
from rescind.unattended import forget_unattended
from tests.builders import objects_of
from tests.kept import BUDGET, Clinics, in_model, newest

LEAVER = "clinic-5"


class Unreliable(Clinics):
    """Clients of whom some fail at first; ``meanwhile`` is done while one answers."""

    def __init__(self) -> None:
        super().__init__()
        self.failing = set[str]()
        self.meanwhile: Callable[[], object] = lambda: None

    def train(self, msg: Message, context: Context) -> Message:
        answer = super().train(msg, context)
        if (name := str(context.node_config["client-id"])) in self.failing:
            self.failing.remove(name)
            raise ConnectionError("away")
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        return answer


def serve_days(history: History, clinics: Clinics, names: Sequence[str], days: Sequence[Any], **more: Any) -> None:
    """Run without an end: in each turn something happens, which may say that it is no time to serve requests."""
    grid = InProcessGrid(clinics.app, {name: {"client-id": name} for name in names})
    happening = iter(days)

    def rule(waiting: Sequence[FiledRequest], now: datetime) -> bool:
        happens = next(happening, None)
        if happens is None:
            raise StopServing
        return happens(grid) is not False

    clinics.run_on(history, grid, serve=rule, **more)


def forget(history: History) -> None:
    history.requests.ask([LEAVER], BUDGET)
    forget_unattended(history)


def compare(live: Callable[[bool], tuple[set[str], str]]) -> None:
    assert live(True) == live(False)


def test_who_joins_while_somebody_waits_to_leave_is_asked_afterwards() -> None:
    def live(with_leaver: bool) -> tuple[set[str], str]:
        names = ["clinic-0", "clinic-1", "clinic-4", *([LEAVER] if with_leaver else [])]

        def go_out(grid: InProcessGrid, *gone: str) -> None:
            grid.gone = set(gone)

        def ask(_: InProcessGrid) -> bool:
            if with_leaver:
                history.requests.ask([LEAVER], BUDGET)
            return False

        def come(grid: InProcessGrid) -> bool:
            grid.gone = set()
            return False

        days = [lambda grid: go_out(grid, "clinic-4"), ask, come, lambda _: None, lambda _: None]
        with History.in_memory() as history:
            serve_days(history, Clinics(), names, days)
            return in_model(history), newest(history)

    compare(live)


def test_a_client_that_fails_is_asked_once_whoever_else_answers() -> None:
    def live(with_leaver: bool) -> tuple[set[str], str]:
        clinics = Unreliable()
        clinics.failing = {"clinic-0"}
        with History.in_memory() as history:
            try:
                clinics.start(history, "clinic-0", *([LEAVER] if with_leaver else []))
            except NoSumsError:
                assert not with_leaver
            assert clinics.asked.count("clinic-0") == 1
            clinics.start(history, "clinic-1")
            if with_leaver:
                forget(history)
            return in_model(history), newest(history)

    compare(live)


def test_nothing_that_nobody_sent_is_a_model(tmp_path: Path) -> None:
    """Nobody's sums are left whom a forgetting could be made of: it is not served, and nothing is handed out."""
    with History(tmp_path / "history") as history:
        Clinics().start(history, "clinic-0", LEAVER)
        (staying,) = history.participants.find(["clinic-0"])
        (tmp_path / "history" / "objects" / f"{objects_of(history)[staying]}.safetensors").unlink()
        history.requests.ask([LEAVER], BUDGET)
        history.sums.ask_again([staying])
    shown = CliRunner().invoke(
        commands, ["request", "forget", str(tmp_path / "history"), "--save-to", str(tmp_path / "model")]
    )
    assert "Request 1 waits: nobody else's sums are there" in " ".join(shown.output.split())
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("happens", ["rows go", "leaves and comes back", "is to send more"])
def test_in_a_run_without_end_a_client_is_asked_for_each_reason_that_it_gives(happens: str) -> None:
    clinics = Clinics()

    def happen(_: InProcessGrid) -> None:
        clients = history.participants.find(["clinic-3"])
        if happens == "is to send more":
            history.sums.ask_again(clients)
            return
        rows = happens == "rows go"
        clinics.removed = {"clinic-3": [0]} if rows else {}
        history.requests.ask(["clinic-3"], BUDGET, scope=PrivacyScope.RECORDS if rows else PrivacyScope.GROUP)

    def come_back(_: InProcessGrid) -> None:
        if happens == "leaves and comes back":
            history.participants.readmit("clinic-3", "a new contract")

    def wait(_: InProcessGrid) -> None:
        pass

    names = [f"clinic-{at}" for at in range(4)]
    with History.in_memory() as history:
        serve_days(history, clinics, names, [wait, happen, wait, come_back, wait, wait])
        assert in_model(history) == set(names)
        assert clinics.asked.count("clinic-3") == 2
        assert not history.sums.awaited()


def test_a_run_without_end_goes_on_if_too_few_are_there() -> None:
    clinics = Clinics()
    clinics.rows = {"clinic-1": 3}

    def go(grid: InProcessGrid) -> None:
        grid.gone = {"clinic-1"}

    with History.in_memory() as history:
        serve_days(history, clinics, ["clinic-0", "clinic-1"], [lambda _: None, go, lambda _: None], least=2)
        assert in_model(history) == {"clinic-0"}


def test_a_run_for_which_too_few_are_there_says_how_to_forget_without_them() -> None:
    clinics = Clinics()
    with History.in_memory() as history:
        clinics.start(history, "clinic-0", "clinic-1")
        with pytest.raises(TimeoutError, match="nobody has to be there: rescind request forget HISTORY"):
            clinics.start(history, "clinic-0", least=2)


def test_noise_from_a_seed_is_not_made_without_it() -> None:
    with History.in_memory() as history:
        Clinics().start(history, "clinic-0", LEAVER, seed=b"for tests of clinics")
        history.requests.ask([LEAVER], BUDGET)
        with pytest.raises(AskedClientError, match="made from a seed"):
            forget_unattended(history)


def test_what_is_wanted_while_a_client_answers_is_not_taken_for_answered() -> None:
    clinics = Unreliable()
    clinics.rows = {"clinic-1": 10}
    with History.in_memory() as history:
        clinics.start(history, "clinic-0", "clinic-1")
        clients = history.participants.find(["clinic-1"])
        history.sums.ask_again(clients)
        clinics.meanwhile = lambda: history.sums.ask_again(clients)
        clinics.start(history, "clinic-0", "clinic-1")
        assert len(history.sums.awaited()) == 1
        clinics.rows = {}
        assert clinics.start(history, "clinic-0", "clinic-1") == ["clinic-1"]
        assert not history.sums.awaited()


def test_who_takes_a_request_back_is_in_the_model_again(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        Clinics().start(history, "clinic-0", "clinic-1", LEAVER)
        withdrawn = history.requests.ask(["clinic-1"], BUDGET)
        history.requests.ask([LEAVER], BUDGET)
    CliRunner().invoke(commands, ["request", "forget", str(tmp_path / "history"), "--approval"])
    with History(tmp_path / "history") as history:
        history.requests.approve(2, "A. Officer")
    CliRunner().invoke(commands, ["request", "forget", str(tmp_path / "history"), "--approval"])
    with History(tmp_path / "history") as history:
        assert in_model(history) == {"clinic-0"}
        history.requests.withdraw(withdrawn)
    shown = CliRunner().invoke(commands, ["request", "forget", str(tmp_path / "history")])
    assert "Again in the model: clinic-1" in shown.output
    with History(tmp_path / "history") as history:
        assert in_model(history) == {"clinic-0", "clinic-1"}


def test_clients_are_asked_at_the_first_model_that_was_recorded() -> None:
    clinics = Clinics()
    with History.in_memory() as history:
        clinics.start(history, "clinic-0")
        clinics.shown.clear()
        clinics.start(history, "clinic-0", "clinic-1")
        first = max(float(np.abs(tensor).max()) for tensor in history.model(ModelId(0, 0)).values())
        assert clinics.shown == {first}


def test_a_model_is_not_saved_over_the_history(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        Clinics().start(history, "clinic-0")
        for path, words in (
            (tmp_path / "history" / "ledger.sqlite", "own folder"),
            (tmp_path / "history" / "objects" / "model", "own folder"),
            (tmp_path / "nowhere" / "model", "is no folder"),
        ):
            with pytest.raises(ValueError, match=words):
                ModelFile(path, history)
