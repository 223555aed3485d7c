"""Hashed requirements of the deployment and of a release's tools: complete, and what ``pyproject.toml`` asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLAIN, EXTRAS = PYPROJECT["project"]["dependencies"], PYPROJECT["project"]["optional-dependencies"]
# What each file is for, and what must not be in it: an auditor needs no Flower, and torch's small build is in no
# common index.
FILES = {
    "flower.txt": ([*PLAIN, *EXTRAS["flower"], *EXTRAS["postgres"], *EXTRAS["s3"]], {"torch"}),
    "mlflow.txt": ([*PLAIN, *EXTRAS["mlflow"], *EXTRAS["postgres"], *EXTRAS["s3"]], {"torch", "flwr", "mlflow"}),
    "verify.txt": (PLAIN, {"torch", "flwr", "psycopg", "s3fs", "mlflow-skinny"}),
    "build.txt": (PYPROJECT["dependency-groups"]["build"], {"twine"}),
    "release.txt": (PYPROJECT["dependency-groups"]["release"], {"hatchling"}),
}
PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)")


def pins(text: str) -> dict[str, str]:
    """Return the version of every package; whatever is not pinned with a hash is an error."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    found = {}
    for line in lines:
        pin = PIN.fullmatch(re.sub(r" +", " ", line))
        assert pin is not None, f"not NAME==VERSION with hashes: {line[:100]}"
        found[canonicalize_name(pin["name"])] = pin["version"]
    assert len(found) == len(lines) > 0
    return found


def unmet(asked: list[str], found: dict[str, str]) -> list[str]:
    """Return the requirements that no pin satisfies."""
    wanted = [Requirement(each) for each in asked]
    return [
        str(each)
        for each in wanted
        if not each.specifier.contains(found.get(canonicalize_name(each.name), "0"), prereleases=False)
    ]


@pytest.mark.parametrize("name", FILES)
def test_every_dependency_is_pinned_with_hashes_at_a_version_that_fits(name):
    asked, absent = FILES[name]
    found = pins((ROOT / "requirements" / name).read_text(encoding="utf-8"))
    assert unmet(asked, found) == []
    assert found.keys().isdisjoint(absent)


@pytest.mark.parametrize(
    "line",
    [
        "numpy==2.4.6",
        "numpy>=2.0 --hash=sha256:" + "0" * 64,
        "numpy==2.4.6 --hash=md5:" + "0" * 32,
        "--index-url https://packages.example.org/simple",
        "numpy @ https://packages.example.org/numpy.whl --hash=sha256:" + "0" * 64,
    ],
)
def test_what_is_not_pinned_with_a_hash_is_noticed(line):
    with pytest.raises(AssertionError, match="not NAME==VERSION"):
        pins(line + "\n")


def test_a_raised_bound_is_noticed():
    assert unmet(["numpy>=2.0", "Rich>=14"], {"numpy": "2.4.6", "rich": "13.9"}) == ["Rich>=14"]
    assert unmet(["scipy>=1.14"], {"numpy": "2.4.6"}) == ["scipy>=1.14"]
