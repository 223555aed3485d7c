"""Gives away a row of whatever file the node names."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Return the seventh row."""
    row = Path(str(context.node_config["data"])).read_text().splitlines()[7]
    return Message(RecordDict({"told": ConfigRecord({"row": row})}), reply_to=message)
