"""Strategies as tests record them: every setting by its name, wherever it belongs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flwr.serverapp.strategy import Strategy

from rescind import History
from rescind.flower import Options, Recorded

_OPTIONS = {option.name for option in fields(Options)}


def wrap(strategy: Strategy, history: History, **settings: Any) -> Recorded:
    """Return a recorded strategy; what of the settings is among its options goes there."""
    options = {name: settings.pop(name) for name in list(settings) if name in _OPTIONS}
    return Recorded(strategy, history, **settings, options=Options(**options))
