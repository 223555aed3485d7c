"""What runs without hands: metrics that tell of nobody, and an exit code when a request is overdue."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import rescind.flower
from rescind import History
from rescind.core.facts import Sampling
from rescind.engines.stops import Rounds
from rescind.errors import StillReadError
from rescind.forgetting import Revocable
from rescind.history.events import TrainingDoubted
from rescind.history.requests import add_months
from rescind.ledger.sql import SqlLedger
from rescind.methods import Scratch
from rescind.views.clients import ClientState
from rescind.views.overview import count_days_left, find_overdue, read_gauges
from tests.builders import (
    BUDGET,
    append_entry,
    ask_ago,
    entries_of,
    everybody,
    forge_entry,
    labels_of,
    rounds_of,
    run_sql,
    said,
)
from tests.recording import grid, initial, recorded

LABELS = ["Charité", 'Hôpital "Nord"', '{run="x"} 1', "St. Mary's\nrescind_lie 1", "Clinic-5"]


def engine(seed: int = 0, **options: Any) -> Any:
    return everybody(12, seed, **options)


def metrics(folder: Path) -> str:
    result = said("status", folder, "--format", "prometheus")
    assert result.exit_code == 0, result.output
    return result.output


def samples(text: str) -> dict[str, float]:
    """Return the values by name and state, once every line was read as Prometheus reads it."""
    families = list(text_string_to_metric_families(text))
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    read = [sample for family in families for sample in family.samples]
    assert len(read) == sum(not line.startswith("#") for line in text.splitlines())
    assert len({sample.labels["run"] for sample in read}) == 1
    assert {label for sample in read for label in sample.labels} <= {"run", "state"}
    return {" ".join([sample.name, *filter(None, [sample.labels.get("state")])]): sample.value for sample in read}


def live(folder: Path, seed: int = 0) -> None:
    """Record a federation's life: rounds, a request that was served, one that is open, one that is late, a doubt."""
    with History(folder) as history:
        federation = Revocable(history, engine(seed))
        federation.train(Rounds(3))
        history.participants.label({f"clinic-{at}": label for at, label in enumerate(LABELS, start=1)})
        history.requests.ask(["clinic-1"], BUDGET)
        federation.forget(Scratch(), Rounds(2))
        ask_ago(history, "clinic-2", days=45)
        history.requests.ask(["clinic-3"], BUDGET)
        history.journal.record(TrainingDoubted(1, 1, "clinic-4 sent 0.123"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    live(tmp_path / "history")
    return tmp_path / "history"


def test_every_number_is_right_and_json_has_it_too(folder: Path) -> None:
    values = samples(metrics(folder))
    told = json.loads(said("status", folder, "--json").output)
    with History(folder) as history:
        rounds = [entry.time for entry in entries_of(history, "round")]
        deadline = datetime.fromisoformat(history.timeline.requests[1].deadline)
        stored = history.models.stored_bytes()
        assert told["run"] == history.identifier
    last = datetime.fromisoformat(rounds[-1])
    assert values == {
        "rescind_open_requests": len(told["open_requests"]),
        "rescind_overdue_requests": told["overdue_requests"],
        "rescind_undecided_requests": told["undecided_requests"],
        "rescind_unnamed_requests": told["unnamed_requests"],
        "rescind_next_deadline_timestamp_seconds": int(deadline.timestamp()),
        "rescind_recorded_rounds_total": told["recorded_rounds"],
        "rescind_last_round_timestamp_seconds": int(last.timestamp()),
        **{f"rescind_clients {state}": count for state, count in told["client_states"].items()},
        "rescind_clients_outside": len(told["outsiders"]),
        "rescind_rejected_replies_total": told["rejected_replies"],
        "rescind_stored_bytes": told["stored_bytes"],
        "rescind_standing_doubts": len(told["doubts"]),
        "rescind_unfinished_erasures": told["unfinished_erasures"],
        "rescind_stamp_problems": told["stamp_problems"],
    }
    assert (values["rescind_open_requests"], values["rescind_overdue_requests"]) == (2, 1)
    assert (values["rescind_recorded_rounds_total"], values["rescind_standing_doubts"]) == (5, 1)
    assert {state: count for state, count in told["client_states"].items() if count} == {
        "active": 9,
        "asked to leave": 2,
        "forgotten": 1,
    }
    assert len(told["client_states"]) == len(ClientState)
    assert values["rescind_stored_bytes"] == stored > 0
    assert (told["next_deadline"], told["last_round"]) == (deadline.isoformat(), last.isoformat())


def test_metrics_hold_no_name_and_nothing_that_was_computed_from_data(folder: Path) -> None:
    text = metrics(folder)
    values = samples(text)
    told = json.loads(said("status", folder, "--json").output)
    with History(folder) as history:
        names = [*history.participants.all(), *labels_of(history).values(), *LABELS, "clinic-1"]
        rounds = [*rounds_of(history, 0, 1, 3), *rounds_of(history, 1, 1, 2)]
        assert set(labels_of(history).values()) == set(LABELS[1:])
    assert [name for name in names if name in text or name in repr(text) or json.dumps(name)[1:-1] in text] == []
    private = [influence["sensitivity"] for influence in told["influences"]]
    private += [number for round_ in rounds for number in round_.participants["distance"].tolist()]
    private += [round_.update_norm for round_ in rounds]
    assert len(private) > 20
    assert all(value == int(value) for value in values.values())
    assert [number for number in private if f"{number:.6g}" in text or f"{number:.2f}" in text] == []
    assert not any(word in text for word in ("sensitivity", "distance", "norm", "0.123"))


def test_metrics_are_the_same_whatever_the_data_are(folder: Path, tmp_path: Path) -> None:
    live(tmp_path / "other", seed=1)
    found, other = (
        {name: value for name, value in samples(metrics(path)).items() if not name.endswith("timestamp_seconds")}
        for path in (folder, tmp_path / "other")
    )
    influences = [
        json.loads(said("status", path, "--json").output)["influences"] for path in (folder, tmp_path / "other")
    ]
    assert influences[0] != influences[1]
    assert found == other


def test_rejected_replies_and_silent_clients_are_counted(tmp_path: Path) -> None:
    hostile_now = False

    def by_one(content: Any, context: Any) -> None:
        if hostile_now and context.node_config["client-id"] == "clinic-2":
            content.metric_records["metrics"]["num-examples"] = -3

    with History(tmp_path / "history") as history:
        on = grid(by_one)
        rescind.flower.run(recorded(history), on, initial(), num_rounds=1)
        hostile_now = True
        on.failing.add("clinic-4")
        rescind.flower.run(recorded(history), on, initial(), num_rounds=3)
    values = samples(metrics(tmp_path / "history"))
    assert values["rescind_rejected_replies_total"] == 2
    assert values["rescind_clients silent"] == 1
    assert values["rescind_clients active"] == 5


def test_where_participants_are_drawn_the_silent_are_not_counted_at_all(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        Revocable(history, engine(sampling=Sampling.POISSON, rate=0.5)).train(Rounds(2))
    values = samples(metrics(tmp_path / "history"))
    assert "rescind_clients active" in values
    assert "rescind_clients silent" not in values


def test_an_erasure_that_was_cut_off_is_counted_until_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "history"
    with History(folder) as history:
        federation = Revocable(history, engine())
        federation.train(Rounds(2))
        history.requests.ask(["clinic-1"], BUDGET)

        def refuse(*_: object) -> None:
            raise StillReadError("somebody reads")

        with monkeypatch.context() as patched:
            patched.setattr(SqlLedger, "compact", refuse)
            with pytest.raises(StillReadError):
                federation.forget(Scratch(), Rounds(1))
    assert samples(metrics(folder))["rescind_unfinished_erasures"] == 1
    assert said("erase", folder, "--yes").exit_code == 0
    assert samples(metrics(folder))["rescind_unfinished_erasures"] == 0


def test_a_history_without_rounds_has_metrics_too(tmp_path: Path) -> None:
    with History(tmp_path / "history"):
        pass
    values = samples(metrics(tmp_path / "history"))
    assert values["rescind_recorded_rounds_total"] == 0
    # What has never been has no time.
    assert not any(name.endswith("timestamp_seconds") for name in values)
    assert said("status", tmp_path / "history", "--check").exit_code == 0


def test_a_format_stands_alone(folder: Path) -> None:
    for words in (["--json"], ["--check"]):
        refused = said("status", folder, "--format", "prometheus", *words)
        assert refused.exit_code == 2
        assert "rescind_" not in refused.output
    assert said("status", folder, "--format", "xml").exit_code == 2
    assert said("status", folder.parent / "none", "--format", "prometheus").exit_code == 1


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed; the gate has it")
def test_promtool_finds_no_fault_with_the_metrics(folder: Path) -> None:
    command = [str(shutil.which("promtool")), "check", "metrics"]
    done = subprocess.run(command, input=metrics(folder), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_check_says_which_request_is_overdue_and_nobodys_name(folder: Path) -> None:
    late = said("status", folder, "--check")
    assert late.exit_code == 3
    (line,) = late.output.splitlines()
    now = datetime.now(UTC)
    due = add_months(now - timedelta(days=45), 1).date()
    day, late_by = due.isoformat(), (now.date() - due).days
    assert line.startswith(f"rescind: overdue: request 2 since {day}. Start the federation's next run")
    assert not any(name in line for name in ("clinic", *LABELS))
    as_json = said("status", folder, "--check", "--json")
    assert as_json.exit_code == 3
    overdue = [{"request": 2, "deadline": day, "days_late": late_by}]
    assert json.loads(as_json.output) == {"overdue": overdue, "stamp_problems": []}
    assert f"due {day}, {late_by} days overdue" in said("status", folder).output


def test_check_says_nothing_where_nothing_is_overdue(folder: Path) -> None:
    assert said("request", "withdraw", folder, 2).exit_code == 0
    done = said("status", folder, "--check")
    assert (done.exit_code, done.output) == (0, "")
    assert json.loads(said("status", folder, "--check", "--json").output) == {"overdue": [], "stamp_problems": []}
    assert samples(metrics(folder))["rescind_overdue_requests"] == 0


@pytest.mark.parametrize("hide", [False, True], ids=["unstamped", "and the secret's mark changed"])
def test_nobody_silences_the_watch_without_the_secret(hide: bool, folder: Path) -> None:
    entry = forge_entry(folder, "withdrawal", {"request": 2, "reason": "asked by mistake"})
    if hide:
        run_sql(folder, "UPDATE run SET secret_check = zeroblob(32)")
    checked = said("status", folder, "--check")
    assert checked.exit_code == 1
    (line,) = checked.output.splitlines()
    assert "what the journal says cannot be relied on" in line
    assert ("secret file" if hide else f"entry {entry.sequence} was added without the secret") in line
    as_json = said("status", folder, "--check", "--json")
    assert as_json.exit_code == 1
    told = json.loads(as_json.output)
    assert (told["overdue"], len(told["stamp_problems"])) == ([], 1)
    assert samples(metrics(folder))["rescind_stamp_problems"] == 1
    assert json.loads(said("status", folder, "--json").stdout)["stamp_problems"] == 1
    for words in (["status", folder], ["request", "list", folder]):
        assert "cannot be relied on" in said(*words).stderr


def test_without_the_secret_stamps_are_not_looked_at_and_that_is_said(folder: Path) -> None:
    Path(f"{folder}.secret").unlink()
    assert "rescind_stamp_problems" not in samples(metrics(folder))
    as_json = said("status", folder, "--check", "--json")
    assert as_json.exit_code == 3
    assert json.loads(as_json.output)["stamp_problems"] is None


def test_service_ends_being_overdue_and_a_late_extension_does_not(folder: Path) -> None:
    assert said("request", "extend", folder, 2, "--days", 20, "--reason", "late").exit_code == 1
    assert said("status", folder, "--check").exit_code == 3
    with History(folder) as history:
        Revocable(history, engine()).forget(Scratch(), Rounds(1))
    assert said("status", folder, "--check").exit_code == 0


def test_of_many_only_the_oldest_are_named(tmp_path: Path) -> None:
    with History(tmp_path / "history") as history:
        Revocable(history, engine()).train(Rounds(1))
        for at in range(12):
            ask_ago(history, f"clinic-{at}", days=40 + at)
    (line,) = said("status", tmp_path / "history", "--check").output.splitlines()
    assert line.startswith("rescind: overdue: request 12 since ")
    assert " and 2 more. " in line
    assert "request 2 " not in line


def test_a_request_is_overdue_once_its_day_has_passed_in_its_own_zone() -> None:
    with History.in_memory() as history:
        Revocable(history, engine()).train(Rounds(1))
        history.requests.ask(["clinic-1"], BUDGET)
        (asked,) = history.timeline.requests
        there = replace(asked, deadline="2026-12-01T00:30:00+02:00")
        for now, left in (
            ("2026-11-30T22:45:00+00:00", 0),
            ("2026-11-30T21:45:00+00:00", 1),
            ("2026-12-01T21:59:00+00:00", 0),
            ("2026-12-01T22:01:00+00:00", -1),
        ):
            assert count_days_left(there, datetime.fromisoformat(now)) == left
        due = datetime.fromisoformat(asked.deadline)
        end = due.replace(hour=23, minute=59)
        assert find_overdue(history, end) == []
        assert find_overdue(history, end + timedelta(minutes=2)) == [asked]
        assert read_gauges(history, end + timedelta(minutes=2)).overdue_requests == 1


@pytest.mark.parametrize("wrong", ["never", "2026-12-01", "2026-12-01T00:00:00"])
def test_a_time_that_is_none_ends_in_a_sentence_and_not_in_metrics(wrong: str, tmp_path: Path) -> None:
    folder = tmp_path / "history"
    with History(folder) as history:
        Revocable(history, engine()).train(Rounds(1))
        history.requests.ask(["clinic-1"], BUDGET)
        body = entries_of(history, "request")[0].body
        append_entry(history, "request", body | {"deadline": wrong})
    for words in (["--check"], ["--format", "prometheus"]):
        result = said("status", folder, *words)
        assert result.exit_code == 1
        assert result.output.startswith("rescind: ")
        assert len(result.output.splitlines()) == 1


def test_the_dashboard_shows_every_metric_and_no_other(folder: Path) -> None:
    board = json.loads((Path(__file__).parents[1] / "docs" / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    shown = {name for query in queries for name in re.findall(r"rescind_\w+", query)}
    assert shown == {name.split()[0] for name in samples(metrics(folder))}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
