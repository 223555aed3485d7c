"""Texts from outside, made fit to be shown: names, labels, certificates, evidence, errors."""

from __future__ import annotations

import re
from collections.abc import Sequence

# What Python calls printable, and nobody sees: joiners, fillers, an empty braille cell, selectors of variants.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)

_DIGEST = re.compile("[0-9a-f]{64}")
_NUMBER = re.compile(r"(\d+)")


def make_plain(text: str) -> str:
    r"""Return a text as a terminal, a page or a picture may show it: in one line, with nothing in it that steers.

    Control characters, line breaks, those that turn the direction of writing and those that nobody sees are spelt
    out, such as ``\x1b`` or ``\u202e``. Markup stays as it is: whoever shows the text must not read it as such.
    """
    if _is_seen(text):
        return text
    return "".join(sign if _is_seen(sign) else sign.encode("unicode_escape").decode() for sign in text)


def shorten(text: str, most: int) -> str:
    """Return the first ``most`` characters of a text as ``make_plain`` does, and mark that something is left out."""
    return make_plain(text[:most]) + (" ..." if len(text) > most else "")


def list_some(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` of some names in one line, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def is_plain(text: str) -> bool:
    """Return whether a text is shown as it is, and looks like no other one that has spaces around it."""
    return _is_seen(text) and text == text.strip()


def natural_order(text: str) -> tuple[tuple[str | int, ...], str]:
    """Return what to sort a text by so that people find it: client-2 before client-10."""
    parts = _NUMBER.split(text)
    # Every other part is a number, so that like is compared with like; 01 and 1 are told apart by their spelling.
    return tuple(int(part) if at % 2 else part for at, part in enumerate(parts)), text


def is_digest(value: object) -> bool:
    """Return whether a value is a SHA-256 as it is always spelt: in 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _is_seen(text: str) -> bool:
    return text.isprintable() and not _UNSEEN.search(text)
