"""All methods side by side: what each needs, what may be claimed of it, and under which name the paper has it.

Nothing is trained. Which methods there are, whether they can certify and why the others cannot is read from the code;
what has to be stored and what has to hold is said here in words.
"""

from __future__ import annotations

import inspect
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
    """What the code does not say: the modes that a method can come to, what they rest on and what they are for."""

    modes: tuple[Mode, ...]
    paper: str
    assumes: str
    stores: str
    proven_for: str


_CONVEX = "a proven curvature, plain SGD, no momentum, no clipping; drawn without looking at who leaves; secret noise"
_ANY, _HEAD = "any model, networks too", "an L2 head"
_PUBLIC = "models kept by a public schedule, public numbers of rounds (else `instance`)"

WORDS = {
    "Scratch": Words(
        modes=(Mode.EXACT,),
        paper="Scratch",
        assumes="nothing of the training",
        stores="the start, which is public",
        proven_for=_ANY,
    ),
    "Exact": Words(
        modes=(Mode.EXACT,),
        paper="none",
        assumes="no round was ever drawn again; saves rounds only for whoever joined late",
        stores="some models, who took part when",
        proven_for=_ANY,
    ),
    "Solve": Words(
        modes=(Mode.EXACT,),
        paper="none",
        assumes="an L2 head that our helper sums over; clients show the server sums over their rows",
        stores="the start, which is public",
        proven_for="an L2 head, also that of a network in two stages",
    ),
    "Sifu": Words(
        modes=(Mode.EXACT, Mode.INSTANCE, Mode.HEURISTIC),
        paper="SIFU, with another choice of model and noise",
        assumes=f"for `instance`: {_CONVEX}; else its noise is `heuristic`",
        stores="some models, each participant's distance from the mean of each round",
        proven_for=_HEAD,
    ),
    "StrictSifu": Words(
        modes=(Mode.EXACT, Mode.STRICT, Mode.INSTANCE),
        paper="none",
        assumes=f"for `strict`: an L2 head with public constants, plain SGD, secret noise, {_PUBLIC}",
        stores="some models, who took part when",
        proven_for=_HEAD,
    ),
    "PaperSifu": Words(
        modes=(Mode.EXACT, Mode.INSTANCE, Mode.HEURISTIC),
        paper="IFU, SIFU",
        assumes=f"for `instance`: {_CONVEX}; exact calibration, noise of the public list; else `heuristic`",
        stores="some models, each participant's distance from the mean of each round",
        proven_for=_HEAD,
    ),
    "Last": Words(
        modes=(Mode.INSTANCE, Mode.HEURISTIC),
        paper="Last",
        assumes=f"for `instance`: {_CONVEX}; else `heuristic`",
        stores="the newest model, each participant's distance from the mean of each round",
        proven_for=_HEAD,
    ),
    "Dp": Words(
        modes=(Mode.EXACT, Mode.STRICT, Mode.INSTANCE),
        paper="DP",
        assumes=f"for `strict`: clipped updates and fresh secret noise in every round, {_PUBLIC}",
        stores="some models, who took part when",
        proven_for=_ANY,
    ),
    "FineTuning": Words(
        modes=(Mode.HEURISTIC,),
        paper="Fine-tuning",
        assumes="nothing is claimed",
        stores="the newest model",
        proven_for="nothing",
    ),
    "FedAccum": Words(
        modes=(Mode.HEURISTIC,),
        paper="FedAccum (FedEraser without calibration)",
        assumes="nothing is claimed",
        stores="every participant's update in every round, or in some rounds",
        proven_for="nothing",
    ),
    "FedEraser": Words(
        modes=(Mode.HEURISTIC,),
        paper="FedEraser (Liu et al. 2021)",
        assumes="nothing is claimed",
        stores="every participant's update in every round, or in some rounds",
        proven_for="nothing",
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
        words = WORDS[name]
        found.append(
            {
                "class": name,
                "certifies": issubclass(method, Certifying),
                "why": method.why if issubclass(method, Heuristic | TapeMethod) else "",
                "modes": [mode.value for mode in words.modes],
                "paper": words.paper,
                "assumes": words.assumes,
                "stores": words.stores,
                "proven_for": words.proven_for,
            }
        )
    return found
