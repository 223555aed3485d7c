"""``python -m experiments FIGURE``: run a figure, draw it, and write its table into its README.

python -m experiments map --seeds 1     the runs that are missing, then picture and table
python -m experiments plot map          picture, if it has one, and table from the stored rows
python -m experiments repeat map        the shortest stored run once more: does the same come out?
python -m experiments --quick map       a tiny size, in a folder of its own that is thrown away
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from experiments import harness, tables
from experiments.data import NoFolderError


def main() -> int:
    """Read the options and do it."""
    options = argparse.ArgumentParser(
        prog="python -m experiments", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "words",
        nargs="*",
        metavar="FIGURE",
        help=f"plot FIGURE, repeat FIGURE, or one of {', '.join(harness.names())}",
    )
    options.add_argument("--data", help="the folder of the data sets; else the environment variable RESCIND_DATA")
    options.add_argument("--seeds", type=int, help="how many seeds; by default as many as the configuration says")
    options.add_argument("--quick", action="store_true", help="a tiny size, kept nowhere")
    chosen = options.parse_args()
    if not chosen.words:
        sys.stdout.write(
            "\n".join(["The figures, each run by python -m experiments FIGURE (-h: more):", *harness.names(), ""])
        )
        return 0
    *verb, figure = chosen.words
    if verb not in ([], ["plot"], ["repeat"]):
        options.error(f"{' '.join(verb)!r} is no verb: give FIGURE, plot FIGURE or repeat FIGURE")
    try:
        todo = harness.tasks(figure, quick=chosen.quick, seeds=chosen.seeds)
    except ValueError as unknown:
        options.error(str(unknown))
    nothing = f"nothing has been run yet: python -m experiments {figure}"
    if verb == ["repeat"]:
        done = harness.stored(figure)
        if not done:
            options.error(nothing)
        return repeat(figure, todo, done, chosen.data)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if chosen.quick else harness.FIGURES / figure
        rows = folder / "rows.jsonl"
        if not verb:
            try:
                harness.run(figure, todo, chosen.data, rows)
            except (NoFolderError, FileNotFoundError) as missing:
                options.error(str(missing))
        kept = harness.stored(figure, rows)
        found = harness.flat(kept, todo)
        if not found:
            options.error(nothing)
        drawn, table = harness.drawing(figure), harness.table(figure, kept, todo)
        if hasattr(drawn, "draw"):
            tables.save(drawn.draw(found), folder)
        if not chosen.quick:
            tables.insert(folder / "README.md", table)
        Console(stderr=True, width=160).print(Markdown(table))
        summary = {"rows": len(found), **drawn.summary(found)}
    sys.stdout.write(json.dumps(summary) + "\n")
    return 0


def repeat(figure: str, todo: Sequence[harness.Task], done: Mapping[str, harness.Row], data: str | None) -> int:
    """Run one of the stored runs once more, and say what came out otherwise."""
    if data is not None:
        os.environ["RESCIND_DATA"] = data
    task, differences = harness.repeat(todo, done)
    for difference in differences:
        sys.stderr.write(f"{figure} {task.hash}: {difference}\n")
    sys.stdout.write(json.dumps({"figure": figure, "run": task.hash, "different": len(differences)}) + "\n")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
