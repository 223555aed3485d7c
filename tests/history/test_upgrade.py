"""Histories of released versions: they open, they are upgraded or left as they were, and they go on being used."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from securesystemslib.signer import CryptoSigner
from sqlalchemy.exc import DBAPIError

from benchmarks import crash_upgrade
from benchmarks._frozen import FROZEN, copy_private, restore
from benchmarks._killing import Location
from benchmarks.next_schema import next_schema
from rescind import History
from rescind.certificates.envelope import sign
from rescind.certificates.issue import build_statement
from rescind.certificates.keys import load_public_key
from rescind.certificates.verification import verify
from rescind.core.calibration import Budget
from rescind.core.edges import ModelId
from rescind.core.facts import NOT_AVERAGED, Mode, Sampling
from rescind.core.sensitivity import group_sensitivity
from rescind.engines.stops import Rounds
from rescind.errors import (
    BrokenHistoryError,
    LockedError,
    MissingSecretError,
    NoHistoryError,
    SchemaVersionError,
)
from rescind.forgetting import Revocable
from rescind.history.locations import upgrade_history
from rescind.ledger import upgrades
from rescind.ledger.contract import Ledger
from rescind.ledger.records import Branch, ErasureLevel
from rescind.ledger.schema import FIRST_RELEASED, SCHEMA_VERSION
from rescind.methods import Exact, FineTuning, Last, Scratch
from rescind.testing.small import simulation
from rescind.views.overview import overview
from tests.builders import everybody, rounds_joined, said, start_branch

SCHEMAS = range(FIRST_RELEASED, SCHEMA_VERSION + 1)
SIGNER = CryptoSigner(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
KEY = load_public_key(Path(__file__).parents[1] / "certificates" / "golden" / "key.pub")


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where a frozen history can be put."""
    run = f"test_{uuid.uuid4().hex}"
    sqlite = request.param == "sqlite"
    return Location(
        request.param,
        str(tmp_path / run) if sqlite else request.getfixturevalue("postgresql"),
        *(str(tmp_path), run),
    )


@pytest.fixture
def frozen(place: Location) -> Location:
    restore(SCHEMA_VERSION, place)
    return place


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    restore(SCHEMA_VERSION, Location("sqlite", str(tmp_path / "history"), str(tmp_path), "history"))
    return tmp_path / "history"


def upgraded(place: Location) -> tuple[int, int]:
    return upgrade_history(place.address, **place.places())


@contextmanager
def by_hand(place: Location) -> Iterator[Callable[[str], Any]]:
    """Change the database of a history."""
    if place.backend == "sqlite":
        with closing(sqlite3.connect(Path(place.address, "ledger.sqlite"), isolation_level=None)) as connection:
            yield connection.execute
        return
    with psycopg.connect(place.address, autocommit=True) as server:
        server.execute(f"SET search_path TO rescind_{place.run}")
        yield server.execute


def engine() -> Any:
    return everybody(6)


# Revisions and tables


def test_every_schema_has_a_frozen_history_and_all_but_the_first_a_revision() -> None:
    assert sorted(upgrades.REVISIONS) == list(SCHEMAS[1:])
    assert {path.name for path in FROZEN.glob("schema_*")} == {f"schema_{number}" for number in SCHEMAS}


def made_of(place: Location) -> set[tuple[Any, ...]]:
    """Return what is in a history's database, as it tells itself."""
    query = "SELECT type, name, sql FROM sqlite_master"
    if place.backend == "postgresql":
        query = """
            SELECT relname, attname, attnum, format_type(atttypid, atttypmod), attnotnull, atthasdef, attstorage,
                attstattarget, attcollation, pg_get_indexdef(pg_class.oid)
            FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid
            WHERE relnamespace = to_regnamespace(current_schema())
        """
    with by_hand(place) as execute:
        rows = execute(query).fetchall()
    return {(*names, "".join(str(sql).replace(place.run, "").split())) for *names, sql in rows}


@pytest.mark.parametrize("number", SCHEMAS)
def test_an_upgraded_history_has_the_tables_of_a_new_one(place: Location, number: int, tmp_path: Path) -> None:
    restore(number, place)
    upgraded(place)
    run = f"test_{uuid.uuid4().hex}"
    (tmp_path / "new").mkdir()
    address = str(tmp_path / "new" / run) if place.backend == "sqlite" else place.address
    new = Location(place.backend, address, str(tmp_path / "new"), run)
    new.open().close()
    assert made_of(place) == made_of(new)


