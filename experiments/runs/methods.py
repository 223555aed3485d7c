"""All methods side by side: what each needs, what may be claimed of it, and under which name the paper has it.

Nothing is trained. Which methods there are, whether they can certify, whether their plans look at data and why the
others cannot certify is read from the code; what has to be stored and what has to hold is said here in words.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from experiments.harness import Configuration, Row
from experiments.taped.fedaccum import FedAccum
from experiments.taped.federaser import FedEraser
from experiments.taped.tape import TapeMethod
from rescind import methods
from rescind.core.facts import Mode
from rescind.methods import Certifying, Heuristic, Method

_TAPED = (FedAccum, FedEraser)


@dataclass(frozen=True, slots=True)
class Words:
    """What the code does not say: the modes that a method can come to, and the answers to some questions."""

    modes: tuple[Mode, ...]
    paper: str
    assumes: str
    stores: str
    networks: bool
    noise: bool
    earlier_models: bool
    updates: bool
    special_training: bool
    can_save_rounds: bool


_CONVEX = "a proven curvature, plain SGD, no momentum, no clipping; drawn without looking at who leaves; secret noise"
_PUBLIC = "models kept by a public schedule, public numbers of rounds (else `instance`)"

WORDS = {
    "Scratch": Words(
        modes=(Mode.EXACT,),
        paper="Scratch",
        assumes="nothing of the training",
        stores="the start, which is public",
        networks=True,
        noise=False,
        earlier_models=False,
        updates=False,
        special_training=False,
        can_save_rounds=False,
    ),
    "Exact": Words(
        modes=(Mode.EXACT,),
        paper="none",
        assumes="no round was ever drawn again; saves rounds only for whoever joined late",
        stores="some models, who took part when",
        networks=True,
        noise=False,
        earlier_models=True,
        updates=False,
        special_training=False,
        can_save_rounds=True,
    ),
    "Solve": Words(
        modes=(Mode.EXACT,),
        paper="none",
        assumes="an L2 head that our helper sums over; clients show the server sums over their rows",
        stores="the start, which is public",
        networks=False,
        noise=False,
        earlier_models=False,
        updates=False,
        special_training=False,
        can_save_rounds=True,
    ),
    "Sifu": Words(
        modes=(Mode.EXACT, Mode.INSTANCE, Mode.HEURISTIC),
        paper="SIFU, with another choice of model and noise",
        assumes=f"for `instance`: {_CONVEX}; else its noise is `heuristic`",
        stores="some models, each participant's distance from the mean of each round",
        networks=False,
        noise=True,
        earlier_models=True,
        updates=False,
        special_training=False,
        can_save_rounds=True,
    ),
    "StrictSifu": Words(
        modes=(Mode.EXACT, Mode.STRICT, Mode.INSTANCE),
        paper="none",
        assumes=f"for `strict`: an L2 head with public constants, plain SGD, secret noise, {_PUBLIC}",
        stores="some models, who took part when",
        networks=False,
        noise=True,
        earlier_models=True,
        updates=False,
        special_training=False,
        can_save_rounds=True,
    ),
    "PaperSifu": Words(
        modes=(Mode.EXACT, Mode.INSTANCE, Mode.HEURISTIC),
        paper="IFU, SIFU",
        assumes=f"for `instance`: {_CONVEX}; exact calibration, noise of the public list; else `heuristic`",
        stores="some models, each participant's distance from the mean of each round",
        networks=False,
        noise=True,
        earlier_models=True,
        updates=False,
        special_training=False,
        can_save_rounds=True,
    ),
    "Last": Words(
        modes=(Mode.INSTANCE, Mode.HEURISTIC),
        paper="Last",
        assumes=f"for `instance`: {_CONVEX}; else `heuristic`",
        stores="the newest model, each participant's distance from the mean of each round",
        networks=False,
        noise=True,
        earlier_models=False,
        updates=False,
        special_training=False,
        can_save_rounds=True,
    ),
    "Dp": Words(
        modes=(Mode.EXACT, Mode.STRICT, Mode.INSTANCE),
        paper="DP",
        assumes=f"for `strict`: clipped updates and fresh secret noise in every round, {_PUBLIC}",
        stores="some models, who took part when",
        networks=True,
        noise=False,
        earlier_models=True,
        updates=False,
        special_training=True,
        can_save_rounds=True,
    ),
    "FineTuning": Words(
        modes=(Mode.HEURISTIC,),
        paper="Fine-tuning",
        assumes="nothing is claimed",
        stores="the newest model",
        networks=True,
        noise=False,
        earlier_models=False,
        updates=False,
        special_training=False,
        can_save_rounds=True,
    ),
    "FedAccum": Words(
        modes=(Mode.HEURISTIC,),
        paper="FedAccum (FedEraser without calibration)",
        assumes="nothing is claimed",
        stores="every participant's update in every round, or in some rounds",
        networks=True,
        noise=False,
        earlier_models=False,
        updates=True,
        special_training=False,
        can_save_rounds=True,
    ),
    "FedEraser": Words(
        modes=(Mode.HEURISTIC,),
        paper="FedEraser (Liu et al. 2021)",
        assumes="nothing is claimed",
        stores="every participant's update in every round, or in some rounds",
        networks=True,
        noise=False,
        earlier_models=False,
        updates=True,
        special_training=False,
        can_save_rounds=True,
    ),
}


def available() -> Iterator[tuple[str, type[Method | TapeMethod]]]:
    """Return every method that there is, by the name of its class; those that have words come in their order."""
    for name in sorted(methods.__all__, key=[*WORDS, *methods.__all__].index):
        found = getattr(methods, name)
        if inspect.isclass(found) and issubclass(found, Method) and not inspect.isabstract(found):
            yield name, found
    yield from ((taped.__name__, taped) for taped in _TAPED)


def run(configuration: Configuration) -> list[Row]:  # noqa: ARG001, there is nothing to choose
    """Return a row for each method; one that has no words here yet is an error."""
    found = []
    for name, method in available():
        words, text = WORDS[name], inspect.getdoc(method) or ""
        theory = re.search(r"Theory sections? ([^.]*)\.", text)
        found.append(
            {
                "class": name,
                "method": method.name,
                "certifies": issubclass(method, Certifying),
                "public_plan": issubclass(method, Certifying) and method.public_plan,
                "why": method.why if issubclass(method, Heuristic | TapeMethod) else "",
                "theory": theory[1] if theory else "",
                "modes": [mode.value for mode in words.modes],
                "paper": words.paper,
                "assumes": words.assumes,
                "stores": words.stores,
                "networks": words.networks,
                "noise": words.noise,
                "earlier_models": words.earlier_models,
                "updates": words.updates,
                "special_training": words.special_training,
                "can_save_rounds": words.can_save_rounds,
            }
        )
    return found
