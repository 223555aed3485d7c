"""``rescind request preview``: the ways to forget, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rescind.cli.shared import AsJson, Delta, Epsilon, Location, Table, open_existing, show
from rescind.progress import show_progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rescind.core.planning import Candidate
    from rescind.preview import Preview

_SHOWN = 9


def preview(
    history: Location,
    clients: Annotated[list[str], typer.Argument(metavar="CLIENT...", help="Who would leave.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    strict: Annotated[bool, typer.Option(help="Plan without looking at data.")] = False,
    records: Annotated[bool, typer.Option("--records", help="Only some of their rows would go; they stay.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what forgetting clients would take: every kept model with its noise, retraining among them.

    Nothing is recorded and nothing is changed.

    Example: rescind request preview hospital-history switzerland --epsilon 5
    """
    from rescind.core.calibration import Budget
    from rescind.core.facts import PrivacyScope
    from rescind.preview import preview

    scope = PrivacyScope.RECORDS if records else PrivacyScope.GROUP
    with open_existing(history) as opened, show_progress("planning"):
        ways = preview(opened, clients, Budget(epsilon, delta), scope=scope, strict=strict)
    if ways.chosen is None:
        words = ["The newest model never saw them: there is nothing to forget but their names and numbers."]
        show({"candidates": [], "chosen": None}, words, as_json)
        return
    result = {
        "candidates": [_row(candidate, ways) for candidate in ways.candidates],
        "chosen": _row(ways.chosen, ways),
        "solve": None if ways.solved is None else _row(ways.solved, ways),
        "left_out": [{"model": omitted.node.model_id.name, "reason": omitted.reason} for omitted in ways.left_out],
    }
    show(result, _words(ways, ways.chosen), as_json)


def _row(candidate: Candidate, ways: Preview) -> dict[str, object]:
    return {
        "model": candidate.node.model_id.name,
        "sigma": candidate.sigma,
        "mode": candidate.mode.value,
        "predicted_rounds": round(candidate.predicted_rounds, 1),
        "bytes_of_a_client": ways.count_bytes(candidate),
        "chosen": candidate is ways.chosen,
        "obstacles": list(candidate.obstacles),
        "weakened": len(candidate.weakened),
    }


def _few(offered: Sequence[Candidate], chosen: Candidate) -> list[Candidate]:
    """Return as many as can be compared at a glance: first, last, the chosen with its neighbours, some between."""
    at = next(index for index, candidate in enumerate(offered) if candidate is chosen)
    last = len(offered) - 1
    between = {round(last * step / (_SHOWN - 1)) for step in range(_SHOWN)}
    wanted = between | {index for index in (at - 1, at, at + 1) if 0 <= index <= last}
    return [offered[index] for index in sorted(wanted)]


def _words(ways: Preview, chosen: Candidate) -> Iterator[str | Table]:
    from rich.filesize import decimal

    offered, solved, missing = ways.candidates, ways.solved, ways.left_out
    few, rows = _few(offered, chosen), []
    for candidate in [*few, *([solved] if solved and solved is not chosen else [])]:
        start = f"{candidate.node.model_id}" + (", solved" if candidate.solving else "")
        start = "model 0.0: from the start" if candidate.node.index == 0 and not candidate.solving else start
        noise = f"{candidate.sigma:.4g}" if candidate.sigma else "none"
        mark = "->" if candidate is chosen else ""
        sent = decimal(ways.count_bytes(candidate))
        rows.append((mark, start, noise, candidate.mode.value, f"{candidate.predicted_rounds:.0f}", sent))
    yield Table(("", "restart from", "noise", "claim", "rounds, about", "a client sends"), rows)
    if len(few) < len(offered):
        yield f"and {len(offered) - len(few)} more, all of them with --json"
    yield ""
    if stages := ways.run.facts.stages:
        if body_rounds := stages.body_rounds_left(chosen.node.index):
            yield f"An anchor is among them: the body is trained again, {body_rounds} rounds with the anchors left."
        else:
            yield "They are no anchors: the body stays as it is."
        yield "Then the head is solved, exactly. Clients show the server sums over their rows for it."
        return
    if ways.run.facts.only_solved:
        yield "The head is solved anew from everybody else's sums, exactly."
        return
    scratch = next(candidate for candidate in offered if candidate.node.index == 0)
    if chosen is scratch and all(candidate.mode.value == "exact" for candidate in offered):
        yield (
            "Training again from the start: no kept model can be noised so that this guarantee is proven, and "
            "nothing of the clients is left that way."
        )
    elif chosen is scratch:
        yield (
            "Training again from the start is the best choice here: no kept model is predicted to be as good again "
            "clearly sooner once it is noised, and nothing of the clients is left in it."
        )
    elif not chosen.sigma and chosen.mode.value != "exact":
        yield f"The noise of the rounds up to {chosen.node.model_id} hides them: training goes on from there."
    elif not chosen.sigma:
        yield f"Model {chosen.node.model_id.name} never saw them: training goes on from there, exactly."
    else:
        yield (
            f"Model {chosen.node.model_id.name} with noise of {chosen.sigma:.4g} is predicted to be as "
            f"good again after about {chosen.predicted_rounds:.0f} rounds; from the start it would take about "
            f"{scratch.predicted_rounds:.0f}. A prediction is a guess, the guarantee is not."
        )
    if solved:
        yield (
            f"Solve() would be exact after about {solved.predicted_rounds:.0f} rounds. Clients show the server sums "
            "over their rows then."
        )
    unproven = next((candidate.obstacles for candidate in (chosen, *offered) if candidate.obstacles), ())
    if unproven:
        yield "With noise nothing is proven here: " + "; ".join(unproven)
    if chosen.weakened:
        yield f"It weakens the strict claim of {len(chosen.weakened)} earlier request(s) to instance."
    if missing:
        last = missing[-1]
        yield f"{len(missing)} kept model(s) are left out, {last.node.model_id} because: {last.reason}"
