"""The first screen shows what is stored, and the pictures are those that their programs draw."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import tables

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the programs beside the pictures be imported."""
    monkeypatch.syspath_prepend(PICTURES)


def test_the_readmes_first_table_follows_from_the_rows() -> None:
    import front

    readme = (ROOT / "README.md").read_text("utf-8")
    shown = readme.partition(tables.BEGIN)[2].partition(tables.END)[0].strip()
    # If they differ: PYTHONPATH=. python docs/pictures/front.py
    assert shown == front.table(front.cases())


def test_the_questions_are_drawn_as_they_are_asked() -> None:
    import choose

    # If they differ: python docs/pictures/choose.py
    assert (PICTURES / "choose.svg").read_text("utf-8") == choose.draw() + "\n"
