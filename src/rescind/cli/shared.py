"""What commands share: where a history is, how results and errors are told."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rescind.texts import make_plain

if TYPE_CHECKING:
    from rescind.core.edges import ModelId
    from rescind.history.history import History

INTERRUPTED = 130
# A table of more rows would take seconds.
_MOST_FOLDED = 1_000

Location = Annotated[
    str,
    typer.Argument(
        metavar="HISTORY",
        help="The history's folder; or its PostgreSQL address, with RESCIND_CHECKPOINTS saying where its models are, "
        "RESCIND_SECRET where its secret file is, and RESCIND_RUN which run it is, if it has a name.",
    ),
]
Number = Annotated[int, typer.Argument(metavar="NUMBER", help="The request's number.")]
Epsilon = Annotated[float, typer.Option(help="The guarantee's epsilon.")]
Delta = Annotated[float, typer.Option(help="The guarantee's delta.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of words.")]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under heads, for ``show``."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]

    def lines(self) -> Iterator[str]:
        """Return the table in lines, however long they are."""
        from rich.cells import cell_len

        rows = [self.heads, *(tuple(map(make_plain, row)) for row in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            filled = (cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True))
            yield "  ".join(filled).rstrip()


def show(result: Mapping[str, object], words: Iterable[str | Sequence[str] | Table], as_json: bool) -> None:
    """Print a result, for people or for programs: each of the words is a line, the fields of one, or a table."""
    if as_json:
        typer.echo(json.dumps(result, indent=1))
        return
    for line in words:
        if isinstance(line, str):
            typer.echo(make_plain(line))
        elif isinstance(line, Sequence):
            typer.echo("\t".join(map(make_plain, line)))
        elif sys.stdout.isatty() and len(line.rows) <= _MOST_FOLDED:
            _fold(line)
        else:
            # What goes through a pipe is not broken at a terminal's width.
            typer.echo("\n".join(line.lines()))


def _fold(table: Table) -> None:
    """Print a table, each cell in as many lines as the terminal's width makes of it."""
    import rich.table
    from rich.console import Console

    made = rich.table.Table(*table.heads, box=None, pad_edge=False)
    for row in table.rows:
        made.add_row(*map(make_plain, row))
    # A client may be called "[/]".
    Console(soft_wrap=True, markup=False, emoji=False).print(made)


def parse_model(text: str) -> ModelId:
    """Return the model that is called so, such as 1.5."""
    from rescind.core.edges import ModelId

    if not re.fullmatch("[0-9]{1,9}[.][0-9]{1,9}", text):
        raise typer.BadParameter(f"{text!r} is no model: give one such as 1.5, the fifth of branch 1")
    return ModelId(*map(int, text.split(".")))


def describe_leaving(row: Mapping[str, Any]) -> str:
    """Say in a request's row who leaves, or whose rows do."""
    return ("rows of " if row["scope"] == "records" else "") + ", ".join(row["clients"])


def describe_wait(row: Mapping[str, Any]) -> str:
    """Say in a request's row what it waits for, if it does: for somebody to agree, or for its rows."""
    since = row["waits_for_approval_since"]
    unnamed = "; its rows are not named yet" if row["waits_for_rows"] else ""
    return unnamed + (f"; waits for approval since {since[:16].replace('T', ' ')}" if since else "")


def complain(problem: str) -> None:
    """Print on standard error what is wrong, in one line, whatever others wrote into it."""
    typer.echo(f"rescind: {make_plain(' '.join(problem.split()))}", err=True)


def warn_of_changes(problems: Sequence[str] | None) -> None:
    """Print on standard error what shows that somebody without the secret changed the journal, if anything does."""
    for problem in (problems or ())[:1]:
        more = f" (and {len(problems or ()) - 1} more)" if len(problems or ()) > 1 else ""
        complain(f"what the journal says cannot be relied on{more}: {problem}. `rescind doctor` says more")


@contextmanager
def report_errors(verdict: str = "") -> Iterator[None]:
    """Report an error in one sentence, with the exit code of its kind; a failed check begins with its verdict."""
    from sqlalchemy.exc import DBAPIError

    from rescind.certificates.errors import CertificateError, UnusableKeyError
    from rescind.errors import HistoryError

    try:
        yield
    except DBAPIError as error:
        message = str(error.orig).strip()
        full = any(word in message for word in ("disk", "full", "space", "extend"))
        hint = "Free some of its disk, and do the same again" if full else "Nothing was changed"
        complain(f"the history's database says: {message}. {hint}")
        raise typer.Exit(1) from error
    except (CertificateError, HistoryError, OSError, ValueError) as error:
        message = str(error)
        if isinstance(error, OSError) and error.filename:
            message = f"{error.strerror}: {error.filename}"
        judged = verdict if isinstance(error, CertificateError) and not isinstance(error, UnusableKeyError) else ""
        complain(f"{judged}{message}")
        raise typer.Exit(getattr(error, "exit_code", 1)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("aiobotocore", "aiohttp", "botocore", "s3fs"):
            raise
        complain(f"the bucket cannot be used: {error}. Check its address, endpoint and keys")
        raise typer.Exit(1) from error
    except KeyboardInterrupt as interrupt:
        complain("interrupted. Nothing is half done: give the same command again.")
        raise typer.Exit(INTERRUPTED) from interrupt


@contextmanager
def open_existing(location: str) -> Iterator[History]:
    """Open a history that exists already."""
    with report_errors(), open_history(location) as history:
        yield history


def open_history(location: str, *, create: bool = False) -> History:
    """Return the history at a location, as the environment completes it."""
    from rescind.history.history import History

    run, secret = read_run()
    return History(location, checkpoints=os.environ.get("RESCIND_CHECKPOINTS"), run=run, secret=secret, create=create)


def read_run() -> tuple[str, str | None]:
    """Return the name of the run and its secret file, as the environment says them."""
    return os.environ.get("RESCIND_RUN", "main"), os.environ.get("RESCIND_SECRET") or None


def check_page(path: Path) -> None:
    """Refuse to write a page over something else, such as the certificate."""
    if not path.parent.is_dir():
        raise ValueError(f"the folder {path.parent} for the page does not exist")
    from rescind.private_files import read_bounded

    # An empty one is what a full disk left.
    if path.exists() and not (path.is_file() and read_bounded(path, 20)[:15] in (b"", b"<!doctype html>")):
        raise ValueError(f"{path} is there already and is no page: choose another name for it")
