"""A run's gauges for a monitoring service: counts and times, no name and no private number."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rescind.views.overview import Gauges


def render_metrics(gauges: Gauges) -> str:
    """Return a run's gauges in Prometheus' text format, for the node exporter's textfile collector.

    What is not known is left out.

    Times are points in time: an age would stand still in a file that nobody writes any more.
    """
    states = {f',state="{state.value}"': count for state, count in gauges.clients.items()}
    undecided = "Requests that are planned and wait for somebody to agree."
    due = "When the most urgent open request is due."
    silent = "Clients by state; silent ones only where everybody is asked each round."
    changed = "Signs that somebody without the secret file changed the journal."
    families: tuple[tuple[str, str, str, Any], ...] = (
        ("open_requests", "gauge", "Requests that are not served to the end.", gauges.open_requests),
        ("overdue_requests", "gauge", "Open requests whose day has passed.", gauges.overdue_requests),
        ("undecided_requests", "gauge", undecided, gauges.undecided_requests),
        ("unnamed_requests", "gauge", "Open requests about rows that are not named yet.", gauges.unnamed_requests),
        ("next_deadline_timestamp_seconds", "gauge", due, gauges.next_deadline),
        ("recorded_rounds_total", "counter", "Rounds recorded so far.", gauges.recorded_rounds),
        ("last_round_timestamp_seconds", "gauge", "When the last round was recorded.", gauges.last_round),
        ("clients", "gauge", silent, states),
        (
            "clients_outside",
            "gauge",
            "Clients that may take part and are left out of the newest model.",
            gauges.outsiders,
        ),
        ("rejected_replies_total", "counter", "Replies that no use was made of.", gauges.rejected_replies),
        ("stored_bytes", "gauge", "Size of the kept models and of clients' objects.", gauges.stored_bytes),
        ("standing_doubts", "gauge", "Doubts about the training that nobody has lifted.", gauges.standing_doubts),
        ("unfinished_erasures", "gauge", "Erasures begun and not ended.", gauges.unfinished_erasures),
        ("stamp_problems", "gauge", changed, gauges.stamp_problems),
    )
    lines = []
    for name, kind, words, value in families:
        if value is None:
            continue
        number = int(value.timestamp()) if isinstance(value, datetime) else value
        values = number if isinstance(number, dict) else {"": number}
        lines += [f"# HELP rescind_{name} {words}", f"# TYPE rescind_{name} {kind}"]
        lines += [f'rescind_{name}{{run="{gauges.run}"{label}}} {one}' for label, one in values.items()]
    return "\n".join(lines)
