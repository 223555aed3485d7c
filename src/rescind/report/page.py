"""The report's content, gathered from a history, and the page that is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

import numpy as np
from jinja2 import Environment, StrictUndefined

from rescind import __version__
from rescind.certificates.issue import stated
from rescind.certificates.page import STYLE
from rescind.certificates.predicate import Predicate
from rescind.core.sensitivity import client_sensitivities
from rescind.history.codec import decode
from rescind.history.history import History
from rescind.history.outcomes import Outcome
from rescind.history.overview import Overview, overview, waiting
from rescind.history.path import branches
from rescind.history.records import ErasurePlan
from rescind.history.requests import Asked
from rescind.report.pictures import Line, Picture, powers, sensitivities, tree

_CURVES = 5


@dataclass(frozen=True, slots=True)
class Served:
    """A request that was served: what may be claimed of it today, and what was done for it."""

    asked: Asked
    outcome: Outcome
    said: Predicate


def report(history: History, *, private: bool, now: datetime | None = None) -> str:
    """Give the page. With ``private`` it is the operator's own, with numbers computed from clients' data."""
    now = now or datetime.now(UTC)
    found, served = overview(history), list(_served(history))
    claims = {f"request {each.asked.number}": each.said.guarantee.mu for each in served if each.said.guarantee}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((files("rescind.report") / "report.html").read_text("utf-8"))
    return template.render(
        style=STYLE,
        version=__version__,
        now=f"{now.astimezone(UTC):%Y-%m-%d %H:%M} UTC",
        private=private,
        run=history.ledger.identifier(),
        head=history.head.hex(),
        overview=found,
        served=served,
        waiting=waiting(history, found, now),
        unproven=[each for each in served if each.said.mode == "heuristic"],
        facts=history.run.facts,
        parameters=history.run.parameters,
        tree=tree(_lines(history), history.newest),
        curves=_curves(history, found) if private else None,
        powers=powers(claims) if claims else None,
        problems=history.verify(),
    )


def _served(history: History) -> Iterator[Served]:
    for outcome in history.outcomes():
        for asked in outcome.asked:
            yield Served(asked, outcome, stated(history, asked.number, history.head)[0])


def _lines(history: History) -> dict[int, Line]:
    ledger = history.ledger
    plans = [decode(ErasurePlan, entry.body) for entry in ledger.entries("erasure")]
    spans = [span for plan in plans for span in plan.spans]
    kept = ledger.kept()
    return {
        number: Line(
            branch,
            ledger.last_round(number),
            tuple(sorted(place.round for place in kept if place.branch == number)),
            tuple(span for span in spans if span.branch == number),
        )
        for number, branch in branches(ledger).items()
    }


def _curves(history: History, found: Overview) -> Picture | None:
    """Draw the most influential clients' curves along the newest line."""
    drawn = found.influences[:_CURVES]
    path = history.path(group=[each.pseudonym for each in drawn])
    values = client_sensitivities(path.edges, [each.pseudonym for each in drawn], range(len(path.edges) + 1))
    curves = {each.client: values[:, at] for at, each in enumerate(drawn) if np.isfinite(values[:, at]).all()}
    goal = history.run.goal
    return sensitivities(curves, path.trained, goal.threshold if goal else None) if curves else None
