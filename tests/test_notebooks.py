"""The notebooks as they are stored: what they show, and that they can be compared; `.ci/full notebooks` runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def book(request: pytest.FixtureRequest) -> NotebookNode:
    found = nbformat.read(request.param, nbformat.NO_CONVERT)
    nbformat.validate(found)
    return found


def texts(book: NotebookNode) -> list[str]:
    """Return what the cells show, pictures left out."""
    shown = [output for cell in book.cells for output in cell.get("outputs", ())]
    return [output.get("text") or output.get("data", {}).get("text/plain", "") for output in shown]


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["certificate", "pretrained", "start"]


def test_it_was_run_from_top_to_bottom_without_an_error(book: NotebookNode) -> None:
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds <= {"stream", "display_data", "execute_result"}
    assert len(texts(book)) > 5


def test_its_cells_are_short_and_each_says_first_what_it_is_about(book: NotebookNode) -> None:
    assert book.cells[0].source.startswith("# ")
    assert max(len(cell.source.splitlines()) for cell in book.cells) <= 16


def test_it_names_no_folder_of_a_machine(book: NotebookNode) -> None:
    for text in (*texts(book), *(cell.source for cell in book.cells)):
        assert not re.search(r"(?<![\w.:/~])/(?=\w+/)|[A-Z]:\\\\", text), text
        assert "\x1b" not in text


def test_its_links_lead_somewhere(book: NotebookNode) -> None:
    words = "\n".join(cell.source for cell in book.cells if cell.cell_type == "markdown")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", words)]
    assert links
    assert [link for link in links if not (FOLDER / link).exists()] == []


def test_the_certificate_is_verified_as_the_page_shows() -> None:
    # The gate runs the page's command.
    page = (ROOT / "docs" / "certificates.md").read_text("utf-8")
    (shown,) = re.findall(r"^\$ rescind verify .*\n((?:.*\n)*?)```", page, re.MULTILINE)
    assert shown in texts(nbformat.read(FOLDER / "certificate.ipynb", nbformat.NO_CONVERT))


def test_another_output_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "tiny.ipynb"
    shown = [new_output("stream", text="by 2026-01-31, 0123456789abcdef\n2\n")]
    code = "import secrets\nprint('by 2027-02-01,', secrets.token_hex(8))\nprint({})"
    for number, lines in ((2, []), (3, ["-2", "+3"])):
        nbformat.write(new_notebook(cells=[new_code_cell(code.format(number), outputs=shown)]), path)
        program = "import sys, run, pathlib; print('\\n'.join(run.compare(pathlib.Path(sys.argv[1]))))"
        done = subprocess.run(
            [sys.executable, "-c", program, path], cwd=FOLDER, check=True, capture_output=True, text=True
        )
        assert [line for line in done.stdout.splitlines() if re.match(r"[-+]\d", line)] == lines
