"""Whether a history stands safely: what is fine, worth knowing, or to be repaired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from rescind.core.facts import NOT_AVERAGED
from rescind.history.history import History
from rescind.history.journal import find_future, find_steps_back

ALONE = "readable by you alone"
Verdict = Literal["fine", "note", "repair"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: fine, worth knowing (``note``), or to be repaired."""

    what: str
    verdict: Verdict
    detail: str


def examine_history(history: History) -> Iterator[Finding]:
    """Look at a history: its secret file, lock, clock, chain and models, and what speaks against its declarations."""
    yield Finding("history", "fine", f"run {history.identifier} opens")
    insecure = history.integrity.secret_problem()
    yield from _each("secret", "repair", [str(insecure)] if insecure else [], f"{history.secret_file}, {ALONE}")
    writer = history.writer()
    yield from _each("lock", "note", [writer] if writer else [], "nobody is writing")
    told = history.integrity.entry_times()
    ahead, back = list(find_future(told, datetime.now(UTC))), list(find_steps_back(told))
    yield from (Finding("clock", "repair", f"{sentence}: set it") for sentence in ahead)
    yield from (Finding("clock", "note", sentence) for sentence in back)
    if not ahead and not back:
        yield Finding("clock", "fine", "no entry is from the future, none earlier than one before it")
    broken = history.integrity.verify() if told else []
    yield from _each("chain", "repair", broken, "unbroken")
    if not broken:
        yield Finding("models", "fine", f"all {len(history.kept())} that are kept can be read")
    yield from (Finding("server", "note", sentence) for sentence in history.integrity.copies())
    timeline = history.timeline
    against = [*map(str, timeline.standing_doubts), *([NOT_AVERAGED] if timeline.missed_means else [])]
    yield from _each("declarations", "note", against, "nothing that was recorded contradicts them")


def _each(subject: str, verdict: Verdict, sentences: Sequence[str], fine: str) -> Iterator[Finding]:
    """Return a finding for each sentence, or that it is fine."""
    yield from (Finding(subject, verdict, sentence) for sentence in sentences)
    if not sentences:
        yield Finding(subject, "fine", fine)
