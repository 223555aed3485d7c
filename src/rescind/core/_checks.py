"""Checks of numbers that every formula shares: the message names the value."""

from __future__ import annotations

import math


def positive(name: str, value: float) -> None:
    """Refuse what is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} is {value!r}; it has to be a finite number above 0")


def at_most_one(name: str, value: float) -> None:
    """Refuse what is not above 0 and at most 1."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} is {value!r}; it has to be above 0 and at most 1")


def not_negative(name: str, value: float) -> None:
    """Refuse what is not a finite number of at least 0."""
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} is {value!r}; it has to be a finite number of at least 0")


def within(name: str, value: float, bounds: tuple[float, float], advice: str) -> None:
    """Refuse what lies outside the closed interval."""
    low, high = bounds
    if not low <= value <= high:
        raise ValueError(f"{name} is {value!r}; it has to lie in [{low:g}, {high:g}]: {advice}")