# Frozen histories


@pytest.mark.parametrize("number", SCHEMAS)
def test_a_frozen_history_is_upgraded_and_its_certificate_verifies(place: Location, number: int) -> None:
    restore(number, place)
    assert upgraded(place) == (number, SCHEMA_VERSION)
    certificate = (FROZEN / f"schema_{number}" / place.backend / "certificate.json").read_bytes()
    with place.open() as history:
        assert history.integrity.verify() == []
        assert verify(certificate, [KEY], history=history)
        anew = sign(build_statement(history, history.outcomes()[0].asked.number), [SIGNER])
        assert verify(anew, [KEY], history=history)


def test_stored_updates_go_with_the_upgrade(place: Location) -> None:
    restore(7, place)
    stored = [path for path in Path(place.folder).rglob("*.safetensors") if path.parent.name == "updates"]
    assert stored
    upgraded(place)
    assert not any(path.parent.exists() for path in stored)
    with place.open() as history:
        Revocable(history, engine(), capacity=2).train(Rounds(3))
        assert history.integrity.verify() == []


@pytest.fixture
def unbounded(tmp_path: Path) -> Iterator[History]:
    """Return a history of schema 7, upgraded: Scratch served request 1, FedAccum request 2, fine-tuning request 3.

    Branch 2 began with what clinics 2 to 7 had sent. The stretch before branch 3 is erased, and names neither clinic
    2 nor clinic 4, who took part in none of its rounds.
    """
    source = FROZEN / "unbounded"
    for name in ("history", "history.secret"):
        copy_private(source / name, tmp_path / name)
    assert upgrade_history(tmp_path / "history") == (7, SCHEMA_VERSION)
    with History(tmp_path / "history", create=False) as history:
        yield history


def go_on(history: History, clients: int = 8) -> Revocable:
    drawn = simulation(clients, sampling=Sampling.FIXED_SIZE, rate=None, size=3, secret_noise=True)
    return Revocable(history, drawn, capacity=4)


def test_a_history_with_an_unbounded_branch_opens_and_claims_heuristic(unbounded: History) -> None:
    assert unbounded.integrity.verify() == []
    assert [outcome.mode for outcome in unbounded.outcomes()] == [Mode.HEURISTIC] * 3
    for number, name in ((1, "exact"), (2, "heuristic")):
        found = verify((FROZEN / "unbounded" / f"{name}.json").read_bytes(), [KEY], history=unbounded)
        assert found.statement.predicate.mode == name
        anew = build_statement(unbounded, number)
        assert (anew.predicate.mode, bool(anew.predicate.reasons)) == ("heuristic", True)
        assert verify(sign(anew, [SIGNER]), [KEY], history=unbounded)


@pytest.mark.parametrize(("name", "rounds"), [("clinic-2", []), ("clinic-4", [ModelId(3, 1)])])
def test_nobody_is_forgotten_exactly_from_behind_an_unbounded_beginning(
    unbounded: History, name: str, rounds: list[ModelId]
) -> None:
    """In no round up to model 3.0, but what it once sent is in the model that branch 2 began with."""
    (client,) = unbounded.participants.find([name])
    assert rounds_joined(unbounded, [client]) == rounds
    assert np.isinf(group_sensitivity(unbounded.lineage().edges, [client])[-1])
    federation = go_on(unbounded)
    number = unbounded.requests.ask([name], Budget(5.0, 1e-5))
    candidate = federation.plan(Exact(), number).candidate
    assert (candidate.node.branch, candidate.node.round) in ((0, 0), (1, 0))
    federation.forget(Exact(), Rounds(2))
    assert [outcome.mode for outcome in unbounded.outcomes()] == [Mode.HEURISTIC] * 3 + [Mode.EXACT]
    assert unbounded.integrity.verify() == []


