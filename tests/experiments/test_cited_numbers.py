"""A number that a page takes from a figure stands on the figure's own page, beside the table made of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from experiments import harness

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"`(python -m [^`]+|plot \w+)`")
PLOT = re.compile(r"(?:python -m experiments )?plot (\w+)")


def numbers(text: str) -> set[str]:
    """Return the numbers of a text, but for those in code and in addresses."""
    bare = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text)
    found = re.findall(r"(?<![\w.^])\d[\d,]*(?:\.\d+)?(?:e-\d+)?(?!\w)", bare)
    return {number.rstrip(",").replace(",", "") for number in found}


def claims(page: str) -> Iterator[tuple[set[str], list[str]]]:
    """Yield the numbers of a page that commands are given for, with these: the commands that come next."""
    for block in re.split(r"\n\n|\n(?=\||- )", page):
        # What a row of a table is about is the question, not the answer.
        text = block.partition(" | ")[2] if block.startswith("|") else block
        claimed, commands = set[str](), list[str]()
        for at, part in enumerate(COMMAND.split(text)):
            if at % 2:
                commands.append(part)
            elif more := numbers(part):
                if commands:
                    yield claimed, commands
                    claimed, commands = set(), []
                claimed |= more
        if commands:
            yield claimed, commands


def stands(number: str, known: set[str]) -> bool:
    """Return whether a page has a number, or one that is rounded to it."""
    value = Decimal(number)
    half = Decimal(5).scaleb(value.as_tuple().exponent - 1)
    return any(abs(Decimal(other) - value) <= half for other in known)


def test_a_number_belongs_to_the_commands_after_it() -> None:
    row = "| one of 7 | 3 of 1,000, or 5.1 % | `python -m experiments plot map`, `plot solved` |"
    prose = "8 at (1, 1e-5) (`python -m benchmarks.solve`), then [9](a-10.md) (`plot late`), 11."
    assert list(claims(f"{row}\n\n{prose}")) == [
        ({"3", "1000", "5.1"}, ["python -m experiments plot map", "plot solved"]),
        ({"8", "1", "1e-5"}, ["python -m benchmarks.solve"]),
        ({"9"}, ["plot late"]),
    ]
    assert stands("1000", {"1000"})
    assert stands("5.1", {"5.14"})
    assert not stands("5.1", {"5.2", "5"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_cited_number_stands_on_the_figures_page(page: Path) -> None:
    unknown = []
    for claimed, commands in claims(page.read_text("utf-8")):
        figures = [plot[1] for command in commands if (plot := PLOT.fullmatch(command))]
        # What a benchmark prints is stored nowhere.
        if figures and len(figures) == len(commands):
            known = set[str]().union(
                *(numbers((harness.FIGURES / f / "README.md").read_text("utf-8")) for f in figures)
            )
            unknown += [(number, figures) for number in sorted(claimed) if not stands(number, known)]
    # Either it is wrong, or the figure's page should say it too.
    assert unknown == []
