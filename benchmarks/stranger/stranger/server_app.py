"""Says how much of the history's secret it could read, and what the participants gave away."""

from __future__ import annotations

from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Look around on the coordinator, then ask every node."""
    print("STRANGER secret", len(Path(str(context.run_config["secret"])).read_bytes()), flush=True)
    asked = [Message(RecordDict({"asked": ConfigRecord({})}), node, "query") for node in grid.get_node_ids()]
    for reply in grid.send_and_receive(asked, timeout=60):
        if reply.has_content():
            print("STRANGER row", reply.content["told"]["row"], flush=True)
