"""``rescind erase``: what is still there of those who were forgotten."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from rescind.cli.shared import AsJson, Location, open_existing, show
from rescind.progress import show_progress
from rescind.texts import make_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rescind.ledger.records import ErasurePlan


class Levels(Enum):
    """How much is erased: the history's own levels, which a help text need not load."""

    output = "output"
    purge = "purge"


def erase(
    history: Location,
    level: Annotated[Levels, typer.Option(help="output: what later models need stays; purge: that goes as well.")] = (
        Levels.purge
    ),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase what is left of clients that were forgotten; a run does this by itself, at the level purge.

    Example: rescind erase hospital-history --dry-run
    """
    with open_existing(history) as opened:
        from rescind.ledger.records import ErasureLevel

        finished = 0
        if not dry_run:
            with show_progress("finishing what was begun"):
                finished = opened.finish_erasures()
        plan = opened.plan_erasure(ErasureLevel(level.value))
        left: tuple[str, ...] | None = None
        copied = opened.integrity.copies()
        if plan.requests and not dry_run:
            question = [*map(make_plain, [*_words(plan), *_beyond(copied)]), "This cannot be undone. Go on?"]
            if not yes and not typer.confirm("\n".join(question), err=True):
                raise typer.Exit(1)
            with show_progress("erasing"):
                left = opened.erase(plan)
    result = {
        "requests": list(plan.requests),
        "rounds": plan.rounds,
        "models": plan.models,
        "objects": plan.updates,
        "stays": list(plan.stays),
        "erased": left is not None,
        "finished": finished,
        "unreachable": list(copied if left is None else left),
    }
    words = [f"Finished {finished} erasure(s) that had been cut off."] if finished else []
    words += _words(plan)
    if left is not None:
        words.append("Erased.")
    words += _beyond(copied if left is None else left)
    show(result, words, as_json)


def _beyond(sentences: tuple[str, ...]) -> list[str]:
    return [f"Out of reach: {sentence}" for sentence in sentences]


def _words(plan: ErasurePlan) -> Iterator[str]:
    if not plan.requests:
        yield "Nothing is left to erase at this level."
        return
    yield (
        f"Of request(s) {', '.join(map(str, plan.requests))}: {len(plan.clients)} name(s), the numbers of "
        f"{plan.rounds} round(s), {plan.models} model(s) and {plan.updates} client object(s) go."
    )
    yield from (f"Stays: {sentence}" for sentence in plan.stays)
