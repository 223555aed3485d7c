"""``rescind init``: make a history."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, open_history, report_errors, show

_LINES = """\
# In the server app, for a network that clients train as they always did; run takes what strategy.start takes:
import rescind, rescind.flower

history = rescind.History({arguments})
strategy = rescind.flower.Recorded(FedAvg(...), history)
rescind.flower.run(strategy, grid, arrays)

# Or for a head on a published network, by sums that each client sends once:
training = rescind.LocalTraining.solved(rescind.SquaredL2(l2=1e-4, row_norm=1.0))
strategy = rescind.flower.Recorded(FedAvg(...), history, training=training)

# In the client app: clients say who they are, and know the server (in a simulation: identify_partition).
app.query()(rescind.flower.identify)

# Of a head that is all of the train function:
return rescind.flower.train_head(msg, context, features, labels)

# Other ways, and which is yours: docs/networks.md"""


def init(
    history: Location,
    operator: Annotated[str | None, typer.Option(help="Who runs the federation.")] = None,
    federation: Annotated[str | None, typer.Option(help="What the federation is called.")] = None,
    model: Annotated[str | None, typer.Option(help="What its model is called.")] = None,
    protocol: Annotated[str | None, typer.Option(help="The protocol by which its cohort was approved.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a new history, readable by you alone, and show a Flower app's lines until something is recorded.

    The names are for people: certificates and reports say them. Of a history that exists they can be given later.

    Example: rescind init hospital-history --operator "City Hospitals" --federation heart --model "risk head"
    Example: rescind init hospital-history --protocol "ethics vote 2026/14"
    """
    from rescind.history.locations import expand_home

    with report_errors():
        history = expand_home(history)
        existed = Path(history).is_dir() and any(Path(history).iterdir())
        with open_history(history, create=True) as opened:
            # A bucket that is not there is better known now than in the first round.
            opened.models.stored_bytes()
            opened.name_run(operator=operator, federation=federation, model=model, protocol=protocol)
            identifier, secret, names = opened.identifier, opened.secret_file, asdict(opened.timeline.names)
            begun = bool(opened.timeline.branches)
    words = [
        f"There is a history in {history} already, of run {identifier}."
        if existed
        else f"A new history is in {history}. Its secret file is {secret}: keep it, and back it up apart from the "
        "history.",
        *(f"Its {role} is called {name}." for role, name in names.items() if name is not None),
    ]
    # Once something is recorded the app has its lines.
    if not begun:
        words += ["", *_LINES.format(arguments=_write_arguments(history)).splitlines()]
    show({"history": history, "run": identifier, "new": not existed, "names": names}, words, as_json)


def _write_arguments(location: str) -> str:
    """Return the arguments that open this history in an app, wherever that is run, with what the environment says."""
    address = location if "://" in location else str(Path(location).absolute())
    settings = {name: os.environ.get(f"RESCIND_{name.upper()}") for name in ("checkpoints", "run", "secret")}
    return ", ".join([repr(address), *(f"{name}={value!r}" for name, value in settings.items() if value)])