@pytest.mark.parametrize("level", ErasureLevel)
def test_behind_an_unbounded_beginning_noise_proves_nothing(unbounded: History, level: ErasureLevel) -> None:
    """Who had sent anything by then has no bound, and that of who came later counts for nothing."""
    federation = go_on(unbounded, clients=9)
    federation.train(Rounds(6))
    unbounded.requests.ask(["clinic-8"], Budget(5.0, 1e-5))
    (outcome,) = federation.forget(Last(), Rounds(2), level=level)
    assert outcome.restart is not None
    assert (outcome.restart.branch.sigma > 0, outcome.mode) == (True, Mode.HEURISTIC)
    assert outcome.restart is not None
    assert outcome.restart.planned.candidate.obstacles == (NOT_AVERAGED,)
    # Also once its rounds are erased.
    assert np.isinf(group_sensitivity(unbounded.lineage().edges, unbounded.participants.find(["clinic-2"]))[-1])
    unbounded.requests.ask(["clinic-2"], Budget(5.0, 1e-5))
    with pytest.raises(ValueError, match="not bounded yet"):
        federation.forget(Last(), Rounds(2), level=level)
    assert unbounded.integrity.verify() == []


def test_an_unbounded_branch_that_was_cut_off_is_trained_to_its_end(unbounded: History) -> None:
    federation = go_on(unbounded)
    number = unbounded.requests.ask(["clinic-4"], Budget(5.0, 1e-5))
    federation.plan(FineTuning(), number)
    newest = unbounded.newest
    begun = Branch(4, unbounded.kept()[newest], newest, requests=(number,), unbounded=True)
    start_branch(unbounded, begun)
    (outcome,) = federation.forget(Scratch(), Rounds(2))
    assert (outcome.asked.number, outcome.rounds, outcome.mode) == (number, 2, Mode.HEURISTIC)
    assert unbounded.integrity.verify() == []


def test_a_history_goes_on_after_an_upgrade(frozen: Location) -> None:
    with next_schema():
        with pytest.raises(
            SchemaVersionError, match=r"has schema 8.*writes 9: back it up, and run `rescind upgrade`"
        ):
            frozen.open()
        assert upgraded(frozen) == (8, 9)
        assert upgraded(frozen) == (9, 9)
        with frozen.open() as history:
            assert history.integrity.verify() == []
            federation = Revocable(history, engine(), capacity=2)
            before = history.newest
            federation.train(Rounds(3))
            assert history.newest.round == before.round + 1
            number = history.requests.ask(["clinic-4"], Budget(5.0, 1e-5))
            federation.forget(Scratch(), Rounds(2))
            assert verify(sign(build_statement(history, number), [SIGNER]), [KEY], history=history)
            assert history.integrity.verify() == []
            assert "clinic-4" not in history.participants.all()
    with by_hand(frozen) as execute:
        assert execute("SELECT count(*) FROM remark").fetchone()[0] > 0
    with pytest.raises(SchemaVersionError, match=r"has schema 9.*knows up to 8: install a newer rescind"):
        frozen.open()
    with pytest.raises(SchemaVersionError, match="install a newer rescind"):
        upgraded(frozen)


def test_the_command_says_what_it_did(folder: Path) -> None:
    assert said("upgrade", folder).output == (
        "There is nothing to do: the history has schema 8, which this rescind writes.\n"
    )
    with next_schema():
        assert "run `rescind upgrade`" in said("status", folder).output
        assert json.loads(said("upgrade", folder, "--json").output) == {"from": 8, "to": 9}
        assert said("doctor", folder).exit_code == 0
    refused = said("upgrade", folder)
    assert refused.exit_code == 1
    assert "install a newer rescind" in refused.output
    assert sorted(os.listdir(folder)) == ["checkpoints", "ledger.sqlite", "ledger.sqlite.lock", "objects"]
    assert (folder / "ledger.sqlite").stat().st_mode & 0o777 == 0o600
    assert "there is no history" in said("upgrade", folder.parent / "elsewhere").output


def test_the_command_finds_a_run_on_a_server(postgresql: str, tmp_path: Path, monkeypatch: Any) -> None:
    place = Location("postgresql", postgresql, str(tmp_path), f"test_{uuid.uuid4().hex}")
    restore(SCHEMA_VERSION, place)
    monkeypatch.setenv("RESCIND_RUN", place.run)
    monkeypatch.setenv("RESCIND_SECRET", str(tmp_path / "secret"))
    with next_schema():
        assert "needs a place for its models" in said("upgrade", postgresql).output
    monkeypatch.setenv("RESCIND_CHECKPOINTS", str(tmp_path))
    with next_schema():
        assert "from schema 8 to schema 9" in said("upgrade", postgresql).output


