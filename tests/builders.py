"""What many tests make: a federation, keys, a budget; what a history holds; what is done to it by who tampers."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from click.testing import Result
from securesystemslib.signer import CryptoSigner
from typer.testing import CliRunner

# Shared with the measurements: no other file of tests needs to know where these lie.
from benchmarks._objects import keep_objects as keep_objects
from benchmarks._postgresql import server as server
from benchmarks.recorded import FACTS as FACTS
from benchmarks.recorded import ask_ago as ask_ago
from benchmarks.recorded import federation as federation
from benchmarks.recorded import forget as forget
from benchmarks.recorded import name as name
from benchmarks.recorded import train as train
from rescind import Budget, History, Sampling
from rescind.cli import app
from rescind.core.edges import ModelId, sorted_group
from rescind.core.facts import PrivacyScope
from rescind.core.planning import candidates
from rescind.history.bounds import Bounds, read_bounds
from rescind.history.events import RecordedPlan, write_body
from rescind.history.recorder import Recorder
from rescind.ledger.commitments import canonical, next_entry, stamp
from rescind.ledger.contract import STAMPS, Ledger
from rescind.ledger.records import Branch, Entry, RoundRecord, Span, Stretch
from rescind.simulation import Simulation
from rescind.testing.small import simulation

NOON = "2026-11-01T12:00:00+00:00"
BUDGET = Budget(8.0, 0.01)
SIGNER = CryptoSigner.generate_ed25519()
KEY = SIGNER.public_key
# What the federation whose training is recorded without an engine begins with.
START = {"theta": np.zeros(12)}


def everybody(clients: int = 10, seed: int = 0, **options: Any) -> Simulation:
    """Return the small federation with everybody in every round, and noise that is secret."""
    chosen: dict[str, Any] = {"sampling": Sampling.EVERYBODY, "rate": None, "secret_noise": True} | options
    return simulation(clients, seed, **chosen)


def plan_by_hand(
    history: History, leavers: list[str], parent: ModelId, scope: PrivacyScope = PrivacyScope.GROUP
) -> int:
    """Ask, and plan to go back to a model; return the request's number."""
    number = history.requests.ask(leavers, Budget(5.0, 1e-3), scope=scope)
    request = history.timeline.requests[number - 1].request
    found = candidates(history.summary(request.group), request)
    chosen = next(each for each in found if (each.node.branch, each.node.round) == (parent.branch, parent.round))
    history.requests.record_plan(RecordedPlan((number,), chosen, public_plan=False))
    return number


def restart_by_plan(history: History, number: int) -> int:
    """Restart as a request's plan says; return the branch."""
    plan = history.timeline.plans[number]
    model = history.model(plan.parent)
    with history.recording(FACTS, START) as recorder:
        if not plan.candidate.sigma:
            return recorder.restart(plan.parent, model, requests=(number,)).number
        return forget(recorder, federation(1), plan.parent, plan.candidate.sigma, (number,), model).number


def restarted(history: History, leavers: list[str], parent: ModelId, scope: PrivacyScope = PrivacyScope.GROUP) -> int:
    """Serve a request up to its restart; return the branch."""
    return restart_by_plan(history, plan_by_hand(history, leavers, parent, scope))


def said(*words: object, **options: Any) -> Result:
    """Return what a command said that somebody typed."""
    return CliRunner().invoke(app, [str(word) for word in words], **options)


# What a history holds


def entries_of(history: History, *kinds: str) -> list[Entry]:
    """Return the journal's entries in order, of some kinds or of all."""
    return list(history.ledger.entries(*kinds))


def rounds_of(history: History, branch: int = 0, first: int = 1, last: int | None = None) -> list[RoundRecord]:
    """Return those of a branch's rounds whose numbers are there."""
    return list(history.ledger.rounds(Span(branch, first, history.newest_of(branch).round if last is None else last)))


def rounds_joined(history: History, clients: Iterable[int]) -> list[ModelId]:
    """Return the rounds in which some clients took part."""
    return history.ledger.rounds_of(sorted_group(clients))


def labels_of(history: History) -> dict[int, str]:
    """Return what people call the clients, by pseudonym."""
    return history.ledger.labels()


def objects_of(history: History) -> dict[int, str]:
    """Return the digests of clients' objects, by pseudonym."""
    return history.ledger.objects()


def salts_of(history: History, clients: Iterable[int]) -> dict[int, bytes]:
    """Return the keys that salt what the journal commits to about clients, as far as they are there."""
    return history.ledger.keys(sorted_group(clients))


def name_leaf_of(history: History, client: int) -> bytes:
    """Return the journal's commitment to a client's name."""
    return history.ledger.name_leaves(client, client)[client]


def stretches_of(history: History) -> dict[int, Stretch]:
    """Return what is left of erased rounds, by the branch that they led to."""
    return history.ledger.stretches()


def bounds_of(history: History, *, kept: bool = True) -> Bounds:
    """Return what is derived from the rounds, as whoever goes on with the run reads it; or from all rounds anew."""
    if kept:
        return read_bounds(history.ledger, history.timeline)
    with patch.object(Ledger, "bounds", lambda _: None):
        return bounds_of(history)


