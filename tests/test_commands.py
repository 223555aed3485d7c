"""The commands that show how a run stands, and what every command has in common."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import pty
import re
import sqlite3
import struct
import subprocess
import sys
import termios
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from io import BufferedReader
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from rescind import History
from rescind.cli import app
from rescind.cli.init import _write_arguments
from rescind.cli.shared import Table, show
from rescind.core.calibration import Budget
from rescind.core.facts import PublicHead
from rescind.engines.stops import Accuracy, Rounds
from rescind.errors import StillReadError
from rescind.forgetting import Revocable
from rescind.history.events import RequestWithdrawn
from rescind.ledger.records import ErasureLevel
from rescind.ledger.sql import SqlLedger
from rescind.methods import Scratch, Sifu
from rescind.progress import notify_listener
from rescind.views.overview import claimable, overview
from tests.builders import BUDGET, entries_of, everybody, run_sql, said

ROOT = Path(__file__).parents[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with History(tmp_path / "history") as history:
        Revocable(history, engine(), capacity=4).train(Rounds(8))
        history.participants.label({"clinic-3": "Clinic of the North"})
    return tmp_path / "history"


def engine() -> object:
    return everybody(12)


def shown(*words: object) -> dict[str, object]:
    result = said(*words, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


def test_status_names_who_moved_the_model_most(folder: Path) -> None:
    words = said("status", folder).output
    assert "model 0.8, after 8 rounds with 12 clients" in words
    assert "and 2 more" in words
    assert "no open requests" in words
    assert "exact by retraining, or instance with noise" in words
    found = shown("status", folder)
    values = [each["sensitivity"] for each in found["influences"]]  # type: ignore[union-attr]
    assert values == sorted(values, reverse=True)
    # Programs are told of everybody.
    assert len(values) == found["clients"] == 12
    with History(folder) as history:
        (largest,) = history.participants.find([found["influences"][0]["client"]])  # type: ignore[index]
        from rescind.core.sensitivity import group_sensitivity

        assert values[0] == pytest.approx(group_sensitivity(history.lineage().edges, {largest})[-1])


def test_status_counts_the_days_and_forgets_the_forgotten(folder: Path) -> None:
    said("request", "add", folder, "clinic-1")
    (waiting,) = shown("status", folder)["open_requests"]  # type: ignore[misc]
    assert waiting["days_left"] == 30
    assert "30 days left" in said("status", folder).output
    with History(folder) as history:
        Revocable(history, engine(), capacity=4).forget(Scratch(), Rounds(2))  # type: ignore[arg-type]
    found = shown("status", folder)
    assert found["clients"] == 11
    assert found["open_requests"] == []


def test_after_a_purge_with_noise_only_those_who_remain_are_counted() -> None:
    with History.in_memory() as history:
        federation = Revocable(history, engine(), capacity=4)  # type: ignore[arg-type]
        federation.train(Rounds(8))
        history.requests.ask(["clinic-0"], Budget(10.0, 0.1))
        (outcome,) = federation.forget(Sifu(), Rounds(2), level=ErasureLevel.PURGE)
        assert outcome.restart is not None
        assert outcome.restart.branch.sigma > 0
        found = overview(history, most=20)
    assert found.clients == len(found.influences) == 11
    assert all(each.sensitivity > 0 for each in found.influences)


def test_what_could_be_claimed_follows_from_the_facts() -> None:
    from dataclasses import replace

    facts = engine().facts  # type: ignore[attr-defined]
    assert claimable(facts).mode.value == "instance"
    assert claimable(replace(facts, secret_noise=False)).mode.value == "heuristic"
    with History.in_memory() as history:
        Revocable(history, engine()).train(Accuracy(0.01, most=2))  # type: ignore[arg-type]
        assert any("looks at data" in each for each in overview(history).claimable.raised_by)


def test_after_a_plan_that_looked_at_data_nothing_strict_is_promised() -> None:
    public = {"public": PublicHead(initial_norm=0.0, parameters=21, batch=15), "public_schedule": True}
    strict = everybody(30, **public)
    with History.in_memory() as history:
        federation = Revocable(history, strict)
        federation.train(Rounds(6))
        assert overview(history).claimable.mode.value == "strict"
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Sifu(), Rounds(1))
        found = overview(history).claimable
        assert found.mode.value == "instance"
        assert "looked at data" in found.raised_by[-1]


def test_a_preview_shows_all_ways_and_says_when_retraining_is_best(folder: Path) -> None:
    assert (
        "no kept model can be noised so" in said("request", "preview", folder, "clinic-1", "--epsilon", 0.01).output
    )
    assert (
        "from the start is the best choice here"
        in said("request", "preview", folder, "clinic-1", "--epsilon", 0.5).output
    )
    found = shown("request", "preview", folder, "clinic-1", "Clinic of the North", "--epsilon", 15, "--delta", 0.1)
    assert found["candidates"][0]["model"] == "0.0"  # type: ignore[index]
    assert sum(each["chosen"] for each in found["candidates"]) == 1  # type: ignore[union-attr, misc]
    words = said("request", "preview", folder, "clinic-1", "--epsilon", 15, "--delta", 0.1).output
    assert "->" in words
    assert "is predicted to be as good again after about" in words
    with History(folder) as history:
        assert not entries_of(history, "plan")


def test_a_preview_for_rows_has_no_noise_and_counts_what_a_client_sends(folder: Path) -> None:
    told = shown("request", "preview", folder, "clinic-1", "--records", "--epsilon", 15, "--delta", 0.1)
    assert {(candidate["model"], candidate["mode"]) for candidate in told["candidates"]} == {("0.0", "exact")}
    assert all("no noise hides rows" in omitted["reason"] for omitted in told["left_out"])
    trained, solved = told["chosen"], told["solve"]
    with History(folder) as history:
        parameters = history.run.parameters
    # A model in each round; or a gradient and the upper half of a Hessian.
    assert trained["bytes_of_a_client"] == 8 * parameters * round(trained["predicted_rounds"])
    assert solved["bytes_of_a_client"] == 9 * 8 * (parameters + parameters * (parameters + 1) // 2)


def test_a_preview_for_somebody_the_model_never_saw(folder: Path) -> None:
    said("request", "add", folder, "clinic-1")
    said("request", "add", folder, "clinic-2")
    with History(folder) as history:
        Revocable(history, engine(), capacity=4).forget(Scratch(), Rounds(1), together=True)  # type: ignore[arg-type]
        assert not history.participants.remaining(["clinic-1"])
    result = said("request", "preview", folder, "clinic-1")
    assert (result.exit_code, "was forgotten, and its name erased" in result.output) == (1, True)


def test_a_strict_preview_says_what_it_lacks(folder: Path) -> None:
    result = said("request", "preview", folder, "clinic-1", "--strict")
    assert result.exit_code == 1
    assert "no strict plan" in result.output


def test_erasing_is_shown_asked_and_done(folder: Path) -> None:
    assert "Nothing is left to erase" in said("erase", folder).output
    number = shown("request", "add", folder, "clinic-1")["request"]
    with History(folder) as history:
        federation = Revocable(history, engine(), capacity=4)  # type: ignore[arg-type]
        federation.forget(Sifu(), Rounds(1), level=ErasureLevel.OUTPUT)
    found = shown("erase", folder, "--dry-run")
    assert found["requests"] == [number]
    assert found["erased"] is False
    assert shown("erase", folder, "--dry-run") == found
    assert said("erase", folder, input="n\n").exit_code == 1
    assert shown("erase", folder, "--dry-run") == found
    done = said("erase", folder, "--yes")
    assert "Erased." in done.output
    assert "Nothing is left to erase" in said("erase", folder).output


def test_a_deadline_is_extended_with_a_reason_and_not_for_ever(folder: Path) -> None:
    number = shown("request", "add", folder, "clinic-1")["request"]
    with History(folder) as history:
        (before,) = overview(history).open_requests
    for days, reason, hint in ((30, " ", "give a reason"), (0, "late", "1 day or more"), (63, "late", "two months")):
        result = said("request", "extend", folder, number, "--days", days, "--reason", reason)
        assert (result.exit_code, hint in result.output) == (1, True), result.output
    later = shown("request", "extend", folder, number, "--days", 59, "--reason", "many at once")["deadline"]
    from datetime import datetime

    assert datetime.fromisoformat(str(later)) - datetime.fromisoformat(before.deadline) == timedelta(days=59)
    assert "two months" in said("request", "extend", folder, number, "--days", 4, "--reason", "again").output
    assert str(later)[:10] in said("request", "list", folder).output
    with History(folder) as history:
        assert history.integrity.verify() == []


def test_doctor_finds_what_is_not_safe(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCIND_PASSPHRASE", "correct horse battery")
    said("key", "new", tmp_path / "key")
    result = said("doctor", folder, "--key", tmp_path / "key")
    assert result.exit_code == 0, result.output
    assert "encrypted, readable by you alone" in result.output
    assert "every process that you start can read" in result.output
    (tmp_path / "key").chmod(0o644)
    assert "run chmod 600" in said("doctor", "--key", tmp_path / "key").output
    assert said("doctor", "--key", tmp_path / "key").exit_code == 1
    assert said("doctor", tmp_path / "nowhere").exit_code == 1
    with History(folder) as history, history.held():
        assert "   note  lock" in said("doctor", folder).output
    model = next(iter((folder / "checkpoints").glob("*.safetensors")))
    for spoil, hint in ((lambda: model.write_bytes(b"nothing"), "is damaged"), (model.unlink, "is missing")):
        spoil()
        broken = said("doctor", folder)
        assert (broken.exit_code, " repair  chain" in broken.output) == (1, True), broken.output
        assert hint in broken.output


def test_init_makes_a_history_once(tmp_path: Path) -> None:
    first = shown("init", tmp_path / "new")
    assert first["new"] is True
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    again = shown("init", tmp_path / "new")
    assert (again["new"], again["run"]) == (False, first["run"])
    assert "rescind.History(" in said("init", tmp_path / "new").output
    assert "start the federation's first run" in said("status", tmp_path / "new").output


def test_the_lines_that_init_shows_are_python_and_are_shown_until_something_is_recorded(
    folder: Path, tmp_path: Path
) -> None:
    told, _, lines = said("init", tmp_path / "new").output.partition("\n\n")
    assert "A new history is in" in told
    ast.parse("def app():\n" + textwrap.indent(lines, "    "))
    assert "rescind.flower" not in said("init", folder).output


NAMES = {"operator": "City Hospitals", "federation": "heart", "model": "risk head", "protocol": "ethics vote 2026/14"}


def test_init_records_names_which_can_be_changed_later(tmp_path: Path) -> None:
    made = said("init", tmp_path / "new", "--operator", NAMES["operator"], "--federation", NAMES["federation"])
    assert made.exit_code == 0, made.output
    assert "Its operator is called City Hospitals." in made.output
    named = ["--model", NAMES["model"], "--protocol", NAMES["protocol"]]
    assert shown("init", tmp_path / "new", *named)["names"] == NAMES
    with History(tmp_path / "new") as history:
        entries = len(history.integrity.entry_times())
        assert shown("init", tmp_path / "new", "--model", NAMES["model"])["names"] == NAMES
        assert len(history.integrity.entry_times()) == entries
        history.name_run(model="another head")
        assert history.timeline.names.model == "another head"
        assert history.timeline.names.operator == "City Hospitals"


def test_status_says_what_the_run_is_called(folder: Path) -> None:
    said("init", folder, "--federation", "heart", "--protocol", "ethics vote 2026/14")
    assert said("status", folder).output.startswith("federation heart; protocol ethics vote 2026/14\n")
    assert shown("status", folder)["names"]["protocol"] == "ethics vote 2026/14"


@pytest.mark.parametrize("name", ["", "a\nb", "\u202eheart", "\x1b[2J", " heart", "x" * 257, "\u3164"])
def test_a_name_that_could_deceive_is_refused(name: str, tmp_path: Path) -> None:
    refused = said("init", tmp_path / "new", "--federation", name)
    assert refused.exit_code == 1
    assert "is not a valid name for the federation" in refused.output
    assert refused.output.rstrip("\n").isprintable()
    with History(tmp_path / "new") as history:
        assert history.timeline.names.federation is None


def test_a_request_is_withdrawn_with_a_reason(folder: Path) -> None:
    for reason in ([], ["--reason", "asked by mistake"]):
        number = shown("request", "add", folder, "clinic-1")["request"]
        assert said("request", "withdraw", folder, number, *reason).exit_code == 0
    with History(folder) as history:
        events = [event for _, event in history.timeline.of(RequestWithdrawn)]
        assert [event.reason for event in events] == ["", "asked by mistake"]
        number = history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
        for refused in (
            lambda: history.requests.withdraw(number, "x" * 1001),
            lambda: history.requests.extend(number, 1, "x" * 1001),
        ):
            with pytest.raises(ValueError, match="at most"):
                refused()


def commands() -> list[tuple[str, Any]]:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    found: list[tuple[str, Any]] = []
    for name, command in root.commands.items():
        if isinstance(command, TyperGroup):
            found += [(f"{name} {each}", one) for each, one in command.commands.items()]
        else:
            found.append((name, command))
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_command_has_an_example_and_can_speak_json(name: str, command: Any) -> None:
    assert f"Example: rescind {name}" in (command.help or "")
    # The demonstration is for people alone, the desk has an interface of its own, and a signature is JSON anyway.
    assert name in ("demo", "desk serve", "key approve") or any(
        "--json" in parameter.opts for parameter in command.params
    )
    helped = said(*name.split(), "--help", env={"COLUMNS": "1000"})
    assert helped.exit_code == 0
    for parameter in command.params:
        # Also with the versions of typer and click that Flower brings, of which one loses what arguments are for.
        assert parameter.help, f"{name}: {parameter.name} is not explained"
        assert parameter.help.split(";")[0][:40] in helped.output


def test_the_commands_fit_on_one_screen() -> None:
    lines = said("--help", env={"COLUMNS": "80"}).output.rstrip().splitlines()
    assert len(lines) <= 40
    assert all(line.count("│") in (0, 2) for line in lines)


def test_help_imports_nothing_heavy() -> None:
    heavy = ["numpy", "scipy", "sqlalchemy", "pydantic", "cryptography", "fsspec"]
    code = f"import sys; from rescind.cli import app; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_public_names_are_found_when_asked_for() -> None:
    pytest.importorskip("flwr")
    import rescind

    assert all(getattr(rescind, name).__name__.rpartition(".")[2] == name for name in rescind.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Hystory'"):
        _ = rescind.Hystory  # type: ignore[attr-defined]


def test_long_work_tells_how_far_it_is(folder: Path) -> None:
    heard: list[tuple[str, int, int]] = []

    def listen(what: str, done: int, total: int) -> None:
        heard.append((what, done, total))

    with History(folder) as history, notify_listener(listen):
        history.lineage()
        history.integrity.verify()
    last = {what: (done, total) for what, done, total in heard}
    assert set(last) == {"reading branch 0", "checking branch 0", "reading kept models"}
    assert all(done == total > 0 for done, total in last.values())
    # Whoever does not listen is not told.
    heard.clear()
    with History(folder) as history:
        history.lineage()
    assert heard == []


def _read_to_the_end(terminal: BufferedReader) -> bytes:
    pieces = []
    # A terminal ends with an error.
    with suppress(OSError):
        while piece := terminal.read1():
            pieces.append(piece)
    return b"".join(pieces)


def test_a_terminal_shows_a_bar_and_a_pipe_does_not(folder: Path) -> None:
    words = [Path(sys.executable).parent / "rescind", "doctor", folder]
    leader, follower = pty.openpty()
    # Wide, and a kind that can move its cursor.
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    environment = os.environ | {"TERM": "xterm"}
    # Read meanwhile: what a terminal does not take in time holds up whoever writes to it.
    with ThreadPoolExecutor(1) as reader, os.fdopen(leader, "rb") as terminal:
        reading = reader.submit(_read_to_the_end, terminal)
        try:
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=follower, env=environment, check=True)
        finally:
            # Or the reader waits for ever.
            os.close(follower)
        seen = reading.result().decode()
    assert re.search(r"\d+/\d+.*\d:\d\d:\d\d.*checking branch 0", seen)
    assert "/" not in done.stdout.decode().splitlines()[0]
    piped = subprocess.run(words, capture_output=True, check=True)
    # Others write to the disk meanwhile.
    without_space = [re.sub(rb"\d+ GB are free", b"", output) for output in (piped.stdout, done.stdout)]
    assert without_space[0] == without_space[1]
    assert piped.stderr == b""


def test_erase_finishes_what_was_cut_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with History(folder) as history:
        federation = Revocable(history, engine(), capacity=4)
        history.requests.ask(["clinic-1"], BUDGET)

        def refused(*_: object) -> None:
            raise StillReadError("somebody reads")

        with monkeypatch.context() as patched:
            patched.setattr(SqlLedger, "compact", refused)
            with pytest.raises(StillReadError):
                federation.forget(Scratch(), Rounds(1))
    (waits,) = shown("status", folder)["open_requests"]  # type: ignore[misc]
    assert waits["begun"]
    assert "the next run finishes it" in said("status", folder).output
    assert shown("erase", folder, "--dry-run")["finished"] == 0
    found = said("erase", folder, "--yes")
    assert "Finished 1 erasure(s) that had been cut off." in found.output
    assert shown("status", folder)["open_requests"] == []
    with History(folder) as history:
        assert history.integrity.verify() == []


def test_doctor_looks_at_flowers_databases_and_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, given = tmp_path / "flwr", tmp_path / "given"
    monkeypatch.setenv("FLWR_HOME", str(home))
    before = os.umask(0o022)
    try:
        for folder in (home / "local-superlink", given):
            folder.mkdir(parents=True)
            for name in ("state.db", "state.db-wal"):
                (folder / name).write_bytes(b"messages")
        result = said("doctor", "--database", given / "state.db")
        assert result.exit_code == 1
        assert "   note  umask: 022" in result.output
        assert result.output.count("others can read it: run chmod 600 on state.db state.db-wal") == 2
        assert result.output.count(" repair  ") == 1
        # What SQLite has not moved into the database yet is as private as the rest.
        (given / "state.db").chmod(0o600)
        assert "given/state.db: others can read it" in said("doctor", "--database", given / "state.db").output
        (given / "state.db-wal").chmod(0o600)
        (home / "local-superlink").chmod(0o700)
        os.umask(0o077)
        result = said("doctor", "--database", given / "state.db")
        assert result.exit_code == 0, result.output
        assert result.output.count("state.db: readable by you alone") == 2
        assert "   fine  umask: 077" in result.output
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert " repair  Flower's database" in said("doctor", "--database", tmp_path / "none.db").output


@pytest.mark.parametrize("loop", [True, False])
def test_doctor_goes_on_where_flowers_folder_cannot_be_read(
    loop: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody keeps root from reading; but no file system leads anywhere from here."""
    home = tmp_path / ("flwr" if loop else "x" * 300)
    if loop:
        home.symlink_to(home)
    monkeypatch.setenv("FLWR_HOME", str(home))
    result = said("doctor", "--database", home / "state.db", tmp_path / "none")
    assert "cannot be looked at (" in result.output
    assert "there is no history" in result.output
    if not loop:
        assert "state.db: it cannot be looked at: File name too long" in result.output