def test_a_linked_history_is_upgraded_where_it_is(folder: Path) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder)
    elsewhere = folder.with_name("elsewhere")
    elsewhere.mkdir()
    (folder / "ledger.sqlite").rename(elsewhere / "ledger.sqlite")
    (folder / "ledger.sqlite").symlink_to(elsewhere / "ledger.sqlite")
    with next_schema():
        assert upgrade_history(link) == (8, 9)
        with History(folder, create=False) as history:
            assert history.integrity.verify() == []
    assert (folder / "ledger.sqlite").is_symlink()


# What is refused, and left as it was


def test_nothing_is_upgraded_while_somebody_writes(frozen: Location) -> None:
    with frozen.open() as history, history.held(), next_schema(), pytest.raises(LockedError):
        upgraded(frozen)
    assert upgraded(frozen) == (8, 8)


def test_what_was_opened_before_an_upgrade_writes_nothing_after_it(frozen: Location) -> None:
    with frozen.open() as history:
        before = history.head
        with next_schema():
            upgraded(frozen)
        for write in (
            lambda: history.requests.ask(["clinic-4"], Budget(5.0, 1e-5)),
            lambda: history.name_run(model="x"),
        ):
            with pytest.raises(SchemaVersionError, match="upgraded to schema 9 meanwhile"):
                write()
        with pytest.raises(SchemaVersionError, match="upgraded to schema 9 meanwhile"):
            Revocable(history, engine(), capacity=2).train(Rounds(3))
        assert history.head == before
        # What it would plan may rest on columns that mean something else now.
        for read in (
            history.lineage,
            lambda: overview(history),
            lambda: history.summary([1]),
            history.integrity.verify,
        ):
            with pytest.raises(SchemaVersionError, match="upgraded to schema 9 meanwhile"):
                read()


