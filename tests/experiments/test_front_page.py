"""The first screen shows what is stored, and the pictures are those that their programs draw."""

from __future__ import annotations

import re
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


def test_the_timeline_has_the_tables_numbers() -> None:
    import timeline

    # If they differ: PYTHONPATH=. python docs/pictures/timeline.py
    picture = (PICTURES / "timeline.svg").read_text("utf-8")
    assert picture == timeline.draw() + "\n"
    total, again = timeline.measure()
    rows = (ROOT / "README.md").read_text("utf-8").splitlines()
    (late,) = (row for row in rows if row.startswith("| [CNN, the client joined after three quarters]"))
    assert f"| {again} rounds | {total} rounds |" in late
    assert f">{again} rounds to forget<" in picture


@pytest.mark.parametrize("name", ["choose", "noise", "power", "psi", "timeline", "tree"])
def test_a_pictures_text_can_be_read_on_light_and_on_dark_ground(name: str) -> None:
    import style

    picture = (PICTURES / f"{name}.svg").read_text("utf-8")
    grounds = re.findall(r"svg{color:(#\w{6});background:(#\w{6})}", picture)
    assert grounds == [style.LIGHT, style.DARK]
    assert min(contrast(text, ground) for text, ground in grounds) >= 4.5
    # Every text has that colour.
    texts = re.findall(r"<text[^>]*>", picture)
    assert texts
    assert [text for text in texts if "fill" in text and not re.search(r"fill(?:=\"|: )currentColor", text)] == []


def test_contrast_is_that_of_black_and_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#7b808a", "#ffffff") == pytest.approx(3.96, abs=0.01)


def contrast(*colours: str) -> float:
    """Return the contrast of two colours, as the Web Content Accessibility Guidelines compute it."""
    low, high = sorted(map(luminance, colours))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_questions_are_drawn_as_they_are_asked() -> None:
    import choose

    # If they differ: python docs/pictures/choose.py
    assert (PICTURES / "choose.svg").read_text("utf-8") == choose.draw() + "\n"
