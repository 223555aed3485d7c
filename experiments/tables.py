"""How results are shown: Markdown tables in a README, pictures as SVG and PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.harness import Row

BEGIN, END = "<!-- table -->", "<!-- end of table -->"
COLOURS = (
    "#3d7dca",
    "#c2571a",
    "#5b8c2a",
    "#a0529c",
    "#8a7a1f",
    "#4a9a9a",
    "#9c5050",
    "#6b7280",
    "#b08930",
    "#305080",
)


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def insert(readme: Path, table: str) -> None:
    """Write a table into a README, between its two marks."""
    text = readme.read_text("utf-8") if readme.exists() else f"# {readme.parent.name}\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}", "utf-8")


def save(figure: Figure, folder: Path) -> None:
    """Write a picture in both forms, the same bytes every time."""
    with mpl.rc_context({"svg.hashsalt": folder.name, "svg.fonttype": "none"}):
        figure.savefig(folder / "figure.svg", metadata={"Date": None, "Creator": None})
        figure.savefig(folder / "figure.png", dpi=110, metadata={"Software": None})


def grouped(rows: Sequence[Row], *keys: str) -> dict[tuple[Any, ...], list[Row]]:
    """Return the rows by the values of some keys, in the order in which these first occur."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def middle(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    """Return the median of a column."""
    return float(median(row[key] for row in rows))


def spread(rows: Sequence[Mapping[str, Any]], key: str, form: Callable[[float], str] = "{:.0f}".format) -> str:
    """Return the median of a column and, over several seeds, its smallest and largest value."""
    values = sorted(row[key] for row in rows)
    shown = form(median(values))
    return shown if form(values[0]) == form(values[-1]) else f"{shown} ({form(values[0])} to {form(values[-1])})"


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the names of what one panel shows under all of them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)


def percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.1f} %"
