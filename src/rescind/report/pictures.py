"""Pictures of a run as SVG, readable on light and dark ground, each with a text for who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rescind.core.calibration import attack_power
from rescind.core.edges import Floats
from rescind.history.path import lineage
from rescind.history.records import Branch, Place, Span

# Stands for the text's own colour, which only the page knows.
_INK = "#010203"
_COLOURS = ("#3d7dca", "#c2571a", "#5b8c2a", "#a0529c", "#8a7a1f")
_FAINT = "#8c8c8c"


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG element and the text that stands for it."""

    svg: str
    text: str


@dataclass(frozen=True, slots=True)
class Line:
    """A branch as it is drawn: how many rounds it has, which of them are kept, which are erased."""

    branch: Branch
    rounds: int
    kept: tuple[int, ...]
    erased: tuple[Span, ...]


def tree(lines: Mapping[int, Line], newest: Place) -> Picture:
    """Draw the branches of a history, the paper's figure 1: where each began, what is kept, what is erased."""
    path = {leg.branch: leg.round for leg in lineage({number: each.branch for number, each in lines.items()}, newest)}
    begins = {0: 0}
    for number, each in sorted(lines.items()):
        if each.branch.parent is not None:
            begins[number] = begins[each.branch.parent.branch] + each.branch.parent.round

    def draw(axes: Axes) -> None:
        for number, each in sorted(lines.items()):
            start, height = begins[number], -number
            used = path.get(number, -1)
            axes.plot([start, start + each.rounds], [height, height], color=_FAINT, linewidth=1.2, linestyle=":")
            if used >= 0:
                axes.plot([start, start + used], [height, height], color=_COLOURS[0], linewidth=2.2)
            for span in each.erased:
                axes.plot(
                    [start + span.first, start + span.last],
                    [height, height],
                    color=_COLOURS[1],
                    linewidth=5,
                    alpha=0.35,
                )
            axes.plot([start + at for at in each.kept], [height] * len(each.kept), "o", color=_INK, markersize=4)
            if each.branch.parent is not None:
                above = -each.branch.parent.branch
                axes.annotate(
                    "",
                    (start, height),
                    (start, above),
                    arrowprops={"arrowstyle": "->", "color": _INK, "linewidth": 1},
                )
                noise = f"noise {each.branch.sigma:.3g}" if each.branch.sigma else "no noise"
                served = ", ".join(map(str, each.branch.requests))
                axes.annotate(
                    f"request {served}: {noise}" if served else noise,
                    (start, height),
                    (6, -11),
                    textcoords="offset points",
                    color=_INK,
                    fontsize=8,
                )
        axes.set_yticks([-number for number in lines], [f"branch {number}" for number in lines])
        axes.set_ylim(-max(lines) - 0.6, 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("rounds of training behind the model")

    words = [f"branch {number} with {each.rounds} rounds" for number, each in lines.items()]
    return _picture("tree", draw, 1.1 + 0.55 * len(lines), f"The branches of the history: {'; '.join(words)}.")


def sensitivities(curves: Mapping[str, Floats], trained: Sequence[int], threshold: float | None) -> Picture:
    """Draw how far each client may have moved the model, round by round (Psi), and what a noise would hide."""

    def draw(axes: Axes) -> None:
        for (name, curve), colour in zip(curves.items(), _COLOURS, strict=False):
            axes.plot(trained, curve, color=colour, linewidth=1.6, label=name)
        if threshold is not None:
            axes.axhline(threshold, color=_INK, linewidth=1, linestyle="--", label="hidden by the goal's noise")
        axes.set_xlabel("rounds of training behind the model")
        axes.set_ylabel("may have moved it by")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8, frameon=False, labelcolor=_INK)

    last = ", ".join(f"{name} {curve[-1]:.3g}" for name, curve in curves.items())
    return _picture("sensitivities", draw, 3.0, f"How far clients may have moved the newest model: {last}.")


def powers(claims: Mapping[str, float]) -> Picture:
    """Draw the most that any attack can reach against each claim, by its mu."""
    rates = np.concatenate([np.logspace(-4, -1, 60), np.linspace(0.1, 0.999, 60)])

    def draw(axes: Axes) -> None:
        for (name, mu), colour in zip(claims.items(), _COLOURS, strict=False):
            found = [attack_power(mu, rate) for rate in rates.tolist()]
            axes.plot(rates, found, color=colour, linewidth=1.6, label=name)
        axes.plot(rates, rates, color=_FAINT, linewidth=1, linestyle=":", label="guessing")
        axes.set_xscale("log")
        axes.set_xlabel("outsiders wrongly accused")
        axes.set_ylabel("forgotten found, at most")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.2%}" if value < 0.01 else f"{value:.0%}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.legend(fontsize=8, frameon=False, labelcolor=_INK)

    said = ", ".join(f"{name}: at most {attack_power(mu, 0.01):.1%}" for name, mu in claims.items())
    return _picture("powers", draw, 3.0, f"Found by an attack that accuses 1 % of outsiders wrongly: {said}.")


def _picture(name: str, draw: Callable[[Axes], None], height: float, text: str) -> Picture:
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        # The same bytes every time, and other names than the other pictures of the page.
        "svg.hashsalt": name,
        "font.family": "sans-serif",
        # A client may be called "$x$".
        "text.parse_math": False,
        "text.color": _INK,
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        draw(figure.subplots())
        written = StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn = written.getvalue()
    body = drawn[drawn.index("<svg") :].replace(_INK, "currentColor")
    opening, _, rest = body.partition(">")
    kept = " ".join(each for each in opening.split() if not each.startswith(("width=", "height=")))
    return Picture(f'{kept} role="img" aria-label="{_escaped(text)}">{rest}', text)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
