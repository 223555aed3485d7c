"""Draws the pictures of docs/concepts.md from one small simulated run: ``python docs/pictures/draw.py``.

Everything comes from seeds, the noise too, so that the pictures are the same each time. A real run draws its noise
secretly; with a seed nothing could be certified.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from io import StringIO
from pathlib import Path as File

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from style import BLUE, GREEN, INK, ORANGE, PURPLE, ground, style

from rescind import History, LocalTraining, Sampling, SoftmaxL2
from rescind.core.calibration import Budget, ClassicBudget, attack_power, largest_mu, sensitivity_threshold
from rescind.core.sensitivity import client_sensitivities
from rescind.engines.stops import Rounds
from rescind.forgetting import Revocable
from rescind.methods import Sifu
from rescind.pages.pictures import powers, tree
from rescind.pages.report import gather_lines
from rescind.simulation import Federation, Shard, Simulation, SoftmaxHead

SEED = b"the pictures of the documentation"
FEATURES, CLASSES, CLINICS = 10, 3, 60
LATE, JOINED, ROUNDS = "joined late", 15, 40
LARGE, ODD, USUAL = "three times as many patients", "labels that nobody else has", "one of the others"
BUDGET, SIGMA, DELTA = Budget(epsilon=5.0, delta=1e-5), 2.0**-3.5, 1e-5


def shards() -> dict[str, Shard]:
    """Return every clinic its patients: most are alike, three are not."""
    rng = np.random.default_rng(7)
    rule = rng.normal(size=(FEATURES, CLASSES))

    def shard(patients: int, own: np.ndarray = rule) -> Shard:
        rows = rng.normal(size=(patients, FEATURES))
        return Shard(rows, (rows @ own + rng.normal(size=(patients, CLASSES))).argmax(axis=1))

    found = {f"clinic-{number}": shard(40) for number in range(CLINICS - 4)}
    return found | {USUAL: shard(40), LARGE: shard(120), ODD: shard(40, -rule), LATE: shard(40)}


def engine(clinics: Mapping[str, Shard]) -> Simulation:
    """Return an engine in which each clinic takes part in about half of the rounds."""
    return Simulation(
        Federation(dict(clinics), test=clinics[USUAL], classes=CLASSES),
        SoftmaxHead(features=FEATURES, classes=CLASSES),
        LocalTraining(steps=5, learning_rate=1.0, loss=SoftmaxL2(l2=0.01, row_norm=1.0)),
        sampling=Sampling.POISSON,
        rate=0.5,
        secret=SEED,
        secret_noise=False,
    )


def trained(history: History) -> Revocable:
    """Train ``ROUNDS`` rounds; one clinic joins late."""
    everybody = shards()
    early = {name: shard for name, shard in everybody.items() if name != LATE}
    Revocable(history, engine(early), seed=SEED).train(Rounds(JOINED))
    federation = Revocable(history, engine(everybody), seed=SEED)
    federation.train(Rounds(ROUNDS))
    return federation


def curves(history: History) -> Callable[[Axes], None]:
    """Draw Psi of four clinics, what a noise hides, and the last kept model at which it hides each of them."""
    names = [LARGE, ODD, USUAL, LATE]
    clients = [next(iter(history.participants.find([name]))) for name in names]
    path = history.lineage(group=clients)
    values = client_sensitivities(path.edges, clients, range(len(path.edges) + 1))
    kept = sorted(path.index[place] for place in history.ledger.kept())
    threshold = sensitivity_threshold(SIGMA, BUDGET.mu)

    def draw(axes: Axes) -> None:
        for at, (name, colour) in enumerate(zip(names, (BLUE, ORANGE, GREEN, PURPLE), strict=True)):
            curve = values[:, at]
            axes.plot(path.trained, curve, color=colour, linewidth=1.6, label=name)
            last = max(node for node in kept if curve[node] <= threshold)
            label = "last checkpoint at which the noise hides it" if name == USUAL else None
            axes.plot(path.trained[last], curve[last], "o", color=colour, markersize=8, clip_on=False, label=label)
        words = f"hidden by noise of {SIGMA:.3g} at (5, 1e-5)"
        axes.axhline(threshold, color=INK, linewidth=1, linestyle="--", label=words)
        axes.set_xlabel("rounds of training behind the model")
        axes.set_ylabel("bound on the client's\ninfluence (Psi)")
        axes.set_xlim(0, ROUNDS)
        axes.set_ylim(bottom=0)

    return draw


def noises(axes: Axes) -> None:
    """Draw how much noise a guarantee takes, exactly and by the classic formula."""
    epsilons = np.geomspace(0.1, 20, 200)
    exact = [1 / largest_mu(epsilon, DELTA) for epsilon in epsilons.tolist()]
    classic = [1 / ClassicBudget(epsilon, DELTA).mu for epsilon in epsilons.tolist()]
    holds = np.array([ClassicBudget(epsilon, DELTA).holds for epsilon in epsilons.tolist()])
    proven = epsilons < 1
    parts = {
        "classic formula, proven": (proven, "-"),
        "classic formula, not proven, and still enough": (~proven & holds, "--"),
        "classic formula, too little noise": (~holds, ":"),
    }
    for label, (where, line) in parts.items():
        axes.plot(epsilons[where], np.array(classic)[where], color=ORANGE, linestyle=line, linewidth=2, label=label)
    axes.plot(epsilons, exact, color=BLUE, linewidth=1.6, label="exact calibration")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("epsilon, at delta = 1e-5")
    axes.set_ylabel("noise needed (sigma / Psi)")


def drawn(name: str, draw: Callable[[Axes], None], height: float) -> str:
    """Return a picture as SVG, of the same bytes every time."""
    with mpl.rc_context(style(name)):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        axes = figure.subplots()
        draw(axes)
        # Above the axes, where no curve can be.
        axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        written = StringIO()
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    svg = written.getvalue()
    return svg[svg.index("<svg") :]


def main() -> None:
    """Draw all pictures beside this file."""
    with History.in_memory() as history:
        federation = trained(history)
        psi = drawn("psi", curves(history), 3.4)
        for name, epsilon in ((LATE, 1.0), (ODD, 5.0)):
            history.requests.ask([name], Budget(epsilon, DELTA))
            federation.forget(Sifu(), Rounds(20))
        branched = tree(gather_lines(history), history.newest).svg
    claims = {
        f"epsilon {epsilon:g}": partial(attack_power, Budget(epsilon, DELTA).mu)
        for epsilon in (0.5, 1.0, 3.0, 5.0, 10.0)
    }
    pictures = {
        "tree": branched,
        "psi": psi,
        "noise": drawn("noise", noises, 3.2),
        "power": powers(claims).svg,
    }
    for name, svg in pictures.items():
        # Matplotlib ends some lines with a space.
        text = "\n".join(line.rstrip() for line in ground(svg).splitlines()) + "\n"
        (File(__file__).parent / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
