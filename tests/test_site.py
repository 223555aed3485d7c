"""The documentation as a site: it builds without a warning, and leaves out no command and no public name."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import rescind.testing
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
    """Yield what docs/formats.md says that stays: what these modules list, or all that they define."""
    for module in ("rescind", "rescind.flower", "rescind.simulation"):
        loaded = importlib.import_module(module)
        names = [name for name in loaded.__all__ if not inspect.ismodule(getattr(loaded, name))]
        yield from (f"{module}.{name}" for name in names)
    suites = (name for _, name, _ in pkgutil.iter_modules(rescind.testing.__path__) if not name.startswith("_"))
    for module in ("rescind.errors", *(f"rescind.testing.{name}" for name in suites)):
        for name, item in vars(importlib.import_module(module)).items():
            own = getattr(item, "__module__", None) == module and (inspect.isclass(item) or inspect.isfunction(item))
            if own and not name.startswith("_"):
                yield f"{module}.{name}"


def test_the_reference_has_every_name_that_stays_and_no_other(site: Path) -> None:
    pages = "".join(page.read_text("utf-8") for page in (site / "api").rglob("*.html"))
    anchors = set(re.findall(r'<h\d id="(rescind\.[\w.]*)"', pages))
    names = set(public_names())
    assert len(names) > 60
    assert names - anchors == set()
    # With their members; what the suites and the errors define stays as a whole.
    whole = {*names, "rescind.errors", "rescind.testing"}
    assert [anchor for anchor in anchors if not any(f"{anchor}.".startswith(f"{name}.") for name in whole)] == []
    for name in names:
        module, _, own = name.rpartition(".")
        assert inspect.getdoc(getattr(importlib.import_module(module), own)), f"{name} has no words of its own"


def test_what_the_page_says_that_stays_is_in_the_reference(site: Path) -> None:
    stays = (ROOT / "docs" / "formats.md").read_text("utf-8").partition("## What stays")[2]
    columns = re.findall(r"^\| ([^|]*) \|", stays, re.MULTILINE)
    modules = {found for words in columns for found in re.findall(r"`(rescind(?:\.[a-z]+)*)(?:\.__all__)?`", words)}
    assert modules == {"rescind", "rescind.flower", "rescind.testing"}
    for module in modules:
        assert (site / "api" / module.rpartition(".")[2] / "index.html").exists()


def test_pages_that_the_readme_names_are_on_the_site(site: Path) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    named = {link.partition("#")[0] for link in re.findall(r"\]\(([^):]+\.(?:md|ipynb)[^)]*)\)", text)}
    assert {
        "docs/start.md",
        "examples/notebooks/start.ipynb",
        "examples/network/README.md",
        "experiments/figures/late/README.md",
    } <= named
    own = own_pages()
    places = {source: page for page, source in own.MOVED.items()}  # type: ignore[attr-defined]
    results = (site / "results" / "index.html").read_text("utf-8")
    for path in named - {"experiments/README.md"}:
        if figure := re.fullmatch(r"experiments/figures/(\w+)/README\.md", path):
            assert f'id="{own.place_of(figure[1])}"' in results, path  # type: ignore[attr-defined]
        else:
            page = places.get(path, path.removeprefix("docs/")).removesuffix(".md").removesuffix("index")
            assert (site / page / "index.html").exists(), path


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


def test_the_results_have_their_pictures_and_no_other(site: Path) -> None:
    shown = re.findall(r'<img[^>]* src="([^"]+\.svg)"', (site / "results" / "index.html").read_text("utf-8"))
    assert "map.svg" in shown
    assert sorted(shown) == sorted(picture.name for picture in (site / "results").glob("*.svg"))


def test_a_reader_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        fetched = re.findall(r"""<(?:script|img|iframe)[^>]*src=["']?(?:https?:)?//[^>]*>""", text)
        fetched += re.findall(r"""<link[^>]*rel=["']?(?:stylesheet|preconnect)[^>]*href=["']?(?:https?:)?//""", text)
        assert fetched == [], page
