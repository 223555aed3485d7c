"""``rescind init``: make a history."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rescind.cli.shared import AsJson, Location, open_history, report_errors, show

_SERVER = """\
# In the server app, where the strategy was started:
import rescind
from rescind.flower import Recorded, run

history = rescind.History({arguments})
strategy = Recorded(FedAvg(...), history, training=rescind.LocalTraining(...), trained=["head.weight", "head.bias"])
run(strategy, grid, arrays, num_rounds=100)

# In the client app's train function, for guarantees with noise:
from rescind.flower import identify, train_head

return train_head(msg, context, features, labels)

# Beside it, where the app is made: clients say who they are, and know the server.
app.query()(identify)"""


def init(
    history: Location,
    operator: Annotated[str | None, typer.Option(help="Who runs the federation.")] = None,
    federation: Annotated[str | None, typer.Option(help="What the federation is called.")] = None,
    model: Annotated[str | None, typer.Option(help="What its model is called.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make a new history, readable by you alone, and show the lines that a Flower app needs.

    The names are for people: certificates and reports say them. Of a history that exists they can be given later.
    Example: rescind init hospital-history --operator "City Hospitals" --federation heart --model "risk head"
    """
    from rescind.history.locations import expand_home

    with report_errors():
        history = expand_home(history)
        existed = Path(history).is_dir() and any(Path(history).iterdir())
        with open_history(history, create=True) as opened:
            # A bucket that is not there is better known now than in the first round.
            opened.models.stored_bytes()
            opened.name_run(operator=operator, federation=federation, model=model)
            identifier, secret, names = opened.identifier, opened.secret_file, asdict(opened.timeline.names)
    words = [
        f"There is a history in {history} already, of run {identifier}."
        if existed
        else f"A new history is in {history}. Its secret file is {secret}: keep it, and back it up apart from the "
        "history.",
        *(f"Its {role} is called {name}." for role, name in names.items() if name is not None),
        "",
        *_SERVER.format(arguments=_write_arguments(history)).splitlines(),
    ]
    show({"history": history, "run": identifier, "new": not existed, "names": names}, words, as_json)


def _write_arguments(location: str) -> str:
    """Return the arguments that open this history in an app, wherever that is run, with what the environment says."""
    address = location if "://" in location else str(Path(location).absolute())
    settings = {name: os.environ.get(f"RESCIND_{name.upper()}") for name in ("checkpoints", "run", "secret")}
    return ", ".join([repr(address), *(f"{name}={value!r}" for name, value in settings.items() if value)])
