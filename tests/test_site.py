"""The documentation as a site: it builds without a warning, and leaves out no command and no public name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from rescind.cli import app

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "mkdocs.yml").exists(), reason="needs the project's root")


def own_pages() -> object:
    found = importlib.util.spec_from_file_location("site_pages", ROOT / "docs" / "site.py")
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=300, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return folder


def public_names() -> Iterator[str]:
    for module in own_pages().modules():  # type: ignore[attr-defined]
        loaded = importlib.import_module(module)
        for name, item in vars(loaded).items():
            own = getattr(item, "__module__", None) == module
            if own and not name.startswith("_") and (inspect.isclass(item) or inspect.isfunction(item)):
                yield f"{module}.{name}"
                assert inspect.getdoc(item), f"{module}.{name} has no words of its own"


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    pages = "".join(page.read_text("utf-8") for page in (site / "api").rglob("*.html"))
    anchors = set(re.findall(r'id="(rescind[\w.]*)"', pages))
    names = list(public_names())
    assert len(names) > 200
    assert [name for name in names if name not in anchors] == []


def commands(command: Any, path: str) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for name, each in command.commands.items():
            yield from commands(each, f"{path} {name}")
    else:
        yield path


def test_every_command_is_in_the_reference(site: Path) -> None:
    page = (site / "cli" / "index.html").read_text("utf-8")
    known = list(commands(typer.main.get_command(app), "rescind"))
    assert len(known) > 10
    for name in known:
        assert f"<code>{name}</code>" in page
        assert f"Example: {name}" in re.sub(r"\s+", " ", page)


def test_links_to_a_figure_arrive(site: Path) -> None:
    results = (site / "results" / "index.html").read_text("utf-8")
    places = set(re.findall(r'<h[1-6] id="([^"]+)"', results))
    found = [
        (page.parent.name, place)
        for page in site.rglob("*.html")
        for place in re.findall(
            r'href="(?:[./]*results/)?#([^"]+)"'
            if page.parent.name == "results"
            else r'href="[./]*results/#([^"]+)"',
            page.read_text("utf-8"),
        )
    ]
    assert {"networks", "guarantees", "results"} <= {page for page, _ in found}
    assert [each for each in found if each[1] not in places and not each[1].startswith("__")] == []


def test_a_reader_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        fetched = re.findall(r"""<(?:script|img|iframe)[^>]*src=["']?(?:https?:)?//[^>]*>""", text)
        fetched += re.findall(r"""<link[^>]*rel=["']?(?:stylesheet|preconnect)[^>]*href=["']?(?:https?:)?//""", text)
        assert fetched == [], page
