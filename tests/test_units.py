"""The units and alert rules of docs/deployment.md, as systemd and Prometheus read them, and what they start."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks._documented import read_units
from rescind import History
from rescind.core.calibration import Budget
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.views.metrics import render_metrics
from rescind.views.overview import read_gauges
from tests.builders import everybody

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "deployment.md").read_text("utf-8")
UNITS = read_units()
ALERTS = ROOT / "docs" / "alerts.yml"
RULES = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"][0]["rules"]
PROMTOOL, ANALYZE = shutil.which("promtool"), shutil.which("systemd-analyze")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed; the gate has it")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="systemd is not installed; the gate has it")
HOME, PROGRAMS, COLLECTOR = "/srv/federation", "/usr/local/lib/federation/venv", "/var/lib/prometheus/node-exporter"
DAY = 86400
# Prometheus counts a test's time from 1970.
NOW = datetime(1970, 2, 1, tzinfo=UTC)


def sections(unit: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNITS[unit])
    return parser


def install(home: Path, units: dict[str, str]) -> list[Path]:
    """Write units for a home that is here, with the programs that they start."""
    (home / "venv" / "bin").mkdir(parents=True)
    for name in ("rescind", "flwr", "flower-superlink", "flower-superexec"):
        (home / "venv" / "bin" / name).symlink_to(shutil.which("true") or "/bin/true")
    paths = []
    for name, text in units.items():
        (home / name).write_text(text.replace(HOME, str(home)).replace(PROGRAMS, str(home / "venv")))
        paths.append(home / name)
    return paths


def examine(paths: list[Path]) -> subprocess.CompletedProcess[str]:
    command = [str(ANALYZE), "verify", "--man=no", *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_page_has_a_unit_for_everything_that_a_timer_starts() -> None:
    assert set(UNITS) == {
        "federation-superlink.service",
        "federation-serverapp.service",
        "rescind-desk.service",
        *(
            f"rescind-{name}.{kind}"
            for name in ("run", "check", "metrics", "doctor")
            for kind in ("service", "timer")
        ),
    }
    timers = [name for name in UNITS if name.endswith(".timer")]
    (enabled,) = re.findall(r"^systemctl enable --now (.*)$", PAGE, re.MULTILINE)
    # The desk does not start before somebody has a token.
    services = {"nginx", "federation-superlink.service", "federation-serverapp.service"}
    assert set(enabled.split()) == {*services, *timers}


def test_the_folders_that_a_unit_names_are_made_before_it_starts() -> None:
    (made,) = re.findall(r"^install --directory .* --mode 700 (.*)$", PAGE, re.MULTILINE)
    (named,) = re.findall(r"--certificates (\S+)", sections("rescind-desk.service")["Service"]["ExecStart"])
    assert {HOME, named} == set(made.split())
    assert PAGE.index(made) < PAGE.index("systemctl enable")


@pytest.mark.parametrize("unit", [name for name in UNITS if name.endswith(".service")])
def test_a_service_keeps_what_it_writes_to_itself_and_is_not_root(unit: str) -> None:
    service = sections(unit)["Service"]
    # The SuperLink has an account of its own, apart from the ServerApp's, which has the history.
    assert service["User"] == ("superlink" if unit == "federation-superlink.service" else "federation")
    # Metrics are for the node exporter to read, and for nobody's eyes only.
    assert service["UMask"] == ("0022" if unit == "rescind-metrics.service" else "0077")
    assert service["NoNewPrivileges"] == "true"


def test_the_superlink_is_heard_on_this_machine_only_and_has_nothing_of_the_history_s() -> None:
    superlink, server_app = (sections(f"federation-{name}.service")["Service"] for name in ("superlink", "serverapp"))
    assert "--host 127.0.0.1 --port 8000" in superlink["ExecStart"]
    assert (superlink["IPAddressDeny"], superlink["IPAddressAllow"]) == ("any", "localhost")
    assert superlink["StateDirectoryMode"] == "0700"
    # Whoever claims a run has to show the secret that both units get, and nobody else.
    assert "--isolation process --superexec-auth-secret-file %d/superexec" in superlink["ExecStart"]
    assert "--superexec-auth-secret-file %d/superexec" in server_app["ExecStart"]
    assert "--runtime-api-address 127.0.0.1:8000" in server_app["ExecStart"]
    # Passwords of the database are for the ServerApp. It finds Flower's other programs by the path.
    assert "EnvironmentFile" not in superlink
    assert HOME not in UNITS["federation-superlink.service"]
    assert f"PATH={PROGRAMS}/bin:" in server_app["Environment"]
    assert not re.search(r"--host (?!127[.]0[.]0[.]1)", PAGE)


@needs_systemd
def test_systemd_finds_no_fault_with_the_units(tmp_path: Path) -> None:
    done = examine(install(tmp_path / "home", UNITS))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize(
    ("unit", "right", "wrong"),
    [
        ("rescind-check.timer", "OnCalendar=*-*-* 08:00:00", "OnCalendar=at eight"),
        ("rescind-metrics.service", "Type=oneshot", "Type=once"),
        ("rescind-doctor.service", "venv/bin/rescind", "venv/bin/recsind"),
    ],
)
def test_systemd_would_find_a_fault(unit: str, right: str, wrong: str, tmp_path: Path) -> None:
    assert right in UNITS[unit]
    done = examine(install(tmp_path / "home", UNITS | {unit: UNITS[unit].replace(right, wrong)}))
    assert done.returncode or done.stdout + done.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a history and the real command."""
    home = tmp_path / "home"
    (home / "venv").mkdir(parents=True)
    (home / "venv" / "bin").symlink_to(Path(sys.executable).parent)
    with History(home / "history") as history:
        Revocable(history, everybody(4)).train(Rounds(2))
    return home