def flat_bounds(bounds: Bounds) -> list[object]:
    """Return all that is derived from the rounds in a form that can be compared."""
    states = (bounds.tracker.state(), bounds.retention.state())
    numbers = [
        (field.name, np.asarray(getattr(state, field.name)).tolist()) for state in states for field in fields(state)
    ]
    return [*numbers, bounds.index, bounds.joined, bounds.erased]


def check_kept_bounds(history: History) -> None:
    """Whatever happened: read from where they are kept, they are bit for bit those that all rounds give."""
    assert flat_bounds(bounds_of(history)) == flat_bounds(bounds_of(history, kept=False))


def kept_bounds(history: History) -> bytes:
    """Return what is kept of that under a genuine seal."""
    kept = history.ledger.bounds()
    assert kept is not None
    return kept[1]


# What somebody does to a history beside its own ways


def run_sql(folder: str | os.PathLike[str], *statements: str | tuple[Any, ...]) -> list[Any]:
    """Run SQL in a history's folder, as whoever may write there; a statement may come with its values."""
    with closing(sqlite3.connect(Path(folder, "ledger.sqlite"))) as database, database:
        rows = []
        for statement in statements:
            text, *values = (statement,) if isinstance(statement, str) else statement
            rows += database.execute(text, values).fetchall()
        return rows


def outside_secret(history: History, purpose: str) -> bytes:
    """Return what only somebody can compute who has the secret file."""
    return history.ledger.outside_secret(purpose)


def forge_entry(
    folder: str | os.PathLike[str], kind: str, body: Mapping[str, Any], root: bytes = b"", secret: bytes = bytes(32)
) -> Entry:
    """Append an entry that follows from the last one, as whoever may write can; who has the secret can stamp it."""
    ((sequence, head),) = run_sql(folder, "SELECT sequence, head FROM journal ORDER BY sequence DESC LIMIT 1")
    entry = next_entry(Entry(sequence, "", "", {}, b"", head), kind, "2026-11-16T12:00:00+00:00", body, root)
    text, mark = canonical(body).decode(), stamp(secret, entry.head)
    values = (entry.sequence, kind, entry.time, text, root, entry.head, mark)
    run_sql(folder, ("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)", *values))
    return entry


def rechain(folder: Path) -> None:
    """Compute the chain and its stamps anew, as only somebody can who has the secret."""
    with History(folder, create=False) as opened:
        secret = outside_secret(opened, STAMPS)
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as database:
        previous = None
        query = "SELECT sequence, kind, time, body, root FROM journal ORDER BY sequence"
        for sequence, kind, time, body, root in database.execute(query).fetchall():
            previous = next_entry(previous, kind, time, json.loads(body), root)
            written = (previous.head, stamp(secret, previous.head), sequence)
            database.execute("UPDATE journal SET head = ?, stamp = ? WHERE sequence = ?", written)
        database.commit()


def append_entry(history: History, kind: str, body: Mapping[str, Any]) -> None:
    """Append an entry that no room of a history would write, as whoever has the secret can."""
    history.ledger.append(kind, body, NOON)


def register(history: History, *names: str) -> list[int]:
    """Give clients pseudonyms as a round does, without a round."""
    return history.ledger.register(names, NOON).tolist()


def start_branch(history: History, branch: Branch) -> None:
    """Start a branch that nobody could start any more, as older versions did."""
    history.ledger.start_branch(branch.number, branch.model, write_body(branch), NOON)


def erase_name(history: History, client: int) -> None:
    """Erase a client's name without an erasure that says so, as if it were to come back."""
    with history.held():
        history.ledger.erase_identities(np.array([client]), may_return=True)


def one_turn(history: History) -> AbstractContextManager[object]:
    """Make one transaction of several calls."""
    return history.ledger.turn()


def skip_checks(patch: pytest.MonkeyPatch) -> None:
    """Let the recorder write down whatever it is told, as a changed program does."""
    patch.setattr(Recorder, "_check_restart", lambda *_: None)
    patch.setattr(Recorder, "_check_stage", lambda *_, **__: None)


def delay_writing(patch: pytest.MonkeyPatch, wait: Callable[[], object]) -> None:
    """Let the thread that writes rounds wait before each."""

    class Late(ThreadPoolExecutor):
        def submit(self, write: Callable[..., Any], /, *given: Any, **options: Any) -> Future[Any]:
            return super().submit(lambda: (wait(), write(*given, **options))[1])

    patch.setattr("rescind.history.history.ThreadPoolExecutor", Late)


def seal_bounds(history: History, content: bytes) -> None:
    """Keep other bytes as what is derived from the rounds, under a genuine seal."""
    history.ledger.keep_bounds(history.newest, content)


def sealed_bounds(history: History) -> tuple[Any, ...]:
    """Return the row that holds what is derived from the rounds, with its seal."""
    (row,) = run_sql(history.location, "SELECT sequence, seal, content FROM bounds")
    return row


def put_back_bounds(history: History, row: tuple[Any, ...]) -> None:
    """Put such a row in place of what is there."""
    run_sql(history.location, "DELETE FROM bounds", ("INSERT INTO bounds VALUES (?, ?, ?)", *row))


def has_bounds(history: History) -> bool:
    return bool(run_sql(history.location, "SELECT * FROM bounds"))
