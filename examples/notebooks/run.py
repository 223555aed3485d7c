"""Run the notebooks beside this file, and store what they show: ``python examples/notebooks/run.py [NAME...]``.

With ``--check`` nothing is stored: it ends with 1 if a notebook prints something else than is stored.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What is other each time: digests and days.
CHANCE = re.compile(r"[0-9a-f]{12,}|20\d\d-\d\d-\d\d")


def run(path: Path) -> NotebookNode:
    """Run a notebook in its folder, and return it with what its cells show."""
    book: NotebookNode = nbformat.read(path, nbformat.NO_CONVERT)
    # Its commands are those of this Python, and lines are as long everywhere.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    os.environ["COLUMNS"] = "100"
    place = {"metadata": {"path": str(path.parent)}}
    NotebookClient(book, timeout=600, record_timing=False, coalesce_streams=True, resources=place).execute()
    for output in outputs(book):
        if "text" in output:
            output["text"] = ANSI.sub("", output["text"]).replace("\r\n", "\n")
    return book


def outputs(book: NotebookNode) -> Iterator[NotebookNode]:
    """Yield what the cells of a notebook show, in their order."""
    for cell in book.cells:
        yield from cell.get("outputs", ())


def read_texts(book: NotebookNode) -> list[str]:
    """Return the lines that a notebook prints, without chance; pictures are left out."""
    texts = (output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs(book))
    return [line for text in texts for line in CHANCE.sub("#", text).splitlines()]


def compare(path: Path) -> list[str]:
    """Run a notebook, and return the lines in which it differs from what is stored."""
    stored = read_texts(nbformat.read(path, nbformat.NO_CONVERT))
    return list(difflib.unified_diff(stored, read_texts(run(path)), "stored", "now", lineterm=""))


def main() -> int:
    """Read the options and do it."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME", help="which of them; by default all")
    options.add_argument("--check", action="store_true", help="store nothing, and compare")
    chosen = options.parse_args()
    paths = [FOLDER / f"{name}.ipynb" for name in chosen.names] or sorted(FOLDER.glob("*.ipynb"))
    different = 0
    for path in paths:
        if chosen.check:
            lines = compare(path)
            different += bool(lines)
            sys.stdout.write("\n".join([f"{path.name}: {'differs' if lines else 'as stored'}", *lines, ""]))
        else:
            nbformat.write(run(path), path)
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
