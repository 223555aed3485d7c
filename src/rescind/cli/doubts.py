"""``rescind doubts``: what contradicts the run's declarations, and the operator's answer."""

from __future__ import annotations

from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, open_existing, show


def doubts(
    history: Location,
    lift: Annotated[
        str | None, typer.Option(metavar="REASON", help="Why the declared training is right; it is recorded.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what was recorded against the run's declarations, and lift doubts about the training, with a reason.

    While a doubt stands nothing with noise is certified. That a server recorded something else than the mean is a
    fact, and cannot be lifted. Example: rescind doubts hospital-history --lift "an old app; updated"
    """
    with open_existing(history) as opened:
        lifted = opened.lift_doubts(lift) if lift is not None else ()
        all_doubts = opened.timeline.doubts
        not_means = opened.timeline.missed_means
    result = {
        "doubts": [
            {
                "model": doubt.model_id.name,
                "time": doubt.time,
                "reason": doubt.reason,
                "lifted": doubt.answer or None,
            }
            for doubt in all_doubts
        ],
        "not_means": [model_id.name for model_id in not_means],
        "lifted_now": len(lifted),
    }
    words = [
        *((str(doubt.model_id), doubt.time[:10], doubt.reason, _answered(doubt.answer)) for doubt in all_doubts),
        *(
            (str(model_id), "is not the mean of its round's replies, nor may later ones be", "a fact")
            for model_id in not_means
        ),
        *(
            [f"Lifted {len(lifted)} doubt(s), on your word. Plans made before have to be made again."]
            if lifted
            else []
        ),
    ]
    show(result, words or ["Nothing is doubted."], as_json)


def _answered(answer: str) -> str:
    return f"lifted: {answer}" if answer else "stands"
