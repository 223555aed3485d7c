"""Pictures of a run as SVG, readable on light and dark ground, each with a text for who cannot see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rescind.certificates.predicate import Guarantee, Noise
from rescind.certificates.wording import format_share
from rescind.core.arrays import Floats
from rescind.core.calibration import reached_epsilon
from rescind.core.edges import ModelId
from rescind.history.lineage import branch_exits
from rescind.history.outcomes import Scores
from rescind.ledger.records import Branch
from rescind.pages.fragments import Picture, frame_picture
from rescind.texts import list_some
from rescind.views.overview import format_distance

# Stands for the text's own colour, which only the page knows.
_INK = "#010203"
_COLOURS = ("#3d7dca", "#c2571a", "#5b8c2a", "#a0529c", "#8a7a1f")
_FAINT = "#8c8c8c"
_MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Line:
    """A branch as it is drawn: how many rounds it has, which are kept, from which to which they are erased."""

    branch: Branch
    rounds: int
    kept: tuple[int, ...]
    erased: tuple[tuple[int, int], ...]


def sketch(lines: Mapping[int, Line], newest: ModelId) -> Picture:
    """Draw the branches without their rounds: in which order they began, and of which something is erased."""
    plain = {
        number: Line(
            branch=replace(line.branch, parent=ModelId(line.branch.parent.branch, 1))
            if line.branch.parent
            else line.branch,
            rounds=2,
            kept=(),
            erased=((0, 2),) if line.erased else (),
        )
        for number, line in lines.items()
    }
    return tree(plain, ModelId(newest.branch, 2), scale=False)


def tree(lines: Mapping[int, Line], newest: ModelId, *, scale: bool = True) -> Picture:
    """Draw the branches of a history, the paper's figure 1: where each began, what is kept, what is erased."""
    path = {
        leg.branch: leg.round for leg in branch_exits({number: line.branch for number, line in lines.items()}, newest)
    }
    begins = _begins(lines)

    def draw(axes: Axes) -> None:
        for number, line in sorted(lines.items()):
            start, height = begins[number], -number
            used = path.get(number, -1)
            level = [height, height]
            axes.plot([start, start + line.rounds], level, color=_FAINT, linewidth=1.2, linestyle=":")
            if used >= 0:
                axes.plot([start, start + used], level, color=_COLOURS[0], linewidth=2.2, label="in use")
            for first, last in line.erased:
                ends = [start + first, start + last]
                axes.plot(ends, level, color=_COLOURS[1], linewidth=5, alpha=0.35, label="erased")
            if line.kept:
                at = [start + number for number in line.kept]
                axes.plot(at, [height] * len(at), "o", color=_INK, markersize=4, label="checkpoint")
            if line.branch.parent is not None:
                above = -line.branch.parent.branch
                axes.annotate(
                    "",
                    (start, height),
                    (start, above),
                    arrowprops={"arrowstyle": "->", "color": _INK, "linewidth": 1},
                )
                noise = f"noise {line.branch.sigma:.3g}" if line.branch.sigma else "no noise"
                served = line.branch.requests
                axes.annotate(
                    f"{name_requests(served)}: {noise}" if served else noise,
                    (start, height),
                    (6, -11),
                    textcoords="offset points",
                    color=_INK,
                    fontsize=8,
                )
        axes.set_yticks([-number for number in lines], [f"branch {number}" for number in lines])
        axes.set_ylim(-max(lines) - 0.6, 0.4)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("rounds of training before the model")
        if not scale:
            axes.set_xticks([])
            axes.set_xlabel("order of training: later is further right")
        _legend(axes)

    words = [f"branch {number}{f' with {line.rounds} rounds' if scale else ''}" for number, line in lines.items()]
    return _picture("tree", draw, 1.4 + 0.55 * len(lines), f"The branches of the history: {'; '.join(words)}.")


def name_requests(numbers: Sequence[int]) -> str:
    """Return what requests are called in a picture, which has no room for many."""
    return f"request {list_some([*map(str, numbers)], _MOST_NAMED)}"


def _begins(lines: Mapping[int, Line]) -> dict[int, int]:
    """Return how many rounds of training are behind the first model of each branch."""
    begins = {0: 0}
    for number, line in sorted(lines.items()):
        if line.branch.parent is not None:
            begins[number] = begins[line.branch.parent.branch] + line.branch.parent.round
    return begins


def accuracies(
    measured: Mapping[ModelId, Scores], lines: Mapping[int, Line], parts: Mapping[str, str]
) -> Picture | None:
    """Draw accuracies over time, branch by branch; ``parts`` gives a name to each part of ``Scores`` to be drawn."""
    begins = _begins(lines) if 0 in lines else dict.fromkeys(lines, 0)
    curves: dict[str, dict[int, list[tuple[int, float]]]] = {}
    for model_id, scores in sorted(measured.items()):
        for part, label in parts.items():
            value: float | None = getattr(scores, part)
            if value is not None and model_id.branch in begins:
                points = curves.setdefault(label, {}).setdefault(model_id.branch, [])
                points.append((begins[model_id.branch] + model_id.round, value))
    if not curves:
        return None

    def draw(axes: Axes) -> None:
        for (label, branches), colour in zip(curves.items(), _COLOURS, strict=False):
            for number, points in branches.items():
                style = "-" if number == max(branches) else ":"
                marker = "o" if len(points) == 1 else None
                xs, ys = zip(*points, strict=True)
                name = label if number == max(branches) else None
                axes.plot(xs, ys, style, marker=marker, markersize=4, color=colour, linewidth=1.6, label=name)
        axes.set_xlabel("rounds of training before the model" if 0 in lines else "rounds since the last restart")
        axes.set_ylabel("share of examples that are right")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
        _legend(axes)

    last = ", ".join(f"{label} {branches[max(branches)][-1][1]:.1%}" for label, branches in curves.items())
    return _picture("accuracies", draw, 3.2, f"Accuracy of the last measured model: {last}.")


