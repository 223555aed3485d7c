"""A run's gauges in Prometheus' text format, for the node exporter's textfile collector."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rescind.views.overview import Gauges


def render_metrics(gauges: Gauges) -> str:
    """Return the metrics as text; what is not known is left out.

    Times are points in time: an age would stand still in a file that nobody writes any more.
    """
    states = {f',state="{state.value}"': count for state, count in gauges.clients.items()}
    families = (
        ("open_requests", "gauge", "Requests that are not served to the end.", {"": gauges.open_requests}),
        ("overdue_requests", "gauge", "Open requests whose day has passed.", {"": gauges.overdue_requests}),
        (
            "next_deadline_timestamp_seconds",
            "gauge",
            "When the most urgent open request is due.",
            _second(gauges.next_deadline),
        ),
        ("recorded_rounds_total", "counter", "Rounds recorded so far.", {"": gauges.recorded_rounds}),
        ("last_round_timestamp_seconds", "gauge", "When the last round was recorded.", _second(gauges.last_round)),
        ("clients", "gauge", "Clients by state; silent ones only where everybody is asked each round.", states),
        ("rejected_replies_total", "counter", "Replies that no use was made of.", {"": gauges.rejected_replies}),
        ("stored_bytes", "gauge", "Size of the kept models and of clients' objects.", {"": gauges.stored_bytes}),
        (
            "standing_doubts",
            "gauge",
            "Doubts about the training that nobody has lifted.",
            {"": gauges.standing_doubts},
        ),
        ("unfinished_erasures", "gauge", "Erasures begun and not ended.", {"": gauges.unfinished_erasures}),
        (
            "stamp_problems",
            "gauge",
            "Signs that somebody without the secret file changed the journal.",
            {} if gauges.stamp_problems is None else {"": gauges.stamp_problems},
        ),
    )
    lines = []
    for name, kind, words, values in families:
        if values:
            lines += [f"# HELP rescind_{name} {words}", f"# TYPE rescind_{name} {kind}"]
            lines += [f'rescind_{name}{{run="{gauges.run}"{label}}} {value}' for label, value in values.items()]
    return "\n".join(lines)


def _second(time: datetime | None) -> dict[str, int]:
    return {} if time is None else {"": int(time.timestamp())}
