"""``rescind clients``: whom a run knows, and how each of them stands."""

from __future__ import annotations

from rescind.cli.shared import AsJson, Location, open_existing, show, table
from rescind.progress import show_progress


def clients(history: Location, as_json: AsJson = False) -> None:
    """List the clients that a run knows: name, key, state, recorded rounds, the last of them.

    A forgotten one has a pseudonym only. Which node a client connects from is not recorded: flwr supernode list.
    Example: rescind clients hospital-history
    """
    with open_existing(history) as opened, show_progress("reading"):
        from rescind.views.clients import list_clients

        known = list_clients(opened)
    rows = [
        {
            "pseudonym": client.pseudonym,
            "name": client.name,
            "label": client.label,
            "key": client.key,
            "state": client.state.value,
            "rounds": client.rounds,
            "last_model": None if client.last is None else client.last.name,
            "last_time": client.last_time,
        }
        for client in known
    ]
    keys = any(client.key for client in known)
    heads = ("client", *(["key"] if keys else []), "state", "recorded rounds", "last round")
    lines = [
        (
            client.called,
            *([client.key or "-"] if keys else []),
            client.state.value,
            str(client.rounds),
            "-" if client.last is None else f"{client.last}, {(client.last_time or '')[:10]}",
        )
        for client in known
    ]
    show({"clients": rows}, [table(heads, lines)] if lines else ["nobody has taken part yet"], as_json)
