"""The example's containers fit the checkout that they are built from, and run nothing as root."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from typer.testing import CliRunner

from benchmarks._documented import read_site
from rescind import History
from rescind.cli import app as command_line
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.testing.small import simulation
from tests.builders import server

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "hospitals" / "containers"
DOCKERFILE = (FOLDER / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
# Each stage's own lines, by its name.
STAGES = {
    name: lines for _, name, lines in re.findall(r"^FROM (\S+) AS (\w+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE, re.M | re.S)
}
MADE_BY_THE_READER = {"keys", "passwords", "store.json"}
HOSPITALS = ("cleveland", "hungary", "switzerland")
PAGE = (FOLDER.parent / "deployment.md").read_text("utf-8").partition("## In containers")[2]
OWN = {name: service for name, service in COMPOSE["services"].items() if "build" in service}
BEHIND = ("superlink", "serverapp")
DIGEST = "sha256:" + "5e" * 32


def names(service: dict[str, Any]) -> list[str]:
    """Return the secrets of a service, wherever it wants to see them."""
    return [each if isinstance(each, str) else each["source"] for each in service.get("secrets", ())]


def test_what_is_copied_is_there_and_is_sent() -> None:
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.M)
    named = [path for sources in copied for path in sources.split() if path != "."]
    assert named
    for path in named:
        assert (ROOT / path).exists(), path
        assert any(path == top or path.startswith(f"{top}/") for top in sent), path


@pytest.mark.parametrize("target", ["coordinator", "participant", "auditor"])
def test_an_image_runs_as_a_user_that_is_not_root(target: str) -> None:
    assert "\nUSER 10001\n" in STAGES[target]
    assert "RUN" not in STAGES[target].partition("USER")[2]


@pytest.mark.parametrize("name", [*sorted(OWN), "proxy"])
def test_a_service_is_built_from_a_target_and_can_write_only_its_volumes(name: str) -> None:
    service: dict[str, Any] = COMPOSE["services"][name]
    if name in OWN:
        assert service["build"]["target"] in STAGES
        assert (FOLDER / service["build"]["context"]).resolve() == ROOT
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]


def test_every_file_and_volume_that_is_mounted_exists() -> None:
    mounts = [mount.split(":")[0] for service in COMPOSE["services"].values() for mount in service.get("volumes", ())]
    mounts += [secret["file"] for secret in COMPOSE["secrets"].values()]
    for mount in mounts:
        if mount.startswith("."):
            made = Path(mount).parts[0] in MADE_BY_THE_READER
            assert made or (FOLDER / mount).exists(), mount
        else:
            assert mount in COMPOSE["volumes"]


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_a_service_sees_the_secrets_that_it_names_and_no_folder_of_them(name: str) -> None:
    service = COMPOSE["services"][name]
    named = re.findall(
        r"/run/secrets/([\w.-]+)", yaml.dump([service.get("command"), service.get("environment")], width=999)
    )
    if name == "proxy":
        named = re.findall(r"/etc/nginx/federation/([\w.]+)", (FOLDER / "nginx.conf").read_text("utf-8"))
        assert all(each["target"] == f"/etc/nginx/federation/{each['source']}" for each in service["secrets"])
    assert set(named) == set(names(service))
    assert set(named) <= set(COMPOSE["secrets"])
    assert not any(mount.startswith(("./keys", "./passwords")) for mount in service.get("volumes", ()))


def test_a_private_key_is_in_one_container_and_the_authority_s_in_none() -> None:
    given = [secret for service in COMPOSE["services"].values() for secret in names(service)]
    for secret in ("proxy.key", "superlink.key", "database.key", "store.key", "store.json", "recorder", *HOSPITALS):
        assert given.count(secret) == 1, secret
    assert not any("ca.key" in secret["file"] or "signer" in secret["file"] for secret in COMPOSE["secrets"].values())


def test_the_page_makes_every_secret_and_gives_it_to_the_user_of_its_container() -> None:
    users = dict.fromkeys(OWN, "10001") | {"proxy": "101", "database": "999", "store": "1000"}
    owners: dict[str, str] = {}
    for user, files in re.findall(r"^sudo chown (\d+) (.+)$", PAGE, re.M):
        spread = re.sub(r"(\S*)\{(.+?)\}", lambda m: " ".join(m[1] + name for name in m[2].split(",")), files)
        owners |= {f"./{file}": user for file in spread.split()}
    for name, service in COMPOSE["services"].items():
        for secret in names(service):
            file = COMPOSE["secrets"][secret]["file"]
            # Certificates can be read by all; the administrator's password is read by root.
            if Path(file).suffix not in {".crt", ".pem"} and file != "./passwords/administrator":
                assert owners[file] == users[name], (name, file)


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_volume_covers_a_folder_that_its_user_owns_and_nothing_of_the_image(name: str) -> None:
    stages = STAGES["base"] + STAGES[OWN[name]["build"]["target"]]
    copied = re.findall(r"^COPY .* (\S+)$", stages, re.M)
    for mount in OWN[name]["volumes"]:
        source, target = mount.split(":")[:2]
        if source in COMPOSE["volumes"]:
            assert re.search(rf"(--owner 10001|--home-dir)[^&\n]* {target}\b", stages), target
            assert all(path.startswith("/") and not path.startswith(target) for path in copied), target


def test_who_owns_the_metrics_is_decided_by_whoever_writes_them() -> None:
    assert "metrics" in COMPOSE["services"]["exporter"]["depends_on"]


def test_a_hospital_reaches_only_nginx_and_others_only_from_this_machine() -> None:
    reachable = {name for name, service in COMPOSE["services"].items() if "federation" in service.get("networks", ())}
    assert reachable == {"proxy", *HOSPITALS}
    for name, service in COMPOSE["services"].items():
        assert name not in HOSPITALS or service["networks"] == ["federation"]
        assert name not in HOSPITALS or "--superlink=proxy:9090" in service["command"]
        assert name == "proxy" or all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    assert COMPOSE["services"]["proxy"]["ports"] == ["9090:9090"]


def test_superlink_and_serverapp_are_behind_nginx_and_heard_on_its_loopback_only() -> None:
    superlink, server_app = (COMPOSE["services"][name] for name in BEHIND)
    for service in (superlink, server_app):
        assert service["network_mode"] == "service:proxy"
        assert "ports" not in service
    assert {"--host=127.0.0.1", "--port=8000", "--isolation=process"} <= set(superlink["command"])
    assert "--runtime-api-address=127.0.0.1:8000" in server_app["command"]
    # Whatever reads the history is not where the SuperLink is.
    assert not {"recorder", "store"} & set(names(superlink))
    assert "environment" not in superlink
    assert "secret:/secret" in server_app["volumes"]
    assert "secret:/secret" not in superlink["volumes"]


def test_nginx_in_the_container_is_the_one_of_the_page() -> None:
    assert (FOLDER / "nginx.conf").read_text("utf-8") == read_site()
    assert COMPOSE["services"]["proxy"]["volumes"] == ["./nginx.conf:/etc/nginx/conf.d/default.conf:ro"]


def test_whoever_writes_the_metrics_can_only_read_the_history() -> None:
    metrics = COMPOSE["services"]["metrics"]
    assert set(names(metrics)) == {"ca.crt", "watcher", "watcher-store"}
    assert metrics["volumes"] == ["metrics:/metrics"]
    assert "RESCIND_SECRET" not in metrics["environment"]
    assert metrics["environment"]["HISTORY"].startswith("postgresql://watcher@")
    granted = re.findall(r"GRANT (.+?) (?:ON|TO) .*watcher", (FOLDER / "roles.sql").read_text("utf-8"))
    assert granted == ["CONNECT", "USAGE", "SELECT"]
    (actions,) = re.findall(r'"watcher-store", "secretKey".*?\n.*?"actions": (\[.*?\])', PAGE)
    assert json.loads(actions) == ["Read:models", "List:models"]


def test_signer_and_watcher_read_what_the_recorder_makes_and_can_do_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCIND_CHECKPOINTS", str(tmp_path / "models"))
    with server({"fsync": "off"}) as address:
        # No password is asked for on this server, which is there for this test only.
        with closing(psycopg.connect(address, autocommit=True)) as connection:
            connection.execute("CREATE DATABASE federation")
        administrator = address.replace("/postgres", "/federation")
        with closing(psycopg.connect(administrator, autocommit=True)) as connection:
            connection.execute((FOLDER / "roles.sql").read_bytes())
        places = {role: administrator.replace("rescind@", f"{role}@") for role in ("recorder", "signer", "watcher")}
        secret = tmp_path / "secret"
        with History(places["recorder"], checkpoints=str(tmp_path / "models"), secret=secret) as history:
            Revocable(history, simulation(4, secret_noise=True)).train(Rounds(1))
        for role in ("signer", "watcher"):
            read = CliRunner().invoke(command_line, ["status", places[role], "--format", "prometheus"])
            assert (read.exit_code, "rescind_recorded_rounds_total" in read.output) == (0, True), read.output
            with closing(psycopg.connect(places[role], autocommit=True)) as connection:
                tables = connection.execute(
                    "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname LIKE 'rescind%'"
                ).fetchall()
                assert tables
                for statement in [*(f"TRUNCATE {table}" for (table,) in tables), "CREATE SCHEMA other"]:
                    with pytest.raises(psycopg.errors.InsufficientPrivilege):
                        connection.execute(statement.encode())


def images() -> dict[str, str]:
    """Return what every image is taken by: its tag, and the variable that has its digest."""
    taken = [service["image"] for service in COMPOSE["services"].values() if "image" in service]
    taken += re.findall(r"^FROM (\S+:\S+) AS", DOCKERFILE, re.MULTILINE)
    assert len(taken) == 5 + 4
    found = {}
    for image in taken:
        by = re.fullmatch(r"([a-z0-9./:-]+:[\w.-]+)@\$\{([A-Z]+_DIGEST)(:\?[^}]+)?\}", image)
        assert by is not None, f"{image} is not taken by its digest"
        assert by[3] or by[2] == "PYTHON_DIGEST"
        found[by[2]] = by[1]
    return found


def test_images_are_taken_by_digest_and_the_page_looks_up_every_one(tmp_path: Path) -> None:
    (command,) = re.findall(r"^\[ -e \.env \].*?> \.env$", PAGE, re.MULTILINE | re.DOTALL)
    for name in ("compose.yaml", "Dockerfile"):
        (tmp_path / name).write_text((FOLDER / name).read_text())
    (tmp_path / "docker").write_text(f'#!/bin/sh\necho "$@" >> asked\necho {DIGEST}\n')
    (tmp_path / "docker").chmod(0o700)
    own = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for _ in range(2):
        subprocess.run(["/bin/bash", "-euo", "pipefail", "-c", command], cwd=tmp_path, env=own, check=True)
    wanted = images()
    assert set((tmp_path / ".env").read_text().splitlines()) == {f"{name}={DIGEST}" for name in wanted}
    # Once: what a tag stands for later is of no interest.
    asked = (tmp_path / "asked").read_text().splitlines()
    assert sorted(asked) == sorted(
        f"buildx imagetools inspect {image} --format {{{{.Manifest.Digest}}}}" for image in wanted.values()
    )
    # Neither Compose nor a build has a digest of its own, and nothing else is pulled.
    assert "\nARG PYTHON_DIGEST\n" in DOCKERFILE
    assert "syntax=" not in DOCKERFILE
    assert all(service["build"]["args"]["PYTHON_DIGEST"].startswith("${PYTHON_DIGEST:?") for service in OWN.values())


def test_no_password_is_in_a_file_or_an_address() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"(?i)password\s*[:=]\s*['\"]?\w", text), path.name
        assert not re.search(r"://\w+:[^@\s]+@", text), path.name
