"""``rescind init``: make a history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rescind.cli.shared import AsJson, Location, open_history, report_errors, show

if TYPE_CHECKING:
    pass

_SERVER = """\
# In the server app, where the strategy was started:
import rescind
from rescind.flower import Recorded, run

history = rescind.History({location!r})
strategy = Recorded(FedAvg(...), history, training=rescind.LocalTraining(...), trained=["head.weight", "head.bias"])
run(strategy, grid, arrays, num_rounds=100)

# In the client app's train function, for guarantees with noise:
from rescind.flower import train_head

return train_head(msg, context, features, labels)"""


def init(history: Location, as_json: AsJson = False) -> None:
    """Make a new history, readable by you alone, and show the lines that a Flower app needs.

    Example: rescind init hospital-history
    """
    with report_errors():
        existed = Path(history).is_dir() and any(Path(history).iterdir())
        with open_history(history, create=True) as opened:
            identifier, secret = opened.identifier, opened.secret_file
    words = [
        f"There is a history in {history} already, of run {identifier}."
        if existed
        else f"A new history is in {history}. Its secret file is {secret}: keep it, and back it up apart from the "
        "history.",
        "",
        *_SERVER.format(location=history).splitlines(),
    ]
    show({"history": history, "run": identifier, "new": not existed}, words, as_json)