def start(unit: str, home: Path, collector: Path) -> subprocess.CompletedProcess[str]:
    """Run what a unit starts, as systemd would: without a shell of its own."""
    service = sections(unit)["Service"]

    def place(text: str) -> str:
        return text.replace(PROGRAMS, str(home / "venv")).replace(HOME, str(home)).replace(COLLECTOR, str(collector))

    own = dict([place(service["Environment"]).split("=", 1)]) if "Environment" in service else {}
    command = shlex.split(place(service["ExecStart"]))
    umask = int(service["UMask"], 8)
    return subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False, umask=umask)


def test_the_metrics_are_in_their_place_as_a_whole_or_not_at_all(home: Path, tmp_path: Path) -> None:
    collector = tmp_path / "collector"
    collector.mkdir()
    done = start("rescind-metrics.service", home, collector)
    assert done.returncode == 0, done.stderr
    (written,) = collector.iterdir()
    assert written.name == "rescind.prom"
    assert written.stat().st_mode & 0o777 == 0o644
    with History(home / "history") as history:
        expected = render_metrics(read_gauges(history, datetime.now(UTC)))
    assert written.read_text() == f"{expected}\n"
    # What the node exporter reads stays as it is while nothing can be read.
    (home / "history").rename(home / "away")
    before = written.read_bytes()
    done = start("rescind-metrics.service", home, collector)
    assert done.returncode == 1
    assert "there is no history" in done.stderr
    assert written.read_bytes() == before
    assert [path.name for path in collector.glob("*.prom")] == ["rescind.prom"]


def test_the_check_fails_while_something_is_overdue(home: Path, tmp_path: Path) -> None:
    done = start("rescind-check.service", home, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with History(home / "history") as history:
        history.journal.clock = lambda: datetime(2026, 1, 1, tzinfo=UTC)
        history.requests.ask(["clinic-1"], Budget(1.0, 1e-5))
    done = start("rescind-check.service", home, tmp_path)
    assert done.returncode == 3
    assert done.stderr.startswith("rescind: overdue: request 1 since 2026-02-01")


def test_every_rule_reads_a_metric_that_is_written() -> None:
    with History.in_memory() as history:
        gauges = replace(read_gauges(history, NOW), next_deadline=NOW, last_round=NOW)
    written = set(re.findall(r"^# TYPE (\w+)", render_metrics(gauges), re.MULTILINE))
    read = set(re.findall(r"\brescind_\w+", " ".join(rule["expr"] for rule in RULES)))
    assert read == {
        "rescind_overdue_requests",
        "rescind_next_deadline_timestamp_seconds",
        "rescind_last_round_timestamp_seconds",
        "rescind_standing_doubts",
        "rescind_stamp_problems",
    }
    assert read <= written
    # The page describes them all.
    assert set(re.findall(r"`(rescind_\w+)", PAGE.partition("## Monitoring")[2])) == written
    assert f"{COLLECTOR}/rescind.prom" in UNITS["rescind-metrics.service"]
    (pattern,) = re.findall(r'file=~"(.*?)"', " ".join(rule["expr"] for rule in RULES))
    assert re.fullmatch(pattern.replace("\\\\", "\\"), f"{COLLECTOR}/rescind.prom")


@needs_promtool
def test_promtool_finds_no_fault_with_the_rules() -> None:
    done = subprocess.run([str(PROMTOOL), "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@needs_promtool
@pytest.mark.parametrize(
    ("state", "alert"),
    [
        ({}, None),
        ({"overdue_requests": 2}, "RescindRequestOverdue"),
        ({"next_deadline": 6.9}, "RescindRequestDue"),
        ({"next_deadline": 7.1}, None),
        ({"last_round": -0.9}, None),
        ({"last_round": -1.1}, "RescindNoRound"),
        ({"standing_doubts": 1}, "RescindDoubt"),
        ({"stamp_problems": 1}, "RescindJournalChanged"),
        ({"written": -0.5}, "RescindNotWatched"),
    ],
    ids=str,
)
def test_an_alert_fires_when_it_has_to_and_not_before(
    state: dict[str, Any], alert: str | None, tmp_path: Path
) -> None:
    """Prometheus itself reads the metrics as they are written, at a time of the test's own choosing."""
    now = NOW.timestamp()
    times = {name: NOW + timedelta(days=state[name]) for name in ("next_deadline", "last_round") if name in state}
    counted = ("overdue_requests", "standing_doubts", "stamp_problems")
    counts = {name: value for name, value in state.items() if name in counted}
    written = now + state.get("written", 0) * DAY
    with History.in_memory() as history:
        gauges = replace(read_gauges(history, NOW), **({"last_round": NOW} | counts | times))
    series = [
        {"series": line.rpartition(" ")[0], "values": f"{line.rpartition(' ')[2]}x1"}
        for line in render_metrics(gauges).splitlines()
        if not line.startswith("#")
    ]
    series.append(
        {"series": f'node_textfile_mtime_seconds{{file="{COLLECTOR}/rescind.prom"}}', "values": f"{written}x1"}
    )
    tests = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": f"{int(now)}s",
        "tests": [
            {
                "interval": f"{int(now)}s",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": "count by (alertname) (ALERTS)",
                        "eval_time": f"{int(now)}s",
                        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else [],
                    }
                ],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(tests))
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", str(tmp_path / "tests.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