@pytest.mark.parametrize("wal", [True, False])
def test_a_history_where_nothing_can_be_written_says_what_to_do(
    wal: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root can write everywhere: what SQLite says on a read-only medium is brought about in other ways."""
    if wal:
        (folder / "ledger.sqlite-wal").mkdir(0o700)
    else:
        run_sql(folder, "PRAGMA journal_mode=DELETE")
        connect = sqlite3.connect
        readonly = lambda address, **options: connect(address.replace("mode=rw", "mode=ro"), **options)  # noqa: E731
        monkeypatch.setattr(sqlite3, "connect", readonly)
    result = said("status", folder)
    assert result.exit_code == 1
    assert ("unable to open database file" if wal else "attempt to write a readonly database") in result.output
    assert "Copy the whole folder to where you can write" in result.output
    assert "nothing can be written" in said("doctor", folder).output


def test_init_shows_a_call_that_opens_this_history_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"history = rescind.History({str(tmp_path / 'history')!r})" in said("init", "history").output
    settings = {"checkpoints": str(tmp_path / "models"), "run": "spring", "secret": str(tmp_path / "secret")}
    for name, value in settings.items():
        monkeypatch.setenv(f"RESCIND_{name.upper()}", value)
    call = _write_arguments("postgresql://recorder@db.example.org/federation")
    assert call == "'postgresql://recorder@db.example.org/federation', " + ", ".join(
        f"{name}={value!r}" for name, value in settings.items()
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_shows_names_as_they_are(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    show(
        {},
        [Table(("client", "state"), [("[/] Ospedale :smile: 医院", "active"), ("\x1b[2J", "silent")])],
        as_json=False,
    )
    text = re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out)
    lines = [re.split("  +", line.strip()) for line in text.splitlines()]
    assert lines == [["client", "state"], ["[/] Ospedale :smile: 医院", "active"], [r"\x1b[2J", "silent"]]
