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


def test_no_password_is_in_a_file_or_an_address() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text("utf-8")
        assert not re.search(r"(?i)password\s*[:=]\s*['\"]?\w", text), path.name
        assert not re.search(r"://\w+:[^@\s]+@", text), path.name