def test_whoever_asks_during_an_upgrade_waits_and_does_not_stop_it(
    postgresql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Location("postgresql", postgresql, str(tmp_path), f"test_{uuid.uuid4().hex}")
    restore(SCHEMA_VERSION, place)
    upgrade_tables, answers = upgrades.upgrade_tables, []

    def ask() -> None:
        with by_hand(place) as execute:
            answers.extend(execute("SELECT schema_version FROM run FOR UPDATE").fetchone())

    asking = Thread(target=ask)

    def upgrade_meanwhile(*arguments: Any) -> None:
        asking.start()
        with by_hand(place) as execute:
            while not execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone():
                time.sleep(0.01)
        upgrade_tables(*arguments)

    monkeypatch.setattr(upgrades, "upgrade_tables", upgrade_meanwhile)
    with next_schema():
        assert upgraded(place) == (8, 9)
    asking.join()
    assert answers == [9]


CHANGES = {
    "a table of alembic's": "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
    "a column": "ALTER TABLE journal ADD COLUMN other TEXT",
    "a number": "UPDATE round SET update_norm = update_norm / 2",
    "an entry": "UPDATE journal SET body = replace(body, '5.0', '0.5') WHERE kind = 'request'",
    "an unreadable entry": "UPDATE journal SET body = 'x' WHERE sequence = 3",
    "a name": "UPDATE identity SET name = 'another' WHERE pseudonym = 1",
    "a table of the next schema": "CREATE TABLE remark (number INTEGER)",
    "a table left by a cut": "CREATE TABLE _alembic_tmp_identity (number INTEGER)",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_history_that_somebody_changed_stays_as_it_was(frozen: Location, change: str) -> None:
    with by_hand(frozen) as execute:
        execute(change)
    before = crash_upgrade.digest(frozen)
    told = "was not upgraded, and is as it was, with schema 8|already exists"
    with next_schema(), pytest.raises((BrokenHistoryError, DBAPIError), match=told):
        upgraded(frozen)
    assert crash_upgrade.digest(frozen) == before


def test_without_the_secret_nothing_is_upgraded(folder: Path) -> None:
    folder.with_name("history.secret").unlink()
    with next_schema(), pytest.raises(MissingSecretError):
        upgrade_history(folder)
    with History(folder, create=False) as history:
        assert history.integrity.verify() == []


NUMBERS = {
    "a text": ("text", "'seven'"),
    "a text of a number": ("text", "'7'"),
    "bytes": ("blob", "x'37'"),
    "a fraction": ("real", "7.5"),
    "none": ("text", "NULL"),
    "zero": ("integer", "0"),
    "negative": ("integer", "-7"),
    "before the first": ("integer", "6"),
    "huge": ("integer", "9223372036854775807"),
    "next": ("integer", "9"),
}


@pytest.mark.parametrize(("kind", "number"), NUMBERS.values(), ids=NUMBERS.keys())
def test_a_number_that_is_no_schema_is_refused(frozen: Location, kind: str, number: str) -> None:
    with by_hand(frozen) as execute:
        if frozen.backend == "sqlite":
            execute("ALTER TABLE run RENAME TO old")
            other = f"CAST({number} AS {kind}) AS schema_version, name, secret, secret_check"
            execute(f"CREATE TABLE run AS SELECT {other} FROM old")  # noqa: S608
            execute("DROP TABLE old")
        else:
            other = {"blob": "bytea", "real": "double precision", "integer": "bigint"}.get(kind, kind)
            value = number.replace("x'37'", "'7'")
            execute("ALTER TABLE run DROP CONSTRAINT run_pkey, ALTER schema_version DROP NOT NULL")
            execute(f"ALTER TABLE run ALTER schema_version TYPE {other} USING CAST({value} AS {other})")
    before = crash_upgrade.digest(frozen)
    expected = SchemaVersionError if number in ("6", "9", "9223372036854775807") else NoHistoryError
    for use in (frozen.open, lambda: upgraded(frozen)):
        with pytest.raises(expected) as refused:
            use()
        assert str(refused.value).isprintable()
    assert crash_upgrade.digest(frozen) == before


def test_an_erasure_that_was_cut_off_is_finished_after_the_upgrade(
    frozen: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    with frozen.open() as history, monkeypatch.context() as patch:
        history.requests.ask(["clinic-4"], Budget(5.0, 1e-5))
        patch.setattr(Ledger, "erase_rounds", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Revocable(history, engine(), capacity=2).forget(Last(), Rounds(2))
    with next_schema():
        assert upgraded(frozen) == (8, 9)
        with frozen.open() as history:
            assert history.finish_erasures() == 1
            assert history.integrity.verify() == []


# Processes that die, and disks that are full


def child(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Upgrade in another process, whose pages go to the disk at once."""
    code = [
        *(
            "import os, resource, signal",
            "from sqlalchemy import Engine, event",
            "from benchmarks import next_schema",
        ),
        *("from rescind.history.locations import upgrade_history", "from rescind.ledger import upgrades"),
        "event.listen(Engine, 'begin', lambda each: each.exec_driver_sql('PRAGMA cache_size=1'))",
        *lines,
        "with next_schema.next_schema():",
        f"    upgrade_history({str(folder)!r})",
    ]
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(code)], cwd=root, capture_output=True, text=True, check=False
    )


def test_who_goes_on_with_the_old_schema_after_a_kill_erases_all_of_it(folder: Path) -> None:
    killed = child(
        folder,
        "event.listen(Engine, 'commit', lambda _: os.kill(os.getpid(), signal.SIGKILL))",
    )
    assert killed.returncode == -signal.SIGKILL
    # What the upgrade had written of the name is there, and no part of the database.
    assert b"clinic-4" in (folder / "ledger.sqlite-wal").read_bytes()
    with History(folder, create=False) as history:
        history.requests.ask(["clinic-4"], Budget(5.0, 1e-5))
        Revocable(history, engine(), capacity=2).forget(Last(), Rounds(2))
        assert history.integrity.verify() == []
        held = [path.name for path in folder.rglob("*") if path.is_file() and b"clinic-4" in path.read_bytes()]
    assert held == []


def test_a_full_disk_leaves_the_history_as_it_was(folder: Path) -> None:
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy)
    full = child(
        folder,
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (24_000, 24_000))",
    )
    assert full.returncode == 1
    assert "disk" in full.stderr
    places = [Location("sqlite", str(each), str(each.parent), "history") for each in (folder, copy)]
    assert crash_upgrade.digest(places[0]) == crash_upgrade.digest(places[1])
    with next_schema():
        assert upgrade_history(folder) == (8, 9)


def test_killed_upgrades_end_right() -> None:
    result = crash_upgrade.ordeal(8)
    assert {name: result[name] for name in crash_upgrade.FAILURES} == dict.fromkeys(crash_upgrade.FAILURES, 0)
    assert result["kills"] == 8
