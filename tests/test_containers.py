"""The example's containers fit the checkout that they are built from, and run nothing as root."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

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


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_service_is_built_from_a_target_and_can_write_only_its_volumes(name: str) -> None:
    service: dict[str, Any] = OWN[name]
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
        r"/run/secrets/([\w.]+)", yaml.dump([service.get("command"), service.get("environment")], width=999)
    )
    assert set(named) == set(service.get("secrets", ()))
    assert set(named) <= set(COMPOSE["secrets"])
    assert not any(mount.startswith(("./keys", "./passwords")) for mount in service.get("volumes", ()))


def test_a_private_key_is_in_one_container_and_the_authority_s_in_none() -> None:
    given = [secret for service in COMPOSE["services"].values() for secret in service.get("secrets", ())]
    for secret in ("superlink.key", "database.key", "store.key", "store.json", *HOSPITALS):
        assert given.count(secret) == 1, secret
    assert not any("ca.key" in secret["file"] or "signer" in secret["file"] for secret in COMPOSE["secrets"].values())


def test_the_page_makes_every_secret_and_gives_it_to_the_user_of_its_container() -> None:
    users = dict.fromkeys(OWN, "10001") | {"database": "999", "store": "1000"}
    owners: dict[str, str] = {}
    for user, files in re.findall(r"^sudo chown (\d+) (.+)$", PAGE, re.M):
        spread = re.sub(r"(\S*)\{(.+?)\}", lambda m: " ".join(m[1] + name for name in m[2].split(",")), files)
        owners |= {f"./{file}": user for file in spread.split()}
    for name, service in COMPOSE["services"].items():
        for secret in service.get("secrets", ()):
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


def test_a_hospital_reaches_only_the_superlink_and_others_only_from_this_machine() -> None:
    reachable = {name for name, service in COMPOSE["services"].items() if "federation" in service.get("networks", ())}
    assert reachable == {"superlink", *HOSPITALS}
    for name, service in COMPOSE["services"].items():
        assert name not in HOSPITALS or service["networks"] == ["federation"]
        assert name == "superlink" or all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_no_password_is_in_a_file_or_an_address() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"(?i)password\s*[:=]\s*['\"]?\w", text), path.name
        assert not re.search(r"://\w+:[^@\s]+@", text), path.name