def sensitivities(
    curves: Mapping[str, Floats], trained: Sequence[int], thresholds: Mapping[str, float], restarts: Mapping[str, int]
) -> Picture:
    """Draw how far each client may have moved the model, round by round (Psi).

    ``thresholds`` are the distances that a noise hides, ``restarts`` the rounds that were or would be gone back to.
    """

    def draw(axes: Axes) -> None:
        for (name, curve), colour in zip(curves.items(), _COLOURS, strict=False):
            # A name that begins with an underscore would be left out of the legend.
            label = f" {name}" if name.startswith("_") else name
            axes.plot(trained, curve, color=colour, linewidth=1.6, label=label)
        for (name, height), dashes in zip(thresholds.items(), ("--", "-.", ":") * len(thresholds), strict=False):
            axes.axhline(height, color=_INK, linewidth=1, linestyle=dashes, label=name)
        axes.set_ylim(bottom=0)
        for name, at in restarts.items():
            axes.axvline(at, color=_FAINT, linewidth=1)
            axes.annotate(
                name,
                (at, 0),
                (-2, 4),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                rotation=90,
                va="bottom",
                ha="right",
                color=_INK,
                fontsize=8,
            )
        axes.set_xlabel("rounds of training before the model")
        axes.set_ylabel("how far a client may have moved it")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _legend(axes)

    last = ", ".join(f"{name} {format_distance(curve[-1])}" for name, curve in curves.items())
    went = "".join(f" {name}: round {at}." for name, at in restarts.items())
    hidden = "".join(f" {name}: {format_distance(height)}." for name, height in thresholds.items())
    return _picture(
        "sensitivities", draw, 3.6, f"How far clients may have moved the newest model: {last}.{went}{hidden}"
    )


def noises(promises: Mapping[str, tuple[Noise, Guarantee]]) -> Picture:
    """Draw what less or more noise on the same model would have promised, and what was chosen."""
    multiples = np.logspace(-1, 1, 61)

    def draw(axes: Axes) -> None:
        for (name, (noise, stated)), colour in zip(promises.items(), _COLOURS, strict=False):
            epsilons = [reached_epsilon(stated.mu / many, stated.delta) or np.nan for many in multiples.tolist()]
            axes.plot(noise.sigma * multiples, epsilons, color=colour, linewidth=1.6, label=name)
            axes.plot([noise.sigma], [stated.epsilon], "o", color=colour, markersize=6)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("noise on every number of the model (sigma)")
        axes.set_ylabel("epsilon (smaller promises more)")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        _legend(axes)

    summary = "; ".join(
        f"{name}: noise of {noise.sigma:.3g} promises epsilon {stated.epsilon:g} at delta {stated.delta:g}, half "
        f"that noise {reached_epsilon(2 * stated.mu, stated.delta):.3g}, twice that noise "
        f"{reached_epsilon(stated.mu / 2, stated.delta):.3g}"
        for name, (noise, stated) in promises.items()
    )
    return _picture("noises", draw, 3.2, f"Noise against guarantee. {summary}.")


def powers(claims: Mapping[str, Callable[[float], float]]) -> Picture:
    """Draw the most that any attack can reach against each claim, a function of the share that is wrongly accused."""
    rates = np.concatenate([np.logspace(-4, -1, 60), np.linspace(0.1, 0.999, 60)])

    def draw(axes: Axes) -> None:
        for (name, power), colour in zip(claims.items(), _COLOURS, strict=False):
            chances = [power(rate) for rate in rates.tolist()]
            axes.plot(rates, chances, color=colour, linewidth=1.6, label=name)
        axes.plot(rates, rates, color=_FAINT, linewidth=1, linestyle=":", label="guessing")
        axes.set_xscale("log")
        axes.set_xlabel("share of outsiders who are wrongly accused")
        axes.set_ylabel("chance of recognising\nthe forgotten")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.2%}" if value < 0.01 else f"{value:.0%}")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        _legend(axes)

    summary = ", ".join(f"{name}: at most {format_share(power(0.01))}" for name, power in claims.items())
    return _picture(
        "powers",
        draw,
        3.2,
        f"The chance that an attack which accuses 1 % of outsiders wrongly recognises a forgotten client: {summary}.",
    )


def _legend(axes: Axes) -> None:
    """Put the names under the picture, where no curve runs, each once."""
    handles, names = axes.get_legend_handles_labels()
    once = dict(zip(names, handles, strict=True))
    axes.figure.legend(
        once.values(), once.keys(), loc="outside lower left", ncols=3, fontsize=8, frameon=False, labelcolor=_INK
    )


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
    opening, _, rest = drawn.partition("<svg ")[2].replace(_INK, "currentColor").partition(">")
    kept = " ".join(attribute for attribute in opening.split() if not attribute.startswith(("width=", "height=")))
    return frame_picture(kept, rest.rpartition("</svg>")[0], text)
