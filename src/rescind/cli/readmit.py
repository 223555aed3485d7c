"""``rescind readmit``: letting a forgotten client take part again."""

from __future__ import annotations

from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, open_existing, show


def readmit(
    history: Location,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the forgotten client was called.")],
    reason: Annotated[
        str, typer.Option(help="Why, without its name; it is recorded for good, and no erasure reaches it.")
    ],
    as_json: AsJson = False,
) -> None:
    """Let a forgotten client take part again, as a new one; until then it is refused by name, label and key.

    Models that are recorded later may know its data again: its request is not certified of them.
    Example: rescind readmit hospital-history switzerland --reason "a new contract, signed today"
    """
    with open_existing(history) as opened:
        clients = opened.participants.readmit(name, reason)
    words = [f"{name} may take part again, as a new client. Its request is certified of earlier models only."]
    if len(clients) > 1:
        words.append(f"So may whoever shared a name or a label with it: {len(clients)} pseudonyms in all.")
    show({"readmitted": list(clients), "reason": reason}, words, as_json)
